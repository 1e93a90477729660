// Which page this is, and how the connection stands.

import { setText } from "./dom.js";
import { publishForm } from "./publish.js";
import { runPage } from "./run.js";
import { seedPage } from "./seed.js";
import { Store } from "./store.js";
import { timelinePage } from "./timeline.js";

const PAGES = { "/timeline": timelinePage, "/seed": seedPage };

const store = new Store();
const main = document.getElementById("main");
const state = document.getElementById("state");
const update = (PAGES[location.pathname] ?? runPage)(store, main);

for (const link of document.querySelectorAll("nav a")) {
  if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
}

store.listen(() => {
  const { head, connected } = store;
  const word = !connected ? "reconnecting" : !head ? "connecting" : head.ended ? "ended" : head.trouble ? `Redis does not answer: ${head.trouble}` : head.paused ? "paused" : "live";
  setText(state, word);
  state.className = word === "live" ? "met" : word === "ended" ? "" : "missed";
  main.classList.toggle("ended", word === "ended");  // nobody is left to carry out what a form would publish
  if (head) {
    setText(document.getElementById("title"), `Run ${head.run}`);
    const name = new URLSearchParams(location.search).get("id");
    document.title = `${name && location.pathname === "/seed" ? `${name}, ` : ""}${head.run} – Esper`;
  }
});
store.listen((changed) => {
  if (store.known) update(changed);
});
store.connect();
if (location.pathname === "/") publishForm(main);

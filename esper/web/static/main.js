// Which page this is, and how the connection stands.

import { setText } from "./dom.js";
import { clock } from "./words.js";
import { publishForm } from "./publish.js";
import { runPage } from "./run.js";
import { seedPage } from "./seed.js";
import { Store } from "./store.js";
import { timelinePage } from "./timeline.js";

const PAGES = { "/timeline": timelinePage, "/seed": seedPage };

// What the run is at, and how old that is; of workers that are silent or evicted how many, and that alone where none is left.
function wordOf(head, connected) {
  if (!head) return connected ? "connecting" : "reconnecting";
  if (!connected) return `old data, of ${clock(head.at_ms)}: connection lost, reconnecting`;
  if (head.ended) return "ended";
  if (head.trouble) return `old data, of ${clock(head.at_ms)}: ${head.trouble}`;
  const troubled = Object.entries(head.troubled);
  const words = troubled.map(([state, count]) => `${count} of ${head.known} workers ${state}`);
  const num = troubled.reduce((sum, [, count]) => sum + count, 0);
  return [...(num < head.known || num === 0 ? [head.paused ? "paused" : "live"] : []), ...words].join(", ");
}

const store = new Store();
const main = document.getElementById("main");
const state = document.getElementById("state");
const update = (PAGES[location.pathname] ?? runPage)(store, main);

for (const link of document.querySelectorAll("nav a")) {
  if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
}

store.listen(() => {
  const { head, connected } = store;
  const word = wordOf(head, connected);
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

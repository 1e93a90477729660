// The page of all decisions, newest first.

import { el, keyed, setText } from "./dom.js";
import { rowNode, updateRow } from "./rows.js";

const PAGE = 100;

export function timelinePage(store, main) {
  let shown = PAGE;
  const standing = el("select", { id: "standing" }, ...["any", "verified", "sealed", "unsigned", "refused"].map((each) => el("option", { value: each }, each)));
  const empty = el("input", { type: "checkbox", id: "empty" });
  const count = el("p", { class: "aside", role: "status" });
  const list = el("div", { class: "rows" });
  const more = el("button", { type: "button" }, "Show more");
  const show = () => {
    const rows = store.ordered().filter((row) => (empty.checked || !row.empty) && (standing.value === "any" || row.seal.standing === standing.value));
    keyed(list, rows.slice(0, shown), (row) => row.id, rowNode, updateRow);
    setText(count, `${Math.min(shown, rows.length)} of ${rows.length} decisions, newest first`);
    more.hidden = rows.length <= shown;
  };
  for (const each of [standing, empty]) each.addEventListener("change", show);
  more.addEventListener("click", () => {
    shown += PAGE;
    show();
  });
  main.append(
    el("h2", {}, "Every decision"),
    el("div", { class: "choices" },
      el("label", { for: "standing" }, "signature "), standing,
      el("label", { class: "target" }, empty, " rounds in which nothing was decided, too")),
    count, list, more,
  );
  return (changed) => {
    if (changed.rows) show();
  };
}

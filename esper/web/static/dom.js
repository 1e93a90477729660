// Builds the page from text. Nothing here or elsewhere takes a string for markup: what a run names itself is shown, not run.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// One child a row, by its key, in this order. A child that stays is updated in place, so that it keeps the focus.
export function keyed(parent, rows, keyOf, build, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const row of rows) {
    const key = String(keyOf(row));
    let child = known.get(key);
    known.delete(key);
    if (child === undefined) {
      child = build(row);
      child.dataset.key = key;
    }
    update(child, row);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

// A table whose rows become cards where the screen is narrow. Cells are functions from a row to text or to a node.
export class Table {
  constructor(caption, columns, keyOf) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.body = el("tbody");
    const heads = columns.map((column) => el("th", { scope: "col", role: "columnheader", class: column.kind ?? "" }, column.name));
    const head = el("thead", {}, el("tr", { role: "row" }, ...heads));
    this.node = el("table", { role: "table" }, el("caption", {}, caption), head, this.body);
  }

  show(rows) {
    keyed(this.body, rows, this.keyOf, () => this.built(), (line, row) => this.update(line, row));
  }

  built() {
    const cells = this.columns.map((column, at) =>
      at === 0
        ? el("th", { scope: "row", role: "rowheader" })
        : el("td", { role: "cell", "data-label": column.name, class: column.kind ?? "" }));
    return el("tr", { role: "row" }, ...cells);
  }

  update(line, row) {
    this.columns.forEach((column, at) => {
      const cell = line.children[at];
      if (column.fill) column.fill(cell, row);
      else setText(cell, column.text(row));
    });
  }
}

export function link(cell, href, text) {
  let anchor = cell.querySelector("a");
  if (anchor === null) {
    anchor = el("a", { class: "target" });
    cell.append(anchor);
  }
  if (anchor.getAttribute("href") !== href) anchor.setAttribute("href", href);
  setText(anchor, text);
}

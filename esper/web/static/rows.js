// One decision: a line that opens, with who sealed it, whether that holds, and what was answered.

import { el, setText } from "./dom.js";
import { clock, moment, number, seedPath } from "./words.js";

const MEANING = {
  verified: "signed by the controller's own Ed25519 key, and the signature holds",
  sealed: "its seal (HMAC) is right; messages of this kind carry no signature",
  unsigned: "its seal is right, its signature is missing or wrong",
  refused: "no reader takes it; the names are those that it claims",
};

export function rowNode() {
  const line = el("summary", { class: "target" }, el("span", { class: "when" }), el("span", { class: "standing" }), el("span", { class: "what" }), el("span", { class: "status" }));
  return el("details", { class: "row" }, line, el("div", { class: "inside" }));
}

export function updateRow(node, row) {
  const [line, inside] = node.children;
  const [when, standing, what, status] = line.children;
  setText(when, clock(row.at_ms));
  setText(standing, row.seal.standing);
  standing.className = `standing ${row.seal.standing}`;
  setText(what, row.kind === "refused" ? `refused: ${row.what}` : row.what);
  const why = row.answers.find((answer) => answer.status === row.status && answer.reason);
  setText(status, why ? `${row.status}: ${why.reason}` : row.status);
  status.className = `status ${row.status}`;
  const shown = JSON.stringify(row);
  if (inside.dataset.shown === shown) return;
  inside.dataset.shown = shown;
  inside.replaceChildren(...contents(row));
}

function contents(row) {
  const { seal } = row;
  const who = seal.producer ? `${seal.role} ${seal.producer}, key ${seal.key}` : "nobody that it names";
  const facts = [
    ["sealed by", row.by && row.by !== seal.producer ? `${who}, issued by ${row.by}` : who],
    ["signature", `${seal.standing}: ${MEANING[seal.standing]}${seal.detail ? ` (${seal.detail})` : ""}`],
    ["entry", `${row.id}, ${moment(row.at_ms)}`],
  ];
  if (row.step !== null) facts.push(["before step", number(row.step)]);
  const list = el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  if (row.seed) list.append(el("dt", {}, "seed"), el("dd", {}, el("a", { href: seedPath(row.seed), class: "target" }, row.seed)));
  if (row.answers.length === 0) return [list];
  return [list, el("ul", {}, ...row.answers.map((answer) => el("li", { class: answer.status }, told(answer))))];
}

function told(answer) {
  const parts = [answer.status, `by ${answer.worker}`];
  if (answer.step) parts.push(answer.status === "accepted" ? `to take effect before step ${answer.step}` : `at step ${answer.step}`);
  if (answer.stage) parts.push(`→ ${answer.stage.toLowerCase()}`);
  if (answer.reason) parts.push(`(${answer.reason})`);
  return parts.join(" ") + (answer.detail ? `: ${answer.detail}` : "");
}

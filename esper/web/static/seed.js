// The page of one seed: where it stands, what it was worth, its history with what each gate was shown.

import { el, keyed, setText } from "./dom.js";
import { plot } from "./plots.js";
import { rowNode, updateRow } from "./rows.js";
import { NONE, gain, moment, number } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

export function seedPage(store, main) {
  const id = new URLSearchParams(location.search).get("id") ?? "";
  const facts = el("dl", { class: "figures" });
  const worth = el("section", {}, el("h2", {}, "Paired gain"));
  const told = el("p");
  const drawing = el("div", { class: "interval" });
  worth.append(told, drawing);
  const alpha = plot({ title: "Alpha over steps" });
  const history = el("ol", { class: "history" });
  const decisions = el("div", { class: "rows" });
  const problem = el("p", { role: "status", class: "missed" });
  const parts = [
    facts, worth, el("section", { class: "charts one" }, alpha.node),
    el("section", {}, el("h2", {}, "History, newest first"), history),
    el("section", {}, el("h2", {}, "Its commands"), decisions),
  ];
  main.append(el("h2", { class: "name" }, `Seed ${id}`), problem, ...parts);
  let known = "";
  let drawn = "";
  const load = async () => {
    try {
      const answer = await fetch(`/api/seed?id=${encodeURIComponent(id)}`);
      const seed = await answer.json();
      setText(problem, answer.ok ? "" : seed.error);
      for (const part of parts) part.hidden = !answer.ok;
      if (answer.ok) show(seed);
    } catch (error) {
      known = "";  // asked for again with the next change
      setText(problem, `the server did not tell of this seed: ${error.message}`);
    }
  };
  const show = (seed) => {
    showFacts(facts, seed);
    setText(told, seed.gain
      ? `${gain(seed.gain)}: loss with the seed off minus on, on the same held-out examples, with its interval. ${verdict(seed.gain)}`
      : seed.unmeasured);
    const said = JSON.stringify([seed.gain, seed.moments]);  // alpha changes with every heartbeat, these seldom
    if (said === drawn) return;
    drawn = said;
    drawing.replaceChildren(...(seed.gain ? [interval(seed.gain)] : []));
    history.replaceChildren(...seed.moments.toReversed().map(momentNode));
  };
  return (changed) => {
    if (changed.seeds) {
      const now = JSON.stringify(store.seeds.find((seed) => seed.id === id) ?? null);
      if (now !== known) load();
      known = now;
    }
    if (changed.lines) {
      const line = store.lines.alpha?.[id];
      alpha.show(line ? { [id]: line } : {});
    }
    if (changed.rows) keyed(decisions, store.ordered().filter((row) => row.seed === id), (row) => row.id, rowNode, updateRow);
  };
}

function showFacts(list, seed) {
  const facts = {
    stage: (seed.stage === "GONE" ? "gone: the process that had it began anew without it" : seed.stage.toLowerCase() || NONE) + (seed.paused ? " (paused)" : ""),
    "since step": number(seed.since_step),
    alpha: number(seed.alpha),
    site: seed.site || NONE,
    blueprint: seed.blueprint || NONE,
    "learning rate": number(seed.learning_rate),
    ...(seed.outcome ? { outcome: `${seed.outcome}${seed.report.detail ? `: ${seed.report.detail}` : ""}` } : {}),
  };
  keyed(list, Object.entries(facts), ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (node, [, value]) => setText(node.lastElementChild, value));
}

function verdict({ low, high }) {
  if (low > 0) return "The whole interval lies above zero: it helps.";
  return high < 0 ? "The whole interval lies below zero: it harms." : "The interval holds zero: neither is shown.";
}

function momentNode(each) {
  const gate = each.gate ? `${each.gate}: ${each.passed ? "passed" : "failed"}` : "";
  const stage = each.stage.toLowerCase() || "held";
  const head = el("p", {}, el("b", {}, each.passed || !each.stage ? stage : `stays ${stage}`), ` at step ${number(each.step)}`,
    each.at_ms ? `, ${moment(each.at_ms)}` : "", gate ? ". " : "", el("span", { class: each.passed ? "met" : "missed" }, gate));
  const evidence = Object.entries(each.evidence);
  const parts = [head];
  if (each.detail) parts.push(el("p", { class: "aside" }, each.detail));
  if (evidence.length) parts.push(el("dl", { class: "evidence" }, ...evidence.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, number(value))))));
  return el("li", {}, ...parts);
}

// A dot with whiskers beside zero.
function interval({ mean, low, high }) {
  const ends = [Math.min(low, 0), Math.max(high, 0)];
  const at = (value) => 20 + (360 * (value - ends[0])) / (ends[1] - ends[0] || 1);
  const made = (name, attributes) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const label = (value, text) => {
    const node = made("text", { x: at(value), y: 44, "text-anchor": "middle" });
    node.textContent = text;
    return node;
  };
  const svg = made("svg", { viewBox: "0 0 400 50", role: "img", "aria-label": `mean ${number(mean)}, from ${number(low)} to ${number(high)}; zero is marked` });
  svg.append(
    made("line", { x1: at(0), x2: at(0), y1: 4, y2: 32, class: "zero" }),
    made("line", { x1: at(low), x2: at(high), y1: 18, y2: 18, class: "whisker" }),
    made("circle", { cx: at(mean), cy: 18, r: 5, class: "mean" }),
    label(0, "0"), label(mean, number(mean)),
  );
  return svg;
}

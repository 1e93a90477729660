// The page of a run: figures, plots, workers, seeds, the newest decisions.

import { Table, el, keyed, link, setText } from "./dom.js";
import { plot } from "./plots.js";
import { rowNode, updateRow } from "./rows.js";
import { NONE, clock, gain, moment, number, seedPath } from "./words.js";

const NEWEST = 8;

export function runPage(store, main) {
  const figures = el("dl", { class: "figures" });
  const loss = plot({ title: "Loss over steps; dashed: a seed was grafted, became part of the model, or was culled; or the run rolled back", marked: true, main: "all ranks" });
  const plots = {
    loss,
    alpha: plot({ title: "Alpha of each blended seed over steps" }),
    growth: plot({ title: "Parameters of seeds over steps, by G0's measure", stepped: true, unit: "bytes" }),
    latency: plot({ title: "Barrier latency (ms): proposal to commit", time: true }),
    rate: plot({ title: "Telemetry (1/s): packets folded, aggregates made of them", time: true, logarithmic: true }),
  };
  const workers = workerTable();
  const seeds = seedTable();
  const noSeeds = el("p", { class: "aside" }, "no seed yet");
  const alarms = el("ul", { class: "alarms" });
  const newest = el("div", { class: "rows" });
  main.append(
    figures,
    alarms,
    el("section", { class: "charts", "aria-label": "Plots" }, ...Object.values(plots).map((each) => each.node)),
    el("section", {}, el("h2", {}, "Seeds"), seeds.node, noSeeds),
    el("section", {}, el("h2", {}, "Workers"), workers.node),
    el("section", {}, el("h2", {}, "Newest decisions"), newest, el("p", {}, el("a", { href: "/timeline", class: "target" }, "All decisions"))),
  );
  return (changed) => {
    if (changed.head || changed.flow) showFigures(figures, store);
    if (changed.alarms) showAlarms(alarms, store.alarms);
    if (changed.workers) workers.show(store.workers);
    if (changed.seeds) {
      seeds.show(store.seeds);
      noSeeds.hidden = store.seeds.length > 0;
      seeds.node.hidden = store.seeds.length === 0;
    }
    if (changed.lines || changed.marks) {
      for (const [name, each] of Object.entries(plots)) each.show(store.lines[name], store.marks);
    }
    if (changed.rows) {
      keyed(newest, store.ordered().filter((row) => !row.empty).slice(0, NEWEST), (row) => row.id, rowNode, updateRow);
    }
  };
}

function showFigures(list, { head, flow }) {
  if (!head || !flow) return;
  const refused = Object.entries(head.rejected).map(([reason, count]) => `${count}\u00a0${reason}`).join(", ");
  const tiers = flow.tiers.map((tier) => `${number(tier.count)} ${tier.name}`).join(" → ");
  const figures = {
    step: `${number(head.step)} in epoch ${number(head.epoch)}`,
    workers: `${number(head.world_size)}`,
    commands: `${number(head.published)} published, ${number(head.applied)} applied` + (head.untold ? `, ${number(head.untold)} too long ago to tell` : ""),
    refused: refused || "none",
    telemetry: tiers + (flow.shed ? `, ${number(flow.shed)} shed` : ""),
    rounds: `${number(flow.rounds.committed)} committed, ${number(flow.rounds.aborted)} aborted${since(flow.rounds.since_ms, head.at_ms)}; p50 ${number(flow.rounds.p50_ms)} ms, p99 ${number(flow.rounds.p99_ms)} ms`,
  };
  if (head.unread.includes("decisions")) figures.rounds = NONE;
  if (head.unread.length > 0) figures["kept from this page"] = `${head.unread.join(", ")}: its user of Redis may not read that`;
  keyed(list, Object.entries(figures), ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (node, [, value]) => setText(node.lastElementChild, value));
}

// From when on they were read: a server begins with the newest.
function since(ms, now) {
  if (!ms) return "";
  return ` since ${now - ms < 43_200_000 ? clock(ms) : moment(ms)}`;
}

function showAlarms(list, { breakers, signals }) {
  const rows = [
    ...breakers.map((each) => [`b ${each.worker} ${each.name}`, `breaker ${each.name} of ${each.worker}: ${each.state}, opened ${each.times === 1 ? "" : `${each.times} times, last `}at ${clock(each.opened_ms)} (${each.reason || "no reason told"})`]),
    ...signals.filter((each) => each.reason !== "breaker.opened").slice(-3).map((each, at) => [`s ${at} ${each.step}`, `${each.reason}, by ${each.origin} at step ${each.step}`]),
  ];
  list.hidden = rows.length === 0;
  keyed(list, rows, ([key]) => key, () => el("li"), (node, [, text]) => setText(node, text));
}

function workerTable() {
  return new Table("Workers by rank", [
    { name: "worker", text: (row) => row.name },
    { name: "state", fill: (cell, row) => { setText(cell, row.state); cell.className = row.state === "training" ? "met" : ["silent", "evicted"].includes(row.state) ? "missed" : ""; } },
    { name: "region", text: (row) => row.region || NONE },
    { name: "step", kind: "number", text: (row) => number(row.step) },
    { name: "loss", kind: "number", text: (row) => number(row.loss) },
    { name: "accuracy", kind: "number", text: (row) => number(row.accuracy) },
    { name: "steps/s", kind: "number", text: (row) => number(row.steps_per_s) },
    { name: "samples/s", kind: "number", text: (row) => number(row.samples_per_s) },
    { name: "lag", kind: "number", text: (row) => number(row.lag) },
  ], (row) => row.name);
}

function seedTable() {
  return new Table("Seeds by name", [
    { name: "seed", fill: (cell, row) => link(cell, seedPath(row.id), row.id) },
    { name: "stage", fill: (cell, row) => { setText(cell, (row.stage.toLowerCase() || NONE) + (row.paused ? " (paused)" : "")); cell.className = `stage ${row.stage.toLowerCase()}`; } },
    { name: "since step", kind: "number", text: (row) => number(row.since_step) },
    { name: "alpha", kind: "number", text: (row) => number(row.alpha) },
    { name: "site", text: (row) => row.site || NONE },
    { name: "blueprint", text: (row) => row.blueprint || NONE },
    { name: "last gate", text: (row) => (row.gate ? `${row.gate.gate.split("_")[0]} ${row.gate.passed ? "passed" : "failed"}` : NONE) },
    { name: "paired gain", text: (row) => gain(row.gain) },
  ], (row) => row.id);
}

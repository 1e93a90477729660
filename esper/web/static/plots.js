// Lines over steps or over time, by uPlot, in the colours of the page; vertical marks where a seed's stage changed or the run rolled back.

import { el } from "./dom.js";
import { bytes, clock, number } from "./words.js";

const HEIGHT = 200;
const NUM_COLOURS = 6;
const MOST_LABELS = 6;
const WORDS = { BLENDING: "grafted", FOSSILIZED: "fossilized", CULLED: "culled" };
const drawn = new Set();

export function plot(options) {
  const made = new Plot(options);
  drawn.add(made);
  return made;
}

class Plot {
  constructor({ title, time = false, stepped = false, logarithmic = false, unit = "", marked = false, main = "" }) {
    Object.assign(this, { title, time, stepped, logarithmic, unit, marked, main });
    this.names = [];
    this.lines = {};
    this.marks = [];
    this.chart = null;
    this.waiting = false;
    this.place = el("div", { class: "chart" });
    this.caption = el("figcaption", {}, title);
    this.node = el("figure", { class: "plot", role: "group", "aria-label": title }, this.caption, this.place);
    this.empty = el("p", { class: "aside" }, "nothing yet");
    this.place.append(this.empty);
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  show(lines, marks = []) {
    this.lines = lines ?? {};
    this.marks = marks;
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    }), this.chart === null ? 0 : 500);
  }

  draw() {
    const names = Object.keys(this.lines).sort((one, other) =>
      (one === this.main) - (other === this.main) || one.localeCompare(other, undefined, { numeric: true }));
    if (names.length === 0 || this.place.clientWidth === 0) return;
    const data = uPlot.join(names.map((name) => this.lines[name]));
    if (this.chart === null || names.join("\n") !== this.names.join("\n")) this.build(names, data);
    else this.chart.setData(data);
    const said = names.map((name) => `${name}: ${this.value(this.lines[name][1].at(-1))}`).join(", ");
    this.node.setAttribute("aria-label", `${this.title}. Newest: ${said}`);
  }

  build(names, data) {
    this.chart?.destroy();
    this.empty.remove();
    this.names = names;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--rule"), width: 0.5 },
      ticks: { stroke: colour("--rule"), width: 0.5 },
      font: "11px system-ui, sans-serif",
    };
    const across = { ...axis, values: (_, ticks, __, ___, step) => ticks.map((tick) => this.placeOf(tick, step)) };
    const up = { ...axis, size: 66, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : this.value(tick))) };
    if (this.unit === "bytes") up.incrs = Array.from({ length: 40 }, (_, power) => 2 ** power);
    const hue = (name, at) => (name === this.main ? 0 : at + (this.main === "" ? 0 : 1)) % NUM_COLOURS;
    const colours = names.map((name, at) => colour(`--series-${hue(name, at)}`));
    const series = names.map((name, at) => ({
      label: name,
      stroke: this.main === "" || name === this.main ? colours[at] : `${colours[at]}99`,
      width: name === this.main ? 2.5 : 1.5,
      dash: at >= NUM_COLOURS ? [6, 3] : undefined,
      spanGaps: true,
      points: { show: false },
      paths: this.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      value: (_, met) => this.value(met ?? this.lines[name]?.[1].at(-1)),  // the newest, where nothing is pointed at
    }));
    const newest = () => Math.max(...names.map((name) => this.lines[name]?.[0].at(-1) ?? -Infinity));
    this.chart = new uPlot({
      width: this.place.clientWidth,
      height: HEIGHT,
      scales: { x: { time: this.time }, y: this.logarithmic ? { distr: 3 } : {} },
      axes: [across, up],
      series: [{ label: this.time ? "time" : "step", value: (_, met) => this.placeOf(met ?? newest(), 1) }, ...series],
      cursor: { drag: { x: true, y: false } },
      hooks: this.marked ? { draw: [(chart) => this.drawMarks(chart, colour)] } : {},
    }, data, this.place);
  }

  // Where on the x axis; `step` is how far apart its ticks are.
  placeOf(x, step) {
    if (!this.time) return number(x);
    const [hours, minutes, seconds] = clock(x * 1000).split(":");
    return step >= 60 ? `${hours}:${minutes}` : `${hours}:${minutes}:${seconds}`;
  }

  value(met) {
    return this.unit === "bytes" ? bytes(met) : number(met);
  }

  drawMarks(chart, colour) {
    const { ctx, bbox } = chart;
    const scale = window.devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = colour("--ink");
    ctx.strokeStyle = colour("--soft");
    ctx.setLineDash([3 * scale, 3 * scale]);
    const shown = this.marks
      .map((mark) => [mark, chart.valToPos(mark.step, "x", true)])
      .filter(([, x]) => x >= bbox.left && x <= bbox.left + bbox.width);
    for (const [, x] of shown) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("--paper");
    ctx.lineWidth = 4 * scale;
    const free = [];  // where each row of labels ends
    for (const [mark, x] of shown) {
      const text = `${mark.seed.slice(0, 16)} ${WORDS[mark.stage] ?? mark.stage.toLowerCase()}`.trim();  // a rollback is of no seed
      const width = ctx.measureText(text).width + 8 * scale;
      const left = Math.min(x + 3 * scale, bbox.left + bbox.width - width);
      let row = free.findIndex((end) => end <= left);
      if (row < 0) row = free.length;
      if (row >= MOST_LABELS) continue;
      free[row] = left + width;
      ctx.strokeText(text, left, bbox.top + (11 + 13 * row) * scale);  // no line goes through it
      ctx.fillText(text, left, bbox.top + (11 + 13 * row) * scale);
    }
    ctx.restore();
  }

  resize() {
    if (this.chart === null) this.draw();
    else if (this.place.clientWidth > 0 && this.place.clientWidth !== this.chart.width) {
      this.chart.setSize({ width: this.place.clientWidth, height: HEIGHT });
    }
  }

  repaint() {
    if (this.chart !== null) {
      this.names = [];
      this.draw();
    }
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((each) => each.repaint()));

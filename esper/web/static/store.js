// What the server has said of the run, and who wants to hear of it. The stream names the last event it had when it comes
// back; the server then says what was missed, or all of it anew.

// What a run names is a name here, whatever objects have under it: a seed may be called "constructor".
const byName = () => Object.create(null);

export class Store {
  constructor() {
    this.known = false;
    this.rows = new Map();
    this.lines = byName();
    this.listeners = [];
    this.connected = false;
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  connect() {
    const source = new EventSource("/events");
    source.addEventListener("snapshot", (event) => this.take(JSON.parse(event.data), true));
    source.addEventListener("change", (event) => this.take(JSON.parse(event.data), false));
    source.addEventListener("open", () => this.tell({ connection: true }, true));
    source.addEventListener("error", () => {
      this.tell({ connection: true }, false);
      // A proxy that answered with an error ends the stream for good, unless it is opened again.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), 2000);
    });
  }

  tell(changed, connected) {
    this.connected = connected;
    for (const listener of this.listeners) listener(changed);
  }

  take(said, isWhole) {
    if (isWhole) {
      this.rows = new Map();
      this.lines = byName();
    }
    const { rows, lines, ...sections } = said;
    Object.assign(this, sections);
    for (const row of rows ?? []) this.rows.set(row.id, row);
    if (this.rows.size > 2 * Object.values(this.kept.rows).reduce((one, other) => one + other)) this.forget();
    for (const [plot, named] of Object.entries(lines ?? {})) {
      for (const [name, added] of Object.entries(named)) this.append(plot, name, added);
    }
    this.known = true;
    this.tell(isWhole ? { ...said, connection: true, rows: true, lines: true } : said, true);
  }

  // As many lines and points as the server keeps: of too many lines the one goes that ended first.
  append(plot, name, [xs, ys]) {
    const lines = (this.lines[plot] ??= byName());
    if (!(name in lines) && Object.keys(lines).length >= this.kept.lines) {
      const ends = Object.entries(lines).map(([each, [known]]) => [known.at(-1) ?? -Infinity, each]);
      delete lines[ends.reduce((one, other) => (other[0] < one[0] ? other : one))[1]];
    }
    const line = (lines[name] ??= [[], []]);
    let keep = line[0].length;
    while (keep > 0 && line[0][keep - 1] >= xs[0]) keep -= 1;
    line[0].length = line[1].length = keep;
    line[0].push(...xs);
    line[1].push(...ys);
    if (line[0].length > 2 * this.kept.points) {
      const last = line[0].length - 1;
      lines[name] = line.map((values) => values.filter((_, at) => at % 2 === 0 || at === last));
    }
  }

  // A page may be open for days: of each kind the newest, as the server keeps them.
  forget() {
    const left = { ...this.kept.rows };
    for (const row of this.ordered()) {
      const kind = row.kind === "refused" ? "refused" : row.empty ? "empty" : "decided";
      left[kind] -= 1;
      if (left[kind] < 0) this.rows.delete(row.id);
    }
  }

  // Newest first.
  ordered() {
    const place = (row) => row.id.split("/")[1].split("-").map(Number);
    return [...this.rows.values()].sort((one, other) => {
      const [a, b] = [place(one), place(other)];
      return b[0] - a[0] || b[1] - a[1];
    });
  }
}

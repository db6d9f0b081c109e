// Where the page has its data from: the server, the files of an export, or the page itself (one HTML file).
// An export has the same index, and rows in compressed chunks, since many static hosts know no ranges. Figures,
// comparisons and the cards of rows come from Python: computed when they are asked for, or written with the export.
import { signal } from "@preact/signals";
import { Columns, PARTS, RECORD_BYTES } from "./columns.js";

export const LARGE_ROW_BYTES = 8e6;
export const runs = signal(null); // { mode, runs }
export const problem = signal("");
const opened = new Map();
const embedded = () => document.getElementById("embedded");

async function get(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The viewer does not answer. Is gym-runtime view still running?");
  }
  if (!answer.ok) throw new Error([400, 403, 409].includes(answer.status) ? (await answer.text()).trim() : `${path}: ${answer.status} ${answer.statusText}`);
  return answer;
}

export async function loadRuns() {
  try {
    const given = embedded();
    runs.value = given ? JSON.parse(given.textContent) : await (await get("data/runs.json")).json();
    problem.value = "";
  } catch (error) {
    problem.value = error.message;
  }
}

export function openRun(id) {
  if (!opened.has(id)) opened.set(id, new Run(id));
  return opened.get(id);
}

export class Run {
  constructor(id) {
    this.id = id;
    this.columns = new Columns();
    this.figures = signal(null); // gym_view/page_figures.py says what is in them
    this.first = signal(null);
    this.version = signal(0); // counts every growth
    this.state = signal({ loading: true, indexed: 0, bytes: 0, torn: 0, error: "", live: false });
    this.labels = signal(null);
    this.memo = new Map();
  }

  get about() {
    return runs.value?.runs.find((run) => run.id === this.id);
  }

  // A value that is computed once for each state of the rows, or of what else it is made of.
  cached(name, compute, state = this.version.value) {
    const known = this.memo.get(name);
    if (known?.state === state) return known.value;
    const value = compute();
    this.memo.set(name, { state, value });
    if (this.memo.size > 24) this.memo.delete(this.memo.keys().next().value);
    return value;
  }

  // Whether the figures are those of a part of the rows. A run that goes on is always a little ahead of them.
  get partial() {
    const { loading, indexed, bytes } = this.state.value;
    return (loading && 1.2 * indexed < bytes) || this.columns.rows - this.columns.superseded > 1.2 * (this.figures.value?.run.rollouts ?? 0);
  }

  // Load once; with `follow` go on while the page shows this run.
  load() {
    this.loading ??= (this.about?.chunks ? this.#loadChunks() : this.#loadRecords()).catch((error) => {
      this.state.value = { ...this.state.value, loading: false, error: error.message };
      this.loading = null;
    });
    return this.loading;
  }

  async #loadRecords() {
    this.places ??= PARTS.map(() => ({ next: 0, generation: "", bytes: 0, indexed: 0, busy: true }));
    for (;;) {
      let grown = false;
      for (const [part, name] of PARTS.entries()) if (this.about?.parts[name]) grown = (await this.#records(part, name)) || grown;
      const here = this.places.filter((_, part) => this.about?.parts[PARTS[part]]);
      const busy = here.some((place) => place.busy || place.more);
      if (grown) this.#grown();
      this.state.value = {
        loading: busy, error: "", live: grown && !busy,
        indexed: here.reduce((sum, place) => sum + place.indexed, 0), bytes: here.reduce((sum, place) => sum + place.bytes, 0),
        torn: busy ? 0 : here.reduce((sum, place) => sum + place.bytes - place.indexed, 0),
      };
      if (!busy && this.partial) this.complete?.();
      if (!busy) return;
      if (!here.some((place) => place.more)) await new Promise((done) => setTimeout(done, 120));
    }
  }

  async #records(part, name) {
    const place = this.places[part];
    const answer = await get(`data/${encodeURIComponent(this.id)}/${name}.idx?from=${place.next}`);
    const head = (header) => answer.headers.get(header) ?? "";
    const generation = head("X-Generation");
    if (place.generation && generation !== place.generation) {
      // Another file has taken its place: read both parts from the start.
      this.columns = new Columns();
      this.places = PARTS.map(() => ({ next: 0, generation: "", bytes: 0, indexed: 0, busy: true }));
      await answer.body?.cancel();
      return true;
    }
    const buffer = await answer.arrayBuffer();
    Object.assign(place, {
      bytes: Number(head("X-Rows-Bytes")), indexed: Number(head("X-Indexed-Bytes")), generation,
      busy: head("X-Indexing") === "1", more: Number(head("X-More-Bytes")) > 0,
    });
    if (!buffer.byteLength) return false;
    place.next = Math.max(place.next, RECORD_BYTES) + buffer.byteLength;
    this.columns.add(part, buffer);
    return true;
  }

  async #loadChunks() {
    for (const [part, name] of PARTS.entries()) {
      const about = this.about.parts[name];
      if (about) this.columns.add(part, (await this.exported(`${name}.idx`)).slice(RECORD_BYTES));
    }
    this.#grown();
    this.state.value = { loading: false, indexed: 1, bytes: 1, torn: 0, error: "", live: false };
  }

  #grown() {
    this.columns.supersede();
    this.version.value++;
    this.#figure();
  }

  // Ask for the figures; again when the run has grown since, for at most a tenth of the time, and at once when
  // the index is complete.
  async #figure() {
    this.outdated = true;
    if (this.figuring) return;
    this.figuring = true;
    while (this.outdated) {
      this.outdated = false;
      const asked_ms = performance.now();
      try {
        this.figures.value = this.about?.chunks ? parsed(await this.exported("figures.json")) : await (await get(`data/${encodeURIComponent(this.id)}/figures.json`)).json();
      } catch (error) {
        this.state.value = { ...this.state.value, error: error.message };
      }
      if (!this.about?.chunks && !(this.outdated && !this.state.value.loading && this.partial)) {
        await new Promise((done) => {
          this.complete = done;
          setTimeout(done, 9 * (performance.now() - asked_ms));
        });
      }
    }
    this.figuring = false;
  }

  // Figures of the first rows, which are there before those of all.
  async begin() {
    if (this.about?.chunks || this.figures.value) return;
    this.first.value = await get(`data/${encodeURIComponent(this.id)}/figures.json?most=5000`).then((answer) => answer.json(), () => null);
  }

  // A file of an export, unpacked.
  async exported(name) {
    const given = this.about.data?.[name];
    const packed = given ? new Blob([Uint8Array.from(atob(given), (c) => c.charCodeAt(0))]).stream() : (await get(`data/${this.about.folder}/${name}.gz`)).body;
    return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }

  // Ask again for what came since; the server makes the index of rows that have none.
  async follow() {
    if (runs.value?.mode !== "server" || this.following || this.state.value.loading) return;
    this.following = true;
    this.loading = null;
    try {
      await this.load();
    } finally {
      this.following = false;
    }
  }

  // The text of a row.
  async text(i) {
    const { columns } = this, part = PARTS[columns.part[i]], from = columns.offset[i], size = columns.size[i];
    const about = this.about;
    if (about?.chunks) {
      const { name, start } = this.#chunkOf(i);
      return new TextDecoder().decode(new Uint8Array(await this.#chunk(name), from - start, size));
    }
    const answer = await get(`data/${encodeURIComponent(this.id)}/${part}.jsonl`, { headers: { Range: `bytes=${from}-${from + size - 1}` } });
    return new TextDecoder().decode(await answer.arrayBuffer());
  }

  // What a row's verdict rests on; null if it is no row.
  async card(i) {
    const { columns } = this, from = columns.offset[i];
    if (this.about?.chunks) return parsed(await this.exported(`${this.#chunkOf(i).name}.cards`))[from] ?? null;
    return (await get(`data/${encodeURIComponent(this.id)}/${PARTS[columns.part[i]]}.card?from=${from}&size=${columns.size[i]}`)).json();
  }

  // Get a field that the index lacks, of the rows that came since the last time.
  async fetchField(name) {
    const { columns } = this, from = columns.field(name).rows, first = PARTS.map(() => -1);
    for (let i = columns.rows - 1; i >= from; i--) first[columns.part[i]] = columns.offset[i];
    const values = PARTS.map(() => []);
    if (name === "label" || name === "note") {
      const labels = await this.loadLabels(), id = "field._gym.rollout_id";
      if (Object.values(labels).some((said) => said.rollout_id)) await this.fetchField(id);
      for (let i = from; i < columns.rows; i++) {
        // A label of a rollout that was made again is not one of the new rollout.
        const said = labels[`${columns.task[i]}.${columns.rollout[i]}`];
        values[columns.part[i]].push((!said?.rollout_id || said.rollout_id === columns.field(id).texts[i]) && said?.[name] || null);
      }
      return columns.fill(name, values);
    }
    if (this.about?.chunks) {
      for (let i = from; i < columns.rows; i++) values[columns.part[i]].push(valueOf(await this.text(i), name));
    } else {
      for (const [part, file] of PARTS.entries()) if (first[part] >= 0) values[part] = await (await get(`data/${encodeURIComponent(this.id)}/${file}.column?${new URLSearchParams({ name, from: first[part] })}`)).json();
    }
    columns.fill(name, values);
  }

  // What a person says of rollouts: { "TASK.ROLLOUT": { label, note, rollout_id } }.
  async loadLabels() {
    this.labels.value = this.about?.chunks ? parsed(await this.exported("labels.json")) : await (await get(`data/${encodeURIComponent(this.id)}/labels.json`)).json();
    return this.labels.value;
  }

  // Store a label; only a server can. It counts at once: the next one replaces it.
  async putLabel(said) {
    this.labels.value = { ...this.labels.value, [said.rollout]: said };
    try {
      await get(`data/${encodeURIComponent(this.id)}/labels.json`, { method: "POST", keepalive: true, headers: { "Content-Type": "application/json" }, body: JSON.stringify(said) });
    } finally {
      await this.loadLabels();
    }
    for (const name of ["label", "note"]) if (this.columns.further.delete(name)) await this.fetchField(name);
    this.version.value++; // a list that is filtered by it is another one now
  }

  // The fields of all rows with their figures (gym_view/row_fields.py); the rows are read for it, once, or `again`.
  fields(again) {
    if (again) this.asked = null;
    this.asked ??= (this.about?.chunks ? this.exported("fields.json").then(parsed) : get(`data/${encodeURIComponent(this.id)}/fields.json`).then((answer) => answer.json())).catch((error) => {
      this.asked = null;
      throw error;
    });
    return this.asked;
  }

  #chunkOf(i) {
    const part = PARTS[this.columns.part[i]], starts = this.about.parts[part].chunks;
    let k = starts.length - 1;
    while (starts[k] > this.columns.offset[i]) k--;
    return { name: `${part}-${k}`, start: starts[k] };
  }

  #chunk(name) {
    if (this.lastChunk?.name !== name) this.lastChunk = { name, data: this.exported(name) };
    return this.lastChunk.data;
  }

  // Numbers of rows with a text in them, as they are found; `take` gets a growing set.
  async search(text, take, signal) {
    const found = new Set();
    if (this.about?.chunks) {
      const needle = JSON.stringify(text).slice(1, -1);
      for (let i = 0; i < this.columns.rows && !signal.aborted; i++) {
        if ((await this.text(i)).includes(needle)) found.add(i);
        if (i % 500 === 0) take(found, false);
      }
      return signal.aborted || take(found, true);
    }
    for (const [part, name] of PARTS.entries()) {
      if (!this.about?.parts[name]) continue;
      const places = new Map();
      for (let i = 0; i < this.columns.rows; i++) if (this.columns.part[i] === part) places.set(this.columns.offset[i], i);
      const answer = await get(`data/${encodeURIComponent(this.id)}/${name}.found?q=${encodeURIComponent(text)}`, { signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line && places.has(Number(line))) found.add(places.get(Number(line)));
        take(found, false);
      }
    }
    take(found, true);
  }
}

// As gym_view/row_fields.py has it.
function valueOf(text, name) {
  const [kind, ...path] = name.split(".");
  try {
    const value = (kind === "components" ? ["reward_components", ...path] : path).reduce((at, part) => (at && Object.hasOwn(at, part) ? at[part] : null), JSON.parse(text));
    return typeof value === "boolean" ? String(value) : typeof value === "number" || (typeof value === "string" && value.length <= 200) ? value : null;
  } catch {
    return null; // it is no row
  }
}

const parsed = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

// Run `b` against run `a`, task by task; null if an export has no comparisons.
export async function comparison(a, b) {
  if (!a.about?.chunks) return (await get(`data/compare.json?${new URLSearchParams({ a: a.id, b: b.id })}`)).json();
  return a.about.compared && a !== b ? parsed(await a.exported(`against-${b.about.folder}.json`)) : null;
}

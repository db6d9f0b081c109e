// The index of a run as columns. Records come as bytes (gym_view/index.py has their layout) and are
// copied into typed arrays that grow, so a filter or a sort runs over plain numbers.
export const RECORD_BYTES = 56;
export const OUTCOMES = ["completed", "truncated", "failed", "cancelled", "unreadable"];
export const UNREADABLE = 4;
export const PARTS = ["rollouts", "failures"];

const KINDS = {
  offset: Float64Array, reward: Float64Array, size: Uint32Array, task: Uint32Array, input: Uint32Array,
  output: Uint32Array, duration: Float32Array, created: Uint32Array, rollout: Uint16Array, turns: Uint16Array,
  tools: Uint16Array, fault: Uint16Array, env: Uint8Array, outcome: Uint8Array, attempt: Uint8Array,
  part: Uint8Array, hidden: Uint8Array, number: Float64Array,
};

export class Columns {
  constructor() {
    this.rows = 0;
    this.envs = [];
    this.faults = [""];
    this.numbers = PARTS.map(() => [[], [0]]); // of each part: its numbers of names -> ours
    this.superseded = 0;
    this.further = new Map(); // fields that the index lacks, by name
    this.#grow(1024);
  }

  #grow(capacity) {
    for (const [name, Kind] of Object.entries(KINDS)) {
      const grown = new Kind(capacity);
      if (this[name]) grown.set(this[name]);
      this[name] = grown;
    }
    this.capacity = capacity;
  }

  // Takes whole records of one part in; `buffer` is an ArrayBuffer.
  add(part, buffer) {
    const records = Math.floor(buffer.byteLength / RECORD_BYTES);
    const f64 = new Float64Array(buffer, 0, records * 7);
    const f32 = new Float32Array(buffer, 0, records * 14);
    const u32 = new Uint32Array(buffer, 0, records * 14);
    const u16 = new Uint16Array(buffer, 0, records * 28);
    const u8 = new Uint8Array(buffer, 0, records * RECORD_BYTES);
    if (this.rows + records > this.capacity) this.#grow(Math.max(2 * this.capacity, this.rows + records));
    const [envs, faults] = this.numbers[part];
    for (let r = 0; r < records; r++) {
      const a = r * 7, b = r * 14, c = r * 28, d = r * RECORD_BYTES;
      if (u8[d + 51] === 1) {
        this.#name(part, u16[c], u8[d + 2], u8.subarray(d + 4, d + 4 + u8[d + 3]), u32[b + 13]);
        continue;
      }
      const i = this.rows++;
      this.offset[i] = f64[a]; this.reward[i] = f64[a + 1];
      this.size[i] = u32[b + 4]; this.task[i] = u32[b + 5]; this.input[i] = u32[b + 6]; this.output[i] = u32[b + 7];
      this.duration[i] = f32[b + 8]; this.created[i] = u32[b + 9];
      this.rollout[i] = u16[c + 20]; this.turns[i] = u16[c + 21]; this.tools[i] = u16[c + 22];
      this.fault[i] = faults[u16[c + 23]] ?? this.#other(this.faults);
      this.env[i] = envs[u8[d + 48]] ?? this.#other(this.envs);
      this.outcome[i] = u8[d + 49]; this.attempt[i] = u8[d + 50];
      this.part[i] = part;
      this.number[i] = NaN;
    }
  }

  #name(part, number, table, bytes, piece) {
    const ours = this.numbers[part][table], names = table ? this.faults : this.envs;
    this.pieces = piece ? [...this.pieces, ...bytes] : [...bytes];
    const name = new TextDecoder().decode(new Uint8Array(this.pieces));
    if (piece && ours[number] === names.length - 1) names.pop(); // it was shorter until now
    let known = names.indexOf(name);
    if (known < 0) known = names.push(name) - 1;
    ours[number] = known;
  }

  #other(names) {
    const known = names.indexOf("(others)");
    return known < 0 ? names.push("(others)") - 1 : known;
  }

  // A field that the index lacks: its numbers (NaN), its texts (null), and for how many rows they are known.
  field(name) {
    if (!this.further.has(name)) this.further.set(name, { numbers: new Float64Array(0), texts: [], rows: 0 });
    return this.further.get(name);
  }

  // Takes values in, of each part those of its rows that had none yet.
  fill(name, values) {
    const field = this.field(name), places = PARTS.map(() => 0), numbers = new Float64Array(this.rows).fill(NaN);
    numbers.set(field.numbers);
    for (let i = field.rows; i < this.rows; i++) {
      const value = values[this.part[i]]?.[places[this.part[i]]++] ?? null;
      if (typeof value === "number") numbers[i] = value;
      field.texts[i] = typeof value === "string" ? value : null;
    }
    Object.assign(field, { numbers, rows: this.rows, ranks: null });
  }

  // A number to sort by: the value's place among all, numbers before texts.
  rank(name) {
    const field = this.field(name);
    if (!field.ranks) {
      // Numbers have places, too: a seed or a time has more digits than what is sorted (query.js).
      const values = field.texts.map((text, i) => text ?? field.numbers[i]), numbers = values.filter((value) => typeof value === "number" && !Number.isNaN(value));
      const order = new Map([...new Set(Float64Array.from(numbers).sort()), ...[...new Set(field.texts)].filter((text) => text !== null).sort()].map((value, at) => [value, at]));
      field.ranks = values.map((value) => order.get(value));
    }
    return (i) => field.ranks[i] ?? NaN;
  }

  // A failure that was run again and has a verdict now, or failed again later, does not count; nor does a further row
  // of a rollout (gym_view/run_figures.py has the same rules).
  supersede() {
    const failures = new Map(), rated = [];
    this.superseded = 0;
    for (let i = 0; i < this.rows; i++) {
      this.hidden[i] = 0;
      if (this.part[i] === 0 || this.outcome[i] === UNREADABLE) continue;
      const key = this.#key(i), earlier = failures.get(key);
      if (earlier !== undefined) this.#hide(earlier);
      failures.set(key, i);
    }
    const twice = this.#twice();
    let n = 0;
    for (let i = 0; i < this.rows; i++) {
      if (this.part[i]) continue;
      const key = this.#key(i);
      if (twice.has(key) && this.outcome[i] !== UNREADABLE) {
        const failed = failures.get(key), known = (rated[this.env[i]] ??= new Set());
        if (failed !== undefined && !this.hidden[failed]) this.#hide(failed);
        // The largest numbers stand for all that are larger.
        if (known.has(key) && this.task[i] < 2 ** 32 - 1 && this.rollout[i] < 65535) this.#hide(i);
        known.add(key);
      }
      this.number[i] = this.hidden[i] ? NaN : n++;
    }
  }

  #hide(i) {
    this.hidden[i] = 1;
    this.superseded++;
  }

  // The row with an id such as 3.1 (task and rollout) or @17 (its number here); -1 if no row has it.
  find(id) {
    if (id.startsWith("@")) {
      const i = Number(id.slice(1));
      return i >= 0 && i < this.rows ? i | 0 : -1;
    }
    const [task, rollout] = id.split(".").map(Number);
    let unreadable = -1;
    for (let i = 0; i < this.rows; i++) {
      if (this.task[i] !== task || this.rollout[i] !== rollout || this.hidden[i]) continue;
      if (this.outcome[i] !== UNREADABLE) return i;
      unreadable = i;
    }
    return unreadable;
  }

  id(i) {
    const id = `${this.task[i]}.${this.rollout[i]}`;
    return this.outcome[i] !== UNREADABLE && (!this.#twice().has(this.#key(i)) || this.find(id) === i) ? id : `@${i}`;
  }

  #key(i) {
    return this.task[i] * 65536 + this.rollout[i];
  }

  // The keys that several rows have. A line that is no JSON has none: its numbers are those of the line.
  #twice() {
    if (this.checked?.rows !== this.rows) {
      const keys = new Float64Array(this.rows), twice = new Set();
      let n = 0;
      for (let i = 0; i < this.rows; i++) if (!this.hidden[i] && this.outcome[i] !== UNREADABLE) keys[n++] = this.#key(i);
      const ordered = keys.subarray(0, n).sort();
      for (let k = 1; k < n; k++) if (ordered[k] === ordered[k - 1]) twice.add(ordered[k]);
      this.checked = { rows: this.rows, twice };
    }
    return this.checked.twice;
  }

  faultOf(i) {
    const [kind = "", stage = "", message = ""] = this.faults[this.fault[i]].split("\x1f");
    return { kind, stage, message };
  }
}

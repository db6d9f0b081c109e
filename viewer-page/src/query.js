// The filter language: terms that all must hold. `reward<1 env=mcqa,xstest outcome=truncated turns>=10 fault=model`
// A value may be a list (any of them) and names may have * for anything; other words are sought in the rows' text.
import { OUTCOMES } from "./columns.js";

// A field's number in a row of the columns, or the names that its numbers stand for.
export const FIELDS = {
  reward: { about: "none where there is no verdict", of: (c) => (i) => c.reward[i] },
  env: { about: "environment", of: (c) => (i) => c.env[i], names: (c) => c.envs },
  outcome: { about: OUTCOMES.join(", "), of: (c) => (i) => c.outcome[i], names: () => OUTCOMES },
  fault: { about: "whose fault, or the limit that was hit", of: (c) => (i) => c.fault[i], names: (c) => c.faults },
  task: { about: "task index", of: (c) => (i) => c.task[i] },
  rollout: { about: "rollout index within the task", of: (c) => (i) => c.rollout[i] },
  turns: { about: "model calls", of: (c) => (i) => c.turns[i] },
  tools: { about: "tool calls", of: (c) => (i) => c.tools[i] },
  in: { about: "input tokens", of: (c) => (i) => c.input[i] },
  out: { about: "output tokens", of: (c) => (i) => c.output[i] },
  time: { about: "seconds; 2m and 500ms are understood", of: (c) => (i) => c.duration[i] },
  attempt: { about: "1 for the first", of: (c) => (i) => c.attempt[i] },
  size: { about: "bytes of the row; 2M and 20k are understood", of: (c) => (i) => c.size[i] },
  row: { about: "order of completion, from 0; none of failures", of: (c) => (i) => c.number[i] },
};
const TERM = /"((?:[^"\\]|\\.)*)"|([a-z_][\w.-]*)(<=|>=|!=|=|<|>)("(?:[^"\\]|\\.)*"|\S+)|(\S+)/gi;

// A field of the rows that the index lacks; it has numbers, or texts, or both.
const FURTHER = /^(components|field)\..+|^(label|note)$/;
export const fieldNamed = (name) => FIELDS[name] ?? (FURTHER.test(name) ? { further: true, of: (c) => c.rank(name) } : undefined);
export const FURTHER_ABOUT = { "components.NAME": "a part of the reward", "field.NAME": "a field of the row; field.A.B is within it", label: "what a person says of it", note: "the same, in words; * stands for anything" };

// -> { terms: [{ name, op, values }], texts: [], error }
export function parse(query) {
  const terms = [], texts = [];
  for (const [, quoted, name, op, value, word] of query.matchAll(TERM)) {
    if (quoted !== undefined) texts.push(quoted.replace(/\\(.)/g, "$1"));
    else if (word !== undefined) texts.push(word);
    else {
      const field = fieldNamed(name);
      if (!field) return { terms, texts, error: `There is no field “${name}”. There are: ${[...Object.keys(FIELDS), ...Object.keys(FURTHER_ABOUT)].join(", ")}.` };
      const values = value.startsWith('"') ? [value.slice(1, -1).replace(/\\(.)/g, "$1")] : value.split(",").filter(Boolean);
      if (field.further) {
        // Whether it has numbers is known when it was read.
      } else if (!field.names) {
        const bad = values.find((one) => one !== "none" && Number.isNaN(number(one)));
        if (bad !== undefined || !values.length) return { terms, texts, error: `“${bad ?? ""}” is not a number, which ${name} is compared with.` };
      } else if (op !== "=" && op !== "!=") {
        return { terms, texts, error: `${name} is a name: use = or !=.` };
      }
      terms.push({ name, op, values });
    }
  }
  return { terms, texts, error: "" };
}

const UNITS = { ms: 1e-3, s: 1, m: 60, h: 3600, k: 1e3, M: 1e6, G: 1e9 };

function number(text) {
  const found = /^(-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(ms|[smhkMG])?$/.exec(text);
  return found ? Number(found[1]) * (UNITS[found[2]] ?? 1) : NaN;
}

// The names that a pattern means: parts of a fault count each for itself.
function matching(names, pattern) {
  const source = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*");
  const whole = new RegExp(`^${source}$`, "i");
  return names.flatMap((name, i) => (whole.test(name) || name.split("\x1f").some((part) => whole.test(part)) ? [i] : []));
}

// Why a term cannot be asked of a field of the rows, now that it is read; else nothing.
export function complaint({ name, op, values }, columns) {
  const { numbers, texts } = columns.field(name), has = (rows) => rows.some((value) => value !== null && !Number.isNaN(value));
  if (!has(texts) && !has(numbers)) return `No row has a number or a short text in “${name}”.`;
  if (op === "=" || op === "!=") return "";
  return has(numbers) ? (Number.isNaN(number(values[0] ?? "")) ? `“${values[0] ?? ""}” is not a number, which ${name} is compared with.` : "") : `${name} is a text: use = or !=.`;
}

function test(term, columns) {
  const field = fieldNamed(term.name), { op } = term;
  if (field.further && (op === "=" || op === "!=")) {
    const { numbers, texts } = columns.field(term.name), known = [...new Set(texts)].filter((text) => text !== null);
    const named = new Set(term.values.flatMap((one) => matching(known, one)).map((at) => known[at])), counted = new Set(term.values.map(number)), none = term.values.includes("none");
    const any = (i) => (typeof texts[i] === "string" ? named.has(texts[i]) : Number.isNaN(numbers[i]) ? none : counted.has(numbers[i]));
    return op === "=" ? any : (i) => !any(i);
  }
  const value = field.further ? (i) => columns.field(term.name).numbers[i] : field.of(columns);
  if (field.names) {
    const wanted = new Set(term.values.flatMap((one) => matching(field.names(columns), one)));
    return op === "=" ? (i) => wanted.has(value(i)) : (i) => !wanted.has(value(i));
  }
  const single = columns[{ time: "duration" }[term.name]] instanceof Float32Array;
  const numbers = term.values.map((one) => (one === "none" ? NaN : single ? Math.fround(number(one)) : number(one)));
  const [x] = numbers;
  switch (op) {
    case "<": return (i) => value(i) < x;
    case "<=": return (i) => value(i) <= x;
    case ">": return (i) => value(i) > x;
    case ">=": return (i) => value(i) >= x;
    default: {
      const any = (i) => numbers.some((one) => Object.is(one, value(i)) || one === value(i));
      return op === "=" ? any : (i) => !any(i);
    }
  }
}

// The rows for which all terms hold, as numbers in their order; `only` is a set of rows with the texts.
export function select(columns, terms, only = null) {
  const tests = terms.map((term) => test(term, columns));
  const found = new Uint32Array(columns.rows);
  let n = 0;
  for (let i = 0; i < columns.rows; i++) {
    if (columns.hidden[i] || (only && !only.has(i))) continue;
    let holds = true;
    for (let t = 0; t < tests.length; t++) if (!tests[t](i)) { holds = false; break; }
    if (holds) found[n++] = i;
  }
  return found.subarray(0, n);
}

export const SORTS = ["row", "task", "reward", "out", "in", "turns", "tools", "time", "size", "env", "outcome"];

// Sorts rows by a field, "-time" from the largest on; rows without a value come last, ties keep their order.
// A radix sort on the bits of 32-bit floats: 200,000 rows take a few milliseconds.
export function sorted(columns, rows, by) {
  const down = by.startsWith("-"), name = down ? by.slice(1) : by;
  if (!fieldNamed(name) || (name === "row" && !down)) return rows;
  const value = fieldNamed(name).of(columns), n = rows.length;
  const whole = new Float32Array(n), keys = new Uint32Array(whole.buffer);
  for (let k = 0; k < n; k++) whole[k] = value(rows[k]);
  for (let k = 0; k < n; k++) {
    if (Number.isNaN(whole[k])) { keys[k] = 0xffffffff; continue; }
    const bits = keys[k], up = bits & 0x80000000 ? ~bits >>> 0 : (bits | 0x80000000) >>> 0;
    keys[k] = down ? 0xfffffffe - up : up;
  }
  let from = Uint32Array.from({ length: n }, (_, k) => k), to = new Uint32Array(n);
  for (const shift of [0, 16]) {
    const counts = new Uint32Array(65537);
    for (let k = 0; k < n; k++) counts[((keys[k] >>> shift) & 0xffff) + 1]++;
    for (let k = 0; k < 65536; k++) counts[k + 1] += counts[k];
    for (let k = 0; k < n; k++) to[counts[(keys[from[k]] >>> shift) & 0xffff]++] = from[k];
    [from, to] = [to, from];
  }
  for (let k = 0; k < n; k++) to[k] = rows[from[k]];
  return to;
}

// The query with one term in place of those of the same field: what a bar of a chart links to.
export function withTerm(query, name, ...comparisons) {
  const kept = query.replace(TERM, (term, quoted, field) => (field === name ? "" : term)).trim().replace(/\s+/g, " ");
  return [kept, ...comparisons.map((one) => `${name}${one}`)].filter(Boolean).join(" ");
}

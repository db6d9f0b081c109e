// The rows of a run that a state of the page means.
import { UNREADABLE } from "./columns.js";
import { complaint, fieldNamed, parse, select, sorted } from "./query.js";
import { signal } from "@preact/signals";

export const allRows = (run) => run.cached("all", () => select(run.columns, []));

// The rows of each task, in the order of its rollouts: `rows.get(taskKey(env, task))`.
export const taskKey = (env, task) => `${task} ${env}`;
export const rowsByTask = (run) => run.cached("by task", () => {
  const { columns } = run, found = new Map();
  for (const i of allRows(run)) {
    if (columns.outcome[i] === UNREADABLE) continue; // it is of no task
    const key = taskKey(columns.envs[columns.env[i]], columns.task[i]);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(i);
  }
  for (const rows of found.values()) rows.sort((a, b) => columns.rollout[a] - columns.rollout[b] || a - b);
  return found;
});

const arrived = signal(0); // counts fields of the rows that were read

// Whether fields of the rows are known; they are asked for where they are not, or where the run has grown.
export function known(run, names) {
  arrived.value;
  const { columns } = run, state = `${run.version.value} ${names}`, old = names.filter((name) => columns.field(name).rows < columns.rows);
  if (old.length && run.filling !== state) {
    run.filling = state;
    Promise.all(old.map((name) => run.fetchField(name))).then(() => arrived.value++, (error) => (run.state.value = { ...run.state.value, error: error.message }));
  }
  return names.every((name) => columns.field(name).rows > 0);
}

// The fields of the rows that a query and an order are about.
export const further = (query, sort) => [...new Set([...parse(query).terms.map(({ name }) => name), sort.replace(/^-/, "")])].filter((name) => fieldNamed(name)?.further);

const found = signal({ key: "", rows: new Set(), done: true }); // the text search that runs, or ran last
let abort = new AbortController();

// { rows, error, searching } for a query and an order.
export function rowsFor(run, query = "", sort = "row") {
  const { terms, texts, error: wrong } = parse(query), names = further(query, sort);
  if (!wrong && names.length && !known(run, names)) return { rows: [], error: "", searching: true };
  const error = wrong || (terms.filter(({ name }) => fieldNamed(name).further).map((term) => complaint(term, run.columns)).find(Boolean) ?? "");
  let only = null, searching = false;
  if (texts.length) {
    // All words must be there; the longest is sought, the others are looked for in the same go.
    const key = JSON.stringify([run.id, run.version.value, texts]);
    if (found.value.key !== key) start(run, key, texts);
    only = found.value.key === key ? found.value.rows : new Set();
    searching = !(found.value.key === key && found.value.done);
  }
  const name = JSON.stringify([run.version.value, arrived.value, query, sort, only?.size ?? -1]);
  if (run.lastRows?.name !== name) {
    const start_ms = performance.now();
    run.lastRows = { name, rows: sorted(run.columns, error ? allRows(run) : select(run.columns, terms, only), sort) };
    globalThis.lastQueryMs = performance.now() - start_ms; // tests/bench/view.py reads it
  }
  return { rows: run.lastRows.rows, error, searching };
}

async function start(run, key, texts) {
  abort.abort();
  abort = new AbortController();
  const mine = abort.signal;
  queueMicrotask(() => (found.value = { key, rows: new Set(), done: false }));
  await new Promise((done) => setTimeout(done, 250)); // until the typing stops
  let rows = null;
  try {
    for (const [at, text] of texts.entries()) {
      const last = at === texts.length - 1;
      let these = new Set();
      await run.search(text, (so_far, done) => {
        these = rows ? new Set([...so_far].filter((row) => rows.has(row))) : so_far;
        if (last && !mine.aborted) found.value = { key, rows: new Set(these), done };
      }, mine);
      rows = these;
      if (mine.aborted) return;
    }
  } catch (error) {
    if (!mine.aborted) found.value = { key, rows: rows ?? new Set(), done: true, error: error.message };
  }
}

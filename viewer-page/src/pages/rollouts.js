// Rollouts: the filter, how many of what it leaves each bar of the run has, the list, and beside it the one that is
// chosen.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, go, href, route } from "../route.js";
import { FIELDS, FURTHER_ABOUT, withTerm } from "../query.js";
import { further, known, rowsFor } from "../rows.js";
import { Columns } from "../charts.js";
import { List } from "../list.js";
import { OUTCOMES, UNREADABLE } from "../columns.js";
import { brief, count, plural, reward, short, span } from "../format.js";
import { Reward } from "../rewards.js";
import { Rollout } from "./rollout.js";

const SHOWN = { reward: ["reward", reward], out: ["output tokens", short], turns: ["turns", short], time: ["seconds", (value) => (value === 0 ? "0 s" : span(value))] };
const HEADS = [["task", "Task"], ["env", "Env."], ["reward", "Reward"], ["outcome", "Outcome"], ["turns", "Turns"], ["out", "Out"], ["time", "Time"]];

const state = (run) => {
  const { q = "", sort = "row" } = route.value.params;
  return { q, sort, chosen: route.value.parts[3] ?? "", ...rowsFor(run, q, sort) };
};

const choose = (run, i, replace = true) => go(["run", run.id, "rollouts", run.columns.id(i)], route.value.params, replace);

export function keys(key, run) {
  if (!"jknp".includes(key)) return;
  const { rows, chosen } = state(run), { columns } = run, now = chosen ? columns.find(chosen) : -1;
  if (key === "j" || key === "k") {
    const at = rows.indexOf(now), next = rows[at < 0 ? 0 : at + (key === "j" ? 1 : -1)];
    if (next !== undefined) choose(run, next);
  } else if (now >= 0) {
    const here = siblings(columns, now), next = here[here.indexOf(now) + (key === "n" ? 1 : -1)];
    if (next !== undefined) choose(run, next);
  }
}

// The rollouts of a row's task.
export function siblings(columns, i) {
  const found = [];
  for (let k = 0; k < columns.rows; k++) if (columns.task[k] === columns.task[i] && columns.env[k] === columns.env[i] && !columns.hidden[k] && columns.outcome[k] !== UNREADABLE) found.push(k);
  return found.sort((a, b) => columns.rollout[a] - columns.rollout[b]);
}

export function Rollouts({ run }) {
  const { columns } = run, { q, sort, rows, error, searching, chosen } = state(run);
  const i = chosen ? columns.find(chosen) : -1, more = [...further("", route.value.params.col ?? ""), ...further(q, sort)][0] ?? "";
  const shown = more && !error && known(run, [more]) ? more : "";
  return html`<main class=${`rollouts ${chosen ? "with-one" : ""}`}>
    ${chosen ? null : html`<h1 class="unseen">Rollouts of ${run.id}</h1>`}
    <section class="left" aria-label="Filter and list">
      <${Filter} run=${run} q=${q} rows=${rows} error=${error} searching=${searching} />
      <${Spread} run=${run} q=${q} rows=${rows} />
      <div class=${`grid head ${shown ? "more" : ""}`}>${[...HEADS, ...(shown ? [[shown, shown.replace(/^\w+\./, "")]] : [])].map(([name, title]) => html`<${Head} name=${name} title=${title} sort=${sort} />`)}</div>
      ${rows.length ? html`<${List} count=${rows.length} height=${36} current=${i < 0 ? -1 : rows.indexOf(i)} label="Rollouts" row=${(k) => html`<${Row} run=${run} i=${rows[k]} chosen=${rows[k] === i} more=${shown} />`} />`
      : html`<p class="empty quiet">${searching ? "Looking through the rows …" : "No rollout is left by this filter."}</p>`}
    </section>
    ${chosen ? html`<section class="right" aria-label="The rollout">${i < 0 ? html`<p class="empty">There is no rollout ${chosen} in this run.</p>` : html`<${Rollout} key=${`${run.id} ${i}`} run=${run} i=${i} back=${format(["run", run.id, "rollouts"], route.value.params)} />`}</section>`
    : html`<section class="right hint"><p class="quiet">Choose a rollout, or press <kbd>j</kbd>.</p></section>`}
  </main>`;
}

function Filter({ run, q, rows, error, searching }) {
  const [open, setOpen] = useState(false), box = useRef();
  useEffect(() => {
    if (document.activeElement !== box.current) box.current.value = q;
  }, [q]);
  return html`<div class="filter">
    <div class="field"><input id="query" ref=${box} type="search" spellcheck="false" autocomplete="off" placeholder='reward<1 env=mcqa turns>3 "a text"' aria-label="Filter" aria-invalid=${error ? "true" : "false"} onInput=${(event) => change({ q: event.target.value })} />
      <button class="icon" aria-expanded=${open} aria-label="What can be filtered" onClick=${() => setOpen(!open)}>⋯</button></div>
    <div class="under" role="status">${error ? html`<span class="bad">${error}</span>` : html`<span><strong>${count(rows.length)}</strong> of ${plural(run.columns.rows - run.columns.superseded, "rollout")}${searching ? " · looking through the rows …" : ""}</span>`}
      ${q ? html`<a href=${href({ q: "" })} onClick=${() => (box.current.value = "")}>clear</a>` : null}</div>
    ${open ? html`<${Further} run=${run} /><dl class="fields">${Object.entries(FIELDS).map(([name, { about }]) => html`<dt><code>${name}</code></dt><dd>${about}</dd>`)}
      ${Object.entries(FURTHER_ABOUT).map(([name, about]) => html`<dt><code>${name}</code></dt><dd>${about}</dd>`)}
      <dt><code>"…"</code></dt><dd>a text anywhere in the row, as it is in the JSON</dd></dl>` : null}
  </div>`;
}

// The fields of the rows, one of which may be a further column of the list.
function Further({ run }) {
  const [names, set] = useState(null), { col = "" } = route.value.params;
  useEffect(() => {
    run.fields().then(({ fields }) => set(fields.map(({ name }) => name)), (error) => set([error.message]));
  }, [run]);
  return names?.length ? html`<label class="quiet">Further column <select onChange=${(event) => change({ col: event.target.value })}><option value="">none</option>${names.map((name) => html`<option selected=${name === col}>${name}</option>`)}</select></label>` : html`<p class="quiet">${names ? "The rows have no further fields." : "Looking for the fields of the rows …"}</p>`;
}

function Spread({ run, q, rows }) {
  const by = SHOWN[route.value.params.by] ? route.value.params.by : "reward", [, shown] = SHOWN[by];
  const value = FIELDS[by].of(run.columns), given = run.figures.value?.spreads[by].bars ?? [];
  const bars = run.cached(`spread ${by} ${q} ${rows.length} ${run.version.value}`, () => counted(given, rows, value), given);
  const to = (bar) => href({ q: withTerm(q, by, ...(bar.exact ? [`=${bar.low}`] : [`>=${bar.low}`, `<${bar.high}`])) });
  return html`<div class="spread">
    <div class="choice" role="group" aria-label="Histogram of">${Object.entries(SHOWN).map(([name, [title]]) => html`<button aria-pressed=${name === by} onClick=${() => change({ by: name === "reward" ? "" : name })}>${title}</button>`)}</div>
    ${bars.length ? html`<${Columns} height=${44} labels=${bars.length <= 6 ? bars.map((bar) => shown(bar.low)) : [shown(bars[0].low), shown(bars.at(-1).high)]} bars=${bars.map((bar) => ({ count: bar.count, href: to(bar),
      tone: by === "reward" ? (bar.high <= 0 ? "zero" : bar.low >= 1 ? "one" : "part") : "",
      title: `${bar.exact ? shown(bar.low) : `${shown(bar.low)} to ${shown(bar.high)}`}: ${plural(bar.count, "rollout")}` }))} />` : html`<p class="quiet">no values</p>`}
  </div>`;
}

// The bars of the run, each with how many of some rows it has.
function counted(given, rows, value) {
  const bars = given.map(([low, high, , exact]) => ({ low, high, exact, count: 0 }));
  for (const i of rows) {
    const at = value(i), bar = bars.findLast(({ low }) => at >= low);
    if (bar) bar.count++;
  }
  return bars;
}

function Head({ name, title, sort }) {
  const down = sort === `-${name}`, up = sort === name;
  const next = up ? `-${name}` : down ? "" : name === "task" || name === "env" || name === "outcome" ? name : `-${name}`;
  return html`<button class=${`sort c-${name}`} onClick=${() => change({ sort: down && next === `-${name}` ? name : next })} aria-label=${`Sort by ${title.toLowerCase()}${up ? ", ascending now" : down ? ", descending now" : ""}`}>${title}<span aria-hidden="true">${up ? " ↑" : down ? " ↓" : ""}</span></button>`;
}

function Row({ run, i, chosen, more }) {
  const { columns } = run, outcome = OUTCOMES[columns.outcome[i]], field = more ? columns.field(more) : null;
  return html`<a class=${`grid row ${chosen ? "chosen" : ""} ${more ? "more" : ""}`} data-row=${i} aria-current=${chosen ? "true" : undefined} href=${format(["run", run.id, "rollouts", columns.id(i)], route.value.params)}>
    <span class="c-task">${columns.task[i]}<small class="quiet">.${columns.rollout[i]}</small></span>
    <span class="c-env">${columns.envs[columns.env[i]] || "–"}</span>
    <span class="c-reward"><${Reward} value=${columns.reward[i]} /></span>
    <span class=${`c-outcome ${outcome}`}>${outcome === "failed" ? columns.faultOf(i).kind || outcome : outcome}</span>
    <span class="c-turns">${columns.turns[i] || "–"}</span>
    <span class="c-out">${short(columns.output[i])}</span>
    <span class="c-time">${brief(columns.duration[i])}</span>
    ${field ? html`<span class="c-more" title=${field.texts[i] ?? ""}>${field.texts[i] ?? reward(field.numbers[i] ?? NaN)}</span>` : null}</a>`;
}

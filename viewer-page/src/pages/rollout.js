// One rollout. The verdict comes first: why this reward. Then the conversation, its times, its tokens, and the row.
import { Component } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, route } from "../route.js";
import { LARGE_ROW_BYTES, runs } from "../source.js";
import { conversation, exact, pretty } from "../row.js";
import { OUTCOMES, PARTS } from "../columns.js";
import { bytes, count, plural } from "../format.js";
import { Dots, Reward } from "../rewards.js";
import { siblings } from "./rollouts.js";
import { Conversation } from "../conversation.js";
import { Tokens } from "../tokens.js";
import { Timeline } from "../timeline.js";

const TABS = { "": "Conversation", timeline: "Timeline", tokens: "Tokens", row: "Row" };

// What cannot be drawn is shown as it is in the file: one row never breaks the page.
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }

  render({ instead, children }, { error }) {
    return error ? html`<div class="broken" role="alert"><strong>This row has a form that the page does not know.</strong> ${error.message}</div>${instead}` : children;
  }
}

// -> { row, card, text, error, asks }: a row that is very large is fetched when it is asked for.
export function useRow(run, i) {
  const [got, set] = useState({}), large = run.columns.size[i] > LARGE_ROW_BYTES;
  const fetchRow = () => {
    let alive = true;
    Promise.all([run.text(i), run.card(i)]).then(([text, card]) => alive && set(read(run.columns, i, text, card)), (error) => alive && set({ error: error.message }));
    return () => (alive = false);
  };
  useEffect(() => {
    set({ asks: large });
    return large ? undefined : fetchRow();
  }, [run, i]);
  return { ...got, load: () => { set({}); fetchRow(); } };
}

function read(columns, i, text, card) {
  let row;
  try {
    row = JSON.parse(text);
  } catch (error) {
    return { text, error: `This line of the file is not JSON: ${error.message}` };
  }
  if (row === null || typeof row !== "object" || Array.isArray(row)) return { text, error: "This line of the file is JSON, but no object." };
  const other = row._ng_task_index !== undefined && row._ng_task_index !== columns.task[i] && row._ng_task_index >= 0 && row._ng_task_index < 2 ** 32;
  if (!card) return { text, error: "This line of the file is nested too deeply, or is not UTF-8." };
  return { text, row, card, error: other ? "The file has changed. Reload the page." : "" };
}

export function Rollout({ run, i, back }) {
  const { columns } = run, got = useRow(run, i), tab = TABS[route.value.params.tab] ? route.value.params.tab : "";
  return html`<article class="rollout">
    <${Heading} run=${run} i=${i} back=${back} />
    ${got.error ? html`<div class="broken" role="alert"><strong>This row cannot be shown.</strong> ${got.error}</div>` : null}
    ${got.asks && !got.row && !got.text ? html`<div class="broken"><strong>This row is large: ${bytes(columns.size[i])}.</strong> <button onClick=${got.load}>Load it all the same</button></div>` : null}
    ${got.row ? html`<${Guard} key=${`${i} ${tab}`} instead=${html`<${Raw} run=${run} i=${i} got=${got} />`}><${Verdict} run=${run} i=${i} card=${got.card} /><${Label} key=${i} run=${run} i=${i} id=${got.card.rollout_id} />
      <div class="tabs" role="tablist" aria-label="Views of the rollout" onKeyDown=${({ key, target }) => (key === "ArrowRight" ? target.nextElementSibling : key === "ArrowLeft" ? target.previousElementSibling : null)?.focus()}>${Object.entries(TABS).map(([name, title]) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${name === tab} aria-controls="panel" onClick=${() => change({ tab: name })}>${title}</button>`)}</div>
      <div class="panel" id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
        ${tab === "timeline" ? html`<${Timeline} row=${got.row} />` : tab === "tokens" ? html`<${Tokens} row=${got.row} card=${got.card} />` : tab === "row" ? html`<${Raw} run=${run} i=${i} got=${got} />` : html`<${Said} row=${got.row} card=${got.card} />`}
      </div><//>`
    : got.text ? html`<${Raw} run=${run} i=${i} got=${got} />` : got.asks || got.error ? null : html`<p class="quiet">Reading …</p>`}
  </article>`;
}

const Said = ({ row, card }) => html`<${Conversation} items=${conversation(row, card)} />`;

function Heading({ run, i, back }) {
  const { columns } = run, group = siblings(columns, i);
  return html`<header class="heading"><a class="back" href=${back} aria-label="Back to the list">←</a>
    <h1><bdi>${columns.envs[columns.env[i]] || "rollout"}</bdi> <span class="quiet">task</span> ${columns.task[i]} <span class="quiet">rollout</span> ${columns.rollout[i]}</h1>
    ${group.length > 1 ? html`<span class="group"><span class="quiet">its group</span> <${Dots} columns=${columns} rows=${group} current=${i} link=${(k) => format(["run", run.id, "rollouts", columns.id(k)], route.value.params)} /> <a href=${format(["run", run.id, "tasks"], { task: columns.task[i], of: columns.envs[columns.env[i]] })}>side by side</a></span>` : null}
  </header>`;
}

// What it rests on is in the card (gym_view/row.py).
function Verdict({ run, i, card }) {
  const outcome = OUTCOMES[run.columns.outcome[i]], [components, found, expected, judged, others] = [card.components, card.found, card.expected, card.judged, card.others].map(Object.entries);
  return html`<section class=${`verdict ${outcome}`} aria-label="Verdict">
    <div class="score"><${Reward} value=${card.reward} big /><span class=${`outcome ${outcome}`}>${outcome}</span></div>
    <div class="why">
      ${card.failed ? html`<div class="reason bad"><h2>Failed: ${card.failed}</h2><p class="said">${card.reason}</p><small class="quiet">${card.notes}</small></div>` : null}
      ${components.length ? html`<div class="reason"><h2>Made of</h2><ul class="components">${components.map(([name, value]) => html`<li><span>${name}</span><span class="track"><span class=${value >= 1 ? "one" : value > 0 ? "part" : "zero"} style=${{ width: `${100 * Math.min(1, Math.abs(value))}%` }}></span></span><${Reward} value=${value} /></li>`)}</ul></div>` : null}
      ${found.length || expected.length ? html`<div class="reason pair">
        ${found.length ? html`<div><h2>Found in the answer</h2>${found.map(([name, value]) => html`<${Value} name=${name} value=${value} />`)}</div>` : null}
        ${expected.length ? html`<div><h2>Expected</h2>${expected.map(([name, value]) => html`<${Value} name=${name} value=${value} />`)}</div>` : null}</div>` : null}
      ${card.asked.length ? html`<${Asked} asked=${card.asked} />` : null}
      ${judged.map(([name, said]) => html`<div class="reason"><h2>${name.replaceAll("_", " ")}</h2><${Long} text=${said} /></div>`)}
      ${card.limits.length ? html`<div class="reason warn"><h2>Stopped by a limit</h2><p>${card.limits.join(", ")}</p></div>` : null}
      ${card.tool_error ? html`<div class="reason warn"><h2>First tool error, in turn ${card.tool_error.turn}</h2><p class="said">${card.tool_error.error}</p></div>` : null}
      ${card.attempt > 1 || card.again.length || card.kept.length ? html`<div class="reason"><h2>Attempt ${card.attempt}</h2><ul>
        ${card.again.map((why) => html`<li>started again: ${why}</li>`)}${card.kept.map((what) => html`<li>${what}</li>`)}
        ${card.attempt > 1 && !card.again.length && !card.kept.length ? html`<li>the attempts before are not explained in the row</li>` : null}</ul></div>` : null}
      ${others.length ? html`<details class="reason"><summary>${plural(others.length, "further field")}</summary>${others.map(([name, value]) => html`<${Value} name=${name} value=${value} />`)}</details>` : null}
      ${card.fork ? html`<${Fork} fork=${card.fork} />` : null}
      <p class="facts quiet">${card.facts}</p>
      <${Commands} run=${run} i=${i} />
    </div></section>`;
}

function Fork({ fork }) {
  const there = runs.value?.runs.find((one) => fork.run && one.manifest?.run === fork.run), id = `${fork.task}.${fork.rollout}`;
  return html`<p class="facts fork">begins with ${plural(fork.turn, "turn")} of ${there ? html`<a href=${format(["run", there.id, "rollouts", id])}>${there.id} ${id}</a>` : `${fork.run} ${id}`}${fork.changed.map((name) => `, another ${name.replaceAll("_", " ")}`)}${fork.differed.length ? `; the environment answered differently after turn ${fork.differed.join(", ")}` : ""}</p>`;
}

function Value({ name, value }) {
  if (value === null) return html`<div class="value"><small class="quiet">${name}</small><div class="said nothing">found: nothing</div></div>`;
  const code = value.length > 60 && /^[[{]/.test(value);
  return html`<div class="value"><small class="quiet">${name}</small><${Long} text=${code ? pretty(value) : value === "" ? "(empty)" : value} code=${code} /></div>`;
}

// Models in roles: what each was asked, and its answer. Of many the last ones are open: these led to the verdict.
const OPEN_ROLES = 2;

function Asked({ asked }) {
  const one = ({ role, question, answer, label }) => html`<div class="reason asked"><h2>${role}${label === null ? html` <span class="tag">no label was read</span>` : label ? html` <span class="tag">${label}</span>` : null}</h2>
    <div class=${question ? "pair" : ""}>${question ? html`<div class="value"><small class="quiet">was asked</small><${Long} text=${question} most=${400} /></div>` : null}
    <div class="value"><small class="quiet">answered</small><${Long} text=${answer || "(nothing)"} /></div></div></div>`;
  const before = asked.slice(0, -OPEN_ROLES);
  return html`${before.length ? html`<details class="reason"><summary>${plural(before.length, "earlier question")} to roles</summary>${before.map(one)}</details>` : null}${asked.slice(-OPEN_ROLES).map(one)}`;
}

function Long({ text, most = 600, code = false }) {
  const [open, setOpen] = useState(false);
  return html`<div class=${`said ${code ? "code" : ""} ${code || text.length > most ? "long" : ""}`} tabindex=${code || text.length > most ? 0 : undefined}>${open || text.length <= most ? text : `${text.slice(0, most)} …`}${text.length > most ? html` <button class="more" onClick=${() => setOpen(!open)}>${open ? "less" : `all ${count(text.length)} characters`}</button>` : null}</div>`;
}

// A person's label and note, which stand beside the results.
function Label({ run, i, id }) {
  const { columns } = run, rollout = `${columns.task[i]}.${columns.rollout[i]}`, [state, say] = useState("");
  useEffect(() => {
    run.loadLabels().catch(({ message }) => say(message));
  }, [run]);
  const labels = run.labels.value, said = labels?.[rollout], mine = said && (!said.rollout_id || said.rollout_id === id) ? said : {};
  if (!labels || columns.id(i) !== rollout) return state ? html`<p class="bad">${state}</p>` : null;
  if (run.about?.chunks) return mine.label || mine.note ? html`<p class="label"><span class="tag">${mine.label}</span> ${mine.note}</p>` : null;
  // A field that is taken away while something is typed there, by the back button for one, says so before it is gone.
  const save = ({ currentTarget: at }) => {
    const { label, note } = Object.fromEntries(new FormData(at.form ?? at));
    if (label === (mine.label ?? "") && note === (mine.note ?? "")) return;
    run.putLabel({ rollout, label, note, rollout_id: id, was: { label: mine.label, note: mine.note } }).then(() => say("stored"), ({ message }) => (at.isConnected ? say : alert)(at.isConnected ? message : `${rollout}: ${message}\n${label}\n${note}`));
  };
  // What is typed stays while an earlier part of it is being stored: the fields have their first values only.
  return html`<form class="label" key=${`${rollout} ${id}`} onInput=${() => say("")} onSubmit=${(event) => (event.preventDefault(), save(event))} aria-label="Your label">
    <input name="label" maxlength="100" list="labels" autocomplete="off" placeholder="label" aria-label="Label" defaultValue=${mine.label ?? ""} onChange=${save} />
    <datalist id="labels">${[...new Set(Object.values(labels).map(({ label }) => label))].filter(Boolean).map((label) => html`<option value=${label} />`)}</datalist>
    <input name="note" maxlength="10000" placeholder="note" aria-label="Note" defaultValue=${mine.note ?? ""} onChange=${save} /><small class="quiet" role="status">${state}</small></form>`;
}

// What to type to see, judge again or repeat just this one.
function Commands({ run, i }) {
  const { columns } = run, part = PARTS[columns.part[i]];
  const path = (run.about?.path ?? `${run.id}.jsonl`).replace(/\.jsonl$/, part === "failures" ? "_failures.jsonl" : ".jsonl");
  const file = /^[\w./~@%+,:-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`, env = columns.envs[columns.env[i]];
  const name = /^[\w.-]+$/.test(env) ? env : "NAME";
  const rollout = `${run.id.replace(/[^\w.-]+/g, "-")}-${columns.task[i]}-${columns.rollout[i]}`; // what was made of another one may be there
  const one = `tail -c +${columns.offset[i] + 1} ${file} | head -n 1 > one.jsonl`;
  const flags = run.about?.flags ? ` ${run.about.flags}` : "";
  const inputs = `grep -h '"_ng_task_index":${columns.task[i]},"_ng_rollout_index":${columns.rollout[i]}[,}]' ${file.replace(/(_failures)?\.jsonl/, "_materialized_inputs.jsonl")} > task.jsonl`;
  const all = [["Judge it again", `${one}\ngym-runtime reverify ${name} --rollouts one.jsonl --output judged-${rollout}.jsonl`], ["Make it again", `${inputs}\ngym-runtime run ${name} --input task.jsonl${flags} --output again-${rollout}.jsonl`], ["See it in a terminal", `gym-runtime show ${file}:${columns.task[i]}.${columns.rollout[i]}`]];
  return html`<details class="commands"><summary>Repeat it</summary>${all.map(([title, command]) => html`<div><h2>${title}</h2><${Copied} text=${command} /></div>`)}</details>`;
}

export function Copied({ text }) {
  const [done, setDone] = useState(false);
  return html`<div class="copied"><pre tabindex="0">${text}</pre><button onClick=${() => navigator.clipboard?.writeText(text).then(() => setDone(true))}>${done ? "copied" : "copy"}</button></div>`;
}

const RAW_CHARACTERS = 200_000;

function Raw({ run, i, got }) {
  const [all, setAll] = useState(false), whole = useMemo(() => (got.row ? JSON.stringify(exact(got.text), compact, 1) : got.text), [got.text]);
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([got.text], { type: "application/json" }));
    link.download = `${run.id}-${run.columns.task[i]}.${run.columns.rollout[i]}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return html`<div class="raw"><p class="quiet">${bytes(run.columns.size[i])} at byte ${count(run.columns.offset[i])} of the ${PARTS[run.columns.part[i]]}. <button onClick=${save}>Save</button></p>
    <pre tabindex="0">${all || whole.length <= RAW_CHARACTERS ? whole : whole.slice(0, RAW_CHARACTERS)}</pre>
    ${!all && whole.length > RAW_CHARACTERS ? html`<button onClick=${() => setAll(true)}>Show all ${count(whole.length)} characters</button>` : null}</div>`;
}

// Long lists of numbers on one line.
const compact = (_, value) => (Array.isArray(value) && value.length > 16 && (typeof value[0] === "number" || JSON.isRawJSON?.(value[0])) ? `[${value.slice(0, 12).map((one) => JSON.stringify(one)).join(", ")}, … ${value.length} numbers]` : value);

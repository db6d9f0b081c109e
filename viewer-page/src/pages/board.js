// Several runs, such as the checkpoints of a training: their figures with errors, in the order in which they were
// started, each against the first, and the tasks of the first in all of them.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, route } from "../route.js";
import { comparison, openRun, runs } from "../source.js";
import { rowsByTask, taskKey } from "../rows.js";
import { Line, Partly } from "../charts.js";
import { Heat } from "../heat.js";
import { count, failed, passed, percent, plural, reward, rewardError, short, span } from "../format.js";

const started = ({ manifest, modified_s: modified }) => manifest?.started_s || modified;

export function Board() {
  const chosen = (route.value.params.runs ?? "").split(",").map(decodeURIComponent), found = runs.value.runs.filter(({ id }) => chosen.includes(id)).sort((a, b) => started(a) - started(b)).map(({ id }) => openRun(id));
  useEffect(() => {
    document.title = "Runs compared · gym-runtime";
    for (const run of found) run.load();
    const timer = setInterval(() => document.hidden || found.forEach((run) => run.follow()), 2000);
    return () => clearInterval(timer);
  }, [route.value.params.runs]);
  const given = found.map((run) => run.figures.value), ready = found.length > 0 && given.every(Boolean), first = found.find(({ id }) => id === route.value.params.first) ?? found[0];
  if (!found.length) return html`<main class="note"><h1>No such runs</h1><p><a href="#/">All runs</a></p></main>`;
  return html`<main class="board"><div class="headline"><h1>${plural(found.length, "run")}</h1><label class="quiet">against <select onChange=${(event) => change({ first: event.target.value })}>${found.map(({ id }) => html`<option selected=${id === first.id}>${id}</option>`)}</select></label></div>
    ${ready ? html`<${Figures} key=${[first, ...found].map(({ id }) => id).join()} found=${found} given=${given} first=${first} />` : html`<p class="quiet" role="status">Adding up the figures …</p>`}</main>`;
}

function Figures({ found, given, first }) {
  const against = useComparisons(first, found, given);
  const names = [...new Set(given.flatMap(({ environments }) => environments.map(({ environment }) => environment)))].slice(0, 12);
  const rated = given.map(({ run }) => run.mean_reward).filter((value) => value !== null), low = Math.min(0, ...rated), high = Math.max(1, ...rated);
  const of = (figures, name) => figures.environments.find(({ environment }) => environment === name);
  return html`<${Partly} runs=${found} /><div class="charts">
      ${chart("Mean reward", low, high, reward, found, given.map(({ run }) => [run.mean_reward, run.mean_error]))}
      ${given.some(({ run }) => run.pass_at[1] !== undefined) ? chart("pass@1", 0, 1, percent, found, given.map(({ run }) => [run.pass_at[1] ?? null, run.pass_error[1] ?? null])) : null}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Figures of the runs"><table><thead><tr><th>Run</th><th class="right">Mean reward</th><th class="right">pass@1</th><th class="right">against ${first.id}</th><th class="right">Rollouts</th><th class="right">Failed</th><th class="right">Tokens out</th><th class="right">Time a rollout</th>${names.length > 1 ? names.map((name) => html`<th class="right">${name}</th>`) : null}</tr></thead>
      <tbody>${found.map((run, at) => html`<tr><td><a class="name" href=${format(["run", run.id])}>${run.id}</a></td><td class="right">${rewardError(given[at].run.mean_reward, given[at].run.mean_error)}</td><td class="right">${passed(given[at].run)}</td><td class="right">${run === first ? html`<span class="quiet">–</span>` : html`<${Against} a=${first} b=${run} answer=${against[run.id]} />`}</td>
        <td class="right">${count(given[at].run.rollouts)}</td><td class="right">${count(failed(given[at].run))}</td><td class="right">${short(given[at].run.output_tokens)}</td><td class="right">${span(given[at].run.mean_duration_s)}</td>${names.length > 1 ? names.map((name) => html`<td class="right">${of(given[at], name) ? rewardError(of(given[at], name).mean, of(given[at], name).error) : "–"}</td>`) : null}</tr>`)}</tbody></table></div>
    <section class="tasks" aria-label="Tasks in all runs"><h2>Which tasks changed?</h2><p class="quiet">Mean reward of the tasks of ${first.id}; those that changed most first.</p><${Map} found=${found} first=${first} figures=${given[found.indexOf(first)]} against=${against} /></section>`;
}

// Every run against the first: { id: { result, error } }; a run has none until its answer is there.
function useComparisons(first, found, given) {
  const [answers, set] = useState({}), asked = useRef(0);
  useEffect(() => {
    const turn = ++asked.current; // an answer that a later one has overtaken is left out
    for (const run of found.filter((one) => one !== first)) {
      comparison(first, run).then((result) => ({ result }), ({ message }) => ({ error: message })).then((answer) => set((known) => (known[run.id]?.turn > turn ? known : { ...known, [run.id]: { ...answer, turn } })));
    }
  }, given);
  return answers;
}

// Tasks by runs, joined as the comparisons join them. A cell leads to its rollout, or to the answers if there are more.
function Map({ found, first, figures, against }) {
  const pairs = new globalThis.Map(found.map(({ id }) => [id, new globalThis.Map((against[id]?.result?.pairs ?? []).map((pair) => [taskKey(pair.environment, pair.task_a), pair]))]));
  const [several, tasks] = [figures.environments.length > 1, figures.tasks.map(([env, task, , mean]) => {
    const means = found.map((run) => (run === first ? { env, task, mean } : ((pair) => pair && { env: pair.environment_b, task: pair.task_b, mean: pair.mean_b })(pairs.get(run.id).get(taskKey(env, task)))));
    const known = means.map((one) => one?.mean).filter((one) => typeof one === "number");
    return { env, task, means, low: Math.min(...known), high: Math.max(...known) };
  }).filter(({ low, high }) => low <= high).sort((a, b) => b.high / 2 - b.low / 2 - (a.high / 2 - a.low / 2) || a.task - b.task)];
  if (!tasks.length) return html`<p class="quiet">No task has a verdict.</p>`;
  const low = tasks.reduce((least, one) => Math.min(least, one.low), 0), high = tasks.reduce((most, one) => Math.max(most, one.high), 1);
  return html`<${Heat} count=${tasks.length} low=${low} high=${high} first="Task" label="Tasks by runs" heads=${found.map(({ id }) => id)} line=${(k) => ({
    name: tasks[k].task, note: several ? tasks[k].env : "", href: format(["run", first.id, "tasks"], { task: tasks[k].task, of: tasks[k].env }),
    cells: tasks[k].means.map((one, at) => {
      if (!one) return null;
      const run = found[at], rows = rowsByTask(run).get(taskKey(one.env, one.task)) ?? [];
      return { value: one.mean, title: `${run.id}, task ${one.task}: mean reward ${reward(one.mean)}`, href: rows.length === 1 ? format(["run", run.id, "rollouts", run.columns.id(rows[0])], { q: `task=${one.task}` }) : format(["run", run.id, "tasks"], { task: one.task, of: one.env }) };
    }) })} />`;
}

const chart = (title, low, high, shown, found, values) => html`<section class="chart"><h2>${title}</h2><p class="quiet">With standard errors, clustered by task.</p>
  <${Line} low=${low} high=${high} format=${shown} labels=${[found[0].id, found.at(-1).id]} points=${values.map(([value, error], at) => ({ value, error, href: format(["run", found[at].id]), title: `${found[at].id}: ${shown(value)}${error === null ? "" : ` ± ${shown(Number(error.toPrecision(2)))}`}` }))} /></section>`;

// The paired difference, with its interval; it leads to the tasks.
function Against({ a, b, answer: { result, error } = {} }) {
  if (error || result === null) return html`<span class="quiet">${error || "not in this export"}</span>`;
  if (!result) return html`<span class="quiet">…</span>`;
  const { difference, low, high } = result, sure = low > 0 ? "good" : high < 0 ? "bad" : "quiet";
  return difference === null ? html`<span class="quiet">no task in common</span>` : html`<a class=${sure} href=${format(["compare"], { a: a.id, b: b.id })} title="95 % interval, over tasks">${difference > 0 ? "+" : ""}${reward(difference)} <small>${low === null ? "one task" : `${reward(low)} to ${reward(high)}`}</small></a>`;
}

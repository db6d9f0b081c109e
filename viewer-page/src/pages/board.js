// Several runs, such as the checkpoints of a training: their figures with errors, in the order in which they were
// started, and each against the first, task by task.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, route } from "../route.js";
import { comparison, openRun, runs } from "../source.js";
import { Line } from "../charts.js";
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
    ${ready ? html`<${Figures} key=${found.map(({ id }) => id).join()} found=${found} given=${given} first=${first} />` : html`<p class="quiet" role="status">Adding up the figures …</p>`}</main>`;
}

function Figures({ found, given, first }) {
  const names = [...new Set(given.flatMap(({ environments }) => environments.map(({ environment }) => environment)))].slice(0, 12);
  const rated = given.map(({ run }) => run.mean_reward).filter((value) => value !== null), low = Math.min(0, ...rated), high = Math.max(1, ...rated);
  const of = (figures, name) => figures.environments.find(({ environment }) => environment === name);
  return html`<div class="charts">
      ${chart("Mean reward", low, high, reward, found, given.map(({ run }) => [run.mean_reward, run.mean_error]))}
      ${given.some(({ run }) => run.pass_at[1] !== undefined) ? chart("pass@1", 0, 1, percent, found, given.map(({ run }) => [run.pass_at[1] ?? null, run.pass_error[1] ?? null])) : null}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Figures of the runs"><table><thead><tr><th>Run</th><th class="right">Mean reward</th><th class="right">pass@1</th><th class="right">against ${first.id}</th><th class="right">Rollouts</th><th class="right">Failed</th><th class="right">Tokens out</th><th class="right">Time a rollout</th>${names.length > 1 ? names.map((name) => html`<th class="right">${name}</th>`) : null}</tr></thead>
      <tbody>${found.map((run, at) => html`<tr><td><a class="name" href=${format(["run", run.id])}>${run.id}</a></td><td class="right">${rewardError(given[at].run.mean_reward, given[at].run.mean_error)}</td><td class="right">${passed(given[at].run)}</td><td class="right">${run === first ? html`<span class="quiet">–</span>` : html`<${Against} key=${first.id} a=${first} b=${run} />`}</td>
        <td class="right">${count(given[at].run.rollouts)}</td><td class="right">${count(failed(given[at].run))}</td><td class="right">${short(given[at].run.output_tokens)}</td><td class="right">${span(given[at].run.mean_duration_s)}</td>${names.length > 1 ? names.map((name) => html`<td class="right">${of(given[at], name) ? rewardError(of(given[at], name).mean, of(given[at], name).error) : "–"}</td>`) : null}</tr>`)}</tbody></table></div>`;
}

const chart = (title, low, high, shown, found, values) => html`<section class="chart"><h2>${title}</h2><p class="quiet">With standard errors, clustered by task.</p>
  <${Line} low=${low} high=${high} format=${shown} labels=${[found[0].id, found.at(-1).id]} points=${values.map(([value, error], at) => ({ value, error, href: format(["run", found[at].id]), title: `${found[at].id}: ${shown(value)}${error === null ? "" : ` ± ${shown(Number(error.toPrecision(2)))}`}` }))} /></section>`;

// The paired difference, with its interval; it leads to the tasks.
function Against({ a, b }) {
  const [result, set] = useState(), [error, fail] = useState("");
  useEffect(() => {
    comparison(a, b).then(set, ({ message }) => fail(message));
  }, [a.figures.value, b.figures.value]);
  if (error || result === null) return html`<span class="quiet">${error || "not in this export"}</span>`;
  if (!result) return html`<span class="quiet">…</span>`;
  const { difference, low, high } = result, sure = low > 0 ? "good" : high < 0 ? "bad" : "quiet";
  return difference === null ? html`<span class="quiet">no task in common</span>` : html`<a class=${sure} href=${format(["compare"], { a: a.id, b: b.id })} title="95 % interval, over tasks">${difference > 0 ? "+" : ""}${reward(difference)} <small>${reward(low)} to ${reward(high)}</small></a>`;
}

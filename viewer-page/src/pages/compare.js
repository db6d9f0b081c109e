// Two runs, task by task: how much better is the second, could that be chance, and which tasks flipped.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, go, route } from "../route.js";
import { comparison, openRun, runs } from "../source.js";
import { rowsByTask, taskKey } from "../rows.js";
import { conversation, firstDifference } from "../row.js";
import { Conversation } from "../conversation.js";
import { Interval, Partly } from "../charts.js";
import { List } from "../list.js";
import { count, failed, passed, passedTasks, plural, reward, rewardError, short, span } from "../format.js";
import { Dots, Reward } from "../rewards.js";
import { useRow } from "./rollout.js";

const KINDS = { "": "flipped first", wins: "better", losses: "worse", ties: "equal" };

export function Compare() {
  const { a: idA = "", b: idB = "" } = route.value.params;
  return html`<main class="compare"><div class="headline"><h1>Compare</h1>
      <${Choice} name="a" value=${idA} /><span class="quiet">with</span><${Choice} name="b" value=${idB} />
      ${idA && idB ? html`<button onClick=${() => go(["compare"], { ...route.value.params, a: idB, b: idA })}>swap</button>` : null}</div>
    ${idA && idB ? html`<${Both} key=${`${idA} ${idB}`} a=${openRun(idA)} b=${openRun(idB)} />` : html`<p class="quiet">Choose two runs.</p>`}</main>`;
}

function Choice({ name, value }) {
  return html`<select aria-label=${name === "a" ? "First run" : "Second run"} onChange=${(event) => change({ [name]: event.target.value, task: "" })}><option value="">choose …</option>${runs.value.runs.map((run) => html`<option selected=${run.id === value}>${run.id}</option>`)}</select>`;
}

function Both({ a, b }) {
  const [result, set] = useState(), [error, fail] = useState("");
  useEffect(() => {
    document.title = "Compare · gym-runtime";
    a.load();
    b.load();
    const timer = setInterval(() => document.hidden || (a.follow(), b.follow()), 2000);
    return () => clearInterval(timer);
  }, []);
  const problem = a.state.value.error || b.state.value.error || error, [one, other] = [a, b].map((run) => run.figures.value);
  useEffect(() => {
    let alive = true;
    if (one && other) comparison(a, b).then((found) => alive && set(found), (error) => alive && fail(error.message));
    return () => (alive = false);
  }, [one, other]);
  if (problem) return html`<p class="banner bad" role="alert">${problem}</p>`;
  if (result === null) return html`<p class="quiet">This export has too many runs to compare them, or it is one run twice: <code>gym-runtime compare A.jsonl B.jsonl</code> compares two.</p>`;
  if (!result) return html`<p class="quiet" role="status">Reading both runs …</p>`;
  const { kind = "", task = "" } = route.value.params, better = (pair) => Math.sign(pair.mean_b - pair.mean_a);
  const keep = { "": () => true, wins: (pair) => better(pair) > 0, losses: (pair) => better(pair) < 0, ties: (pair) => better(pair) === 0 }[kind];
  const pairs = result.pairs.filter(keep).sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference) || x.task_a - y.task_a);
  const pair = task ? result.pairs.find((found) => `${found.task_a}` === task.split("~")[0] && found.environment === (task.split("~")[1] ?? found.environment)) : null;
  const lines = [["Mean reward", (run) => rewardError(run.mean_reward, run.mean_error)], ["pass@1", (run) => `${passed(run)} ${passedTasks(run)}`], ["Rollouts", (run) => count(run.rollouts)], ["Failed", (run) => count(failed(run))], ["Truncated", (run) => count(run.outcomes.truncated ?? 0)], ["Tokens out", (run) => short(run.output_tokens)], ["Turns", (run) => short(run.turns)], ["Time a rollout", (run) => span(run.mean_duration_s)]];
  return html`<${Partly} runs=${[a, b]} /><div class="summary">
      <section class="verdict-two" aria-label="Result">${result.difference === null ? html`<p>${result.pairs.length ? "A difference of rewards is larger than a number can be." : "The two runs have no task in common with a verdict in both."}</p>` : html`
        <p class="lead"><strong class=${result.low > 0 ? "good" : result.high < 0 ? "bad" : ""}>${result.difference > 0 ? "+" : ""}${reward(result.difference)}</strong> mean difference of reward over ${plural(result.pairs.length, "task")}</p>
        ${result.low === null ? html`<p class="quiet">One task has no interval: it cannot tell which run is better.</p>` : html`<${Interval} value=${result.difference} low=${result.low} high=${result.high} />
        <p class="quiet">95 % interval ${reward(result.low)} to ${reward(result.high)}: ${result.low > 0 ? `${b.id} is better.` : result.high < 0 ? `${b.id} is worse.` : "the difference may be chance."} <small>(bootstrap over tasks, ${count(result.resamples)} draws; joined by ${result.joined_by})</small></p>`}
        <div class="split" role="img" aria-label=${`${result.wins} better, ${result.ties} equal, ${result.losses} worse`}><span class="good" style=${{ flexGrow: result.wins }}></span><span class="same" style=${{ flexGrow: result.ties }}></span><span class="bad" style=${{ flexGrow: result.losses }}></span></div>
        <p><strong class="good">${count(result.wins)}</strong> better · <strong>${count(result.ties)}</strong> equal · <strong class="bad">${count(result.losses)}</strong> worse${result.only_a + result.only_b ? html`<span class="quiet"> · only in one: ${count(result.only_a)} and ${count(result.only_b)}</span>` : null}</p>`}</section>
      <table class="figures"><thead><tr><td></td><th class="right">${a.id}</th><th class="right">${b.id}</th></tr></thead><tbody>${lines.map(([name, shown]) => html`<tr><th>${name}</th><td class="right">${shown(one.run)}</td><td class="right">${shown(other.run)}</td></tr>`)}</tbody></table></div>
    ${pair ? html`<${SideBySide} key=${task} a=${a} b=${b} pair=${pair} />` : html`
      <div class="choice" role="group" aria-label="Which tasks">${Object.entries(KINDS).map(([name, title]) => html`<button aria-pressed=${kind === name} onClick=${() => change({ kind: name })}>${title}</button>`)}</div>
      <div class="grid head pairs-grid"><span>Task</span><span class="c-env">Environment</span><span>${a.id}</span><span>${b.id}</span><span class="right">Difference</span></div>
      ${pairs.length ? html`<${List} count=${pairs.length} height=${40} label="Tasks of both runs" row=${(k) => {
        const { task_a: taskA, task_b: taskB, environment: env, mean_a: meanA, mean_b: meanB, difference } = pairs[k];
        return html`<div class="grid row pairs-grid"><a class="name" href=${format(["compare"], { ...route.value.params, task: `${taskA}~${env}` })}>${taskA}${taskB !== taskA ? html`<small class="quiet"> = ${taskB}</small>` : null}</a><span class="c-env">${env}</span>
          <${Side} run=${a} mean=${meanA} rows=${rowsOf(a, env, taskA)} /><${Side} run=${b} mean=${meanB} rows=${rowsOf(b, pairs[k].environment_b, taskB)} /><span class=${`right ${difference > 0 ? "good" : difference < 0 ? "bad" : "quiet"}`}>${difference > 0 ? "+" : ""}${reward(difference)}</span></div>`;
      }} />` : html`<p class="empty quiet">No task is like that.</p>`}`}`;
}

const rowsOf = (run, env, task) => rowsByTask(run).get(taskKey(env, task)) ?? [];

const Side = ({ run, mean, rows }) => html`<span class="side"><${Reward} value=${mean} /> <${Dots} columns=${run.columns} rows=${rows} most=${10} link=${(i) => format(["run", run.id, "rollouts", run.columns.id(i)])} /></span>`;

// Of each run the first rollout of the task, or the one chosen; the first item in which they differ is marked.
function SideBySide({ a, b, pair }) {
  const { ia, ib } = route.value.params;
  const rowsA = rowsOf(a, pair.environment, pair.task_a), rowsB = rowsOf(b, pair.environment_b, pair.task_b);
  const i = rowsA[Number(ia) || 0] ?? rowsA[0], j = rowsB[Number(ib) || 0] ?? rowsB[0];
  const left = useRow(a, i), right = useRow(b, j);
  const [itemsA, itemsB] = [left, right].map((got) => (got.row ? conversation(got.row, got.card) : null));
  const differs = itemsA && itemsB ? firstDifference(itemsA, itemsB) : -1;
  const choose = (name, k) => change({ [name]: k || "" });
  return html`<section aria-label="Side by side"><p><a href=${format(["compare"], { ...route.value.params, task: "", ia: "", ib: "" })}>← all tasks</a> <strong>${pair.environment} task ${pair.task_a}</strong>
      ${itemsA && itemsB ? html` <span class="quiet">${differs < 0 ? "both say the same" : `they differ from ${itemsA[differs]?.turn || itemsB[differs]?.turn ? `turn ${itemsA[differs]?.turn ?? itemsB[differs]?.turn}` : "the prompt"} on`}</span>${differs < 0 ? null : html` <button onClick=${() => document.getElementById("first-difference")?.scrollIntoView({ block: "center" })}>go there</button>`}` : null}</p>
    <div class="two">${[[a, rowsA, i, itemsA, "ia", left], [b, rowsB, j, itemsB, "ib", right]].map(([run, rows, row, items, name, got]) => html`<div>
      <h2><a href=${format(["run", run.id, "rollouts", run.columns.id(row)])}>${run.id}</a> <${Reward} value=${run.columns.reward[row]} /></h2>
      ${rows.length > 1 ? html`<div class="choice" role="group" aria-label="Rollout">${rows.slice(0, 16).map((one, k) => html`<button aria-pressed=${one === row} onClick=${() => choose(name, k)}>${run.columns.rollout[one]}</button>`)}</div>` : null}
      ${items ? html`<${Conversation} items=${items} marked=${differs} plain />` : got.asks ? html`<button onClick=${got.load}>Load this large row</button>` : html`<p class="quiet">${got.error || "Reading …"}</p>`}</div>`)}</div></section>`;
}

// Tasks: a line each with its rewards as dots, or as a heat map; those whose rewards differ first, since they carry the
// signal.
import { html } from "../html.js";
import { change, format, route } from "../route.js";
import { rowsByTask, taskKey } from "../rows.js";
import { List } from "../list.js";
import { Heat, MOST_CELLS } from "../heat.js";
import { count, percent, plural, reward, short } from "../format.js";
import { Dots, Reward } from "../rewards.js";
import { Task } from "./task.js";

const KINDS = { "": "all", mixed: "rewards differ", zero: "all 0", equal: "all the same", none: "no verdict" };
const SORTS = { "": "spread", mean: "mean reward", task: "task", tokens: "tokens" };

// A task as gym_view/page_figures.py has it: [environment, task, kind, mean, spread, passed, tokens].
const KEYS = { "": ([, , , , spread]) => (spread === null ? -Infinity : -spread), mean: ([, , , mean]) => mean ?? Infinity, task: ([, task]) => task, tokens: ([, , , , , , tokens]) => -tokens };

export function Tasks({ run }) {
  const { task: chosen } = route.value.params;
  return /^\d+$/.test(chosen ?? "") ? html`<${Task} key=${`${chosen} ${route.value.params.of}`} run=${run} task=${Number(chosen)} env=${route.value.params.of ?? run.columns.envs[0]} />` : html`<${All} run=${run} />`;
}

function All({ run }) {
  const { columns } = run, { kind = "", sort = "", env = "", as = "" } = route.value.params, figures = run.figures.value;
  if (!figures) return html`<main class="note"><p class="quiet" role="status">Adding up the figures …</p></main>`;
  const key = KEYS[sort] ?? (() => 0), rows = rowsByTask(run);
  const shown = run.cached(`tasks ${kind} ${sort} ${env}`, () => figures.tasks.filter((task) => (!kind || task[2] === kind) && (!env || task[0] === env)).sort((a, b) => key(a) - key(b) || a[1] - b[1]), figures);
  const counts = run.cached("kinds", () => figures.tasks.reduce((sum, [, , name]) => ({ ...sum, [name]: (sum[name] ?? 0) + 1 }), {}), figures);
  return html`<main class="tasks">
    <div class="headline"><h1>${plural(shown.length, "task")}</h1>
      <div class="choice" role="group" aria-label="Which tasks">${Object.entries(KINDS).filter(([name]) => !name || counts[name]).map(([name, title]) => html`<button aria-pressed=${kind === name} onClick=${() => change({ kind: name })}>${title}${name ? html` <small>${count(counts[name])}</small>` : null}</button>`)}</div>
      ${columns.envs.length > 1 ? html`<select aria-label="Environment" onChange=${(event) => change({ env: event.target.value })}><option value="">all environments</option>${columns.envs.map((one) => html`<option selected=${one === env}>${one}</option>`)}</select>` : null}
      <select aria-label="Order" onChange=${(event) => change({ sort: event.target.value })}>${Object.entries(SORTS).map(([name, title]) => html`<option value=${name} selected=${name === sort}>by ${title}</option>`)}</select>
      <div class="choice" role="group" aria-label="How they are shown">${["", "map"].map((name) => html`<button aria-pressed=${as === name} onClick=${() => change({ as: name })}>${name ? "heat map" : "list"}</button>`)}</div></div>
    ${!shown.length ? html`<p class="empty quiet">No task is like that.</p>` : as === "map" ? html`<${Map} run=${run} tasks=${shown} rows=${rows} figures=${figures} />` : html`
    <div class="grid head tasks-grid"><span>Task</span><span class="c-env">Environment</span><span>Rewards</span><span class="right">Mean</span><span class="right c-pass">pass@1</span><span class="right c-out">Tokens</span></div>
    <${List} count=${shown.length} height=${40} label="Tasks" row=${(k) => {
      const [name, task, , mean, , passed, tokens] = shown[k];
      return html`<div class="grid row tasks-grid"><a class="name" href=${format(["run", run.id, "tasks"], { task, of: name })}>${task}</a><span class="c-env">${name || "–"}</span>
        <${Dots} columns=${columns} rows=${rows.get(taskKey(name, task)) ?? []} most=${24} link=${(i) => format(["run", run.id, "rollouts", columns.id(i)], { q: `task=${task}` })} />
        <span class="right"><${Reward} value=${mean} /></span><span class="right c-pass">${percent(passed)}</span><span class="right c-out">${short(Math.round(tokens))}</span></div>`;
    }} />`}
  </main>`;
}

// Tasks by attempts; a cell leads to its rollout.
function Map({ run, tasks, rows, figures }) {
  const { columns } = run, of = ([env, task]) => rows.get(taskKey(env, task)) ?? [], most = tasks.reduce((some, task) => Math.max(some, of(task).length), 1);
  const bars = figures.spreads.reward.bars, low = Math.min(0, ...bars.map(([from]) => from)), high = Math.max(1, ...bars.map(([, to]) => to));
  return html`<${Heat} count=${tasks.length} low=${low} high=${high} first="Task" label="Tasks by rollouts" heads=${Array.from({ length: Math.min(most, MOST_CELLS) }, (_, at) => String(at + 1))} line=${(k) => {
    const [env, task] = tasks[k];
    return { name: task, note: columns.envs.length > 1 ? env : "", href: format(["run", run.id, "tasks"], { task, of: env }), cells: of(tasks[k]).slice(0, MOST_CELLS).map((i) => {
      const value = columns.reward[i];
      return { value, title: `task ${task}, rollout ${columns.rollout[i]}: ${Number.isNaN(value) ? "no verdict" : `reward ${reward(value)}`}`, href: format(["run", run.id, "rollouts", columns.id(i)], { q: `task=${task}` }) };
    }) };
  }} />
    ${most > MOST_CELLS ? html`<p class="quiet">The first ${MOST_CELLS} of ${count(most)} rollouts of a task are shown.</p>` : null}`;
}

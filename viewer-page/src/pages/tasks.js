// Tasks: a line each with its rewards as dots; those whose rewards differ first, since they carry the signal.
import { html } from "../html.js";
import { change, format, route } from "../route.js";
import { figuresOf, isShare, kindOf } from "../figures.js";
import { allRows } from "../rows.js";
import { List } from "../list.js";
import { count, percent, plural, short } from "../format.js";
import { Dots, Reward } from "../rewards.js";

const KINDS = { "": "all", mixed: "rewards differ", zero: "all 0", equal: "all the same", none: "no verdict" };
const SORTS = { "": "spread", mean: "mean reward", task: "task", tokens: "tokens" };

const spread = (group) => {
  if (group.rewards.length < 2) return 0;
  let total = 0;
  for (const one of group.rewards) total += (one - group.mean) ** 2;
  return total / (group.rewards.length - 1);
};

export function Tasks({ run }) {
  const { columns } = run, { kind = "", sort = "", env = "" } = route.value.params;
  const { groups } = run.cached("figures", () => figuresOf(columns, allRows(run)));
  const shown = run.cached(`tasks ${kind} ${sort} ${env}`, () => {
    const of = (group) => (group.rewards.length ? kindOf(group.rewards) : "none");
    const tokens = (group) => group.rows.reduce((sum, i) => sum + columns.output[i], 0) / group.rows.length;
    const key = { "": (group) => -spread(group), mean: (group) => group.mean ?? Infinity, task: (group) => group.task, tokens: (group) => -tokens(group) }[sort] ?? (() => 0);
    return groups.filter((group) => (!kind || of(group) === kind) && (!env || group.env === env)).map((group) => ({ group, key: key(group), tokens: tokens(group) })).sort((a, b) => a.key - b.key || a.group.task - b.group.task);
  });
  const counts = run.cached("kinds", () => groups.reduce((sum, { rewards }) => ({ ...sum, [rewards.length ? kindOf(rewards) : "none"]: (sum[rewards.length ? kindOf(rewards) : "none"] ?? 0) + 1 }), {}));
  return html`<main class="tasks">
    <div class="headline"><h1>${plural(shown.length, "task")}</h1>
      <div class="choice" role="group" aria-label="Which tasks">${Object.entries(KINDS).filter(([name]) => !name || counts[name]).map(([name, title]) => html`<button aria-pressed=${kind === name} onClick=${() => change({ kind: name })}>${title}${name ? html` <small>${count(counts[name])}</small>` : null}</button>`)}</div>
      ${columns.envs.length > 1 ? html`<select aria-label="Environment" onChange=${(event) => change({ env: event.target.value })}><option value="">all environments</option>${columns.envs.map((one) => html`<option selected=${one === env}>${one}</option>`)}</select>` : null}
      <select aria-label="Order" onChange=${(event) => change({ sort: event.target.value })}>${Object.entries(SORTS).map(([name, title]) => html`<option value=${name} selected=${name === sort}>by ${title}</option>`)}</select></div>
    <div class="grid head tasks-grid"><span>Task</span><span class="c-env">Environment</span><span>Rewards</span><span class="right">Mean</span><span class="right c-pass">pass@1</span><span class="right c-out">Tokens</span></div>
    ${shown.length ? html`<${List} count=${shown.length} height=${40} label="Tasks" row=${(k) => {
      const { group, tokens } = shown[k], passed = group.rewards.filter((one) => one >= 1).length;
      return html`<div class="grid row tasks-grid"><a class="name" href=${format(["run", run.id, "rollouts"], { q: `task=${group.task}${columns.envs.length > 1 && /^[\w.-]+$/.test(group.env) ? ` env=${group.env}` : ""}` })}>${group.task}</a><span class="c-env">${group.env || "–"}</span>
        <${Dots} columns=${columns} rows=${group.rows} most=${24} link=${(i) => format(["run", run.id, "rollouts", columns.id(i)], { q: `task=${group.task}` })} />
        <span class="right"><${Reward} value=${group.mean} /></span><span class="right c-pass">${group.rewards.length && isShare(group.rewards) ? percent(passed / group.rewards.length) : "–"}</span><span class="right c-out">${short(Math.round(tokens))}</span></div>`;
    }} />` : html`<p class="empty quiet">No task is like that.</p>`}
  </main>`;
}

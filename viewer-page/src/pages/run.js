// One run: its figures, and eight charts that each answer a question. Every bar leads to its rollouts.
import { html } from "../html.js";
import { Bars, Columns, Line } from "../charts.js";
import { course, figuresOf, histogram, quantiles } from "../figures.js";
import { mean } from "../statistics.js";
import { allRows } from "../rows.js";
import { bytes, count, passed, passedTasks, plural, reward, short, span, when } from "../format.js";
import { format } from "../route.js";
import { Reward } from "../rewards.js";

export function RunPage({ run }) {
  const rows = allRows(run), { columns } = run, about = run.about ?? {};
  const figures = run.cached("figures", () => figuresOf(columns, rows));
  const to = (q, more = {}) => format(["run", run.id, "rollouts"], { q, ...more });
  const settings = about.manifest?.settings ?? {}, expected = about.manifest?.rollouts;
  const { groups, signal } = figures;
  const tiles = [
    ["Mean reward", html`<${Reward} value=${figures.mean} big />`, `${figures.meanError === null ? "" : `± ${reward(Number(figures.meanError.toPrecision(2)))} · `}${plural(figures.rated, "verdict")}`],
    ["pass@1", passed(figures.pass[0]), figures.pass.length ? passedTasks(figures.pass[0]) : "for rewards from 0 to 1"],
    ...(figures.pass.length > 1 ? [[`pass@${figures.pass.at(-1).k}`, passed(figures.pass.at(-1)), passedTasks(figures.pass.at(-1))]] : []),
    ["Rollouts", count(figures.rollouts), expected && expected !== figures.rollouts ? `of ${count(expected)}` : plural(groups.length, "task")],
    ["Failed", figures.failed ? html`<a class="bad" href=${format(["run", run.id, "failures"])}>${count(figures.failed)}</a>` : "0", figures.outcomes.truncated ? `${count(figures.outcomes.truncated)} truncated` : "none truncated"],
    ["Tokens out", short(figures.output), `${short(figures.input)} in`],
    ["Turns", short(figures.turns), plural(figures.tools, "tool call")],
    ["Time a rollout", span(figures.duration), "mean"],
  ];
  return html`<main class="run"><h1 class="unseen">${run.id}</h1>
    <section class="tiles" aria-label="Figures">${tiles.map(([name, value, note]) => html`<div class="tile"><h2>${name}</h2><strong>${value}</strong><small>${note}</small></div>`)}</section>
    <div class="charts">
      <${Course} run=${run} rows=${rows} to=${to} />
      <${Spread} run=${run} name="reward" title="How are the rewards spread?" rows=${rows} to=${to} format=${reward} tone=${(bar) => (bar.high <= 0 ? "zero" : bar.low >= 1 ? "one" : "part")} />
      <${Tries} run=${run} pass=${figures.pass} />
      <section class="chart"><h2>Which tasks carry signal?</h2><p class="quiet">Only tasks whose rewards differ move a group-relative gradient.</p>
        <${Bars} total=${signal.zero + signal.equal + signal.mixed} rows=${[
          { label: "rewards differ", count: signal.mixed, tone: "part", href: format(["run", run.id, "tasks"], { kind: "mixed" }) },
          { label: "all 0", count: signal.zero, tone: "zero", href: format(["run", run.id, "tasks"], { kind: "zero" }) },
          { label: "all equal, not 0", count: signal.equal, tone: "one", href: format(["run", run.id, "tasks"], { kind: "equal" }) }]} /></section>
      <${Endings} run=${run} figures=${figures} to=${to} />
      <${Environments} run=${run} figures=${figures} to=${to} />
      <${Spread} run=${run} name="output" field="out" title="How long are the answers?" unit="output tokens" rows=${rows} to=${to} format=${short} />
      <${Spread} run=${run} name=${figures.duration ? "duration" : "turns"} field=${figures.duration ? "time" : "turns"} title=${figures.duration ? "How long does a rollout take?" : "How many turns?"} rows=${rows} to=${to} format=${figures.duration ? (value) => (value === 0 ? "0 s" : span(value)) : short} />
    </div>
    <details class="made"><summary>How it was made</summary><dl>
      ${[["File", about.path], ["Size", Object.values(about.parts ?? {}).map((part) => bytes(part.bytes)).join(" + ")], ["Run", about.manifest?.run], ["Started", when(about.manifest?.started_s)], ["Written", when(about.modified_s)], ["Version", about.manifest?.version],
        ...Object.entries(settings).filter(([, value]) => value !== null && JSON.stringify(value) !== "{}" && value !== false).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])]
        .filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
    </dl></details>
  </main>`;
}

function Course({ run, rows, to }) {
  const points = run.cached("course", () => course(run.columns, rows, "reward", Math.min(40, Math.ceil(rows.length / 5))));
  const values = points.map((point) => point.value).filter((value) => value !== null);
  const low = Math.min(0, ...values), high = Math.max(1, ...values);
  return html`<section class="chart"><h2>Is the reward steady?</h2><p class="quiet">Mean reward, in the order of completion.</p>
    <${Line} low=${low} high=${high} format=${reward} labels=${["first", "last"]} points=${points.map((point) => ({
      value: point.value, href: to(`row>=${point.first} row<=${point.last}`),
      title: `rollouts ${count(point.first)} to ${count(point.last)}: mean ${reward(point.value)}` }))} /></section>`;
}

function Spread({ run, name, field = name, title, unit, rows, to, format: shown, tone }) {
  const [bars, half, most] = run.cached(`spread ${name}`, () => {
    const values = Float64Array.from(rows, (i) => run.columns[name][i]).filter((value) => value === value);
    return [histogram(values), ...quantiles(values, 0.5, 0.99)];
  });
  if (!bars.length) return html`<section class="chart"><h2>${title}</h2><p class="quiet">Nothing to show: no rollout has one.</p></section>`;
  return html`<section class="chart"><h2>${title}</h2><p class="quiet">Half are at most ${shown(half)}, 99 % at most ${shown(most)}${unit ? ` ${unit}` : ""}.</p>
    <${Columns} labels=${bars.length <= 8 ? bars.map((bar) => shown(bar.low)) : [shown(bars[0].low), shown(bars.at(-1).high)]} bars=${bars.map((bar) => ({
      count: bar.count, tone: tone?.(bar), href: to(bar.exact ? `${field}=${bar.low}` : `${field}>=${bar.low} ${field}<${bar.high}`),
      title: `${bar.exact ? shown(bar.low) : `${shown(bar.low)} to ${shown(bar.high)}`}: ${plural(bar.count, "rollout")}` }))} /></section>`;
}

function Tries({ run, pass }) {
  return html`<section class="chart"><h2>Do more tries help?</h2><p class="quiet">pass@k: one of k rollouts of a task is right.</p>
    ${!pass.length ? html`<p class="quiet">Only where all rewards are from 0 to 1.</p>`
    : pass.length < 2 ? html`<p class="quiet">Each task has one rollout. <code>--repeats 8</code> would tell.</p>`
    : html`<${Line} low=${0} high=${1} format=${(value) => `${100 * value} %`} labels=${pass.map(({ k }) => `k=${k}`)} points=${pass.map((pass) => ({
      value: pass.value, href: format(["run", run.id, "tasks"], { sort: "mean" }), title: `pass@${pass.k} ${passed(pass)} ${passedTasks(pass)}` }))} />`}</section>`;
}

function Endings({ run, figures, to }) {
  const { columns } = run;
  const rows = run.cached("endings", () => {
    const counts = new Map();
    for (const i of allRows(run)) {
      const outcome = columns.outcome[i], fault = columns.faultOf(i);
      const [label, q] = outcome === 0 ? ["completed", "outcome=completed"] : outcome === 1 ? [`truncated: ${fault.message || "a limit"}`, `outcome=truncated fault="${fault.message}"`]
        : outcome === 2 ? [`${fault.kind || "failed"}${fault.stage ? ` in ${fault.stage}` : ""}`, `outcome=failed fault=${fault.kind || '""'}`] : outcome === 3 ? ["cancelled", "outcome=cancelled"] : ["no JSON", "outcome=unreadable"];
      const row = counts.get(label) ?? { label, count: 0, href: to(q), tone: ["one", "part", "zero", "none", "zero"][outcome] };
      row.count++;
      counts.set(label, row);
    }
    return [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 7);
  });
  return html`<section class="chart"><h2>How do rollouts end?</h2><p class="quiet">A failure is never a reward.</p><${Bars} rows=${rows} total=${figures.rollouts} /></section>`;
}

function Environments({ run, figures, to }) {
  const rows = run.cached("environments", () => {
    const found = new Map();
    for (const group of figures.groups) {
      const one = found.get(group.env) ?? { env: group.env, rewards: [], rollouts: 0 };
      one.rollouts += group.rows.length;
      one.rewards.push(...group.rewards);
      found.set(group.env, one);
    }
    return [...found.values()].map((one) => ({ ...one, mean: mean(one.rewards) })).sort((a, b) => b.rollouts - a.rollouts).slice(0, 8);
  });
  return html`<section class="chart"><h2>Which environments are hard?</h2><p class="quiet">Mean reward; rollouts in small figures.</p>
    <${Bars} rows=${rows.map((one) => ({ label: one.env || "(unnamed)", count: Math.max(0, one.mean ?? 0), href: to(`env=${/^[\w.-]+$/.test(one.env) ? one.env : JSON.stringify(one.env)}`), tone: "part",
      note: html`${reward(one.mean)}<small> ${short(one.rollouts)}</small>` }))} /></section>`;
}

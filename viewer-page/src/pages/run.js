// One run: its figures, and eight charts that each answer a question. Every bar leads to its rollouts. All numbers are
// those of gym_view/page_figures.py.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { Bars, Columns, Line, Partly } from "../charts.js";
import { brief, bytes, count, failed, passed, passedTasks, percent, plural, reward, rewardError, short, span, when } from "../format.js";
import { format } from "../route.js";
import { Reward } from "../rewards.js";

export function RunPage({ run }) {
  useEffect(() => {
    run.begin();
  }, [run]);
  const figures = run.figures.value ?? run.first.value, about = run.about ?? {};
  if (!figures) return html`<main class="note"><p class="quiet" role="status">Adding up the figures …</p></main>`;
  const all = figures.run, ks = Object.keys(all.pass_at), most = ks.at(-1);
  const to = (q, more = {}) => format(["run", run.id, "rollouts"], { q, ...more });
  const settings = about.manifest?.settings ?? {}, expected = about.manifest?.rollouts, known = run.columns.rows - run.columns.superseded;
  const tiles = [
    ["Mean reward", html`<${Reward} value=${all.mean_reward} big />`, `${all.mean_error === null ? "" : `± ${reward(Number(all.mean_error.toPrecision(2)))} · `}${plural(figures.rated, "verdict")}`],
    ["pass@1", percent(all.pass_at[1]), ks.length ? tried(all, 1) : "for rewards from 0 to 1"],
    // Of the same tasks, so that more tries are never worse because other tasks are finished.
    ...(ks.length > 1 ? [figures.tries.tasks === all.pass_tasks[1] ? [`pass@${most}`, percent(all.pass_at[most]), tried(all, most)] : [`pass@1 → pass@${most}`, `${percent(figures.tries.pass_at[1])} → ${percent(all.pass_at[most])}`, tried(all, most)]] : []),
    ["Rollouts", count(all.rollouts), expected && expected !== all.rollouts ? `of ${count(expected)}` : known > all.rollouts ? `of ${count(known)} so far` : plural(all.tasks, "task")],
    ["Failed", failed(all) ? html`<a class="bad" href=${format(["run", run.id, "failures"])}>${count(failed(all))}</a>` : "0", all.outcomes.truncated ? `${count(all.outcomes.truncated)} truncated` : "none truncated"],
    ["Tokens out", short(all.output_tokens), `${short(all.input_tokens)} in`],
    ...(all.useful === null ? [] : [["Useful tokens", percent(all.useful), "in rollouts that differ from their group's mean"]]),
    ["Turns", short(all.turns), plural(all.tool_calls, "tool call")],
    ["Time a rollout", brief(all.mean_duration_s), "mean"],
  ];
  return html`<main class="run"><h1 class="unseen">${run.id}</h1>
    ${(about.alarms ?? []).map(({ text, rollouts }) => html`<p class="banner bad" role="alert">${text} ${rollouts.map((key) => html`<a href=${format(["run", run.id, "rollouts", key])}>${key}</a> `)}</p>`)}
    ${about.audit ? html`<${Audit} audit=${about.audit} />` : null}
    <${Partly} runs=${[run]} />
    <section class="tiles" aria-label="Figures">${tiles.map(([name, value, note]) => html`<div class="tile"><h2>${name}</h2><strong>${value}</strong><small>${note}</small></div>`)}</section>
    <div class="charts">
      <${Course} points=${figures.course} to=${to} />
      <${Spread} name="reward" title="How are the rewards spread?" figures=${figures} to=${to} format=${reward} tone=${(high, low) => (high <= 0 ? "zero" : low >= 1 ? "one" : "part")} />
      <${Tries} run=${run} ks=${ks} tries=${figures.tries} all=${all} partial=${figures.spreads.reward.bars.some(([low, high]) => high > 0 && low < 1 && !(low === high && low === 0))} />
      <section class="chart"><h2>Which tasks carry signal?</h2><p class="quiet">Only tasks whose rewards differ move a group-relative gradient.</p>
        <${Bars} total=${all.all_zero + all.all_equal + all.mixed} rows=${[
          { label: "rewards differ", count: all.mixed, tone: "part", href: format(["run", run.id, "tasks"], { kind: "mixed" }) },
          { label: "all 0", count: all.all_zero, tone: "zero", href: format(["run", run.id, "tasks"], { kind: "zero" }) },
          { label: "all equal, not 0", count: all.all_equal, tone: "one", href: format(["run", run.id, "tasks"], { kind: "equal" }) }]} /></section>
      <${Endings} figures=${figures} to=${to} />
      <${Environments} figures=${figures} to=${to} />
      <${Spread} name="out" title="How long are the answers?" unit="output tokens" figures=${figures} to=${to} format=${short} />
      <${Spread} name=${all.mean_duration_s ? "time" : "turns"} title=${all.mean_duration_s ? "How long does a rollout take?" : "How many turns?"} figures=${figures} to=${to} format=${all.mean_duration_s ? (value) => (value === 0 ? "0 s" : span(value)) : short} />
    </div>
    <${Fields} run=${run} to=${to} />
    <details class="made"><summary>How it was made</summary><dl>
      ${[["File", about.path], ["Size", Object.values(about.parts ?? {}).map((part) => bytes(part.bytes)).join(" + ")], ["Run", about.manifest?.run], ["Started", when(about.manifest?.started_s)], ["Written", when(about.modified_s)], ["Version", about.manifest?.version],
        ...Object.entries(settings).filter(([, value]) => value !== null && JSON.stringify(value) !== "{}" && value !== false).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])]
        .filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
    </dl></details>
  </main>`;
}

// The replies are those of an audit: what it found. All cells are texts that gym_view/audit_table.py has made.
const Audit = ({ audit: { title, columns, rows, notes } }) => html`<section class="audit"><h2>${title}</h2>
  <div class="scroll" tabindex="0" role="region" aria-label=${title}><table><thead><tr>${columns.map((name, i) => html`<th class=${i ? "right" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell, i) => html`<td class=${i ? "right" : ""}>${cell}</td>`)}</tr>`)}</tbody></table></div>
  ${notes.map((note) => html`<p class="quiet">${note}</p>`)}</section>`;

const AUTOMATIC_BYTES = 64e6; // the fields of larger runs are read when they are asked for

// What the reward is made of, and what else the rows say.
function Fields({ run, to }) {
  const [found, set] = useState(null), [error, fail] = useState(""), size = Object.values(run.about?.parts ?? {}).reduce((sum, part) => sum + part.bytes, 0);
  const [wanted, want] = useState(size <= AUTOMATIC_BYTES ? 1 : 0), since = found && (run.figures.value?.run.rollouts ?? 0) - found.rollouts;
  useEffect(() => {
    if (wanted) run.fields(wanted > 1).then(set, ({ message }) => fail(message));
  }, [run, wanted]);
  if (error) return html`<p class="banner bad" role="alert">${error}</p>`;
  // They are read once: the page says of how many rows that are new they do not tell.
  const ask = html`<p class="made"><button onClick=${() => want(wanted + 1)}>Read the fields of all rows</button> <span class="quiet">${found ? `${plural(since, "rollout")} came since` : bytes(size)}</span></p>`;
  if (!wanted) return ask;
  const { fields = [], versions = [] } = found ?? {};
  if (!fields.length && versions.length < 2) return null;
  const short = ({ name }) => name.slice(name.indexOf(".") + 1), parts = fields.filter(({ name }) => name.startsWith("components.")), others = fields.filter((one) => !parts.includes(one) && (one.mean !== null || Object.keys(one.texts).length));
  const quote = (text) => (/^[^\s",*]+$/.test(text) ? text : JSON.stringify(text));
  const rated = versions.map(({ mean }) => mean).filter((mean) => mean !== null);
  return html`${since > 0 ? ask : null}<div class="charts further">
    ${versions.length > 1 ? html`<section class="chart steps"><h2>Does training help?</h2><p class="quiet">Mean reward by the version of the weights that sampled last, with standard errors.</p>
      <${Line} low=${Math.min(0, ...rated)} high=${Math.max(1, ...rated)} format=${reward} labels=${[versions[0].version, versions.at(-1).version]} points=${versions.map(({ version, mean, error, rollouts }) => ({
        value: mean, error, href: to(""), title: `weights ${version}, ${plural(rollouts, "rollout")}: mean ${rewardError(mean, error)}` }))} /></section>` : null}
    ${parts.length ? html`<section class="chart parts"><h2>What is the reward made of?</h2><p class="quiet">The mean of each part, with its standard error.</p>
      <${Bars} rows=${parts.map((one) => ({ label: short(one), count: Math.max(0, one.mean ?? 0), tone: "part", href: to("", { sort: one.name }), note: rewardError(one.mean, one.error) }))} /></section>` : null}
    ${others.length ? html`<section class="chart others"><h2>What else do the rows say?</h2><p class="quiet">Fields with numbers or few different texts.</p>
      <dl>${others.map((one) => html`<dt><a href=${to("", { col: one.name })}>${short(one)}</a></dt><dd>${one.mean !== null ? html`mean ${rewardError(one.mean, one.error)}` : Object.entries(one.texts).slice(0, 8).map(([text, n]) => html`<a href=${to(`${one.name}=${quote(text)}`)}>${text.slice(0, 40) || "(empty)"}</a> <small class="quiet">${count(n)}</small> `)}</dd>`)}</dl></section>` : null}</div>`;
}

function Course({ points, to }) {
  const values = points.map(([, , value]) => value).filter((value) => value !== null);
  const low = Math.min(0, ...values), high = Math.max(1, ...values);
  return html`<section class="chart"><h2>Is the reward steady?</h2><p class="quiet">Mean reward, in the order of completion, with standard errors.</p>
    <${Line} low=${low} high=${high} format=${reward} labels=${["first", "last"]} points=${points.map(([first, last, value, error]) => ({
      value, error, href: to(`row>=${first} row<=${last}`), title: `rollouts ${count(first)} to ${count(last)}: mean ${rewardError(value, error)}` }))} /></section>`;
}

function Spread({ name, title, unit, figures, to, format: shown, tone }) {
  const { bars, half, most } = figures.spreads[name];
  if (!bars.length) return html`<section class="chart"><h2>${title}</h2><p class="quiet">Nothing to show: no rollout has one.</p></section>`;
  return html`<section class="chart"><h2>${title}</h2><p class="quiet">Half are at most ${shown(half)}, 99 % at most ${shown(most)}${unit ? ` ${unit}` : ""}.</p>
    <${Columns} labels=${bars.length <= 8 ? bars.map(([low]) => shown(low)) : [shown(bars[0][0]), shown(bars.at(-1)[1])]} bars=${bars.map(([low, high, n, exact]) => ({
      count: n, tone: tone?.(high, low), href: to(exact ? `${name}=${low}` : `${name}>=${low} ${name}<${high}`),
      title: `${exact ? shown(low) : `${shown(low)} to ${shown(high)}`}: ${plural(n, "rollout")}` }))} /></section>`;
}

const tried = (all, k) => `${all.pass_error[k] === null ? "" : `± ${percent(all.pass_error[k])} · `}${passedTasks(all, k)}`;

// All over the same tasks, so that the curve never falls because other tasks are finished.
function Tries({ run, ks, tries, all, partial }) {
  return html`<section class="chart"><h2>Do more tries help?</h2><p class="quiet">pass@k: one of k rollouts of a task is right${partial ? "; of a task with rewards between 0 and 1 it is the best of the first k" : ""}. ${ks.length > 1 ? `Of the ${plural(tries.tasks, "task")} with ${ks.at(-1)} rewards${tries.tasks === all.tasks ? "" : `, of ${count(all.tasks)}`}; with standard errors.` : ""}</p>
    ${!ks.length ? html`<p class="quiet">Only where all rewards are from 0 to 1.</p>`
    : ks.length < 2 ? html`<p class="quiet">Each task has one rollout. <code>--repeats 8</code> would tell.</p>`
    : html`<${Line} low=${0} high=${1} format=${(value) => `${100 * value} %`} labels=${ks.map((k) => `k=${k}`)} points=${ks.map((k) => ({
      value: tries.pass_at[k], error: tries.pass_error[k], href: format(["run", run.id, "tasks"], { sort: "mean" }), title: `pass@${k} ${passed(tries, k)}` }))} />`}</section>`;
}

function Endings({ figures, to }) {
  const counts = new Map();
  for (const { outcome, fault, count } of figures.endings) {
    const [kind, stage = "", message = ""] = fault.split("\x1f");
    const [label, q, tone] = {
      completed: ["completed", "outcome=completed", "one"],
      truncated: [`truncated: ${message || "a limit"}`, `outcome=truncated fault="${message}"`, "part"],
      failed: [`${kind || "failed"}${stage ? ` in ${stage}` : ""}`, `outcome=failed fault=${kind || '""'}${stage ? ` fault=${stage}` : ""}`, "zero"],
      cancelled: ["cancelled", "outcome=cancelled", "none"], unreadable: ["no JSON", "outcome=unreadable", "zero"],
    }[outcome];
    counts.set(label, { label, href: to(q), tone, count: count + (counts.get(label)?.count ?? 0) });
  }
  const rows = [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 7);
  return html`<section class="chart"><h2>How do rollouts end?</h2><p class="quiet">A failure is never a reward.</p><${Bars} rows=${rows} total=${figures.run.rollouts} /></section>`;
}

function Environments({ figures, to }) {
  return html`<section class="chart"><h2>Which environments are hard?</h2><p class="quiet">Mean reward with its standard error; rollouts in small figures.</p>
    <${Bars} rows=${figures.environments.slice(0, 8).map(({ environment: name, rollouts, mean, error }) => ({ label: name || "(unnamed)", count: Math.max(0, mean ?? 0), href: to(`env=${/^[\w.-]+$/.test(name) ? name : JSON.stringify(name)}`), tone: "part",
      note: html`${reward(mean)}<small>${error === null ? "" : ` ± ${Number(error.toPrecision(2))}`}<br />${short(rollouts)}${figures.run.useful_by_environment[name] === undefined ? "" : ` · ${percent(figures.run.useful_by_environment[name])} useful`}</small>` }))} /></section>`;
}

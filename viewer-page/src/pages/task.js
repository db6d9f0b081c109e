// A task: its rollouts' answers side by side, with the advantage that each has in its group; two that are chosen are
// compared word by word.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { change, format, href, route } from "../route.js";
import { OUTCOMES } from "../columns.js";
import { rowsByTask, taskKey } from "../rows.js";
import { conversation } from "../row.js";
import { difference } from "../difference.js";
import { count, plural, reward, short } from "../format.js";
import { Reward } from "../rewards.js";
import { Part } from "../conversation.js";
import { useRow } from "./rollout.js";

const MOST = 24;

// What the model said last, in words: its answer, as far as there is one.
function answerOf({ row, card }) {
  const said = conversation(row, card).filter((item) => item.turn && item.role === "assistant" && item.kind !== "reasoning");
  return (said.findLast((item) => item.kind === "message") ?? said.at(-1))?.parts.filter(({ kind }) => kind !== "thought") ?? [];
}

const textOf = (parts) => parts.map(({ text }) => text).join("\n");

export function Task({ run, task, env }) {
  const { columns } = run, rows = rowsByTask(run).get(taskKey(env, task)) ?? [], { pair = "" } = route.value.params;
  const about = run.figures.value?.tasks.find((one) => one[1] === task && one[0] === env), [all, setAll] = useState(false);
  const chosen = pair.split("~").filter((id) => rows.some((i) => columns.id(i) === id)), two = chosen.slice(-2).map((id) => rows.find((i) => columns.id(i) === id));
  const tick = (id) => change({ pair: (chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen.slice(-1), id]).join("~") });
  if (!rows.length) return html`<main class="note"><h1>There is no task ${task} of ${env || "this run"}</h1></main>`;
  return html`<main class="task"><div class="headline"><h1><bdi>${env || "rollouts"}</bdi> <span class="quiet">task</span> ${task}</h1>
      <span class="quiet">${plural(rows.length, "rollout")}${about?.[3] === null || !about ? "" : html`, mean ${reward(about[3])}, deviation ${reward(about[4])}`}</span>
      <a href=${format(["run", run.id, "tasks"])}>all tasks</a> <a href=${format(["run", run.id, "rollouts"], { q: `task=${task}` })}>as a list</a></div>
    <p class="quiet">The advantage is the reward less the group's mean, in deviations of the group. Tick two rollouts to see how their answers differ.</p>
    ${two.length === 2 ? html`<${Different} key=${pair} run=${run} a=${two[0]} b=${two[1]} />` : null}
    <section class="answers" aria-label="Answers">${rows.slice(0, all ? undefined : MOST).map((i) => html`<${Answer} key=${columns.id(i)} run=${run} i=${i} about=${about} ticked=${chosen.includes(columns.id(i))} tick=${() => tick(columns.id(i))} />`)}</section>
    ${!all && rows.length > MOST ? html`<button onClick=${() => setAll(true)}>Show all ${count(rows.length)} rollouts</button>` : null}</main>`;
}

// In the group of a task, as gym_view/page_figures.py has it; 0 where all rewards are the same.
export const advantage = (value, mean, deviation) => (Number.isNaN(value) || mean === null ? null : deviation ? (value - mean) / deviation : 0);

function Answer({ run, i, about, ticked, tick }) {
  const { columns } = run, got = useRow(run, i), id = columns.id(i), gain = about ? advantage(columns.reward[i], about[3], about[4]) : null;
  const parts = got.row ? answerOf(got) : [], found = got.card ? Object.entries(got.card.found) : [];
  return html`<article class="answer">
    <header><label><input type="checkbox" checked=${ticked} onChange=${tick} aria-label=${`Compare rollout ${columns.rollout[i]}`} /> <a href=${format(["run", run.id, "rollouts", id])}>rollout ${columns.rollout[i]}</a></label>
      <${Reward} value=${columns.reward[i]} />${gain === null ? null : html`<span class=${`advantage ${gain > 0 ? "good" : gain < 0 ? "bad" : "quiet"}`} title="advantage">${gain > 0 ? "+" : gain < 0 ? "−" : "±"}${Math.abs(gain).toFixed(2)}</span>`}</header>
    <div class="what">${got.error ? html`<p class="quiet">${got.error}</p>` : got.asks && !got.row ? html`<button onClick=${got.load}>Load this large row</button>` : !got.row ? html`<p class="quiet">Reading …</p>` : parts.length ? parts.map((part) => html`<${Part} part=${part} folded=${1200} />`) : html`<p class="quiet">no answer</p>`}</div>
    <footer class="quiet">${found.map(([name, value]) => html`<span>${name}: <strong>${value === null ? "nothing" : value.slice(0, 80)}</strong></span>`)}<span>${OUTCOMES[columns.outcome[i]]}</span><span>${short(columns.output[i])} tokens</span></footer></article>`;
}

function Different({ run, a, b }) {
  const left = useRow(run, a), right = useRow(run, b), [pieces, set] = useState(null), { columns } = run;
  useEffect(() => {
    if (left.row && right.row) set(difference(textOf(answerOf(left)), textOf(answerOf(right))));
  }, [left.row, right.row]);
  if (!pieces) return html`<p class="quiet" role="status">Comparing …</p>`;
  const same = pieces.every(({ kind }) => kind === "same");
  return html`<section class="different" aria-label="Difference"><h2><del>only rollout ${columns.rollout[a]}</del> <ins>only rollout ${columns.rollout[b]}</ins> <a href=${href({ pair: "" })}>close</a></h2>
    ${same ? html`<p>Both answers are the same.</p>` : html`<div class="text" tabindex="0">${pieces.map(({ kind, text }) => (kind === "same" ? text : kind === "only a" ? html`<del>${text}</del>` : html`<ins>${text}</ins>`))}</div>`}</section>`;
}

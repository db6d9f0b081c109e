// The running system, each second: workers, queues, runs, and which hop is the limit.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { count, percent, plural, reward, span } from "../format.js";

export function System() {
  const [state, set] = useState(null), [problem, setProblem] = useState("");
  useEffect(() => {
    document.title = "System · gym-runtime";
    let alive = true;
    const ask = async () => {
      try {
        const answer = await fetch("data/system.json");
        if (!answer.ok) throw new Error((await answer.text()).trim());
        const found = await answer.json();
        if (alive) { set(found); setProblem(""); }
      } catch (error) {
        if (alive) setProblem(error.message);
      }
    };
    ask();
    const timer = setInterval(() => document.hidden || ask(), 1000);
    return () => { alive = false; clearInterval(timer); };
  }, []);
  if (!state) return html`<main class="note"><h1>System</h1><p class="quiet">${problem || "Asking the system …"}</p></main>`;
  const now = Date.now() / 1000, active = state.runs.filter((run) => run.state === "active"), queues = Object.entries(state.queues);
  const table = (label, heads, rows) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr></thead><tbody>${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
  return html`<main class="system">${problem ? html`<p class="banner bad" role="alert">${problem}</p>` : null}
    <div class="headline"><h1>System</h1><span>${state.limit}</span></div>
    <section class="tiles">${kinds(state.workers).map(({ kind, workers, used, capacity }) => html`<div class="tile"><h2>${kind}</h2><strong>${count(used)}<small> of ${count(capacity)}</small></strong><small>${plural(workers, "worker")}, ${percent(capacity ? used / capacity : 0)} in use</small></div>`)}
      ${queues.map(([name, depth]) => html`<div class="tile"><h2>queue ${name}</h2><strong>${count(depth.waiting)}</strong><small>waiting, ${count(depth.in_flight)} in flight</small></div>`)}</section>
    <h2>${active.length ? plural(active.length, "active run") : "No run is active"}</h2>
    ${active.length ? table("Active runs", ["Run", "Done", "Failed", "Rollouts", "Rate", "Left", "Reward", "Model", "Environments", "Since"], active.map((run) => [run.run, known(run.done, count), known(run.failed, count), count(run.total), known(run.rate_per_s, (rate) => `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))}/s`), known(run.left_s, span), reward(run.mean_reward), run.model, run.environments.join(", "), span(now - run.created_s)])) : null}
    ${(state.curricula ?? []).map((one) => html`<${Curriculum} key=${one.name} one=${one} table=${table} />`)}
    <h2>${plural(state.workers.length, "worker")}</h2>
    ${state.workers.length ? table("Workers", ["Kind", "Serves", "Worker", "Host", "In use", "Load", "Up"], [...state.workers].sort((a, b) => (a.kind + a.worker < b.kind + b.worker ? -1 : 1)).map((one) => [one.kind, [...one.pools, ...Object.values(one.detail)].slice(0, 6).join(", "), one.worker, `${one.host} ${one.pid}`, `${count(one.in_use)} of ${count(one.capacity)}`, html`<span class="track"><span class=${one.load > 0.95 ? "zero" : "part"} style=${{ width: `${100 * Math.min(1, one.load)}%` }}></span></span>${one.draining ? " draining" : ""}`, span(now - one.started_s)])) : null}
  </main>`;
}

// What the curriculum of a training run believes of its tasks, which are numbers of rows.
function Curriculum({ one, table }) {
  const kinds = [["learned", one.learned], ["learning", one.learning], ["too hard", one.too_hard]];
  return html`<section class="curriculum" aria-label=${`Curriculum ${one.name}`}><h2>Curriculum ${one.name}</h2>
    <p class="quiet">${one.kind}, ${plural(one.tasks, "task")}${kinds.map(([name, { count: many }]) => `, ${count(many)} ${name}`)}, ${count(one.unseen)} not seen lately</p>
    ${table(`Tasks of ${one.name}`, ["", "Tasks, with estimated pass rates"], kinds.filter(([, { count: many }]) => many).map(([name, { count: many, first }]) => [name, `${first.map(([task, rate]) => `${task} (${percent(rate)})`).join(", ")}${many > first.length ? `, and ${count(many - first.length)} more` : ""}`]))}</section>`;
}

const known = (value, shown) => (value === null || value === undefined ? "–" : shown(value));

function kinds(workers) {
  const found = new Map();
  for (const one of workers) {
    const kind = found.get(one.kind) ?? { kind: one.kind, workers: 0, used: 0, capacity: 0 };
    found.set(one.kind, { ...kind, workers: kind.workers + 1, used: kind.used + one.in_use, capacity: kind.capacity + one.capacity });
  }
  return [...found.values()].sort((a, b) => (a.kind < b.kind ? -1 : 1));
}

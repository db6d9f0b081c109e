// All runs below a folder. Those that are ticked can be compared: two task by task, more by their figures.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { loadRuns, openRun, runs } from "../source.js";
import { bytes, count, failed, passed, passedTasks, plural, short, when } from "../format.js";
import { format } from "../route.js";
import { Reward } from "../rewards.js";

// Larger ones are indexed only when they are opened.
const AUTOMATIC_BYTES = 64e6;

export function Runs() {
  const [ticked, tick] = useState([]);
  useEffect(() => {
    document.title = "Runs · gym-runtime";
    const timer = setInterval(() => document.hidden || runs.value.mode !== "server" || loadRuns(), 5000);
    return () => clearInterval(timer);
  }, []);
  const change = (id) => tick((now) => (now.includes(id) ? now.filter((one) => one !== id) : [...now, id]));
  const [a, b] = runs.value.runs.filter((run) => ticked.includes(run.id)).map((run) => run.id).reverse();
  return html`<main>
    <div class="headline"><h1>${runs.value.runs.length ? plural(runs.value.runs.length, "run") : "No runs yet"}</h1>
      ${ticked.length === 2 ? html`<a class="button" href=${format(["compare"], { a, b })}>Compare ${a} with ${b}</a>`
      : ticked.length > 2 ? html`<a class="button" href=${format(["board"], { runs: ticked.map(encodeURIComponent).join(",") })}>Compare ${ticked.length} runs</a>`
      : runs.value.runs.length > 1 ? html`<span class="quiet">Tick two or more to compare them.</span>` : null}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs">
      <thead><tr><th><span class="unseen">Compare</span></th><th>Run</th><th>Model</th><th>Environments</th><th class="right">Rollouts</th><th class="right">Failed</th><th class="right">Reward</th><th class="right">pass@1</th><th class="right">Output tokens</th><th class="right">Written</th></tr></thead>
      <tbody>${runs.value.runs.map((run) => html`<${Line} key=${run.id} about=${run} ticked=${ticked.includes(run.id)} change=${() => change(run.id)} />`)}</tbody>
    </table></div></main>`;
}

function Line({ about, ticked, change }) {
  const run = openRun(about.id), size = Object.values(about.parts).reduce((sum, part) => sum + part.bytes, 0);
  const automatic = size <= AUTOMATIC_BYTES || about.indexed;
  useEffect(() => {
    if (automatic) run.load().then(() => run.follow());
  }, [about.modified_s]);
  run.version.value;
  const figures = run.figures.value?.run;
  const settings = about.manifest?.settings ?? {}, expected = about.manifest?.rollouts;
  const live = Date.now() / 1000 - about.modified_s < 20 && expected > (figures?.rollouts ?? 0);
  const environments = Object.keys(settings.environments ?? {});
  return html`<tr>
    <td><input type="checkbox" checked=${ticked} onChange=${change} aria-label=${`Compare ${about.id}`} /></td>
    <td><a class="name" href=${format(["run", about.id])}>${about.id}</a>${live ? html`<span class="live" title="It is being written.">live</span>` : null}</td>
    <td>${settings.model ?? html`<span class="quiet">–</span>`}</td>
    <td>${(environments.length ? environments : run.columns.envs.filter(Boolean)).slice(0, 3).join(", ")}${environments.length > 3 ? html` <small class="quiet">+${environments.length - 3}</small>` : null}</td>
    <td class="right">${figures ? count(figures.rollouts) : html`<span class="quiet">${bytes(size)}</span>`}${expected && figures && expected !== figures.rollouts ? html`<small class="quiet"> of ${count(expected)}</small>` : null}</td>
    <td class="right">${figures ? (failed(figures) ? html`<a class="bad" href=${format(["run", about.id, "failures"])}>${count(failed(figures))}</a>` : html`<span class="quiet">0</span>`) : ""}</td>
    <td class="right">${figures ? html`<${Reward} value=${figures.mean_reward} />` : ""}</td>
    <td class="right">${figures ? html`${passed(figures)} <small class="quiet">${passedTasks(figures)}</small>` : ""}</td>
    <td class="right">${figures ? short(figures.output_tokens) : ""}</td>
    <td class="right quiet">${when(about.modified_s)}</td>
  </tr>`;
}

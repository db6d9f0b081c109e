// What the engine sampled: a token a box, coloured by its log-probability, one block for each model call.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { count, plural } from "./format.js";
import { callsOf } from "./row.js";

const MOST_TOKENS = 2000;
const MOST_CHARACTERS = 2000;
// The probabilities at which the colour changes: from sure to most unlikely.
const STEPS = [0.9, 0.5, 0.2, 0.05, 0.01, 0];
const step = (logprob) => STEPS.findIndex((least) => Math.exp(logprob) >= least);

export function Tokens({ row, card }) {
  const calls = callsOf(row, card);
  if (!calls.length) return html`<p class="quiet">The row has no tokens. <code>--return-token-ids</code> puts them there.</p>`;
  const segments = new Set(calls.map(({ tokens }) => tokens.segment)).size;
  return html`<div class="tokens">
    <p class="quiet">${plural(calls.length, "model call")}, ${plural(segments, "segment")} to train on. Probability: ${STEPS.map((least, at) => html`<span class=${`token p${at}`}>${at === 0 ? "≥ 0.9" : `≥ ${least}`}</span> `)}</p>
    ${calls.map((call) => html`<${Call} call=${call} />`)}
    ${calls.every(({ tokens }) => tokens.texts) ? null : html`<p class="quiet">The engine gave ids without texts. <code>gym-runtime view --tokenizer FOLDER</code> shows the texts, if the folder has the model's <code>tokenizer.json</code>.</p>`}</div>`;
}

function Call({ call: { turn, tokens, said } }) {
  const [all, setAll] = useState(false), { ids, count: total, logprobs, texts, others } = tokens;
  const mean = logprobs.length ? logprobs.reduce((sum, one) => sum + one, 0) / logprobs.length : null;
  const about = (at) => [ids[at], logprobs[at] === undefined ? "" : `probability ${Math.exp(logprobs[at]).toFixed(3)}, log ${logprobs[at].toFixed(3)}`, others[at]?.length ? `others: ${others[at].join(", ")}` : ""].filter((one) => one !== undefined && one !== "").join(" · ");
  const versions = tokens.versions.map((one) => (typeof one === "string" ? one : (one.version ?? one.weights ?? JSON.stringify(one)))).join(", ");
  return html`<section><h3>Turn ${turn} <small class="quiet">${[`${plural(total, "token")}${tokens.prompt ? ` after ${count(tokens.prompt)}` : ""}`, mean === null ? "" : `mean log-probability ${mean.toFixed(3)}, least ${Math.min(...logprobs.slice(0, 1e5)).toFixed(2)}`, tokens.segment ? `segment ${tokens.segment}` : "", versions ? `weights ${versions}` : ""].filter(Boolean).join(" · ")}</small></h3>
    ${texts ? null : html`<p class="whole quiet" tabindex="0">${said.join("\n").slice(0, MOST_CHARACTERS)}</p>`}
    <p class=${texts ? "stream texts" : "stream"}>${(texts ?? ids).slice(0, all ? undefined : MOST_TOKENS).map((shown, at) => html`<span class=${`token ${logprobs[at] === undefined ? "" : `p${step(logprobs[at])}`}`} title=${about(at)}>${texts ? shown.replaceAll("\n", "⏎\n") : shown}</span>`)}</p>
    ${!all && total > MOST_TOKENS ? html`<button onClick=${() => setAll(true)}>Show all ${count(total)} tokens</button>` : null}</section>`;
}

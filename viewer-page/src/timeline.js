// Where the time of a rollout went, turn by turn: queue, model, tools, verification.
import { html } from "./html.js";
import { plural, span } from "./format.js";

const KINDS = ["queue", "model", "tool", "role", "verify"];

// -> [{ label, parts: [{ kind, seconds }] }], or null where the row has no times.
export function lanes(row) {
  const timing = row._gym?.timing;
  if (!timing || !Array.isArray(timing.turns)) return null;
  const roles = (of) => Object.entries(of?.roles_s ?? {}).map(([name, seconds]) => ({ kind: "role", name, seconds: Number(seconds) || 0 }));
  const part = (turn) => [...KINDS.map((kind) => ({ kind, name: kind, seconds: Number(turn[`${kind}_s`]) || 0 })), ...roles(turn)].filter(({ seconds }) => seconds > 0);
  const found = timing.turns.map((turn, at) => ({ label: `Turn ${at + 1}`, parts: part(turn ?? {}) }));
  for (const one of roles(timing)) found.unshift({ label: `${one.name} begins`, parts: [one] });
  if (timing.queue_s) found.unshift({ label: "Queue", parts: [{ kind: "queue", name: "queue", seconds: timing.queue_s }] });
  if (timing.verify_s) found.push({ label: "Verify", parts: [{ kind: "verify", name: "verify", seconds: timing.verify_s }] });
  return found;
}

// Roles that the environment asked, within tools and verification: [name, calls, seconds].
function within(row) {
  const timing = row._gym.timing, asked = {};
  for (const turn of [timing, ...timing.turns]) for (const [name, seconds] of Object.entries(turn?.roles_s ?? {})) asked[name] = (asked[name] ?? 0) + seconds;
  return Object.entries(row._gym.roles ?? {}).map(([name, use]) => [name, use?.calls ?? 0, (Number(use?.seconds) || 0) - (asked[name] ?? 0)]).filter(([, , seconds]) => seconds > 0.001);
}

export function Timeline({ row }) {
  const found = lanes(row), whole = row._gym?.duration_s;
  if (!found) return html`<p class="quiet">${whole ? `The attempt took ${span(whole)}. ` : ""}The row does not say how long each turn took.</p>`;
  const total = found.reduce((sum, lane) => sum + lane.parts.reduce((some, part) => some + part.seconds, 0), 0) || 1;
  const sums = KINDS.map((kind) => [kind, found.flatMap((lane) => lane.parts).filter((part) => part.kind === kind).reduce((sum, part) => sum + part.seconds, 0)]).filter(([, seconds]) => seconds);
  let at = 0;
  return html`<div class="timeline"><p>${sums.map(([kind, seconds]) => html`<span class=${`legend ${kind}`}></span>${kind} ${span(seconds)} <small class="quiet">${((100 * seconds) / total).toFixed(0)} %</small> `)}${whole ? html`<span class="quiet">The attempt took ${span(whole)}; the rest is messages and the agent. The model's time includes waiting for it. The queue is before the attempt.</span>` : null}</p>
    ${within(row).map(([name, calls, seconds]) => html`<p class="quiet">The environment asked <strong>${name}</strong> ${plural(calls, "time")}: ${span(seconds)} of its tools and verification${calls > 1 ? ", added up over questions that may have run at once" : ""}.</p>`)}
    <ol>${found.map((lane) => {
      const begins = at, seconds = lane.parts.reduce((sum, part) => sum + part.seconds, 0);
      at += seconds;
      return html`<li><span class="name">${lane.label}</span><span class="track"><span style=${{ width: `${(100 * begins) / total}%` }}></span>${lane.parts.map((part) => html`<span class=${part.kind} title=${`${part.name} ${span(part.seconds)}`} style=${{ width: `${Math.max(0.3, (100 * part.seconds) / total)}%` }}></span>`)}</span><span class="number">${span(seconds)}</span></li>`;
    })}</ol></div>`;
}

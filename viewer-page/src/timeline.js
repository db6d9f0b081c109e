// Where the time of a rollout went, turn by turn: queue, model, tools, roles, verification.
import { html } from "./html.js";
import { plural, span } from "./format.js";

const KINDS = ["queue", "model", "tool", "role", "verify"];

const secondsOf = (of) => Object.entries(of ?? {}).map(([name, value]) => [name, Number(value) || 0]);

// A hop, and within it the roles that the environment asked. Questions that ran at once are added up, so they may be
// longer than the hop: then they are drawn as all of it.
function hop(kind, whole, asked) {
  const seconds = Number(whole) || 0, roles = secondsOf(asked), sum = roles.reduce((some, [, one]) => some + one, 0), share = Math.min(1, seconds / sum || 0);
  return [{ kind, name: kind, seconds: Math.max(0, seconds - sum * share) }, ...roles.map(([name, one]) => ({ kind: "role", name, seconds: one * share, said: one }))];
}

// -> [{ label, parts: [{ kind, name, seconds }] }], or null where the row has no times.
export function lanes(row) {
  const timing = row._gym?.timing;
  if (!timing || !Array.isArray(timing.turns)) return null;
  const roles = (of) => secondsOf(of?.roles_s).map(([name, seconds]) => ({ kind: "role", name, seconds }));
  const lane = (label, ...parts) => ({ label, parts: parts.flat().filter(({ seconds }) => seconds > 0) });
  const found = timing.turns.map((turn, at) => lane(`Turn ${at + 1}`, hop("model", turn?.model_s), hop("tool", turn?.tool_s, turn?.tool_roles_s), roles(turn)));
  for (const one of roles(timing)) found.unshift(lane(`${one.name} begins`, one));
  if (timing.queue_s) found.unshift(lane("Queue", hop("queue", timing.queue_s)));
  if (timing.verify_s) found.push(lane("Verify", hop("verify", timing.verify_s, timing.verify_roles_s)));
  return found;
}

// What roles took that no lane has, as in rows of earlier versions: [name, calls, seconds].
function within(row) {
  const timing = row._gym.timing, shown = {};
  for (const of of [timing, ...timing.turns]) for (const field of ["roles_s", "tool_roles_s", "verify_roles_s"]) for (const [name, seconds] of secondsOf(of?.[field])) shown[name] = (shown[name] ?? 0) + seconds;
  return Object.entries(row._gym.roles ?? {}).map(([name, use]) => [name, use?.calls ?? 0, (Number(use?.seconds) || 0) - (shown[name] ?? 0)]).filter(([, , seconds]) => seconds > 0.01);
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
      const begins = at, seconds = lane.parts.reduce((sum, part) => sum + part.seconds, 0), asked = lane.parts.filter(({ kind }) => kind === "role");
      at += seconds;
      return html`<li><span class="name">${lane.label}</span><span class="track"><span style=${{ width: `${(100 * begins) / total}%` }}></span>${lane.parts.map((part) => html`<span class=${part.kind} title=${`${part.name} ${span(part.seconds)}`} style=${{ width: `${Math.max(0.3, (100 * part.seconds) / total)}%` }}></span>`)}</span><span class="number">${span(seconds)}</span>
        ${asked.length ? html`<small class="within quiet">${asked.map(({ name, seconds: drawn, said = drawn }) => `${name} ${span(said)}`).join(" · ")}</small>` : null}</li>`;
    })}</ol></div>`;
}

// How rewards look everywhere: a figure with a tone, dots of a group.
import { html } from "./html.js";
import { reward as formatted } from "./format.js";

// Rewards are mostly 0 to 1; a figure outside is at an end of the scale.
export const tone = (value) => (value === null || Number.isNaN(value) ? "none" : value <= 0 ? "zero" : value >= 1 ? "one" : "part");

export function Reward({ value, big = false }) {
  return html`<span class=${`reward ${tone(value)} ${big ? "big" : ""}`}>${formatted(value)}</span>`;
}

export function Dots({ columns, rows, link, current = -1, most = 64 }) {
  return html`<span class="dots">${rows.slice(0, most).map((i) => {
    const value = columns.reward[i], failed = Number.isNaN(value);
    const title = `rollout ${columns.rollout[i]}: ${failed ? "no verdict" : `reward ${formatted(value)}`}`;
    return html`<a class=${`dot ${tone(value)} ${i === current ? "current" : ""}`} href=${link(i)} title=${title} aria-label=${title} aria-current=${i === current ? "true" : undefined}>
      ${!failed && value > 0 && value < 1 ? html`<span style=${{ height: `${100 * value}%` }}></span>` : null}</a>`;
  })}${rows.length > most ? html`<small class="quiet">+${rows.length - most}</small>` : null}</span>`;
}

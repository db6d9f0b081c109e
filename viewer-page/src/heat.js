// A heat map: a line for each task, a cell for each of its rollouts, or for each run; the colour is the reward, and so
// are the cell's number and the bar at its foot. Names are reached by Tab, cells from there by the arrow keys.
import { html } from "./html.js";
import { List } from "./list.js";
import { reward, short } from "./format.js";

const STEPS = 6;
export const MOST_CELLS = 64;
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// Where a value is between low and high, from 0 to 1; halves, since a difference may be larger than a number can be.
const share = (value, low, high) => Math.min(1, Math.max(0, (value / 2 - low / 2) / (high / 2 - low / 2 || 1)));
// There is room for few digits; the title has all of them.
const digits = (value) => (Math.abs(value) >= 100 && Math.abs(value) < 1e12 ? short(Math.round(value)) : reward(value === null ? NaN : Number(value.toPrecision(2))));
const step = (value, low, high) => Math.round((STEPS - 1) * share(value, low, high));

function move(event) {
  const by = ARROWS[event.key], [line, cell] = event.target.dataset?.cell?.split(" ").map(Number) ?? [];
  const next = by && line !== undefined && event.currentTarget.querySelector(`[data-cell="${line + by[0]} ${cell + by[1]}"]`);
  if (!next) return;
  event.preventDefault();
  next.focus();
}

// line(k) -> { name, note, href, cells: [{ value, title, href }] }; heads are the columns' titles.
export function Heat({ count, line, heads, first, low, high, label }) {
  const template = { gridTemplateColumns: `minmax(86px, 190px) repeat(${heads.length}, minmax(0, ${heads.length > 8 ? 64 : 110}px))` };
  return html`<p class="quiet heat-scale">${Array.from({ length: STEPS }, (_, at) => html`<span class=${`cell h${at}`}>${digits(low + ((high - low) * at) / (STEPS - 1))}</span>`)} <span class="cell none">–</span><span>no verdict. Arrow keys go from cell to cell.</span></p>
    <div class="heat" onKeyDown=${move}>
      <div class="grid head" style=${template}><span>${first}</span>${heads.map((head) => html`<span class="c-cell" title=${head}>${head}</span>`)}</div>
      <${List} count=${count} height=${32} label=${label} row=${(k) => {
        const { name, note, href, cells } = line(k);
        return html`<div class="grid row" style=${template}><a class="name" data-cell=${`${k} -1`} href=${href}>${name}${note ? html` <small class="quiet">${note}</small>` : null}</a>${cells.map((cell, at) => (cell ? html`<a tabindex="-1" data-cell=${`${k} ${at}`} href=${cell.href} title=${cell.title} class=${`cell ${Number.isNaN(cell.value) || cell.value === null ? "none" : `h${step(cell.value, low, high)}`}`}><b>${digits(cell.value)}</b><i style=${{ width: `${100 * share(cell.value || 0, low, high)}%` }}></i></a>` : html`<span></span>`))}</div>`;
      }} /></div>`;
}

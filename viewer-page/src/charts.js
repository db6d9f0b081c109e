// Charts as SVG and HTML: every bar is a link with a text, so they can be read and used without seeing or a mouse.
import { html } from "./html.js";

// bars: [{ label, count, href, title, tone }]
export function Columns({ bars, height = 96, labels = [] }) {
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  return html`<div class="columns">
    <div class="plot" style=${{ height: `${height}px` }}>
      ${bars.map((bar) => html`<a class=${`bar ${bar.tone ?? ""}`} href=${bar.href} title=${bar.title} aria-label=${bar.title}>
        <span style=${{ height: `${bar.count ? Math.max(2, (100 * bar.count) / most) : 0}%` }}></span></a>`)}
    </div>
    <div class="axis">${labels.map((label) => html`<span>${label}</span>`)}</div>
  </div>`;
}

export const Partly = ({ runs }) => (runs.some((run) => run.partial) ? html`<p class="banner" role="status">Figures of the first rows: the others are being added up.</p>` : null);

// rows: [{ label, count, href, tone, note }]; the share of the whole beside each.
export function Bars({ rows, total }) {
  const most = Math.max(1, ...rows.map((row) => row.count));
  return html`<ul class="bars">${rows.map((row) => html`<li><a href=${row.href} title=${row.title ?? row.label}>
    <span class="name">${row.label}</span>
    <span class="track"><span class=${row.tone ?? ""} style=${{ width: `${(100 * row.count) / most}%` }}></span></span>
    <span class="number">${row.note ?? row.count.toLocaleString("en")}${total ? html`<small> ${((100 * row.count) / total).toFixed(row.count / total < 0.1 ? 1 : 0)} %</small>` : null}</span>
  </a></li>`)}</ul>`;
}

// points: [{ value, error, title, href }], from left to right; values between low and high. An error is drawn to both sides.
export function Line({ points, low, high, labels = [], height = 96, format = (value) => value }) {
  const shown = points.filter((point) => point.value !== null);
  if (!shown.length) return html`<p class="quiet">no values</p>`;
  const x = (k) => (points.length === 1 ? 50 : (100 * k) / (points.length - 1));
  const y = (value) => 100 - 100 * ((value / 2 - low / 2) / (high / 2 - low / 2 || 1));
  const path = points.flatMap((point, k) => (point.value === null ? [] : [`${x(k).toFixed(2)},${y(point.value).toFixed(2)}`])).join(" ");
  return html`<div class="line">
    <div class="scale"><span>${format(high)}</span><span>${format(low)}</span></div>
    <div class="plot" style=${{ height: `${height}px` }}>
      <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
        ${shown.length > 1 ? html`<polyline points=${`${path} ${x(points.length - 1)},100 0,100`} class="area" /><polyline points=${path} vector-effect="non-scaling-stroke" />` : null}
      </svg>
      ${points.map((point, k) => (point.error ? html`<span class="error-bar" style=${{ left: `${x(k)}%`, top: `${Math.max(0, y(point.value + point.error))}%`, bottom: `${Math.max(0, 100 - y(point.value - point.error))}%` }}></span>` : null))}
      ${points.map((point, k) => point.value === null ? null : html`<a class=${`dot ${points.length > 24 ? "small" : ""}`} href=${point.href} title=${point.title} aria-label=${point.title}
        style=${{ left: `${x(k)}%`, top: `${y(point.value)}%` }}></a>`)}
    </div>
    <div class="axis">${labels.map((label) => html`<span>${label}</span>`)}</div>
  </div>`;
}

// A difference with its interval, on a line with zero in the middle.
export function Interval({ value, low, high }) {
  const most = Math.max(Math.abs(low), Math.abs(high), 1e-9) * 1.15, at = (x) => 50 + 50 * (x / most);
  return html`<div class="interval" role="img" aria-label=${`between ${low.toFixed(3)} and ${high.toFixed(3)}`}>
    <span class="zero"></span>
    <span class=${`range ${low > 0 ? "good" : high < 0 ? "bad" : ""}`} style=${{ left: `${at(low)}%`, width: `${at(high) - at(low)}%` }}></span>
    <span class="value" style=${{ left: `${at(value)}%` }}></span>
  </div>`;
}

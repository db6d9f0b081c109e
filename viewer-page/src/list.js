// A list of any length of which only what is seen is in the page. Rows have one height; browsers cap an element's, so
// beyond that the scrolling is scaled.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

const MOST_PIXELS = 12e6;

export function List({ count, height, row, current = -1, label }) {
  const box = useRef(), [view, setView] = useState({ top: 0, height: 600 });
  const whole = count * height, shown = Math.min(whole, MOST_PIXELS), scale = whole > shown ? (whole - view.height) / (shown - view.height) : 1;
  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    // The chosen row stays in sight when one goes from row to row.
    if (current < 0) return;
    const at = current * height, top = view.top * scale;
    if (at < top || at + height > top + view.height) box.current.scrollTop = Math.max(0, (at - view.height / 2) / scale);
  }, [current]);
  const top = view.top * scale, first = Math.max(0, Math.floor(top / height) - 8), last = Math.min(count, first + Math.ceil(view.height / height) + 16);
  const rows = [];
  for (let k = first; k < last; k++) rows.push(html`<div class="line-at" key=${k} style=${{ top: `${k * height - top + view.top}px`, height: `${height}px` }}>${row(k)}</div>`);
  return html`<div class="list" ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${(event) => setView({ top: event.target.scrollTop, height: event.target.clientHeight })}>
    <div style=${{ height: `${shown}px`, position: "relative" }}>${rows}</div></div>`;
}

// A conversation, item by item. What is long is folded, and everything is text.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { change, route } from "./route.js";
import { count } from "./format.js";
import { Markdown } from "./markdown.js";

const KINDS = { prompt: "prompt", reasoning: "reasoning", tools: "tools", images: "images", markup: "formatting" };
const FOLDED_CHARACTERS = 3000;
const MOST_ITEMS = 200;

export function Conversation({ items, marked = -1, plain = false }) {
  const [all, setAll] = useState(false);
  const hidden = new Set((route.value.params.hide ?? "").split(" ").filter(Boolean));
  const turn = (name) => change({ hide: (hidden.has(name) ? [...hidden].filter((one) => one !== name) : [...hidden, name]).join(" ") });
  const shown = items.map((item, at) => ({ item, at })).filter(({ item }) => !(hidden.has("prompt") && item.turn === 0) && !(hidden.has("reasoning") && item.kind === "reasoning") && !(hidden.has("tools") && (item.kind === "call" || item.kind === "output")));
  let last = 0;
  return html`<div class="conversation">
    ${plain ? null : html`<div class="choice" role="group" aria-label="Show">${Object.entries(KINDS).map(([name, title]) => html`<button aria-pressed=${!hidden.has(name)} onClick=${() => turn(name)}>${title}</button>`)}</div>`}
    ${shown.slice(0, all ? undefined : MOST_ITEMS).map(({ item, at }) => {
      const begins = item.turn > last;
      last = item.turn;
      return html`${begins ? html`<h3 class="turn"><span>Turn ${item.turn}</span></h3>` : null}<${Item} key=${at} item=${item} hidden=${hidden} marked=${at === marked} />`;
    })}
    ${!all && shown.length > MOST_ITEMS ? html`<button onClick=${() => setAll(true)}>Show all ${count(shown.length)} items</button>` : null}
    ${items.length ? null : html`<p class="quiet">The row has no conversation.</p>`}
  </div>`;
}

const title = (item) => ({ reasoning: "reasoning", call: item.name, output: item.error ? "tool error" : "tool answer", message: item.role, other: item.name })[item.kind];

function Item({ item, hidden, marked }) {
  const kind = item.kind === "message" ? item.role : item.kind;
  return html`<div class=${`item ${kind} ${item.error ? "error" : ""} ${marked ? "marked" : ""}`} id=${marked ? "first-difference" : undefined}>
    <div class="who">${item.kind === "call" ? html`<span class="quiet">calls</span> ` : null}<strong>${title(item)}</strong>${item.refusal ? html` <span class="tag bad">refusal</span>` : null}${marked ? html` <span class="tag">first difference</span>` : null}</div>
    <div class="what">${item.parts.length ? item.parts.map((part) => html`<${Part} part=${part} hidden=${hidden} folded=${item.kind === "reasoning" ? 1200 : FOLDED_CHARACTERS} />`) : html`<span class="quiet">(empty)</span>`}</div></div>`;
}

export function Part({ part, hidden = new Set(), folded = FOLDED_CHARACTERS }) {
  const [open, setOpen] = useState(false);
  if (part.kind === "image") {
    if (hidden.has("images")) return html`<p class="quiet">an image</p>`;
    // Only what is in the row itself: an address could tell its owner who reads.
    return /^data:image\/(png|jpeg|gif|webp)[;,]/.test(part.text) ? html`<img src=${part.text} alt="An image of the conversation" loading="lazy" />` : html`<p class="quiet">an image that is not in the row: ${part.text.slice(0, 300)}</p>`;
  }
  if (part.kind === "thought" && hidden.has("reasoning")) return null;
  const long = part.text.length > folded, text = open || !long ? part.text : part.text.slice(0, folded);
  const formatted = part.kind === "text" && !hidden.has("markup");
  const classes = part.kind === "thought" ? "text thought" : part.kind === "json" ? "text code" : formatted ? "text formatted" : "text";
  return html`<div class=${classes}>${formatted ? html`<${Markdown} text=${text} />` : text}${long ? html`<button class="more" onClick=${() => setOpen(!open)}>${open ? "fold" : `… all ${count(part.text.length)} characters`}</button>` : null}</div>`;
}

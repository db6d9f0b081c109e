// What models write, with its headings, lists, tables, code and formulas. The text is hostile: it becomes elements of
// this list and text, never markup; links and images are shown as they were written, since an address could tell its
// owner who reads.
import { html } from "./html.js";
import { math } from "./math.js";

const LONGEST = 200_000; // longer texts are shown as they are

export function Markdown({ text }) {
  return text.length > LONGEST ? text : blocks(text);
}

const FORMULA = /^(?:\$\$([^$]{1,4000})\$\$|\\\[([^]{1,4000}?)\\\])[ \t]*(?:\n|$)/;

function blocks(text) {
  const found = [], words = [];
  const close = () => {
    const said = words.splice(0).join("\n").replace(/\n+$/, "");
    if (said.trim()) found.push(html`<p>${inline(said)}</p>`);
  };
  for (let rest = text; rest; ) {
    const taken = block(rest);
    if (taken) {
      close();
      found.push(taken.node);
      rest = rest.slice(taken.length);
      continue;
    }
    const end = rest.indexOf("\n"), line = end < 0 ? rest : rest.slice(0, end);
    if (line.trim()) words.push(line);
    else close();
    rest = end < 0 ? "" : rest.slice(end + 1);
  }
  close();
  return found;
}

// What begins a text, if it is more than a paragraph: { node, length }.
function block(text) {
  let found = /^ {0,3}(`{3,20}|~{3,20})[^\n]*\n/.exec(text);
  if (found) {
    const from = found[0].length, end = text.indexOf(`\n${found[1]}`, from - 1), until = end < 0 ? text.length : end, line = end < 0 ? -1 : text.indexOf("\n", end + 1);
    return { node: html`<code class="fence">${text.slice(from, until)}</code>`, length: line < 0 ? text.length : line + 1 };
  }
  found = FORMULA.exec(text);
  if (found) return { node: formula(found[1] ?? found[2], found[0].trim(), true), length: found[0].length };
  found = /^ {0,3}(#{1,6}) ([^\n]*)(?:\n|$)/.exec(text);
  if (found) return { node: html`<p class=${`title t${found[1].length}`}>${inline(found[2])}</p>`, length: found[0].length };
  found = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*(?:\n|$)/.exec(text);
  if (found) return { node: html`<hr />`, length: found[0].length };
  found = /^ {0,3}\|[^\n]*\n {0,3}\|[ :|-]{1,400}(?:\n|$)(?: {0,3}\|[^\n]*(?:\n|$))*/.exec(text);
  if (found) return { node: table(found[0].trimEnd().split("\n")), length: found[0].length };
  found = /^(?: *(?:[-*+]|\d{1,9}[.)]) [^\n]*(?:\n|$))+/.exec(text);
  if (found) {
    const items = found[0].trimEnd().split("\n").map((line) => /^( *)([-*+]|\d+[.)]) (.*)$/.exec(line)).filter(Boolean);
    return { node: html`<ul class="said-list">${items.map(([, space, mark, said]) => html`<li style=${{ marginLeft: `${Math.min(8, Math.floor(space.length / 2)) * 1.2}em` }}><span class="mark">${/\d/.test(mark) ? mark : "•"}</span><span>${inline(said)}</span></li>`)}</ul>`, length: found[0].length };
  }
  found = /^(?:>[^\n]*(?:\n|$))+/.exec(text);
  if (found) return { node: html`<blockquote>${inline(found[0].replace(/^> ?/gm, "").trimEnd())}</blockquote>`, length: found[0].length };
  return null;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const [head, , ...rows] = lines.map(cells);
  return html`<div class="scroll" tabindex="0"><table><thead><tr>${head.map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody></table></div>`;
}

const INLINE = /(?<!`)(`{1,3})([^`]{1,2000})\1(?!`)|\\\(([^]{1,2000}?)\\\)|\\\[([^]{1,2000}?)\\\]|\$\$([^$]{1,2000})\$\$|\$(?![\s$])([^$\n]{0,1000}?[^\s$\\])\$(?!\d)|(\\boxed\{(?:[^{}]|\{[^{}]{0,200}\}){0,400}\})|\*\*(?=\S)([^*\n]{1,2000})\*\*|\*(?=\S)([^*\n]{0,1000}[^*\s])\*(?!\w)|~~([^~\n]{1,1000})~~/g;

function inline(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, round, square, double, dollar, boxed, strong, soft, gone] = match;
    found.push(text.slice(at, match.index));
    at = match.index + whole.length;
    const tex = round ?? square ?? double ?? dollar ?? boxed;
    found.push(code !== undefined ? html`<code>${code}</code>` : tex !== undefined ? formula(tex, whole, square !== undefined || double !== undefined) : strong !== undefined ? html`<strong>${inline(strong)}</strong>` : soft !== undefined ? html`<em>${inline(soft)}</em>` : html`<s>${gone}</s>`);
  }
  return [...found, text.slice(at)];
}

// A formula; as it was written where it is not understood.
const formula = (tex, source, block) => math(tex.trim(), block) ?? html`<code class="math">${source}</code>`;

// The page: its frame, which page is shown, and the keys.
import { render } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { computed, effect, signal } from "@preact/signals";
import { html } from "./html.js";
import { go, parse, route, format } from "./route.js";
import { loadRuns, openRun, problem, runs } from "./source.js";
import { plural, bytes } from "./format.js";
import { Runs } from "./pages/runs.js";
import { RunPage } from "./pages/run.js";
import { Rollouts, keys as rolloutKeys } from "./pages/rollouts.js";
import { Tasks } from "./pages/tasks.js";
import { Failures } from "./pages/failures.js";
import { Compare } from "./pages/compare.js";
import { Board } from "./pages/board.js";
import { System } from "./pages/system.js";
import "./style.css";

const PAGES = { "": ["Run", RunPage], rollouts: ["Rollouts", Rollouts], tasks: ["Tasks", Tasks], failures: ["Failures", Failures] };
const help = signal(false);
const theme = signal(read("theme"));
const where = computed(() => {
  const [kind = "", id = "", page = ""] = route.value.parts;
  return { kind, id, page };
});

function read(name) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return ""; // a page in a file has no storage
  }
}

effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
});

function turnTheme() {
  const dark = theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme.value = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", theme.value);
  } catch {
    // it lasts until the page is closed
  }
}

function App() {
  const { kind, id, page } = where.value;
  if (problem.value) return html`<main class="note"><h1>Nothing to show</h1><p>${problem.value}</p></main>`;
  if (!runs.value) return html`<main class="note"><p class="quiet">Looking for runs …</p></main>`;
  const known = runs.value.runs.some((run) => run.id === id);
  return html`
    <${Header} />
    ${kind === "compare" ? html`<${Compare} />`
    : kind === "board" ? html`<${Board} />`
    : kind === "system" ? html`<${System} />`
    : kind !== "run" ? html`<${Runs} />`
    : known ? html`<${RunFrame} key=${id} id=${id} page=${page} />`
    : html`<main class="note"><h1>There is no run “${id}”</h1><p><a href="#/">All runs</a></p></main>`}
    ${help.value ? html`<${Help} />` : null}`;
}

function Header() {
  const { kind, id, page } = where.value;
  return html`<header class="top">
    <a class="home" href="#/" aria-label="All runs"><svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4" /><path d="M4 11l3-6 2 4 1.5-2L13 11" /></svg><span>Runs</span></a>
    ${kind === "run" ? html`<span class="crumb" aria-hidden="true">/</span><a class="run" href=${format(["run", id])}>${id}</a>
      <nav aria-label="Pages of the run">${Object.entries(PAGES).map(([name, [title]]) => html`
        <a href=${format(["run", id, ...(name ? [name] : [])])} aria-current=${name === page ? "page" : undefined}>${title}</a>`)}</nav>` : null}
    ${kind === "compare" || kind === "board" ? html`<span class="crumb" aria-hidden="true">/</span><span class="run">Compare</span>` : null}
    ${kind === "system" ? html`<span class="crumb" aria-hidden="true">/</span><span class="run">System</span>` : null}
    <span class="fill"></span>
    ${runs.value.system && kind !== "system" ? html`<a href="#/system">System</a>` : null}
    <button class="icon" onClick=${turnTheme} title="Light or dark" aria-label="Light or dark">◐</button>
    <button class="icon" onClick=${() => (help.value = true)} title="Keys (?)" aria-label="Keys">?</button>
  </header>`;
}

function RunFrame({ id, page }) {
  const run = openRun(id);
  useEffect(() => {
    run.load();
    const timer = setInterval(() => document.hidden || run.follow(), 1000);
    return () => clearInterval(timer);
  }, [run]);
  useEffect(() => {
    document.title = `${route.value.parts.slice(1).join(" ")} · gym-runtime`;
  });
  const state = run.state.value, Page = (PAGES[page] ?? PAGES[""])[1];
  run.version.value; // read here so that the page is drawn again when the file grows
  return html`
    ${state.error ? html`<p class="banner bad" role="alert">${state.error}</p>` : null}
    ${state.loading ? html`<div class="progress" role="status"><span style=${{ width: `${state.bytes ? (100 * state.indexed) / state.bytes : 5}%` }}></span>
      <em>${run.columns.rows ? `${plural(run.columns.rows, "row")} so far; ` : ""}indexing ${bytes(state.indexed)} of ${bytes(state.bytes)}</em></div>` : null}
    ${state.torn > 0 ? html`<p class="banner" role="status">The last ${bytes(state.torn)} of the file are an incomplete row: the row is being written, or a crash cut it off.</p>` : null}
    ${run.columns.rows ? html`<${Page} run=${run} />`
    : state.loading ? null : html`<main class="note"><h1>No rollouts yet</h1><p class="quiet">${run.about?.path ?? ""} has no rows. They appear here as they are written.</p></main>`}`;
}

const KEYS = [["j  k", "next and previous rollout"], ["n  p", "next and previous rollout of the same task"], ["/", "to the filter"], ["c", "copy the address of what is shown"], ["Esc", "close, or leave the filter"], ["?", "this list"]];

// A dialog keeps the focus, and gives it back to where it was.
const closeHelp = () => document.querySelector("dialog")?.close();

function Help() {
  useLayoutEffect(() => document.querySelector("dialog").showModal(), []);
  return html`<dialog class="help" aria-label="Keys" onClose=${() => (help.value = false)} onClick=${(event) => event.target.tagName === "DIALOG" && closeHelp()}><div><h2>Keys</h2>
      <dl>${KEYS.map(([key, what]) => html`<dt>${key.split("  ").map((one) => html`<kbd>${one}</kbd>`)}</dt><dd>${what}</dd>`)}</dl>
      <button onClick=${closeHelp}>Close</button></div></dialog>`;
}

addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    closeHelp();
    if (typing) event.target.blur();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (help.value) return event.key === "?" && closeHelp();
  if (event.key === "?") help.value = true;
  else if (event.key === "c") navigator.clipboard?.writeText(location.href);
  else if (event.key === "/") {
    event.preventDefault();
    if (where.value.kind === "run" && where.value.page !== "rollouts") go(["run", where.value.id, "rollouts"]);
    requestAnimationFrame(() => document.getElementById("query")?.focus());
  } else if (where.value.page === "rollouts") rolloutKeys(event.key, openRun(where.value.id));
});

addEventListener("hashchange", () => (route.value = parse(location.hash)));
addEventListener("popstate", () => (route.value = parse(location.hash)));
// Links within the page change the state without loading anything.
if (location.search) history.replaceState(null, "", location.pathname + location.hash); // the token is in a cookie now
// A note that is being typed is stored before the page goes.
addEventListener("pagehide", () => document.activeElement?.blur());
loadRuns();
render(html`<${App} />`, document.getElementById("app"));

// Failures, by whose fault, at which stage, with which message; ids and numbers in the messages are left out.
import { html } from "../html.js";
import { format } from "../route.js";
import { count, plural } from "../format.js";

export function Failures({ run }) {
  const { columns } = run, figures = run.figures.value;
  run.version.value; // read here so that the page is drawn again when the file grows
  if (!figures) return html`<main class="note"><p class="quiet" role="status">Adding up the figures …</p></main>`;
  const kinds = figures.endings.filter(({ outcome }) => outcome !== "completed" && outcome !== "truncated").map((one) => {
    const [kind, stage = "", message = ""] = one.fault.split("\x1f");
    return { ...one, kind, stage, message };
  });
  const total = kinds.reduce((sum, one) => sum + one.count, 0), all = figures.run.rollouts;
  const quote = (value) => (/^[^\s",*]+$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);
  const query = (one) => (one.outcome !== "failed" ? `outcome=${one.outcome}` : `outcome=failed${one.kind ? ` fault=${quote(one.kind)}` : ""}${one.stage ? ` fault=${quote(one.stage)}` : ""}${one.message ? ` fault=${quote(one.message)}` : ""}`);
  return html`<main class="failures"><div class="headline"><h1>${total ? plural(total, "failure") : columns.rows - columns.superseded > all ? "No failures so far" : "No failures"}</h1>
      <span class="quiet">${total ? `${((100 * total) / all).toFixed(1)} % of ${plural(all, "rollout")}` : `${figures.rated < all ? `${count(figures.rated)} of` : "All"} ${plural(all, "rollout")} have a verdict.`}${columns.superseded ? ` Not counted: ${plural(columns.superseded, "earlier or doubled row")}.` : ""}</span></div>
    ${kinds.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Kinds of failures"><table><thead><tr><th class="right">How many</th><th>Whose fault</th><th>Stage</th><th>Message</th><th>Environments</th><th>Examples</th></tr></thead><tbody>
      ${kinds.map((one) => html`<tr><td class="right"><a class="bad" href=${format(["run", run.id, "rollouts"], { q: query(one) })}>${count(one.count)}</a></td><td><strong>${one.outcome === "cancelled" ? "cancelled" : one.outcome === "unreadable" ? "no JSON" : one.kind || "–"}</strong></td><td>${one.stage || html`<span class="quiet">–</span>`}</td><td class="message">${one.message || html`<span class="quiet">–</span>`}</td>
        <td>${one.environments.filter(Boolean).slice(0, 3).join(", ") || "–"}</td><td class="nowrap">${one.outcome === "unreadable" ? "–" : html`<a href=${format(["run", run.id, "rollouts", one.first], { q: query(one) })}>first</a>`}${one.outcome !== "unreadable" && one.last !== one.first ? html` · <a href=${format(["run", run.id, "rollouts", one.last], { q: query(one) })}>last</a>` : null}</td></tr>`)}</tbody></table></div>` : null}
  </main>`;
}

// Failures, by whose fault, at which stage, with which message; ids and numbers in the messages are left out.
import { html } from "../html.js";
import { format } from "../route.js";
import { allRows } from "../rows.js";
import { count, plural } from "../format.js";

export function Failures({ run }) {
  const { columns } = run;
  const kinds = run.cached("failures", () => {
    const found = new Map();
    for (const i of allRows(run)) {
      if (columns.outcome[i] < 2) continue;
      const key = `${columns.outcome[i]} ${columns.fault[i]}`;
      const one = found.get(key) ?? { outcome: columns.outcome[i], ...columns.faultOf(i), rows: 0, first: i, last: i, envs: new Set() };
      one.rows++;
      one.last = i;
      one.envs.add(columns.envs[columns.env[i]]);
      found.set(key, one);
    }
    return [...found.values()].sort((a, b) => b.rows - a.rows);
  });
  const total = kinds.reduce((sum, one) => sum + one.rows, 0), all = allRows(run).length;
  const quote = (value) => (/^[^\s",*]+$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);
  const query = (one) => (one.outcome === 3 ? "outcome=cancelled" : one.outcome === 4 ? "outcome=unreadable" : `outcome=failed${one.kind ? ` fault=${quote(one.kind)}` : ""}${one.message ? ` fault=${quote(one.message)}` : ""}`);
  return html`<main class="failures"><div class="headline"><h1>${total ? plural(total, "failure") : "No failures"}</h1>
      <span class="quiet">${total ? `${((100 * total) / all).toFixed(1)} % of ${plural(all, "rollout")}` : `All ${plural(all, "rollout")} have a verdict.`}${columns.superseded ? ` ${count(columns.superseded)} more were made again and do not count.` : ""}</span></div>
    ${kinds.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Kinds of failures"><table><thead><tr><th class="right">How many</th><th>Whose fault</th><th>Stage</th><th>Message</th><th>Environments</th><th>Examples</th></tr></thead><tbody>
      ${kinds.map((one) => html`<tr><td class="right"><a class="bad" href=${format(["run", run.id, "rollouts"], { q: query(one) })}>${count(one.rows)}</a></td><td><strong>${one.outcome === 3 ? "cancelled" : one.outcome === 4 ? "no JSON" : one.kind || "–"}</strong></td><td>${one.stage || html`<span class="quiet">–</span>`}</td><td class="message">${one.message || html`<span class="quiet">–</span>`}</td>
        <td>${[...one.envs].slice(0, 3).join(", ") || "–"}</td><td class="nowrap"><a href=${format(["run", run.id, "rollouts", columns.id(one.first)], { q: query(one) })}>first</a>${one.last !== one.first ? html` · <a href=${format(["run", run.id, "rollouts", columns.id(one.last)], { q: query(one) })}>last</a>` : null}</td></tr>`)}</tbody></table></div>` : null}
  </main>`;
}

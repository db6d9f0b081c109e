// Numbers and spans as people read them.
const whole = new Intl.NumberFormat("en");

export const count = (value) => whole.format(value);
// Four digits, and all that stand before the point: 12345 is not 12350.
export const reward = (value) => (value === null || Number.isNaN(value) ? "–" : String(Math.abs(value) >= 1000 && Math.abs(value) < 2 ** 53 ? Math.round(value) : Number(value.toPrecision(4))));
export const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);

export const rewardError = (value, error) => `${reward(value)}${error === null ? "" : ` ± ${Number(error.toPrecision(2))}`}`;
// pass@k of a run with its standard error, and of how many tasks it is.
export const passed = (run, k = 1) => (run.pass_at[k] === undefined ? "–" : `${percent(run.pass_at[k])}${run.pass_error[k] === null ? "" : ` ± ${percent(run.pass_error[k])}`}`);
export const passedTasks = (run, k = 1) => (run.pass_at[k] === undefined ? "" : `of ${count(run.pass_tasks[k])} of ${plural(run.tasks, "task")}`);
export const failed = ({ outcomes }) => (outcomes.failed ?? 0) + (outcomes.cancelled ?? 0) + (outcomes.unreadable ?? 0);

export function short(value) {
  if (Math.abs(value) >= 1e9) return `${trim(value / 1e9)}G`;
  if (Math.abs(value) >= 1e6) return `${trim(value / 1e6)}M`;
  if (Math.abs(value) >= 1e4) return `${trim(value / 1e3)}k`;
  return Number.isInteger(value) ? whole.format(value) : trim(value);
}

const trim = (value) => String(Number(value.toPrecision(3)));

export function span(seconds) {
  if (!seconds) return "–";
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 59.95) return `${trim(seconds)} s`;
  const rounded = Math.round(seconds), minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} min ${String(rounded % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// Where there is little room: 2m 05s, 1h 02m.
export const brief = (seconds) => span(seconds).replace(/(\d+) (min|h) (\d+) (s|min)/, (_, a, big, b, small) => `${a}${big[0]} ${b}${small[0]}`);

export function bytes(value) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${trim(value)} ${unit}`;
    value /= 1000;
  }
}

export function when(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : "";
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

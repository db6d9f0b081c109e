// The figures of a run. Those that the command line prints too are computed as in gym_view/figures.py and
// comparison.py, which a test compares with these.
import { OUTCOMES } from "./columns.js";
import { bounded, finite, mean, standardError, unitOf } from "./statistics.js";

// Rollouts by environment and task: [{ env, task, key, rows, rewards }], the rewards in the order of the rollouts.
export function groupsOf(columns, rows) {
  const groups = new Map();
  for (const i of rows) {
    const where = columns.env[i] * 4294967296 + columns.task[i];
    let group = groups.get(where);
    if (!group) groups.set(where, (group = { env: columns.envs[columns.env[i]], task: columns.task[i], key: columns.key[i], rows: [] }));
    group.rows.push(i);
  }
  const all = [...groups.values()];
  for (const group of all) {
    if (group.rows.length > 1) group.rows.sort((a, b) => columns.rollout[a] - columns.rollout[b] || a - b);
    group.rewards = [];
    for (const i of group.rows) {
      if (columns.reward[i] === columns.reward[i]) group.rewards.push(columns.reward[i]);
      else if (columns.failuresAsZero && OUTCOMES[columns.outcome[i]] === "failed") group.rewards.push(0);
    }
    group.mean = mean(group.rewards);
  }
  return all;
}

export function steps(most) {
  const found = [];
  for (let k = 1; k <= most; k *= 2) found.push(k);
  if (most > 0 && found.at(-1) !== most) found.push(most);
  return found;
}

// That one of k rollouts drawn from `count` without replacement is right (Chen et al. 2021, equation 1).
function chanceOfPass(count, wrong, k) {
  let none = 1;
  for (let i = 0; i < k; i++) none *= (wrong - i) / (count - i);
  return wrong < k ? 1 : 1 - none;
}

export function groupPass(rewards, k) {
  if (rewards.every((one) => one === 0 || one === 1)) return chanceOfPass(rewards.length, rewards.filter((one) => !one).length, k);
  return Math.max(...rewards.slice(0, k));
}

// Only rewards from 0 to 1 are shares of passes.
export const isShare = (rewards) => rewards.every((one) => one >= 0 && one <= 1);

export function passAt(groups) {
  const rated = groups.filter((group) => group.rewards.length);
  if (!rated.every((group) => isShare(group.rewards))) return [];
  const most = rated.reduce((found, group) => Math.max(found, group.rewards.length), 0);
  return steps(most).map((k) => {
    const large = rated.filter((group) => group.rewards.length >= k);
    const shares = large.map((group) => groupPass(group.rewards, k));
    return { k, value: mean(shares), error: standardError(shares.map((one) => [one])), groups: large.length, of: groups.length };
  });
}

// Which tasks give a gradient to group-relative training: only those whose rewards differ.
export function signalOf(groups) {
  const counts = { zero: 0, equal: 0, mixed: 0 };
  for (const { rewards } of groups) if (rewards.length) counts[kindOf(rewards)]++;
  return counts;
}

export function kindOf(rewards) {
  if (rewards.some((one) => one !== rewards[0])) return "mixed";
  return rewards[0] === 0 ? "zero" : "equal";
}

export function figuresOf(columns, rows) {
  const outcomes = {}, totals = { input: 0, output: 0, turns: 0, tools: 0 };
  let time = 0, timed = 0;
  for (const i of rows) {
    outcomes[OUTCOMES[columns.outcome[i]]] = (outcomes[OUTCOMES[columns.outcome[i]]] ?? 0) + 1;
    for (const name in totals) totals[name] += columns[name][i];
    if (columns.duration[i] > 0) { time += columns.duration[i]; timed++; }
  }
  const groups = groupsOf(columns, rows);
  const rewards = groups.map((group) => group.rewards), all = rewards.flat();
  return {
    rollouts: rows.length, outcomes, groups, rated: all.length, mean: mean(all), meanError: standardError(rewards), pass: passAt(groups), signal: signalOf(groups),
    ...totals, duration: timed ? time / timed : null, failed: (outcomes.failed ?? 0) + (outcomes.cancelled ?? 0) + (outcomes.unreadable ?? 0),
  };
}

export function quantiles(values, ...shares) {
  const ordered = Float64Array.from(values).sort();
  return shares.map((share) => (ordered.length ? ordered[Math.min(ordered.length - 1, Math.floor(share * ordered.length))] : null));
}

// Bars of equal width with round borders, or one for each value where there are few: [{ low, high, count, exact }].
export function histogram(values, bins = 20) {
  const finite = values.filter((value) => value === value);
  if (!finite.length) return [];
  const distinct = new Set();
  let least = Infinity, most = -Infinity;
  for (const value of finite) {
    if (distinct.size <= 12) distinct.add(value);
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (distinct.size <= 12) {
    const counts = new Map([...distinct].sort((a, b) => a - b).map((value) => [value, 0]));
    for (const value of finite) counts.set(value, counts.get(value) + 1);
    return [...counts].map(([value, n]) => ({ low: value, high: value, count: n, exact: true }));
  }
  const width = niceStep(most / bins - least / bins) || Number.MIN_VALUE, start = Math.floor(least / width);
  const counts = new Array(Math.floor(most / width) - start + 1).fill(0);
  for (const value of finite) counts[Math.floor(value / width) - start]++;
  return counts.map((n, k) => ({ low: round((start + k) * width), high: round((start + k + 1) * width), count: n, exact: false }));
}

function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= step * 0.9999);
}

const round = (value) => Number(value.toPrecision(10));

// Means of neighbouring rows, at most `buckets` of them: how something changed in the course of a run.
export function course(columns, rows, name, buckets = 60) {
  const size = Math.max(1, Math.ceil(rows.length / buckets)), found = [];
  for (let at = 0; at < rows.length; at += size) {
    const some = [];
    for (let k = at; k < Math.min(rows.length, at + size); k++) if (columns[name][rows[k]] === columns[name][rows[k]]) some.push(columns[name][rows[k]]);
    found.push({ first: rows[at], last: rows[Math.min(rows.length, at + size) - 1], value: mean(some), count: some.length });
  }
  return found;
}

// Two runs, task by task; `b` minus `a`. See gym_view/comparison.py.
export function compare(a, b) {
  const ratedA = a.filter((group) => group.rewards.length), ratedB = b.filter((group) => group.rewards.length);
  const [joinedBy, found] = joined(ratedA, ratedB);
  const pairs = found.map(([one, other]) => ({ env: one.env, taskA: one.task, taskB: other.task, a: one, b: other, difference: finite(other.mean - one.mean) }));
  pairs.sort((x, y) => (x.env < y.env ? -1 : x.env > y.env ? 1 : x.taskA - y.taskA));
  const all = pairs.map((pair) => pair.difference), differences = all.includes(null) ? [] : all;
  const wins = pairs.filter((pair) => pair.b.mean > pair.a.mean).length, losses = pairs.filter((pair) => pair.b.mean < pair.a.mean).length;
  return {
    joinedBy, pairs, wins, losses, ties: pairs.length - wins - losses, difference: mean(differences), ...bootstrap(differences),
    onlyA: ratedA.length - pairs.length, onlyB: ratedB.length - pairs.length,
  };
}

function joined(a, b) {
  const places = new Map(b.map((group) => [`${group.task} ${group.env}`, group]));
  const byIndex = a.flatMap((group) => (places.has(`${group.task} ${group.env}`) ? [[group, places.get(`${group.task} ${group.env}`)]] : []));
  if (byIndex.length && byIndex.every(([one, other]) => one.key === other.key)) return ["task index", byIndex];
  const keysA = new Map(a.filter((group) => group.key).map((group) => [group.key, group]));
  const keysB = new Map(b.filter((group) => group.key).map((group) => [group.key, group]));
  if (keysA.size === a.length && keysB.size === b.length) {
    const byKey = [...keysA].flatMap(([key, group]) => (keysB.has(key) ? [[group, keysB.get(key)]] : []));
    if (byKey.length) return ["prompt", byKey];
  }
  return ["task index", byIndex];
}

export function bootstrap(values) {
  const n = values.length;
  if (!n) return { low: null, high: null, resamples: 0 };
  const resamples = Math.max(200, Math.min(2000, Math.floor(2_000_000 / n))), means = new Float64Array(resamples);
  const unit = unitOf(values), scaled = values.map((value) => value / unit);
  let state = 2463534242;
  for (let r = 0; r < resamples; r++) {
    let total = 0;
    for (let i = 0; i < n; i++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      state >>>= 0;
      total += scaled[Math.floor((state * n) / 4294967296)];
    }
    means[r] = bounded((total / n) * unit);
  }
  means.sort();
  const cut = Math.floor(0.025 * resamples);
  return { low: means[cut], high: means[resamples - 1 - cut], resamples };
}

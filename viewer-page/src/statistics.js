// Means and standard errors of any finite numbers, as gym_runtime/statistics.py has them, which a test compares with
// these. What is undefined, or larger than a number can be, is null.
const LARGE = 2 ** 64; // a unit for numbers whose sum is larger than a number can be; changes no digit
const MOST = Number.MAX_VALUE;

// The sum in a unit, rounded once: `partials` keep what each addition takes off (Shewchuk 1997, as Python's math.fsum).
function sum(values, unit) {
  const partials = [];
  for (const value of values) {
    let x = value / unit, kept = 0;
    for (const y of partials) {
      const total = x + y, rest = Math.abs(x) < Math.abs(y) ? x - (total - y) : y - (total - x);
      if (rest) partials[kept++] = rest;
      x = total;
    }
    partials.length = kept;
    partials.push(x);
  }
  let total = partials.pop() ?? 0, rest = 0;
  while (partials.length && !rest) {
    const x = total, y = partials.pop();
    total = x + y;
    rest = y - (total - x);
  }
  // Half of the last digit is rounded by what is below it.
  if (partials.length && rest * partials.at(-1) > 0 && total + 2 * rest - total === 2 * rest) total += 2 * rest;
  return total;
}

export const finite = (value) => (Number.isFinite(value) ? value : null);
export const bounded = (value) => Math.max(-MOST, Math.min(MOST, value));

export function mean(values) {
  if (!values.length) return null;
  const total = sum(values, 1);
  return Number.isFinite(total) ? total / values.length : bounded((sum(values, LARGE) / values.length) * LARGE);
}

// Of the mean of all numbers in the clusters, such as the rewards of tasks: over clusters, since the numbers of one are
// not independent (Miller 2024; the formula is at `Clusters` in gym_runtime/statistics.py).
export function standardError(clusters) {
  const filled = clusters.filter((one) => one.length), all = filled.flat();
  if (filled.length < 2) return null;
  const unit = all.reduce((most, one) => Math.max(most, Math.abs(one)), 0) || 1, middle = mean(all) / unit;
  let squares = 0;
  for (const one of filled) squares += (sum(one.map((value) => value / unit - middle), 1) / all.length) ** 2;
  return finite(Math.sqrt((squares * filled.length) / (filled.length - 1)) * unit);
}

// What sums of any of the values need as a unit, so that they are numbers.
export const unitOf = (values) => (values.reduce((most, one) => Math.max(most, Math.abs(one)), 0) < 2 ** 900 ? 1 : LARGE);

// What differs between two texts, word by word: the longest common sequence, within what their ends do not share.
const MOST_PRODUCT = 4e6; // words of one times words of the other; beyond that the middles are taken as different

// -> [{ kind: "same" | "only a" | "only b", text }]
export function difference(a, b) {
  const x = words(a), y = words(b), found = [];
  let start = 0, ends = 0;
  while (start < x.length && start < y.length && x[start] === y[start]) start++;
  while (ends < x.length - start && ends < y.length - start && x[x.length - 1 - ends] === y[y.length - 1 - ends]) ends++;
  const add = (kind, text) => {
    if (!text) return;
    if (found.at(-1)?.kind === kind) found.at(-1).text += text;
    else found.push({ kind, text });
  };
  add("same", x.slice(0, start).join(""));
  middle(x.slice(start, x.length - ends), y.slice(start, y.length - ends), add);
  add("same", x.slice(x.length - ends).join(""));
  return found;
}

const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

function middle(x, y, add) {
  const n = x.length, m = y.length;
  if (!n || !m || n * m > MOST_PRODUCT) return add("only a", x.join("")), add("only b", y.join(""));
  // common[i * (m + 1) + j]: the length of the longest common sequence of x from i on and y from j on.
  const common = new Uint16Array((n + 1) * (m + 1)), at = (i, j) => common[i * (m + 1) + j];
  for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) common[i * (m + 1) + j] = x[i] === y[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  let i = 0, j = 0;
  while (i < n && j < m) {
    if (x[i] === y[j]) add("same", x[i++]), j++;
    else if (at(i + 1, j) >= at(i, j + 1)) add("only a", x[i++]);
    else add("only b", y[j++]);
  }
  add("only a", x.slice(i).join(""));
  add("only b", y.slice(j).join(""));
}

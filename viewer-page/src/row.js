// One row's conversation as a list of items to draw. What its verdict rests on, the turns and the errors of tools are
// in its card, which gym_view/row.py makes.

export const text = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 1) ?? ""));
// Rows come from models, tools and other programs: any field may have any type.
const object = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value : []);

// The conversation: [{ kind, role, name, turn, parts, raw, error }]; turn 0 is the prompt.
export function conversation(row, card) {
  return [...prompt(row).map((item) => shown(item, card)), ...output(row, card)];
}

function prompt(row) {
  const params = object(row.responses_create_params), input = params.input ?? [];
  const items = typeof input === "string" ? [{ role: "user", content: input }] : list(input);
  const told = params.instructions ? [{ role: "system", content: params.instructions }] : [];
  return [...told, ...items].map((item) => view(object(item), { turn: 0 }));
}

export const output = (row, card) => list(row.response?.output).map((item, at) => view(object(item), card.marks[at] ?? { turn: 0 })).map((item) => shown(item, card));

// Images that are files beside the rows come with the card.
const shown = (item, { images }) => ({ ...item, parts: item.parts.map((part) => (part.kind === "image" && Object.hasOwn(images, part.text) ? { ...part, text: images[part.text] } : part)) });

function view(item, { turn, error = "", tokens = null }) {
  const base = { turn, error, raw: item, role: text(item.role ?? "assistant"), name: text(item.name ?? ""), parts: [], tokens: tokensOf(item, tokens) };
  switch (item.type) {
    case "reasoning":
      return { ...base, kind: "reasoning", parts: [...parts(item.content), ...parts(item.summary)] };
    case "function_call":
      return { ...base, kind: "call", callId: item.call_id, parts: [{ kind: "json", text: pretty(item.arguments) }] };
    case "function_call_output":
      return { ...base, kind: "output", role: "tool", callId: item.call_id, parts: toolParts(item.output) };
    case "message":
    case undefined:
      return { ...base, kind: "message", parts: parts(item.content).flatMap(thoughts), refusal: Array.isArray(item.content) && item.content.some((part) => part?.refusal) };
    default:
      return { ...base, kind: "other", name: text(item.type), parts: [{ kind: "json", text: JSON.stringify(item, null, 2) }] };
  }
}

function parts(content) {
  if (content === null || content === undefined) return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  if (!Array.isArray(content)) return [{ kind: "json", text: JSON.stringify(content, null, 2) }];
  return content.map((part) => {
    if (typeof part === "string") return { kind: "text", text: part };
    const image = part?.image_url?.url ?? part?.image_url;
    if (typeof image === "string") return { kind: "image", text: image };
    if (typeof part?.text === "string") return { kind: "text", text: part.text };
    if (typeof part?.refusal === "string") return { kind: "text", text: part.refusal };
    return { kind: "json", text: JSON.stringify(part, null, 2) };
  });
}

// Thinking that a template left in the text.
function thoughts(part) {
  if (part.kind !== "text" || !part.text.includes("</think>")) return [part];
  const at = part.text.indexOf("</think>");
  const thought = part.text.slice(0, at).replace(/^\s*<think>/, "").trim(), rest = part.text.slice(at + 8).trim();
  return [...(thought ? [{ kind: "thought", text: thought }] : []), ...(rest ? [{ kind: "text", text: rest }] : [])];
}

function toolParts(given) {
  return typeof given === "string" ? [{ kind: "json", text: pretty(given) }] : parts(given);
}

// JSON whose numbers stay as they are written: of 12345678901234567890 a double has 17 digits. Browsers that do not say
// how a number is written give the double.
export const exact = (written) => JSON.parse(written, (_, value, context) => (typeof value === "number" && context?.source !== undefined && context.source !== String(value) && JSON.rawJSON ? JSON.rawJSON(context.source) : value));

export function pretty(given) {
  if (typeof given !== "string") return JSON.stringify(given, null, 2) ?? "";
  if (!/^\s*[[{]/.test(given) || given.length > 200_000) return given;
  try {
    return JSON.stringify(exact(given), null, 2);
  } catch {
    return given;
  }
}

function tokensOf(item, decoded) {
  // The Responses API has texts with their log-probabilities in the content, this runtime has ids beside it. `decoded`
  // are the texts of the ids, where the viewer has the tokenizer. Some engines write an id in a text's place.
  const written = list(item.content).flatMap((part) => list(part?.logprobs)).map(object), named = written.map(({ token }) => /^token_id:(\d+)$/.exec(token)?.[1]);
  const given = list(item.generation_token_ids), ids = given.length || named.includes(undefined) ? given : named.map(Number), count = ids.length || written.length;
  if (!count) return null;
  const whole = written.length === count, known = decoded?.length === count ? decoded : null, logprobs = list(item.generation_log_probs), others = ({ top_logprobs: top }) => list(top).map(object).map((one) => `${JSON.stringify(one.token)} ${Math.exp(Number(one.logprob)).toFixed(2)}`);
  return {
    ids, count, logprobs: (logprobs.length ? logprobs : whole ? written.map(({ logprob }) => logprob) : []).map(Number), prompt: list(item.prompt_token_ids).length,
    segment: item.token_segment ?? 0, versions: list(item.weight_versions),
    texts: whole && named.includes(undefined) ? written.map(({ token }) => text(token ?? "")) : known, others: whole ? written.map(others) : [],
  };
}

// The tokens of each model call: [{ turn, tokens, said }]. A call's ids are on its last item, and the texts may be on
// another one of its items; `said` is what all of them say.
export function callsOf(row, card) {
  const calls = [];
  for (const { turn, tokens, kind, role, name, parts } of output(row, card)) {
    if (role !== "assistant") continue;
    let call = calls.at(-1);
    if (call?.turn !== turn || call.tokens?.ids.length) calls.push((call = { turn, tokens: null, said: [] }));
    call.said.push(...(kind === "call" ? [`${name} ${parts[0].text}`] : parts.filter((part) => part.kind !== "image").map((part) => part.text)));
    const before = call.tokens;
    if (tokens && before && !(tokens.ids.length && before.count === tokens.count)) calls.push({ turn, tokens, said: [] });
    else if (tokens) call.tokens = before ? { ...tokens, texts: before.texts ?? tokens.texts, others: before.others, logprobs: tokens.logprobs.length ? tokens.logprobs : before.logprobs } : tokens;
  }
  return calls.filter(({ tokens }) => tokens);
}

// The place of the first item in which two conversations differ; -1 when one goes on as the other.
export function firstDifference(a, b) {
  const said = (item) => JSON.stringify([item.kind, item.role, item.name, item.parts]);
  for (let at = 0; at < Math.max(a.length, b.length); at++) if (!a[at] || !b[at] || said(a[at]) !== said(b[at])) return at;
  return -1;
}

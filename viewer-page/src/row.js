// One row taken apart: what its verdict rests on, and its conversation as a list of items.
// gym_view/row.py does the same for the terminal.

const OWN = new Set([
  "responses_create_params", "response", "reward", "reward_components", "agent_ref", "_ng_task_index", "_ng_rollout_index",
  "_gym", "_ng_failure", "_ng_failure_class", "_ng_failure_terminal", "_ng_failure_judge_error", "_ng_attempt_index",
]);
const FOUND = /^(extracted|predicted|parsed|model_(answer|output|patch)|actual|submitted|choice$)/;
const EXPECTED = /^(expected|gold|golden|reference|ground_truth|target|correct|solution$|answer$|label$)/;
const JUDGED = /judge|critique|explanation|rationale|feedback|notes$/;

export function card(row) {
  const own = object(row._gym), response = object(row.response), outcome = object(own.outcome);
  const fields = Object.entries(row).filter(([name]) => !OWN.has(name));
  const take = (pattern) => fields.filter(([name, value]) => pattern.test(name) && !JUDGED.test(name) && value !== null);
  const judged = fields.filter(([name, value]) => JUDGED.test(name) && value !== null && value !== "");
  const fault = row._ng_failure || outcome.fault ? object(row._ng_failure ?? outcome.fault) : null;
  const items = output(row);
  return {
    reward: typeof row.reward === "number" && !row._ng_failure_class ? row.reward : null,
    components: Object.entries(object(row.reward_components)).filter(([, value]) => typeof value === "number"),
    found: take(FOUND), expected: take(EXPECTED), judged: judged.flatMap(judgement),
    others: fields.filter(([name, value]) => !FOUND.test(name) && !EXPECTED.test(name) && !JUDGED.test(name) && isShort(value)),
    failure: row._ng_failure_class || fault ? { class: row._ng_failure_class ?? "", ...(fault ?? {}), message: fault?.message ?? row._ng_failure_judge_error ?? "" } : null,
    limits: [outcome.type === "truncated" ? outcome.reason : null, response.incomplete_details?.reason, response.error?.message].filter((one, at, all) => one && all.indexOf(one) === at).map(text),
    toolError: items.find((item) => item.error) ?? null,
    attempt: own.attempt ?? (row._ng_attempt_index ?? 0) + 1, again: list(own.started_anew).map(text),
    resumed: own.resumed_turns ?? 0, rebuilt: own.rebuilt_sessions ?? 0, versions: list(own.weight_versions),
    seconds: own.duration_s ?? 0, turns: own.turns ?? Math.max(0, ...items.map((item) => item.turn)), calls: own.tool_calls ?? items.filter((item) => item.kind === "call").length,
    usage: object(response.usage), model: text(response.model ?? ""), rolloutId: own.rollout_id ?? row._ng_rollout_id ?? "", timing: own.timing ?? null,
    refused: items.some((item) => item.refusal),
  };
}

const isShort = (value) => value !== null && (typeof value !== "object" ? String(value).length < 200 : JSON.stringify(value).length < 200);

// What a judge said: a text, or NeMo Gym's evaluations with the judge's whole answer in them.
function judgement([name, value]) {
  if (!Array.isArray(value)) return [{ name, label: "", text: text(value) }];
  return value.map((one, at) => ({
    name: value.length > 1 ? `${name} ${at + 1}` : name,
    label: String(one?.verdict_label ?? one?.verdict ?? one?.label ?? ""),
    text: list(one?.response?.output).map((item) => parts(item?.content).map((part) => part.text).join("")).join("\n") || text(one),
  }));
}

export const text = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 1) ?? ""));
// Rows come from models, tools and other programs: any field may have any type.
const object = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value : []);

// The conversation: [{ kind, role, name, turn, parts, raw, error }]; turn 0 is the prompt.
export function conversation(row) {
  return [...prompt(row), ...output(row)];
}

function prompt(row) {
  const params = object(row.responses_create_params), input = params.input ?? [];
  const items = typeof input === "string" ? [{ role: "user", content: input }] : list(input);
  const told = params.instructions ? [{ role: "system", content: params.instructions }] : [];
  return [...told, ...items].map((item) => view(object(item), 0));
}

export function output(row) {
  const items = list(row.response?.output).map(object);
  let turn = 1, answered = false;
  return items.map((item) => {
    const ours = item.type !== "function_call_output" && !(item.role && item.role !== "assistant");
    if (ours && answered) turn++;
    answered = ours ? item.generation_token_ids !== undefined : true;
    return view(item, turn);
  });
}

function view(item, turn) {
  const base = { turn, raw: item, role: text(item.role ?? "assistant"), name: text(item.name ?? ""), parts: [], error: "", tokens: tokensOf(item) };
  switch (item.type) {
    case "reasoning":
      return { ...base, kind: "reasoning", parts: [...parts(item.content), ...parts(item.summary)] };
    case "function_call":
      return { ...base, kind: "call", callId: item.call_id, parts: [{ kind: "json", text: pretty(item.arguments) }] };
    case "function_call_output":
      return { ...base, kind: "output", role: "tool", callId: item.call_id, parts: toolParts(item.output), error: toolError(item.output) };
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

export function pretty(given) {
  if (typeof given !== "string") return JSON.stringify(given, null, 2) ?? "";
  if (!/^\s*[[{]/.test(given) || given.length > 200_000) return given;
  try {
    return JSON.stringify(JSON.parse(given), null, 2);
  } catch {
    return given;
  }
}

// Why a tool's answer is an error, or nothing. Tools say so in many ways; these are the usual ones.
export function toolError(given) {
  const said = typeof given === "string" ? given : parts(given).map((part) => part.text).join("");
  if (/^\s*\{/.test(said)) {
    try {
      const answer = JSON.parse(said);
      const error = answer.error ?? answer.Error ?? answer.errors ?? (answer.success === false || answer.status === "error" ? (answer.message ?? "not successful") : null);
      return error && !(Array.isArray(error) && !error.length) ? firstLine(text(error)) : "";
    } catch {
      return "";
    }
  }
  return /^\s*("?(error|exception|traceback|failed|invalid)\b|[A-Za-z_.]*(Error|Exception)\b)/i.test(said) ? firstLine(said) : "";
}

const firstLine = (said) => said.trim().split("\n")[0].slice(0, 300);

function tokensOf(item) {
  const ids = item.generation_token_ids;
  if (!Array.isArray(ids)) return null;
  const written = Array.isArray(item.content) ? item.content.flatMap((part) => part?.logprobs ?? []) : [];
  return {
    ids, logprobs: Array.isArray(item.generation_log_probs) ? item.generation_log_probs : [], prompt: item.prompt_token_ids?.length ?? 0,
    segment: item.token_segment ?? 0, versions: list(item.weight_versions),
    texts: written.length === ids.length ? written.map((one) => String(one?.token ?? "")) : null,
  };
}

// The place of the first item in which two conversations differ; -1 when one goes on as the other.
export function firstDifference(a, b) {
  const said = (item) => JSON.stringify([item.kind, item.role, item.name, item.parts]);
  for (let at = 0; at < Math.max(a.length, b.length); at++) if (!a[at] || !b[at] || said(a[at]) !== said(b[at])) return at;
  return -1;
}

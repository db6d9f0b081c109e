// Every state of the page is an address: #/run/ID/rollouts/3.1?q=reward<1&sort=-time
import { signal } from "@preact/signals";

export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#?\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, params: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function format(parts, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(kept).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export const route = signal(parse(globalThis.location?.hash ?? ""));

export function go(parts, params = {}, replace = false) {
  const hash = format(parts, params);
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  route.value = parse(hash);
}

// The same page with some parameters changed; a new text in the filter does not make a new step back.
export function change(params, replace = true) {
  go(route.value.parts, { ...route.value.params, ...params }, replace);
}

export function href(changes) {
  return format(route.value.parts, { ...route.value.params, ...changes });
}

// Formulas of TeX as MathML, which browsers draw themselves: what mathematics in answers mostly uses. A formula with
// anything else in it is null, and is shown as it was written. No macros, no links, no HTML: nothing but symbols.
import { h } from "preact";

const LETTERS = { alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ϵ", varepsilon: "ε", zeta: "ζ", eta: "η", theta: "θ", vartheta: "ϑ", iota: "ι", kappa: "κ", lambda: "λ", mu: "μ", nu: "ν", xi: "ξ", pi: "π", rho: "ρ", sigma: "σ", tau: "τ", upsilon: "υ", phi: "ϕ", varphi: "φ", chi: "χ", psi: "ψ", omega: "ω", Gamma: "Γ", Delta: "Δ", Theta: "Θ", Lambda: "Λ", Xi: "Ξ", Pi: "Π", Sigma: "Σ", Phi: "Φ", Psi: "Ψ", Omega: "Ω", infty: "∞", ell: "ℓ", hbar: "ℏ", emptyset: "∅", varnothing: "∅", partial: "∂", nabla: "∇", degree: "°", ldots: "…", dots: "…", cdots: "⋯", vdots: "⋮" };
const SIGNS = { times: "×", cdot: "⋅", div: "÷", pm: "±", mp: "∓", le: "≤", leq: "≤", ge: "≥", geq: "≥", ne: "≠", neq: "≠", approx: "≈", equiv: "≡", sim: "∼", cong: "≅", propto: "∝", to: "→", rightarrow: "→", leftarrow: "←", Rightarrow: "⇒", implies: "⟹", iff: "⟺", Leftrightarrow: "⇔", mapsto: "↦", in: "∈", notin: "∉", subset: "⊂", subseteq: "⊆", cup: "∪", cap: "∩", setminus: "∖", forall: "∀", exists: "∃", neg: "¬", land: "∧", wedge: "∧", lor: "∨", vee: "∨", oplus: "⊕", otimes: "⊗", circ: "∘", ast: "∗", star: "⋆", mid: "∣", parallel: "∥", perp: "⊥", angle: "∠", triangle: "△", therefore: "∴", because: "∵", langle: "⟨", rangle: "⟩", lfloor: "⌊", rfloor: "⌋", lceil: "⌈", rceil: "⌉", lvert: "|", rvert: "|", vert: "|", "|": "‖", "{": "{", "}": "}", "%": "%", $: "$", "#": "#", "&": "&", _: "_", sum: "∑", prod: "∏", int: "∫", oint: "∮", bigcup: "⋃", bigcap: "⋂" };
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp min max sup inf lim gcd lcm det dim ker deg arg Pr mod".split(" "));
const SPACES = { ",": 0.17, ":": 0.22, ";": 0.28, "!": 0, " ": 0.25, quad: 1, qquad: 2 };
const ACCENTS = { hat: "^", widehat: "^", bar: "¯", overline: "¯", vec: "→", dot: "˙", tilde: "~", underline: "_" };
const TEXTS = new Set(["text", "textbf", "textit", "textrm", "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "mathbb", "mathcal", "operatorname", "mbox"]);
const FENCES = { matrix: "", pmatrix: "()", bmatrix: "[]", vmatrix: "||", cases: "{", aligned: "", align: "", "align*": "", array: "", gathered: "" };
const LIMITS = "∑∏⋃⋂";
const DEEPEST = 40, LONGEST = 4000;

// A vnode, or null for what is not understood.
export function math(source, block = false) {
  if (source.length > LONGEST) return null;
  const tokens = source.match(/\\[a-zA-Z]+\*?|\\[^]|\s+|\d+(?:\.\d+)?|[^]/gu) ?? [];
  try {
    const reader = new Reader(tokens), row = reader.row("");
    return reader.at < tokens.length ? null : h("math", block ? { display: "block" } : {}, row);
  } catch (error) {
    if (error !== UNKNOWN) throw error;
    return null;
  }
}

const UNKNOWN = new Error("no formula that is understood");

class Reader {
  constructor(tokens) {
    this.tokens = tokens;
    this.at = 0;
    this.depth = 0;
  }

  skip() {
    while (/^\s/.test(this.tokens[this.at] ?? "")) this.at++;
  }

  // Up to one of some tokens, or the end.
  row(...ends) {
    if (++this.depth > DEEPEST) throw UNKNOWN;
    const found = [];
    for (this.skip(); this.at < this.tokens.length && !ends.includes(this.tokens[this.at]); this.skip()) {
      const one = this.scripted();
      if (one) found.push(one);
    }
    this.depth--;
    return h("mrow", null, found);
  }

  scripted() {
    const base = "^_".includes(this.tokens[this.at]) ? h("mrow") : this.atom(), parts = {};
    for (this.skip(); "^_'".includes(this.tokens[this.at] ?? " "); this.skip()) {
      const kind = this.tokens[this.at++];
      if (kind === "'") parts["^"] = h("mo", null, "′");
      else parts[kind] = this.argument();
    }
    const { _: below, "^": above } = parts, limits = base?.props?.limits;
    if (!below && !above) return base;
    const name = below && above ? (limits ? "munderover" : "msubsup") : below ? (limits ? "munder" : "msub") : limits ? "mover" : "msup";
    return h(name, null, base, below, above);
  }

  argument() {
    this.skip();
    if (this.tokens[this.at] !== "{") return this.atom() ?? h("mrow");
    this.at++;
    const row = this.row("}");
    this.expect("}");
    return row;
  }

  expect(token) {
    if (this.tokens[this.at++] !== token) throw UNKNOWN;
  }

  // The words between braces, as they are.
  words() {
    this.skip();
    this.expect("{");
    let said = "";
    while (this.at < this.tokens.length && this.tokens[this.at] !== "}") {
      const token = this.tokens[this.at++];
      if (token === "{" || /^\\[a-zA-Z]/.test(token)) throw UNKNOWN;
      said += token.replace(/^\\/, "");
    }
    this.expect("}");
    return said;
  }

  atom() {
    const token = this.tokens[this.at++];
    if (token === undefined || "}&".includes(token)) throw UNKNOWN;
    if (token === "{") {
      const row = this.row("}");
      this.expect("}");
      return row;
    }
    if (!token.startsWith("\\")) return /^\d/.test(token) ? h("mn", null, token) : /^\p{L}/u.test(token) ? h("mi", null, token) : h("mo", /[()[\]|]/.test(token) ? { stretchy: "false" } : null, token === "-" ? "−" : token);
    const name = token.slice(1);
    if (Object.hasOwn(LETTERS, name)) return h("mi", null, LETTERS[name]);
    if (Object.hasOwn(SIGNS, name)) return h("mo", { limits: LIMITS.includes(SIGNS[name]) || undefined }, SIGNS[name]);
    if (Object.hasOwn(SPACES, name)) return h("mspace", { width: `${SPACES[name]}em` });
    if (FUNCTIONS.has(name)) return h("mi", { limits: name === "lim" || name === "max" || name === "min" || undefined }, name);
    if (TEXTS.has(name)) return h("mtext", name.endsWith("bf") ? { class: "strong" } : null, this.words());
    if (/^[dt]?frac$/.test(name)) return h("mfrac", null, this.argument(), this.argument());
    if (name === "binom") return h("mrow", null, h("mo", null, "("), h("mfrac", { linethickness: "0" }, this.argument(), this.argument()), h("mo", null, ")"));
    if (name === "boxed" || name === "fbox") {
      const inner = this.argument();
      if (inner.props.children?.length === 0) throw UNKNOWN; // a prompt that asks for an answer in \boxed{}
      return h("mrow", { class: "boxed" }, inner);
    }
    if (Object.hasOwn(ACCENTS, name)) return h(name === "underline" ? "munder" : "mover", null, this.argument(), h("mo", { stretchy: "true" }, ACCENTS[name]));
    if (name === "sqrt") return this.root();
    if (name === "left") return this.fenced();
    if (name === "begin") return this.table();
    if (name === "displaystyle" || name === "limits" || name === "nolimits" || /^[bB]ig+[lr]?$/.test(name)) return null;
    throw UNKNOWN;
  }

  root() {
    if (this.tokens[this.at] !== "[") return h("msqrt", null, this.argument());
    this.at++;
    const index = this.row("]");
    this.expect("]");
    return h("mroot", null, this.argument(), index);
  }

  fenced() {
    const fence = () => {
      const token = this.tokens[this.at++] ?? "";
      const sign = token.startsWith("\\") ? SIGNS[token.slice(1)] : token === "." ? "" : token;
      if (sign === undefined || sign.length > 1) throw UNKNOWN;
      return sign ? h("mo", { stretchy: "true" }, sign) : null;
    };
    const open = fence(), row = this.row("\\right");
    this.expect("\\right");
    return h("mrow", null, open, row, fence());
  }

  table() {
    const name = this.words(), fences = FENCES[name];
    if (!Object.hasOwn(FENCES, name)) throw UNKNOWN;
    if (name === "array") this.words();
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(h("mtd", null, this.row("&", "\\\\", "\\end")));
      const end = this.tokens[this.at++];
      if (end === "\\\\") rows.push([]);
      else if (end === "\\end") break;
      else if (end !== "&") throw UNKNOWN;
    }
    if (this.words() !== name) throw UNKNOWN;
    const left = /^(cases|align)/.test(name) ? { class: "left" } : null;
    return h("mrow", null, fences[0] ? h("mo", { stretchy: "true" }, fences[0]) : null, h("mtable", left, rows.map((cells) => h("mtr", null, cells))), fences[1] ? h("mo", { stretchy: "true" }, fences[1]) : null);
  }
}

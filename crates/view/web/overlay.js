// @ts-check
// Colours by a finding: verdict, relation, numbers, changes of a pass.
// Every class has a colour, a pattern and a sign of its own.
"use strict";

/**
 * @typedef {{color:string, fill:string, hatch:string, glyph:string}} Paint
 * @typedef {{name:string, paint:Paint, count:number}} Class
 */

/** Classes from harmless to severe: colour, pattern, sign. */
const LOOK = {
  related: ["#16a34a", "", "✓"], free: ["#64748b", "", ""], downstream: ["#d97706", "dots", "↓"],
  unmatched: ["#a855f7", "lines", "?"], guilty: ["#dc2626", "cross", "!"],
  new: ["#2563eb", "lines", "+"], changed: ["#d97706", "dots", "~"],
};
const PALETTE = ["#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d", "#be185d", "#475569", "#a16207"];
const HATCHES = ["", "lines", "dots", "back", "cross"];

/** @param {string} color @param {string} hatch @param {string} glyph @returns {Paint} */
function paint(color, hatch, glyph) {
  return { color, fill: `color-mix(in srgb, ${color} 22%, ${css("--box")})`, hatch, glyph };
}

class Overlay {
  /** @param {Graph} g @param {string} name @param {Float64Array} values NaN: none; higher counts more in groups
   *  @param {Class[]|null} classes of values 0, 1, ..; null: numbers */
  constructor(g, name, values, classes) {
    this.name = name;
    this.values = values;
    this.classes = classes;
    this.lo = Infinity;
    this.hi = -Infinity;
    for (const v of values) if (Number.isFinite(v)) { this.lo = Math.min(this.lo, v); this.hi = Math.max(this.hi, v); }
    // Errors spread over many magnitudes.
    this.log = this.lo >= 0 && this.hi > 0 && this.hi / Math.max(this.lo, this.hi * 1e-12) > 1e3;
    if (classes) for (const v of values) if (!Number.isNaN(v) && classes[v]) classes[v].count++;
    // Groups show the most severe of what they hold; called groups come first.
    const agg = new Float64Array(g.rows.length).fill(NaN);
    const worse = (/** @type {number} */ a, /** @type {number} */ b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b));
    this.inner = new Map();
    g.rows.forEach((r, k) => {
      let v = NaN;
      for (const it of r.items) {
        if (it < 0) { v = worse(v, agg[-1 - it]); continue; }
        v = worse(v, values[it]);
        const calls = g.calls.get(it);
        if (calls) {
          let c = values[it];
          for (const x of calls) c = worse(c, agg[g.comps[x]]);
          this.inner.set(it, c);
          v = worse(v, c);
        }
      }
      agg[k] = v;
    });
    this.agg = agg;
    /** @type {Map<number, Paint>} */ this.cache = new Map();
  }
  /** @param {number} i */
  node(i) { return this.look(this.inner.get(i) ?? this.values[i]); }
  /** @param {number} g */
  row(g) { return this.look(this.agg[g]); }
  /** @param {number} v 0..1 */
  scale(v) {
    if (!Number.isFinite(v)) return v > 0 ? 1 : 0;
    const f = this.log ? (x) => Math.log10(Math.max(x, this.hi * 1e-12)) : (/** @type {number} */ x) => x;
    const lo = f(this.lo), hi = f(this.hi);
    return hi > lo ? (f(v) - lo) / (hi - lo) : 1;
  }
  /** @param {number} v @returns {Paint|null} */
  look(v) {
    if (Number.isNaN(v)) return null;
    if (this.classes) return this.classes[v] ? this.classes[v].paint : null;
    const step = Math.round(this.scale(v) * 20);
    let p = this.cache.get(step);
    if (!p) {
      const t = step / 20;
      // Light to dark, so that it also reads in grey.
      const color = `hsl(${Math.round(55 - 55 * t)} 85% ${Math.round(62 - 30 * t)}%)`;
      p = { color, fill: `color-mix(in srgb, ${color} ${Math.round(25 + 60 * t)}%, ${css("--box")})`, hatch: "", glyph: t > 0.8 ? "▲" : "" };
      this.cache.set(step, p);
    }
    return p;
  }
  /** @param {number} i */
  text(i) {
    const v = this.values[i];
    if (Number.isNaN(v)) return "";
    return this.classes ? (this.classes[v] ? this.classes[v].name : "") : String(v);
  }
}

/** @param {string[]} names @returns {Class[]} */
function classes(names) {
  return names.map((n, k) => {
    const l = /** @type {Record<string, string[]>} */ (LOOK)[n];
    return { name: n, count: 0, paint: l ? paint(l[0], l[1], l[2]) : paint(PALETTE[k % PALETTE.length], HATCHES[Math.floor(k / 2) % HATCHES.length], "") };
  });
}

/** Relations of a report, by instruction number. */
class Relations {
  /** @param {any} report @param {Graph} base @param {Graph} dist */
  constructor(report, base, dist) {
    /** @type {Map<number, {to:number, text:string}[]>} */ this.toBase = new Map();
    /** @type {Map<number, {to:number, text:string}[]>} */ this.toDist = new Map();
    /** @type {Map<number, string>} */ this.standing = new Map();
    /** @type {Map<number, any[]>} */ this.raw = new Map();
    const add = (/** @type {number} */ d, /** @type {any[]} */ rels) => {
      for (const r of rels) {
        const b = base.find(r.base);
        if (b < 0) continue;
        const text = r.text || "";
        push(this.toBase, d, { to: b, text });
        push(this.toDist, b, { to: d, text });
        push(this.raw, d, r);
      }
    };
    const all = report.relations || report.outputs.filter((/** @type {any} */ o) => o.relation).map((/** @type {any} */ o) => ({ instruction: o.dist, standing: "related", to: [o.relation] }));
    for (const r of all) {
      const d = dist.find(r.instruction);
      if (d < 0) continue;
      this.standing.set(d, r.standing);
      add(d, r.to);
    }
    for (const [d, list] of this.raw) {
      const r = list[0];
      if (!r.dims || !r.dims.length || r.dims.some((/** @type {any} */ x) => x.kind === "other")) continue;
      const dims = r.dims.map((/** @type {any} */ x) => (x.kind === "sharded" ? x.axes.join("·") : ""));
      dist.derived.set(d, { kind: r.partial && r.partial.length ? "partial" : dims.some((/** @type {string} */ x) => x) ? "sharded" : "replicated", dims });
    }
    this.complete = !!report.relations;
    const name = report.repairs && report.repairs[0] ? report.repairs[0].instruction : report.frontier && report.frontier[0] ? report.frontier[0].instruction : null;
    this.guilty = name === null ? -1 : dist.find(name);
    if (report.verdict === "proved") this.guilty = -1;
  }
}

/** @template K, V @param {Map<K, V[]>} m @param {K} k @param {V} v */
function push(m, k, v) { const l = m.get(k); if (l) l.push(v); else m.set(k, [v]); }

/** All overlays of a graph. @param {App} app @param {Graph} g @param {number} side 0: baseline or only graph, 1: distributed */
function overlays(app, g, side) {
  /** @type {Map<string, () => Overlay>} */ const out = new Map();
  const rel = app.relations;
  const values = () => new Float64Array(g.n).fill(NaN);
  if (rel) {
    out.set("verdict", () => {
      const names = ["free", "related", "downstream", "unmatched", "guilty"], v = values();
      for (let i = 0; i < g.n; i++) {
        // A call is judged by what it calls.
        if (g.folded[i] || (g.calls.has(i) && !(side === 0 ? rel.toDist : rel.toBase).has(i))) continue;
        if (side === 0) v[i] = rel.toDist.has(i) ? 1 : rel.complete ? 3 : NaN;
        else { const s = rel.standing.get(i); v[i] = s === "related" ? 1 : s === "free" ? 0 : s === "unrelated" ? 3 : NaN; }
      }
      if (side === 1 && rel.guilty >= 0) {
        const stack = [rel.guilty];
        while (stack.length) for (const u of g.users(/** @type {number} */ (stack.pop()))) if (v[u] === 3) { v[u] = 2; stack.push(u); }
        v[rel.guilty] = 4;
      }
      return new Overlay(g, "verdict", v, classes(names));
    });
    out.set("relation", () => {
      const v = values(), names = /** @type {string[]} */ ([]);
      for (const [i, list] of side === 0 ? rel.toDist : rel.toBase) {
        const text = list[0].text.replace(/^%\S+\s*/, "").replace(/^elements of .*/, "re-indexed") || "same value";
        let k = names.indexOf(text);
        if (k < 0) { if (names.length > 24) continue; names.push(text); k = names.length - 1; }
        v[i] = k;
      }
      return new Overlay(g, "relation", v, classes(names));
    });
  }
  const rows = numberRows(app.facts.numbers);
  /** @type {Set<string>} */ const fields = new Set();
  for (const [, f] of rows.slice(0, 5000)) for (const k of Object.keys(f)) if (["number", "string", "boolean"].includes(typeof f[k])) fields.add(k);
  for (const field of fields) {
    out.set(field, () => {
      const v = values(), names = /** @type {string[]} */ ([]);
      const words = rows.some(([, f]) => typeof f[field] === "string" && Number.isNaN(toNumber(f[field])) && f[field] !== "NaN") || rows.every(([, f]) => typeof f[field] === "boolean");
      for (const [name, f] of rows) {
        const i = g.find(name);
        if (i < 0 || f[field] === null || f[field] === undefined) continue;
        if (words) {
          const t = String(f[field]);
          let k = names.indexOf(t);
          if (k < 0) { if (names.length > 40) continue; names.push(t); k = names.length - 1; }
          v[i] = k;
        } else v[i] = f[field] === "NaN" ? Infinity : toNumber(f[field]);
      }
      return new Overlay(g, field, v, words ? classes(names) : null);
    });
  }
  if (g.derived.size || g.badges.size) out.set("sharding", () => {
    const v = values(), names = ["replicated"];
    for (const i of [...g.badges.keys(), ...g.derived.keys()]) {
      const b = g.badge(i);
      if (!b) continue;
      const t = b.kind === "sharded" ? b.dims.map((d, k) => (d ? `dim ${k} over ${d}` : "")).filter((d) => d).join(", ") || "replicated" : b.kind;
      let k = names.indexOf(t);
      if (k < 0) { if (names.length > 24) continue; names.push(t); k = names.length - 1; }
      v[i] = k;
    }
    return new Overlay(g, "sharding", v, classes(names));
  });
  out.set("opcode kind", () => {
    const names = ["data movement", "elementwise", "reduction", "matrix product", "control", "collective"];
    const v = values();
    for (let i = 0; i < g.n; i++) {
      const op = g.op(i);
      v[i] = g.isCollective(i) ? 5 : /^(while|call|conditional|fusion|custom-call|async)/.test(op) ? 4 : /^(dot|convolution|ragged)/.test(op) ? 3 : /^(reduce|sort|scatter|select-and|topk|scan)/.test(op) ? 2
        : /^(reshape|broadcast|transpose|slice|concat|pad|copy|bitcast|tuple|get-tuple|gather|dynamic|reverse|iota|param|constant|opt-barrier)/.test(op) ? 0 : 1;
    }
    return new Overlay(g, "opcode kind", v, classes(names));
  });
  if (app.changes) {
    const c = app.changes;
    out.set("changed by this pass", () => new Overlay(g, "changed by this pass", c, classes(["changed", "new"])));
  }
  return out;
}

/** @param {any} x */
function toNumber(x) { return typeof x === "number" ? x : typeof x === "boolean" ? Number(x) : x === "Infinity" ? Infinity : x === "-Infinity" ? -Infinity : x === "" ? NaN : Number(x); }

/** The accepted forms of numbers as (name, fields). @param {any} x @returns {[string, any][]} */
function numberRows(x) {
  if (!x) return [];
  if (!Array.isArray(x)) for (const k of ["nodes", "instructions", "rows", "values"]) if (x[k] && typeof x[k] === "object") return numberRows(x[k]);
  /** @type {[string, any][]} */ const out = [];
  if (Array.isArray(x)) {
    for (const r of x) {
      if (!r || typeof r !== "object") continue;
      const name = r.instruction ?? r.name ?? r.node ?? r.dist;
      if (typeof name === "string") { const { instruction, name: n2, node, ...rest } = r; out.push([name.replace(/@\d+$/, ""), rest]); }
    }
  } else for (const [name, v] of Object.entries(x)) out.push([name, v && typeof v === "object" && !Array.isArray(v) ? v : { value: v }]);
  return out;
}

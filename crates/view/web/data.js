// @ts-check
// Reads what the page carries: facts and graphs, deflated and in base64.
"use strict";

/**
 * @typedef {{kind:number, comp:number, label:string, summary:string, count:number, size:number,
 *   items:number[], ports:string, layers:number[], places:number[], x:number[], routes:number[],
 *   lanes:number}} Row a group with its layout; see `tree_row` in encode.rs
 * @typedef {{file:string, line:number, func:string}} Frame
 */

/** @param {string} id @returns {Promise<any>} */
async function unpack(id) {
  const el = document.getElementById(id);
  if (!el) throw new Error(`the page has no ${id}`);
  const text = atob((el.textContent || "").trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

const KINDS = ["computation", "scope", "repeat", "block", "section"];

/** One module. Instructions are numbered as in the file that was read. */
class Graph {
  /** @param {any} c columns of encode.rs */
  constructor(c) {
    this.c = c;
    this.name = /** @type {string} */ (c.name);
    /** @type {string[]} */ this.names = c.names === "" ? [] : c.names.split("\n");
    this.n = /** @type {number} */ (c.op.length);
    /** @type {[string, number][]} */ this.mesh = c.mesh;
    this.first = new Uint32Array(this.n + 1);
    for (let i = 0; i < this.n; i++) this.first[i + 1] = this.first[i] + c.operands[i];
    this.to = new Uint32Array(c.deltas.length);
    for (let i = 0; i < this.n; i++)
      for (let k = this.first[i]; k < this.first[i + 1]; k++) this.to[k] = i - c.deltas[k];
    this.folded = new Uint8Array(this.n);
    for (const i of c.folded) this.folded[i] = 1;
    this.collectiveOps = new Set(/** @type {number[]} */ (c.collective));
    /** @type {Map<number, number[]>} */ this.calls = new Map();
    for (const r of c.calls) this.calls.set(r[0], r.slice(1));
    this.literals = new Map(/** @type {[number, number][]} */ (c.literals));
    this.badges = new Map(/** @type {[number, number][]} */ (c.shardings));
    this.groupsOf = new Map(/** @type {[number, number][]} */ (c.groups));
    this.reducers = new Map(/** @type {[number, number][]} */ (c.reducers));
    const s = c.strings;
    /** @type {Row[]} */
    this.rows = c.tree.map((/** @type {any[]} */ r) => ({
      kind: r[0], comp: r[1], label: s[r[2]], summary: s[r[3]], count: r[4], size: r[5], items: r[6],
      ports: r[7], layers: r[8], places: r[9], x: r[10], routes: r[11], lanes: r[12],
    }));
    /** @type {number[]} */ this.comps = c.comps;
    // Where each instruction and group stands.
    this.nodeRow = new Int32Array(this.n).fill(-1);
    this.nodePos = new Int32Array(this.n);
    this.rowParent = new Int32Array(this.rows.length).fill(-1);
    this.rowPos = new Int32Array(this.rows.length);
    this.rows.forEach((r, g) => r.items.forEach((it, k) => {
      if (it >= 0) { this.nodeRow[it] = g; this.nodePos[it] = k; }
      else { this.rowParent[-1 - it] = g; this.rowPos[-1 - it] = k; }
    }));
    /** @type {Map<number, number>} */ this.callSite = new Map();
    for (const [i, cs] of this.calls) for (const k of cs) if (!this.callSite.has(k)) this.callSite.set(k, i);
    /** @type {Uint32Array|null} */ this.userFirst = null;
    this.userTo = new Uint32Array(0);
    /** @type {Map<string, number>|null} */ this.byName = null;
    /** Shardings that the prover found. @type {Map<number, {kind:string, dims:string[]}>} */ this.derived = new Map();
  }
  /** @param {number} i */ op(i) { return /** @type {string} */ (this.c.opcodes[this.c.op[i]]); }
  /** @param {number} i */ shape(i) { return /** @type {string} */ (this.c.strings[this.c.shape[i]]); }
  /** @param {number} i */ attributes(i) { return /** @type {string} */ (this.c.strings[this.c.attributes[i]]); }
  /** @param {number} i */ isCollective(i) { return this.collectiveOps.has(this.c.op[i]); }
  /** @param {number} i */ operands(i) { return this.to.subarray(this.first[i], this.first[i + 1]); }
  /** @param {number} i */
  users(i) {
    if (!this.userFirst) {
      const f = new Uint32Array(this.n + 1);
      for (const o of this.to) f[o + 1]++;
      for (let k = 0; k < this.n; k++) f[k + 1] += f[k];
      const at = f.slice(), to = new Uint32Array(this.to.length);
      for (let k = 0; k < this.n; k++) for (const o of this.operands(k)) to[at[o]++] = k;
      this.userFirst = f;
      this.userTo = to;
    }
    const u = this.userTo.subarray(this.userFirst[i], this.userFirst[i + 1]);
    return Array.from(new Set(u));
  }
  /** @param {number} i */
  opName(i) {
    const m = this.c.meta[i];
    const s = m < 0 ? -1 : this.c.metas[m][0];
    return s < 0 ? "" : /** @type {string} */ (this.c.strings[s]);
  }
  /** @param {number} i @returns {Frame[]} innermost first */
  frames(i) {
    const m = this.c.meta[i];
    if (m < 0) return [];
    return this.c.metas[m][1].map((/** @type {number} */ k) => {
      const f = this.c.frames[k];
      return { file: this.c.strings[f[0]], line: f[1], func: this.c.strings[f[2]] };
    });
  }
  /** @param {number} i e.g. `model.py:43` */
  source(i) {
    const m = this.c.meta[i];
    if (m < 0 || !this.c.metas[m][1].length) return "";
    const f = this.c.frames[this.c.metas[m][1][0]];
    return base(this.c.strings[f[0]]) + ":" + f[1];
  }
  /** @param {number} i @returns {{kind:string, dims:string[]}|null} */
  badge(i) {
    const b = this.badges.get(i);
    const found = this.derived.get(i);
    if (b === undefined || (found && this.c.badges[b][0] === "manual")) return found || null;
    return { kind: this.c.badges[b][0], dims: this.c.badges[b][1] };
  }
  /** @param {number} i @returns {[boolean, number[][]]|null} pairs?, device ids */
  deviceGroups(i) {
    const g = this.groupsOf.get(i);
    return g === undefined ? null : this.c.grouping[g];
  }
  /** @param {number} i */
  literal(i) {
    const l = this.literals.get(i);
    return l === undefined ? "" : /** @type {string} */ (this.c.strings[l]);
  }
  /** @param {string} name */
  find(name) {
    if (!this.byName) {
      this.byName = new Map();
      for (let i = this.n - 1; i >= 0; i--)
        if (!this.byName.has(this.names[i]) || this.c.comp[i] === this.c.entry) this.byName.set(this.names[i], i);
    }
    const i = this.byName.get(name.replace(/^%/, ""));
    return i === undefined ? -1 : i;
  }
  /** What a folded instruction is, in a few characters. @param {number} i */
  tag(i) {
    for (let k = 0; k < 12; k++) {
      const op = this.op(i);
      if (op === "constant") {
        const l = this.literal(i) || "…";
        return l.length > 9 ? l.slice(0, 8) + "…" : l;
      }
      if (op === "iota") return "iota";
      if (op === "parameter") {
        // Arguments of the whole program have names; others share one.
        const own = this.c.comp[i] === this.c.entry && this.opName(i) && !this.opName(i).includes("/");
        const n = own ? this.opName(i) : this.names[i];
        return n.length > 14 ? n.slice(0, 13) + "…" : n;
      }
      if (op === "get-tuple-element" && this.op(this.operands(i)[0]) === "parameter") {
        const m = /index=(\d+)/.exec(this.attributes(i));
        return this.tag(this.operands(i)[0]) + "." + (m ? m[1] : "?");
      }
      i = this.operands(i)[0];
    }
    return "…";
  }
  /** Folded operands of a box. @param {number} i */
  tags(i) {
    const out = [];
    for (const o of this.operands(i)) if (this.folded[o] && !out.includes(o)) out.push(o);
    return out;
  }
  /** Every instruction of a group, called computations left out. @param {number} g @param {(i:number)=>void} f */
  each(g, f) {
    for (const it of this.rows[g].items) if (it >= 0) f(it); else this.each(-1 - it, f);
  }
}

/** Last part of a path. @param {string} p */
function base(p) { return p.split(/[\\/]/).pop() || p; }

/** @param {string} tag @param {Record<string, any>} [props] @param {(Node|string)[]} [kids] @returns {any} */
function el(tag, props = {}, kids = []) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k in e && k !== "list") /** @type {any} */ (e)[k] = v;
    else e.setAttribute(k, String(v));
  }
  e.append(...kids);
  return e;
}

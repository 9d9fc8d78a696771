// @ts-check
// Boxes that are visible, and where: groups are placed from the layout of
// layout.rs, pushed apart by what is open in them.
"use strict";

const HEAD = 24, PAD = 14, ROW_GAP = 34, COL_GAP = 18, LANE = 7, TAG = 15;
const GROUP_W = 190, GROUP_H = 44;

class Box {
  /** @param {Box|null} parent @param {string} key @param {number} node @param {number} row */
  constructor(parent, key, node, row) {
    this.parent = parent;
    this.key = key;
    /** Instruction, or -1. */ this.node = node;
    /** Group whose items are inside, or -1. */ this.row = row;
    this.x = 0; this.y = 0; this.w = 0; this.h = 0;
    /** @type {Box[]} by item */ this.kids = [];
    /** @type {Row|null} layout of the kids */ this.layout = null;
    /** Centre of each place. @type {Float32Array} */ this.px = new Float32Array(0);
    /** Top and bottom of each layer. @type {Float32Array} */ this.ly = new Float32Array(0);
    /** Layer of each place. @type {Uint32Array} */ this.pl = new Uint32Array(0);
    this.open = false;
    this.level = 0;
    this.inner = 0;
  }
}

/** Centres nearest to `want` at which boxes do not overlap, in order.
 * @param {number[]} want @param {number[]} w */
function spread(want, w) {
  const off = [], blocks = [];
  let at = 0;
  for (let k = 0; k < w.length; k++) {
    if (k) at += (w[k - 1] + w[k]) / 2 + COL_GAP;
    off.push(at);
    let s = want[k] - at, c = 1;
    while (blocks.length) {
      const [s2, c2] = blocks[blocks.length - 1];
      if (s2 / c2 <= s / c) break;
      s += s2; c += c2;
      blocks.pop();
    }
    blocks.push([s, c]);
  }
  const out = [];
  for (const [s, c] of blocks) for (let k = 0; k < c; k++) out.push(s / c + off[out.length]);
  return out;
}

/** All visible boxes of one graph. */
class Scene {
  /** @param {Graph} g @param {Set<string>} open keys of open boxes @param {boolean} tags @param {Row|null} focus */
  constructor(g, open, tags, focus) {
    this.g = g;
    this.openKeys = open;
    this.tags = tags;
    /** @type {Map<number, Box>} */ this.nodeBox = new Map();
    /** @type {Map<number, Box>} */ this.rowBox = new Map();
    /** @type {Box[]} */ this.boxes = [];
    const entry = g.comps[g.c.entry];
    this.root = new Box(null, "", -1, entry);
    this.root.open = true;
    if (focus) this.fill(this.root, focus); else this.fill(this.root, g.rows[entry]);
    this.shift(this.root, 0, 0);
  }
  /** @param {number} node */
  nodeSize(node) {
    const g = this.g;
    const shape = short(g.shape(node));
    const op = g.op(node).length + (this.g.reducers.has(node) ? 5 : 0);
    let w = Math.max(op * 7.2, shape.length * 6.4) + 22;
    let h = 34;
    const src = g.source(node);
    if (src) { h += 12; w = Math.max(w, src.length * 5.3 + 14); }
    const b = g.badge(node);
    if (b) { w += 6; h += 14; }
    if (this.tags) {
      const t = g.tags(node);
      if (t.length) {
        h += TAG + 2;
        let tw = 8;
        for (const o of t.slice(0, 3)) tw += g.tag(o).length * 5.6 + 14;
        w = Math.max(w, Math.min(tw, 230));
      }
    }
    return [Math.min(Math.max(w, 84), 250), h];
  }
  /** @param {Box} b */
  measure(b) {
    const g = this.g;
    this.boxes.push(b);
    if (b.node >= 0) {
      this.nodeBox.set(b.node, b);
      const calls = g.calls.get(b.node);
      if (calls && this.openKeys.has(b.key)) {
        b.open = true;
        if (calls.length === 1) { b.row = g.comps[calls[0]]; this.fill(b, g.rows[b.row]); }
        else this.fill(b, beside(calls.map((c) => -1 - g.comps[c])));
      } else [b.w, b.h] = this.nodeSize(b.node);
      return;
    }
    this.rowBox.set(b.row, b);
    const r = g.rows[b.row];
    if (this.openKeys.has(b.key)) { b.open = true; this.fill(b, r); }
    else {
      b.w = Math.min(270, Math.max(GROUP_W, r.summary.length * 5.8 + 24, r.label.length * 7 + 30));
      b.h = GROUP_H + (r.kind === 2 ? 6 : 0);
    }
  }
  /** Places the items of a layout in a box. @param {Box} b @param {Row} r */
  fill(b, r) {
    b.layout = r;
    b.kids = r.items.map((it, k) => {
      const kid = new Box(b, b.key + "/" + k, it >= 0 ? it : -1, it >= 0 ? -1 : -1 - it);
      kid.level = b.level + 1;
      this.measure(kid);
      return kid;
    });
    const n = r.layers.length - 1;
    b.px = new Float32Array(r.places.length);
    b.pl = new Uint32Array(r.places.length);
    b.ly = new Float32Array(2 * Math.max(n, 0));
    let y = b === this.root ? PAD : HEAD + PAD, lo = 0, hi = 0;
    for (let l = 0; l < n; l++) {
      const want = [], w = [];
      let h = 0, wires = 0;
      for (let p = r.layers[l]; p < r.layers[l + 1]; p++) {
        const it = r.places[p];
        b.pl[p] = l;
        want.push(r.x[p]);
        w.push(it >= 0 ? b.kids[it].w : 8);
        if (it >= 0) h = Math.max(h, b.kids[it].h); else wires++;
      }
      spread(want, w).forEach((x, k) => {
        const p = r.layers[l] + k, it = r.places[p];
        b.px[p] = x;
        lo = Math.min(lo, x - w[k] / 2);
        hi = Math.max(hi, x + w[k] / 2);
        if (it >= 0) { b.kids[it].x = x; b.kids[it].y = y; }
      });
      b.ly[2 * l] = y;
      b.ly[2 * l + 1] = y + h;
      y += h + ROW_GAP + Math.min(wires, 8) * 2;
    }
    if (n > 0) y -= ROW_GAP;
    const title = b.node >= 0 ? this.g.names[b.node].length * 7 + 90 : (b.row >= 0 ? this.g.rows[b.row].label.length * 7 + 150 : 0);
    b.inner = hi - lo + PAD * 2;
    b.w = Math.max(b.inner + r.lanes * LANE + (r.lanes ? PAD : 0), b === this.root ? 0 : Math.min(title, 400));
    b.h = y + PAD;
    const dx = PAD - lo;
    for (let p = 0; p < b.px.length; p++) b.px[p] += dx;
    for (const k of b.kids) k.x += dx - k.w / 2;
  }
  /** Relative to absolute. @param {Box} b @param {number} x @param {number} y */
  shift(b, x, y) {
    b.x += x;
    b.y += y;
    for (let p = 0; p < b.px.length; p++) b.px[p] += b.x;
    for (let l = 0; l < b.ly.length; l++) b.ly[l] += b.y;
    for (const k of b.kids) this.shift(k, b.x, b.y);
  }
  /** The innermost visible box that holds an instruction. @param {number} node @returns {Box|null} */
  rep(node) {
    const g = this.g;
    for (let step = 0; step < 200; step++) {
      if (g.folded[node]) {
        const u = g.users(node);
        const seen = this.nodeBox.get(u.find((x) => this.nodeBox.has(x)) ?? -1);
        if (seen) return seen;
        if (!u.length) return null;
        node = u[0];
        continue;
      }
      const b = this.nodeBox.get(node);
      if (b) return b;
      let r = g.nodeRow[node];
      while (r >= 0) {
        const x = this.rowBox.get(r);
        if (x) return x;
        r = g.rowParent[r];
      }
      const site = g.callSite.get(g.c.comp[node]);
      if (site === undefined) return null;
      node = site;
    }
    return null;
  }
  /** Keys to open so that an instruction is visible. @param {number} node @returns {string[]} */
  pathTo(node) {
    const g = this.g;
    for (let k = 0; k < 64 && g.folded[node]; k++) node = g.users(node)[0] ?? node;
    /** @type {number[][]} positions from the outermost, per computation */
    const parts = [];
    for (let step = 0; step < 200; step++) {
      const steps = [g.nodePos[node]];
      let r = g.nodeRow[node];
      if (r < 0) return [];
      while (g.rowParent[r] >= 0) { steps.unshift(g.rowPos[r]); r = g.rowParent[r]; }
      const comp = g.c.comp[node];
      if (comp === g.c.entry) { parts.unshift(steps); break; }
      const site = g.callSite.get(comp);
      if (site === undefined) return [];
      const calls = g.calls.get(site) || [];
      if (calls.length > 1) steps.unshift(calls.indexOf(comp));
      parts.unshift(steps);
      node = site;
    }
    const keys = [];
    let key = "";
    const flat = parts.flat();
    for (let k = 0; k < flat.length - 1; k++) { key += "/" + flat[k]; keys.push(key); }
    return keys;
  }
}

/** Items next to each other. @param {number[]} items @returns {Row} */
function beside(items) {
  return {
    kind: 0, comp: 0, label: "", summary: "", count: 1, size: 0, items, ports: "0".repeat(items.length),
    layers: [0, items.length], places: items.map((_, k) => k), x: items.map((_, k) => k * 220), routes: [], lanes: 0,
  };
}

/** A layered layout of a few instructions, in the form of layout.rs.
 * @param {Graph} g @param {number[]} nodes @returns {Row} */
function miniLayout(g, nodes) {
  const order = nodes.slice().sort((a, b) => a - b);
  const pos = new Map(order.map((n, k) => [n, k]));
  // Instruction numbers need not be topological: depth by search.
  /** @type {Map<number, number>} */ const depth = new Map();
  for (const start of order) {
    const stack = [start];
    while (stack.length) {
      const n = stack[stack.length - 1];
      if (depth.has(n)) { stack.pop(); continue; }
      let d = 0, wait = false;
      for (const o of g.operands(n)) {
        if (!pos.has(o)) continue;
        const v = depth.get(o);
        if (v === undefined) { stack.push(o); wait = true; } else d = Math.max(d, v + 1);
      }
      if (!wait) { depth.set(n, d); stack.pop(); }
    }
  }
  /** @type {number[][]} */ const rows = [];
  for (const n of order) {
    let d = depth.get(n) || 0;
    const users = g.users(n).filter((u) => pos.has(u)).map((u) => depth.get(u) || 0);
    if (!Array.from(g.operands(n)).some((o) => pos.has(o)) && users.length) d = Math.max(d, Math.min(...users) - 1);
    (rows[d] = rows[d] || []).push(n);
  }
  /** @type {Map<number, number>} */ const x = new Map();
  const used = rows.filter((r) => r && r.length);
  for (let sweep = 0; sweep < 4; sweep++) {
    const list = sweep % 2 ? used.slice().reverse() : used;
    for (const row of list) {
      const want = row.map((n, k) => {
        const near = (sweep % 2 ? g.users(n) : Array.from(g.operands(n))).filter((o) => x.has(o));
        return near.length ? near.reduce((s, o) => s + (x.get(o) || 0), 0) / near.length : (x.get(n) ?? k * 140);
      });
      const idx = row.map((_, k) => k).sort((a, b) => want[a] - want[b]);
      const sorted = idx.map((k) => row[k]);
      spread(idx.map((k) => want[k]), sorted.map(() => 130)).forEach((v, k) => x.set(sorted[k], v));
      row.splice(0, row.length, ...sorted);
    }
  }
  const layers = [0], places = /** @type {number[]} */ ([]), xs = /** @type {number[]} */ ([]);
  const at = new Map();
  for (const row of used) {
    for (const n of row) { at.set(n, places.length); places.push(pos.get(n) || 0); xs.push(x.get(n) || 0); }
    layers.push(places.length);
  }
  const routes = [];
  for (const n of order) for (const o of new Set(g.operands(n))) if (at.has(o)) routes.push(at.get(o), at.get(n), 1, 0);
  return { kind: 4, comp: 0, label: "focus", summary: "", count: 1, size: order.length, items: order, ports: "0".repeat(order.length), layers, places, x: xs, routes, lanes: 0 };
}

/** A shape in a few characters. @param {string} s */
function short(s) {
  if (s[0] !== "(") return s.length > 30 ? s.slice(0, 29) + "…" : s;
  let depth = 0, n = 1;
  for (const c of s) { if (c === "(" || c === "[") depth++; else if (c === ")" || c === "]") depth--; else if (c === "," && depth === 1) n++; }
  return s.length <= 26 ? s : `tuple of ${s === "()" ? 0 : n}`;
}

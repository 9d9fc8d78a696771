// @ts-check
// One canvas: camera, culling, drawing, minimap.
"use strict";

const AXIS_COLORS = ["#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d", "#be185d"];

/** Colours of the page. @param {string} name */
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function colors() {
  return {
    bg: css("--bg"), ink: css("--ink"), faint: css("--faint"), line: css("--line"), box: css("--box"),
    group: [css("--g0"), css("--g1")], collective: css("--coll"), accent: css("--accent"), partner: css("--partner"),
    edge: css("--edge"), tag: css("--tag"), call: css("--call"),
  };
}

class View {
  /** @param {Graph} g @param {HTMLElement} holder @param {App} app */
  constructor(g, holder, app) {
    this.g = g;
    this.app = app;
    this.holder = holder;
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { tabIndex: 0, className: "graph", "aria-label": "graph of " + g.name }));
    this.ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.mini = /** @type {HTMLCanvasElement} */ (el("canvas", { className: "mini", title: "whole graph; click to go there" }));
    this.caption = el("div", { className: "caption" });
    holder.append(this.canvas, this.mini, this.caption);
    this.cam = { x: 0, y: 0, s: 1 };
    /** @type {Set<string>} */ this.open = new Set();
    this.selected = -1;
    /** @type {number[]} */ this.partners = [];
    /** @type {Set<number>} */ this.hits = new Set();
    /** @type {Row|null} */ this.focus = null;
    /** @type {number[]} */ this.focusNodes = [];
    /** @type {Overlay|null} */ this.overlay = null;
    /** @type {HTMLCanvasElement|null} */ this.miniImage = null;
    this.miniScale = 1;
    this.pending = false;
    this.worst = 0;
    this.k = colors();
    this.openSome();
    this.scene = this.build();
    this.events();
  }
  colors() { this.k = colors(); }
  /** Opens groups from the outside while few boxes are visible. */
  openSome() {
    const g = this.g;
    let shown = g.rows[g.comps[g.c.entry]].items.length;
    /** @type {[string, number][]} */ let ring = g.rows[g.comps[g.c.entry]].items.map((it, k) => ["/" + k, it]);
    for (let depth = 0; depth < 6 && ring.length; depth++) {
      /** @type {[string, number][]} */ const next = [];
      for (const [key, it] of ring) {
        const calls = it >= 0 ? g.calls.get(it) : null;
        const row = it < 0 ? g.rows[-1 - it] : calls && calls.length === 1 ? g.rows[g.comps[calls[0]]] : null;
        // A wrapper around a single call opens whatever the size.
        const wrapper = calls && shown <= 16 && row && row.items.length <= 150 && ring.filter(([, x]) => g.calls.has(x)).length === 1;
        if (!row || row.kind === 2 || (!wrapper && (shown + row.items.length > 44 || (shown > 24 && depth > 0)))) continue;
        if (it >= 0 && g.op(it) === "fusion" && shown > 12) continue;
        this.open.add(key);
        shown += row.items.length;
        row.items.forEach((x, k) => next.push([key + "/" + k, x]));
      }
      ring = next;
    }
  }
  build() {
    const s = new Scene(this.g, this.open, this.app.tags, this.focus);
    this.miniImage = null;
    return s;
  }
  rebuild(/** @type {Box|null} */ anchor = null) {
    const key = anchor ? anchor.key : null;
    const before = anchor ? [anchor.x + anchor.w / 2, anchor.y] : null;
    this.scene = this.build();
    if (key !== null && before) {
      const now = this.scene.boxes.find((b) => b.key === key);
      if (now) { this.cam.x += now.x + now.w / 2 - before[0]; this.cam.y += now.y - before[1]; }
    }
    this.draw();
  }
  /** @param {Box} b */
  toggle(b) {
    if (!this.canOpen(b)) return;
    if (this.open.has(b.key)) this.open.delete(b.key);
    else {
      this.open.add(b.key);
      const row = b.row >= 0 ? this.g.rows[b.row] : null;
      // Of equal blocks the first stands for all.
      if (row && row.kind === 2 && row.items[0] < 0) this.open.add(b.key + "/0");
      const calls = b.node >= 0 ? this.g.calls.get(b.node) : null;
      if (calls && calls.length > 1) this.open.add(b.key + "/" + (calls.length - 1));
    }
    this.rebuild(b);
    this.app.remember();
  }
  /** @param {Box} b */
  canOpen(b) { return b.node >= 0 ? this.g.calls.has(b.node) : b !== this.scene.root; }
  size() { return [this.canvas.clientWidth, this.canvas.clientHeight]; }
  fit(/** @type {Box} */ b = this.scene.root, most = 1.1, least = 0.02) {
    const [w, h] = this.size();
    const s = Math.min(most, (w - 30) / b.w, (h - 60) / b.h);

    this.cam.s = Math.max(s, least);
    let cx = b.x + b.w / 2;
    if (b.w * this.cam.s > w && b.layout && b.kids.length) {
      const top = b.kids.filter((k) => b.ly[1] >= k.y);
      cx = top.reduce((a, k) => a + k.x + k.w / 2, 0) / top.length;
    }
    this.cam.x = cx - w / 2 / this.cam.s;
    // A graph that does not fit is read from its top.
    this.cam.y = s < least ? b.y - 30 / this.cam.s : b.y + b.h / 2 - h / 2 / this.cam.s;
    this.draw();
  }
  /** Centres a box. @param {Box} b */
  center(b) {
    const [w, h] = this.size();
    if (this.cam.s < 0.5 || this.cam.s > 2.5) this.cam.s = 0.9;
    this.cam.x = b.x + b.w / 2 - w / 2 / this.cam.s;
    this.cam.y = b.y + Math.min(b.h / 2, 80) - h / 2 / this.cam.s;
    this.draw();
  }
  /** Makes an instruction visible. @param {number} node */
  reveal(node, center = true) {
    if (this.focus && !this.scene.nodeBox.has(node)) { this.focus = null; this.focusNodes = []; this.scene = this.build(); }
    const keys = this.focus ? [] : this.scene.pathTo(node);
    if (keys.some((k) => !this.open.has(k))) {
      for (const k of keys) this.open.add(k);
      this.scene = this.build();
    }
    const b = this.scene.rep(node);
    if (b && center) this.center(b); else this.draw();
  }
  /** @param {number[]} nodes */
  focusOn(nodes) {
    this.focusNodes = nodes;
    this.focus = nodes.length ? miniLayout(this.g, nodes) : null;
    this.scene = this.build();
    this.fit();
  }
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const t = performance.now();
      this.paint();
      this.worst = Math.max(this.worst, performance.now() - t);
    });
  }
  paint() {
    const { ctx, cam } = this;
    const dpr = window.devicePixelRatio || 1;
    const [w, h] = this.size();
    if (this.canvas.width !== Math.round(w * dpr) || this.canvas.height !== Math.round(h * dpr)) {
      this.canvas.width = Math.round(w * dpr);
      this.canvas.height = Math.round(h * dpr);
    }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.fillStyle = this.k.bg;
    ctx.fillRect(0, 0, w, h);
    ctx.setTransform(dpr * cam.s, 0, 0, dpr * cam.s, -cam.x * cam.s * dpr, -cam.y * cam.s * dpr);
    this.vx0 = cam.x; this.vy0 = cam.y; this.vx1 = cam.x + w / cam.s; this.vy1 = cam.y + h / cam.s;
    ctx.textBaseline = "middle";
    ctx.lineJoin = "round";
    this.inside(this.scene.root);
    this.links();
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    this.paintMini(w, h);
  }
  /** @param {Box} b */
  hidden(b) { return b.x > /** @type {number} */ (this.vx1) || b.x + b.w < /** @type {number} */ (this.vx0) || b.y > /** @type {number} */ (this.vy1) || b.y + b.h < /** @type {number} */ (this.vy0); }
  /** Edges and kids of an open box. @param {Box} b */
  inside(b) {
    const r = b.layout;
    if (!r) return;
    const s = this.cam.s;
    if (s > 0.06) this.edges(b, r);
    const n = r.layers.length - 1;
    // First layer that ends below the top of the window.
    let lo = 0, hi = n;
    while (lo < hi) { const m = (lo + hi) >> 1; if (b.ly[2 * m + 1] < /** @type {number} */ (this.vy0)) lo = m + 1; else hi = m; }
    for (let l = lo; l < n && b.ly[2 * l] <= /** @type {number} */ (this.vy1); l++)
      for (let p = r.layers[l]; p < r.layers[l + 1]; p++) {
        const it = r.places[p];
        if (it >= 0) this.box(b.kids[it], r.ports[it]);
      }
  }
  /** @param {Box} b @param {Row} r */
  edges(b, r) {
    const { ctx } = this;
    const x0 = /** @type {number} */ (this.vx0), x1 = /** @type {number} */ (this.vx1), y0 = /** @type {number} */ (this.vy0), y1 = /** @type {number} */ (this.vy1);
    const R = r.routes;
    const side = b.x + b.inner;
    ctx.strokeStyle = this.k.edge;
    for (const [lo, hi, width] of [[1, 1, 1.1], [2, 4, 1.9], [5, Infinity, 3]]) {
      ctx.lineWidth = width;
      ctx.beginPath();
      for (let k = 0; k < R.length;) {
        const a = R[k], z = R[k + 1], v = R[k + 2], n = R[k + 3];
        const from = k + 4;
        k = from + Math.max(n, 0);
        if (v < lo || v > hi) continue;
        const A = b.kids[r.places[a]], Z = b.kids[r.places[z]];
        const ya = A.y + A.h, yz = Z.y;
        if (Math.max(ya, yz) < y0 || Math.min(ya, yz) > y1) continue;
        const xa = A.x + A.w / 2, xz = Z.x + Z.w / 2;
        if (n < 0) {
          // In a lane beside the boxes.
          const x = side + (-1 - n) * LANE;
          if (Math.max(x, xa, xz) < x0 || Math.min(xa, xz) > x1) continue;
          const da = b.ly[2 * b.pl[a] + 1] + 8, dz = b.ly[2 * b.pl[z]] - 8;
          ctx.moveTo(xa, ya);
          ctx.lineTo(xa, da - 4);
          ctx.quadraticCurveTo(xa, da, xa + 5, da);
          ctx.lineTo(x - 5, da);
          ctx.quadraticCurveTo(x, da, x, da + 5);
          ctx.lineTo(x, dz - 5);
          ctx.quadraticCurveTo(x, dz, x - 5, dz);
          ctx.lineTo(xz + 5, dz);
          ctx.quadraticCurveTo(xz, dz, xz, dz + 4);
          ctx.lineTo(xz, yz);
          continue;
        }
        if (Math.max(xa, xz) + 200 < x0 || Math.min(xa, xz) - 200 > x1) continue;
        let px = xa, py = ya;
        ctx.moveTo(px, py);
        // Down to the end of the layer, where neighbours may be taller.
        const end = b.ly[2 * b.pl[a] + 1];
        if (end - py > 6) { ctx.lineTo(px, end); py = end; }
        for (let q = from; q < from + n; q++) {
          const p = R[q], x = b.px[p], t = b.ly[2 * b.pl[p]], e = b.ly[2 * b.pl[p] + 1];
          const m = (py + t) / 2;
          ctx.bezierCurveTo(px, m, x, m, x, t);
          ctx.lineTo(x, e);
          px = x; py = e;
        }
        const m = (py + yz) / 2;
        ctx.bezierCurveTo(px, m, xz, m, xz, yz);
      }
      ctx.stroke();
    }
  }
  /** @param {Box} b @param {string} port */
  box(b, port) {
    if (this.hidden(b)) return;
    const { ctx, g, k } = this;
    const s = this.cam.s, px = b.h * s;
    if (px < 0.8) return;
    const o = this.overlay;
    const value = o ? (b.node >= 0 ? o.node(b.node) : o.row(b.row)) : null;
    const isGroup = b.node < 0;
    const coll = !isGroup && g.isCollective(b.node);
    const calls = !isGroup && g.calls.has(b.node);
    if (b.open) {
      ctx.fillStyle = k.group[b.level % 2];
      round(ctx, b.x, b.y, b.w, b.h, 8);
      ctx.fill();
      ctx.lineWidth = 1;
      ctx.strokeStyle = value ? value.color : k.line;
      if (value) ctx.lineWidth = 2;
      ctx.stroke();
      if (HEAD * s > 7) {
        ctx.fillStyle = k.ink;
        ctx.font = "600 12px system-ui, sans-serif";
        const label = isGroup ? this.groupLabel(b) : `${g.op(b.node)}  ${g.names[b.node]}`;
        ctx.fillText("▾ " + clip(label, b.w / 6.6), b.x + 8, b.y + HEAD / 2 + 1);
      }
      this.mark(b, 8);
      this.inside(b);
      return;
    }
    const radius = coll ? b.h / 2.6 : isGroup ? 8 : 3;
    if (isGroup && g.rows[b.row].kind === 2) {
      // Equal blocks look like a stack.
      ctx.strokeStyle = k.line;
      ctx.fillStyle = k.group[1];
      ctx.lineWidth = 1;
      for (const d of [6, 3]) { round(ctx, b.x + d, b.y + d, b.w - 6, b.h - 6, 8); ctx.fill(); ctx.stroke(); }
      round(ctx, b.x, b.y, b.w - 6, b.h - 6, 8);
    } else round(ctx, b.x, b.y, b.w, b.h, radius);
    ctx.fillStyle = value ? value.fill : coll ? k.collective : isGroup ? k.group[1] : calls ? k.call : k.box;
    ctx.fill();
    if (value && value.hatch && px > 5) { ctx.save(); ctx.clip(); hatch(ctx, b, value.hatch, value.color, s); ctx.restore(); round(ctx, b.x, b.y, b.w, b.h, radius); }
    ctx.lineWidth = coll ? 2 : 1;
    ctx.strokeStyle = value ? value.color : coll ? css2(this, "coll-line") : k.line;
    if (px > 3) ctx.stroke();
    this.mark(b, radius);
    if (px < 9) return;
    const cx = b.x + b.w / 2;
    ctx.fillStyle = k.ink;
    if (port === "1" || port === "3") { ctx.beginPath(); ctx.moveTo(b.x + 8, b.y); ctx.lineTo(b.x + 14, b.y); ctx.lineTo(b.x + 11, b.y + 5); ctx.fill(); }
    if (port === "2" || port === "3") { ctx.beginPath(); ctx.moveTo(b.x + b.w - 14, b.y + b.h); ctx.lineTo(b.x + b.w - 8, b.y + b.h); ctx.lineTo(b.x + b.w - 11, b.y + b.h + 5); ctx.fill(); }
    ctx.textAlign = "center";
    if (isGroup) {
      const r = g.rows[b.row], shift = r.kind === 2 ? -3 : 0;
      ctx.font = "600 12px system-ui, sans-serif";
      ctx.fillText("▸ " + clip(this.groupLabel(b), b.w / 6.6), cx + shift, b.y + 15);
      ctx.font = "11px system-ui, sans-serif";
      ctx.fillStyle = k.faint;
      if (px > 16) ctx.fillText(clip(r.summary, b.w / 5.6), cx + shift, b.y + 31);
    } else {
      let y = b.y;
      const tags = this.app.tags ? g.tags(b.node) : [];
      if (tags.length) { if (px > 18) this.tagRow(b, tags); y += TAG + 2; }
      ctx.fillStyle = k.ink;
      ctx.textAlign = "center";
      ctx.font = "600 12px system-ui, sans-serif";
      const red = g.reducers.get(b.node);
      const op = g.op(b.node) + (red === undefined ? "" : " " + g.c.strings[red]);
      ctx.fillText((calls ? "▸ " : coll ? "⇄ " : "") + clip(op, b.w / 6.8), cx, y + 12);
      ctx.font = "11px ui-monospace, monospace";
      ctx.fillStyle = k.faint;
      if (px > 14) ctx.fillText(clip(short(g.shape(b.node)), b.w / 6.4), cx, y + 26);
      y += 26;
      const src = g.source(b.node);
      if (src) {
        y += 12;
        if (px > 24) { ctx.font = "9.5px system-ui, sans-serif"; ctx.fillText(clip(src, b.w / 5), cx, y); }
      }
      const badge = g.badge(b.node);
      if (badge && px > 16) this.badge(badge, cx, y + 14);
    }
    ctx.textAlign = "left";
    if (value && value.glyph && px > 12) {
      ctx.fillStyle = value.color;
      ctx.beginPath();
      ctx.arc(b.x + b.w - 3, b.y + 3, 7, 0, 7);
      ctx.fill();
      ctx.fillStyle = "#fff";
      ctx.font = "700 11px system-ui, sans-serif";
      ctx.textAlign = "center";
      ctx.fillText(value.glyph, b.x + b.w - 3, b.y + 3.5);
      ctx.textAlign = "left";
    }
  }
  /** @param {Box} b */
  groupLabel(b) {
    const r = this.g.rows[b.row];
    if (r.kind === 0) return `${r.label} · ${r.size} instructions`;
    if (r.kind === 2) return `× ${r.count}  ${this.blockSize(r)}`;
    if (r.kind === 4) return `${r.label} · ${this.sourceRange(b.row) || r.size + " instructions"}`;
    return `${r.label} · ${r.size}`;
  }
  /** @param {Row} r */
  blockSize(r) { return `equal blocks of ${Math.round(r.size / r.count)}`; }
  /** Lines that most of a section comes from. @param {number} g */
  sourceRange(g) {
    const cache = /** @type {any} */ (this.g.rows[g]);
    if (cache.range !== undefined) return /** @type {string} */ (cache.range);
    /** @type {Map<string, [number, number, number]>} */ const files = new Map();
    this.g.each(g, (i) => {
      const m = /^(.*):(\d+)$/.exec(this.g.source(i));
      if (!m || m[2] === "0") return;
      const at = files.get(m[1]), l = Number(m[2]);
      if (at) { at[0]++; at[1] = Math.min(at[1], l); at[2] = Math.max(at[2], l); } else files.set(m[1], [1, l, l]);
    });
    let best = "", most = 0;
    for (const [f, [n, lo, hi]] of files) if (n > most) { most = n; best = lo === hi ? `${f}:${lo}` : `${f}:${lo}–${hi}`; }
    cache.range = best;
    return best;
  }
  /** @param {Box} b @param {number[]} tags */
  tagRow(b, tags) {
    const { ctx, g, k } = this;
    ctx.font = "10px ui-monospace, monospace";
    ctx.textAlign = "left";
    let x = b.x + 4;
    for (let t = 0; t < tags.length; t++) {
      const left = b.x + b.w - 4 - x;
      let text = g.tag(tags[t]);
      if (left < 24) break;
      if (t === tags.length - 1 ? false : left < 60) text = "+" + (tags.length - t);
      text = clip(text, (left - 8) / 6);
      const w = text.length * 6 + 8;
      const param = /parameter|get-tuple/.test(g.op(rootOf(g, tags[t])));
      ctx.fillStyle = this.selected === tags[t] ? k.accent : k.tag;
      round(ctx, x, b.y + 3, w, TAG - 2, param ? 6 : 1);
      ctx.fill();
      ctx.fillStyle = k.ink;
      ctx.fillText(text, x + 4, b.y + 10);
      x += w + 4;
      if (text.startsWith("+")) break;
    }
  }
  /** @param {{kind:string, dims:string[]}} badge @param {number} cx @param {number} y */
  badge(badge, cx, y) {
    const { ctx, k } = this;
    const cells = badge.dims.length && badge.kind !== "manual" && badge.kind !== "other" ? badge.dims : [badge.kind];
    const names = cells.map((d) => d || "·");
    if (badge.kind === "partial") names.push("Σ");
    ctx.font = "600 9px system-ui, sans-serif";
    const ws = names.map((n) => Math.max(13, n.length * 5.6 + 6));
    let x = cx - ws.reduce((a, b) => a + b + 2, 0) / 2;
    names.forEach((n, i) => {
      ctx.fillStyle = n === "·" || n === badge.kind ? k.tag : n === "Σ" ? "#b91c1c" : axisColor(this.g, n);
      ctx.fillRect(x, y - 6, ws[i], 12);
      ctx.fillStyle = n === "·" || n === badge.kind ? k.ink : "#fff";
      ctx.textAlign = "center";
      ctx.fillText(n, x + ws[i] / 2, y + 0.5);
      x += ws[i] + 2;
    });
  }
  /** Rings around what is selected, related or found. @param {Box} b @param {number} r */
  mark(b, r) {
    const { ctx, k } = this;
    const ring = (/** @type {string} */ c, /** @type {number} */ w, /** @type {number[]} */ dash) => {
      ctx.strokeStyle = c; ctx.lineWidth = w / Math.min(1, Math.max(this.cam.s, 0.15)); ctx.setLineDash(dash);
      round(ctx, b.x - 2, b.y - 2, b.w + 4, b.h + 4, r + 2);
      ctx.stroke();
      ctx.setLineDash([]);
    };
    if (this.selBox === b) ring(k.accent, 3, []);
    if (this.partnerBoxes && this.partnerBoxes.has(b)) ring(k.partner, 3, [7, 4]);
    if (b.node >= 0 && this.hits.has(b.node)) ring(k.accent, 1.5, [2, 3]);
  }
  refreshMarks() {
    this.selBox = this.selected >= 0 ? this.scene.rep(this.selected) : null;
    this.partnerBoxes = new Set(this.partners.map((p) => this.scene.rep(p)).filter((b) => b !== null));
  }
  /** Edges of the selection, over everything. */
  links() {
    this.refreshMarks();
    const { ctx, g, k } = this;
    const s = this.selBox;
    if (this.selected < 0 || !s) return;
    const line = (/** @type {Box} */ a, /** @type {Box} */ z, /** @type {string} */ color, /** @type {number[]} */ dash) => {
      if (a === z || inside(a, z) || inside(z, a)) return;
      const xa = a.x + a.w / 2, ya = a.y + a.h, xz = z.x + z.w / 2, yz = z.y;
      ctx.strokeStyle = color;
      ctx.fillStyle = color;
      ctx.lineWidth = 2 / Math.min(1, this.cam.s);
      ctx.setLineDash(dash);
      const d = Math.max(20, Math.min(120, Math.abs(yz - ya) / 2));
      ctx.beginPath();
      ctx.moveTo(xa, ya);
      ctx.bezierCurveTo(xa, ya + d, xz, yz - d, xz, yz - 3);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.moveTo(xz - 4, yz - 8); ctx.lineTo(xz + 4, yz - 8); ctx.lineTo(xz, yz);
      ctx.fill();
    };
    let count = 0;
    for (const o of g.operands(this.selected)) { const b = g.folded[o] ? null : this.scene.rep(o); if (b) line(b, s, k.accent, []); }
    for (const u of g.users(this.selected)) { if (count++ > 200) break; const b = this.scene.rep(u); if (b) line(s, b, k.accent, [6, 4]); }
  }
  /** @param {number} w @param {number} h */
  paintMini(w, h) {
    const c = this.mini, m = /** @type {CanvasRenderingContext2D} */ (c.getContext("2d"));
    const root = this.scene.root;
    const dpr = window.devicePixelRatio || 1;
    const W = 150, H = Math.max(60, Math.min(190, h * 0.34));
    const s = Math.min(W / root.w, H / root.h);
    const visible = this.app.minimap && h > 260;
    c.style.display = visible ? "" : "none";
    if (!visible) return;
    if (!this.miniImage || this.miniScale !== s || c.width !== Math.round(W * dpr) || c.height !== Math.round(H * dpr)) {
      c.width = Math.round(W * dpr);
      c.height = Math.round(H * dpr);
      c.style.width = W + "px";
      c.style.height = H + "px";
      this.miniImage = /** @type {HTMLCanvasElement} */ (el("canvas", { width: c.width, height: c.height }));
      this.miniScale = s;
      const m = /** @type {CanvasRenderingContext2D} */ (this.miniImage.getContext("2d"));
      m.setTransform(dpr, 0, 0, dpr, 0, 0);
      m.translate((W - root.w * s) / 2, (H - root.h * s) / 2);
      const all = this.scene.boxes, step = Math.max(1, Math.floor(all.length / 6000));
      for (let i = 0; i < all.length; i++) {
        const b = all[i];
        if (!b.open && i % step) continue;
        const o = this.overlay, v = o && !b.open ? (b.node >= 0 ? o.node(b.node) : o.row(b.row)) : null;
        m.fillStyle = v ? v.color : b.open ? this.k.group[b.level % 2] : b.node >= 0 && this.g.isCollective(b.node) ? css2(this, "coll-line") : this.k.faint;
        m.globalAlpha = b.open ? 1 : 0.75;
        m.fillRect(b.x * s, b.y * s, Math.max(1, b.w * s), Math.max(0.8, b.h * s));
      }
    }
    m.setTransform(1, 0, 0, 1, 0, 0);
    m.clearRect(0, 0, c.width, c.height);
    m.drawImage(/** @type {HTMLCanvasElement} */ (this.miniImage), 0, 0);
    m.setTransform(dpr, 0, 0, dpr, 0, 0);
    m.translate((W - root.w * s) / 2, (H - root.h * s) / 2);
    m.strokeStyle = this.k.accent;
    m.lineWidth = 1.5;
    m.strokeRect(this.cam.x * s, this.cam.y * s, (w / this.cam.s) * s, (h / this.cam.s) * s);
  }
  /** @param {number} mx @param {number} my @returns {{box:Box, tag:number}|null} */
  at(mx, my) {
    const x = this.cam.x + mx / this.cam.s, y = this.cam.y + my / this.cam.s;
    let b = this.scene.root;
    for (;;) {
      const k = b.kids.find((k) => x >= k.x && x <= k.x + k.w && y >= k.y && y <= k.y + k.h);
      if (!k) break;
      b = k;
      if (!b.open) break;
    }
    if (b === this.scene.root) return null;
    let tag = -1;
    if (b.node >= 0 && !b.open && this.app.tags && y < b.y + TAG) {
      let tx = b.x + 4;
      for (const t of this.g.tags(b.node)) {
        const w = this.g.tag(t).length * 6 + 8;
        if (x >= tx && x <= tx + w) { tag = t; break; }
        tx += w + 4;
      }
    }
    return { box: b, tag };
  }
  events() {
    const c = this.canvas;
    let drag = /** @type {{x:number, y:number, moved:boolean}|null} */ (null);
    c.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, y: e.clientY, moved: false }; c.setPointerCapture(e.pointerId); this.app.active = this; });
    c.addEventListener("pointermove", (e) => {
      if (!drag) return;
      const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
      if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
      drag = { x: e.clientX, y: e.clientY, moved: true };
      this.cam.x -= dx / this.cam.s;
      this.cam.y -= dy / this.cam.s;
      this.draw();
      this.app.follow(this);
    });
    c.addEventListener("pointerup", (e) => {
      const d = drag;
      drag = null;
      if (!d || d.moved) { this.app.remember(); return; }
      const r = c.getBoundingClientRect(), hit = this.at(e.clientX - r.left, e.clientY - r.top);
      if (!hit) this.app.select(this, -1);
      else if (hit.tag >= 0) this.app.select(this, hit.tag);
      else if (hit.box.node >= 0) this.app.select(this, hit.box.node);
      else { this.toggle(hit.box); this.app.showGroup(this, hit.box.row); }
    });
    c.addEventListener("dblclick", (e) => {
      const r = c.getBoundingClientRect(), hit = this.at(e.clientX - r.left, e.clientY - r.top);
      if (hit && hit.box.node >= 0) this.toggle(hit.box);
    });
    c.addEventListener("wheel", (e) => {
      e.preventDefault();
      const r = c.getBoundingClientRect();
      if (e.ctrlKey || e.metaKey || !e.shiftKey && Math.abs(e.deltaX) < 1 && e.deltaMode === 0 && Math.abs(e.deltaY) >= 50 || e.deltaMode !== 0) {
        const f = Math.exp(-Math.sign(e.deltaY) * Math.min(0.25, Math.abs(e.deltaY) / 400));
        this.zoom(f, e.clientX - r.left, e.clientY - r.top);
      } else {
        this.cam.x += e.deltaX / this.cam.s;
        this.cam.y += e.deltaY / this.cam.s;
      }
      this.draw();
      this.app.follow(this);
      this.app.remember();
    }, { passive: false });
    this.mini.addEventListener("pointerdown", (e) => {
      const r = this.mini.getBoundingClientRect(), root = this.scene.root, s = this.miniScale;
      const [w, h] = this.size();
      this.cam.x = (e.clientX - r.left - (r.width - root.w * s) / 2) / s - w / 2 / this.cam.s;
      this.cam.y = (e.clientY - r.top - (r.height - root.h * s) / 2) / s - h / 2 / this.cam.s;
      this.draw();
      this.app.follow(this);
    });
    new ResizeObserver(() => this.draw()).observe(c);
  }
  /** @param {number} f @param {number} mx @param {number} my */
  zoom(f, mx, my) {
    const s = Math.min(4, Math.max(0.01, this.cam.s * f));
    this.cam.x += mx / this.cam.s - mx / s;
    this.cam.y += my / this.cam.s - my / s;
    this.cam.s = s;
  }
}

/** @type {Map<string, string>} */ const cssCache = new Map();
/** @param {View} _ @param {string} name */
function css2(_, name) {
  const key = name + document.documentElement.dataset.theme;
  let v = cssCache.get(key);
  if (!v) cssCache.set(key, v = css("--" + name));
  return v;
}
/** @param {Graph} g @param {number} i */
function rootOf(g, i) { for (let k = 0; k < 12 && g.operands(i).length && g.folded[g.operands(i)[0]]; k++) i = g.operands(i)[0]; return i; }
/** @param {Graph} g @param {string} axis */
function axisColor(g, axis) {
  const first = axis.split("·")[0];
  const k = g.mesh.findIndex((m) => m[0] === first);
  return AXIS_COLORS[(k < 0 ? [...first].reduce((s, c) => s + c.charCodeAt(0), 0) : k) % AXIS_COLORS.length];
}
/** @param {Box} a @param {Box} z is a in z? */
function inside(a, z) { for (let b = a.parent; b; b = b.parent) if (b === z) return true; return false; }
/** @param {string} t @param {number} n */
function clip(t, n) { return t.length <= n ? t : n < 3 ? "" : t.slice(0, Math.floor(n) - 1) + "…"; }
/** @param {CanvasRenderingContext2D} c @param {number} x @param {number} y @param {number} w @param {number} h @param {number} r */
function round(c, x, y, w, h, r) { c.beginPath(); c.roundRect(x, y, w, h, Math.min(r, h / 2, w / 2)); }
/** Fills a clipped box with a pattern. @param {CanvasRenderingContext2D} c @param {Box} b @param {string} kind @param {string} color @param {number} s */
function hatch(c, b, kind, color, s) {
  c.strokeStyle = color;
  c.fillStyle = color;
  c.globalAlpha = 0.45;
  c.lineWidth = 1.2;
  const step = Math.max(7, 5 / s);
  c.beginPath();
  if (kind === "dots") {
    for (let y = b.y + 4; y < b.y + b.h; y += step) for (let x = b.x + 4; x < b.x + b.w; x += step) c.rect(x, y, 1.8, 1.8);
    c.fill();
  } else {
    for (let d = -b.h; d < b.w; d += step) {
      if (kind !== "back") { c.moveTo(b.x + d, b.y + b.h); c.lineTo(b.x + d + b.h, b.y); }
      if (kind !== "lines") { c.moveTo(b.x + d, b.y); c.lineTo(b.x + d + b.h, b.y + b.h); }
    }
    c.stroke();
  }
  c.globalAlpha = 1;
}

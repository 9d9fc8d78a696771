// @ts-check
// The page: tool bar, views, state.
"use strict";

const MAX_FOCUS = 400;

class App {
  /** @param {any} facts */
  constructor(facts) {
    this.facts = facts;
    /** @type {View[]} */ this.views = [];
    /** @type {Relations|null} */ this.relations = null;
    /** @type {Float64Array|null} */ this.changes = null;
    this.tags = true;
    this.minimap = true;
    this.inStep = true;
    this.pass = 0;
    this.overlayName = "";
    /** @type {{view:View, node:number}|null} */ this.pathFrom = null;
    /** @type {{view:View, node:number}[]} */ this.results = [];
    this.result = -1;
    /** @type {Map<number, Graph>} */ this.graphs = new Map();
    this.timer = 0;
    this.restoring = false;
    this.search = el("input", { type: "search", id: "search", placeholder: "Search: name, opcode, file.py:12, /regex/", autocomplete: "off", spellcheck: false, oninput: () => this.query(this.search.value, false), onkeydown: (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") { e.preventDefault(); this.next(e.shiftKey ? -1 : 1); } if (e.key === "Escape") { this.search.value = ""; this.query("", false); this.search.blur(); } } });
    this.count = el("span", { className: "faint", id: "count" });
    this.overlaySelect = el("select", { id: "overlay", title: "Colour by", onchange: () => this.setOverlay(this.overlaySelect.value) });
    this.legend = el("div", { id: "legend" });
    this.side = el("aside", { id: "panel" });
    this.holders = el("main", { id: "views" });
    this.stepBox = el("label", { title: "Scroll both graphs in step" }, [el("input", { type: "checkbox", checked: true, onchange: (/** @type {any} */ e) => { this.inStep = e.target.checked; } }), "in step"]);
    this.passBox = el("div", { id: "passes" });
    const themes = el("button", { title: "Light or dark (d)", onclick: () => this.theme() }, ["◐"]);
    const fit = el("button", { title: "Whole graph (f)", onclick: () => this.views.forEach((v) => { this.unfocus(v); v.fit(); }) }, ["⤢"]);
    const collapse = el("button", { title: "Close all groups", onclick: () => this.views.forEach((v) => { v.open.clear(); v.openSome(); v.rebuild(); v.fit(undefined, 1.1, 0.72); this.remember(); }) }, ["⊟"]);
    this.bar = el("header", {}, [el("strong", { id: "title", title: facts.title }, [facts.title]), this.search, this.count, el("label", {}, ["colour ", this.overlaySelect]), this.stepBox, collapse, fit, themes]);
    document.body.append(this.bar, this.passBox, el("div", { id: "body" }, [this.holders, this.side]), this.legend);
    /** @type {View} */ this.active = /** @type {any} */ (null);
  }
  /** @param {number} k */
  async graph(k) {
    let g = this.graphs.get(k);
    if (!g) { g = new Graph(await unpack("graph" + k)); this.graphs.set(k, g); }
    return g;
  }
  async start() {
    const passes = this.facts.passes.length > 0;
    const count = passes ? 1 : this.facts.graphs.length;
    const graphs = [];
    for (let k = 0; k < count; k++) graphs.push(await this.graph(k));
    if (count === 2 && this.facts.report && Array.isArray(this.facts.report.outputs)) this.relations = new Relations(this.facts.report, graphs[0], graphs[1]);
    this.stepBox.style.display = this.relations ? "" : "none";
    for (const g of graphs) {
      const holder = el("div", { className: "view" });
      this.holders.append(holder);
      this.views.push(new View(g, holder, this));
    }
    this.active = this.views[this.views.length - 1];
    this.passBox.style.display = passes ? "" : "none";
    if (passes) this.passBar();
    this.captions();
    this.listOverlays(this.relations ? "verdict" : "");
    // Readable first; `f` shows everything.
    this.views.forEach((v) => v.fit(undefined, 1.1, 0.72));
    this.panel(this.active);
    if (this.relations && this.relations.guilty >= 0) { this.select(this.views[1], this.relations.guilty, true); }
    document.addEventListener("keydown", (e) => this.key(e));
    window.addEventListener("hashchange", () => { if (location.hash.slice(1) !== this.written) this.restore(); });
    await this.restore();
    /** @type {any} */ (window).scalifyReady = performance.now();
    document.documentElement.dataset.ready = "1";
  }
  captions() {
    this.views.forEach((v, k) => {
      const role = this.views.length === 2 ? (k ? "distributed: " : "baseline: ") : "";
      v.caption.textContent = role + v.g.name + ` · ${v.g.n.toLocaleString("en")} instructions` + (v.focus ? ` · ${v.focusNodes.length} shown` : "");
    });
  }
  /** @param {string} first */
  listOverlays(first) {
    const names = new Set([""]);
    this.available = this.views.map((v, k) => overlays(this, v.g, k));
    for (const m of this.available) for (const n of m.keys()) names.add(n);
    this.overlaySelect.replaceChildren(...Array.from(names).map((n) => el("option", { value: n }, [n || "nothing"])));
    this.setOverlay(names.has(first) ? first : "");
  }
  /** @param {string} name */
  setOverlay(name) {
    this.overlayName = name;
    this.overlaySelect.value = name;
    this.views.forEach((v, k) => {
      const make = (this.available || [])[k].get(name);
      v.overlay = make ? make() : null;
      v.miniImage = null;
      v.draw();
    });
    this.legend.replaceChildren();
    const kinds = new Map();
    for (const v of this.views) {
      const o = v.overlay;
      if (!o) continue;
      if (o.classes) { for (const c of o.classes) if (c.count) { const at = kinds.get(c.name); if (at) at.count += c.count; else kinds.set(c.name, { paint: c.paint, count: c.count }); } }
      else if (o.hi >= o.lo) this.legend.append(el("span", {}, [o.name + (o.log ? " (log)" : "") + ": ", num(o.lo), " ", el("span", { className: "ramp" }), " ", num(o.hi)]));
    }
    for (const [n, c] of kinds) this.legend.append(el("span", {}, [el("i", { style: `background:${c.paint.fill};border-color:${c.paint.color};color:${c.paint.color}` }, [c.paint.glyph || " "]), `${n} ${c.count}`]));
    this.legend.style.display = this.legend.childNodes.length ? "" : "none";
    if (this.active) this.panel(this.active);
    this.remember();
  }
  /** @param {View} view @param {number} node */
  select(view, node, center = false) {
    this.active = view;
    view.selected = node;
    if (node >= 0) { if (center || !view.scene.nodeBox.has(node)) view.reveal(node, center); }
    if (this.views.length === 2) {
      const side = this.views.indexOf(view), other = this.views[1 - side];
      const rel = this.relations;
      const list = rel && node >= 0 ? ((side === 0 ? rel.toDist : rel.toBase).get(node) || []).map((r) => r.to) : [];
      other.partners = list;
      other.selected = -1;
      view.partners = [];
      if (list.length) other.reveal(list[0], true); else if (node >= 0) this.follow(view);
      other.draw();
    }
    this.panel(view);
    view.draw();
    this.remember();
  }
  /** @param {View} view @param {number} row */
  showGroup(view, row) { this.active = view; this.side.replaceChildren(...groupDetails(this, view, row)); }
  /** @param {View} view */
  panel(view) {
    this.side.replaceChildren(...(view.selected >= 0 ? details(this, view, view.selected) : moduleDetails(this, view)));
    this.captions();
  }
  /** @param {string} q */
  query(q, show = true) {
    if (show) this.search.value = q;
    this.results = [];
    this.result = -1;
    let error = "";
    for (const v of this.views) {
      const r = find(v.g, q, 5000);
      error = error || r.error;
      v.hits = new Set(r.hits);
      for (const n of r.hits) this.results.push({ view: v, node: n });
      v.draw();
    }
    this.count.textContent = q.trim() ? error || (this.results.length ? `${this.results.length}${this.results.length >= 5000 ? "+" : ""} found` : "nothing found") : "";
    if (show) this.next(1);
  }
  /** @param {number} step */
  next(step) {
    const n = this.results.length;
    if (!n) return;
    this.result = (this.result + step + n) % n;
    const r = this.results[this.result];
    this.select(r.view, r.node, true);
    this.count.textContent = `${this.result + 1} of ${n}`;
  }
  /** @param {View} view @param {number} node @param {number} hops */
  neighbourhood(view, node, hops) {
    view.focusOn(around(view.g, node, Math.max(1, Math.min(20, hops || 2)), MAX_FOCUS));
    this.panel(view);
    this.remember();
  }
  /** @param {View} view @param {number} a @param {number} b */
  paths(view, a, b) {
    const nodes = between(view.g, a, b, MAX_FOCUS);
    this.pathFrom = null;
    if (!nodes.length) { this.count.textContent = "no path between the two"; this.panel(view); return; }
    view.focusOn(nodes);
    this.panel(view);
    this.remember();
  }
  /** @param {View} view */
  unfocus(view) {
    if (!view.focus) return;
    view.focusOn([]);
    if (view.selected >= 0) view.reveal(view.selected);
    this.panel(view);
    this.remember();
  }
  /** Moves the other graph so that the same values are in the middle. @param {View} view */
  follow(view) {
    if (!this.inStep || !this.relations || this.views.length < 2) return;
    const side = this.views.indexOf(view), other = this.views[1 - side];
    const map = side === 0 ? this.relations.toDist : this.relations.toBase;
    const [w, h] = view.size();
    const cx = view.cam.x + w / 2 / view.cam.s, cy = view.cam.y + h / 2 / view.cam.s;
    let best = /** @type {Box[]|null} */ (null), dist = Infinity;
    for (const [n, b] of view.scene.nodeBox) {
      if (b.open) continue;
      const list = map.get(n);
      if (!list) continue;
      const d = Math.abs(b.x + b.w / 2 - cx) * 0.6 + Math.abs(b.y + b.h / 2 - cy);
      if (d < dist) { const p = other.scene.rep(list[0].to); if (p) { dist = d; best = [b, p]; } }
    }
    if (!best) return;
    const [b, p] = best, [w2, h2] = other.size();
    other.cam.s = view.cam.s;
    other.cam.x = p.x + p.w / 2 + (cx - (b.x + b.w / 2)) - w2 / 2 / other.cam.s;
    other.cam.y = p.y + p.h / 2 + (cy - (b.y + b.h / 2)) - h2 / 2 / other.cam.s;
    other.draw();
  }
  passBar() {
    const n = this.facts.passes.length;
    this.slider = el("input", { type: "range", id: "pass", min: 0, max: n - 1, value: 0, "aria-label": "pass", oninput: () => this.setPass(Number(this.slider.value)) });
    this.passName = el("span", { id: "passname" });
    this.passBox.replaceChildren(el("button", { title: "Pass before ([)", onclick: () => this.setPass(this.pass - 1) }, ["◂"]), this.slider, el("button", { title: "Next pass (])", onclick: () => this.setPass(this.pass + 1) }, ["▸"]), this.passName);
    this.passText("");
  }
  /** @param {string} change */
  passText(change) { this.passName.textContent = `${this.pass + 1} of ${this.facts.passes.length}: ${this.facts.passes[this.pass]}  ${change}`; }
  /** @param {number} k */
  async setPass(k) {
    k = Math.max(0, Math.min(this.facts.passes.length - 1, k));
    if (k === this.pass) return;
    this.pass = k;
    const ticket = (this.ticket = (this.ticket || 0) + 1);
    this.slider.value = String(k);
    const g = await this.graph(k), before = k > 0 ? await this.graph(k - 1) : null;
    if (ticket !== this.ticket) return;
    // Old passes are unpacked again when they are needed.
    for (const key of this.graphs.keys()) if (this.graphs.size > 6 && Math.abs(key - k) > 2) this.graphs.delete(key);
    const view = this.views[0];
    const name = view.selected >= 0 ? view.g.names[view.selected] : "";
    view.g = g;
    view.focus = null;
    let fresh = 0, changed = 0, gone = 0;
    this.changes = new Float64Array(g.n).fill(NaN);
    if (before) {
      for (let i = 0; i < g.n; i++) {
        const j = before.find(g.names[i]);
        if (j < 0) { this.changes[i] = 1; fresh++; }
        else if (signature(g, i) !== signature(before, j)) { this.changes[i] = 0; changed++; }
      }
      for (let j = 0; j < before.n; j++) if (g.find(before.names[j]) < 0) gone++;
    }
    view.open = new Set();
    view.openSome();
    view.scene = view.build();
    view.selected = name ? g.find(name) : -1;
    view.partners = [];
    const keep = this.overlayName;
    this.listOverlays(keep || "changed by this pass");
    view.fit(undefined, 1.1, 0.5);
    this.passText(before ? `· ${fresh} new, ${gone} gone, ${changed} changed` : "");
    this.panel(view);
    this.remember();
  }
  theme() {
    const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    cssCache.clear();
    for (const v of this.views) { v.colors(); v.miniImage = null; }
    this.setOverlay(this.overlayName);
  }
  /** @param {KeyboardEvent} e */
  key(e) {
    const t = /** @type {HTMLElement} */ (e.target);
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(t.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
    const v = this.active, [w, h] = v.size();
    const sel = v.selected;
    const go = (/** @type {number|undefined} */ n) => { if (n !== undefined && n >= 0) this.select(v, n, true); };
    switch (e.key) {
      case "/": this.search.focus(); this.search.select(); break;
      case "n": this.next(1); break;
      case "p": this.next(-1); break;
      case "f": this.views.forEach((x) => { this.unfocus(x); x.fit(); }); break;
      case "+": case "=": v.zoom(1.25, w / 2, h / 2); v.draw(); break;
      case "-": v.zoom(0.8, w / 2, h / 2); v.draw(); break;
      case "t": this.tags = !this.tags; this.views.forEach((x) => x.rebuild()); break;
      case "m": this.minimap = !this.minimap; this.views.forEach((x) => x.draw()); break;
      case "d": this.theme(); break;
      case "o": { const list = Array.from(this.overlaySelect.options).map((/** @type {any} */ x) => x.value); this.setOverlay(list[(list.indexOf(this.overlayName) + 1) % list.length]); break; }
      case "[": if (this.facts.passes.length) this.setPass(this.pass - 1); break;
      case "]": if (this.facts.passes.length) this.setPass(this.pass + 1); break;
      case "Tab": if (this.views.length < 2) return; this.active = this.views[1 - this.views.indexOf(v)]; this.panel(this.active); break;
      case "Escape": this.pathFrom = null; this.unfocus(v); this.select(v, -1); break;
      case "Enter": { const b = sel >= 0 ? v.scene.rep(sel) : null; if (b) v.toggle(b); break; }
      case "ArrowUp": if (sel < 0) { v.cam.y -= 80 / v.cam.s; v.draw(); } else go(Array.from(v.g.operands(sel)).find((o) => !v.g.folded[o]) ?? v.g.operands(sel)[0]); break;
      case "ArrowDown": if (sel < 0) { v.cam.y += 80 / v.cam.s; v.draw(); } else go(v.g.users(sel)[0]); break;
      case "ArrowLeft": case "ArrowRight": {
        const d = e.key === "ArrowLeft" ? -1 : 1;
        if (sel < 0) { v.cam.x += (d * 80) / v.cam.s; v.draw(); break; }
        const b = v.scene.nodeBox.get(sel), p = b && b.parent && b.parent.layout ? b.parent : null;
        if (!b || !p || !p.layout) break;
        const row = p.kids.filter((k) => Math.abs(k.y - b.y) < 1 && k.node >= 0).sort((x, y) => x.x - y.x);
        const at = row[row.indexOf(b) + d];
        if (at) go(at.node);
        break;
      }
      default: return;
    }
    e.preventDefault();
  }
  /** Writes the state into the address, a little later. */
  remember() {
    if (this.restoring) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const v = this.active, p = new URLSearchParams();
      if (!v) return;
      const k = this.views.indexOf(v);
      if (k) p.set("v", String(k));
      if (v.selected >= 0) p.set("s", v.g.names[v.selected]);
      if (this.overlayName) p.set("o", this.overlayName);
      if (this.pass) p.set("pass", String(this.pass));
      this.views.forEach((x, i) => {
        p.set("c" + i, [x.cam.x, x.cam.y].map((c) => c.toFixed(0)).join(",") + "," + x.cam.s.toFixed(3));
        const keys = Array.from(x.open).filter((a) => a).slice(0, 300).join(" ");
        p.set("e" + i, keys);
        if (x.focusNodes.length) p.set("f" + i, x.focusNodes.map((n) => n.toString(36)).join("."));
      });
      if (document.documentElement.dataset.theme) p.set("t", document.documentElement.dataset.theme);
      this.written = p.toString();
      try { history.replaceState(null, "", "#" + this.written); } catch (e) { /* a page without an address */ }
    }, 250);
  }
  async restore() {
    const p = new URLSearchParams(location.hash.slice(1));
    if (!Array.from(p.keys()).length) return;
    this.restoring = true;
    if (p.has("t")) { document.documentElement.dataset.theme = p.get("t") === "dark" ? "dark" : "light"; cssCache.clear(); this.views.forEach((v) => v.colors()); }
    if (p.has("pass") && this.facts.passes.length) await this.setPass(Number(p.get("pass")) || 0);
    this.setOverlay(Array.from(this.overlaySelect.options).some((/** @type {any} */ x) => x.value === p.get("o")) ? /** @type {string} */ (p.get("o")) : "");
    this.views.forEach((v, i) => {
      const keys = p.get("e" + i);
      if (keys !== null) v.open = new Set(keys.split(" ").filter((k) => k));
      const f = p.get("f" + i);
      v.focusNodes = f ? f.split(".").map((n) => parseInt(n, 36)).filter((n) => n >= 0 && n < v.g.n).slice(0, MAX_FOCUS) : [];
      v.focus = v.focusNodes.length ? miniLayout(v.g, v.focusNodes) : null;
      v.scene = v.build();
    });
    const v = this.views[Number(p.get("v")) || 0] || this.views[0];
    const s = p.get("s");
    if (s) this.select(v, v.g.find(s));
    this.views.forEach((x, i) => {
      const c = (p.get("c" + i) || "").split(",").map(Number);
      if (c.length === 3 && c.every(Number.isFinite) && c[2] > 0) x.cam = { x: c[0], y: c[1], s: Math.min(4, Math.max(0.01, c[2])) };
      x.draw();
    });
    this.restoring = false;
    this.panel(v);
  }
}

/** What an instruction does and reads, for comparing passes. @param {Graph} g @param {number} i */
function signature(g, i) { return g.op(i) + g.shape(i) + g.attributes(i) + Array.from(g.operands(i)).map((o) => g.names[o]).join(","); }
/** @param {number} v */
function num(v) { return Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Math.round(v * 1e4) / 1e4); }

(async () => {
  try {
    const facts = await unpack("facts");
    const app = new App(facts);
    /** @type {any} */ (window).scalify = app;
    await app.start();
  } catch (e) {
    document.body.append(el("pre", { className: "bad" }, ["The page cannot be shown: " + e]));
    throw e;
  }
})();

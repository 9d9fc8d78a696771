// @ts-check
// Details of what is selected.
"use strict";

/** @param {App} app @param {View} view @param {number} i */
function details(app, view, i) {
  const g = view.g;
  const link = (/** @type {number} */ n, /** @type {View} */ v = view) => el("a", { href: "#", className: "node", onclick: (/** @type {Event} */ e) => { e.preventDefault(); app.select(v, n, true); } }, [v.g.names[n]]);
  const out = [];
  out.push(el("h2", {}, [el("span", { className: "op" }, [g.op(i)]), " ", g.names[i]]));
  out.push(el("p", { className: "mono" }, [g.shape(i)]));
  if (view.overlay && view.overlay.text(i)) out.push(el("p", {}, [el("b", {}, [view.overlay.name + ": "]), view.overlay.text(i)]));
  const rel = app.relations;
  if (rel && app.views.length === 2) {
    const side = app.views.indexOf(view), other = app.views[1 - side];
    const list = (side === 0 ? rel.toDist : rel.toBase).get(i) || [];
    const box = el("section", {}, [el("h3", {}, [side === 0 ? "On the devices" : "In the baseline"])]);
    for (const r of list.slice(0, 30)) box.append(el("p", {}, [link(r.to, other), " ", el("span", { className: "faint" }, [r.text.replace(/^%\S+\s*/, "")])]));
    if (!list.length) box.append(el("p", { className: "faint" }, [side === 1 && rel.standing.get(i) === "free" ? "needs no counterpart" : "no counterpart found"]));
    if (rel.guilty === i && side === 1) box.append(el("p", { className: "bad" }, ["! " + guiltyText(app)]));
    out.push(box);
  }
  const groups = g.deviceGroups(i);
  if (groups) out.push(el("section", {}, [el("h3", {}, [groups[0] ? `${groups[1].length} pairs of devices` : `${groups[1].length} group${groups[1].length === 1 ? "" : "s"} of devices`]), meshPicture(g, groups)]));
  const badge = g.badge(i);
  if (badge) {
    const text = badge.kind === "sharded" || badge.kind === "partial" ? badge.dims.map((d, k) => `dimension ${k}: ${d ? "over " + d : "whole"}`).join("; ") + (badge.kind === "partial" ? "; partial values" : "") : badge.kind;
    out.push(el("section", {}, [el("h3", {}, ["Sharding"]), el("p", {}, [text])]));
  }
  const lit = g.literal(i);
  if (lit) out.push(el("section", {}, [el("h3", {}, ["Value"]), el("pre", {}, [lit])]));
  const ops = Array.from(g.operands(i)), users = g.users(i);
  const nodeList = (/** @type {string} */ title, /** @type {number[]} */ list) => {
    const ul = el("ol", { start: 0 });
    for (const n of list.slice(0, 100)) ul.append(el("li", {}, [link(n), " ", el("span", { className: "faint" }, [g.op(n) + " " + short(g.shape(n))])]));
    return el("section", {}, [el("h3", {}, [`${title} (${list.length})`]), ul]);
  };
  if (ops.length) out.push(nodeList("Operands", ops));
  if (users.length) out.push(nodeList("Users", users));
  const calls = g.calls.get(i);
  if (calls) out.push(el("p", {}, [`calls ${calls.map((c) => g.rows[g.comps[c]].label).join(", ")}`]));
  const attrs = g.attributes(i);
  if (attrs) out.push(el("section", {}, [el("h3", {}, ["Attributes"]), el("pre", {}, [attrs])]));
  if (g.opName(i)) out.push(el("section", {}, [el("h3", {}, ["op_name"]), el("p", { className: "mono" }, [g.opName(i)])]));
  const frames = g.frames(i);
  if (frames.length) {
    const sec = el("section", {}, [el("h3", {}, ["Source"])]);
    frames.forEach((f, k) => {
      sec.append(el("p", { className: "mono" }, [`${f.file}:${f.line}`, el("span", { className: "faint" }, [f.func ? "  in " + f.func : ""])]));
      const lines = (g.c.sources[f.file] || []).filter((/** @type {[number, string]} */ l) => Math.abs(l[0] - f.line) <= 2);
      if (lines.length && k < 3) sec.append(el("pre", { className: "code" }, lines.map((/** @type {[number, string]} */ l) => el("div", { className: l[0] === f.line ? "at" : "" }, [`${String(l[0]).padStart(4)}  ${l[1]}`]))));
    });
    out.push(sec);
  }
  const hops = el("input", { type: "number", min: 1, max: 20, value: 2, "aria-label": "steps" });
  const buttons = el("div", { className: "buttons" }, [
    el("button", { onclick: () => app.neighbourhood(view, i, Number(hops.value)) }, ["Show steps around"]), hops,
    el("button", { onclick: () => { app.pathFrom = { view, node: i }; app.panel(view); } }, ["Paths from here …"]),
  ]);
  if (app.pathFrom && app.pathFrom.view === view && app.pathFrom.node !== i)
    buttons.append(el("button", { onclick: () => app.paths(view, /** @type {any} */ (app.pathFrom).node, i) }, [`Paths ${g.names[app.pathFrom.node]} → here`]));
  if (view.focus) buttons.append(el("button", { onclick: () => app.unfocus(view) }, ["Whole graph"]));
  out.splice(2, 0, buttons);
  return out;
}

/** @param {App} app */
function guiltyText(app) {
  const r = app.facts.report;
  if (!r) return "";
  if (r.repairs && r.repairs[0]) return r.repairs[0].sentence;
  return r.frontier[0] ? r.frontier[0].reason : "";
}

/** @param {App} app @param {View} view @param {number} row */
function groupDetails(app, view, row) {
  const g = view.g, r = g.rows[row];
  const range = view.sourceRange(row);
  return [
    el("h2", {}, [el("span", { className: "op" }, [KINDS[r.kind]]), " ", r.label]),
    el("p", {}, [`${r.size} instructions, ${r.items.length} boxes: ${r.summary}`]),
    ...(range ? [el("p", { className: "mono" }, [range])] : []),
    el("div", { className: "buttons" }, [el("button", { onclick: () => { const b = view.scene.rowBox.get(row); if (b) view.fit(b, 1.4); } }, ["Zoom to it"])]),
    ...(r.kind === 2 ? [el("p", { className: "faint" }, ["The blocks do the same operations on the same shapes, wired the same way. The first is open, the others can be opened."])] : []),
  ];
}

/** What the whole module is. @param {App} app @param {View} view */
function moduleDetails(app, view) {
  const g = view.g;
  /** @type {Map<string, number>} */ const ops = new Map();
  for (let i = 0; i < g.n; i++) ops.set(g.op(i), (ops.get(g.op(i)) || 0) + 1);
  const top = Array.from(ops).sort((a, b) => b[1] - a[1]);
  const colls = top.filter(([o]) => Array.from(g.collectiveOps).some((k) => g.c.opcodes[k] === o));
  const report = app.facts.report;
  const out = [];
  if (report && app.views.length === 2) {
    const words = /** @type {Record<string, string>} */ ({ proved: "PROVED", refuted: "REFUTED", unknown: "UNKNOWN" });
    out.push(el("p", { className: "verdict " + report.verdict }, [words[report.verdict] + (report.grade ? ` (${report.grade})` : "")]));
    if (report.verdict !== "proved" && app.relations && app.relations.guilty >= 0) {
      const n = app.relations.guilty;
      out.push(el("p", {}, ["Look first at ", el("a", { href: "#", className: "node", onclick: (/** @type {Event} */ e) => { e.preventDefault(); app.select(app.views[1], n, true); } }, [app.views[1].g.names[n]]), ": " + guiltyText(app)]));
    }
    if (!report.relations) out.push(el("p", { className: "faint" }, ["The report holds no relations of single instructions: write it with verify --json --relations."]));
  }
  out.push(el("h2", {}, [g.c.module || g.name]));
  out.push(el("p", {}, [`${g.n.toLocaleString("en")} instructions in ${g.comps.length} computations`]));
  if (g.mesh.length) out.push(el("section", {}, [el("h3", {}, ["Mesh " + (g.mesh.filter((m) => m[1] > 1).map((m) => m.join("=")).join(", ") || "of one device")]), meshPicture(g, null)]));
  if (colls.length) out.push(el("section", {}, [el("h3", {}, ["Collectives"]), ...colls.map(([o, n]) => el("p", {}, [el("a", { href: "#", onclick: (/** @type {Event} */ e) => { e.preventDefault(); app.query("op:" + o); } }, [o]), ` ${n}`]))]));
  out.push(el("section", {}, [el("h3", {}, ["Opcodes"]), el("p", { className: "mono small" }, [top.slice(0, 24).map(([o, n]) => `${o} ${n}`).join(" · ")])]));
  out.push(el("section", { className: "help" }, [el("h3", {}, ["Keys"]), el("p", {}, ["/ search · n p next, previous hit · arrows move along edges · Enter open or close · f whole graph · + − zoom · t tags · m minimap · o next colouring · d dark · [ ] passes · Esc clear"]),
    el("p", {}, ["Double-click a call, loop or fusion to see inside. Drag to move, wheel to zoom. Small tags on a box are the parameters and constants it reads; triangles are values from or for elsewhere."])]));
  return out;
}

/** The mesh with the devices of each group in one colour and letter.
 * @param {Graph} g @param {[boolean, number[][]]|null} groups */
function meshPicture(g, groups) {
  const axes = g.mesh.filter((m) => m[1] > 1);
  const most = groups ? Math.max(0, ...groups[1].flat()) + 1 : 0;
  const n = Math.max(most, axes.reduce((a, m) => a * m[1], 1));
  const cols = axes.length && axes.reduce((a, m) => a * m[1], 1) === n ? axes[axes.length - 1][1] : Math.min(n, 8);
  if (n > 512) return el("p", { className: "faint" }, [`${n} devices; ` + (groups ? `first group ${groups[1][0].slice(0, 16).join(", ")}${groups[1][0].length > 16 ? ", …" : ""}` : "")]);
  const C = n > 64 ? 20 : 30, rows = Math.ceil(n / cols), L = 62, T = 16;
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("class", "mesh");
  svg.setAttribute("viewBox", `0 0 ${L + cols * C + 4} ${T + rows * C + 4}`);
  svg.setAttribute("width", String(Math.min(330, L + cols * C + 4)));
  const add = (/** @type {string} */ tag, /** @type {Record<string, string|number>} */ a, /** @type {string} */ text = "") => {
    const e = document.createElementNS(NS, tag);
    for (const [k, v] of Object.entries(a)) e.setAttribute(k, String(v));
    e.textContent = text;
    svg.append(e);
  };
  const of = new Map();
  if (groups && !groups[0]) groups[1].forEach((ids, k) => ids.forEach((d) => of.set(d, k)));
  const last = axes[axes.length - 1];
  if (last && cols === last[1]) add("text", { x: L, y: 11, class: "axis" }, `${last[0]} →`);
  for (let r = 0; r < rows; r++) {
    if (axes.length > 1 && cols === last[1]) {
      let rest = r;
      const c = [];
      for (let a = axes.length - 2; a >= 0; a--) { c.unshift(`${axes[a][0]}${rest % axes[a][1]}`); rest = Math.floor(rest / axes[a][1]); }
      add("text", { x: L - 6, y: T + r * C + C / 2 + 4, "text-anchor": "end", class: "axis" }, c.join(" "));
    }
    for (let c = 0; c < cols && r * cols + c < n; c++) {
      const d = r * cols + c, k = of.get(d);
      const x = L + c * C, y = T + r * C;
      add("rect", { x: x + 1, y: y + 1, width: C - 3, height: C - 3, rx: 3, fill: k === undefined ? "none" : PALETTE[k % PALETTE.length], "fill-opacity": 0.75, stroke: "currentColor", "stroke-opacity": 0.5 });
      add("text", { x: x + C / 2 - 0.5, y: y + C / 2 + (C > 24 ? 0 : 4), "text-anchor": "middle", class: k === undefined ? "dev" : "dev on" }, String(d));
      if (k !== undefined && C > 24) add("text", { x: x + C / 2 - 0.5, y: y + C - 6, "text-anchor": "middle", class: "dev on small" }, groupLetter(k));
    }
  }
  if (groups && groups[0]) {
    add("defs", {});
    for (const [s, d] of groups[1].slice(0, 128)) {
      const at = (/** @type {number} */ v) => [L + (v % cols) * C + C / 2, T + Math.floor(v / cols) * C + C / 2];
      const [x1, y1] = at(s), [x2, y2] = at(d);
      const mx = (x1 + x2) / 2 + (y2 - y1) * 0.25, my = (y1 + y2) / 2 - Math.abs(x2 - x1) * 0.3 + (x2 < x1 ? Math.abs(x2 - x1) * 0.6 : 0);
      add("path", { d: `M${x1} ${y1} Q${mx} ${my} ${x2} ${y2}`, class: "pair" });
      add("circle", { cx: x2, cy: y2, r: 3.4, class: "pairend" });
    }
  }
  return svg;
}
/** @param {number} k */
function groupLetter(k) { return k < 26 ? String.fromCharCode(97 + k) : "g" + k; }

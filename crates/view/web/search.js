// @ts-check
// Finding instructions; neighbourhoods and paths.
"use strict";

/** Instructions that match. `op:dot`, `/regular expression/`, `model.py:43`,
 * else a part of name, opcode, op_name or source line.
 * @param {Graph} g @param {string} q @param {number} limit @returns {{hits:number[], error:string}} */
function find(g, q, limit) {
  const hits = /** @type {number[]} */ ([]);
  q = q.trim();
  if (!q) return { hits, error: "" };
  let test;
  const re = /^\/(.*)\/([i]*)$/.exec(q) || (q.length > 1 && q[0] === "/" ? /^\/(.*)$/.exec(q) : null);
  if (re) {
    try {
      const r = new RegExp(re[1], re[2] || "");
      test = (/** @type {number} */ i) => r.test(g.names[i]) || r.test(g.op(i)) || r.test(g.opName(i)) || r.test(g.source(i));
    } catch (e) { return { hits, error: "not a regular expression" }; }
  } else if (q.startsWith("op:")) {
    const op = q.slice(3);
    test = (/** @type {number} */ i) => g.op(i) === op;
  } else if (/:\d+$/.test(q)) {
    const m = /** @type {RegExpExecArray} */ (/^(.*):(\d+)$/.exec(q));
    const line = Number(m[2]);
    test = (/** @type {number} */ i) => g.frames(i).some((f) => f.line === line && f.file.endsWith(m[1]));
  } else {
    const t = q.toLowerCase();
    const exact = g.find(q);
    if (exact >= 0) hits.push(exact);
    test = (/** @type {number} */ i) => i !== exact && (g.names[i].toLowerCase().includes(t) || g.op(i).includes(t) || g.opName(i).toLowerCase().includes(t) || g.source(i).toLowerCase().includes(t));
  }
  for (let i = 0; i < g.n && hits.length < limit; i++) if (test(i)) hits.push(i);
  return { hits, error: "" };
}

/** @param {Graph} g @param {number} from @param {number} hops @param {number} limit */
function around(g, from, hops, limit) {
  const seen = new Set([from]);
  let ring = [from];
  for (let h = 0; h < hops && seen.size < limit; h++) {
    const next = [];
    for (const n of ring) for (const o of [...g.operands(n), ...g.users(n)]) {
      if (seen.size >= limit) break;
      if (!seen.has(o)) { seen.add(o); next.push(o); }
    }
    ring = next;
  }
  return Array.from(seen);
}

/** Instructions on a path from a to b; also tried the other way round.
 * @param {Graph} g @param {number} a @param {number} b @param {number} limit */
function between(g, a, b, limit) {
  const reach = (/** @type {number} */ s, /** @type {(i:number)=>Iterable<number>} */ next) => {
    const seen = new Set([s]), stack = [s];
    while (stack.length) for (const o of next(/** @type {number} */ (stack.pop()))) if (!seen.has(o)) { seen.add(o); stack.push(o); }
    return seen;
  };
  let down = reach(a, (i) => g.users(i));
  if (!down.has(b)) { [a, b] = [b, a]; down = reach(a, (i) => g.users(i)); }
  if (!down.has(b)) return [];
  const up = reach(b, (i) => g.operands(i));
  return Array.from(down).filter((i) => up.has(i)).slice(0, limit);
}

"""Writes tests/bugs: reported faults of distributed and compiled graphs, rebuilt small.

    python tests/gen/bugs.py [--only ID]

Each case is a `Case` with one baseline, right programs and wrong ones, built with
the few HLO constructors below (shapes are inferred, and the line of the caller
becomes the instruction's source line). The cases are in bugs_*.py;
check_bugs.py confirms them with XLA and must be run after this script.
"""
import argparse
import glob
import importlib
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "bugs")
CASES = []


def prod(x):
    n = 1
    for k in x:
        n *= k
    return n


def shape(t, d):
    return f"{t}[{','.join(map(str, d))}]"


def parse_shape(s):
    t, d = re.fullmatch(r"(\w+)\[([\d,]*)\]", s).groups()
    return t, [int(k) for k in d.split(",") if k]


def ints(x):
    return "{" + ",".join(map(str, x)) + "}"


class V:
    """A value: element type `t`, dimensions `d`."""

    def __init__(self, b, name, t, d):
        self.b, self.name, self.t, self.d = b, name, t, list(d)

    def _bin(self, op, o, swap=False):
        if not isinstance(o, V):
            o = self.b.full(o, self.t, self.d)
        elif not o.d and self.d:
            o = self.b.bcast(o, self.d, [])
        elif not self.d and o.d:
            return self.b.bcast(self, o.d, [])._bin(op, o, swap)
        a, c = (o, self) if swap else (self, o)
        assert a.d == c.d and a.t == c.t, (op, a.t, a.d, c.t, c.d)
        return self.b.emit(op, a.t, a.d, [a, c])

    def __add__(self, o): return self._bin("add", o)
    def __radd__(self, o): return self._bin("add", o, True)
    def __sub__(self, o): return self._bin("subtract", o)
    def __rsub__(self, o): return self._bin("subtract", o, True)
    def __mul__(self, o): return self._bin("multiply", o)
    def __rmul__(self, o): return self._bin("multiply", o, True)
    def __truediv__(self, o): return self._bin("divide", o)
    def __rtruediv__(self, o): return self._bin("divide", o, True)
    def __mod__(self, o): return self._bin("remainder", o)
    def __and__(self, o): return self._bin("and", o)
    def __or__(self, o): return self._bin("or", o)
    def __xor__(self, o): return self._bin("xor", o)
    def __neg__(self): return self.b.un("negate", self)

    def max(self, o): return self._bin("maximum", o)
    def min(self, o): return self._bin("minimum", o)

    def cmp(self, direction, o):
        if not isinstance(o, V):
            o = self.b.full(o, self.t, self.d)
        elif not o.d and self.d:
            o = self.b.bcast(o, self.d, [])
        assert self.d == o.d and self.t == o.t
        return self.b.emit("compare", "pred", self.d, [self, o], f"direction={direction}")


class B:
    """One module under construction."""

    def __init__(self, name, mesh, at, replicas=False):
        self.at = at
        self.name, self.mesh, self.n = name, mesh, prod(mesh.values())
        self.replicas = replicas
        self.done, self.stack, self.count, self.channel = [], [[]], 0, 0
        self.helpers, self.bad = {}, []

    # --- emission

    def line(self):
        f = sys._getframe(1)
        while f and os.path.basename(f.f_code.co_filename) == "bugs.py":
            f = f.f_back
        if f is None:
            return self.at
        return "tests/gen/" + os.path.basename(f.f_code.co_filename), f.f_lineno

    def fresh(self, op):
        self.count += 1
        return f"{op}.{self.count}"

    def put(self, sh, op, args, attrs, name=None):
        name = name or self.fresh(op)
        file, at = self.line()
        attrs = f", {attrs}" if attrs else ""
        meta = f', metadata={{source_file="{file}" source_line={at}}}'
        self.stack[-1].append(f"  {name} = {sh} {op}({args}){attrs}{meta}")
        return name

    def emit(self, op, t, d, operands, attrs=""):
        return V(self, self.put(shape(t, d), op, ", ".join(o.name for o in operands), attrs), t, d)

    def guilty(self, v):
        """Marks the instruction that holds the fault."""
        self.bad.append(v.name)
        return v

    def root(self, vs):
        if len(vs) == 1 and any(ln.startswith(f"  {vs[0].name} = ") for ln in self.stack[-1][-1:]):
            self.stack[-1][-1] = "  ROOT" + self.stack[-1][-1][1:]
            return
        if len(vs) == 1:
            # The root is the last line; no copy is made.
            k = next(i for i, ln in enumerate(self.stack[-1]) if ln.startswith(f"  {vs[0].name} = "))
            ln = self.stack[-1][k]
            self.stack[-1][k] = "  ROOT" + ln[1:]
            return
        self.put(f"({', '.join(shape(v.t, v.d) for v in vs)})", "tuple", ", ".join(v.name for v in vs), "")
        self.stack[-1][-1] = "  ROOT" + self.stack[-1][-1][1:]

    def text(self):
        n = "" if self.n == 1 else f", replica_count={self.n}" if self.replicas else f", num_partitions={self.n}"
        return f"HloModule {self.name}{n}\n\n" + "\n".join(self.done)

    def close(self, name, entry=False):
        body = "\n".join(self.stack.pop())
        self.done.append(f"{'ENTRY ' if entry else ''}{name} {{\n{body}\n}}\n")

    def reducer(self, op, t):
        key = f"{op}_{t}"
        if key not in self.helpers:
            self.helpers[key] = key
            s = f"{t}[]"
            self.done.append(f"{key} {{\n  a.{key} = {s} parameter(0)\n  b.{key} = {s} parameter(1)\n"
                             f"  ROOT r.{key} = {s} {op}(a.{key}, b.{key})\n}}\n")
        return key

    # --- constants and shapes

    def const(self, v, t="f32"):
        """A constant from a number or nested lists."""
        def lit(x):
            if isinstance(x, (list, tuple)):
                return "{" + ", ".join(lit(k) for k in x) + "}"
            if t == "pred":
                return "true" if x else "false"
            if isinstance(x, float) and x in (float("inf"), float("-inf")):
                return "inf" if x > 0 else "-inf"
            return repr(float(x)) if t[0] in "fb" else str(int(x))
        d, x = [], v
        while isinstance(x, (list, tuple)):
            d.append(len(x))
            x = x[0]
        return V(self, self.put(shape(t, d), "constant", lit(v), ""), t, d)

    def full(self, v, t, d):
        c = self.const(v, t)
        return self.bcast(c, d, []) if d else c

    def zeros(self, s):
        return self.full(0, *parse_shape(s))

    def iota(self, s, dim=0):
        t, d = parse_shape(s)
        return self.emit("iota", t, d, [], f"iota_dimension={dim}")

    def bcast(self, x, d, dims):
        return self.emit("broadcast", x.t, d, [x], f"dimensions={ints(dims)}")

    def reshape(self, x, *d):
        assert prod(d) == prod(x.d), (x.d, d)
        return self.emit("reshape", x.t, d, [x])

    def tr(self, x, *p):
        return self.emit("transpose", x.t, [x.d[k] for k in p], [x], f"dimensions={ints(p)}")

    def slice(self, x, *lim):
        """`lim`: per dimension None, (lo, hi) or (lo, hi, step)."""
        lim = [(0, n, 1) if k is None else (*k, 1)[:3] for k, n in zip(list(lim) + [None] * len(x.d), x.d)]
        d = [-(-(h - lo) // s) for lo, h, s in lim]
        txt = "{" + ",".join(f"[{lo}:{h}{f':{s}' if s != 1 else ''}]" for lo, h, s in lim) + "}"
        return self.emit("slice", x.t, d, [x], f"slice={txt}")

    def starts(self, x, at, dim):
        z = None
        out = []
        for k in range(len(x.d)):
            if k == dim:
                out.append(at if isinstance(at, V) else self.const(at, "s32"))
            else:
                z = z or self.const(0, "s32")
                out.append(z)
        return out

    def ds(self, x, at, size, dim=0):
        """Dynamic slice along one dimension."""
        d = list(x.d)
        d[dim] = size
        return self.emit("dynamic-slice", x.t, d, [x] + self.starts(x, at, dim), f"dynamic_slice_sizes={ints(d)}")

    def dus(self, x, u, at, dim=0):
        return self.emit("dynamic-update-slice", x.t, x.d, [x, u] + self.starts(x, at, dim))

    def cat(self, xs, dim=0):
        d = list(xs[0].d)
        d[dim] = sum(x.d[dim] for x in xs)
        return self.emit("concatenate", xs[0].t, d, xs, f"dimensions={ints([dim])}")

    def pad(self, x, v, *lohi):
        lohi = list(lohi) + [(0, 0)] * (len(x.d) - len(lohi))
        d = [n + a + c for n, (a, c) in zip(x.d, lohi)]
        c = self.const(v, x.t)
        return self.emit("pad", x.t, d, [x, c], "padding=" + "x".join(f"{a}_{k}" for a, k in lohi))

    # --- arithmetic

    def un(self, op, x):
        return self.emit(op, x.t, x.d, [x])

    def exp(self, x): return self.un("exponential", x)
    def log(self, x): return self.un("log", x)
    def sqrt(self, x): return self.un("sqrt", x)
    def rsqrt(self, x): return self.un("rsqrt", x)
    def tanh(self, x): return self.un("tanh", x)
    def relu(self, x): return x.max(0)

    def conv(self, x, t):
        return x if x.t == t else self.emit("convert", t, x.d, [x])

    def where(self, p, a, c):
        ref = a if isinstance(a, V) else c
        d = p.d
        def fit(x):
            if not isinstance(x, V):
                return self.full(x, ref.t, d)
            return x if x.d == d else self.bcast(x, d, [])
        return self.emit("select", ref.t, d, [p, fit(a), fit(c)])

    def red(self, x, dims, op="add"):
        dims = [dims] if isinstance(dims, int) else list(dims)
        top = {"f32": "-inf", "bf16": "-inf", "s32": -2147483648, "u32": 0}
        init = {"add": 0, "multiply": 1, "maximum": top.get(x.t), "minimum": 2147483647 if x.t == "s32" else "inf"}[op]
        init = {"-inf": float("-inf"), "inf": float("inf")}.get(init, init)
        c = self.const(init, x.t)
        d = [n for k, n in enumerate(x.d) if k not in dims]
        return self.emit("reduce", x.t, d, [x, c], f"dimensions={ints(dims)}, to_apply={self.reducer(op, x.t)}")

    def dot(self, x, y, lc=None, rc=0, lb=(), rb=()):
        lc = [len(x.d) - 1] if lc is None else [lc] if isinstance(lc, int) else list(lc)
        rc = [rc] if isinstance(rc, int) else list(rc)
        assert [x.d[k] for k in lc] == [y.d[k] for k in rc], (x.d, lc, y.d, rc)
        assert [x.d[k] for k in lb] == [y.d[k] for k in rb]
        d = [x.d[k] for k in lb] + [n for k, n in enumerate(x.d) if k not in lc and k not in lb]
        d += [n for k, n in enumerate(y.d) if k not in rc and k not in rb]
        a = f"lhs_batch_dims={ints(lb)}, " if lb else ""
        c = f", rhs_batch_dims={ints(rb)}" if rb else ""
        return self.emit("dot", x.t, d, [x, y],
                         f"{a}lhs_contracting_dims={ints(lc)}{c}, rhs_contracting_dims={ints(rc)}")

    def softmax(self, s):
        k = len(s.d) - 1
        lead = list(range(k))
        e = self.exp(s - self.bcast(self.red(s, k, "maximum"), s.d, lead))
        return e / self.bcast(self.red(e, k), s.d, lead)

    def rows(self, w, ids):
        """w[ids] along dimension 0."""
        i = self.reshape(ids, *ids.d, 1)
        n = len(ids.d)
        d = ids.d + w.d[1:]
        return self.emit("gather", w.t, d, [w, i], f"offset_dims={ints(range(n, n + len(w.d) - 1))}, "
                         f"collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim={n}, "
                         f"slice_sizes={ints([1] + w.d[1:])}")

    def scatter_rows(self, z, ids, u, op="add"):
        """Combines rows of u into z at rows ids (one-dimensional)."""
        i = self.reshape(ids, *ids.d, 1)
        if op == "set":
            f, t = f"second_{z.t}", z.t
            if f not in self.helpers:
                self.helpers[f] = f
                self.done.append(f"{f} {{\n  a.{f} = {t}[] parameter(0)\n  ROOT b.{f} = {t}[] parameter(1)\n}}\n")
        else:
            f = self.reducer(op, z.t)
        return self.emit("scatter", z.t, z.d, [z, i, u], f"update_window_dims={ints(range(1, len(z.d)))}, "
                         f"inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, "
                         f"to_apply={f}")

    def sort_down(self, x, dim):
        f = f"gt_{x.t}"
        if f not in self.helpers:
            self.helpers[f] = f
            s = f"{x.t}[]"
            self.done.append(f"{f} {{\n  a.{f} = {s} parameter(0)\n  b.{f} = {s} parameter(1)\n"
                             f"  ROOT r.{f} = pred[] compare(a.{f}, b.{f}), direction=GT\n}}\n")
        return self.emit("sort", x.t, x.d, [x], f"dimensions={ints([dim])}, to_apply={f}")

    def argmax(self, x, i, dim):
        """(largest value, its index out of `i`; the least index of equal ones)."""
        f = f"argmax_{x.t}"
        if f not in self.helpers:
            self.helpers[f] = f
            s = f"{x.t}[]"
            self.done.append(
                f"{f} {{\n  v0 = {s} parameter(0)\n  i0 = s32[] parameter(1)\n  v1 = {s} parameter(2)\n"
                f"  i1 = s32[] parameter(3)\n  gt = pred[] compare(v0, v1), direction=GT\n"
                f"  eq = pred[] compare(v0, v1), direction=EQ\n  lt = pred[] compare(i0, i1), direction=LT\n"
                f"  tie = pred[] and(eq, lt)\n  first = pred[] or(gt, tie)\n  v = {s} select(first, v0, v1)\n"
                f"  i = s32[] select(first, i0, i1)\n  ROOT r = ({s}, s32[]) tuple(v, i)\n}}\n")
        d = [n for k, n in enumerate(x.d) if k != dim]
        c, z = self.const(float("-inf"), x.t), self.const(0, "s32")
        n = self.put(f"({shape(x.t, d)}, {shape('s32', d)})", "reduce", f"{x.name}, {i.name}, {c.name}, {z.name}",
                     f"dimensions={ints([dim])}, to_apply={f}")
        return self.gte(n, 0, x.t, d), self.gte(n, 1, "s32", d)

    def gte(self, name, k, t, d):
        return V(self, self.put(shape(t, d), "get-tuple-element", name, f"index={k}"), t, d)

    # --- control flow

    def region(self, name, vs, fn, single=False):
        """A computation of one tuple parameter (or one array)."""
        self.stack.append([])
        if single:
            x = vs[0]
            out = fn(V(self, self.put(shape(x.t, x.d), "parameter", "0", ""), x.t, x.d))
        else:
            sh = f"({', '.join(shape(v.t, v.d) for v in vs)})"
            p = self.put(sh, "parameter", "0", "")
            out = fn(*[self.gte(p, k, v.t, v.d) for k, v in enumerate(vs)])
        self.root(list(out) if isinstance(out, (list, tuple)) else [out])
        self.close(name)
        return out

    def loop(self, init, cond, body):
        """while cond(*state): state = body(*state)."""
        c, w = self.fresh("cond"), self.fresh("body")
        self.region(c, init, cond)
        self.region(w, init, body)
        sh = f"({', '.join(shape(v.t, v.d) for v in init)})"
        t = self.put(sh, "tuple", ", ".join(v.name for v in init), "")
        n = self.put(sh, "while", t, f"condition={c}, body={w}")
        return [self.gte(n, k, v.t, v.d) for k, v in enumerate(init)]

    def fori(self, lo, hi, init, body):
        """for i in lo..hi: state = body(i, *state)."""
        i = lo if isinstance(lo, V) else self.const(lo, "s32")
        step = lambda i, *s: [i + 1] + list(body(i, *s))  # noqa: E731
        return self.loop([i] + init, lambda i, *s: i.cmp("LT", hi), step)[1:]

    def cond(self, p, x, yes, no):
        a, c = self.fresh("yes"), self.fresh("no")
        y = self.region(a, [x], yes, True)
        self.region(c, [x], no, True)
        return V(self, self.put(shape(y.t, y.d), "conditional", f"{p.name}, {x.name}, {x.name}",
                                f"true_computation={a}, false_computation={c}"), y.t, y.d)

    # --- devices

    def groups(self, axes=None):
        """Device groups along mesh axes (all axes by default)."""
        if isinstance(axes, list):
            return axes
        axes = list(self.mesh) if axes is None else axes.split("+")
        out = {}
        for k in range(self.n):
            c = self.coord(k)
            key = tuple(v for a, v in c.items() if a not in axes)
            out.setdefault(key, []).append((tuple(c[a] for a in axes), k))
        return [[k for _, k in sorted(g)] for _, g in sorted(out.items())]

    def coord(self, k):
        out = {}
        for a in reversed(list(self.mesh)):
            out[a] = k % self.mesh[a]
            k //= self.mesh[a]
        return {a: out[a] for a in self.mesh}

    def coll(self, op, t, d, x, attrs, group=True):
        ch = ""
        if not self.replicas:
            self.channel += 1
            ch = f"channel_id={self.channel}, " + ("use_global_device_ids=true, " if group else "")
        return self.emit(op, t, d, [x], ch + attrs)

    def gtext(self, axes):
        g = self.groups(axes)
        return "replica_groups={" + ",".join(map(ints, g)) + "}", len(g[0]) if g else self.n

    def ar(self, x, axes=None, op="add"):
        g, _ = self.gtext(axes)
        return self.coll("all-reduce", x.t, x.d, x, f"{g}, to_apply={self.reducer(op, x.t)}")

    def ag(self, x, dim, axes=None):
        g, n = self.gtext(axes)
        d = list(x.d)
        d[dim] *= n
        return self.coll("all-gather", x.t, d, x, f"{g}, dimensions={ints([dim])}")

    def rs(self, x, dim, axes=None, op="add"):
        g, n = self.gtext(axes)
        d = list(x.d)
        assert d[dim] % n == 0
        d[dim] //= n
        return self.coll("reduce-scatter", x.t, d, x, f"{g}, dimensions={ints([dim])}, to_apply={self.reducer(op, x.t)}")

    def a2a(self, x, dim, axes=None):
        """Piece k of dimension `dim` goes to member k; pieces are joined on it."""
        g, _ = self.gtext(axes)
        return self.coll("all-to-all", x.t, x.d, x, f"{g}, dimensions={ints([dim])}", group=False)

    def cp(self, x, pairs):
        p = "{" + ",".join(ints(k) for k in pairs) + "}"
        return self.coll("collective-permute", x.t, x.d, x, f"source_target_pairs={p}", group=False)

    def pid(self):
        return self.conv(self.emit("replica-id" if self.replicas else "partition-id", "u32", [], []), "s32")

    def axis(self, *axes):
        """Index of this device along mesh axes, major first."""
        p, out = self.pid(), None
        names = list(self.mesh)
        for a in axes:
            stride = prod(self.mesh[k] for k in names[names.index(a) + 1:])
            i = p / stride if stride > 1 else p
            i = i % self.mesh[a] if names.index(a) else i
            out = i if out is None else out * self.mesh[a] + i
        return out


class Case:
    """One report. `ins`: (name, shape, spec[, (lo, hi)]); `outs`: specs.
    A spec names mesh axes per dimension: `dp,-,a+b`."""

    def __init__(self, name, links, about, mesh, ins, outs, tol=1e-4, **extra):
        self.name, self.links, self.about, self.mesh = name, links, about, mesh
        self.ins, self.outs, self.tol, self.extra, self.graphs = ins, outs, tol, extra, []
        f = sys._getframe(1)
        self.at = "tests/gen/" + os.path.basename(f.f_code.co_filename), f.f_lineno
        CASES.append(self)

    def _add(self, group, variant, fn, **kw):
        self.graphs.append((f"{group}_{variant}" if variant else group, fn, kw))
        return fn

    def base(self, fn):
        return self._add("base", "", fn)

    def right(self, variant="", note="", **kw):
        return lambda fn: self._add("right", variant, fn, note=note, **kw)

    def wrong(self, kind, variant="", note="", **kw):
        return lambda fn: self._add("wrong", variant, fn, note=note, kind=kind, **kw)

    def spec(self, s, rank):
        parts = (s.split(",") if s else []) + ["-"] * rank
        return [None if p in ("-", "") else p.split("+") for p in parts[:rank]]

    def write(self, out):
        d = os.path.join(out, self.name)
        shutil.rmtree(d, ignore_errors=True)
        os.makedirs(d)
        graphs, outs = [], None
        for name, fn, kw in self.graphs:
            mesh = {} if name == "base" else kw.get("mesh", self.mesh)
            ins = kw.get("ins", self.ins)
            specs = kw.get("outs", self.outs)
            b = B(name, mesh, self.at, kw.get("replicas", False))
            vs = []
            for k, i in enumerate(ins):
                t, dims = parse_shape(i[1])
                if name != "base":
                    dims = [-(-n // prod(mesh[a] for a in s)) if s else n
                            for n, s in zip(dims, self.spec(i[2], len(dims)))]
                vs.append(V(b, b.put(shape(t, dims), "parameter", k, "", name=i[0]), t, dims))
            r = fn(b, *vs)
            r = list(r) if isinstance(r, (tuple, list)) else [r]
            b.root(r)
            b.close("main", entry=True)
            with open(os.path.join(d, name + ".hlo.txt"), "w") as f:
                f.write(b.text())
            if name == "base":
                outs = [(v.t, v.d) for v in r]
                continue
            g = {"file": name + ".hlo.txt",
                 "expected": "equivalent" if name.startswith("right") else "different"}
            if kw.get("note"):
                g["note"] = kw["note"]
            if g["expected"] == "different":
                assert b.bad, f"{self.name} {name}: no guilty instruction"
                g["kind"], g["guilty"] = kw["kind"], b.bad
            if "mesh" in kw:
                g["mesh"] = {"axes": list(mesh), "shape": list(mesh.values())}
            if "ins" in kw:
                g["inputs"] = [self.value(i) for i in ins]
            if "outs" in kw:
                g["outputs"] = self.outputs(specs, outs)
            graphs.append(g)
        js = {"name": self.name, "links": [link(k) for k in self.links], "about": self.about,
              "mesh": {"axes": list(self.mesh), "shape": list(self.mesh.values())},
              "inputs": [self.value(i) for i in self.ins], "outputs": self.outputs(self.outs, outs),
              "tol": self.tol, **self.extra, "graphs": graphs}
        with open(os.path.join(d, "case.json"), "w") as f:
            json.dump(js, f, indent=1)
            f.write("\n")

    def outputs(self, specs, outs):
        assert len(specs) == len(outs), (specs, outs)
        return [{"shape": d, "dtype": t, "spec": self.spec(s, len(d))} for s, (t, d) in zip(specs, outs)]

    def value(self, i):
        t, d = parse_shape(i[1])
        j = {"name": i[0], "shape": d, "dtype": t, "spec": self.spec(i[2], len(d))}
        if len(i) > 3:
            j["range"] = list(i[3])
        return j


def link(k):
    return "https://github.com/" + k.replace("#", "/issues/")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    args = p.parse_args()
    sys.path.insert(0, HERE)
    # The case files must see this module, not a second copy of it.
    sys.modules["bugs"] = sys.modules["__main__"]
    for f in sorted(glob.glob(os.path.join(HERE, "bugs_*.py"))):
        importlib.import_module(os.path.basename(f)[:-3])
    names = [c.name for c in CASES]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    for c in CASES:
        if c.name.startswith(args.only):
            c.write(OUT)
    if not args.only:
        for d in os.listdir(OUT):
            if os.path.isdir(os.path.join(OUT, d)) and d not in names:
                shutil.rmtree(os.path.join(OUT, d))
    print(len(CASES), "cases", sum(len(c.graphs) for c in CASES), "graphs")


if __name__ == "__main__":
    main()

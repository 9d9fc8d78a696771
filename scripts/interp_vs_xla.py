#!/usr/bin/env python3
"""Random programs: XLA's CPU backend against the interpreter.

Writes N HLO programs of one or several operations with random opcodes, shapes,
element types, attributes and inputs (special values included; collectives on 8
virtual devices), runs each through jaxlib and through
`cargo run -p scalify-interp --example run`, and compares the results.

    python scripts/interp_vs_xla.py [--n 400] [--seed 1] [--only SUBSTRING]
        [--run PATH_OF_THE_EXAMPLE] [--keep DIR]

Needs jax with a CPU backend. Exit status 1 if any program disagrees.
"""
import argparse
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false"
)
import jax  # noqa: E402
import jaxlib._jax as _jax  # noqa: E402
import ml_dtypes as md  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jaxlib import _hlo  # noqa: E402

jax.config.update("jax_enable_x64", True)

NP = {
    "pred": np.bool_, "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": md.bfloat16, "f32": np.float32, "f64": np.float64,
    "s4": md.int4, "u4": md.uint4, "f8e5m2": md.float8_e5m2, "f8e4m3fn": md.float8_e4m3fn,
    "f8e4m3": md.float8_e4m3, "f8e3m4": md.float8_e3m4, "f8e4m3b11fnuz": md.float8_e4m3b11fnuz,
    "f8e5m2fnuz": md.float8_e5m2fnuz, "f8e4m3fnuz": md.float8_e4m3fnuz,
    "c64": np.complex64, "c128": np.complex128, "s2": md.int2, "u2": md.uint2,
    "f4e2m1fn": md.float4_e2m1fn, "f8e8m0fnu": md.float8_e8m0fnu,
}
SIGNED = ["s8", "s16", "s32", "s64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
FLOATS = ["f16", "bf16", "f32", "f64"]
F8 = ["f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"]
COMPLEX = ["c64", "c128"]
TINY = {"s4": (-8, 7), "u4": (0, 15), "s2": (-2, 1), "u2": (0, 3)}
BITS = {t: (4 if t in ("s4", "u4", "f4e2m1fn") else 2 if t in ("s2", "u2") else np.dtype(NP[t]).itemsize * 8) for t in NP}
# Unit in the last place, relative.
EPS = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-23, "f64": 2**-52, "c64": 2**-23, "c128": 2**-52,
       "f8e5m2": 2**-2, "f8e4m3fn": 2**-3, "f8e4m3": 2**-3, "f8e3m4": 2**-4,
       "f8e4m3b11fnuz": 2**-3, "f8e5m2fnuz": 2**-2, "f8e4m3fnuz": 2**-3,
       "f4e2m1fn": 2**-1, "f8e8m0fnu": 1.0}


class Case:
    def __init__(self, name, text, inputs, ulps=0, norm=0.0, devices=1):
        """`ulps`: allowed elementwise; `norm`: allowed against the largest
        magnitude of the result, in ulps; `inputs`: one list per device."""
        self.name, self.text, self.inputs = name, text, inputs
        self.ulps, self.norm, self.devices = ulps, norm, devices


def sh(t, d):
    return f"{t}[{','.join(map(str, d))}]"


def dims(r, lo=0, hi=4, top=6):
    return [r.randint(1, top) for _ in range(r.randint(lo, hi))]


def data(r, t, d, special=True, lo=None, hi=None, scale=3.0):
    """Random elements; `special` mixes in extremes, infinities and NaN."""
    g = np.random.default_rng(r.randrange(1 << 30))
    n = int(np.prod(d)) if d else 1
    if t == "pred":
        v = g.integers(0, 2, n).astype(bool)
    elif t in TINY or t in INTS:
        a, b = TINY.get(t) or (np.iinfo(NP[t]).min, np.iinfo(NP[t]).max)
        if lo is not None:
            v = g.integers(lo, hi + 1, n)
        else:
            v = np.where(g.random(n) < 0.5, g.integers(max(a, -9), min(b, 9) + 1, n),
                         g.integers(a, b, n, dtype=NP[t] if t in INTS else np.int64, endpoint=True)
                         .astype(object))
            if special:
                v = np.where(g.random(n) < 0.15, g.choice(np.array([a, b, 0, 1], dtype=object), n), v)
        v = np.array(v, dtype=object).astype(np.int64 if t != "u64" else np.uint64).astype(NP[t])
    elif t in COMPLEX:
        v = (g.normal(size=n) * scale + 1j * g.normal(size=n) * scale).astype(NP[t])
    else:
        v = g.normal(size=n) * scale if lo is None else g.uniform(lo, hi, n)
        if special:
            s = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5]
            if t == "f4e2m1fn":
                s = [0.0, 0.5, -1.5, 6.0]
            elif t == "f8e8m0fnu":
                v, s = np.exp2(np.round(v)), [1.0, 2.0**-127, 2.0**100]
            elif t in F8:
                s = [0.0, 1.0, -1.0, 0.5, 1e9, -1e9, 448.0, 0.0625]
            v = np.where(g.random(n) < 0.25, g.choice(s, n), v)
        with np.errstate(all="ignore"):
            v = v.astype(NP[t])
    return v.reshape(d)


REGION = """{0} {{
  a = {1}[] parameter(0)
  b = {1}[] parameter(1)
  ROOT c = {1}[] {2}(a, b)
}}
"""


def region(name, t, op):
    return REGION.format(name, t, op)


def program(params, root, regions="", header=""):
    body = "".join(f"  p{i} = {sh(t, d)} parameter({i})\n" for i, (t, d) in enumerate(params))
    return f"{header}HloModule m\n{regions}ENTRY e {{\n{body}{root}\n}}\n"


def unary(r):
    table = {
        "abs": FLOATS + SIGNED + COMPLEX, "negate": FLOATS + INTS + COMPLEX, "sign": FLOATS + SIGNED,
        "exponential": FLOATS + COMPLEX, "exponential-minus-one": FLOATS, "log": FLOATS + COMPLEX,
        "log-plus-one": FLOATS, "logistic": FLOATS, "sqrt": FLOATS + COMPLEX, "rsqrt": FLOATS,
        "cbrt": FLOATS, "floor": FLOATS, "ceil": FLOATS, "round-nearest-afz": FLOATS,
        "round-nearest-even": FLOATS, "cosine": FLOATS + COMPLEX, "sine": FLOATS + COMPLEX,
        "tan": FLOATS, "tanh": FLOATS + COMPLEX, "not": INTS + ["pred"],
        "count-leading-zeros": INTS, "popcnt": INTS, "is-finite": FLOATS, "erf": ["f16", "f32", "f64"],
        "real": COMPLEX, "imag": COMPLEX,
    }
    op = r.choice(list(table))
    t = r.choice(table[op])
    d = dims(r, 1)
    out = {"is-finite": "pred"}.get(op, t)
    if op in ("real", "imag") or (op == "abs" and t in COMPLEX):
        out = {"c64": "f32", "c128": "f64"}[t]
    x = data(r, t, d)
    exact = op in ("abs", "negate", "sign", "floor", "ceil", "round-nearest-afz",
                   "round-nearest-even", "not", "count-leading-zeros", "popcnt", "is-finite",
                   "real", "imag") and t not in COMPLEX
    text = program([(t, d)], f"  ROOT r = {sh(out, d)} {op}(p0)")
    # XLA's f64 log-plus-one is up to 25 ulps from the exact value near -0.4.
    ulps = 0 if exact else 64 if (op, t) == ("log-plus-one", "f64") else 16
    return Case(f"unary {op} {t}", text, [[x]], ulps, 64 if t in COMPLEX else 0)


def binary(r):
    table = {
        "add": FLOATS + INTS + COMPLEX, "subtract": FLOATS + INTS + COMPLEX,
        "multiply": FLOATS + INTS + COMPLEX, "divide": FLOATS + INTS + COMPLEX,
        "remainder": FLOATS + INTS, "maximum": FLOATS + INTS + ["pred"],
        "minimum": FLOATS + INTS + ["pred"], "power": FLOATS + INTS, "atan2": FLOATS,
        "and": INTS + ["pred"], "or": INTS + ["pred"], "xor": INTS + ["pred"],
        "shift-left": INTS, "shift-right-logical": INTS, "shift-right-arithmetic": INTS,
    }
    op = r.choice(list(table))
    t = r.choice(table[op])
    d = dims(r, 1)
    x, y = data(r, t, d), data(r, t, d)
    if op.startswith("shift"):
        y = data(r, t, d, special=False, lo=0 if t in UNSIGNED else -2, hi=BITS[t] + 3)
    if op == "power":
        # XLA reads six bits of an integer exponent.
        x, y = (np.abs(x), y) if t in FLOATS else (x, data(r, t, d, lo=0 if t in UNSIGNED else -2, hi=63))
    ulps = 0 if t in INTS + ["pred"] or op in ("add", "subtract", "multiply", "maximum", "minimum") else 16
    if op == "divide" and t in FLOATS:
        ulps = 1
    text = program([(t, d), (t, d)], f"  ROOT r = {sh(t, d)} {op}(p0, p1)")
    return Case(f"binary {op} {t}", text, [[x, y]], ulps if t not in COMPLEX else 16, 16 if t in COMPLEX else 0)


def compare(r):
    t = r.choice(FLOATS + INTS + ["pred"])
    d = dims(r, 1)
    c = r.choice(["EQ", "NE", "LT", "LE", "GT", "GE"])
    kind = ", type=TOTALORDER" if t in FLOATS and r.random() < 0.4 else ""
    x = data(r, t, d)
    y = np.where(np.random.default_rng(r.randrange(99)).random(d) < 0.3, x, data(r, t, d)).astype(NP[t])
    root = f"  ROOT r = {sh('pred', d)} compare(p0, p1), direction={c}{kind}"
    return Case(f"compare {t}{kind}", program([(t, d), (t, d)], root), [[x, y]])


def convert(r):
    kinds = FLOATS + INTS + ["pred"] + F8 + list(TINY) + ["f4e2m1fn", "f8e8m0fnu"]
    a, b = r.choice(kinds), r.choice(kinds)
    d = dims(r, 1)
    x = data(r, a, d, scale=20.0)
    text = program([(a, d)], f"  ROOT r = {sh(b, d)} convert(p0)")
    return Case(f"convert {a} {b}", text, [[x]])


def bitcast_convert(r):
    a = r.choice(FLOATS + INTS)
    b = r.choice(FLOATS + INTS)
    d = dims(r, 0, 2)
    out = list(d)
    if BITS[a] > BITS[b]:
        out = d + [BITS[a] // BITS[b]]
    elif BITS[a] < BITS[b]:
        d = d + [BITS[b] // BITS[a]]
    x = data(r, a, d)
    # As integers: NaN payloads must survive.
    i = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}[BITS[b]]
    if b in FLOATS:
        root = f"  c = {sh(b, out)} bitcast-convert(p0)\n  ROOT r = {sh(i, out)} bitcast-convert(c)"
    else:
        root = f"  ROOT r = {sh(b, out)} bitcast-convert(p0)"
    return Case(f"bitcast-convert {a} {b}", program([(a, d)], root), [[x]])


def ternary(r):
    t = r.choice(FLOATS + INTS)
    d = dims(r, 1)
    if r.random() < 0.5:
        text = program([("pred", d), (t, d), (t, d)], f"  ROOT r = {sh(t, d)} select(p0, p1, p2)")
        return Case(f"select {t}", text, [[data(r, "pred", d), data(r, t, d), data(r, t, d)]])
    lo, hi = data(r, t, []), data(r, t, [])
    text = program([(t, []), (t, d), (t, [])], f"  ROOT r = {sh(t, d)} clamp(p0, p1, p2)")
    return Case(f"clamp {t}", text, [[lo, data(r, t, d), hi]])


def reduce_precision(r):
    t = r.choice(["f32", "f16", "bf16", "f64"])
    d = dims(r, 1)
    e, m = r.choice([(5, 10), (8, 7), (5, 2), (4, 3), (8, 23), (3, 0), (6, 5)])
    if (t == "f16" and e > 5) or (t == "bf16" and m > 7):
        e, m = 4, 3
    root = f"  ROOT r = {sh(t, d)} reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}"
    return Case(f"reduce-precision {t} {e} {m}", program([(t, d)], root), [[data(r, t, d, scale=50)]])


def movement(r):
    t = r.choice(list(NP)[:13] + COMPLEX)
    d = dims(r, 1, 4)
    x = data(r, t, d)
    k = r.choice(["transpose", "reverse", "slice", "broadcast", "reshape", "pad", "concatenate",
                  "dynamic-slice", "dynamic-update-slice", "iota"])
    n = len(d)
    if k == "transpose":
        p = list(range(n))
        r.shuffle(p)
        root = f"{sh(t, [d[i] for i in p])} transpose(p0), dimensions={{{','.join(map(str, p))}}}"
    elif k == "reverse":
        p = [i for i in range(n) if r.random() < 0.6]
        root = f"{sh(t, d)} reverse(p0), dimensions={{{','.join(map(str, p))}}}"
    elif k == "slice":
        lo = [r.randint(0, s - 1) for s in d]
        hi = [r.randint(a + 1, s) for a, s in zip(lo, d)]
        st = [r.randint(1, 3) for _ in d]
        o = [(b - a + s - 1) // s for a, b, s in zip(lo, hi, st)]
        root = f"{sh(t, o)} slice(p0), slice={{{', '.join(f'[{a}:{b}:{s}]' for a, b, s in zip(lo, hi, st))}}}"
    elif k == "broadcast":
        o = list(d)
        for _ in range(r.randint(0, 2)):
            o.insert(r.randint(0, len(o)), -r.randint(1, 4))
        m = [i for i, s in enumerate(o) if s > 0]
        root = f"{sh(t, [abs(s) for s in o])} broadcast(p0), dimensions={{{','.join(map(str, m))}}}"
    elif k == "reshape":
        o = [int(np.prod(d))] if r.random() < 0.5 else [1] + d[::-1]
        root = f"{sh(t, o)} reshape(p0)"
    elif k == "pad":
        pads, o = [], []
        for s in d:
            lo, hi, i = r.randint(-2, 3), r.randint(-2, 3), r.randint(0, 2)
            if s + lo + hi + (s - 1) * i < 0:
                lo, hi = 0, 0
            pads.append(f"{lo}_{hi}_{i}")
            o.append(s + lo + hi + (s - 1) * i)
        root = f"{sh(t, o)} pad(p0, p1), padding={'x'.join(pads)}"
        return Case(f"pad {t}", program([(t, d), (t, [])], "  ROOT r = " + root), [[x, data(r, t, [])]])
    elif k == "concatenate":
        a = r.randrange(n)
        e = list(d)
        e[a] = r.randint(1, 5)
        o = list(d)
        o[a] = 2 * d[a] + e[a]
        root = f"  ROOT r = {sh(t, o)} concatenate(p0, p1, p0), dimensions={{{a}}}"
        return Case(f"concatenate {t}", program([(t, d), (t, e)], root), [[x, data(r, t, e)]])
    elif k == "iota":
        if t in ("pred",):
            t = "s32"
        root = f"{sh(t, d)} iota(), iota_dimension={r.randrange(n)}"
        return Case(f"iota {t}", program([], "  ROOT r = " + root), [[]])
    else:
        u = [r.randint(1, s) for s in d]
        it = r.choice(["s32", "s64", "u32", "s8"])
        idx = [data(r, it, [], special=True) for _ in d]
        ps = [(t, d)] + ([(t, u)] if k == "dynamic-update-slice" else []) + [(it, [])] * n
        ops = ", ".join(f"p{i}" for i in range(len(ps)))
        if k == "dynamic-slice":
            root = f"{sh(t, u)} dynamic-slice({ops}), dynamic_slice_sizes={{{','.join(map(str, u))}}}"
            return Case(f"dynamic-slice {t} {it}", program(ps, "  ROOT r = " + root), [[x] + idx])
        root = f"{sh(t, d)} dynamic-update-slice({ops})"
        return Case(f"dynamic-update-slice {t} {it}", program(ps, "  ROOT r = " + root), [[x, data(r, t, u)] + idx])
    return Case(f"{k} {t}", program([(t, d)], "  ROOT r = " + root), [[x]])


def dot(r):
    nb, nk = r.randint(0, 2), r.randint(0, 2)
    b, k = dims(r, nb, nb, 4), dims(r, nk, nk, 6)
    m, n = dims(r, 0, 2, 5), dims(r, 0, 2, 5)

    def order(groups):
        tags = [(g, i, s) for g, l in groups for i, s in enumerate(l)]
        r.shuffle(tags)
        pos = {(g, i): p for p, (g, i, _) in enumerate(tags)}
        free = [s for g, _, s in tags if g == "f"]
        return [s for _, _, s in tags], pos, free
    ld, lp, lf = order([("b", b), ("k", k), ("f", m)])
    rd, rp, rf = order([("b", b), ("k", k), ("f", n)])
    a, c, o = r.choice([("f32",) * 3, ("f64",) * 3, ("bf16",) * 3, ("f16",) * 3, ("s32",) * 3,
                        ("bf16", "bf16", "f32"), ("s8", "s8", "s32"), ("u8", "u8", "u32"),
                        ("c64",) * 3, ("s64",) * 3, ("f16", "f16", "f32"), ("c128",) * 3])
    at = []
    for key, pos, g, l in [("lhs_batch_dims", lp, "b", b), ("rhs_batch_dims", rp, "b", b),
                           ("lhs_contracting_dims", lp, "k", k), ("rhs_contracting_dims", rp, "k", k)]:
        at.append(f"{key}={{{','.join(str(pos[(g, i)]) for i in range(len(l)))}}}")
    root = f"  ROOT r = {sh(o, b + lf + rf)} dot(p0, p1), {', '.join(at)}"
    x, y = data(r, a, ld, False), data(r, c, rd, False)
    return Case(f"dot {a} {c} {o}", program([(a, ld), (c, rd)], root), [[x, y]], 2, 0 if o in INTS else 16)


def conv(r):
    s = r.randint(1, 3)
    t = r.choice(["f32", "f64", "f32", "bf16", "s32", "f16"])
    g = r.choice([1, 1, 2, 3])
    bg = r.choice([1, 1, 2]) if g == 1 else 1
    ck, co, n = r.randint(1, 3), r.randint(1, 2) * g * bg, r.randint(1, 2) * bg
    ci = ck * g
    sp = [r.randint(2, 6) for _ in range(s)]
    w = [r.randint(1, 3) for _ in range(s)]
    st = [r.randint(1, 2) for _ in range(s)]
    pl, ph = [r.randint(-1, 2) for _ in range(s)], [r.randint(0, 2) for _ in range(s)]
    ld, rd = [r.randint(1, 2) for _ in range(s)], [r.randint(1, 2) for _ in range(s)]
    rev = [r.randint(0, 1) for _ in range(s)]
    out = []
    for i in range(s):
        base = (sp[i] - 1) * ld[i] + 1 + pl[i] + ph[i]
        win = (w[i] - 1) * rd[i] + 1
        if base < win:
            return conv(r)
        out.append((base - win) // st[i] + 1)

    def lab(letters, sizes):
        tags = list(zip(letters, sizes))
        r.shuffle(tags)
        return "".join(x for x, _ in tags), [v for _, v in tags]
    digits = [str(i) for i in range(s)]
    il, idm = lab(["b", "f"] + digits, [n, ci] + sp)
    kl, kdm = lab(["i", "o"] + digits, [ck, co] + w)
    ol, odm = lab(["b", "f"] + digits, [n // bg, co] + out)
    win = [f"size={'x'.join(map(str, w))}", f"stride={'x'.join(map(str, st))}",
           f"pad={'x'.join(f'{a}_{b}' for a, b in zip(pl, ph))}",
           f"lhs_dilate={'x'.join(map(str, ld))}", f"rhs_dilate={'x'.join(map(str, rd))}",
           f"rhs_reversal={'x'.join(map(str, rev))}"]
    root = (f"  ROOT r = {sh(t, odm)} convolution(p0, p1), window={{{' '.join(win)}}}, "
            f"dim_labels={il}_{kl}->{ol}, feature_group_count={g}, batch_group_count={bg}")
    return Case(f"convolution {t} g{g} bg{bg}", program([(t, idm), (t, kdm)], root),
                [[data(r, t, idm, False), data(r, t, kdm, False)]], 2, 0 if t in INTS else 32)


def reduce(r):
    t = r.choice(FLOATS + INTS)
    op = r.choice(["add", "maximum", "minimum", "multiply"] + (["and", "or", "xor"] if t in INTS else []))
    d = dims(r, 1, 4)
    k = sorted(r.sample(range(len(d)), r.randint(1, len(d))))
    o = [s for i, s in enumerate(d) if i not in k]
    x = data(r, t, d, special=op in ("maximum", "minimum"), scale=1.0)
    root = f"  ROOT r = {sh(t, o)} reduce(p0, p1), dimensions={{{','.join(map(str, k))}}}, to_apply=f"
    # XLA may drop the initial value: it must be an identity of the reducer.
    big = (-np.inf, np.inf) if t in FLOATS else (np.iinfo(NP[t]).min, np.iinfo(NP[t]).max)
    init = {"add": 0, "multiply": 1, "maximum": big[0], "minimum": big[1], "and": -1}.get(op, 0)
    init = np.array(init).astype(NP[t]) if op != "and" else np.invert(np.array(0).astype(NP[t]))
    n = int(np.prod([d[i] for i in k]))
    norm = 0 if t in INTS or op in ("maximum", "minimum") else 2 * n + 4
    return Case(f"reduce {op} {t}", program([(t, d), (t, [])], root, region("f", t, op)),
                [[x, init]], 2 * n if norm else 0, norm)


def argmax(r):
    t = r.choice(["f32", "bf16", "s32", "f64"])
    d = dims(r, 1, 3)
    k = r.randrange(len(d))
    o = [s for i, s in enumerate(d) if i != k]
    reg = f"""f {{
  a = {t}[] parameter(0)
  i = s32[] parameter(1)
  b = {t}[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  ne = pred[] compare(a, a), direction=NE
  w = pred[] or(gt, ne)
  eq = pred[] compare(a, b), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  e = pred[] and(eq, lt)
  z = pred[] or(w, e)
  v = {t}[] select(w, a, b)
  x = s32[] select(z, i, j)
  ROOT q = ({t}[], s32[]) tuple(v, x)
}}
"""
    root = (f"  i = {sh('s32', d)} iota(), iota_dimension={k}\n  z = s32[] constant(0)\n"
            f"  ROOT r = ({sh(t, o)}, {sh('s32', o)}) reduce(p0, i, p1, z), dimensions={{{k}}}, to_apply=f")
    low = np.array(-1e4 if t != "s32" else -(2**31)).astype(NP[t])
    x = data(r, t, d, special=False, **({"lo": -5, "hi": 5} if t == "s32" else {}))
    return Case(f"reduce argmax {t}", program([(t, d), (t, [])], root, reg), [[x, low]])


def window_out(n, w, st, pl, ph, bd, wd):
    base = (n - 1) * bd + 1 + pl + ph
    win = (w - 1) * wd + 1
    return (base - win) // st + 1 if base >= win else 0


def reduce_window(r):
    t = r.choice(["f32", "f64", "s32", "bf16", "u8"])
    op = r.choice(["add", "maximum", "minimum"])
    d = dims(r, 1, 3)
    p, o = [], []
    for n in d:
        for _ in range(50):
            w, st, pl, ph, bd, wd = (r.randint(1, 3), r.randint(1, 3), r.randint(0, 2), r.randint(0, 2),
                                     r.randint(1, 2), r.randint(1, 2))
            q = window_out(n, w, st, pl, ph, bd, wd)
            if q > 0:
                break
        p.append((w, st, pl, ph, bd, wd))
        o.append(q)
    c = list(zip(*p))
    win = (f"size={'x'.join(map(str, c[0]))} stride={'x'.join(map(str, c[1]))} "
           f"pad={'x'.join(f'{a}_{b}' for a, b in zip(c[2], c[3]))} "
           f"lhs_dilate={'x'.join(map(str, c[4]))} rhs_dilate={'x'.join(map(str, c[5]))}")
    init = {"add": 0}.get(op)
    if init is None:
        big = np.inf if t in FLOATS else None
        lo, hi = (-big, big) if big else (np.iinfo(NP[t]).min, np.iinfo(NP[t]).max)
        init = lo if op == "maximum" else hi
    root = f"  ROOT r = {sh(t, o)} reduce-window(p0, p1), window={{{win}}}, to_apply=f"
    x = data(r, t, d, special=False)
    return Case(f"reduce-window {op} {t}", program([(t, d), (t, [])], root, region("f", t, op)),
                [[x, np.array(init).astype(NP[t])]], 0, 0 if t in INTS or op != "add" else 32)


def select_and_scatter(r):
    t = r.choice(["f32", "f64", "s32"])
    d = dims(r, 1, 3)
    p, o = [], []
    for n in d:
        w, st, pl, ph = 1, 1, 0, 0
        for _ in range(50):
            a = (r.randint(1, 3), r.randint(1, 3), r.randint(0, 1), r.randint(0, 1))
            if window_out(n, *a, 1, 1) > 0 and a[2] < a[0] and a[3] < a[0]:
                w, st, pl, ph = a
                break
        p.append((w, st, pl, ph))
        o.append(window_out(n, w, st, pl, ph, 1, 1))
    c = list(zip(*p))
    win = (f"size={'x'.join(map(str, c[0]))} stride={'x'.join(map(str, c[1]))} "
           f"pad={'x'.join(f'{a}_{b}' for a, b in zip(c[2], c[3]))}")
    reg = f"s {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=GE\n}}\n" + region("f", t, "add")
    root = f"  ROOT r = {sh(t, d)} select-and-scatter(p0, p1, p2), window={{{win}}}, select=s, scatter=f"
    return Case(f"select-and-scatter {t}", program([(t, d), (t, o), (t, [])], root, reg),
                [[data(r, t, d, False), data(r, t, o, False), np.array(0).astype(NP[t])]], 4, 8)


def gather(r):
    t = r.choice(["f32", "s32", "bf16", "pred"])
    d = dims(r, 1, 3)
    n = len(d)
    it = r.choice(["s32", "s64", "u32"])
    batch = dims(r, 0, 2, 4)
    m = r.sample(range(n), r.randint(1, n))
    size = [r.randint(1, s) for s in d]
    coll = [i for i in range(n) if r.random() < 0.5]
    for i in coll:
        size[i] = 1
    win = [size[i] for i in range(n) if i not in coll]
    rank = len(win) + len(batch)
    off = sorted(r.sample(range(rank), len(win)))
    out, w, b = [], iter(win), iter(batch)
    for i in range(rank):
        out.append(next(w) if i in off else next(b))
    v = r.randint(0, len(batch))
    ish = batch[:v] + [len(m)] + batch[v:]
    j = lambda l: ",".join(map(str, l))  # noqa: E731
    root = (f"  ROOT r = {sh(t, out)} gather(p0, p1), offset_dims={{{j(off)}}}, collapsed_slice_dims={{{j(coll)}}}, "
            f"start_index_map={{{j(m)}}}, index_vector_dim={v}, slice_sizes={{{j(size)}}}")
    idx = data(r, it, ish, special=False, lo=-2 if it[0] == "s" else 0, hi=8)
    return Case(f"gather {t} {it}", program([(t, d), (it, ish)], root), [[data(r, t, d), idx]])


def scatter(r):
    t = r.choice(["f32", "s32", "bf16", "f64"])
    op = r.choice(["add", "maximum", "minimum", "multiply", "replace", "other"])
    d = dims(r, 1, 3)
    n = len(d)
    batch = dims(r, 0, 2, 4)
    m = r.sample(range(n), r.randint(1, n))
    ins = [i for i in range(n) if r.random() < 0.5]
    size = [r.randint(1, s) for s in d]
    win = [size[i] for i in range(n) if i not in ins]
    rank = len(win) + len(batch)
    uw = sorted(r.sample(range(rank), len(win)))
    out, w, b = [], iter(win), iter(batch)
    for i in range(rank):
        out.append(next(w) if i in uw else next(b))
    v = r.randint(0, len(batch))
    ish = batch[:v] + [len(m)] + batch[v:]
    if op == "replace":
        reg = f"f {{\n  a = {t}[] parameter(0)\n  ROOT b = {t}[] parameter(1)\n}}\n"
    elif op == "other":
        reg = f"f {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  c = {t}[] negate(b)\n  ROOT d = {t}[] maximum(a, c)\n}}\n"
    else:
        reg = region("f", t, op)
    j = lambda l: ",".join(map(str, l))  # noqa: E731
    root = (f"  ROOT r = {sh(t, d)} scatter(p0, p1, p2), update_window_dims={{{j(uw)}}}, inserted_window_dims={{{j(ins)}}}, "
            f"scatter_dims_to_operand_dims={{{j(m)}}}, index_vector_dim={v}, to_apply=f")
    idx = data(r, "s32", ish, special=False, lo=-2, hi=7)
    if op == "replace":
        # Order among equal targets is not specified: all updates equal.
        u = np.full(out, 7).astype(NP[t])
    else:
        u = data(r, t, out, False, scale=1.0) if t != "s32" else data(r, t, out, False, lo=-9, hi=9)
    return Case(f"scatter {op} {t}", program([(t, d), ("s32", ish), (t, out)], root, reg),
                [[data(r, t, d, False, scale=1.0), idx, u]], 0, 0 if t == "s32" or op in ("maximum", "minimum", "replace", "other") else 32)


def sort(r):
    t = r.choice(["f32", "s32", "bf16", "u8", "s64", "f64"])
    d = dims(r, 1, 3, 12)
    k = r.randrange(len(d))
    total = ", type=TOTALORDER" if t in FLOATS else ""
    c = r.choice(["LT", "GT"])
    two = r.random() < 0.5
    reg = f"f {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n"
    if two:
        reg += "  i = s32[] parameter(2)\n  j = s32[] parameter(3)\n"
    lex = two and r.random() < 0.5
    if lex:
        reg += (f"  l = pred[] compare(a, b), direction={c}{total}\n  e = pred[] compare(a, b), direction=EQ{total}\n"
                "  m = pred[] compare(i, j), direction=GT\n  n = pred[] and(e, m)\n  ROOT o = pred[] or(l, n)\n}\n")
    else:
        reg += f"  ROOT o = pred[] compare(a, b), direction={c}{total}\n}}\n"
    x = data(r, t, d, special=t in FLOATS)
    if t in FLOATS:
        x = np.where(np.isnan(x.astype(np.float64)), 1.0, x.astype(np.float64)).round().astype(NP[t])
    else:
        x = data(r, t, d, special=False, lo=0, hi=5)
    if two:
        root = (f"  i = {sh('s32', d)} iota(), iota_dimension={k}\n"
                f"  ROOT r = ({sh(t, d)}, {sh('s32', d)}) sort(p0, i), dimensions={{{k}}}, is_stable=true, to_apply=f")
    else:
        root = f"  ROOT r = {sh(t, d)} sort(p0), dimensions={{{k}}}, is_stable=true, to_apply=f"
    return Case(f"sort {t} {'lex' if lex else 'two' if two else 'one'}", program([(t, d)], root, reg), [[x]])


def rng(r):
    a = r.choice(["rng_three_fry", "rng_philox", "rng_default"])
    t = r.choice(["u32", "u64", "u32", "u8", "u16"])
    d = dims(r, 0 if a == "rng_three_fry" else 1, 3, 7)
    w = 2 if a == "rng_three_fry" else r.choice([2, 3])
    s = data(r, "u64", [w], special=False)
    root = f"  ROOT r = (u64[{w}], {sh(t, d)}) rng-bit-generator(p0), algorithm={a}"
    return Case(f"rng-bit-generator {a} {t} {w}", program([("u64", [w])], root), [[s]])


def linalg(r):
    k = r.choice(["cholesky", "triangular-solve", "fft"])
    n, b = r.randint(1, 5), dims(r, 0, 1, 3)
    t = r.choice(["f32", "f64"])
    if k == "fft":
        kind = r.choice(["FFT", "IFFT", "RFFT", "IRFFT"])
        c = "c64" if t == "f32" else "c128"
        ln = [r.randint(1, 9) for _ in range(r.randint(1, 3))]
        half = ln[:-1] + [ln[-1] // 2 + 1]
        i, o = (t, c) if kind == "RFFT" else (c, t) if kind == "IRFFT" else (c, c)
        di, do = b + (half if kind == "IRFFT" else ln), b + (half if kind == "RFFT" else ln)
        root = f"  ROOT r = {sh(o, do)} fft(p0), fft_type={kind}, fft_length={{{','.join(map(str, ln))}}}"
        return Case(f"fft {kind} {t}", program([(i, di)], root), [[data(r, i, di, False)]], 0, 64)
    g = np.random.default_rng(r.randrange(1 << 30))
    m = g.normal(size=b + [n, n])
    a = (m @ np.swapaxes(m, -1, -2) + np.eye(n) * n).astype(NP[t])
    low = r.choice(["true", "false"])
    if k == "cholesky":
        # The other triangle of XLA's result is unspecified: mask it.
        iot = f"  i = s32[{n},{n}] iota(), iota_dimension=0\n  j = s32[{n},{n}] iota(), iota_dimension=1\n"
        cmp = "GE" if low == "true" else "LE"
        bd = ",".join(str(len(b) + q) for q in range(2))
        root = (iot + f"  m = pred[{n},{n}] compare(i, j), direction={cmp}\n  mb = {sh('pred', b + [n, n])} broadcast(m), dimensions={{{bd}}}\n"
                f"  z = {t}[] constant(0)\n  zb = {sh(t, b + [n, n])} broadcast(z), dimensions={{}}\n"
                f"  c = {sh(t, b + [n, n])} cholesky(p0), lower={low}\n  ROOT r = {sh(t, b + [n, n])} select(mb, c, zb)")
        return Case(f"cholesky {t}", program([(t, b + [n, n])], root), [[a]], 0, 64)
    left = r.choice(["true", "false"])
    c = r.randint(1, 4)
    rd = b + ([n, c] if left == "true" else [c, n])
    tr = r.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    unit = r.choice(["true", "false"])
    root = (f"  ROOT r = {sh(t, rd)} triangular-solve(p0, p1), left_side={left}, lower={low}, "
            f"unit_diagonal={unit}, transpose_a={tr}")
    if unit == "true":
        a = (a / (n * 4)).astype(NP[t])
    return Case(f"triangular-solve {t}", program([(t, b + [n, n]), (t, rd)], root), [[a, data(r, t, rd, False)]], 0, 256)


def batch_norm(r):
    k = r.choice(["training", "inference", "grad"])
    d = dims(r, 2, 4, 4)
    f = r.randrange(len(d))
    c = [d[f]]
    at = f"epsilon=0.001, feature_index={f}"
    g = lambda: data(r, "f32", c, False)  # noqa: E731
    x, v = data(r, "f32", d, False), np.abs(data(r, "f32", c, False)) + 0.1
    p = [("f32", d)] + [("f32", c)] * (2 if k == "training" else 3 if k == "grad" else 4)
    ins = [x] + ([g(), g()] if k == "training" else [g(), g(), v] if k == "grad" else [g(), g(), g(), v])
    if k == "grad":
        p.append(("f32", d))
        ins.append(data(r, "f32", d, False))
    ops = ", ".join(f"p{i}" for i in range(len(p)))
    out = sh("f32", d) if k == "inference" else f"({sh('f32', d)}, {sh('f32', c)}, {sh('f32', c)})"
    root = f"  ROOT r = {out} batch-norm-{k}({ops}), {at}"
    return Case(f"batch-norm-{k}", program(p, root), [ins], 0, 256)


def control(r):
    n = r.randint(0, 5)
    if r.random() < 0.5:
        reg = """c { s = (s32[], f32[3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(%d)
 ROOT l = pred[] compare(i, n), direction=LT }
b { s = (s32[], f32[3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[3] get-tuple-element(s), index=1
 o = s32[] constant(1)
 j = s32[] add(i, o)
 y = f32[3] multiply(x, x)
 z = f32[3] sine(y)
 ROOT t = (s32[], f32[3]) tuple(j, z) }
""" % n
        root = "  z = s32[] constant(0)\n  t = (s32[], f32[3]) tuple(z, p0)\n  ROOT w = (s32[], f32[3]) while(t), condition=c, body=b"
        return Case("while", program([("f32", [3])], root, reg), [[data(r, "f32", [3], False)]], 64, 64)
    reg = "".join(f"b{i} {{ x = f32[4] parameter(0)\n ROOT y = f32[4] {op}(x) }}\n" for i, op in enumerate(["negate", "abs", "floor"]))
    root = "  ROOT r = f32[4] conditional(p0, p1, p1, p1), branch_computations={b0, b1, b2}"
    i = np.array(r.randint(-2, 5), np.int32)
    return Case("conditional", program([("s32", []), ("f32", [4])], root, reg), [[i, data(r, "f32", [4])]])


def collective(r):
    k = r.choice(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
                  "collective-broadcast", "all-to-all-tuple", "all-reduce-two", "replica-id"])
    t = r.choice(["f32", "s32", "bf16", "f64"])
    ids = list(range(8))
    r.shuffle(ids)
    g = r.choice([1, 2, 4, 8])
    groups = [ids[i:i + g] for i in range(0, 8, g)]
    gt = "{" + ",".join("{" + ",".join(map(str, x)) + "}" for x in groups) + "}"
    if g == 8 and r.random() < 0.3:
        gt = "{}"
    ch = ", channel_id=1, use_global_device_ids=true" if r.random() < 0.5 else ""
    d = dims(r, 1, 3)
    k0 = r.randrange(len(d))
    op = r.choice(["add", "maximum", "multiply"])
    d[k0] = g * r.randint(1, 3)
    scale = list(d)
    reg = ""
    if k == "all-reduce":
        reg, root = region("f", t, op), f"{sh(t, d)} all-reduce(p0), replica_groups={gt}{ch}, to_apply=f"
    elif k == "all-reduce-two":
        reg = region("f", t, op)
        root = f"({sh(t, d)}, {sh(t, d)}) all-reduce(p0, p0), replica_groups={gt}{ch}, to_apply=f"
    elif k == "all-gather":
        scale[k0] *= g
        root = f"{sh(t, scale)} all-gather(p0), replica_groups={gt}{ch}, dimensions={{{k0}}}"
    elif k == "reduce-scatter":
        scale[k0] //= g
        reg, root = region("f", t, op), f"{sh(t, scale)} reduce-scatter(p0), replica_groups={gt}{ch}, dimensions={{{k0}}}, to_apply=f"
    elif k == "all-to-all":
        root = f"{sh(t, d)} all-to-all(p0), replica_groups={gt}, dimensions={{{k0}}}"
    elif k == "all-to-all-tuple":
        n = len(groups[0])
        root = f"({', '.join([sh(t, d)] * n)}) all-to-all({', '.join(['p0'] * n)}), replica_groups={gt}"
    elif k == "collective-permute":
        tgt = ids[:]
        r.shuffle(tgt)
        pairs = [(a, b) for a, b in zip(range(8), tgt) if r.random() < 0.7]
        root = f"{sh(t, d)} collective-permute(p0), source_target_pairs={{{','.join('{%d,%d}' % p for p in pairs)}}}"
    elif k == "collective-broadcast":
        root = f"{sh(t, d)} collective-broadcast(p0), replica_groups={gt}"
    else:
        root = "u32[] replica-id()"
    ins = [[data(r, t, d, False, scale=1.0) if t != "s32" else data(r, t, d, False, lo=-4, hi=4)] for _ in range(8)]
    text = program([(t, d)], "  ROOT r = " + root, reg, header="// replicas=8 partitions=1\n")
    red = "reduce" in k and t != "s32" and op != "maximum"
    return Case(f"{k} {t} g{g}", text, ins, 0, 32 if red else 0, devices=8)


def graph(r):
    """Several operations, each on results of earlier ones."""
    t = r.choice(["f32", "f32", "f64", "s32", "u32"])
    real = t[0] == "f"
    full = [r.randint(1, 6), r.randint(1, 700)]
    shapes = [full, [full[0] * full[1]], full[1:], []]
    params = [(t, full), (t, full), (t, full[1:]), (t, [])]
    lines, names = [], {0: ["p0", "p1"], 1: [], 2: ["p2"], 3: ["p3"]}
    preds = {k: [] for k in names}
    binary_ops = ["add", "subtract", "multiply", "maximum", "minimum"] + ([] if real else ["and", "or", "xor"])
    unary_ops = ["tanh", "logistic", "sine", "cosine", "negate", "abs"] if real else ["negate", "not", "sign"]
    if t == "u32":
        unary_ops = ["not", "popcnt"]
    for n in range(r.randint(4, 20)):
        k = r.choice([0, 0, 0, 1, 2, 3])
        a = lambda k: r.choice(names[k]) if names[k] else None  # noqa: E731
        x, y = a(k), a(k)
        how = r.choice(["b", "b", "b", "u", "u", "cmp", "sel", "bc", "bc", "re", "sum", "tr"])
        if how in ("b", "u", "cmp", "sel") and x is None:
            continue
        if how == "b":
            text = f"{r.choice(binary_ops)}({x}, {y})"
            # Keeps magnitudes near one.
            if real and "multiply" in text:
                lines.append(f"  m{n} = {sh(t, shapes[k])} {text}")
                text = f"tanh(m{n})"
        elif how == "u":
            text = f"{r.choice(unary_ops)}({x})"
        elif how == "cmp":
            if real:  # a rounding difference must not flip it
                x, y = "p0", "p1"
                k = 0
            lines.append(f"  c{n} = {sh('pred', shapes[k])} compare({x}, {y}), direction={r.choice(['LT', 'GE', 'EQ'])}")
            preds[k].append(f"c{n}")
            continue
        elif how == "sel":
            if not preds[k]:
                continue
            text = f"select({r.choice(preds[k])}, {x}, {y})"
        elif how == "bc":
            k = 0
            text = r.choice([f"broadcast({a(2)}), dimensions={{1}}", f"broadcast({a(3)}), dimensions={{}}"])
        elif how == "re":
            k = r.choice([0, 1])
            if a(1 - k) is None:
                continue
            text = f"reshape({a(1 - k)})"
        elif how == "sum":
            k = 2
            lines.append(f"  z{n} = {t}[] constant(0)")
            text = f"reduce({a(0)}, z{n}), dimensions={{0}}, to_apply=f"
        else:
            k = 0
            lines.append(f"  t{n} = {sh(t, full[::-1])} transpose({a(0)}), dimensions={{1,0}}")
            text = f"transpose(t{n}), dimensions={{1,0}}"
        lines.append(f"  v{n} = {sh(t, shapes[k])} {text}")
        names[k].append(f"v{n}")
    out = [(k, x) for k in names for x in names[k] if x[0] == "v" and r.random() < 0.5] or [(0, "p0")]
    root = (f"  ROOT r = ({', '.join(sh(t, shapes[k]) for k, _ in out)}) "
            f"tuple({', '.join(x for _, x in out)})")
    ins = [data(r, t, d, not real, scale=1.0) for _, d in params]
    return Case(f"graph {t}", program(params, "\n".join(lines + [root]), region("f", t, "add")), [ins], 0,
                512 if real else 0)


KINDS = [graph, graph, unary, unary, unary, binary, binary, binary, compare, convert, convert, convert, bitcast_convert,
         ternary, reduce_precision, movement, movement, movement, dot, dot, conv, conv, reduce, reduce,
         argmax, reduce_window, select_and_scatter, gather, gather, scatter, scatter, sort, rng, linalg,
         batch_norm, control, collective, collective, collective]


def run_xla(case, client):
    text = "\n".join(l for l in case.text.splitlines() if not l.startswith("//"))
    m = _hlo.hlo_module_from_text(text)
    comp = _hlo.XlaComputation(m.as_serialized_hlo_module_proto())
    mlir = _jax.mlir.xla_computation_to_mlir_module(comp)
    o = _jax.CompileOptions()
    o.num_replicas, o.num_partitions = case.devices, 1
    devs = jax.devices()[: case.devices]
    exe = client.compile_and_load(mlir, _jax.DeviceList(tuple(devs)), o)
    if case.devices == 1:
        args = [jax.device_put(x, devs[0]) for x in case.inputs[0]]
    else:
        mesh = Mesh(np.array(devs), ("x",))
        s = NamedSharding(mesh, PartitionSpec("x"))
        args = [jax.device_put(np.concatenate([i[k] for i in case.inputs]), s)
                for k in range(len(case.inputs[0]))]
    parts = exe.execute_sharded(args).disassemble_into_single_device_arrays()
    # leaf x device -> device-major list of arrays
    return [np.asarray(parts[leaf][dev]) for dev in range(case.devices) for leaf in range(len(parts))]


def worker(cases, start, work):
    """Runs XLA on the cases from `start` on."""
    client = jax.devices()[0].client
    for i, c in enumerate(cases[start:], start):
        try:
            want = run_xla(c, client)
        except Exception as e:  # XLA refuses the program: nothing to compare
            open(f"{work}/{i:05}.refused", "w").write(str(e))
            continue
        with open(f"{work}/{i:05}.want", "wb") as f:
            pickle.dump(want, f)


def name_of(dt):
    return next(k for k, v in NP.items() if np.dtype(v) == dt)


def magnitude(case):
    """Largest finite float among the inputs."""
    top = 0.0
    for x in case.inputs[0] + case.inputs[-1]:
        if name_of(x.dtype) not in INTS + ["pred", *TINY]:
            v = np.abs(x.astype(np.complex128))
            top = max(top, np.max(v[np.isfinite(v)], initial=0.0))
    return top


def differ(case, got, want):
    """None, or what is wrong."""
    t = name_of(want.dtype)
    if t in COMPLEX:
        f = np.float32 if t == "c64" else np.float64
        a, b = got.view(f), want.view(f)
    else:
        a, b = got, want
    if t in INTS + ["pred", *TINY]:
        bad = np.flatnonzero(a.reshape(-1) != b.reshape(-1))
        return None if len(bad) == 0 else f"[{bad[0]}] {a.reshape(-1)[bad[0]]} for {b.reshape(-1)[bad[0]]}"
    with np.errstate(all="ignore"):
        a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
        tiny = {"f16": 6e-5, "f64": 2.3e-308}.get(t, 1.2e-38)
        # XLA flushes denormal results.
        flush = lambda v: np.where(np.abs(v) < tiny, 0.0 * v, v) if t in ("f32", "f64", "bf16") else v  # noqa: E731
        a, b = flush(a), flush(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        err = np.abs(a - b)
        fin = np.isfinite(b)
        top = max(np.max(np.abs(b[fin]), initial=0.0), magnitude(case) if case.norm else 0.0)
        ok = same | (err <= case.ulps * EPS[t] * np.abs(b)) | (err <= case.norm * EPS[t] * top)
        if case.norm and case.ulps == 0:
            ok |= err <= case.norm * EPS[t] * top
    bad = np.flatnonzero(~ok)
    return None if len(bad) == 0 else f"[{bad[0]}] {a[bad[0]]!r} for {b[bad[0]]!r} ({len(bad)} of {len(a)})"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--run", default="target/debug/examples/run")
    p.add_argument("--keep", default="")
    p.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    args = p.parse_args()
    r = random.Random(args.seed)
    cases = []
    kinds = [k for k in KINDS if args.only in k.__name__] or KINDS
    while len(cases) < args.n:
        cases.append(r.choice(kinds)(r))
    if args.worker >= 0:
        return worker(cases, args.worker, args.keep)
    work = args.keep or tempfile.mkdtemp(prefix="interp_vs_xla")
    os.makedirs(work, exist_ok=True)
    for f in os.listdir(work):
        os.remove(f"{work}/{f}")
    for i, c in enumerate(cases):
        with open(f"{work}/{i:05}.hlo", "w") as f:
            f.write(c.text)
        with open(f"{work}/{i:05}.in", "wb") as f:
            for dev in c.inputs:
                for x in dev:
                    f.write(np.ascontiguousarray(x).tobytes())
    t = time.time()
    subprocess.run([args.run, work], check=True, timeout=600)
    ours = time.time() - t
    # XLA runs in a child process: some programs crash it.
    at = 0
    while at < len(cases):
        cmd = [sys.executable, __file__, "--n", str(args.n), "--seed", str(args.seed), "--only", args.only,
               "--keep", work, "--worker", str(at)]
        subprocess.run(cmd, check=False, stderr=subprocess.DEVNULL)
        done = [int(f[:5]) for f in os.listdir(work) if f.endswith((".want", ".refused"))]
        at = max(done, default=-1) + 1
        if at < len(cases):
            open(f"{work}/{at:05}.refused", "w").write("crash")
            at += 1
    tally, wrong = {}, 0
    for i, c in enumerate(cases):
        family = c.name.split()[0] if c.name.split()[0] not in ("unary", "binary") else c.name.split()[1]
        row = tally.setdefault(family, [0, 0, 0])
        if os.path.exists(f"{work}/{i:05}.refused"):
            row[2] += 1
            if args.only:
                print("XLA", i, c.name, open(f"{work}/{i:05}.refused").read()[:200].replace("\n", " "))
            continue
        want = pickle.load(open(f"{work}/{i:05}.want", "rb"))
        row[0] += 1
        out = f"{work}/{i:05}.out"
        if not os.path.exists(out):
            why = open(f"{work}/{i:05}.err").read()
            print(f"ERROR {i} {c.name}: {why[:200]}")
            wrong += 1
            continue
        raw, at, bad = open(out, "rb").read(), 0, None
        for k, w in enumerate(want):
            n = w.size * w.dtype.itemsize
            got = np.frombuffer(raw[at:at + n], dtype=w.dtype)
            at += n
            if len(got) != w.size:
                bad = bad or f"leaf {k}: {len(got)} elements for {w.size}"
            else:
                bad = bad or differ(c, got, np.ascontiguousarray(w))
        if at != len(raw):
            bad = bad or f"{len(raw)} bytes for {at}"
        if bad:
            wrong += 1
            print(f"WRONG {i} {c.name}: {bad}")
        else:
            row[1] += 1
    print(f"{'operation':32} compared agree refused")
    for k in sorted(tally):
        print(f"{k:32} {tally[k][0]:8} {tally[k][1]:5} {tally[k][2]:7}")
    s = [sum(v[i] for v in tally.values()) for i in range(3)]
    print(f"{'total':32} {s[0]:8} {s[1]:5} {s[2]:7}   interpreter {ours:.1f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

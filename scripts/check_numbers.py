#!/usr/bin/env python3
"""Checks `scalify compare` and the files it reads against numpy and ml_dtypes.

usage: check_numbers.py SCALIFY [SEED [REWRITE]]

REWRITE is the example `rewrite` of crates/tensors: numpy must read what it
writes.

For pairs of tensors of all element types, random and adversarial, each metric
is computed here with numpy from its definition in docs/NUMBERS.md. Counts,
maxima, percentiles and distances must be the same to the last bit, sums to
1e-12 (their order is not defined).
"""
import json, math, os, subprocess, sys, tempfile
import ml_dtypes, numpy as np

scalify = sys.argv[1]
rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
ATOL, RTOL, ULP = 1e-3, 1e-2, 3
tmp = tempfile.TemporaryDirectory()

FLOATS = ["float16", "float32", "float64"] + [t for t in dir(ml_dtypes) if t.startswith(("float", "bfloat"))]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4", "int2", "uint2"]
HLO = {"bool": "pred", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
       "complex64": "c64", "complex128": "c128"}
HLO |= {f"{k}{w}": f"{k[0] if k == 'uint' else 's'}{w}" for k in ("int", "uint") for w in (2, 4, 8, 16, 32, 64)}
HLO |= {t: t.replace("float", "f").replace("_", "") for t in FLOATS if t.startswith("float") and t not in HLO}

def dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)

def wide(x):
    """Exact values as f64 (64-bit integers: rounded)."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)

def is_float(d):
    return d.name in FLOATS

# --- metrics -----------------------------------------------------------------

def ranks(x):
    """Position of each value among the representable ones."""
    d = x.dtype
    if not is_float(d):
        return x.astype(object)
    if d.itemsize == 1:
        v = np.arange(256, dtype=np.uint8).view(d).astype(np.float64)
        v = np.unique(np.append(v[np.isfinite(v)], 0.0) + 0.0)
        return np.searchsorted(v, x.astype(np.float64) + 0.0).astype(object)
    u = x.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[d.itemsize]).astype(object)
    top = 1 << (8 * d.itemsize - 1)
    return np.array([-(int(b) - top) if int(b) >= top else int(b) for b in u.ravel()], object).reshape(u.shape)

def near(a, b, what, rel=1e-12):
    if a is None or b is None:
        assert a is None and b is None, (what, a, b)
        return
    a = float(a)
    assert a == b or math.isnan(a) and math.isnan(b) or abs(a - b) <= rel * abs(b), (what, a, b)

def same(a, b, what):
    if isinstance(a, str):
        a = float(a)
    assert a == b, (what, a, b)

def side(x, w):
    out = {"nan": int(np.isnan(w).sum())}
    if w.dtype.kind == "c":
        inf = np.isinf(w) & ~np.isnan(w)
        return out | {"pos_inf": int(inf.sum()), "neg_inf": 0, "denormal": 0}
    out |= {"pos_inf": int((w == np.inf).sum()), "neg_inf": int((w == -np.inf).sum()), "denormal": 0}
    if is_float(x.dtype):
        tiny = float(ml_dtypes.finfo(x.dtype).smallest_normal)
        out["denormal"] = int(((np.abs(w) < tiny) & (w != 0)).sum())
        if x.dtype.name == "float8_e8m0fnu":
            out["denormal"] = 0
    return out

def fsum(x):
    try:
        return math.fsum(x)
    except (OverflowError, ValueError):
        return math.nan

@np.errstate(all="ignore")
def check(name, e, a, m):
    we, wa = wide(e).ravel(), wide(a).ravel()
    n = we.size
    same(m["elements"], n, "elements")
    fin = np.isfinite(we) & np.isfinite(wa)
    fe, fa = we[fin], wa[fin]
    if e.dtype.name in ("int64", "uint64"):
        d = np.array([float(abs(int(y) - int(x))) for x, y in zip(e.ravel(), a.ravel())])[fin]
    else:
        d = np.abs(fa - fe)
    me, ma = np.abs(fe), np.abs(fa)
    complex_ = we.dtype.kind == "c"
    sums = 1e-12
    # Moduli differ in the last bit from one library to the next.
    equal = (lambda a, b, w: near(a, b, w, 1e-15)) if complex_ else same
    same(m["finite_pairs"], int(fin.sum()), "finite_pairs")
    k = len(d)
    equal(m["max_abs"], d.max() if k else 0.0, "max_abs")
    if math.isfinite(fsum(d)):
        near(m["mean_abs"], fsum(d) / k if k else 0.0, "mean_abs", sums)
    if math.isfinite(fsum(d * d)):
        near(m["rmse"], math.sqrt(fsum(d * d) / k) if k else 0.0, "rmse", sums)
    mask = me > ATOL
    rel = d[mask] / me[mask]
    same(m["rel_elements"], int(mask.sum()), "rel_elements")
    equal(m["max_rel"], rel.max() if rel.size else 0.0, "max_rel")
    if math.isfinite(fsum(rel)):
        near(m["mean_rel"], fsum(rel) / rel.size if rel.size else 0.0, "mean_rel", sums)
    if k and np.isfinite(d).all():
        p = np.percentile(d, [50, 90, 99, 99.9])
        for key, want in zip(("p50", "p90", "p99", "p99_9"), p):
            equal(m["percentiles"][key], want, key)
        assert m["percentiles"]["exact"]
    e2, a2, d2 = fsum(me * me), fsum(ma * ma), fsum(d * d)
    dot = fsum((np.conj(fe) * fa).real)
    if not e2 == 0 and not a2 == 0:
        if math.isfinite(e2 + a2 + dot):
            # Relative to the norms: the products may cancel.
            assert abs(m["cosine"] - dot / (math.sqrt(e2) * math.sqrt(a2))) < 1e-12, "cosine"
    else:
        assert m["cosine"] is None
    if not e2 == 0 or not d2 == 0:
        if math.isfinite(e2 + d2):
            near(m["sqnr_db"], 10 * np.log10(np.float64(e2) / d2), "sqnr", 1e-9)
    else:
        assert m["sqnr_db"] is None
    same(m["different"], int((d != 0).sum()), "different")
    same(m["not_allclose"], int((d > ATOL + RTOL * me).sum()), "not_allclose")
    same(m["not_xla"], int(((d > ATOL) & (d / me > RTOL)).sum()), "not_xla")
    if not complex_:
        opp = np.signbit(fe) != np.signbit(fa)
        same(m["sign_flips"], int((opp & (fe != 0) & (fa != 0)).sum()), "sign_flips")
        same(m["zero_signs"], int((opp & (fe == 0) & (fa == 0)).sum()), "zero_signs")
    for s, x, w in (("expected", e, we), ("actual", a, wa)):
        assert m[s] == side(x.ravel(), w), (s, m[s], side(x.ravel(), w))
    ne, na = np.isnan(we), np.isnan(wa)
    same(m["nan_pairs"], int((ne & na).sum()), "nan_pairs")
    same(m["nan_mismatches"], int((ne != na).sum()), "nan_mismatches")
    bad = ~ne & ~na & (np.isinf(we) | np.isinf(wa)) & (we != wa)
    same(m["inf_mismatches"], int(bad.sum()), "inf_mismatches")
    if e.dtype != a.dtype:
        assert m["ulp"] is None
    else:
        if complex_:
            part = np.float32 if e.dtype == np.complex64 else np.float64
            r = [np.abs(ranks(y.ravel().view(part)) - ranks(x.ravel().view(part))) for x, y in [(e, a)]][0]
            u = r.reshape(-1, 2).max(axis=1)[fin] if n else r
        else:
            u = np.abs(ranks(a.ravel()) - ranks(e.ravel()))[fin]
        same(m["ulp"]["max"], max(u, default=0), "ulp max")
        same(m["ulp"]["over"], sum(1 for x in u if x > ULP), "ulp over")
        bins = {}
        for x in u:
            b = 0 if x == 0 else 1 << (int(x).bit_length() - 1)
            bins[b] = bins.get(b, 0) + 1
        assert {b: c for b, c in m["ulp"]["histogram"] if c} == bins, "ulp histogram"
    # The worst elements: largest error first, then lowest index.
    if not complex_:
        order = np.lexsort((np.flatnonzero(fin), -d))[:5]
        want = [int(np.flatnonzero(fin)[i]) for i in order if d[i] > 0]
        got = [int(np.ravel_multi_index(w["index"], e.shape)) if e.shape else 0 for w in m["worst"]]
        assert got == want, ("worst", got, want)
        for w, i in zip(m["worst"], want):
            same(w["abs"], np.abs(d[np.searchsorted(np.flatnonzero(fin), i)]), "worst abs")
            if e.dtype.name not in ("int64", "uint64"):
                same(w["expected"], we[i], "worst expected")
    h = m["histogram"]
    assert h["zeros"] + sum(c for *_, c in h["cells"]) == k
    assert h["zeros"] == int((d == 0).sum())

def check_top(e, a, axis, t):
    x, y = wide(e), wide(a)
    def order(v):
        # Largest first, NaN above all, first of equals first.
        v = np.where(np.isnan(v), np.inf, v), np.isnan(v)
        return np.lexsort((np.broadcast_to(np.arange(v[0].shape[axis]), np.moveaxis(v[0], axis, -1).shape),
                           -np.moveaxis(v[0], axis, -1), ~np.moveaxis(v[1], axis, -1)), axis=-1)[..., :5]
    ox, oy = order(x), order(y)
    rows = ox.reshape(-1, ox.shape[-1]), oy.reshape(-1, oy.shape[-1])
    assert (ox[..., 0] == np.argmax(x, axis)).all()
    same(t["rows"], len(rows[0]), "rows")
    same(t["top1"], sum(p[0] == q[0] for p, q in zip(*rows)), "top1")
    same(t["top5"], sum(p[0] in q for p, q in zip(*rows)), "top5")
    overlap = [len(set(p) & set(q)) / len(p) for p, q in zip(*rows)]
    near(t["overlap5"], sum(overlap) / len(overlap), "overlap5")

# --- cases --------------------------------------------------------------------

def random_bits(d, shape):
    """Every bit pattern, so NaN, infinities and denormals in their share."""
    if d == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, (*shape, d.itemsize), dtype=np.uint8)
    if d.itemsize == 1:
        if d.name in ("int4", "uint4", "float4_e2m1fn"):
            raw &= 15
        elif d.name in ("int2", "uint2"):
            raw &= 3
        elif d.name.startswith("float6"):
            raw &= 63
    return np.ascontiguousarray(raw).view(d).reshape(shape)

def specials(d):
    v = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 1e-45, 5e-324, 1e38, 3e38, -3e38,
         6e4, 448.0, 57344.0, 1e-8, 0.1, 1e300, -1e300]
    with np.errstate(all="ignore"):
        return np.array(v).astype(d)

def cases():
    for name in FLOATS:
        d = dtype(name)
        with np.errstate(all="ignore"):
            x = rng.normal(size=(7, 300))
            e = np.abs(x).astype(d) if name == "float8_e8m0fnu" else x.astype(d)
            noise = 1 + rng.normal(size=x.shape) * 10.0 ** rng.integers(-9, 0, x.shape)
            yield f"{name}/noise", e, (wide(e) * noise).astype(d)
            s = specials(d)
            yield f"{name}/special", np.repeat(s, len(s)), np.tile(s, len(s))
        yield f"{name}/bits", random_bits(d, (3, 1000)), random_bits(d, (3, 1000))
        yield f"{name}/equal", e, e.copy()
        yield f"{name}/empty", e[:, :0], e[:, :0]
        yield f"{name}/scalar", e[0, 0].reshape(()), e[0, 1].reshape(())
        yield f"{name}/zero", np.zeros(5000, d), np.zeros(5000, d)
    for name in INTS + ["bool"]:
        d = dtype(name)
        e = random_bits(d, (9, 200))
        yield f"{name}/bits", e, random_bits(d, (9, 200))
        near_by = e.copy()
        near_by[::2] = random_bits(d, (9, 200))[::2]
        yield f"{name}/half", e, near_by
    for name in ("complex64", "complex128"):
        e = (rng.normal(size=(4, 300)) + 1j * rng.normal(size=(4, 300))).astype(name)
        yield f"{name}/noise", e, (e * (1 + 1e-4 * rng.normal(size=e.shape))).astype(name)
        f = e.copy()
        f[0, :3] = [np.nan, np.inf, complex(0, np.inf)]
        g = e.copy()
        g[0, 1:4] = [np.inf, 1, np.nan]
        yield f"{name}/special", f, g
    # More than one block, its errors in all sizes; all of one size.
    e = rng.normal(size=(3, 100003)).astype("f4")
    yield "large/noise", e, e + (rng.normal(size=e.shape) * 10.0 ** rng.integers(-12, 3, e.shape)).astype("f4")
    yield "large/constant", np.zeros(200001, "f8"), np.full(200001, 0.5)
    yield "large/same error", np.arange(200001, dtype="f8"), np.arange(200001, dtype="f8") + 1
    g = e.copy()
    g[rng.random(e.shape) < 0.1] = np.nan
    yield "large/nan", e, g
    h = np.sort(np.abs(e).ravel())
    yield "large/growing", np.zeros_like(h), h
    # A few pairs that are not near the others: signs, zeros, denormals, what is
    # not finite.
    for name in ("float16", "bfloat16", "float32", "float64"):
        d = dtype(name)
        with np.errstate(all="ignore"):
            x = rng.normal(size=(3, 30007)).astype(d)
            y = (wide(x) * (1 + 10.0 ** rng.integers(-6, -1, x.shape) * rng.normal(size=x.shape))).astype(d)
            for v in (x, y):
                odd = rng.random(v.shape) < 0.01
                v[odd] = rng.choice(specials(d), odd.sum())
                turned = rng.random(v.shape) < 0.01
                v[turned] = -v[turned]
        yield f"{name}/odd", x, y
        y = x.copy()
        y[rng.random(x.shape) < 0.02] = d.type(1.0)
        yield f"{name}/few", x, y
        # More than one block of pairs of one kind each.
        x = rng.normal(size=(3, 23333))
        n = rng.normal(size=x.shape)
        x = x.astype(d)
        for kind, z in (("close", wide(x) * (1 + 1e-3 * n)), ("closer", wide(x) * (1 + 1e-5 * n)),
                        ("absolute", wide(x) + 1e-3 * n), ("unrelated", n)):
            yield f"{name}/{kind}", x, z.astype(d)
    # So many that pairs are counted.
    for name in ("int8", "float8_e4m3fn"):
        x = random_bits(dtype(name), (3, 350003))
        y = x.copy()
        some = rng.random(x.shape) < 0.1
        y[some] = random_bits(dtype(name), (some.sum(),))
        yield f"{name}/many", x, y
    yield "mixed/bf16", e[:, :1000], e[:, :1000].astype(ml_dtypes.bfloat16)
    yield "mixed/int", rng.integers(-5, 5, 1000), rng.integers(-5, 5, 1000).astype("i2")

def save(path, tensors):
    np.savez(path, **tensors)

def run(*args, code=None):
    p = subprocess.run([scalify, "compare", *map(str, args)], capture_output=True, text=True)
    assert code is None or p.returncode == code, (args, p.returncode, p.stdout[-2000:], p.stderr)
    return p.stdout

def strict(text):
    def bad(c):
        raise AssertionError(f"bare {c} in JSON")
    return json.loads(text, parse_constant=bad)

all_cases = {n: (e, a) for n, e, a in cases()}
pe, pa = os.path.join(tmp.name, "e.npz"), os.path.join(tmp.name, "a.npz")
save(pe, {n: c[0] for n, c in all_cases.items()})
save(pa, {n: c[1] for n, c in all_cases.items()})
hints = []
for n, (e, a) in all_cases.items():
    if e.dtype.kind == "V" or e.dtype.name.startswith(("float8", "float6", "float4", "int2", "int4", "uint2", "uint4")):
        hints += ["--dtype", f"{n}={HLO[e.dtype.name]}"]
opts = [f"--atol={ATOL}", f"--rtol={RTOL}", f"--ulp={ULP}", "--criterion=allclose", *hints]
out = run(pe, pa, "--json", *opts, code=1)
# One worker or many: the same report.
assert out == run(pe, pa, "--json", "--threads=1", *opts)
report = strict(out)
assert len(report["tensors"]) == len(all_cases)
for t in report["tensors"]:
    e, a = all_cases[t["name"]]
    try:
        assert t["dtypes"] == [HLO[e.dtype.name], HLO[a.dtype.name]], t["dtypes"]
        check(t["name"], e, a, t["metrics"])
        # The verdict is numpy's, but for one-sided NaN etc. that it shares.
        if e.dtype == a.dtype and e.dtype.name not in ("int64", "uint64"):
            with np.errstate(all="ignore"):
                close = np.allclose(wide(a), wide(e), RTOL, ATOL)
            assert (t["verdict"] == "equal") == close, (t["verdict"], close)
    except AssertionError as err:
        sys.exit(f"{t['name']} ({e.dtype}, {a.dtype}): {err}")
print(f"{len(all_cases)} pairs: metrics as numpy's")

# Largest elements along axes.
n = 0
for name in ("float32", "bfloat16", "float16", "int8", "int32"):
    for shape, axes in (((6, 50), (0, 1, -1)), ((3, 7, 11), (0, 1, 2)), ((40,), (0,)), ((4, 3), (1,)), ((2, 70000), (0, 1))):
        e = (rng.normal(size=shape) * 9).astype(dtype(name))
        a = (wide(e) + rng.normal(size=shape)).astype(dtype(name))
        if is_float(e.dtype):
            f = e.ravel(); f[rng.integers(0, f.size, 2)] = np.nan
        save(pe, {"x": e}); save(pa, {"x": a})
        for axis in axes:
            r = strict(run(pe, pa, "--json", f"--axis={axis}"))
            check_top(e, a, axis % len(shape), r["tensors"][0]["metrics"]["top"])
            n += 1
print(f"{n} agreements along axes as numpy's")

# Criteria that need more files.
e = rng.normal(size=2000).astype("f4"); x = e.astype("f8") * (1 + 1e-9 * rng.normal(size=2000))
a = (x * (1 + 2e-7 * rng.normal(size=2000))).astype("f4")
px = os.path.join(tmp.name, "x.npz")
save(pe, {"x": e}); save(pa, {"x": a}); save(px, {"x": x})
rm = lambda y: math.sqrt(np.mean((y.astype("f8") - x) ** 2))
ratio = rm(a) / rm(e)
for m, code in ((ratio * 1.001, 0), (ratio * 0.999, 1)):
    run(pe, pa, "--criterion=rmse-fp64", f"--fp64={px}", f"--multiplier={m}", "--atol=0", code=code)
run(pe, pa, "--criterion=rmse-fp64", code=3)
d = np.abs(a.astype("f8") - e)
save(px, {"x": d})
run(pe, pa, "--criterion=bound", f"--bound={px}", code=0)
d[np.argmax(d)] *= 0.999
save(px, {"x": d})
assert strict(run(pe, pa, "--criterion=bound", f"--bound={px}", "--json", code=1))["tensors"][0]["mismatched"] == 1
# Sums in two orders stay within the bound of their length.
terms = rng.normal(size=(300, 1000)).astype("f4")
s1, s2 = np.zeros(300, "f4"), np.zeros(300, "f4")
for i in range(1000):
    s1 += terms[:, i]; s2 += terms[:, 999 - i]
save(pe, {"x": s1}); save(pa, {"x": s2}); save(px, {"x": np.abs(terms.astype("f8")).sum(1)})
run(pe, pa, "--criterion=bound", f"--bound={px}", "--sum-length=1000", code=0)
run(pe, pa, "--criterion=bound", f"--bound={px}", "--sum-length=2", code=1)

# Differing structure is found; formats are read by their own readers.
save(pe, {"a": e, "b": e, "c": e, "only": e})
save(pa, {"a": e, "b": e.astype("f8"), "c": e.reshape(2, -1), "new": e})
out = strict(run(pe, pa, "--json", code=1))
got = {t["name"]: [f["code"] for f in t["findings"]] for t in out["tensors"]}
assert got == {"a": [], "b": ["dtype"], "c": ["shape"], "only": ["missing"], "new": ["extra"]}, got
import csv, io, xml.dom.minidom
rows = list(csv.DictReader(io.StringIO(run(pe, pa, "--format=csv"))))
assert [r["name"] for r in rows] == ["a", "b", "c", "only", "new"] and rows[0]["max_abs"] == "0.0", rows[0]
x = xml.dom.minidom.parseString(run(pe, pa, "--format=junit"))
assert len(x.getElementsByTagName("testcase")) == 5 and len(x.getElementsByTagName("failure")) == 4
lines = [strict(l) for l in run(pe, pa, "--format=jsonl").splitlines()]
assert lines[0]["counts"] == [1, 4, 0] and len(lines) == 6

# A report judged again says what comparing again says, or that it cannot.
e = rng.normal(size=4000).astype("f4") * 10.0 ** rng.integers(-4, 4, 4000).astype("f4")
a = e * (1 + 1e-3 * rng.normal(size=4000).astype("f4"))
a[:5] = np.nan; e[:3] = np.nan
rep = os.path.join(tmp.name, "r.json")
save(pe, {"x": e}); save(pa, {"x": a})
run(pe, pa, f"--report={rep}", code=1)
decided = 0
for crit in ("allclose", "xla", "seed", "ulp"):
    for rtol in 10.0 ** np.arange(-6, 1):
        for atol in (0.0, 1e-6, 1e-3, 1e-1, 10.0, 1e3):
            o = [f"--criterion={crit}", f"--rtol={rtol}", f"--atol={atol}"]
            if crit == "ulp":
                o = [f"--ulp={int(rtol * 1e6)}"]
            if rng.random() < 0.5:
                o += ["--equal-nan"]
            want = strict(run(pe, pa, "--json", *o))["tensors"][0]
            p = subprocess.run([scalify, "recheck", rep, "--json", "--all", *o], capture_output=True, text=True)
            assert p.returncode in (0, 1, 3), p.stderr
            got = strict(p.stdout)["tensors"][0]
            if got["verdict"] != "unknown":
                assert got["verdict"] == want["verdict"], (o, got["verdict"], want["verdict"])
                decided += 1
            if got["mismatched"] is not None:
                lo, hi = got["mismatched"]
                assert lo <= want["mismatched"] <= hi, (o, lo, hi, want["mismatched"])
assert decided > 120, decided
print("criteria, formats and recheck as numpy's")

if len(sys.argv) > 3:
    by_type = {}
    for n, (e, _) in all_cases.items():
        by_type.setdefault(e.dtype.name, {})[n.replace("/", ".")] = e
    for name, tensors in by_type.items():
        for extra in ([], ["--deflate"]):
            save(pe, tensors)
            hint = [HLO[name]] if tensors and next(iter(tensors.values())).dtype.kind == "V" else []
            subprocess.run([sys.argv[3], pe, pa, *hint, *extra], check=True)
            back = np.load(pa)
            assert sorted(back.files) == sorted(tensors)
            for n, e in tensors.items():
                got = back[n] if back[n].dtype == e.dtype else back[n].view(e.dtype)
                assert got.shape == e.shape and got.tobytes() == np.ascontiguousarray(e).tobytes(), n
    print(f"{len(by_type)} element types written as numpy reads them")

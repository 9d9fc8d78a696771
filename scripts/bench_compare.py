#!/usr/bin/env python3
"""Measures `scalify compare` against numpy and against reading the files.

usage: bench_compare.py SCALIFY [MEGABYTES] [DTYPE[-KIND[-exact]] ...]

For each element type and kind of data: a pair of npy files of that size each,
and, measured in turns, the best of several: one pass over both mapped files
that adds up 64-bit words, and one that copies both files into a buffer that
stays in the cache (`pread`, nothing added up), both with as many threads as
processors; scalify with all metrics (its default number of threads); and numpy
with the same metrics (on a part of the data, scaled up). Shares are of the pass
over mapped files. Kinds are `noise` (relative errors of 1e-4), `round` (1e-7, as
of another order of summation), `absolute` (errors of 1e-3 whatever the value, so
that some signs differ), `equal`, and to see the worst `far` (unrelated values),
`nan` (all values), `denormal` (all values). With `-exact` percentiles are exact
at any size.

Both wall time and time of processors are shown; where other programs run, the
latter says more.
"""
import concurrent.futures, os, resource, subprocess, sys, tempfile, time
import ml_dtypes, numpy as np

scalify = sys.argv[1]
size = int(sys.argv[2] if len(sys.argv) > 2 else 500) * 10**6
what = sys.argv[3:] or [f"{t}-{k}" for t in ("float32", "bfloat16", "float16", "float64") for k in ("noise", "round", "absolute")] + [
    f"float32-{k}" for k in ("equal", "nan", "far", "denormal")] + ["bfloat16-far", "float32-noise-exact", "float32-far-exact", "bfloat16-noise-exact", "float64-noise-exact", "float8_e4m3fn-noise", "int8-noise"]
np.seterr(all="ignore")
CPUS = os.cpu_count()

def write(paths, d, n, kind):
    rng = np.random.default_rng(0)
    with open(paths[0], "wb") as f, open(paths[1], "wb") as g:
        for h in (f, g):
            raw = d if d.kind != "V" else np.dtype(f"V{d.itemsize}")
            np.lib.format.write_array_header_1_0(h, {"descr": np.lib.format.dtype_to_descr(raw), "fortran_order": False, "shape": (n,)})
        for at in range(0, n, 1 << 24):
            m = min(n - at, 1 << 24)
            x = rng.standard_normal(m, dtype="f4")
            if d.kind in "iu":
                x *= 40
            if kind == "nan":
                x[:] = np.nan
            if kind == "denormal":
                x = (x.view("u4") & 0x807fffff).view("f4")
            y = {"equal": lambda: x, "nan": lambda: x, "far": lambda: rng.standard_normal(m, dtype="f4"),
                 "denormal": lambda: (x.view("u4") & 0xfffffff0).view("f4"),
                 "absolute": lambda: x + np.float32(1e-3) * rng.standard_normal(m, dtype="f4")}.get(
                kind, lambda: x * (1 + {"noise": 1e-4, "round": 1e-7}[kind] * rng.standard_normal(m, dtype="f4")))()
            f.write(x.astype(d).tobytes())
            g.write(y.astype(d).tobytes())

def timed(f):
    """Wall time and time of processors."""
    cpu = lambda: time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    s, p = time.perf_counter(), cpu()
    f()
    return np.array([time.perf_counter() - s, cpu() - p])

def read(paths):
    maps = [np.memmap(p, mode="r", dtype="u8", shape=(os.path.getsize(p) // 8,)) for p in paths]
    def part(i):
        for m in maps:
            end = len(m) * (i + 1) // CPUS
            for at in range(len(m) * i // CPUS, end, 1 << 17):
                m[at:min(end, at + (1 << 17))].sum()
    with concurrent.futures.ThreadPoolExecutor(CPUS) as pool:
        list(pool.map(part, range(CPUS)))

def copy(paths):
    files = [os.open(p, os.O_RDONLY) for p in paths]
    def part(i):
        buffer = bytearray(1 << 18)
        for f in files:
            size = os.fstat(f).st_size
            at, end = size * i // CPUS, size * (i + 1) // CPUS
            while at < end:
                at += os.preadv(f, [buffer], at)
    with concurrent.futures.ThreadPoolExecutor(CPUS) as pool:
        list(pool.map(part, range(CPUS)))
    for f in files:
        os.close(f)

def in_numpy(paths, d, k):
    e0, a0 = (np.load(p, mmap_mode="r")[:k].view(d) for p in paths)
    e, a = e0.astype("f8"), a0.astype("f8")
    atol, rtol = 1e-5, 1e-3
    fin = np.isfinite(e) & np.isfinite(a)
    ab = np.abs(a - e)
    ab = np.where(fin, ab, 0.0)
    out = [ab.max(), ab.mean(), np.sqrt((ab * ab).mean())]
    m = np.abs(e) > atol
    r = ab[m] / np.abs(e[m])
    out += [r.max(initial=0.0), r.mean(), *np.percentile(ab, [50, 90, 99, 99.9])]
    out += [e @ a / np.sqrt((e @ e) * (a @ a)), 10 * np.log10((e @ e) / (ab @ ab))]
    out += [(ab > atol + rtol * np.abs(e)).sum(), ((ab > atol) & (ab > rtol * np.abs(e))).sum()]
    for x in (e, a):
        out += [np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum(),
                ((np.abs(x) < 2.0**-126) & (x != 0)).sum()]
    out += [(np.isnan(e) != np.isnan(a)).sum(), (ab != 0).sum(), (np.sign(e) * np.sign(a) < 0).sum(), fin.sum()]
    if d.itemsize in (2, 4, 8):
        i = {2: np.int16, 4: np.int32, 8: np.int64}[d.itemsize]
        low = np.iinfo(i).min
        order = lambda b: np.where(b < 0, low - b, b).astype("i8")
        u = np.abs(order(a0.view(i)) - order(e0.view(i)))
        out += [u.max(), np.bincount(np.ceil(np.log2(u + 1.0)).astype(int))]
    out += [np.argpartition(ab, -5)[-5:], np.argmax(ab)]
    le, lm = np.log2(ab), np.log2(np.abs(e))
    ok = np.isfinite(le) & np.isfinite(lm)
    out += [np.histogram2d(le[ok], lm[ok], bins=(64, 32))]
    return out

def run(what):
    name, kind, exact, *_ = (what + "--").split("-")
    kind = kind or "noise"
    d = np.dtype(getattr(ml_dtypes, name, None) or name)
    n = size // d.itemsize
    exact = ["--exact-percentiles"] if exact else []
    hint = {"float8_e4m3fn": ["--dtype", "f8e4m3fn"]}.get(name, [])
    with tempfile.TemporaryDirectory() as tmp:
        paths = [os.path.join(tmp, x) for x in ("e.npy", "a.npy")]
        write(paths, d, n, kind)
        total = sum(map(os.path.getsize, paths))
        tool = lambda: subprocess.run([scalify, "compare", *paths, "--quiet", *hint, *exact])
        k = min(n, 1 << 22)
        t_read, t_copy, t_tool = [], [], []
        for _ in range(5):
            t_read.append(timed(lambda: read(paths)))
            t_copy.append(timed(lambda: copy(paths)))
            t_tool.append(timed(tool))
        t_numpy = np.min([timed(lambda: in_numpy(paths, d, k)) for _ in range(2)], 0) * n / k
        r, c, t = np.min(t_read, 0), np.min(t_copy, 0), np.min(t_tool, 0)
        row = [what]
        for i in (0, 1):
            row += [f"{total / r[i] / 1e9:.2f}", f"{total / c[i] / 1e9:.2f}", f"{total / t[i] / 1e9:.2f}", f"{r[i] / t[i]:.0%}",
                    f"{total / t_numpy[i] / 1e9:.3f}", f"{t_numpy[i] / t[i]:.0f}x"]
        print("  ".join(f"{c:>{w}}" for c, w in zip(row, WIDTHS)), flush=True)

WIDTHS = (20, *(8,) * 12)
print(f"{size / 1e6:.0f} MB in each file, {CPUS} processors, load {os.getloadavg()[0]:.1f}; GB/s of both files together")
heads = ["", *("reading", "copying", "scalify", "share", "numpy", "faster") * 2]
print(" " * 22 + f"{'wall time':^58}  {'time of processors':^58}")
print("  ".join(f"{c:>{w}}" for c, w in zip(heads, WIDTHS)))
for w in what:
    run(w)

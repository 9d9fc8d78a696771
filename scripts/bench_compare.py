#!/usr/bin/env python3
"""Measures `scalify compare` against numpy and against reading the files.

usage: bench_compare.py SCALIFY [MEGABYTES] [DTYPE]

One pair of npz files with values of about one and small errors. Prints, side
by side from one run: one pass that only reads both files (as many threads as
processors), scalify with all metrics, and numpy with the same metrics (on a
part of the data, scaled up). Best of three each.
"""
import concurrent.futures, os, resource, subprocess, sys, tempfile, time
import ml_dtypes, numpy as np

scalify = sys.argv[1]
size = int(sys.argv[2] if len(sys.argv) > 2 else 1000) * 10**6
name = sys.argv[3] if len(sys.argv) > 3 else "float32"
d = np.dtype(getattr(ml_dtypes, name, None) or name)
n = size // d.itemsize
rng = np.random.default_rng(0)
tmp = tempfile.TemporaryDirectory()
paths = [os.path.join(tmp.name, x) for x in ("e.npy", "a.npy")]
files = [np.lib.format.open_memmap(p, "w+", d, (n,)) for p in paths]
for at in range(0, n, 1 << 24):
    m = min(n - at, 1 << 24)
    x = rng.standard_normal(m, dtype="f4")
    files[0][at:at + m] = x.astype(d)
    files[1][at:at + m] = (x * (1 + 1e-4 * rng.standard_normal(m, dtype="f4"))).astype(d)
for f in files:
    f.flush()
del files
total = 2 * n * d.itemsize

def best(f, times=3):
    """Shortest wall time, and least time of processors in it."""
    t, c = [], []
    cpu = lambda: time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for _ in range(times):
        s, p = time.perf_counter(), cpu()
        f()
        t.append(time.perf_counter() - s)
        c.append(cpu() - p)
    return np.array([min(t), min(c)])

def read():
    def part(job):
        fd, at, end = job
        buf = bytearray(1 << 20)
        while at < end:
            at += os.preadv(fd, [buf], at)
    fds = [os.open(p, os.O_RDONLY) for p in paths]
    k = os.cpu_count()
    ends = os.path.getsize(paths[0])
    jobs = [(fd, ends * i // k, ends * (i + 1) // k) for fd in fds for i in range(k)]
    with concurrent.futures.ThreadPoolExecutor(k) as pool:
        list(pool.map(part, jobs))
    [os.close(fd) for fd in fds]

def tool():
    subprocess.run([scalify, "compare", *paths, "--quiet"] + (["--dtype", HINT] if HINT else []))

HINT = {"float8_e4m3fn": "f8e4m3fn"}.get(name)

def in_numpy(k):
    e0, a0 = (np.load(p, mmap_mode="r")[:k].view(d) for p in paths)
    e, a = e0.astype("f8"), a0.astype("f8")
    atol, rtol = 1e-5, 1e-3
    fin = np.isfinite(e) & np.isfinite(a)
    ab = np.abs(a - e)
    out = [ab.max(), ab.mean(), np.sqrt((ab * ab).mean())]
    m = np.abs(e) > atol
    r = ab[m] / np.abs(e[m])
    out += [r.max(), r.mean(), *np.percentile(ab, [50, 90, 99, 99.9])]
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
    with np.errstate(divide="ignore"):
        le, lm = np.log2(ab), np.log2(np.abs(e))
    ok = np.isfinite(le) & np.isfinite(lm)
    out += [np.histogram2d(le[ok], lm[ok], bins=(64, 32))]
    return out

k = min(n, 1 << 22)
t_read, t_tool = best(read), best(tool)
t_numpy = best(lambda: in_numpy(k), 2) * n / k
print(f"{name}, {total / 1e9:.1f} GB in both files, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
print("            wall s  GB/s   processor s  GB/s")
for what, (wall, cpu) in (("read only", t_read), ("scalify", t_tool), ("numpy", t_numpy)):
    print(f"{what:10} {wall:7.2f} {total / wall / 1e9:6.2f} {cpu:12.2f} {total / cpu / 1e9:6.2f}")
for i, what in enumerate(("wall", "processor")):
    print(f"{what} time: {t_read[i] / t_tool[i]:.0%} of reading, {t_numpy[i] / t_tool[i]:.1f} times faster than numpy")

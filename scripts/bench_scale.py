"""Times `scalify verify` on Llama-like stacks that JAX lowers over meshes of
any size (no devices needed), along one quantity at a time: layers, devices,
sequence, batch, hidden size, with lemmas of repeated layers and without
(--no-memo). Runs alternate; prints medians, the exponent in the number of
layers, and the ratio to the smallest of the other quantities.

With --train: training steps of such stacks (gradients of a mean squared error,
clipped by their global norm, AdamW) on a mesh of data and tensor parallelism,
along the number of layers, the number of devices and the sizes.

usage: bench_scale.py SCALIFY [--runs N] [--train] [--keep DIR]
"""

import argparse
import functools
import math
import os
import re
import statistics
import subprocess
import tempfile
import time

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIZES = dict(layers=8, devices=8, seq=64, batch=1, hidden=256)
# What varies, and whether the text grows with it.
SWEEPS = [
    ("layers", [2, 8, 32, 126]),
    ("devices", [8, 64, 1024, 8192]),
    ("seq", [64, 1024, 8192]),
    ("batch", [1, 16, 256]),
    ("hidden", [256, 4096, 16384]),
]
TRAIN = [
    ("layers", [2, 8, 32, 64]),
    ("devices", [16, 128, 1024, 8192]),
    ("seq", [64, 1024, 8192]),
    ("batch", [512, 8192]),
    ("hidden", [256, 4096, 16384]),
]
HEADS, HEAD, WIDE = 8192, 16, 16384


def norm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g


def layer(x, w, heads, reduce):
    h = norm(x, w["ln1"])
    q, k, v = (
        jnp.reshape(h @ w[n], (*x.shape[:2], heads, HEAD)) for n in ("wq", "wk", "wv")
    )
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(HEAD)
    p = jnp.arange(x.shape[1])
    s = jnp.where(p[:, None] >= p[None, :], s, -1e30)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)
    x = x + reduce(jnp.reshape(o, (*x.shape[:2], heads * HEAD)) @ w["wo"])
    h = norm(x, w["ln2"])
    return x + reduce((jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"])


def stack(x, ws, heads, reduce):
    for w in ws:
        x = layer(x, w, heads, reduce)
    return x


def text(f, mesh, ins, out, args):
    if mesh is not None:
        f = jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=out)
        place = functools.partial(jax.tree.map, lambda s: NamedSharding(mesh, s))
        f = jax.jit(f, in_shardings=place(ins), out_shardings=place(out))
    else:
        f = jax.jit(f)
    lowered = f.trace(*args).lower(lowering_platforms=("cpu",))
    return lowered.compiler_ir("hlo").as_hlo_text()


def iota(m):
    """Groups of consecutive or equally spaced ids in the compact form of HLO."""
    ids = [[int(i) for i in g.split(",")] for g in re.findall(r"{([\d,]+)}", m[1])]
    groups, size = len(ids), len(ids[0])
    if any(len(g) != size for g in ids):
        return m[0]
    if [i for g in ids for i in g] == list(range(groups * size)):
        return f"replica_groups=[{groups},{size}]<=[{groups * size}]"
    if all(g == list(range(k, groups * size, groups)) for k, g in enumerate(ids)):
        return f"replica_groups=[{groups},{size}]<=[{size},{groups}]T(1,0)"
    return m[0]


def step(heads, reduce, mean, squares, ws, ms, vs, x, y, n):
    """One step of AdamW on gradients clipped by their global norm. `reduce`
    ends a sum over tp, `mean` a mean over dp, `squares` adds up over tp what
    is split there."""

    def loss(ws):
        d = stack(x, ws, heads, reduce) - y
        return mean(jnp.mean(d * d))

    l, g = jax.value_and_grad(loss)(ws)
    size = jnp.sqrt(sum(squares(k, jnp.sum(v * v)) for w in g for k, v in w.items()))
    g = jax.tree.map(lambda v: v * jnp.minimum(1.0, 1.0 / size), g)
    b1, b2 = 0.9, 0.999
    ms = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, ms, g)
    vs = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, vs, g)
    c1, c2 = 1 - b1 ** (n + 1), 1 - b2 ** (n + 1)
    move = lambda w, m, v: w - 1e-3 * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + 0.1 * w)
    return jax.tree.map(move, ws, ms, vs), ms, vs, l


def weights(hidden):
    """Shape and spec of each."""
    return {
        "ln1": ((hidden,), P()),
        "wq": ((hidden, HEADS * HEAD), P(None, "tp")),
        "wk": ((hidden, HEADS * HEAD), P(None, "tp")),
        "wv": ((hidden, HEADS * HEAD), P(None, "tp")),
        "wo": ((HEADS * HEAD, hidden), P("tp", None)),
        "ln2": ((hidden,), P()),
        "gate": ((hidden, WIDE), P(None, "tp")),
        "up": ((hidden, WIDE), P(None, "tp")),
        "down": ((WIDE, hidden), P("tp", None)),
    }


def pair(layers, devices, seq, batch, hidden, train=False):
    a = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    names = weights(hidden)
    w = [{k: a(*s) for k, (s, _) in names.items()}] * layers
    spec = [{k: p for k, (_, p) in names.items()}] * layers
    x = a(batch, seq, hidden)
    over = functools.partial(jax.lax.psum, axis_name="tp")
    alone = lambda y: y
    if train:
        # Eight devices in a group of tp at least, the rest is dp.
        tp = max(8, math.isqrt(devices))
        tp = 1 << (tp.bit_length() - 1)
        mesh = AbstractMesh((devices // tp, tp), ("dp", "tp"))
        args = (w, w, w, x, x, a())
        ins, out = (spec, spec, spec, P("dp"), P("dp"), P()), (spec, spec, spec, P())
        mean = functools.partial(jax.lax.pmean, axis_name="dp")
        squares = lambda k, v: over(v) if names[k][1] != P() else v
        f = functools.partial(step, HEADS, alone, alone, lambda _, v: v)
        g = functools.partial(step, HEADS // tp, over, mean, squares)
    else:
        mesh = AbstractMesh((devices,), ("tp",))
        args, ins, out = (x, w), (P(), spec), P()
        f = lambda x, ws: stack(x, ws, HEADS, alone)
        g = lambda x, ws: stack(x, ws, HEADS // devices, over)
    dist = text(g, mesh, ins, out, args)
    base = text(f, None, None, None, args)
    return base, re.sub(r"replica_groups=({{.*?}})", iota, dist)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("scalify")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--keep")
    o = ap.parse_args()
    sizes = SIZES | (dict(devices=16, batch=512) if o.train else {})
    with tempfile.TemporaryDirectory() as tmp:
        root = o.keep or tmp
        for what, values in TRAIN if o.train else SWEEPS:
            cases = []
            for v in values:
                name = os.path.join(root, f"{what}{v}")
                for side, t in zip(("base", "dist"), pair(**{**sizes, what: v}, train=o.train)):
                    with open(f"{name}.{side}.hlo", "w") as f:
                        f.write(t)
                cases.append((v, name, ([], [])))
            for _ in range(o.runs):
                for _, name, times in cases:
                    cmd = [o.scalify, "verify", f"{name}.base.hlo", f"{name}.dist.hlo", "--json"]
                    for way, more in zip(times, ([], ["--no-memo"])):
                        t = time.perf_counter()
                        r = subprocess.run(cmd + more, capture_output=True, text=True)
                        way.append(time.perf_counter() - t)
                        if r.returncode != 0:
                            raise SystemExit(f"{name}: exit {r.returncode}\n{r.stdout[-2000:]}")
            print(what)
            first = last = None
            for v, name, times in cases:
                now = [statistics.median(t) for t in times]
                size = sum(os.path.getsize(f"{name}.{s}.hlo") for s in ("base", "dist"))
                line = f"  {v:6} {size / 1e6:7.2f} MB"
                for k, way in enumerate(("lemmas", "whole")):
                    line += f"   {way} {now[k] * 1e3:7.1f} ms"
                    if first:
                        line += f" x{now[k] / first[1][k]:.2f}"
                        if what == "layers":
                            all_, step = (
                                math.log(now[k] / p[1][k]) / math.log(v / p[0]) for p in (first, last)
                            )
                            line += f" exponent {all_:.2f}, last {step:.2f}"
                first, last = first or (v, now), (v, now)
                print(line)


if __name__ == "__main__":
    main()

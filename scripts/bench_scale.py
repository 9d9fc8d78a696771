"""Times `scalify verify` on Llama-like stacks that JAX lowers over meshes of
any size (no devices needed), along one quantity at a time: layers, devices,
sequence, batch, hidden size. Runs alternate; prints medians, the exponent in
the number of layers, and the ratio to the smallest of the other quantities.

usage: bench_scale.py SCALIFY [--runs N] [--keep DIR]
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
    """Groups of consecutive ids in the compact form of HLO."""
    ids = [[int(i) for i in g.split(",")] for g in re.findall(r"{([\d,]+)}", m[1])]
    flat = [i for g in ids for i in g]
    if flat == list(range(len(flat))) and len({len(g) for g in ids}) == 1:
        return f"replica_groups=[{len(ids)},{len(ids[0])}]<=[{len(flat)}]"
    return m[0]


def pair(layers, devices, seq, batch, hidden):
    a = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    names = {
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
    args = (a(batch, seq, hidden), [{k: a(*s) for k, (s, _) in names.items()}] * layers)
    ins = (P(), [{k: p for k, (_, p) in names.items()}] * layers)
    mesh = AbstractMesh((devices,), ("tp",))
    base = text(lambda x, ws: stack(x, ws, HEADS, lambda y: y), None, None, None, args)
    reduce = functools.partial(jax.lax.psum, axis_name="tp")
    dist = text(
        lambda x, ws: stack(x, ws, HEADS // devices, reduce), mesh, ins, P(), args
    )
    return base, re.sub(r"replica_groups=({{.*?}})", iota, dist)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("scalify")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--keep")
    o = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        root = o.keep or tmp
        for what, values in SWEEPS:
            cases = []
            for v in values:
                name = os.path.join(root, f"{what}{v}")
                for side, t in zip(("base", "dist"), pair(**{**SIZES, what: v})):
                    with open(f"{name}.{side}.hlo", "w") as f:
                        f.write(t)
                cases.append((v, name, []))
            for _ in range(o.runs):
                for _, name, times in cases:
                    cmd = [o.scalify, "verify", f"{name}.base.hlo", f"{name}.dist.hlo"]
                    t = time.perf_counter()
                    r = subprocess.run([*cmd, "--json"], capture_output=True, text=True)
                    times.append(time.perf_counter() - t)
                    if r.returncode != 0:
                        raise SystemExit(f"{name}: exit {r.returncode}\n{r.stdout[-2000:]}")
            print(what)
            first = None
            for v, name, times in cases:
                t = statistics.median(times)
                size = sum(os.path.getsize(f"{name}.{s}.hlo") for s in ("base", "dist"))
                line = f"  {v:6} {t * 1e3:8.1f} ms {size / 1e6:7.2f} MB"
                first = first or (v, t)
                if v != first[0]:
                    line += f"  x{t / first[1]:.2f}"
                    if what == "layers":
                        line += f", exponent {math.log(t / first[1]) / math.log(v / first[0]):.2f}"
                        line += f", from the last {math.log(t / last[1]) / math.log(v / last[0]):.2f}"
                last = (v, t)
                print(line)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The interpreter's time beside that of XLA's compiled CPU code.

Lowers each graph with jax, runs it compiled (one call, result awaited) and in
the interpreter (parsing and reading not counted) on the same inputs, checks
that the results agree, and prints the medians of the wall times, their ratio, and the
ratio of the CPU times of all threads (steadier on a busy machine).

    cargo build --release -p scalify-interp --example run
    python scripts/bench_interp.py [--only SUBSTRING] [--runs 15] [--limit]

With --limit the exit status is 1 if a dot graph takes more than 5 times XLA's
time or an elementwise graph more than 10 times.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

G = np.random.default_rng(0)
LIMIT = {"dot": 5.0, "elementwise": 10.0}


def f32(*d, scale=1.0):
    return (G.normal(size=d) * scale).astype(np.float32)


def bf16(*d):
    return f32(*d).astype(jnp.bfloat16)


def attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def mlp(x, a, b):
    return jax.nn.gelu(x @ a) @ b


def swiglu(x, a, b, c):
    return (jax.nn.silu(x @ a) * (x @ b)) @ c


def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b


def rms_norm(x, g):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def layer(x, g, wq, wk, wv, wo, a, b, c):
    h = rms_norm(x, g)
    n, s, d = h.shape
    split = lambda y: y.reshape(n, s, 8, d // 8).transpose(0, 2, 1, 3)  # noqa: E731
    o = attention(split(h @ wq), split(h @ wk), split(h @ wv))
    x = x + o.transpose(0, 2, 1, 3).reshape(n, s, d) @ wo
    return x + swiglu(rms_norm(x, g), a, b, c)


def adamw(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-8) + 0.01 * p), m, v


def rope(x):
    n = x.shape[-1] // 2
    t = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(n) / n)
    a, b = x[..., :n], x[..., n:]
    return jnp.concatenate([a * jnp.cos(t) - b * jnp.sin(t), a * jnp.sin(t) + b * jnp.cos(t)], -1)


def conv(x, w, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups)


def loss(x, w1, w2, y):
    z = jax.nn.log_softmax(jnp.tanh(x @ w1) @ w2)
    return -jnp.mean(jnp.sum(z * y, -1))


N = 1 << 20
W = [f32(512, 512, scale=0.05) for _ in range(4)]
BIG = f32(1024, 1024)
GRAPHS = [
    ("dot", "dot 64", jnp.matmul, [f32(64, 64), f32(64, 64)]),
    ("dot", "dot 256", jnp.matmul, [f32(256, 256), f32(256, 256)]),
    ("dot", "dot 1024", jnp.matmul, [BIG, f32(1024, 1024)]),
    ("dot", "dot A B^T", lambda a, b: a @ b.T, [f32(512, 768), f32(640, 768)]),
    ("dot", "dot A^T B", lambda a, b: a.T @ b, [f32(768, 512), f32(768, 640)]),
    ("dot", "dot one row", jnp.matmul, [f32(1, 2048), f32(2048, 2048)]),
    ("dot", "dot matrix vector", lambda a, b: a @ b, [f32(2048, 2048), f32(2048)]),
    ("dot", "dot batched", jnp.matmul, [f32(32, 128, 64), f32(32, 64, 128)]),
    ("dot", "dot small batched", jnp.matmul, [f32(512, 16, 16), f32(512, 16, 16)]),
    ("dot", "dot bf16", jnp.matmul, [bf16(512, 512), bf16(512, 512)]),
    ("dot", "dot f64", jnp.matmul, [BIG[:512, :512].astype(np.float64), BIG[512:, 512:].astype(np.float64)]),
    ("dot", "attention", attention, [f32(4, 8, 128, 64) for _ in range(3)]),
    ("dot", "mlp", mlp, [f32(128, 512), f32(512, 2048, scale=0.05), f32(2048, 512)]),
    ("dot", "swiglu", swiglu, [f32(128, 512)] + [f32(512, 1408, scale=0.05) for _ in range(2)] + [f32(1408, 512)]),
    ("dot", "llama layer", layer, [f32(2, 128, 512), f32(512)] + W
     + [f32(512, 1408, scale=0.05) for _ in range(2)] + [f32(1408, 512, scale=0.05)]),
    ("dot", "mlp gradient", jax.grad(loss, (1, 2)), [f32(256, 512), f32(512, 512, scale=0.05), f32(512, 100), f32(256, 100)]),
    ("dot", "convolution 3x3", conv, [f32(8, 32, 32, 32), f32(3, 3, 32, 64)]),
    ("dot", "convolution strided", lambda x, w: conv(x, w, 2), [f32(4, 112, 112, 3), f32(7, 7, 3, 64)]),
    ("dot", "convolution 1x1", conv, [f32(4, 28, 28, 128), f32(1, 1, 128, 128)]),
    ("dot", "convolution depthwise", lambda x, w: conv(x, w, 1, 64), [f32(4, 28, 28, 64), f32(3, 3, 1, 64)]),
    ("elementwise", "add", jnp.add, [f32(N), f32(N)]),
    ("elementwise", "exp", jnp.exp, [f32(N)]),
    ("elementwise", "log", jnp.log, [np.abs(f32(N))]),
    ("elementwise", "tanh", jnp.tanh, [f32(N)]),
    ("elementwise", "logistic", jax.nn.sigmoid, [f32(N)]),
    ("elementwise", "sine", jnp.sin, [f32(N, scale=10)]),
    ("elementwise", "cosine", jnp.cos, [f32(N, scale=10)]),
    ("elementwise", "expm1", jnp.expm1, [f32(N)]),
    ("elementwise", "log1p", jnp.log1p, [np.abs(f32(N))]),
    ("elementwise", "erf", jax.lax.erf, [f32(N)]),
    ("elementwise", "power", jnp.power, [np.abs(f32(N)), f32(N)]),
    ("elementwise", "rsqrt", jax.lax.rsqrt, [np.abs(f32(N))]),
    ("elementwise", "exp bf16", jnp.exp, [bf16(N)]),
    ("elementwise", "exp f64", jnp.exp, [f32(N).astype(np.float64)]),
    ("elementwise", "small chain", lambda x: jnp.tanh(x * 2 + 1) * x, [f32(1024)]),
    ("elementwise", "gelu tanh", jax.nn.gelu, [f32(N)]),
    ("elementwise", "gelu erf", lambda x: jax.nn.gelu(x, approximate=False), [f32(N)]),
    ("elementwise", "silu bf16", jax.nn.silu, [bf16(N)]),
    ("elementwise", "polynomial", lambda x: ((x * 3 + 2) * x - 1) * x + 0.5 * x * x, [f32(N)]),
    ("elementwise", "select", lambda x, y: jnp.where(x > y, x * 2, y - 1), [f32(N), f32(N)]),
    ("elementwise", "adamw", adamw, [f32(N), f32(N), f32(N), np.abs(f32(N))]),
    ("elementwise", "softmax", jax.nn.softmax, [f32(1024, 1024)]),
    ("elementwise", "log softmax", jax.nn.log_softmax, [f32(1024, 1024)]),
    ("elementwise", "layer norm", layer_norm, [f32(1024, 1024), f32(1024), f32(1024)]),
    ("elementwise", "rms norm bf16", rms_norm, [bf16(1024, 1024), bf16(1024)]),
    ("elementwise", "rope", rope, [f32(8, 256, 512)]),
    ("elementwise", "bias and relu", lambda x, b: jax.nn.relu(x + b), [f32(1024, 1024), f32(1024)]),
    ("elementwise", "transpose and add", lambda x, y: x.T + y, [f32(1024, 1024), f32(1024, 1024)]),
    ("elementwise", "row sums", lambda x: x.sum(-1), [f32(1024, 1024)]),
    ("elementwise", "column sums", lambda x: x.sum(0), [f32(1024, 1024)]),
    ("elementwise", "column max", lambda x: x.max(0), [f32(1024, 1024)]),
    ("elementwise", "integer hash", lambda x: (x ^ (x >> 13)) * 0x85ebca6b ^ (x << 7) + (x >> 16),
     [G.integers(0, 1 << 32, N, dtype=np.uint32)]),
    ("elementwise", "uniform", lambda k: jax.random.uniform(k, (N,)), [np.array([1, 2], np.uint32)]),
]


def leaves(x):
    return jax.tree_util.tree_leaves(x)


def interpret(command, runs):
    """What it says, and CPU seconds per run (those of starting it left out)."""
    def cpu(n):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run([*command, str(n)], capture_output=True, text=True, timeout=600).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    _, start = cpu(1)
    said, total = cpu(runs + 1)
    return said, (total - start) / runs


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    p.add_argument("--runs", type=int, default=15)
    p.add_argument("--run", default="target/release/examples/run")
    p.add_argument("--limit", action="store_true")
    args = p.parse_args()
    jax.config.update("jax_enable_x64", True)
    worst, over = {}, []
    print("| graph | XLA ms | interpreter ms | ratio | ratio of CPU time | largest difference |\n"
          "|---|---:|---:|---:|---:|---:|")
    for kind, name, f, inputs in GRAPHS:
        if args.only not in f"{kind} {name}":
            continue
        f = jax.jit(f, keep_unused=True)
        lowered = f.lower(*inputs)
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/x.hlo", "w") as o:
                o.write(lowered.compiler_ir("hlo").as_hlo_text())
            with open(f"{work}/x.in", "wb") as o:
                for x in inputs:
                    o.write(np.ascontiguousarray(x).tobytes())
            compiled = lowered.compile()
            xs = [jax.device_put(x) for x in inputs]
            want = jax.block_until_ready(compiled(*xs))
            xla = []
            cpu = time.process_time()
            for _ in range(args.runs):
                t = time.perf_counter()
                jax.block_until_ready(compiled(*xs))
                xla.append((time.perf_counter() - t) * 1e3)
            cpu_xla = (time.process_time() - cpu) / args.runs
            said, cpu_ours = interpret([args.run, work, "--time"], args.runs)
            if os.path.exists(f"{work}/x.err"):
                sys.exit(f"{name}: {open(f'{work}/x.err').read()}")
            ours = float(said.split()[-1])
            raw, at, far = open(f"{work}/x.out", "rb").read(), 0, 0.0
            for w in map(np.asarray, leaves(want)):
                got = np.frombuffer(raw, w.dtype, w.size, at).astype(np.float64)
                at += w.nbytes
                ref = w.astype(np.float64).reshape(-1)
                top = max(np.max(np.abs(ref), initial=0.0), 1e-30)
                far = max(far, float(np.max(np.abs(got - ref), initial=0.0)) / top)
        ratio = ours / statistics.median(xla)
        worst[kind] = max(worst.get(kind, 0.0), ratio)
        if ratio > LIMIT[kind]:
            over.append(name)
        print(f"| {name} | {statistics.median(xla):.3f} | {ours:.3f} | {ratio:.2f} "
              f"| {cpu_ours / max(cpu_xla, 1e-6):.2f} | {far:.1e} |", flush=True)
    print("\nworst: " + ", ".join(f"{k} {v:.2f}" for k, v in worst.items()) + (f"; over the limit: {over}" if over else ""))
    sys.exit(1 if over and args.limit else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The interpreter's time beside that of StableHLO's reference interpreter.

Lowers each function with jax, runs it in both on the same inputs, checks that
the results agree, and prints medians and their ratio.

    cargo build --release -p scalify-interp --example run
    python scripts/bench_reference.py [--runs 3]
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402
from jaxlib.mlir.dialects import stablehlo  # noqa: E402

import bench_interp as graphs  # noqa: E402


def loop(x):
    return jax.lax.fori_loop(0, 500, lambda _, v: v + 1, x)


f32 = graphs.f32
CASES = [
    ("dot", jnp.matmul, [f32(64, 64), f32(64, 64)]),
    ("mlp", graphs.mlp, [f32(16, 64), f32(64, 256), f32(256, 64)]),
    ("softmax attention", graphs.attention, [f32(1, 2, 32, 32) for _ in range(3)]),
    ("layer norm", graphs.layer_norm, [f32(64, 128), f32(128), f32(128)]),
    ("convolution", graphs.conv, [f32(1, 8, 8, 8), f32(3, 3, 8, 8)]),
    ("tanh", jnp.tanh, [f32(1 << 14)]),
    ("add", jnp.add, [f32(1 << 14), f32(1 << 14)]),
    ("transpose", jnp.transpose, [f32(128, 128)]),
    ("sum", jnp.sum, [f32(1 << 14)]),
    ("sort", jnp.sort, [f32(2048)]),
    ("loop of 500 steps", loop, [np.float32(0.5)]),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--run", default="target/release/examples/run")
    args = p.parse_args()
    print("| computation | StableHLO interpreter ms | interpreter ms | times faster | largest difference |\n"
          "|---|---:|---:|---:|---:|")
    for name, f, inputs in CASES:
        lowered = jax.jit(f, keep_unused=True).lower(*inputs)
        module = lowered.compiler_ir("stablehlo")
        with module.context:
            operands = [ir.DenseElementsAttr.get(np.asarray(x)) for x in inputs]
        times = []
        for _ in range(args.runs):
            t = time.perf_counter()
            out = stablehlo.eval_module(module, operands)
            times.append((time.perf_counter() - t) * 1e3)
        want = np.array(ir.DenseElementsAttr(out[0]))
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/x.hlo", "w") as o:
                o.write(lowered.compiler_ir("hlo").as_hlo_text())
            with open(f"{work}/x.in", "wb") as o:
                for x in inputs:
                    o.write(np.ascontiguousarray(x).tobytes())
            said = subprocess.run([args.run, work, "--time", "15"], capture_output=True, text=True, timeout=600)
            if os.path.exists(f"{work}/x.err"):
                raise SystemExit(open(f"{work}/x.err").read())
            ours = float(said.stdout.split()[-1])
            got = np.fromfile(f"{work}/x.out", want.dtype).reshape(want.shape)
        far = np.max(np.abs(got - want)) / np.max(np.abs(want))
        ref = statistics.median(times)
        print(f"| {name} | {ref:.2f} | {ours:.4f} | {ref / ours:.0f} | {far:.1e} |", flush=True)


if __name__ == "__main__":
    main()

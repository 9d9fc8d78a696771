#!/usr/bin/env python3
"""The interpreter's time beside that of ONNX's reference evaluator.

Builds the same computation as an ONNX model and as an HLO module, runs both
on the same inputs, checks that the results agree, and prints medians and
their ratio. Needs the packages onnx and numpy.

    cargo build --release -p scalify-interp --example run
    python scripts/bench_onnx.py [--runs 5]
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

G = np.random.default_rng(0)
RED = """{0} {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] {1}(a, b)
}}
"""
SUM, MAX = RED.format("sum", "add"), RED.format("max", "maximum")


def f32(*d):
    return G.normal(size=d).astype(np.float32)


def mlp(n=64, d=256, h=1024):
    nodes = [("MatMul", ["x", "a"], ["u"], {}), ("Relu", ["u"], ["v"], {}), ("MatMul", ["v", "b"], ["y"], {})]
    hlo = f"""HloModule m
ENTRY e {{
  x = f32[{n},{d}] parameter(0)
  a = f32[{d},{h}] parameter(1)
  b = f32[{h},{d}] parameter(2)
  u = f32[{n},{h}] dot(x, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[] constant(0)
  zb = f32[{n},{h}] broadcast(z), dimensions={{}}
  v = f32[{n},{h}] maximum(u, zb)
  ROOT y = f32[{n},{d}] dot(v, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    return "mlp", nodes, hlo, {"x": f32(n, d), "a": f32(d, h), "b": f32(h, d)}


def attention(b=8, s=128, d=64):
    nodes = [("Transpose", ["k"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["q", "t"], ["s"], {}),
             ("Softmax", ["s"], ["p"], {"axis": -1}), ("MatMul", ["p", "v"], ["y"], {})]
    hlo = f"""HloModule m
{SUM}{MAX}ENTRY e {{
  q = f32[{b},{s},{d}] parameter(0)
  k = f32[{b},{s},{d}] parameter(1)
  v = f32[{b},{s},{d}] parameter(2)
  s = f32[{b},{s},{s}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  low = f32[] constant(-inf)
  m = f32[{b},{s}] reduce(s, low), dimensions={{2}}, to_apply=max
  mb = f32[{b},{s},{s}] broadcast(m), dimensions={{0,1}}
  w = f32[{b},{s},{s}] subtract(s, mb)
  e = f32[{b},{s},{s}] exponential(w)
  z = f32[] constant(0)
  t = f32[{b},{s}] reduce(e, z), dimensions={{2}}, to_apply=sum
  tb = f32[{b},{s},{s}] broadcast(t), dimensions={{0,1}}
  p = f32[{b},{s},{s}] divide(e, tb)
  ROOT y = f32[{b},{s},{d}] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
    return "softmax attention", nodes, hlo, {"q": f32(b, s, d), "k": f32(b, s, d), "v": f32(b, s, d)}


def layer_norm(n=512, d=512):
    nodes = [("LayerNormalization", ["x", "g", "b"], ["y"], {"axis": -1, "epsilon": 1e-5})]
    hlo = f"""HloModule m
{SUM}ENTRY e {{
  x = f32[{n},{d}] parameter(0)
  g = f32[{d}] parameter(1)
  b = f32[{d}] parameter(2)
  z = f32[] constant(0)
  c = f32[] constant({1 / d})
  cb = f32[{n}] broadcast(c), dimensions={{}}
  s = f32[{n}] reduce(x, z), dimensions={{1}}, to_apply=sum
  m = f32[{n}] multiply(s, cb)
  mb = f32[{n},{d}] broadcast(m), dimensions={{0}}
  w = f32[{n},{d}] subtract(x, mb)
  q = f32[{n},{d}] multiply(w, w)
  t = f32[{n}] reduce(q, z), dimensions={{1}}, to_apply=sum
  v = f32[{n}] multiply(t, cb)
  eps = f32[] constant(1e-5)
  eb = f32[{n}] broadcast(eps), dimensions={{}}
  u = f32[{n}] add(v, eb)
  r = f32[{n}] rsqrt(u)
  rb = f32[{n},{d}] broadcast(r), dimensions={{0}}
  h = f32[{n},{d}] multiply(w, rb)
  gb = f32[{n},{d}] broadcast(g), dimensions={{1}}
  i = f32[{n},{d}] multiply(h, gb)
  bb = f32[{n},{d}] broadcast(b), dimensions={{1}}
  ROOT y = f32[{n},{d}] add(i, bb)
}}
"""
    return "layer norm", nodes, hlo, {"x": f32(n, d), "g": f32(d), "b": f32(d)}


def convolution(n=2, c=16, s=32, o=32):
    nodes = [("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1]})]
    hlo = f"""HloModule m
ENTRY e {{
  x = f32[{n},{c},{s},{s}] parameter(0)
  w = f32[{o},{c},3,3] parameter(1)
  ROOT y = f32[{n},{o},{s},{s}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=bf01_oi01->bf01
}}
"""
    return "convolution", nodes, hlo, {"x": f32(n, c, s, s), "w": f32(o, c, 3, 3)}


def gelu(n=1 << 18):
    nodes = [("Gelu", ["x"], ["y"], {})]
    hlo = f"""HloModule m
ENTRY e {{
  x = f32[{n}] parameter(0)
  c = f32[] constant({2 ** -0.5!r})
  cb = f32[{n}] broadcast(c), dimensions={{}}
  a = f32[{n}] multiply(x, cb)
  e = f32[{n}] erf(a)
  o = f32[] constant(1)
  ob = f32[{n}] broadcast(o), dimensions={{}}
  p = f32[{n}] add(e, ob)
  h = f32[] constant(0.5)
  hb = f32[{n}] broadcast(h), dimensions={{}}
  q = f32[{n}] multiply(x, hb)
  ROOT y = f32[{n}] multiply(q, p)
}}
"""
    return "gelu", nodes, hlo, {"x": f32(n)}


def cumsum_loop(n=4096):
    """A loop of `n` steps on a scalar: control flow instead of arrays."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "one"], ["w"]), helper.make_node("Identity", ["cond"], ["more"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [])],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])])
    nodes = [("Constant", [], ["n"], {"value": helper.make_tensor("n", TensorProto.INT64, [], [n])}),
             ("Constant", [], ["t"], {"value": helper.make_tensor("t", TensorProto.BOOL, [], [True])}),
             ("Loop", ["n", "t", "x"], ["y"], {"body": body})]
    hlo = f"""HloModule m
c {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT l = pred[] compare(i, n), direction=LT
}}
b {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  o = s32[] constant(1)
  j = s32[] add(i, o)
  v = f32[] get-tuple-element(s), index=1
  p = f32[] constant(1)
  w = f32[] add(v, p)
  ROOT t = (s32[], f32[]) tuple(j, w)
}}
ENTRY e {{
  x = f32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[]) tuple(z, x)
  w = (s32[], f32[]) while(t), condition=c, body=b
  ROOT y = f32[] get-tuple-element(w), index=1
}}
"""
    return "loop", nodes, hlo, {"x": np.float32(0.5)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--run", default="target/release/examples/run")
    args = p.parse_args()
    print("| computation | onnx.reference ms | interpreter ms | times faster | largest difference |\n|---|---:|---:|---:|---:|")
    for name, nodes, hlo, inputs in [mlp(), attention(), layer_norm(), convolution(), gelu(), cumsum_loop()]:
        graph = helper.make_graph(
            [helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "g",
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, np.shape(v)) for k, v in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        ref = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        (want,) = ref.run(None, inputs)
        times = []
        for _ in range(args.runs):
            t = time.perf_counter()
            ref.run(None, inputs)
            times.append((time.perf_counter() - t) * 1e3)
        with tempfile.TemporaryDirectory() as work:
            open(f"{work}/x.hlo", "w").write(hlo)
            with open(f"{work}/x.in", "wb") as o:
                for x in inputs.values():
                    o.write(np.ascontiguousarray(x).tobytes())
            said = subprocess.run([args.run, work, "--time", "15"], capture_output=True, text=True, timeout=600)
            if os.path.exists(f"{work}/x.err"):
                raise SystemExit(open(f"{work}/x.err").read())
            ours = float(said.stdout.split()[-1])
            got = np.fromfile(f"{work}/x.out", np.float32).reshape(np.shape(want))
        far = np.max(np.abs(got - want)) / np.max(np.abs(want))
        ref_ms = statistics.median(times)
        print(f"| {name} | {ref_ms:.2f} | {ours:.3f} | {ref_ms / ours:.1f} | {far:.1e} |", flush=True)


if __name__ == "__main__":
    main()

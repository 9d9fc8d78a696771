#!/usr/bin/env python3
"""Checks `scalify profile` against XLA and jax.

usage: check_profile.py SCALIFY COST [ROOT.. | --every N]

FLOP, transcendental functions and bytes of modules must be those of XLA's
HloCostAnalysis within 1 %: of one module per opcode, made here, and of the
modules below the roots (default: tests/corpus, tests/pairs, tests/traces).
Modules with custom calls are compared in FLOP only: XLA counts -1 for each of
their numbers. COST is the example `cost` of scalify-profile.

Then a trace is recorded now, by the jax that is installed, and read in its
three formats: at least 95 % of the time of operations must be attached. JSON
reports must satisfy docs/schema/profile-v1.schema.json.
"""
import gzip, json, os, re, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import jax
from jaxlib import _hlo, _jax

args = sys.argv[1:]
every = 1
if "--every" in args:
    k = args.index("--every")
    every = int(args[k + 1])
    del args[k:k + 2]
scalify, cost, roots = args[0], args[1], args[2:]
client = jax.devices("cpu")[0].client


def program(lines, before=""):
    return f"HloModule m\n{before}\nENTRY e {{\n" + "\n".join("  " + x for x in lines) + "\n}\n"


def function(name, body):
    return f"{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = {body}\n}}\n"


ADD, LESS, GREATER = function("add", "f32[] add(a, b)"), function("lt", "pred[] compare(a, b), direction=LT"), function("ge", "pred[] compare(a, b), direction=GE")
UNARY = """abs acos acosh asin asinh atanh cbrt ceil copy cosh cosine erf exponential exponential-minus-one floor log
log-plus-one logistic negate round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh""".split()
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract".split()


def made():
    p, q = "p = f32[8,16] parameter(0)", "q = f32[8,16] parameter(1)"
    for op in UNARY:
        yield op, program([p, f"ROOT r = f32[8,16] {op}(p)"])
    for op in BINARY:
        yield op, program([p, q, f"ROOT r = f32[8,16] {op}(p, q)"])
    for op in ["and", "or", "xor", "shift-left", "shift-right-logical", "shift-right-arithmetic"]:
        yield op, program(["p = u32[8,16] parameter(0)", f"ROOT r = u32[8,16] {op}(p, p)"])
    for op in ["not", "popcnt", "count-leading-zeros"]:
        yield op, program(["p = u32[8,16] parameter(0)", f"ROOT r = u32[8,16] {op}(p)"])
    one = lambda text, *more: program([p, *more, f"ROOT r = {text}"], ADD + LESS + GREATER)
    s, i, z = "s = pred[8,16] parameter(1)", "i = s32[] parameter(1)", "z = f32[] constant(0)"
    yield "is-finite", one("pred[8,16] is-finite(p)")
    yield "compare", one("pred[8,16] compare(p, p), direction=LT")
    yield "select", one("f32[8,16] select(s, p, p)", s)
    yield "clamp", one("f32[8,16] clamp(p, p, p)")
    yield "convert", one("bf16[8,16] convert(p)")
    yield "bitcast-convert", one("u32[8,16] bitcast-convert(p)")
    yield "reduce-precision", one("f32[8,16] reduce-precision(p), exponent_bits=5, mantissa_bits=10")
    yield "complex", one("c64[8,16] complex(p, p)")
    yield "real", program(["p = c64[8,16] parameter(0)", "ROOT r = f32[8,16] real(p)"])
    yield "transpose", one("f32[16,8] transpose(p), dimensions={1,0}")
    yield "transpose of size 1", program(["p = f32[8,1,16] parameter(0)", "ROOT r = f32[1,8,16] transpose(p), dimensions={1,0,2}"])
    yield "transpose that layouts undo", program(["p = f32[8,16]{1,0} parameter(0)", "ROOT r = f32[16,8]{0,1} transpose(p), dimensions={1,0}"])
    yield "reshape", one("f32[128] reshape(p)")
    yield "broadcast", program(["p = f32[8] parameter(0)", "ROOT r = f32[8,16] broadcast(p), dimensions={0}"])
    yield "iota", program(["ROOT r = f32[8,16] iota(), iota_dimension=0"])
    yield "slice", one("f32[2,4] slice(p), slice={[0:2],[0:4]}")
    yield "dynamic-slice", one("f32[2,4] dynamic-slice(p, i, i), dynamic_slice_sizes={2,4}", i)
    yield "dynamic-update-slice", one("f32[8,16] dynamic-update-slice(p, u, i, i)", i, "u = f32[2,4] parameter(2)")
    yield "pad", one("f32[10,16] pad(p, z), padding=1_1x0_0", z)
    yield "concatenate", one("f32[16,16] concatenate(p, p), dimensions={0}")
    yield "reverse", one("f32[8,16] reverse(p), dimensions={0}")
    yield "tuple", one("(f32[8,16], f32[8,16]) tuple(p, p)")
    yield "opt-barrier", one("(f32[8,16], f32[8,16]) opt-barrier(t)", "t = (f32[8,16], f32[8,16]) tuple(p, p)")
    yield "reduce", one("f32[8] reduce(p, z), dimensions={1}, to_apply=add", z)
    yield "map", one("f32[8,16] map(p, p), dimensions={0,1}, to_apply=add")
    yield "sort", one("f32[8,16] sort(p), dimensions={1}, to_apply=lt")
    yield "reduce-window", one("f32[6,14] reduce-window(p, z), window={size=3x3}, to_apply=add", z)
    yield "reduce-window, prefix sum", one("f32[8,16] reduce-window(p, z), window={size=8x1 pad=7_0x0_0}, to_apply=add", z)
    yield "reduce-window, whole dimension", one("f32[8,16] reduce-window(p, z), window={size=15x1 pad=7_7x0_0}, to_apply=add", z)
    yield "select-and-scatter", one("f32[8,16] select-and-scatter(p, s, z), window={size=2x2 stride=2x2}, select=ge, scatter=add", "s = f32[4,8] parameter(1)", z)
    n = "n = s32[5,1] parameter(1)"
    yield "gather", one("f32[5,16] gather(p, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}", n)
    yield "scatter", one("f32[8,16] scatter(p, n, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add", n, "u = f32[5,16] parameter(2)")
    yield "fft", program(["p = c64[8,16] parameter(0)", "ROOT r = c64[8,16] fft(p), fft_type=FFT, fft_length={16}"])
    yield "rfft", one("c64[8,9] fft(p), fft_type=RFFT, fft_length={16}")
    yield "cholesky", program(["p = f32[4,4] parameter(0)", "ROOT r = f32[4,4] cholesky(p), lower=true"])
    yield "triangular-solve", program(["p = f32[4,4] parameter(0)", "b = f32[4,3] parameter(1)", "ROOT r = f32[4,3] triangular-solve(p, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"])
    yield "rng", program(["a = f32[] parameter(0)", "ROOT r = f32[8,16] rng(a, a), distribution=rng_uniform"])
    yield "rng-bit-generator", program(["a = u64[2] parameter(0)", "ROOT r = (u64[2], u32[8,16]) rng-bit-generator(a), algorithm=rng_default"])
    yield "all-reduce", one("f32[8,16] all-reduce(p), replica_groups={}, to_apply=add")
    yield "reduce-scatter", one("f32[4,16] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add")
    yield "all-gather", one("f32[16,16] all-gather(p), replica_groups={{0,1}}, dimensions={0}")
    yield "all-gather-start", one("f32[16,16] all-gather-done(s)", "s = (f32[8,16], f32[16,16]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}")
    yield "dynamic dimension", program(["p = f32[<=8,16] parameter(0)", "ROOT r = f32[<=8,16] add(p, p)"])
    for dims, more in [("lhs_contracting_dims={1}, rhs_contracting_dims={0}", ("f32[8,16]", "f32[16,4]", "f32[8,4]")),
                       ("lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}", ("f32[3,8,16]", "f32[3,4,16]", "f32[3,8,4]")),
                       ("lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}", ("bf16[8,16]", "bf16[8,16]", "f32[]"))]:
        a, b, r = more
        yield "dot " + dims, program([f"p = {a} parameter(0)", f"q = {b} parameter(1)", f"ROOT r = {r} dot(p, q), {dims}"])
    for window, out, groups in [("size=3x3", "6x6", ""), ("size=3x3 pad=1_1x1_1", "8x8", ""), ("size=3x3 stride=2x2 pad=1_0x0_1", "4x4", ""),
                                ("size=3x3 pad=2_2x2_2 rhs_dilate=2x2", "8x8", ""), ("size=3x3 pad=1_1x1_1 lhs_dilate=2x2", "15x15", ""),
                                ("size=3x3 pad=2_2x2_2 lhs_dilate=3x2 stride=2x3", "12x6", ""), ("size=3x3 pad=-1_-1x0_0", "4x6", ""),
                                ("size=3x3 pad=1_1x1_1", "8x8", ", feature_group_count=2"), ("size=3x3 pad=1_1x1_1", "8x8", ", batch_group_count=2")]:
        features, batch = (2 if "feature" in groups else 4), (1 if "batch" in groups else 2)
        h, w = out.split("x")
        yield f"convolution {window}{groups}", program([
            "p = f32[2,8,8,4] parameter(0)", f"k = f32[3,3,{features},6] parameter(1)",
            f"ROOT r = f32[{batch},{h},{w},6] convolution(p, k), window={{{window}}}, dim_labels=b01f_01io->b01f{groups}"])
    yield "while", program(
        ["i = s32[] constant(0)", "x = f32[8] parameter(0)", "t = (s32[], f32[8]) tuple(i, x)", "ROOT w = (s32[], f32[8]) while(t), condition=cond, body=body"],
        """cond {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  y = f32[8] add(x, x)
  ROOT t = (s32[], f32[8]) tuple(j, y)
}""")
    yield "conditional", program(["c = pred[] parameter(0)", "x = f32[8] parameter(1)", "ROOT r = f32[8] conditional(c, x, x), true_computation=f, false_computation=g"],
                                 "f {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] exponential(x)\n}\ng {\n  x = f32[8] parameter(0)\n  z = f32[8] add(x, x)\n  ROOT y = f32[8] multiply(z, x)\n}")
    yield "fusion with slices and a constant", program(
        ["p = f32[64,16] parameter(0)", "u = f32[64,16] parameter(1)", "i = s32[] constant(3)", "ROOT r = f32[2,16] fusion(p, u, i), kind=kLoop, calls=f"],
        """f {
  p = f32[64,16] parameter(0)
  u = f32[64,16] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  k = f32[16] constant({1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16})
  b = f32[2,16] broadcast(k), dimensions={1}
  a = f32[2,16] slice(p), slice={[0:2],[0:16]}
  d = f32[2,16] dynamic-slice(u, i, z), dynamic_slice_sizes={2,16}
  s = f32[2,16] add(a, d)
  ROOT t = f32[2,16] multiply(s, b)
}""")
    yield "fusion that updates in place", program(
        ["p = f32[64,16] parameter(0)", "u = f32[1,16] parameter(1)", "i = s32[] constant(3)", "ROOT r = f32[64,16] fusion(p, u, i), kind=kLoop, calls=f"],
        """f {
  p = f32[64,16] parameter(0)
  u = f32[1,16] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  n = f32[1,16] negate(u)
  ROOT t = f32[64,16] dynamic-update-slice(p, n, i, z)
}""")


def xla(text=None, proto=None):
    m = _hlo.hlo_module_from_text(text) if proto is None else _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    a = _jax.hlo_module_cost_analysis(client, m)
    return {"flops": a.get("flops", 0.0), "transcendentals": a.get("transcendentals", 0.0), "bytes": a.get("bytes accessed", 0.0)}


def near(x, y):
    return abs(x - y) <= 0.01 * abs(x)


def check_cost(tmp):
    want, refused = {}, 0
    for k, (name, text) in enumerate(made()):
        path = tmp / f"{k}.hlo.txt"
        path.write_text(text)
        want[str(path)] = (name, xla(text))
    files = []
    for root in roots or ["tests/corpus", "tests/pairs", "tests/traces"]:
        for folder, _, names in os.walk(ROOT / root):
            files += [os.path.join(folder, n) for n in names if re.search(r"\.hlo(\.txt|\.pb)?(\.gz)?$", n)]
    made_here = len(want)
    for f in sorted(files)[::every]:
        data = open(f, "rb").read()
        data = gzip.decompress(data) if f.endswith(".gz") else data
        if len(data) > 4_000_000:
            continue
        try:
            want[f] = (f, xla(proto=data) if ".pb" in f else xla(data.decode()))
        except Exception:
            refused += 1
    run = subprocess.run([cost], input="\n".join(want), capture_output=True, text=True, check=True)
    rows = [json.loads(x) for x in run.stdout.splitlines()]
    assert len(rows) == len(want)
    counts = {"dot": 0, "convolution": 0, "elementwise": 0}
    wrong, partly = [], 0
    for r in rows:
        name, w = want[r["file"]]
        assert "error" not in r, (name, r)
        keys = ["flops", "transcendentals", "bytes"]
        if r["custom_calls"]:
            partly += 1
            keys = keys[:2]
            w["flops"] += r["custom_calls"]
        wrong += [(name, k, w[k], r[k]) for k in keys if not near(w[k], r[k]) and not (r["custom_calls"] and abs(w[k] - r[k]) <= r["custom_calls"])]
        data = open(r["file"], "rb").read()
        data = gzip.decompress(data) if r["file"].endswith(".gz") else data
        kinds = [k for k in ["dot", "convolution"] if re.search(rb"\b%s\(" % k.encode(), data)] or ["elementwise"]
        for k in kinds:
            counts[k] += 1
    assert not wrong, wrong[:5]
    print(f"{len(rows)} modules cost what XLA says within 1 %, {made_here} made for one opcode each; "
          f"{counts['dot']} with dot, {counts['convolution']} with convolution, {counts['elementwise']} with neither; "
          f"bytes not compared in {partly} with custom calls ({refused} that XLA refuses)")


def check_traces(tmp):
    import jsonschema
    schema = json.loads((ROOT / "docs/schema/profile-v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, ROOT / "tests/traces/record.py", tmp], check=True, env=env, capture_output=True)
    least, seen = 1.0, 0
    for trace in sorted(tmp.glob("*.gz")):
        name = trace.name.split(".")[0]
        r = subprocess.run([scalify, "profile", tmp / f"{name}.hlo.txt", "--trace", trace, "--json"], capture_output=True, text=True)
        assert r.returncode == 0, (trace, r.stderr)
        d = json.loads(r.stdout)
        jsonschema.validate(d, schema)
        t = d["trace"]
        assert t["seconds"] > 0 and t["attributed"] >= 0.95, (trace, t)
        assert t["runs"] == (8 if name == "tensor_parallel" else 2), (trace, t["runs"])
        total = sum(i["seconds"] or 0 for i in d["instructions"])
        assert near(total, t["seconds"] * t["attributed"]), trace
        least, seen = min(least, t["attributed"]), seen + 1
    assert seen >= 9, seen
    r = subprocess.run([scalify, "profile", tmp / "attention.hlo.txt", "--trace", tmp / "attention.trace.json.gz", "--module2", tmp / "attention_bf16.hlo.txt",
                        "--trace2", tmp / "attention_bf16.trace.json.gz", "--json"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    d = json.loads(r.stdout)
    jsonschema.validate(d, schema)
    assert d["comparison"]["rows"] and d["comparison"]["after"] > 0
    print(f"{seen} traces of jax {jax.__version__}, recorded now: at least {100 * least:.1f} % of the time of operations attached")


with tempfile.TemporaryDirectory() as t:
    check_cost(Path(t))
with tempfile.TemporaryDirectory() as t:
    check_traces(Path(t))

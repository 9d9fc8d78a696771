#!/usr/bin/env python3
"""Checks `scalify instrument --check-finite` in XLA.

usage: check_instrument.py SCALIFY ROOT.. [--every N]

Each baseline below the roots is compiled as it is and instrumented. On drawn
inputs the outputs must be the same (counted: to the last bit; else up to
rounding, because XLA fuses differently around a value that is read) and the
number of flags right; with a NaN in an input the parameter must be the first
that is named, and it must be named from the flags that XLA computed.
"""
import gzip, json, os, subprocess, sys, tempfile
import jax, ml_dtypes, numpy as np
from jaxlib import _jax
from jaxlib import _hlo

args = sys.argv[1:]
every = 1
if "--every" in args:
    k = args.index("--every")
    every = int(args[k + 1])
    del args[k:k + 2]
scalify, roots = args[0], args[1:]
client = jax.devices("cpu")[0].client
device = jax.devices("cpu")[0]


def build(path):
    text = gzip.open(path, "rt").read() if path.endswith(".gz") else open(path).read()
    if "callback" in text or "lapack" in text or "cholesky" in text:
        raise ValueError("calls functions of jax that are not registered here")
    module = _hlo.hlo_module_from_text(text)
    computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    shape = computation.program_shape()
    options = _jax.CompileOptions()
    mlir = _jax.mlir.xla_computation_to_mlir_module(computation)
    return client.compile_and_load(mlir, _jax.DeviceList((device,)), options), shape


def run(program, inputs):
    arrays = [jax.device_put(x, device) for x in inputs]
    parts = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [np.asarray(p[0]) for p in parts]


def draw(shape, rng):
    d = shape.numpy_dtype()
    n = shape.dimensions()
    if d.kind in "iu":
        return rng.integers(0, 2, n).astype(d)
    if d.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    return (rng.standard_normal(n) / 4).astype(d)


def same(x, y):
    """0: equal bits; 1: equal up to 64 units roundoff of the largest element,
    since XLA fuses around what is read; 2: different."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return 2
    if x.tobytes() == y.tobytes():
        return 0
    if x.dtype.kind in "iub":
        return 2
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(str(x.dtype), 2.0**-24)
    x, y = x.astype(np.complex128), y.astype(np.complex128)
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return 2
    d = np.abs(x - y)[np.isfinite(x)]
    return 1 if d.size == 0 or d.max() <= 64 * unit * np.abs(x[np.isfinite(x)]).max() else 2


files = []
for root in roots:
    for folder, _, names in os.walk(root):
        files += [os.path.join(folder, n) for n in names
                  if n in ("base.hlo.txt", "base.hlo.txt.gz", "before.hlo.txt", "base.input.hlo.txt")]
files = [f for f in sorted(files) if "/bug__" not in f][::every]
done = exact = refused = flags_seen = 0
tmp = tempfile.TemporaryDirectory()
for path in files:
    try:
        program, shape = build(path)
    except Exception:
        refused += 1
        continue
    out = os.path.join(tmp.name, "x.hlo.txt")
    made = subprocess.run([scalify, "instrument", path, "--check-finite", "-o", out], capture_output=True, text=True)
    if "no instruction of a float type" in made.stderr:
        continue
    assert made.returncode == 0, (path, made.stderr)
    record = json.load(open(out + ".json"))
    checked, _ = build(out)
    rng = np.random.default_rng(1)
    inputs = [draw(s, rng) for s in shape.parameter_shapes()]
    want, got = run(program, inputs), run(checked, inputs)
    flags = got[record["output"]]
    rest = [g for k, g in enumerate(got) if k != record["output"]]
    grade = max(map(same, want, rest), default=0)
    assert len(rest) == len(want) and grade < 2, f"{path}: other outputs"
    exact += grade == 0
    assert flags.shape == (len(record["flags"]),), path
    flags_seen += len(flags)
    floats = [k for k, x in enumerate(inputs) if x.dtype.kind in "fV" and x.size]
    clean = all(ok for f, ok in zip(record["flags"], flags) if f["test"] == "nan")
    if floats and clean:
        k = floats[int(rng.integers(len(floats)))]
        inputs[k] = inputs[k].copy()
        inputs[k].reshape(-1)[int(rng.integers(inputs[k].size))] = np.nan
        flags = run(checked, inputs)[record["output"]]
        file = os.path.join(tmp.name, "flags.npy")
        np.save(file, flags)
        r = subprocess.run([scalify, "instrument", out + ".json", "--read", file], capture_output=True, text=True)
        assert r.returncode == 1 and " parameter " in r.stdout and "first with NaN" in r.stdout, (path, r.stdout, r.stderr)
        named = next(f for f, ok in zip(record["flags"], flags) if f["test"] == "nan" and not ok)
        assert named["opcode"] == "parameter" and named["instruction"] in r.stdout, (path, named)
    done += 1
assert done, "nothing was checked"
print(f"{done} programs, {flags_seen} flags: outputs unchanged in XLA, to the last bit in {exact} ({refused} programs that XLA refuses here)")

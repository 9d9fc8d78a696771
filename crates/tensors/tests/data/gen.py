#!/usr/bin/env python3
"""Writes the files of this folder with numpy and ml_dtypes, and expected.json:
for each tensor its HLO type, sizes and canonical bytes (little endian,
row-major, one byte per element below eight bits, integers sign-extended).
"""
import json, os, sys
import ml_dtypes, numpy as np

here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(5)
hlo = {"bool": "pred", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
       "complex64": "c64", "complex128": "c128"}
for w in (8, 16, 32, 64):
    hlo[f"int{w}"], hlo[f"uint{w}"] = f"s{w}", f"u{w}"
for w in (1, 2, 4):
    hlo[f"int{w}"], hlo[f"uint{w}"] = f"s{w}", f"u{w}"
for t in dir(ml_dtypes):
    if t.startswith("float"):
        hlo[t] = t.replace("float", "f").replace("_", "")
expected = {}

def canonical(a):
    a = np.ascontiguousarray(a)
    name = a.dtype.name
    if name in ("int1", "int2", "int4"):
        return a.astype(np.int8).tobytes().hex()
    if name in ("uint1", "uint2", "uint4"):
        return a.astype(np.uint8).tobytes().hex()
    return a.astype(a.dtype.newbyteorder("<")).tobytes().hex()

def note(file, name, a):
    expected.setdefault(file, {})[name] = {
        "dtype": hlo[a.dtype.name], "dims": list(a.shape), "bytes": canonical(a)}

def rand(dtype, shape):
    d = np.dtype(dtype)
    if d.name in ("int1", "int2", "int4", "uint1", "uint2", "uint4"):
        i = ml_dtypes.iinfo(d)
        return rng.integers(int(i.min), int(i.max) + 1, shape).astype(d)
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(d)
    if d.kind in "iu":
        i = np.iinfo(d)
        return rng.integers(i.min, i.max, shape, dtype=d, endpoint=True)
    if d.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(d)
    return np.abs(rng.normal(size=shape)).astype(d) if d.name == "float8_e8m0fnu" else rng.normal(size=shape).astype(d)

names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
         "float32", "float64", "complex64", "complex128"]
ml = [t for t in dir(ml_dtypes) if t.startswith(("float", "bfloat", "int", "uint"))]
plain = {n: rand(n, (3, 5)) for n in names} | {t: rand(getattr(ml_dtypes, t), (3, 5)) for t in ml}
for file, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
    save(os.path.join(here, file), **plain)
    for n, a in plain.items():
        note(file, n, a)

odd = {"fortran": np.asfortranarray(rng.normal(size=(2, 3, 4)).astype("f4")),
       "big": rng.normal(size=(4, 2)).astype(">f4"),
       "big_complex": (rng.normal(size=3) + 1j).astype(">c16"),
       "big_fortran": np.asfortranarray(rng.integers(0, 9999, (3, 2)).astype(">i2")),
       "empty": np.zeros((0, 3), "f8"), "scalar": np.array(np.float32(2.5)),
       "a/b.c/ü": np.arange(4, dtype="i4")}
np.savez(os.path.join(here, "odd.npz"), **odd)
for n, a in odd.items():
    note("odd.npz", n, a.astype(a.dtype.newbyteorder("<")))
a = rng.normal(size=(2, 2)).astype("f8")
np.save(os.path.join(here, "one.npy"), a)
note("one.npy", "", a)
with open(os.path.join(here, "v2.npy"), "wb") as f:
    np.lib.format.write_array(f, a, version=(2, 0))
note("v2.npy", "", a)
with open(os.path.join(here, "expected.json"), "w") as f:
    json.dump(expected, f, indent=0, sort_keys=True)
    f.write("\n")

"""Confirms tests/bugs with XLA: right programs compute the baseline's function, wrong ones do not.

    python tests/gen/check_bugs.py [--only ID] [--interp target/debug/examples/run]

Every module is read back from its text, compiled for its number of devices with
jaxlib's CPU client and run on several draws of inputs (signed, different in every
block, integers within the declared ranges, junk in the padding of uneven blocks);
each device's output is compared with its block of the baseline's output. With
`--interp`, the interpreter runs the same modules on the same inputs and must agree
with XLA. Exit status 1 if anything is not as case.json says.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false"
    # This pass merges nested slices wrongly when a start is out of range (report I01).
    " --xla_disable_hlo_passes=algsimp"
)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import jax  # noqa: E402
import jaxlib._jax as _jax  # noqa: E402
import ml_dtypes as md  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jaxlib import _hlo  # noqa: E402

jax.config.update("jax_enable_x64", True)
HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "bugs")
DRAWS = 6
NP = {"pred": np.bool_, "s8": np.int8, "s32": np.int32, "s64": np.int64, "u8": np.uint8, "u32": np.uint32, "u64": np.uint64,
      "f16": np.float16, "bf16": md.bfloat16, "f32": np.float32, "f64": np.float64,
      "f8e4m3fn": md.float8_e4m3fn, "f8e5m2": md.float8_e5m2}


def manual(text):
    """Marks every instruction outside reducers as manual: the partitioner leaves them alone."""
    reducers = set(re.findall(r"to_apply=([\w.]+)", text))
    out, inside = [], True
    for ln in text.splitlines():
        m = re.match(r"(?:ENTRY )?([\w.]+) \{$", ln)
        if m:
            inside = m.group(1) not in reducers
        if inside and re.match(r"\s+(ROOT )?\S+ = ", ln) and " while(" not in ln:
            ln += ", sharding={manual}"
        out.append(ln)
    return "\n".join(out)


class Exe:
    def __init__(self, text):
        head = text.split("\n", 1)[0]
        grab = lambda k: int((re.search(k + r"=(\d+)", head) or [0, 1])[1])  # noqa: E731
        self.replicas, self.partitions = grab("replica_count"), grab("num_partitions")
        self.n = self.replicas * self.partitions
        self.devs = jax.devices()[: self.n]
        m = _hlo.hlo_module_from_text(manual(text) if self.partitions > 1 else text)
        comp = _hlo.XlaComputation(m.as_serialized_hlo_module_proto())
        o = _jax.CompileOptions()
        o.num_replicas, o.num_partitions = self.replicas, self.partitions
        b = o.executable_build_options
        b.num_replicas, b.num_partitions = self.replicas, self.partitions
        b.use_spmd_partitioning = self.partitions > 1
        self.exe = self.devs[0].client.compile_and_load(
            _jax.mlir.xla_computation_to_mlir_module(comp), _jax.DeviceList(tuple(self.devs)), o)

    def __call__(self, per_device):
        """One list of arrays per device -> the same for the results."""
        args = []
        for k in range(len(per_device[0])):
            loc = [np.asarray(d[k]) for d in per_device]
            if loc[0].ndim == 0:
                args.append(jax.make_array_from_single_device_arrays(
                    (), NamedSharding(Mesh(np.array(self.devs), ("x",)), PartitionSpec()),
                    [jax.device_put(v, d) for v, d in zip(loc, self.devs)]))
                continue
            s = NamedSharding(Mesh(np.array(self.devs), ("x",)), PartitionSpec("x"))
            sh = (loc[0].shape[0] * self.n,) + loc[0].shape[1:]
            args.append(jax.make_array_from_single_device_arrays(
                sh, s, [jax.device_put(v, d) for v, d in zip(loc, self.devs)]))
        parts = self.exe.execute_sharded(args).disassemble_into_single_device_arrays()
        return [[np.asarray(parts[leaf][k]) for leaf in range(len(parts))] for k in range(self.n)]


def coords(mesh, k):
    out = {}
    for a, n in reversed(list(zip(mesh["axes"], mesh["shape"]))):
        out[a] = k % n
        k //= n
    return out


def block(spec, shape, mesh, k):
    """Start and padded size of device k's block per dimension."""
    size = dict(zip(mesh["axes"], mesh["shape"]))
    c = coords(mesh, k)
    out = []
    for s, n in zip(spec, shape):
        tile, tiles = 0, 1
        for a in s or []:
            tile, tiles = tile * size[a] + c[a], tiles * size[a]
        w = -(-n // tiles)
        out.append((tile * w, w))
    return out


def draw(rng, i, how):
    t, d = i["dtype"], i["shape"]
    if how == "distinct":
        # A permutation: no two elements are equal.
        n = int(np.prod(d))
        lo = i["range"][0] if "range" in i else -(n // 2)
        return (lo + rng.permutation(n)).reshape(d).astype(NP[t])
    if "range" in i:
        return rng.integers(i["range"][0], i["range"][1] + 1, d).astype(NP[t])
    if t == "pred":
        return rng.integers(0, 2, d).astype(bool)
    if t[0] in "su":
        lo, hi = (-9, 10) if t[0] == "s" else (0, 19)
        return rng.integers(lo, hi, d).astype(NP[t])
    x = rng.standard_normal(d) + rng.uniform(-1, 1, d)
    return (np.abs(x) + 0.1 if how == "positive" else x).astype(NP[t])


def local(x, i, mesh, k, rng):
    idx = block(i["spec"], i["shape"], mesh, k)
    out = np.asarray(draw(rng, {**i, "shape": [w for _, w in idx]}, ""))
    if not idx:
        return x
    lo = tuple(slice(a, min(a + w, n)) for (a, w), n in zip(idx, i["shape"]))
    piece = x[lo]
    out[tuple(slice(0, n) for n in piece.shape)] = piece
    return out


def difference(got, want, tol):
    """Largest error against the largest magnitude; above 1: beyond `tol`."""
    if got.size == 0:
        return 0.0
    if got.dtype != want.dtype or got.shape != want.shape:
        return np.inf
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else np.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        fin = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if np.any(~fin & ~same):
            return np.inf
        top = max(np.abs(b[np.isfinite(b)]).max(initial=0.0), 1e-6)
        return float(np.where(same, 0.0, np.abs(a - b)).max(initial=0.0)) / top / tol


def worst(res, want, outs, mesh, n, tol):
    e = 0.0
    for k in range(n):
        for got, w, o in zip(res[k], want, outs):
            idx = block(o["spec"], o["shape"], mesh, k)
            piece = w[tuple(slice(a, min(a + z, d)) for (a, z), d in zip(idx, o["shape"]))]
            if got.shape != tuple(z for _, z in idx):
                return np.inf
            e = max(e, difference(got[tuple(slice(0, d) for d in piece.shape)], piece, tol))
    return e


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    p.add_argument("--interp", default="")
    args = p.parse_args()
    work = tempfile.mkdtemp(prefix="check_bugs")
    wants, failed, count = [], 0, {"right": 0, "wrong": 0, "base": 0}

    def keep(tag, text, exe, ins, res, tol):
        k = len(wants)
        with open(f"{work}/{k:05}.hlo", "w") as f:
            f.write(f"// replicas={exe.replicas} partitions={exe.partitions}\n{text}")
        with open(f"{work}/{k:05}.in", "wb") as f:
            for dev in ins:
                for x in dev:
                    f.write(np.ascontiguousarray(x).tobytes())
        wants.append((tag, res, tol))

    for name in sorted(os.listdir(OUT)):
        path = os.path.join(OUT, name, "case.json")
        if not os.path.exists(path) or not name.startswith(args.only):
            continue
        case = json.load(open(path))
        tol, how = case["tol"], case.get("draw", {})
        read = lambda f: open(os.path.join(OUT, name, f)).read()  # noqa: E731
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        base = Exe(read("base.hlo.txt"))

        def drawn(inputs):
            xs = [[draw(rng, i, how.get(i["name"], "")) for i in inputs] for _ in range(DRAWS)]
            return [(x, base([x])[0]) for x in xs]

        draws = drawn(case["inputs"])
        keep(f"{name}/base", read("base.hlo.txt"), base, [draws[0][0]], [draws[0][1]], tol)
        count["base"] += 1
        for g in case["graphs"]:
            text, tag = read(g["file"]), f"{name}/{g['file'][:-8]}"
            mesh, ins, outs = (g.get(k, case[k]) for k in ("mesh", "inputs", "outputs"))
            try:
                exe = Exe(text)
            except Exception as e:
                failed += 1
                print(f"REFUSED {tag}: {str(e)[:400]}")
                continue
            errs = []
            for x, want in drawn(ins) if "inputs" in g else draws:
                loc = [[local(v, i, mesh, k, rng) for v, i in zip(x, ins)] for k in range(exe.n)]
                res = exe(loc)
                errs.append(worst(res, want, outs, mesh, exe.n, tol))
                if len(errs) == 1:
                    keep(tag, text, exe, loc, res, tol)
            hits = sum(e > 10 for e in errs)
            count["right" if g["expected"] == "equivalent" else "wrong"] += 1
            if g["expected"] == "equivalent" and max(errs) > 1:
                failed += 1
                print(f"NOT EQUAL {tag}: {max(errs) * tol:.2g}")
            if g["expected"] == "different" and hits == 0:
                failed += 1
                print(f"NOT DIFFERENT {tag}: {max(errs) * tol:.2g}")
            elif g["expected"] == "different" and hits < DRAWS:
                print(f"note: {tag} differs on {hits} of {DRAWS} draws")
            names = set(re.findall(r"^\s+(?:ROOT )?([\w.-]+) = ", text, re.M))
            for q in g.get("guilty", []):
                if q not in names:
                    failed += 1
                    print(f"NO SUCH INSTRUCTION {tag}: {q}")
    print("confirmed with XLA:", count, "failures:", failed)
    if args.interp:
        subprocess.run([args.interp, work], check=True, timeout=900)
        bad = 0
        for k, (tag, res, tol) in enumerate(wants):
            if not os.path.exists(f"{work}/{k:05}.out"):
                bad += 1
                print(f"INTERP {tag}: {open(f'{work}/{k:05}.err').read()[:300]}")
                continue
            raw, at = open(f"{work}/{k:05}.out", "rb").read(), 0
            for dev, leaves in enumerate(res):
                for n, w in enumerate(leaves):
                    size = w.size * w.dtype.itemsize
                    got = np.frombuffer(raw[at:at + size], dtype=w.dtype).reshape(w.shape)
                    at += size
                    e = difference(got, w, tol)
                    if e > 1:
                        bad += 1
                        print(f"INTERP {tag} device {dev} output {n}: {e * tol:.2g}")
            if at != len(raw):
                bad += 1
                print(f"INTERP {tag}: {len(raw)} bytes for {at}")
        print("interpreter:", len(wants), "modules, disagreements:", bad)
        failed += bad
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

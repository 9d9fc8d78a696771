"""Runs both programs of this folder in XLA, on inputs on which they differ.

    python replay.py

Needs jaxlib (0.10 or later) and numpy, and ml_dtypes for element types that
numpy does not have. Runs on CPU devices that XLA simulates. Exit status: 0 the
difference is there, 1 it is not, 2 XLA cannot run the programs.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "witness.json")) as f:
    RECORD = json.load(f)
DEVICES = RECORD["devices"]
# Read when jaxlib is imported. Excess precision would hide roundings.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        f"--xla_force_host_platform_device_count={DEVICES}",
        "--xla_allow_excess_precision=false",
    ]
).strip()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def stop(message):
    print(f"replay.py: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import numpy as np
    from jaxlib import _hlo, _jax, xla_client, version as jaxlib_version
except ImportError as e:
    stop(f"{e}; expected the packages numpy and jaxlib (pip install numpy jaxlib)")

NUMPY = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}
ML_DTYPES = {
    "bf16": "bfloat16", "s4": "int4", "u4": "uint4", "s2": "int2", "u2": "uint2",
    "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3", "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e3m4": "float8_e3m4", "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e8m0fnu": "float8_e8m0fnu", "f4e2m1fn": "float4_e2m1fn",
}


def numpy_type(name):
    """numpy's type of an HLO element type."""
    if name in NUMPY:
        return np.dtype(NUMPY[name])
    if name in ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
    stop(f"numpy has no element type {name}")


def local_size(dim, size):
    return -(-size // dim["tiles"])


def tile(dim, device):
    return dim["tile_of_device"][device] if dim["tiles"] > 1 else 0


def held(placement, shape, device):
    """What `device` holds of an array: slices of the array and of its block."""
    of_all, of_block = [], []
    for dim, size in zip(placement, shape):
        n = local_size(dim, size)
        start = min(tile(dim, device) * n, size)
        count = min(n, size - start)
        of_all.append(slice(start, start + count))
        of_block.append(slice(0, count))
    return tuple(of_all), tuple(of_block)


def block(array, placement, device):
    """The block of `device`; uneven blocks are filled with the first element."""
    if placement is None or all(d["tiles"] == 1 for d in placement):
        return array
    shape = [local_size(d, n) for d, n in zip(placement, array.shape)]
    out = np.full(shape, array.reshape(-1)[0] if array.size else 0, array.dtype)
    of_all, of_block = held(placement, array.shape, device)
    out[of_block] = array[of_all]
    return out


def tiles_of(sharding, rank, devices):
    """An XLA sharding as a placement; None if every device holds everything."""
    if sharding is None:
        return None
    s = _hlo.HloSharding.from_proto(sharding)
    if s.is_replicated() or s.is_manual() or s.is_unknown():
        return None
    if not s.is_tiled():
        stop(f"a sharding that is not understood: {s}")
    grid = np.array(s.tile_assignment_devices()).reshape(s.tile_assignment_dimensions())
    out = []
    for k in range(rank):
        table = [0] * devices
        for at, device in np.ndenumerate(grid):
            table[device] = at[k]
        out.append({"tiles": grid.shape[k], "tile_of_device": table})
    return out


class Aval:
    """What jaxlib wants to know of an array."""

    def __init__(self, array):
        self.shape, self.dtype, self.weak_type = array.shape, array.dtype, False


class Program:
    """A compiled program."""

    def __init__(self, client, record):
        with open(os.path.join(HERE, record["xla_file"])) as f:
            module = _hlo.hlo_module_from_text(f.read())
        computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        mlir = _jax.mlir.xla_computation_to_mlir_module(computation)
        self.form = record["form"]
        replicas, partitions = record["replicas"], record["partitions"]
        self.count = replicas * partitions
        self.devices = client.devices()[: self.count]
        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = replicas, partitions
        ids = np.array([d.id for d in self.devices], np.int32).reshape(replicas, partitions)
        options.device_assignment = _jax.DeviceAssignment.create(ids)
        build = options.executable_build_options
        build.num_replicas, build.num_partitions = replicas, partitions
        build.use_spmd_partitioning = partitions > 1
        build.use_shardy_partitioner = self.form == "shardy"
        self.list = _jax.DeviceList(tuple(self.devices))
        self.program = client.compile_and_load(mlir, self.list, options)
        self.is_global = self.form in ("shardy", "gspmd")

    def put(self, per_device):
        # Manual: jaxlib then takes the blocks as they are.
        sharding = _jax.GSPMDSharding(self.list, _hlo.HloSharding.manual())
        # The caller keeps the arrays.
        share = _jax.HostBufferSemantics.ZERO_COPY
        return _jax.batched_device_put(
            Aval(per_device[0]), sharding, per_device, list(self.devices), True, False, share, True
        )

    def run(self, inputs):
        """`inputs[k][d]`: argument k of device d; whole arrays for a global
        program. Returns `[k][d]` likewise."""
        if self.is_global:
            shardings = self.program.get_parameter_shardings() or [None] * len(inputs)
            inputs = [
                [block(x, tiles_of(s, x.ndim, self.count), d) for d, x in enumerate(per)]
                for s, per in zip(shardings, inputs)
            ]
        inputs = [[np.ascontiguousarray(x).reshape(x.shape) for x in per] for per in inputs]
        arguments = [self.put(per) for per in inputs]
        parts = self.program.execute_sharded(arguments).disassemble_into_single_device_arrays()
        return [[np.array(x) for x in leaf] for leaf in parts]

    def whole(self, leaf, k, shape):
        """The array that a global program returns as output k."""
        shardings = self.program.get_output_shardings()
        placement = tiles_of(shardings[k], len(shape), self.count) if shardings else None
        if placement is None:
            return leaf[0]
        out = np.zeros(shape, leaf[0].dtype)
        for device, part in enumerate(leaf):
            of_all, of_block = held(placement, shape, device)
            out[of_all] = part[of_block]
        return out


def numbers(array):
    """As float64; complex numbers as they are."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def differs(want, got, bound):
    if np.isnan(want) or want == got:
        return False
    if not np.isfinite(want) or not np.isfinite(got):
        return True
    return abs(want - got) > bound


def main():
    client = xla_client.make_cpu_client()
    if client.device_count() < DEVICES:
        stop(f"{client.device_count()} devices, expected {DEVICES}; is XLA_FLAGS overridden?")
    arrays = np.load(os.path.join(HERE, "inputs.npz"))
    inputs = []
    for i in RECORD["inputs"]:
        if not i["keys"]:
            stop(f"input {i['name']} is a token")
        dtype = numpy_type(i["dtype"])
        inputs.append([arrays[key].view(dtype).reshape(i["shape"]) for key in i["keys"]])

    def on(values, device):
        return values[device if len(values) > 1 else 0]

    try:
        base = Program(client, RECORD["base"])
        want = base.run([[on(v, d) for d in range(base.count)] for v in inputs])
        dist = Program(client, RECORD["dist"])
        blocks = [
            [block(on(inputs[i["base"]], d), i["placement"], d) for d in range(DEVICES)]
            for i in RECORD["dist_inputs"]
        ]
        got = dist.run(blocks)
    except Exception as e:
        stop(f"XLA cannot run the programs: {str(e).splitlines()[0][:400]}")
    print(f"XLA (jaxlib {jaxlib_version.__version__}) on {DEVICES} CPU devices")
    seen = 0
    for o in RECORD["outputs"]:
        k, device, bound = o["output"], o["device"], float(o["bound"])
        shape = want[k][0].shape
        if base.is_global:
            want[k] = [base.whole(want[k], k, shape)] * base.count
        if dist.is_global:
            got[k] = [dist.whole(got[k], k, shape)] * DEVICES
        at, local = tuple(o["index"]), tuple(o["local_index"])
        expected, actual = numbers(on(want[k], device))[at], numbers(got[k][device])[local]
        there = bool(differs(expected, actual, bound))
        seen += there
        bad = compared = 0
        worst = 0.0
        for d in range(DEVICES):
            of_all, of_block = (..., ...)
            if o["placement"] is not None:
                of_all, of_block = held(o["placement"], shape, d)
            a, b = numbers(on(want[k], d))[of_all], numbers(got[k][d])[of_block]
            with np.errstate(all="ignore"):
                gap = np.abs(a - b)
            gap = np.where((a == b) | np.isnan(a), 0.0, np.where(np.isnan(gap), np.inf, gap))
            bad += int(np.sum(gap > bound))
            compared += gap.size
            worst = max(worst, float(np.max(gap, initial=0.0)))
        print(f"output {k} at {list(at)}, device {device} (its {list(local)}):")
        print(f"  baseline     {expected}")
        print(f"  distributed  {actual}")
        verdict = "the difference is there" if there else "NO difference beyond rounding"
        print(f"  {verdict}; rounding explains {bound:.3g}")
        print(f"  {bad} of {compared} elements differ by more than that, at most by {worst:.6g}")
    if dist.form == "shardy":
        print("The distributed program is a global one: XLA's Shardy partitioner has split it.")
    elif dist.form == "gspmd":
        print("The distributed program is a global one: XLA's SPMD partitioner has split it.")
    sys.exit(0 if seen else 1)


if __name__ == "__main__":
    main()

"""Writes the HLO of a function before and after XLA's SPMD partitioner.

    python dump_gspmd.py OUT_DIR

The user gives shardings only; the partitioner writes the distributed program.
It runs inside `compile`, so the devices must exist: here 4 virtual CPUs.
"""

import os
import pathlib
import sys
import tempfile

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

import model
from specs import WEIGHTS, WHOLE, dump

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
mesh = Mesh(np.array(jax.devices()[:4]), ("tp",))
whole, weights = jax.tree.map(lambda spec: NamedSharding(mesh, spec), (WHOLE, WEIGHTS))

base = jax.jit(model.layer, keep_unused=True).lower(*model.arguments())
dump(out / "base.hlo.pb", base)

dist = jax.jit(model.layer, keep_unused=True, in_shardings=(whole, weights), out_shardings=whole)
with tempfile.TemporaryDirectory() as tmp:
    # One dump per pass whose name fits; the partitioner's is wanted.
    options = {
        "xla_dump_to": tmp,
        "xla_dump_hlo_pass_re": "spmd-partitioning",
        "xla_dump_hlo_as_proto": True,
    }
    dist.lower(*model.arguments()).compile(compiler_options=options)
    (after,) = pathlib.Path(tmp).glob("*after_spmd-partitioning*.hlo.pb")
    (out / "gspmd.hlo.pb").write_bytes(after.read_bytes())

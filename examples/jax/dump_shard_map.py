"""Writes the HLO of a function and of its `shard_map` version.

    python dump_shard_map.py OUT_DIR

`lower` stops before the compiler, so no partitioner is involved and no
devices are needed: the mesh is abstract.
"""

import functools
import pathlib
import sys

import jax
from jax.sharding import AbstractMesh

import model
from specs import WEIGHTS, WHOLE, dump

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
mesh = AbstractMesh((4,), ("tp",))


def lower(function):
    # keep_unused: an argument that one program ignores still counts.
    return jax.jit(function, keep_unused=True).lower(*model.arguments())


def split(function):
    return jax.shard_map(
        functools.partial(function, axis="tp"),
        mesh=mesh, in_specs=(WHOLE, WEIGHTS), out_specs=WHOLE, check_vma=False,
    )


dump(out / "base.hlo.pb", lower(model.layer))
dump(out / "shard_map.hlo.pb", lower(split(model.layer)))
dump(out / "shard_map_wrong.hlo.pb", lower(split(model.layer_without_second_all_reduce)))

"""Shardings of `model.layer`, and how its programs are written to files."""

import pathlib
import re

import jax
from jax.sharding import PartitionSpec as P

COLUMNS, ROWS, WHOLE = P(None, "tp"), P("tp", None), P()
WEIGHTS = dict(
    norm1=WHOLE, wq=COLUMNS, wk=COLUMNS, wv=COLUMNS, wo=ROWS,
    norm2=WHOLE, gate=COLUMNS, up=COLUMNS, down=ROWS,
)

# Source paths are recorded relative to the repository.
ROOT = pathlib.Path(__file__).resolve().parents[2]
jax.config.update("jax_hlo_source_file_canonicalization_regex", re.escape(f"{ROOT}/"))


def dump(path, lowered):
    """The unoptimised HLO with source lines, as a serialized HloModuleProto."""
    path.write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())

"""Writes pairs of programs and their planted errors: `pairs.py OUT [TEXT...]`.

Needs jax 0.10.2 on CPU. Each case is checked on 8 devices before its
`case.json` is written; cases that do not come out as declared are listed.
"""
import os
import sys
import tempfile

DUMP = tempfile.mkdtemp(prefix="pairs_dump_")
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false "
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    f"--xla_dump_to={DUMP} --xla_dump_hlo_as_text --xla_dump_large_constants=true "
    "--xla_dump_hlo_module_re=jit_dist --xla_dump_hlo_pass_re=.*spmd-partitioning"
)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jax  # noqa: E402

jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/(?=tests/gen/)")

import harness  # noqa: E402
for _m in ("dense", "norms", "attention", "blocks", "vocab", "train", "experts", "seqpar", "deep"):
    if os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), _m + ".py")):
        __import__(_m)


def main():
    out, only = sys.argv[1], sys.argv[2:]
    right = wrong = 0
    failed = []
    for c in harness.cases():
        if only and not any(o in c[0] for o in only):
            continue
        try:
            ok, msg = harness.run(*c, out, DUMP)
        except Exception as e:  # a case that cannot be built is a defect of the case
            ok, msg = False, f"{type(e).__name__}: {str(e)[:300]}"
        if ok:
            right += c[5] is None
            wrong += c[5] is not None
        else:
            failed.append(c[0])
            print("NOT AS DECLARED", c[0], msg, flush=True)
    print(f"right {right} wrong {wrong} not as declared {len(failed)}")


if __name__ == "__main__":
    main()

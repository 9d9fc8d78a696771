"""Writes the HLO of a PyTorch/XLA model on one device and partitioned by SPMD.

    python dump.py OUT_DIR

SPMD mode belongs to a process, so this program runs itself twice. Needs
torch and torch_xla of the same version (tried: 2.9, CPU).
"""

import os
import pathlib
import subprocess
import sys
import tempfile


def trace(devices):
    """Builds the graph, sharded if there are several devices, and runs it."""
    import numpy as np
    import torch
    import torch_xla
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    if devices > 1:
        xr.use_spmd()
    torch.manual_seed(0)

    class Mlp(torch.nn.Module):
        def __init__(self, model=64, hidden=256):
            super().__init__()
            self.up = torch.nn.Linear(model, hidden, bias=False)
            self.down = torch.nn.Linear(hidden, model, bias=False)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    device = torch_xla.device()
    net = Mlp().to(device)
    x = torch.randn(8, 64).to(device)
    if devices > 1:
        mesh = xs.Mesh(np.arange(devices), (devices,), ("tp",))
        xs.mark_sharding(net.up.weight, mesh, ("tp", None))
        xs.mark_sharding(net.down.weight, mesh, (None, "tp"))
        xs.mark_sharding(x, mesh, (None, None))
    torch_xla.sync()  # The inputs are there; what follows is one graph.
    with torch.no_grad():
        y = net(x)
    torch_xla.sync()
    print(float(y.sum()))


def run(devices, pass_name, pattern, target):
    with tempfile.TemporaryDirectory() as tmp:
        flags = f"--xla_dump_to={tmp} --xla_dump_hlo_as_proto=true"
        if pass_name:
            flags += f" --xla_dump_hlo_pass_re={pass_name}"
        env = dict(
            os.environ,
            XLA_FLAGS=flags,
            PJRT_DEVICE="CPU",
            CPU_NUM_DEVICES=str(devices),
            # Source lines of the Python code in the HLO.
            XLA_IR_DEBUG="1",
            XLA_HLO_DEBUG="1",
        )
        subprocess.run([sys.executable, __file__, "--trace", str(devices)], env=env, check=True)
        # Each sync compiles a graph; the model's is the one with the dots.
        files = [f for f in pathlib.Path(tmp).glob(pattern) if b"dot" in f.read_bytes()]
        largest = max(files, key=lambda f: f.stat().st_size)
        target.write_bytes(largest.read_bytes())


if sys.argv[1] == "--trace":
    trace(int(sys.argv[2]))
else:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    run(1, "", "*before_optimizations.hlo.pb", out / "base.hlo.pb")
    run(4, "spmd-partitioning", "*after_spmd-partitioning*.hlo.pb", out / "spmd.hlo.pb")

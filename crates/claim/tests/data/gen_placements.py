"""Writes placements.json: JAX's own answer to which block each device holds.

Run: XLA_FLAGS=--xla_force_host_platform_device_count=16 python gen_placements.py > placements.json
"""
import itertools, json
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CASES = [
    ({"dp": 2, "tp": 4}, ["P()", "P('dp')", "P(None, 'tp')", "P('tp', 'dp')", "P(('dp', 'tp'))",
                          "P(('tp', 'dp'), None)", "P(None, ('tp', 'dp'))"]),
    ({"x": 2, "y": 2, "z": 4}, ["P('y', None)", "P(('z', 'x'), 'y')", "P('x', ('y', 'z'))",
                                "P(('y', 'x', 'z'))", "P(None, ('z', 'y', 'x'))", "P('z', 'y')"]),
    ({"a": 3, "b": 1, "c": 2}, ["P('a', 'c')", "P(('c', 'a'), 'b')", "P('b')"]),
]
out = []
for axes, specs in CASES:
    n = int(np.prod(list(axes.values())))
    mesh = Mesh(np.array(jax.devices()[:n]).reshape(tuple(axes.values())), tuple(axes))
    for s in specs:
        spec = eval(s)
        shape = (48, 96)
        sh = NamedSharding(mesh, spec)
        blocks = [None] * n
        for d, idx in sh.devices_indices_map(shape).items():
            blocks[d.id] = [[i.start or 0, shape[k] if i.stop is None else i.stop] for k, i in enumerate(idx)]
        hlo = sh._to_xla_hlo_sharding(2)
        out.append({"mesh": ",".join(f"{k}={v}" for k, v in axes.items()), "spec": s, "shape": shape,
                    "replicated": hlo.is_replicated(),
                    "tile_dims": list(hlo.tile_assignment_dimensions()),
                    "tile_devices": [int(i) for i in hlo.tile_assignment_devices()],
                    "subgroups": len(hlo.subgroup_types()) + int(hlo.replicate_on_last_tile_dim()),
                    "text": str(hlo), "blocks": blocks})
print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")

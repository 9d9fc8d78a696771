"""Dumps of the folders here: XLA's passes on CPU, of jax 0.10.2.

python tests/passes/dump.py NAME FOLDER
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

f32 = jnp.float32


def array(*dims, dtype=f32):
    return jax.ShapeDtypeStruct(dims, dtype)


def mlp():
    def f(x, w1, b1, w2):
        return jax.nn.gelu(x @ w1 + b1) @ w2

    return f, (array(8, 16), array(16, 32), array(32), array(32, 4)), {}


def topk():
    def f(x):
        v, i = lax.top_k(x, 3)
        return v * 2, i, jnp.sort(x, -1), jnp.argmax(x, -1)

    return f, (array(4, 16),), {}


def dp8():
    def loss(w, x):
        return (jnp.tanh(x @ w) ** 2).mean()

    def f(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("dp", "tp"))
    split = lambda *axes: NamedSharding(mesh, P(*axes))
    shardings = {
        "in_shardings": (split(None, "tp"), split("dp", None)),
        "out_shardings": split(None, "tp"),
    }
    return f, (array(16, 32), array(8, 16)), shardings


name, folder = sys.argv[1:]
f, arguments, shardings = {"mlp": mlp, "topk": topk, "dp8": dp8}[name]()
options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": ".*", "xla_dump_hlo_as_text": True}
jax.jit(f, keep_unused=True, **shardings).lower(*arguments).compile(compiler_options=options)

#!/usr/bin/env python3
"""Records the traces of this folder with jax on CPU.

usage: record.py [DIR]    (default: this folder)

Per model: the compiled module as text, and what `jax.profiler` writes of a few
executions: Chrome trace (`.trace.json.gz`), the same for Perfetto, XPlane
(`.xplane.pb.gz`, without the modules that the profiler puts in). The files here
are of jax 0.10.2.
"""
import glob, gzip, os, re, sys, tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
key = jax.random.key(0)


def normal(*shape):
    return jax.random.normal(key, shape)


def mlp_step(params, x, y):
    def loss(params):
        h = x
        with jax.named_scope("hidden"):
            for w, b in params[:-1]:
                h = jax.nn.gelu(h @ w + b)
        w, b = params[-1]
        with jax.named_scope("head"):
            return jnp.mean((h @ w + b - y) ** 2)
    with jax.named_scope("loss"):
        grads = jax.grad(loss)(params)
    with jax.named_scope("update"):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def attention(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)


def attention_bf16(q, k, v):
    return attention(*(x.astype(jnp.bfloat16) for x in (q, k, v))).astype(jnp.float32)


def conv(x, w):
    for _ in range(2):
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return x.mean((1, 2))


def scan(w, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), jnp.sum(h)), x, w)


def tensor_parallel(x, w, v):
    mesh = jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def body(x, w, v):
        return jax.lax.psum(jax.nn.relu(x @ w) @ v, "tp")

    return jax.shard_map(body, mesh=mesh, in_specs=(P("dp"), P(None, "tp"), P("tp")), out_specs=P("dp"))(x, w, v)


def record(name, f, *args, runs=2, also=()):
    c = jax.jit(f).lower(*args).compile()
    jax.block_until_ready(c(*args))
    with open(os.path.join(out, f"{name}.hlo.txt"), "w") as h:
        text = c.as_text()
        # Paths of the machine that recorded.
        h.write(re.sub(r'"[^"\n]*/(record\.py)"', r'"tests/traces/\1"', re.sub(r'"[^"\n]*/site-packages/', '"', text)))
    with tempfile.TemporaryDirectory() as t:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.enable_hlo_proto = False
        with jax.profiler.trace(t, create_perfetto_trace="perfetto" in also, profiler_options=options):
            for _ in range(runs):
                jax.block_until_ready(c(*args))
        for kind in ["trace.json.gz", *(["xplane.pb"] if "xplane" in also else []), *(["perfetto_trace.json.gz"] if "perfetto" in also else [])]:
            files = [f for f in glob.glob(f"{t}/plugins/profile/*/*{kind}") if kind.startswith("perf") or "perfetto" not in f]
            data = open(files[0], "rb").read()
            if kind.endswith(".gz"):
                data = gzip.decompress(data)
            target = os.path.join(out, f"{name}.{kind.removesuffix('.gz')}.gz")
            open(target, "wb").write(gzip.compress(data, 9, mtime=0))


record("mlp", mlp_step, [(normal(64, 256), jnp.zeros(256)), (normal(256, 256), jnp.zeros(256)), (normal(256, 8), jnp.zeros(8))],
       normal(128, 64), normal(128, 8), also=["xplane", "perfetto"])
record("attention", attention, *(normal(2, 128, 4, 32) for _ in range(3)), also=["xplane"])
record("attention_bf16", attention_bf16, *(normal(2, 128, 4, 32) for _ in range(3)))
record("conv", conv, normal(4, 32, 32, 16), normal(3, 3, 16, 16))
record("scan", scan, normal(6, 128, 128) / 12, normal(64, 128))
record("tensor_parallel", tensor_parallel, normal(64, 128), normal(128, 256), normal(256, 128), also=["xplane"])

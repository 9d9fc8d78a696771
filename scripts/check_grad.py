#!/usr/bin/env python3
"""Gradients by JAX as an oracle for `scalify-grad`.

    check_grad.py --write          writes crates/grad/tests/data: per function its
                                   HLO and that of jax.grad, gzip
    check_grad.py SCALIFY [DIR]    differentiates the functions with the program
                                   SCALIFY, runs the results in XLA and compares
                                   them with jax.grad
"""

import gzip
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxlib import _hlo, _jax
from jax.sharding import Mesh, PartitionSpec as P

DATA = pathlib.Path(__file__).parent.parent / "crates/grad/tests/data"
RNG = np.random.default_rng(7)


def arr(*shape, low=None, high=None):
    if low is None:
        return RNG.normal(size=shape).astype(np.float32)
    return RNG.uniform(low, high, size=shape).astype(np.float32)


def weighted(f):
    """A scalar that depends on every output in its own way."""

    def g(*xs):
        out = jax.tree.leaves(f(*xs))
        total = 0.0
        for o in out:
            if jnp.issubdtype(o.dtype, jnp.floating):
                w = np.cos(np.arange(o.size, dtype=np.float32) * 1.3 + 0.2).reshape(o.shape)
                total = total + jnp.sum(o.astype(jnp.float32) * w)
        return total

    return g


CASES = {}


def case(name, f, *xs, raw=False):
    CASES[name] = (f if raw else weighted(f), xs)


def unary():
    any_ = arr(3, 5)
    pos = arr(3, 5, low=0.2, high=3.0)
    unit = arr(3, 5, low=-0.9, high=0.9)
    for name, f, x in [
        ("neg", lambda x: -x, any_), ("exp", jnp.exp, any_), ("log", jnp.log, pos),
        ("log1p", jnp.log1p, pos), ("expm1", jnp.expm1, any_), ("tanh", jnp.tanh, any_),
        ("logistic", lax.logistic, any_), ("sqrt", jnp.sqrt, pos), ("rsqrt", lax.rsqrt, pos),
        ("cbrt", jnp.cbrt, pos), ("sin", jnp.sin, any_), ("cos", jnp.cos, any_),
        ("tan", lax.tan, unit), ("erf", lax.erf, any_), ("abs", jnp.abs, any_),
        ("sign", jnp.sign, any_), ("floor", jnp.floor, any_), ("asinh", lax.asinh, any_),
        ("acosh", lax.acosh, arr(3, 5, low=1.2, high=3)), ("atanh", lax.atanh, unit),
        ("asin", lax.asin, unit), ("acos", lax.acos, unit), ("sinh", lax.sinh, any_),
        ("cosh", lax.cosh, any_), ("square", jnp.square, any_),
        ("integer_pow", lambda x: x**5 + x**-2, pos),
        ("reduce_precision", lambda x: lax.reduce_precision(x, 8, 20), any_),
        ("convert", lambda x: x.astype(jnp.float16).astype(jnp.float32) * x, any_),
        ("to_int", lambda x: x * x.astype(jnp.int32), any_ * 4),
        ("gelu", jax.nn.gelu, any_), ("gelu_erf", lambda x: jax.nn.gelu(x, approximate=False), any_),
        ("silu", jax.nn.silu, any_), ("softplus", jax.nn.softplus, any_), ("elu", jax.nn.elu, any_),
    ]:
        case(f"unary_{name}", f, x)


def binary():
    x, y = arr(4, 3), arr(4, 3)
    p = arr(4, 3, low=0.3, high=2.0)
    case("add_sub_mul", lambda x, y: (x + y) * x - y * 3, x, y)
    case("div", lambda x, y: x / y, x, p)
    case("pow", lambda x, y: lax.pow(x, y), p, y)
    case("atan2", lax.atan2, x, p)
    case("rem", lax.rem, x * 5, p)
    case("max", jnp.maximum, x, y)
    case("min", jnp.minimum, x, y)
    tie = np.round(x)
    case("max_ties", jnp.maximum, tie, np.round(y))
    case("min_ties", jnp.minimum, tie, np.round(y))
    case("relu_maximum", lambda x: jnp.maximum(x, 0.0), tie)
    case("select", lambda x, y: jnp.where(x > y, x * y, y), x, y)
    case("clamp", lambda x: lax.clamp(jnp.float32(-0.5), x, jnp.float32(0.7)), x)
    case("clamp_bounds", lambda a, x, b: lax.clamp(-0.1 - a * a, x, 0.1 + b * b), np.full_like(x, -0.5), x, np.full_like(x, 0.7))


def shapes():
    x = arr(3, 4, 5)
    case("reshape", lambda x: x.reshape(6, 10) ** 2, x)
    case("transpose", lambda x: x.transpose(2, 0, 1) ** 2, x)
    case("broadcast", lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (2,)) ** 2, arr(3))
    case("expand_dims", lambda x, y: x[:, None, :] * y[None, :, None], arr(3, 4), arr(5))
    case("slice", lambda x: x[1:, ::2, 1:5:3] ** 2, x)
    case("pad", lambda x, v: lax.pad(x, v, [(1, 2, 1), (-1, 0, 2), (0, -2, 0)]) ** 2, x, np.float32(0.3))
    case("pad_edge", lambda x, v: lax.pad(x, v, [(2, -3, 2), (-2, -1, 0), (1, 1, 0)]) ** 2, x, np.float32(0.3))
    case("concatenate", lambda x, y: jnp.concatenate([x, y, x], 1) ** 2, x, arr(3, 2, 5))
    case("reverse", lambda x: lax.rev(x, (0, 2)) * x, x)
    case("stack", lambda x, y: jnp.stack([x, y]) ** 2, arr(3), arr(3))


def dots():
    case("dot", lambda x, y: x @ y, arr(3, 4), arr(4, 5))
    case("dot_twice", lambda x: x @ x, arr(4, 4))
    case("dot_batch", lambda x, y: jnp.einsum("bhid,bhjd->bhij", x, y), arr(2, 3, 4, 5), arr(2, 3, 6, 5))
    case("dot_mixed_order", lambda x, y: lax.dot_general(x, y, (((3, 1), (0, 2)), ((0,), (3,)))),
         arr(2, 3, 4, 5), arr(5, 6, 3, 2))
    case("dot_two_free", lambda x, y: jnp.einsum("iabk,kcbd->bicad", x, y), arr(2, 3, 4, 5), arr(5, 2, 4, 3))
    case("dot_bf16", lambda x, y: lax.dot_general(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32), arr(3, 4), arr(4, 5))
    case("outer", jnp.outer, arr(3), arr(4))


def reductions():
    x = arr(3, 4, 5)
    case("sum", lambda x: jnp.sum(x, (0, 2)) ** 2, x)
    case("sum_all", lambda x: jnp.sum(x) ** 2, x)
    case("mean_var", lambda x: (x.mean(1), x.var((0, 1))), x)
    case("reduce_max", lambda x: jnp.max(x, (1,)) ** 2, x)
    case("reduce_max_ties", lambda x: jnp.max(x, (0, 1)) * 2, np.round(x))
    case("reduce_min", lambda x: jnp.min(x, (0, 2)), x)
    case("prod", lambda x: jnp.prod(x, (0, 2)), x)
    z = arr(3, 4)
    z[1, 2] = 0
    case("prod_zero", lambda x: jnp.prod(x, 1), z)
    case("logsumexp", lambda x: jax.nn.logsumexp(x, -1), x)
    case("softmax", lambda x: jax.nn.softmax(x, -1), x)
    case("log_softmax", lambda x: jax.nn.log_softmax(x, 1), x)
    case("norm", lambda x: jnp.linalg.norm(x), x)
    case("cumsum", lambda x: jnp.cumsum(x, 1) ** 2, x)
    case("cumsum_reverse", lambda x: lax.cumsum(x, 1, reverse=True) ** 2, x)
    x2 = arr(1, 7, 9, 2)
    case("avg_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 3, 1), "SAME") ** 2, x2)
    case("sum_pool_dilated", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 1, 1), ((0, 0), (1, 2), (3, 1), (0, 0)), base_dilation=(1, 2, 1, 1), window_dilation=(1, 1, 2, 1)) ** 2, x2)
    case("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"), x2)
    case("max_pool_overlap", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 2, 1), ((0, 0), (2, 1), (0, 1), (0, 0))), x2)
    case("min_pool", lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), x2)


def convolutions():
    def conv(**k):
        return lambda x, w: lax.conv_general_dilated(x, w, **k)

    case("conv_2d", conv(window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), arr(2, 5, 6, 3), arr(3, 2, 3, 4))
    case("conv_strided", conv(window_strides=(2, 3), padding=((1, 2), (0, 1))), arr(2, 3, 7, 8), arr(4, 3, 3, 2))
    case("conv_dilated", conv(window_strides=(2, 1), padding=((2, 1), (1, 3)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)), arr(2, 3, 5, 6), arr(4, 3, 3, 2))
    case("conv_negative_pad", conv(window_strides=(1, 2), padding=((-1, 2), (1, -1))), arr(2, 3, 7, 8), arr(4, 3, 3, 2))
    case("conv_groups", conv(window_strides=(2, 1), padding="SAME", feature_group_count=2), arr(2, 4, 5, 6), arr(6, 2, 3, 2))
    case("conv_depthwise", conv(window_strides=(1,), padding=((2, 0),), feature_group_count=4), arr(2, 4, 9), arr(8, 1, 3))
    case("conv_batch_groups", conv(window_strides=(1, 2), padding="SAME", batch_group_count=2), arr(4, 3, 5, 6), arr(6, 3, 2, 3))
    case("conv_transpose", lambda x, w: lax.conv_transpose(x, w, (2, 3), "SAME"), arr(2, 4, 5, 3), arr(3, 2, 3, 4))


def indices():
    x = arr(6, 4)
    ids = np.array([[0, 5, 2], [2, 2, 1]])
    case("take", lambda x: x[ids] ** 2, x)
    case("take_columns", lambda x: jnp.take(x, np.array([3, 0, 3]), axis=1) ** 2, x)
    case("take_along", lambda x: jnp.take_along_axis(x, np.array([[1, 1], [0, 3], [2, 2], [3, 0], [1, 0], [2, 1]]), 1) ** 2, x)
    case("gather_outside", lambda x: lax.gather(x, np.array([[5, 2], [-1, 9]]), lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 2), mode=lax.GatherScatterMode.CLIP) ** 2, x)
    case("dynamic_slice", lambda x: lax.dynamic_slice(x, (5, 1), (3, 2)) ** 2, x)
    case("dynamic_update_slice", lambda x, u: lax.dynamic_update_slice(x * 2, u * u, (5, 1)) ** 2, x, arr(3, 2))
    case("scatter_add", lambda x, u: (x * x).at[np.array([1, 3, 3])].add(u * u) ** 2, x, arr(3, 4))
    case("scatter_add_outside", lambda x, u: (x * x).at[np.array([1, 9, 3])].add(u * u, mode="drop") ** 2, x, arr(3, 4))
    case("scatter_set_unique", lambda x, u: (x * x).at[np.array([1, 4])].set(u * u, unique_indices=True) ** 2, x, arr(2, 4))
    case("segment_sum", lambda x: jax.ops.segment_sum(x * x, np.array([0, 1, 0, 2, 2, 1]), 3) ** 2, x)
    case("one_hot", lambda x: jax.nn.one_hot(ids, 6) @ x, x)
    case("sort", lambda x: jnp.sort(x, 0) ** 2, x)
    case("sort_pair", lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), x, arr(6, 4))
    case("top_k", lambda x: lax.top_k(x, 2)[0] ** 2, x)


def control():
    w = arr(4, 4) * 0.5
    x = arr(4)

    def scan(w, x):
        def body(c, t):
            c = jnp.tanh(w @ c + t)
            return c, c * c

        return lax.scan(body, x, np.linspace(0, 1, 5).astype(np.float32)[:, None] * np.ones(4, np.float32))

    case("scan", scan, w, x)

    def scan_weights(ws, x):
        return lax.scan(lambda c, w: (jnp.tanh(w @ c), c[0]), x, ws)

    case("scan_weights", scan_weights, arr(3, 4, 4), x)
    case("scan_reverse", lambda ws, x: lax.scan(lambda c, w: (jnp.sin(w @ c), c), x, ws, reverse=True), arr(3, 4, 4), x)

    def nested(w, x):
        def outer(c, _):
            c, _ = lax.scan(lambda c, k: (jnp.tanh(w @ c) * k, None), c, np.array([0.5, 1.5], np.float32))
            return c + x, c

        return lax.scan(outer, x, None, length=3)

    case("scan_nested", nested, w, x)
    case("fori", lambda w, x: lax.fori_loop(2, 6, lambda i, c: jnp.tanh(w @ c) + i * c, x), w, x)
    case("scan_zero_trips", lambda x: lax.scan(lambda c, _: (c * c, c), x, None, length=0)[0], x)
    for k in range(2):
        case(f"cond_{k}", lambda x, y, k=k: lax.cond(lax.optimization_barrier(jnp.int32(k)) > 0, lambda a, b: a * b, lambda a, b: a * a * b, x, y) ** 2, x, arr(4))
    case("switch", lambda x, y: lax.switch(lax.optimization_barrier(jnp.int32(1)), [lambda a, b: a, lambda a, b: b * b * a, lambda a, b: jnp.sin(b)], x, y), x, arr(4))
    case("remat", jax.checkpoint(lambda w, x: jnp.tanh(w @ jnp.tanh(w @ x))), w, x)
    case("jit_helper", jax.jit(lambda w, x: jax.nn.relu(w @ x) + jnp.where(x > 0, x, x * 0.1)), w, x)


def models():
    def rms(x, g):
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g

    def attention(x, wq, wk, wv, g):
        h = rms(x, g)
        q, k, v = (jnp.einsum("bsd,dhe->bhse", h, w) for w in (wq, wk, wv))
        s = jnp.einsum("bhse,bhte->bhst", q, k) / 2.0
        mask = np.tril(np.ones((4, 4), bool))
        s = jnp.where(mask, s, -1e30)
        return x + jnp.einsum("bhst,bhte->bshe", jax.nn.softmax(s), v).reshape(x.shape)

    case("attention", attention, arr(2, 4, 6), arr(6, 2, 3), arr(6, 2, 3), arr(6, 2, 3), arr(6))

    def entropy(e, w):
        ids, y = np.array([[1, 3, 0], [2, 2, 4]]), np.array([[0, 2, 1], [4, 3, 3]])
        logits = jnp.tanh(e[ids] @ w)
        lp = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(lp, y[..., None], -1))

    case("cross_entropy", entropy, arr(5, 4), arr(4, 6), raw=True)

    def batch_norm(x, s, b):
        m, v = x.mean(0), x.var(0)
        return (x - m) / jnp.sqrt(v + 1e-3) * s + b

    case("batch_norm", batch_norm, arr(6, 3), arr(3), arr(3))


for f in (unary, binary, shapes, dots, reductions, convolutions, indices, control, models):
    f()


def collectives():
    """Per-device functions: the sum over devices of a scalar, by each device's
    input, which is what jax computes without replication tracking."""
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    x = arr(8, 4)

    def wave(o):
        # No constant arrays: they would become arguments of the manual part.
        w = jnp.cos(lax.iota(jnp.float32, o.size) * 1.3 + 0.2).reshape(o.shape)
        k = 1.0 + lax.axis_index("a") + 3.0 * lax.axis_index("b")
        return jnp.sum(o * o * w) * k

    fs = {
        "psum": lambda x: wave(lax.psum(x, "a")),
        "psum_both": lambda x: wave(lax.psum(jnp.sin(x), ("a", "b"))),
        "pmean": lambda x: wave(lax.pmean(x, "b")),
        "all_gather": lambda x: wave(lax.all_gather(x, "b")),
        "all_gather_tiled": lambda x: wave(lax.all_gather(x, "a", axis=1, tiled=True)),
        "psum_scatter": lambda x: wave(lax.psum_scatter(x, "b", scatter_dimension=0, tiled=True)),
        "ppermute": lambda x: wave(lax.ppermute(x, "a", [(0, 1), (1, 0)])),
        "ppermute_partial": lambda x: wave(lax.ppermute(x, "b", [(0, 1)]) + x),
        "all_to_all": lambda x: wave(lax.all_to_all(x, "b", 1, 0, tiled=True)),
        "tuple_psum": lambda x: sum(map(wave, lax.psum((x, x * x), "a"))),
    }
    out = {}
    for name, f in fs.items():
        def run(body, out):
            return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("a", "b"), out_specs=out, check_vma=False))

        fwd = run(f, P())
        grad = run(lambda x, f=f: jax.grad(f)(x), P("a", "b"))
        out[f"device_{name}"] = (fwd, grad, (x,))
    return out


def text(f, xs):
    h = jax.jit(f, keep_unused=True).lower(*xs).compiler_ir("hlo")
    o = _hlo.HloPrintOptions()
    o.print_large_constants = True
    o.print_metadata = False
    return h.get_hlo_module().to_string(o)


def body(t):
    """The manual computation of a module as a module of its own."""
    head = t.split("\n", 1)[0].split(",")[0]
    comps = [c.strip("\n") for c in t.split("\n\n")[1:] if c.strip()]
    mains = [c for c in comps if "manual_computation_body" in c.split("(", 1)[0]]
    assert len(mains) == 1
    rest = [c for c in comps if c is not mains[0] and not c.startswith("ENTRY")]
    return head + ", num_partitions=4\n\n" + "\n".join(rest) + "\nENTRY " + mains[0] + "\n"


def save(name, kind, t):
    with gzip.GzipFile(DATA / f"{name}.{kind}.hlo.txt.gz", "wb", mtime=0) as f:
        f.write(t.encode())


def write():
    DATA.mkdir(parents=True, exist_ok=True)
    for p in DATA.glob("*.gz"):
        p.unlink()
    for name, (f, xs) in CASES.items():
        save(name, "forward", text(f, xs))
        save(name, "gradient", text(jax.grad(f, tuple(range(len(xs)))), xs))
    for name, (fwd, grad, xs) in collectives().items():
        save(name, "forward", body(text(fwd, xs)))
        save(name, "gradient", body(text(grad, xs)))
    print(f"{len(CASES)} functions, {len(collectives())} per device")


def compiled(t):
    client, device = jax.devices("cpu")[0].client, jax.devices("cpu")[0]
    module = _hlo.hlo_module_from_text(t)
    computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    mlir = _jax.mlir.xla_computation_to_mlir_module(computation)
    return client.compile_and_load(mlir, _jax.DeviceList((device,)), _jax.CompileOptions())


def check(scalify):
    bad = done = 0
    with tempfile.TemporaryDirectory() as d:
        for name, (f, xs) in CASES.items():
            src, back, out = (pathlib.Path(d) / n for n in ("f.hlo", "j.hlo", "g.hlo"))
            src.write_text(text(f, xs))
            back.write_text(text(jax.grad(f, tuple(range(len(xs)))), xs))
            out.unlink(missing_ok=True)
            pairs = [a for k in range(len(xs)) for a in ("--grad", f"{k}={k}")]
            r = subprocess.run(
                [scalify, "gradcheck", src, back, *pairs, "--outputs", "gradient", "--numeric",
                 "--save-gradient", out], capture_output=True, text=True)
            if not out.exists():
                print(f"{name}: {r.stderr.strip()}")
                bad += 1
                continue
            exe = compiled(out.read_text())
            got = [np.asarray(v[0]) for v in exe.execute_sharded([jax.device_put(x) for x in xs]).disassemble_into_single_device_arrays()]
            want = jax.tree.leaves(jax.value_and_grad(f, tuple(range(len(xs))))(*xs))
            done += 1
            for k, (a, b) in enumerate(zip(got, want, strict=True)):
                b = np.asarray(b)
                if not np.allclose(a, b, rtol=2e-4, atol=2e-5 * (1 + np.abs(b).max(initial=0))):
                    print(f"{name} #{k}: {np.abs(a - b).max()} of {np.abs(b).max()}")
                    bad += 1
    print(f"{done} functions run in XLA, {bad} wrong")
    return bad


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write()
    elif len(sys.argv) == 2:
        sys.exit(bool(check(sys.argv[1])))
    else:
        sys.exit(__doc__)

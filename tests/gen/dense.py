"""Linear layers, perceptrons, collectives spelt in several ways."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


def _mm(style, x, w):
    if style == "einsum":
        return jnp.einsum("...d,df->...f", x, w)
    if style == "dot":
        return lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())))
    if style == "matmulT":
        return jnp.swapaxes(jnp.matmul(w.T, jnp.swapaxes(x, -1, -2)), -1, -2)
    if style == "vmap":
        return jax.vmap(lambda r: r @ w)(x)
    if style == "tensordot":
        return jnp.tensordot(x, w, axes=([-1], [0]))
    return x @ w


@pair("linear", "tensor", dict(s="einsum", s2="matmul", n=4), dict(s="dot", s2="einsum", n=3), dict(s="matmulT", s2="tensordot", n=2), dict(s="vmap", s2="dot", n=8))
def rowpar_bias(v, bug):
    """Row-parallel product with a bias; baseline in another spelling."""
    n = v.n
    def base(x, w, b):
        return _mm(v.s, x, w) + b
    def dist(x, w, b):
        y = _mm(v.s2, x, w)  # NEAR[no_psum]
        if bug("bias_each"):
            return lax.psum(y + b, "tp")  # BUG[bias_each] extra-scale: bias added on each rank before the reduction
        y = y if bug("no_psum") else lax.psum(y, "tp")  # BUG[no_psum] missing-collective: partial sums not reduced
        y = y * (1.0 / n) if bug("mean") else y  # BUG[mean] wrong-scale: mean in place of a sum
        return y + b
    return Prog(dict(tp=n), (In((5, n * 4), P(None, "tp")), In((n * 4, 6), P("tp")), In((6,))), base, dist, P())


@pair("linear", "tensor+data", dict(ax=("a", "b"), m=dict(a=2, b=3)), dict(ax=("b", "a"), m=dict(a=2, b=4)), dict(ax=("b", "a"), m=dict(dp=2, a=2, b=2)))
def colpar_gather_tuple(v, bug):
    """Columns over two mesh axes, gathered with a tuple of axes."""
    n = v.m["a"] * v.m["b"]
    rows = "dp" if "dp" in v.m else None
    def base(x, w, b):
        return jnp.tanh(x @ w + b[None, :])
    def dist(x, w, b):
        h = jnp.tanh(jnp.einsum("ij,jk->ik", x, w) + b)
        ax = v.ax[::-1] if bug("order") else v.ax  # BUG[order] wrong-layout: axes gathered in the wrong order
        return lax.all_gather(h, ax, axis=1, tiled=True)  # NEAR[order]
    return Prog(v.m, (In((4, 6), P(rows)), In((6, 2 * n), P(None, v.ax)), In((2 * n,), P(v.ax))), base, dist, P(rows))


@pair("mlp", "tensor", dict(act="gelu", hand=False, n=4), dict(act="silu", hand=True, n=2), dict(act="gelu_tanh", hand=True, n=3), dict(act="relu2", hand=False, n=4), dict(act="softplus", hand=True, n=8), dict(act="quick_gelu", hand=False, n=4))
def mlp_act(v, bug):
    """Two-layer perceptron, several activations, hand-written against library."""
    lib = {"gelu": lambda x: jax.nn.gelu(x, approximate=False), "silu": jax.nn.silu,
           "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True), "relu2": lambda x: jnp.square(jax.nn.relu(x)),
           "softplus": jax.nn.softplus, "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x)}
    hand = {"gelu": lambda x: 0.5 * x * (1.0 + lax.erf(x / np.sqrt(2.0).astype(np.float32))),
            "silu": lambda x: x * lax.logistic(x),
            "gelu_tanh": lambda x: 0.5 * x * (1 + jnp.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3))),
            "relu2": lambda x: lax.max(x, 0.0) * lax.max(x, 0.0),
            "softplus": lambda x: jnp.logaddexp(x, 0.0), "quick_gelu": lambda x: x * lax.logistic(x * 1.702)}
    act, act2 = lib[v.act], (hand if v.hand else lib)[v.act]
    n = v.n
    def base(x, w1, b1, w2, b2):
        return act(x @ w1 + b1) @ w2 + b2
    def dist(x, w1, b1, w2, b2):
        z = jnp.dot(x, w1)
        z = z if bug("b1_dropped") else z + b1  # BUG[b1_dropped] stale-value: bias of the first layer dropped
        h = act2(z) if not bug("wrong_act") else jax.nn.elu(z)  # BUG[wrong_act] wrong-operator: another activation
        y = jnp.einsum("bf,fd->bd", h, w2)
        if bug("bias_in"):
            y = y + b2  # BUG[bias_in] extra-scale: output bias added before the sum
            return lax.psum(y, "tp")
        y = lax.pmean(y, "tp") if bug("pmean") else lax.psum(y, "tp")  # BUG[pmean] wrong-collective: mean in place of sum
        return y + b2
    return Prog(dict(tp=n), (In((6, 8)), In((8, 4 * n), P(None, "tp")), In((4 * n,), P("tp")), In((4 * n, 8), P("tp")), In((8,))), base, dist, P())


@pair("mlp", "tensor", dict(n=4, lay="mid"), dict(n=2, lay="first"), dict(n=4, lay="first"))
def glu_fused(v, bug):
    """Gated unit with gate and up fused in one weight of three dimensions."""
    n, F = v.n, 4 * v.n
    mid = v.lay == "mid"
    def base(x, w, o):
        g, u = (x @ w[:, 0], x @ w[:, 1]) if mid else (x @ w[0], x @ w[1])
        return (jax.nn.silu(g) * u) @ o
    def dist(x, w, o):
        w = w.reshape(w.shape[0], -1) if mid else jnp.concatenate([w[0], w[1]], axis=1)
        h = x @ w
        k = h.shape[-1] // 2
        g, u = h[..., :k], h[..., k:]
        g, u = (u, g) if bug("swapped") else (g, u)  # BUG[swapped] wrong-slice: gate and up exchanged
        if bug("interleave"):
            g, u = h[..., ::2], h[..., 1::2]  # BUG[interleave] wrong-slice: fused halves read interleaved
        z = lax.logistic(g) * g * u
        return lax.psum(lax.dot(z, o), "tp")
    ws = In((6, 2, F), P(None, None, "tp")) if mid else In((2, 6, F), P(None, None, "tp"))
    return Prog(dict(tp=n), (In((5, 6)), ws, In((F, 6), P("tp"))), base, dist, P())


@pair("linear", "2d", dict(r=2, c=2, tiled=True, bugs=("dim", "axis")), dict(r=2, c=3, tiled=False, bugs=("no_move",)), dict(r=4, c=2, tiled=True))
def matmul_2d(v, bug):
    """Weights on a 2-D mesh: contraction over one axis, columns over the other."""
    def base(x, w):
        return jnp.matmul(x, w)
    def dist(x, w):
        y = jnp.dot(x, w)
        y = lax.psum(y, "c" if bug("axis") else "r")  # BUG[axis] wrong-axis: reduced over the columns' axis
        if v.tiled:
            return lax.all_gather(y, "c", axis=0 if bug("dim") else 1, tiled=True).reshape(4, -1)  # BUG[dim] wrong-dimension: gathered along rows
        g = lax.all_gather(y, "c")
        g = g if bug("no_move") else jnp.moveaxis(g, 0, 1)  # BUG[no_move] wrong-layout: gathered axis not moved before the reshape
        return g.reshape(4, -1)  # NEAR[no_move]
    return Prog(dict(r=v.r, c=v.c), (In((4, 4 * v.r), P(None, "r")), In((4 * v.r, 2 * v.c), P("r", "c"))), base, dist, P())


@pair("linear", "2d", dict(r=2, c=2), dict(r=2, c=4))
def summa(v, bug):
    """Both operands on a 2-D grid; rows gathered along one axis, columns along the other."""
    k = 4 * v.r * v.c
    def base(a, b):
        return a @ b
    def dist(a, b):
        a = lax.all_gather(a, "c", axis=1, tiled=True)
        b = lax.all_gather(b, "r", axis=0, tiled=True)
        y = a @ b
        return jnp.transpose(a @ b) if bug("swap") else y  # BUG[swap] wrong-layout: local block transposed
    return Prog(dict(r=v.r, c=v.c), (In((8, k), P("r", "c")), In((k, 8 * v.c // v.r), P("r", "c"))), base, dist, P("r", "c"))


@pair("collectives", "tensor", dict(n=4, tiled=True, dim=0), dict(n=2, tiled=False, dim=0), dict(n=4, tiled=True, dim=1), dict(n=4, tiled=False, dim=1))
def rs_ag(v, bug):
    """psum spelt as psum_scatter and all_gather, tiled and untiled."""
    n, d = v.n, v.dim
    def base(x, w):
        return x @ w
    def dist(x, w):
        y = x @ w
        if v.tiled:
            s = lax.psum_scatter(y, "tp", scatter_dimension=d, tiled=True)
            s = s * 2 if bug("scale") else s  # BUG[scale] wrong-scale: shard doubled
            return lax.all_gather(s, "tp", axis=d, tiled=True)
        sh = y.shape
        y = y.reshape(sh[:d] + (n, sh[d] // n) + sh[d + 1:])
        s = lax.psum_scatter(y, "tp", scatter_dimension=d, tiled=False)
        g = lax.all_gather(s, "tp", axis=d, tiled=False)
        if bug("flip"):
            g = jnp.flip(g, d)  # BUG[flip] wrong-layout: shards put together in reverse
        return g.reshape(sh)
    return Prog(dict(tp=n), (In((8, 4 * n), P(None, "tp")), In((4 * n, 8), P("tp"))), base, dist, P())


@pair("collectives", "ring", dict(n=4, loop="py"), dict(n=3, loop="fori"), dict(n=8, loop="scan"), dict(n=2, loop="py"))
def ring_allreduce(v, bug):
    """All-reduce by passing partial sums round a ring."""
    n = v.n
    perm = [(i, (i + 1) % n) for i in range(n)]
    def base(x, w):
        return jnp.sin(x @ w)
    def dist(x, w):
        y = x @ w
        steps = n - 2 if bug("short") else n - 1  # BUG[short] loop-bound: one hop too few
        def hop(c):
            acc, m = c
            m = lax.ppermute(m, "tp", perm)  # NEAR[short]
            return acc + m, m
        c = (y, y)
        if v.loop == "py":
            for _ in range(steps):
                c = hop(c)
        elif v.loop == "fori":
            c = lax.fori_loop(0, steps, lambda _, c: hop(c), c)
        else:
            c, _ = lax.scan(lambda c, _: (hop(c), None), c, None, length=steps)
        s = c[1] if bug("last") else c[0]  # BUG[last] stale-value: last message in place of the sum
        return jnp.sin(s)
    return Prog(dict(tp=n), (In((3, 2 * n), P(None, "tp")), In((2 * n, 5), P("tp"))), base, dist, P())


@pair("collectives", "ring", dict(n=4), dict(n=3), dict(n=8))
def ring_gather_matmul(v, bug):
    """Rows gathered while multiplying: each hop writes one block of the result."""
    n = v.n
    def base(x, w):
        return x @ w
    def dist(x, w):
        i = lax.axis_index("tp")
        out = jnp.zeros((x.shape[0] * n, w.shape[1]), x.dtype)
        blk = x
        for s in range(n):
            src = (i + s) % n if bug("index") else (i - s) % n  # BUG[index] wrong-index: block written where another belongs
            out = lax.dynamic_update_slice(out, blk @ w, (src * x.shape[0], 0))  # NEAR[index]
            if s < n - 1:
                step = -1 if bug("direction") else 1
                blk = lax.ppermute(blk, "tp", [(j, (j + step) % n) for j in range(n)])  # BUG[direction] wrong-permute: ring turned the other way
        return out
    return Prog(dict(tp=n), (In((2 * n, 6), P("tp")), In((6, 3 * n), P(None, "tp"))), base, dist, P(None, "tp"))


@pair("collectives", "ring", dict(n=4), dict(n=3))
def ring_reduce_scatter(v, bug):
    """Reduce-scatter by a ring, products computed block by block."""
    n = v.n
    perm = [(j, (j + 1) % n) for j in range(n)]
    def base(x, w):
        return x @ w
    def dist(x, w):
        i = lax.axis_index("tp")
        xb = x.reshape(n, -1, x.shape[1])
        acc = jnp.zeros((xb.shape[1], w.shape[1]), x.dtype)
        for s in range(n):
            off = s if bug("offset") else s + 1  # BUG[offset] wrong-index: blocks summed one step early
            b = lax.dynamic_index_in_dim(xb, (i - off) % n, 0, keepdims=False)
            if s:
                acc = lax.ppermute(acc, "tp", perm)
            acc = acc + b @ w
        return acc
    return Prog(dict(tp=n), (In((2 * n, 4 * n), P(None, "tp")), In((4 * n, 5), P("tp"))), base, dist, P("tp"))


@pair("collectives", "tensor", dict(n=8), dict(n=4))
def doubling_allreduce(v, bug):
    """All-reduce by recursive doubling."""
    n = v.n
    def base(x):
        return jnp.sum(x * x, axis=0)
    def dist(x):
        y = jnp.sum(jnp.square(x), axis=0)
        k = 1
        while k < n:
            q = k if not bug("mask") or k == 1 else 1  # BUG[mask] wrong-permute: the same partner in each round
            y = y + lax.ppermute(y, "d", [(i, i ^ q) for i in range(n)])  # NEAR[mask]
            k *= 2
        return y
    return Prog(dict(d=n), (In((2 * n, 7), P("d")),), base, dist, P())


@pair("collectives", "hierarchical", dict(o=2, i=4), dict(o=4, i=2), dict(o=2, i=3))
def hier_allreduce(v, bug):
    """Scatter inside, reduce across, gather inside."""
    def base(x, w):
        return x @ w
    def dist(x, w):
        y = x @ w
        s = lax.psum_scatter(y, "inner", scatter_dimension=1, tiled=True)  # NEAR[no_outer]
        s = s if bug("no_outer") else lax.psum(s, "outer")  # BUG[no_outer] missing-collective: not reduced across the outer axis
        r = lax.all_gather(s, "inner", axis=1, tiled=True)
        return lax.psum(r, "outer") if bug("twice") else r  # BUG[twice] extra-collective: reduced again across the outer axis
    k = v.o * v.i * 2
    return Prog(dict(outer=v.o, inner=v.i), (In((4, k), P(None, ("outer", "inner"))), In((k, 12), P(("outer", "inner")))), base, dist, P())


@pair("collectives", "tensor", dict(n=4, t=True, bugs=("axis",)), dict(n=2, t=False, bugs=("order",)), dict(n=8, t=True))
def a2a_reshard(v, bug):
    """Rows to columns by all_to_all, column softmax, and back."""
    n = v.n
    def base(x):
        return jax.nn.softmax(x, axis=0) * 3.0
    def dist(x):
        if v.t:
            y = lax.all_to_all(x, "d", split_axis=1, concat_axis=0, tiled=True)
        else:
            y = lax.all_to_all(x.reshape(x.shape[0], n, -1), "d", split_axis=1, concat_axis=0, tiled=False)
            y = jnp.flip(y, 0).reshape(-1, 2) if bug("order") else y.reshape(-1, x.shape[1] // n)  # BUG[order] wrong-layout: received blocks reordered
        y = jax.nn.softmax(y, axis=1 if bug("axis") else 0) * 3.0  # BUG[axis] wrong-dimension: softmax along the other dimension
        return lax.all_to_all(y, "d", split_axis=0, concat_axis=1, tiled=True)
    return Prog(dict(d=n), (In((2 * n, 2 * n), P("d")),), base, dist, P("d"))


@pair("lora", "tensor", dict(n=4, where="row", bugs=("adapter_partial",)), dict(n=2, where="col"), dict(n=4, where="rank", bugs=("scale", "rank_partial")))
def lora(v, bug):
    """Low-rank adapter next to a sharded weight; the rank may be sharded."""
    n, r, alpha = v.n, 8, 16.0
    def base(x, w, a, b):
        return x @ w + (x @ a) @ b * (alpha / r)
    def dist(x, w, a, b):
        s = alpha / a.shape[-1] if v.where == "rank" and bug("scale") else alpha / r  # BUG[scale] wrong-scale: local rank in the adapter's scale
        if v.where == "row":
            t = x @ w
            u = (x @ a) @ b * s
            return lax.psum(t, "tp") + u if bug("adapter_partial") else lax.psum(t + u, "tp")  # BUG[adapter_partial] missing-collective: adapter left out of the reduction
        if v.where == "col":
            return lax.all_gather(x @ w + ((x @ a) @ b) * s, "tp", axis=1, tiled=True)
        u = jnp.dot(jnp.dot(x, a), b)
        u = u if bug("rank_partial") else lax.psum(u, "tp")  # BUG[rank_partial] missing-collective: rank shards not summed
        return x @ w + u * s
    k = {"row": (P(None, "tp"), P("tp"), P("tp"), P()), "col": (P(), P(None, "tp"), P(), P(None, "tp")), "rank": (P(), P(), P(None, "tp"), P("tp"))}[v.where]
    return Prog(dict(tp=n), (In((3, 16), k[0]), In((16, 8), k[1]), In((16, r), k[2]), In((r, 8), k[3])), base, dist, P())


@pair("linear", "tensor", dict(n=4), dict(n=2))
def bf16_accumulate(v, bug):
    """bf16 operands, f32 accumulation and reduction."""
    n = v.n
    def base(x, w):
        return jnp.dot(x, w, preferred_element_type=jnp.float32)
    def dist(x, w):
        y = lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        y = y.astype(jnp.bfloat16).astype(jnp.float32) if bug("round") else y  # BUG[round] precision: partial sums rounded to bf16
        return lax.psum(y, "tp")
    return Prog(dict(tp=n), (In((6, 8 * n), P(None, "tp"), "bf16"), In((8 * n, 5), P("tp"), "bf16")), base, dist, P())


@pair("elementwise", "data", dict(n=4), dict(n=3))
def table_slice(v, bug):
    """A closed-over numpy table, each rank taking its own rows."""
    n = v.n
    tab = np.random.default_rng(3).standard_normal((2 * n, 5)).astype(np.float32)
    def base(x):
        return x * tab + jnp.log1p(jnp.exp(-jnp.abs(x)))
    def dist(x):
        i = lax.axis_index("d")
        i = n - 1 - i if bug("reverse") else i  # BUG[reverse] wrong-index: rows of the mirrored rank
        t = lax.dynamic_slice_in_dim(jnp.asarray(tab), i * 2, 2, 0)
        return x * t + jax.nn.softplus(-jnp.abs(x))
    return Prog(dict(d=n), (In((2 * n, 5), P("d")),), base, dist, P("d"))


@pair("elementwise", "2d", dict(m=dict(x=2, y=4)), dict(m=dict(x=4, y=2)))
def fourier_features(v, bug):
    """Positions and frequencies from iota and the two axis indices."""
    X, Y = v.m["x"], v.m["y"]
    def base(a):
        p = jnp.arange(a.shape[0], dtype=jnp.float32)[:, None]
        f = 1.0 / (100.0 ** (jnp.arange(a.shape[1], dtype=jnp.float32) / a.shape[1]))
        return a + jnp.sin(p * f)
    def dist(a):
        r, c = a.shape
        ix = lax.axis_index("y") if bug("axis") else lax.axis_index("x")  # BUG[axis] wrong-index: row offset from the other axis
        p = (ix * r + jnp.arange(r)).astype(jnp.float32)
        j = (lax.axis_index("y") * c + lax.iota(jnp.int32, c)).astype(jnp.float32)
        width = c if bug("width") else c * Y  # BUG[width] wrong-scale: local width in the frequency
        f = 100.0 ** (-(j / width))
        return a + jnp.sin(p[:, None] * f[None])
    return Prog(v.m, (In((8, 8), P("x", "y")),), base, dist, P("x", "y"))


@pair("conv", "sequence", dict(n=4, d=False), dict(n=2, d=True))
def causal_conv1d(v, bug):
    """Causal depthwise convolution over a sharded sequence, halo by ppermute."""
    n, K = v.n, 3
    def base(x, w):
        xp = jnp.pad(x, ((0, 0), (K - 1, 0), (0, 0)))
        return sum(xp[:, k:k + x.shape[1]] * w[k] for k in range(K))
    def dist(x, w):
        tail = x[:, -(K - 1):]
        hops = [(i, i + 1) for i in range(n - 1)] if not bug("dir") else [(i + 1, i) for i in range(n - 1)]
        halo = lax.ppermute(tail, "sp", hops)  # BUG[dir] wrong-permute: halo from the next shard
        if bug("wrap"):
            halo = lax.ppermute(tail, "sp", [(i, (i + 1) % n) for i in range(n)])  # BUG[wrap] wrong-permute: halo wraps round to the first shard
        xp = lax.concatenate([halo, x], 1)
        if v.d:
            out = jnp.zeros_like(x)
            for k in range(K):
                out = out + lax.dynamic_slice_in_dim(xp, k, x.shape[1], 1) * w[k][None, None]
            return out
        return sum(xp[:, k:k + x.shape[1]] * w[k] for k in range(K))
    return Prog(dict(sp=n), (In((2, 4 * n, 3), P(None, "sp")), In((K, 3))), base, dist, P(None, "sp"))


@pair("conv", "tensor", dict(n=2), dict(n=4))
def conv2d_channels(v, bug):
    """Two convolutions, output channels then input channels sharded."""
    n = v.n
    cv = functools.partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    def base(x, a, b):
        return cv(jax.nn.relu(cv(x, a)), b)
    def dist(x, a, b):
        h = cv(x, a)
        if bug("relu_after"):
            return jax.nn.relu(lax.psum(cv(h, b), "c"))  # BUG[relu_after] wrong-order: activation after the second convolution
        y = cv(jnp.maximum(h, 0), b)
        return lax.psum(y, "c")
    return Prog(dict(c=n), (In((2, 4, 4, 3)), In((3, 3, 3, 2 * n), P(None, None, None, "c")), In((3, 3, 2 * n, 3), P(None, None, "c"))), base, dist, P())


@pair("elementwise", "partial-manual", dict())
def partial_manual_mlp(v, bug):
    """Only the tensor axis is manual; the batch axis is left to the compiler."""
    def base(x, a, b):
        return jnp.tanh(x @ a) @ b
    def dist(mesh):
        def body(x, a, b):
            y = jnp.tanh(x @ a) @ b
            return lax.psum(y * 0.5, "tp") if bug("half") else lax.psum(y, "tp")  # BUG[half] wrong-scale: partial sums halved
        return jax.shard_map(body, mesh=mesh, in_specs=(P(), P(None, "tp"), P("tp")), out_specs=P(), axis_names={"tp"}, check_vma=False)
    return Prog(dict(dp=2, tp=4), (In((4, 6), P("dp")), In((6, 8), P(None, "tp")), In((8, 6), P("tp"))), base, dist, P(), whole=True)


@pair("linear", "tensor", dict())
def two_maps(v, bug):
    """Two shard_maps with different placements in one program."""
    def base(x, a, b):
        h = jax.nn.relu(x @ a)
        return (h @ b).sum(axis=-1)
    def dist(mesh):
        f = jax.shard_map(lambda x, a: jnp.maximum(x @ a, 0.0), mesh=mesh, in_specs=(P(), P(None, "tp")), out_specs=P(None, "tp"), check_vma=False)
        def g2(h, b):
            y = jnp.sum(h @ b, -1)
            return y if bug("no_psum") else lax.psum(y, "tp")  # BUG[no_psum] missing-collective: second map does not reduce
        g = jax.shard_map(g2, mesh=mesh, in_specs=(P(None, "tp"), P("tp")), out_specs=P(), check_vma=False)
        return lambda x, a, b: g(f(x, a), b)
    return Prog(dict(tp=4), (In((4, 6)), In((6, 8), P(None, "tp")), In((8, 6), P("tp"))), base, dist, P(), whole=True)


@pair("mlp", "tensor+data", dict(o="scan"), dict(o="unroll"))
def residual_stack(v, bug):
    """A stack of residual layers from a pytree of stacked weights, three mesh axes."""
    L = 3
    def layer(x, p, red):
        h = jax.nn.gelu(jnp.einsum("bsd,df->bsf", x, p["up"]))
        return x + red(jnp.einsum("bsf,fd->bsd", h, p["down"]))
    def base(x, ps):
        for i in range(L):
            x = layer(x, jax.tree.map(lambda w: w[i], ps), lambda y: y)
        return x
    def dist(x, ps):
        if v.o == "scan":
            def step(c, p):
                h = jax.nn.gelu(c @ p["up"])
                y = lax.psum(h @ p["down"], ("tp", "ep"))
                return (y if bug("no_res") else c + y), None  # BUG[no_res] stale-residual: residual connection dropped
            return lax.scan(step, x, ps)[0]
        for i in range(L):
            ax = "tp" if bug("one_axis") and i == 1 else ("tp", "ep")  # BUG[one_axis] wrong-axis: layer 1 reduced over one of two axes
            x = layer(x, {k: w[i] for k, w in ps.items()}, lambda y: lax.psum(y, ax))  # NEAR[one_axis]
        return x
    return Prog(dict(dp=2, tp=2, ep=2), (In((2, 3, 8), P("dp")), {"up": In((L, 8, 16), P(None, None, ("tp", "ep")), scale=.3), "down": In((L, 16, 8), P(None, ("tp", "ep")), scale=.3)}), base, dist, P("dp"))


@pair("recurrent", "tensor", dict(n=2), dict(n=4))
def gru_units(v, bug):
    """Gated recurrence with the units sharded; state gathered each step."""
    n, H = v.n, 4 * v.n
    def base(xs, w, u):
        def step(h, x):
            z = jax.nn.sigmoid(x @ w[0] + h @ u[0])
            c = jnp.tanh(x @ w[1] + h @ u[1])
            h = (1 - z) * h + z * c
            return h, h
        return lax.scan(step, jnp.zeros((xs.shape[1], H)), xs)[1]
    def dist(xs, w, u):
        def step(h, x):
            full = lax.all_gather(h, "tp", axis=1, tiled=True)
            z = jax.nn.sigmoid(x @ w[0] + full @ u[0])
            c = jnp.tanh(x @ w[1] + full @ u[1])
            h = z * h + (1 - z) * c if bug("gate") else (1 - z) * h + z * c  # BUG[gate] wrong-operator: gate applied the other way
            return h, h
        h0 = jnp.zeros((xs.shape[1], H // n))
        return lax.scan(step, h0, xs)[1]
    return Prog(dict(tp=n), (In((3, 2, 5)), In((2, 5, H), P(None, None, "tp")), In((2, H, H), P(None, None, "tp"))), base, dist, P(None, None, "tp"))

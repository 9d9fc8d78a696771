"""Training steps: data parallel, sharded optimiser states, tensor parallel gradients."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


def _loss(p, x, y):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    return jnp.mean((h @ p["w2"] - y) ** 2)


def _mlp(D=6, F=8, s1=P(), s2=P(), sb=P()):
    return {"w1": In((D, F), s1, scale=.5), "b1": In((F,), sb, scale=.5), "w2": In((F, D), s2, scale=.5)}


def _specs(t):
    return jax.tree.map(lambda i: i.spec, t, is_leaf=lambda x: isinstance(x, In))


@pair("train", "data", dict(n=4, opt="sgd"), dict(n=2, opt="momentum"), dict(n=3, opt="nesterov"), dict(n=4, opt="lion"))
def dp_step(v, bug):
    """A data-parallel step with one of four optimisers."""
    n, lr = v.n, 0.1
    def upd(p, m, g):
        if v.opt == "sgd":
            return p - lr * g, m
        if v.opt == "momentum":
            m = 0.9 * m + g
            return p - lr * m, m
        if v.opt == "nesterov":
            m = 0.9 * m + g
            return p - lr * (g + 0.9 * m), m
        return p - lr * (jnp.sign(0.9 * m + 0.1 * g) + 0.01 * p), 0.99 * m + 0.01 * g
    def both(p, m, g):
        t = jax.tree.map(upd, p, m, g)
        tr = lambda i: jax.tree.map(lambda q: q[i], t, is_leaf=lambda q: isinstance(q, tuple))
        return tr(0), tr(1)
    def base(p, m, x, y):
        l, g = jax.value_and_grad(_loss)(p, x, y)
        return (l,) + both(p, m, g)
    def dist(p, m, x, y):
        l, g = jax.value_and_grad(_loss)(p, x, y)
        red = lambda t: lax.psum(t, "dp") if bug("sum") else lax.pmean(t, "dp")  # BUG[sum] wrong-scale: gradients summed, not averaged
        g = g if bug("no_reduce") else jax.tree.map(red, g)  # BUG[no_reduce] missing-collective: gradients not reduced
        if bug("one_leaf"):
            g["b1"] = jax.grad(_loss)(p, x, y)["b1"]  # BUG[one_leaf] missing-collective: bias gradient not reduced
        l = l if bug("loss") else lax.psum(l, "dp") / n  # BUG[loss] missing-collective: local loss returned
        return (l,) + both(p, m, g)  # NEAR[no_reduce,loss]
    return Prog(dict(dp=n), (_mlp(), _mlp(), In((4 * n, 6), P("dp")), In((4 * n, 6), P("dp"))), base, dist, (P(), P(), P()))


@pair("train", "data", dict(n=4, clip=False), dict(n=2, clip=True, bugs=("clip_first", "step")))
def dp_adam(v, bug):
    """AdamW with a step count, optionally clipped by the global norm."""
    n, lr, b1, b2 = v.n, 1e-2, 0.9, 0.99
    def adam(p, m, s, g, t, wd=0.1):
        m = jax.tree.map(lambda a, b: b1 * a + (1 - b1) * b, m, g)
        s = jax.tree.map(lambda a, b: b2 * a + (1 - b2) * b * b, s, g)
        c1, c2 = 1 - b1 ** t, 1 - b2 ** t
        p = jax.tree.map(lambda q, a, b: q - lr * ((a / c1) / (jnp.sqrt(b / c2) + 1e-8) + wd * q), p, m, s)
        return p, m, s
    def clip(g):
        nrm = jnp.sqrt(sum(jnp.sum(q * q) for q in jax.tree.leaves(g)))
        k = jnp.minimum(1.0, 0.05 / (nrm + 1e-6))
        return jax.tree.map(lambda q: q * k, g)
    def base(p, m, s, t, x, y):
        g = jax.grad(_loss)(p, x, y)
        return adam(p, m, s, clip(g) if v.clip else g, t + 1.0)
    def dist(p, m, s, t, x, y):
        g = jax.grad(_loss)(p, x, y)
        if v.clip and bug("clip_first"):
            g = clip(g)  # BUG[clip_first] wrong-order: clipped before the average
        g = jax.tree.map(lambda q: lax.psum(q, "dp") / n, g)
        if v.clip and not bug("clip_first"):
            g = clip(g)
        t2 = t if bug("step") else t + 1.0  # BUG[step] wrong-index: step count not advanced
        return adam(p, m, s, g, t2, 0.01 if bug("decay") else 0.1)  # BUG[decay] wrong-constant: another weight decay
    s = jax.tree.map(lambda i: In(i.shape, positive=True, scale=.1, offset=.1), _mlp(), is_leaf=lambda x: isinstance(x, In))
    return Prog(dict(dp=n), (_mlp(), _mlp(), s, In((), offset=3.0, positive=True), In((4 * n, 6), P("dp")), In((4 * n, 6), P("dp"))), base, dist, P())


@pair("train", "data", dict(n=2, A=2, how="scan"), dict(n=4, A=3, how="loop", bugs=("last",)))
def dp_accumulate(v, bug):
    """Gradients accumulated over microbatches, then averaged over ranks."""
    n, A = v.n, v.A
    def base(p, x, y):
        g = jax.grad(_loss)(p, x, y)
        return jax.tree.map(lambda q, d: q - 0.1 * d, p, g)
    def dist(p, x, y):
        xm, ym = x.reshape(A, -1, 6), y.reshape(A, -1, 6)
        z = jax.tree.map(jnp.zeros_like, p)
        add = lambda a, b: jax.tree.map(jnp.add, a, b)
        if v.how == "scan":
            g = lax.scan(lambda c, t: (add(c, jax.grad(_loss)(p, *t)), None), z, (xm, ym))[0]
        else:
            g = z
            for k in range(A - 1 if bug("last") else A):  # BUG[last] loop-bound: last microbatch left out
                g = add(g, jax.grad(_loss)(p, xm[k], ym[k]))  # NEAR[last]
        k = 1 if bug("no_div") else A  # BUG[no_div] wrong-scale: not divided by the number of microbatches
        g = jax.tree.map(lambda d: lax.pmean(d / k, "dp"), g)  # NEAR[no_div]
        return jax.tree.map(lambda q, d: q - 0.1 * d, p, g)
    return Prog(dict(dp=n), (_mlp(), In((2 * n * A, 6), P("dp")), In((2 * n * A, 6), P("dp"))), base, dist, P())


@pair("train", "data", dict(n=2), dict(n=4))
def dp_masked(v, bug):
    """Loss averaged over valid tokens of all ranks."""
    n = v.n
    def tot(w, x, y, m):
        return jnp.sum(m * jnp.sum((jnp.tanh(x @ w) - y) ** 2, -1))
    def base(w, x, y, m):
        l, g = jax.value_and_grad(lambda w: tot(w, x, y, m) / m.sum())(w)
        return l, w - 0.1 * g
    def dist(w, x, y, m):
        l, g = jax.value_and_grad(tot)(w, x, y, m)
        c = lax.psum(m.sum(), "dp")
        if bug("local_count"):
            return lax.pmean(l / m.sum(), "dp"), w - 0.1 * lax.pmean(g / m.sum(), "dp")  # BUG[local_count] wrong-scale: divided by the rank's own count
        g = lax.psum(g, "dp") / c
        return lax.psum(l, "dp") / c, w + 0.1 * g if bug("ascent") else w - 0.1 * g  # BUG[ascent] wrong-sign: step up the gradient
    return Prog(dict(dp=n), (In((6, 4), scale=.5), In((4 * n, 6), P("dp")), In((4 * n, 4), P("dp")), In((4 * n,), P("dp"), positive=True)), base, dist, P())


@pair("train", "data", dict(n=4), dict(n=2))
def grad_outside(v, bug):
    """jax.grad around a shard_map that returns the mean loss."""
    def base(p, x, y):
        return jax.value_and_grad(_loss)(p, x, y)
    def dist(mesh):
        def local(p, x, y):
            l = _loss(p, x, y)
            return lax.psum(l, "dp") if bug("sum") else lax.pmean(l, "dp")  # BUG[sum] wrong-scale: losses summed over ranks
        f = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("dp"), P("dp")), out_specs=P())
        return lambda p, x, y: jax.value_and_grad(f)(p, x, y)
    return Prog(dict(dp=v.n), (_mlp(), In((4 * v.n, 6), P("dp")), In((4 * v.n, 6), P("dp"))), base, dist, (P(), P()), whole=True)


@functools.partial(jax.custom_vjp)
def _copy_in(x):
    return x


_copy_in.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(g, "tp"),))


@functools.partial(jax.custom_vjp)
def _copy_in_bad(x):
    return x


_copy_in_bad.defvjp(lambda x: (x, None), lambda _, g: (g,))


@jax.custom_vjp
def _reduce_out(x):
    return lax.psum(x, "tp")


_reduce_out.defvjp(lambda x: (lax.psum(x, "tp"), None), lambda _, g: (g,))


@jax.custom_vjp
def _reduce_out_twice(x):
    return lax.psum(x, "tp")


_reduce_out_twice.defvjp(lambda x: (lax.psum(x, "tp"), None), lambda _, g: (lax.psum(g, "tp"),))


@pair("train", "tensor", dict(m=dict(tp=4), remat=False), dict(m=dict(tp=2), remat=True), dict(m=dict(dp=2, tp=2), remat=False), dict(m=dict(tp=2, dp=3), remat=True))
def tp_grads(v, bug):
    """Gradients of a tensor-parallel perceptron with conjugate operators."""
    dp = "dp" in v.m
    bt = "dp" if dp else None
    def base(p, x, y):
        def loss(p, x):
            h = x + jax.nn.gelu(x @ p["w1"]) @ p["w2"]
            h = h + jax.nn.gelu(h @ p["w3"]) @ p["w4"]
            return jnp.mean(jnp.square(h - y))
        l, (gp, gx) = jax.value_and_grad(loss, argnums=(0, 1))(p, x)
        return l, gp, gx
    def dist(p, x, y):
        f = _copy_in_bad if bug("f") else _copy_in  # BUG[f] missing-collective: input gradient not reduced
        r = _reduce_out_twice if bug("g") else _reduce_out  # BUG[g] extra-collective: output gradient reduced
        def mlp(z, a, b):
            return r(jax.nn.gelu(f(z) @ a) @ b)  # NEAR[f,g]
        if v.remat:
            mlp = jax.checkpoint(mlp)
        def loss(p, x):
            h = x + mlp(x, p["w1"], p["w2"])
            h = h + mlp(h, p["w3"], p["w4"])
            return jnp.mean((h - y) ** 2)
        l, (gp, gx) = jax.value_and_grad(loss, argnums=(0, 1))(p, x)
        if dp:
            l = lax.pmean(l, "dp")
            gp = gp if bug("dp_grad") else jax.tree.map(lambda q: lax.pmean(q, "dp"), gp)  # BUG[dp_grad] missing-collective: gradients not averaged over the batch axis
            gx = gx / v.m["dp"]
        return l, gp, gx
    c, rw = P(None, "tp"), P("tp")
    p = {"w1": In((6, 8), c, scale=.5), "w2": In((8, 6), rw, scale=.5), "w3": In((6, 8), c, scale=.5), "w4": In((8, 6), rw, scale=.5)}
    B = 12
    return Prog(v.m, (p, In((B, 6), P(bt)), In((B, 6), P(bt))), base, dist, (P(), _specs(p), P(bt)))


@pair("train", "fsdp", dict(n=4, how="auto"), dict(n=2, how="manual"), dict(n=2, how="remat"))
def fsdp_step(v, bug):
    """Weights sharded over the data axis: gathered to compute, gradients scattered."""
    n = v.n
    def loss(ws, x, y):
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.mean((x - y) ** 2)
    def base(ws, x, y):
        l, g = jax.value_and_grad(loss)(ws, x, y)
        return l, [w - 0.1 * q for w, q in zip(ws, g)]
    def dist(ws, x, y):
        full = lambda w: lax.all_gather(w, "fsdp", axis=0, tiled=True)
        if v.how == "manual":
            fw = [full(w) for w in ws]
            l, g = jax.value_and_grad(loss)(fw, x, y)
            g = [lax.psum_scatter(q, "fsdp", scatter_dimension=0, tiled=True) for q in g]
        else:
            def lf(ws, x, y):
                for w in ws:
                    op = lambda x, w: jnp.tanh(x @ full(w))
                    x = (jax.checkpoint(op) if v.how == "remat" else op)(x, w)
                return jnp.mean((x - y) ** 2)
            l, g = jax.value_and_grad(lf)(ws, x, y)
        k = 1 if bug("sum") else n  # BUG[sum] wrong-scale: gradients summed over ranks
        g = [q / k for q in g]  # NEAR[sum]
        if bug("last"):
            g[-1] = jnp.zeros_like(g[-1])  # BUG[last] stale-value: last layer never updated
        return lax.pmean(l, "fsdp"), [w - 0.1 * q for w, q in zip(ws, g)]
    W = lambda: In((8, 8), P("fsdp"), scale=.5)
    return Prog(dict(fsdp=n), ([W(), W(), W()], In((4 * n, 8), P("fsdp")), In((4 * n, 8), P("fsdp"))), base, dist, (P(), P("fsdp")))


@pair("train", "zero1", dict(n=4), dict(n=2))
def zero_flat(v, bug):
    """Optimiser state sharded over a flattened parameter vector."""
    n, D = v.n, 8
    def loss(w, x, y):
        return jnp.mean((jnp.sin(x @ w) - y) ** 2)
    def base(w, m, x, y):
        g = jax.grad(loss)(w, x, y)
        m = 0.9 * m + g.reshape(-1)
        return w - 0.1 * m.reshape(D, D), m
    def dist(w, m, x, y):
        g = jax.grad(loss)(w, x, y).reshape(-1)
        gs = lax.psum_scatter(g, "dp", tiled=True) / n
        m = 0.9 * m + gs
        k = D * D // n
        i = lax.axis_index("dp")
        ws = lax.dynamic_slice(w.reshape(-1), ((n - 1 - i if bug("slice") else i) * k,), (k,))  # BUG[slice] wrong-slice: parameters of the mirrored rank
        ws = ws - 0.1 * (gs if bug("no_momentum") else m)  # BUG[no_momentum] wrong-operand: gradient used in place of momentum
        return lax.all_gather(ws, "dp", tiled=True).reshape(D, D), m
    return Prog(dict(dp=n), (In((D, D), scale=.5), In((D * D,), P("dp")), In((4 * n, D), P("dp")), In((4 * n, D), P("dp"))), base, dist, (P(), P("dp")))


@pair("train", "tensor", dict(n=2), dict(n=4))
def attn_vjp(v, bug):
    """Pullback of an attention layer with heads sharded."""
    n, H, hd, D, S = v.n, 4, 4, 6, 4
    def attn(x, q, k, w, o, h, f, r):
        z = f(x)
        a, b, c = ((z @ t).reshape(S, h, hd) for t in (q, k, w))
        s = jnp.einsum("qhd,khd->hqk", a, b) * 0.5
        p = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((S, S), bool)), s, -1e9), -1)
        return x + r(jnp.einsum("hqk,khd->qhd", p, c).reshape(S, -1) @ o)
    def base(x, q, k, w, o, ct):
        y, pull = jax.vjp(lambda *a: attn(*a, H, lambda t: t, lambda t: t), x, q, k, w, o)
        return (y,) + pull(ct)
    def dist(x, q, k, w, o, ct):
        f = _copy_in_bad if bug("f") else _copy_in  # BUG[f] missing-collective: input gradient not reduced
        y, pull = jax.vjp(lambda *a: attn(*a, H // n, f, _reduce_out), x, q, k, w, o)  # NEAR[f]
        ct = ct / n if bug("scaled") else ct  # BUG[scaled] wrong-scale: cotangent divided by the number of ranks
        return (y,) + pull(ct)
    c = P(None, "tp")
    w = lambda: In((D, H * hd), c)
    return Prog(dict(tp=n), (In((S, D)), w(), w(), w(), In((H * hd, D), P("tp")), In((S, D))), base, dist, (P(), P(), c, c, c, P("tp")))


@pair("train", "data", dict(n=2, vma=True), dict(n=4, vma=True))
def vma_grads(v, bug):
    """Gradient inside a checked shard_map: reductions come from the transpose."""
    def base(w, x, y):
        l, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return l, g
    def dist(w, x, y):
        def f(w):
            l = jnp.mean(jnp.square(jnp.dot(x, w) - y))
            return lax.pmean(l, "dp")
        l, g = jax.value_and_grad(f)(w)
        return l, g / v.n if bug("again") else g  # BUG[again] wrong-scale: averaged twice
    return Prog(dict(dp=v.n), (In((6, 3)), In((4 * v.n, 6), P("dp")), In((4 * v.n, 3), P("dp"))), base, dist, (P(), P()), vma=True)

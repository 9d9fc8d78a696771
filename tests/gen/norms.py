"""Normalisations and softmax over sharded dimensions."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


@pair("norm", "tensor", dict(n=4, two=True, bugs=("local_mean", "local_count", "eps")), dict(n=3, two=False), dict(n=2, two=True))
def layernorm_sharded(v, bug):
    """Layer norm, hidden dimension sharded, one or two passes over the data."""
    n, D, eps = v.n, 4 * v.n, 1e-5
    def base(x, g, b):
        mu = x.mean(-1, keepdims=True)
        var = jnp.var(x, axis=-1, keepdims=True)
        return (x - mu) * lax.rsqrt(var + eps) * g + b
    def dist(x, g, b):
        s = jnp.sum(x, -1, keepdims=True)
        mu = s / x.shape[-1] if bug("local_mean") else lax.psum(s, "tp") / D  # BUG[local_mean] local-statistics: mean over the local shard
        if v.two:
            q = lax.psum(jnp.sum((x - mu) ** 2, -1, keepdims=True), "tp")
            var = q / x.shape[-1] if bug("local_count") else q / D  # BUG[local_count] wrong-scale: variance divided by the local width
        else:
            var = lax.pmean(jnp.mean(x * x, -1, keepdims=True), "tp") - mu * mu
        y = (x - mu) / jnp.sqrt(var + eps)
        y = (x - mu) / (jnp.sqrt(var) + 0.05) if bug("eps") else y  # BUG[eps] wrong-constant: epsilon outside the root
        return y * g + b
    return Prog(dict(tp=n), (In((3, 5, D), P(None, None, "tp"), offset=1.0), In((D,), P("tp")), In((D,), P("tp"))), base, dist, P(None, None, "tp"))


@pair("norm", "tensor+sequence", dict(m=dict(sp=2, tp=4)), dict(m=dict(tp=2, sp=4)))
def rmsnorm_2d(v, bug):
    """RMS norm with sequence and hidden both sharded, in bf16 with f32 statistics."""
    D = 16
    def base(x, g):
        xf = x.astype(jnp.float32)
        r = lax.rsqrt(jnp.mean(jnp.square(xf), -1, keepdims=True) + 1e-6)
        return (xf * r).astype(x.dtype) * g
    def dist(x, g):
        xf = x.astype(jnp.float32)
        ms = lax.pmean(jnp.mean(xf * xf, -1), "sp" if bug("axis") else "tp")  # BUG[axis] wrong-axis: statistics averaged along the sequence axis
        r = lax.rsqrt(ms + 1e-6)[..., None]
        y = lax.convert_element_type(xf * r, x.dtype)
        return y * (1 + g) if bug("one_plus") else y * g  # BUG[one_plus] wrong-operator: gain applied as one plus weight
    return Prog(v.m, (In((2, 8, D), P(None, "sp", "tp"), "bf16"), In((D,), P("tp"), "bf16")), base, dist, P(None, "sp", "tp"), tol=2e-2)


@pair("norm", "data", dict(n=4), dict(n=2))
def batchnorm_sync(v, bug):
    """Batch norm with statistics over the data axis, running averages returned."""
    n = v.n
    def base(x, g, b, rm, rv):
        m, s = x.mean(0), x.var(0)
        y = (x - m) / jnp.sqrt(s + 1e-5) * g + b
        return y, 0.9 * rm + 0.1 * m, 0.9 * rv + 0.1 * s
    def dist(x, g, b, rm, rv):
        m = lax.pmean(jnp.mean(x, 0), "dp")
        if bug("local_var"):
            s = jnp.var(x, axis=0)  # BUG[local_var] local-statistics: variance of the local batch
        else:
            s = lax.pmean(jnp.mean(jnp.square(x - m), axis=0), "dp")
        y = (x - m) / jnp.sqrt(s + 1e-5) * g + b
        m2 = jnp.mean(x, 0) if bug("run_local") else m  # BUG[run_local] local-statistics: running mean updated from the local batch
        return y, 0.9 * rm + 0.1 * m2, rv * 0.9 + s * 0.1
    return Prog(dict(dp=n), (In((4 * n, 6), P("dp")), In((6,)), In((6,)), In((6,)), In((6,), positive=True)), base, dist, (P("dp"), P(), P()))


@pair("norm", "tensor", dict(n=4, G=8, bugs=("x",)), dict(n=2, G=4, bugs=("groups",)), dict(n=4, G=2, bugs=("members",)), dict(n=8, G=4))
def groupnorm(v, bug):
    """Group norm, channels sharded: groups inside a shard, or spread over several."""
    n, G, C = v.n, v.G, 16
    def base(x, w):
        y = x.reshape(x.shape[0], x.shape[1], G, C // G)
        mu = y.mean((1, 3), keepdims=True)
        var = ((y - mu) ** 2).mean((1, 3), keepdims=True)
        return ((y - mu) / jnp.sqrt(var + 1e-5)).reshape(x.shape) * w
    def dist(x, w):
        B, S, c = x.shape
        if G >= n:
            g = G if bug("groups") and c % G == 0 else G // n  # BUG[groups] wrong-constant: number of groups of the whole on each shard
            y = x.reshape(B, S, g, c // g)  # NEAR[groups]
            mu = jnp.mean(y, axis=(1, 3), keepdims=True)
            var = jnp.mean(lax.square(y - mu), axis=(1, 3), keepdims=True)
            return ((y - mu) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * w
        k = n // G
        grp = [[i * k + j for j in range(k)] for i in range(G)] if not bug("members") else [[j * G + i for j in range(k)] for i in range(G)]
        mean = lambda a: lax.psum(jnp.sum(a, axis=(1, 2), keepdims=True), "tp", axis_index_groups=grp) / (S * c * k)  # BUG[members] wrong-group: statistics over ranks of different groups
        mu = mean(x)
        var = mean((x - mu) ** 2)
        return (x - mu) / jnp.sqrt(var + 1e-5) * w
    return Prog(dict(tp=n), (In((2, 3, C), P(None, None, "tp")), In((C,), P("tp"))), base, dist, P(None, None, "tp"))


@pair("softmax", "tensor", dict(n=4), dict(n=2), dict(n=3))
def softmax_columns(v, bug):
    """Softmax and log-softmax over a sharded dimension."""
    n = v.n
    def base(x, t):
        z = x / t
        return jax.nn.softmax(z, axis=-1), jax.nn.log_softmax(z, axis=-1), jax.nn.logsumexp(z, axis=-1)
    def dist(x, t):
        z = x * t if bug("temp") else x / t  # BUG[temp] wrong-operator: multiplied by the temperature
        m = lax.pmax(lax.stop_gradient(jnp.max(z, -1, keepdims=True)), "tp")
        if bug("local_max"):
            m = jnp.max(z, -1, keepdims=True)  # BUG[local_max] local-statistics: maximum of the shard only
        e = jnp.exp(z - m)
        d = lax.psum(jnp.sum(e, -1, keepdims=True), "tp")
        lp = z - m - jnp.log(d)
        lse = jnp.log(d) if bug("lse") else m + jnp.log(d)  # BUG[lse] wrong-value: maximum not added back
        return e / d, lp, lse[..., 0]
    return Prog(dict(tp=n), (In((3, 2, 4 * n), P(None, None, "tp"), scale=3.0), In((), offset=2.0, scale=.1)), base, dist, (P(None, None, "tp"), P(None, None, "tp"), P()))


@pair("norm", "tensor", dict(n=4), dict(n=2))
def l2norm_and_cosine(v, bug):
    """L2 normalisation and cosine similarities of sharded vectors."""
    n = v.n
    def base(a, b):
        na = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        nb = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        return na @ nb.T, na
    def dist(a, b):
        sq = lambda x: jnp.sum(x * x, -1, keepdims=True)
        ra = jnp.sqrt(lax.psum(sq(a), "tp"))
        rb = lax.psum(jnp.sqrt(sq(b)), "tp") if bug("sqrt_first") else jnp.sqrt(lax.psum(sq(b), "tp"))  # BUG[sqrt_first] wrong-order: root before the sum over shards
        na, nb = a / ra, b / rb
        s = lax.psum(jnp.einsum("id,jd->ij", na, nb), "tp")
        return s.T if bug("transposed") else s, na  # BUG[transposed] wrong-layout: similarity matrix transposed
    return Prog(dict(tp=n), (In((4, 4 * n), P(None, "tp")), In((4, 4 * n), P(None, "tp"))), base, dist, (P(), P(None, "tp")))


@pair("reduction", "data", dict(m=dict(a=2, b=4)), dict(m=dict(a=3, b=2)))
def moments_and_extrema(v, bug):
    """Global mean, variance, minimum, maximum, norm and count of a sharded array."""
    def base(x):
        return {"mean": x.mean(), "var": x.var(), "max": x.max(), "min": x.min(), "l1": jnp.abs(x).sum(), "pos": (x > 0).sum()}
    def dist(x):
        ax = ("a", "b")
        N = x.size * lax.axis_size("a") * lax.axis_size("b")
        m = lax.psum(x.sum(), ax) / N
        q = lax.psum((x * x).sum(), ax) / N
        hi = lax.pmax(x.max(), "a" if bug("axis") else ax)  # BUG[axis] wrong-axis: maximum over one of two axes
        lo = lax.pmax(x.min(), ax) if bug("op") else -lax.pmax(-x.min(), ax)  # BUG[op] wrong-operator: maximum of minima
        return {"mean": m, "var": q - m * m, "max": hi, "min": lo, "l1": lax.psum(jnp.sum(lax.abs(x)), ax), "pos": lax.psum(jnp.sum(x > 0), ax)}
    return Prog(v.m, (In((6, 8), P("a", "b")),), base, dist, P())

"""Vocabulary sharding: embeddings, logits, cross entropy, sampling."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


@pair("embedding", "vocab", dict(n=4, st="where", bugs=("bound", "no_mask")), dict(n=2, st="onehot", bugs=("no_shift",)), dict(n=3, st="clip"), dict(n=4, st="vmap"))
def embed_rows(v, bug):
    """Token embedding, rows of the table sharded."""
    n, V, D = v.n, 4 * v.n, 6
    def base(ids, tab):
        return tab[ids] if v.st == "vmap" else jnp.take(tab, ids, axis=0)
    def dist(ids, tab):
        k = tab.shape[0]
        lo = lax.axis_index("tp") * k
        loc = ids - lo
        ok = (loc >= 0) & ((loc <= k) if bug("bound") else (loc < k))  # BUG[bound] wrong-mask: one row too many accepted
        if v.st == "onehot":
            e = jax.nn.one_hot(ids if bug("no_shift") else loc, k) @ tab  # BUG[no_shift] wrong-index: global ids against the local rows
        elif v.st == "clip":
            e = jnp.take(tab, jnp.clip(loc, 0, k - 1), axis=0) * ok[..., None]
        elif v.st == "vmap":
            row = lambda i: jnp.where((i >= 0) & (i < k), lax.dynamic_index_in_dim(tab, jnp.clip(i, 0, k - 1), 0, False), 0.0)
            e = jax.vmap(jax.vmap(row))(loc)
        else:
            e = jnp.where(ok[..., None], tab[jnp.where(ok, loc, 0)], 0.0)
            e = tab[jnp.where(ok, loc, 0)] if bug("no_mask") else e  # BUG[no_mask] wrong-mask: foreign rows not zeroed
        return lax.psum(e, "tp")
    return Prog(dict(tp=n), (In((4, 8), P(), "i32", range=(0, V - 1)), In((V, D), P("tp"))), base, dist, P())


@pair("embedding", "vocab+sequence", dict(n=2), dict(n=4))
def embed_positions(v, bug):
    """Token and position embeddings, sequence sharded; columns of the token table gathered."""
    n, V, D, S = v.n, 10, 8, 8
    def base(ids, tab, pos):
        return tab[ids] * np.float32(np.sqrt(D)) + pos[None, :S]
    def dist(ids, tab, pos):
        c = ids.shape[1]
        t = lax.all_gather(tab, "sp", axis=1, tiled=True)
        i = lax.axis_index("sp")
        start = i if bug("stride") else i * c  # BUG[stride] wrong-index: rank used as position
        p = lax.dynamic_slice_in_dim(pos, start, c, 0)  # NEAR[stride]
        d = tab.shape[1] if bug("width") else D  # BUG[width] wrong-scale: local width under the root
        return jnp.take(t, ids, axis=0) * np.float32(d ** 0.5) + p  # NEAR[width]
    return Prog(dict(sp=n), (In((2, S), P(None, "sp"), "i32", range=(0, V - 1)), In((V, D), P(None, "sp")), In((12, D))), base, dist, P(None, "sp"))


@pair("loss", "vocab", dict(n=4, st="gather", z=0.0), dict(n=2, st="onehot", z=1e-2), dict(n=3, st="iota", z=0.0), dict(n=4, st="gather", z=0.1, bugs=("zl", "unmasked", "pmax")))
def cross_entropy(v, bug):
    """Cross entropy over sharded logits, with z-loss in some variants."""
    n, V, D, T = v.n, 4 * v.n, 6, 7
    def base(x, w, y):
        z = x @ w
        lse = jax.nn.logsumexp(z, axis=-1)
        nll = lse - jnp.take_along_axis(z, y[:, None], axis=-1)[:, 0]
        return jnp.mean(nll + v.z * lse ** 2)
    def dist(x, w, y):
        z = jnp.einsum("td,dv->tv", x, w)
        k = z.shape[-1]
        m = lax.pmax(z.max(-1), "tp")
        den = lax.psum(jnp.exp(z - m[:, None]).sum(-1), "tp")
        lse = jnp.log(den) + m
        lo = lax.axis_index("tp") * k
        if v.st == "gather":
            loc = y - lo
            ok = (loc >= 0) & (loc < k)
            t = jnp.take_along_axis(z, jnp.clip(loc, 0, k - 1)[:, None], -1)[:, 0]
            t = jnp.where(ok, t, 0.0) if not bug("unmasked") else t  # BUG[unmasked] wrong-mask: foreign targets not masked
        elif v.st == "onehot":
            t = (jax.nn.one_hot(y - lo, k) * z).sum(-1)
        else:
            t = jnp.sum(jnp.where((lax.iota(jnp.int32, k) + lo)[None] == y[:, None], z, 0.0), -1)
        t = lax.pmax(t, "tp") if bug("pmax") else lax.psum(t, "tp")  # BUG[pmax] wrong-collective: maximum in place of the sum
        nll = lse - t
        zl = (v.z * jnp.square(jnp.log(den))) if bug("zl") else v.z * lse * lse  # BUG[zl] wrong-value: z-loss without the maximum
        return (nll + zl).sum() / T
    return Prog(dict(tp=n), (In((T, D)), In((D, V), P(None, "tp")), In((T,), P(), "i32", range=(0, V - 1))), base, dist, P())


@pair("loss", "vocab+data", dict(m=dict(dp=2, tp=4)), dict(m=dict(tp=2, dp=3)))
def smoothed_masked_ce(v, bug):
    """Label smoothing and a token mask, batch and vocabulary sharded."""
    V, T, e = 8, 12, 0.1
    def base(z, y, w):
        lp = jax.nn.log_softmax(z, -1)
        q = jax.nn.one_hot(y, V) * (1 - e) + e / V
        return -(w * (q * lp).sum(-1)).sum() / w.sum()
    def dist(z, y, w):
        k = z.shape[-1]
        m = lax.pmax(jnp.max(z, -1, keepdims=True), "tp")
        lp = z - m - jnp.log(lax.psum(jnp.sum(jnp.exp(z - m), -1, keepdims=True), "tp"))
        u = e / k if bug("smooth") else e / V  # BUG[smooth] wrong-scale: smoothing spread over the local shard
        q = jax.nn.one_hot(y - lax.axis_index("tp") * k, k) * (1 - e) + u
        s = -jnp.sum(w * lax.psum(jnp.sum(q * lp, -1), "tp"))
        if bug("mean_of_means"):
            return lax.pmean(s / jnp.sum(w), "dp")  # BUG[mean_of_means] wrong-scale: mean of the shards' means
        return lax.psum(s, "dp") / lax.psum(jnp.sum(w), "dp")
    return Prog(v.m, (In((T, V), P("dp", "tp")), In((T,), P("dp"), "i32", range=(0, V - 1)), In((T,), P("dp"), positive=True, offset=.5)), base, dist, P())


@pair("logits", "vocab", dict(n=4, st=0), dict(n=2, st=1))
def tied_logits(v, bug):
    """Tied head: logits gathered along the vocabulary; greedy choice."""
    n, V, D, T = v.n, 4 * v.n, 6, 3
    def base(x, tab):
        z = x @ tab.T
        return z, jnp.max(z, axis=-1)
    def dist(x, tab):
        z = jnp.einsum("td,vd->tv", x, tab) if v.st else lax.dot_general(x, tab, (((1,), (1,)), ((), ())))
        g = lax.all_gather(z, "tp", axis=1, tiled=True)
        if bug("untiled"):
            g = lax.all_gather(z, "tp").reshape(T, V)  # BUG[untiled] wrong-layout: gathered shards flattened without moving the axis
        return g, jnp.max(z, -1) if bug("local") else lax.pmax(jnp.max(z, -1), "tp")  # BUG[local] missing-collective: maximum of the local shard
    return Prog(dict(tp=n), (In((T, D)), In((V, D), P("tp"))), base, dist, P())


@pair("logits", "vocab", dict(n=2), dict(n=4))
def greedy_token(v, bug):
    """Greedy token: local argmax and value gathered, then chosen."""
    n, V, T = v.n, 4 * v.n, 3
    def base(z):
        return jnp.argmax(z, axis=-1)
    def dist(z):
        k = z.shape[-1]
        i = lax.axis_index("tp")
        off = 0 if bug("offset") else i * k  # BUG[offset] wrong-index: local index without the shard's offset
        loc = jnp.argmax(z, -1) + off  # NEAR[offset]
        val = jnp.max(z, -1)
        vs, ls = lax.all_gather(val, "tp"), lax.all_gather(loc, "tp")
        return jnp.take_along_axis(ls, jnp.argmax(vs, 0)[None], 0)[0]
    return Prog(dict(tp=n), (In((T, V), P(None, "tp")),), base, dist, P())

"""Attention: head sharding, grouped heads, sequence sharding, caches."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


def _causal(s):
    return jnp.tril(jnp.ones((s, s), bool))


def _softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pair("attention", "tensor", dict(n=4, H=4, st="bhsd", bugs=("scale", "strict", "no_psum")), dict(n=2, H=6, st="bshd", bugs=("merge",)), dict(n=3, H=3, st="vmap"), dict(n=2, H=4, st="bh"))
def mha(v, bug):
    """Multi-head attention, heads sharded, spelt in four ways."""
    n, H, hd, D, S, B = v.n, v.H, 4, 12, 5, 2
    def base(x, q, k, v_, o):
        sp = lambda w: (x @ w).reshape(B, S, H, hd).transpose(0, 2, 1, 3)
        s = jnp.matmul(sp(q), sp(k).swapaxes(-1, -2)) / math.sqrt(hd)
        s = jnp.where(_causal(S), s, -1e9)
        y = jax.nn.softmax(s, -1) @ sp(v_)
        return y.transpose(0, 2, 1, 3).reshape(B, S, H * hd) @ o
    def dist(x, q, k, v_, o):
        h = H // n
        scale = 1.0 / np.sqrt(D) if bug("scale") else 1.0 / np.sqrt(hd)
        mask = jnp.tril(jnp.ones((S, S), bool), -1 if bug("strict") else 0)  # BUG[strict] wrong-mask: diagonal masked out
        if bug("strict"):
            mask = mask.at[0, 0].set(True)
        if v.st == "bhsd":
            qh, kh, vh = (jnp.einsum("bsd,dhe->bhse", x, w.reshape(D, h, hd)) for w in (q, k, v_))
            s = jnp.einsum("bhqe,bhke->bhqk", qh, kh) * np.float32(scale)  # BUG[scale] wrong-scale: scores scaled by the model width
            p = _softmax(jnp.where(mask[None, None], s, -1e9))
            y = jnp.einsum("bhqk,bhke->bqhe", p, vh).reshape(B, S, h * hd)
        elif v.st == "bshd":
            qh, kh, vh = ((x @ w).reshape(B, S, h, hd) for w in (q, k, v_))
            s = jnp.einsum("bqhe,bkhe->bhqk", qh * np.float32(scale), kh)
            p = jax.nn.softmax(jnp.where(mask, s, jnp.finfo(jnp.float32).min), axis=-1)
            eq = "bhqk,bkhe->bhqe" if bug("merge") else "bhqk,bkhe->bqhe"
            y = jnp.einsum(eq, p, vh).reshape(B, S, h * hd)  # BUG[merge] wrong-layout: heads merged without moving them last
        elif v.st == "vmap":
            def head(wq, wk, wv):
                def seq(z):
                    s = (z @ wq) @ (z @ wk).T * np.float32(scale)
                    return jax.nn.softmax(jnp.where(mask, s, -jnp.inf), -1) @ (z @ wv)
                return jax.vmap(seq)(x)
            ws = [w.reshape(D, h, hd).transpose(1, 0, 2) for w in (q, k, v_)]
            y = jax.vmap(head)(*ws)
            y = jnp.moveaxis(y, 0, 2).reshape(B, S, h * hd)
        else:
            qh, kh, vh = ((x @ w).reshape(B, S, h, hd).transpose(0, 2, 1, 3).reshape(B * h, S, hd) for w in (q, k, v_))
            s = lax.dot_general(qh, kh, (((2,), (2,)), ((0,), (0,)))) * np.float32(scale)
            p = jax.nn.softmax(s + jnp.where(mask, 0.0, -1e9), -1)
            y = lax.dot_general(p, vh, (((2,), (1,)), ((0,), (0,)))).reshape(B, h, S, hd)
            y = y.transpose(0, 2, 1, 3).reshape(B, S, -1)
        r = y @ o
        return r if bug("no_psum") else lax.psum(r, "tp")  # BUG[no_psum] missing-collective: output projection not reduced
    w = lambda: In((D, H * hd), P(None, "tp"))
    return Prog(dict(tp=n), (In((B, S, D)), w(), w(), w(), In((H * hd, D), P("tp"))), base, dist, P())


@pair("attention", "tensor", dict(n=2, H=8, K=4, how="group", bugs=("group_order",)), dict(n=2, H=8, K=4, how="repeat", bugs=("flip",)), dict(n=4, H=8, K=2, how="slice", bugs=("modulo",)), dict(n=4, H=4, K=1, how="mqa"), dict(n=4, H=8, K=2, how="take"))
def gqa(v, bug):
    """Grouped queries; key heads sharded, sliced out by rank, or shared."""
    n, H, K, hd, D, S = v.n, v.H, v.K, 4, 8, 4
    R = H // K
    def base(x, q, k, w, o):
        qh = (x @ q).reshape(S, H, hd)
        kh, vh = (jnp.repeat((x @ t).reshape(S, K, hd), R, axis=1) for t in (k, w))
        s = jnp.einsum("qhd,khd->hqk", qh, kh) * hd ** -0.5
        p = jax.nn.softmax(jnp.where(_causal(S), s, -jnp.inf), -1)
        return jnp.einsum("hqk,khd->qhd", p, vh).reshape(S, H * hd) @ o
    def dist(x, q, k, w, o):
        h = H // n
        qh = (x @ q).reshape(S, h, hd)
        kh, vh = (x @ k).reshape(S, -1, hd), (x @ w).reshape(S, -1, hd)
        i = lax.axis_index("tp")
        if v.how == "slice":
            j = i % K if bug("modulo") else i // (n // K)  # BUG[modulo] wrong-index: key head by modulo, not by quotient
            kh, vh = (lax.dynamic_slice_in_dim(t, j, 1, axis=1) for t in (kh, vh))
        if v.how == "take":
            ids = (i * h + jnp.arange(h)) // R
            kh, vh = (jnp.take(t, ids, axis=1) for t in (kh, vh))
        g = kh.shape[1]
        if v.how == "group":
            s = jnp.einsum("qgrd,kgd->grqk", qh.reshape(S, g, h // g, hd), kh) * hd ** -0.5
            p = jax.nn.softmax(jnp.where(_causal(S)[None, None], s, -jnp.inf), axis=-1)
            y = jnp.einsum("grqk,kgd->qgrd", p, vh)
            y = y.swapaxes(1, 2) if bug("group_order") else y  # BUG[group_order] wrong-layout: groups and members exchanged
            y = y.reshape(S, h * hd)
        else:
            if v.how == "repeat":
                kh, vh = (jnp.broadcast_to(t[:, :, None], (S, g, h // g, hd)).reshape(S, h, hd) for t in (kh, vh))
                kh = jnp.flip(kh, 1) if bug("flip") else kh  # BUG[flip] wrong-layout: key heads in reverse
            s = jnp.einsum("qhd,khd->hqk", qh, jnp.broadcast_to(kh, (S, h, hd))) / 2.0
            p = jax.nn.softmax(jnp.where(_causal(S), s, -jnp.inf), -1)
            y = jnp.einsum("hqk,khd->qhd", p, jnp.broadcast_to(vh, (S, h, hd))).reshape(S, h * hd)
        return lax.psum(jnp.dot(y, o), "tp")
    kv = P(None, "tp") if v.how in ("group", "repeat") else P()
    return Prog(dict(tp=n), (In((S, D)), In((D, H * hd), P(None, "tp")), In((D, K * hd), kv), In((D, K * hd), kv), In((H * hd, D), P("tp"))), base, dist, P())


@pair("attention", "tensor", dict(n=4, H=8), dict(n=2, H=4))
def alibi(v, bug):
    """Linear position biases with slopes from a closed-over table."""
    n, H, hd, S = v.n, v.H, 4, 6
    slopes = np.array([2.0 ** (-8.0 * (i + 1) / H) for i in range(H)], np.float32)
    def base(q, k, w):
        rel = jnp.arange(S)[None, :] - jnp.arange(S)[:, None]
        s = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(hd).astype(np.float32) + slopes[:, None, None] * rel
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(rel <= 0, s, -1e30), -1), w)
    def dist(q, k, w):
        h = q.shape[0]
        i = lax.axis_index("tp")
        sl = slopes[:h] if bug("first") else lax.dynamic_slice(jnp.array(slopes), (i * h,), (h,))  # BUG[first] wrong-index: slopes of the first shard everywhere
        rel = lax.iota(jnp.int32, S)[None, :] - lax.iota(jnp.int32, S)[:, None]
        rel2 = -rel if bug("sign") else rel  # BUG[sign] wrong-sign: distance with the other sign
        s = jnp.einsum("hqd,hkd->hqk", q, k) * np.float32(0.5) + sl[:, None, None] * rel2.astype(jnp.float32)
        return jax.vmap(jnp.dot)(_softmax(jnp.where(rel > 0, -1e30, s)), w)
    a = lambda: In((H, S, hd), P("tp"))
    return Prog(dict(tp=n), (a(), a(), a()), base, dist, P("tp"))


def _rope(x, pos, style):
    hd = x.shape[-1]
    f = 1.0 / (10000.0 ** (jnp.arange(0, hd, 2) / hd))
    a = pos[:, None] * f
    c, s = jnp.cos(a), jnp.sin(a)
    c, s = c[:, None], s[:, None]
    if style == "half":
        x1, x2 = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([x1 * c - x2 * s, x2 * c + x1 * s], -1)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return jnp.stack([x1 * c - x2 * s, x1 * s + x2 * c], -1).reshape(x.shape)


def _rope_rot(x, pos):
    hd = x.shape[-1]
    f = 10000.0 ** (-(jnp.arange(0, hd, 2) / hd))
    a = jnp.concatenate([pos[:, None] * f] * 2, -1)[:, None]
    rot = jnp.concatenate([-x[..., hd // 2:], x[..., :hd // 2]], -1)
    return x * jnp.cos(a) + rot * jnp.sin(a)


@pair("attention", "tensor", dict(n=2, rs="half"), dict(n=4, rs="pair"), dict(n=2, rs="rot"))
def qknorm_rope(v, bug):
    """Query/key norm and rotary positions, heads sharded."""
    n, H, hd, D, S = v.n, 4, 8, 12, 5
    rms = lambda x, g: x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g
    r0 = "half" if v.rs == "rot" else v.rs
    def base(x, q, k, w, gq, gk, o):
        pos = jnp.arange(S, dtype=jnp.float32)
        sp = lambda t: (x @ t).reshape(S, H, hd)
        a, b = _rope(rms(sp(q), gq), pos, r0), _rope(rms(sp(k), gk), pos, r0)
        s = jnp.einsum("qhd,khd->hqk", a, b) * hd ** -0.5
        p = jax.nn.softmax(jnp.where(_causal(S), s, -jnp.inf), -1)
        return jnp.einsum("hqk,khd->qhd", p, sp(w)).reshape(S, -1) @ o
    def dist(x, q, k, w, gq, gk, o):
        pos = jnp.arange(S).astype(jnp.float32)
        sp = lambda t: jnp.dot(x, t).reshape(S, H // n, hd)
        rope = (lambda t: _rope_rot(t, pos)) if v.rs == "rot" else (lambda t: _rope(t, pos, v.rs))
        gk2 = gq if bug("gain") else gk  # BUG[gain] wrong-operand: query gain used for the keys
        a, b = rope(rms(sp(q), gq)), rope(rms(sp(k), gk2))  # NEAR[gain]
        if bug("norm_after"):
            b = rms(rope(sp(k)), gk)  # BUG[norm_after] wrong-order: keys normalised after rotation
        s = jnp.einsum("qhd,khd->hqk", a, b) / np.sqrt(hd).astype(np.float32)
        p = _softmax(jnp.where(_causal(S), s, -jnp.inf))
        y = jnp.einsum("hqk,khd->qhd", p, sp(w))
        return lax.psum(y.reshape(S, -1) @ o, "tp")
    w = lambda: In((D, H * hd), P(None, "tp"))
    return Prog(dict(tp=n), (In((S, D)), w(), w(), w(), In((hd,)), In((hd,)), In((H * hd, D), P("tp"))), base, dist, P())


@pair("attention", "ulysses", dict(n=2, H=4, b=False, bugs=("back",)), dict(n=2, H=6, b=True, bugs=("kv",)), dict(n=4, H=4, b=False))
def ulysses_heads(v, bug):
    """Sequence to heads and back by all_to_all."""
    n, H, hd, S = v.n, v.H, 4, 8
    def attn(q, k, w):
        s = jnp.einsum("qhd,khd->hqk", q, k) * hd ** -0.5
        return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(_causal(q.shape[0]), s, -jnp.inf), -1), w)
    def base(q, k, w):
        return attn(q, k, w)
    def dist(q, k, w):
        fwd = lambda t: lax.all_to_all(t, "sp", split_axis=1, concat_axis=0, tiled=True)
        if v.b:
            z = jnp.stack([q, k, w])
            z = lax.all_to_all(z, "sp", split_axis=2, concat_axis=1, tiled=True)
            y = attn(z[0], z[2] if bug("kv") else z[1], z[2])  # BUG[kv] wrong-operand: values used as keys
        else:
            y = attn(fwd(q), fwd(k), fwd(w))
        if bug("back") and H == S // 2:
            return lax.all_to_all(y.swapaxes(0, 1), "sp", split_axis=1, concat_axis=0, tiled=True).swapaxes(0, 1)[:, ::-1]  # BUG[back] wrong-layout: heads reversed on the way back
        return lax.all_to_all(y, "sp", split_axis=0, concat_axis=1, tiled=True)
    a = lambda: In((S, H, hd), P("sp"))
    return Prog(dict(sp=n), (a(), a(), a()), base, dist, P("sp"))


@pair("attention", "sequence", dict(n=4, w=None), dict(n=2, w=3), dict(n=2, w=None))
def kv_gathered(v, bug):
    """Queries stay sharded on the sequence, keys and values are gathered; causal or windowed."""
    n, hd, S = v.n, 4, 8
    def mask(qp, kp):
        m = kp[None, :] <= qp[:, None]
        return m if v.w is None else m & (qp[:, None] - kp[None, :] < v.w)
    def base(q, k, w):
        s = q @ k.T / 2.0
        return jax.nn.softmax(jnp.where(mask(jnp.arange(S), jnp.arange(S)), s, -1e9), -1) @ w
    def dist(q, k, w):
        c = q.shape[0]
        kk = lax.all_gather(k, "sp", axis=0, tiled=True)
        ww = lax.all_gather(w, "sp").reshape(S, hd)
        i = lax.axis_index("sp")
        qp = jnp.arange(c) if bug("offset") else i * c + jnp.arange(c)  # BUG[offset] wrong-mask: query positions without the shard's offset
        qp = qp + 1 if bug("future") else qp  # BUG[future] wrong-mask: one future key visible
        s = jnp.einsum("qd,kd->qk", q, kk) * 0.5
        p = _softmax(jnp.where(mask(qp, lax.iota(jnp.int32, S)), s, -1e9))
        return p @ ww
    a = lambda: In((S, hd), P("sp"))
    return Prog(dict(sp=n), (a(), a(), a()), base, dist, P("sp"))


@pair("attention", "ring", dict(n=4, c=False, bugs=("stale_den",)), dict(n=3, c=True, bugs=("owner",)), dict(n=2, c=True))
def ring_online(v, bug):
    """Ring attention with an online softmax."""
    n, hd, S = v.n, 4, 3 * v.n
    def base(q, k, w):
        s = q @ k.T * 0.5
        if v.c:
            s = jnp.where(_causal(S), s, -1e9)
        return jax.nn.softmax(s, -1) @ w
    def dist(q, k, w):
        c, i = q.shape[0], lax.axis_index("sp")
        m = jnp.full((c, 1), -1e30)
        l = jnp.zeros((c, 1))
        o = jnp.zeros((c, hd))
        for t in range(n):
            s = q @ k.T * 0.5
            if v.c:
                j = (i + t) % n if bug("owner") else (i - t) % n  # BUG[owner] wrong-index: owner of the block counted the other way
                s = jnp.where((i * c + jnp.arange(c))[:, None] >= (j * c + jnp.arange(c))[None], s, -1e9)
            m2 = jnp.maximum(m, s.max(-1, keepdims=True))
            r, p = jnp.exp(m - m2), jnp.exp(s - m2)
            l = (l if bug("stale_den") else l * r) + p.sum(-1, keepdims=True)  # BUG[stale_den] stale-value: denominator not rescaled
            o = o * r + p @ w
            m = m2
            if t < n - 1:
                k, w = (lax.ppermute(z, "sp", [(a, (a + 1) % n) for a in range(n)]) for z in (k, w))
        return o / l
    a = lambda: In((S, hd), P("sp"))
    return Prog(dict(sp=n), (a(), a(), a()), base, dist, P("sp"))


@pair("decode", "sequence", dict(n=4), dict(n=2), dict(n=8))
def split_kv_decode(v, bug):
    """One query over a cache sharded on positions: partial softmax, then combined."""
    n, T, H, hd = v.n, 16, 2, 4
    def base(q, kc, vc, pos):
        s = jnp.einsum("hd,thd->ht", q, kc) * hd ** -0.5
        s = jnp.where(jnp.arange(T)[None] <= pos, s, -1e9)
        return jnp.einsum("ht,thd->hd", jax.nn.softmax(s, -1), vc)
    def dist(q, kc, vc, pos):
        t = kc.shape[0]
        i = lax.axis_index("kv")
        gp = i * t + jnp.arange(t)
        s = jnp.einsum("hd,thd->ht", q, kc) * hd ** -0.5
        ok = gp < pos if bug("lt") else gp <= pos  # BUG[lt] wrong-mask: newest position not attended
        s = jnp.where(ok[None], s, -1e9)
        m = jnp.max(s, -1)
        M = lax.pmax(m, "kv")
        p = jnp.exp(s - M[:, None])
        num = lax.psum(jnp.einsum("ht,thd->hd", p, vc), "kv")
        den = jnp.sum(p, -1) if bug("den") else lax.psum(jnp.sum(p, -1), "kv")  # BUG[den] local-statistics: denominator of the local part
        return num / den[:, None]
    return Prog(dict(kv=n), (In((H, hd)), In((T, H, hd), P("kv")), In((T, H, hd), P("kv")), In((), P(), "i32", range=(1, T - 1))), base, dist, P())


@pair("decode", "tensor", dict(n=2, dp=False), dict(n=4, dp=False), dict(n=2, dp=True))
def cache_step(v, bug):
    """A decoding step: cache written at a position, heads sharded, batch maybe too."""
    n, B, T, H, hd, D = v.n, 2, 6, 4, 4, 8
    def base(x, wq, wk, wv, wo, kc, vc, pos):
        q, k, w = ((x @ t).reshape(B, 1, H, hd) for t in (wq, wk, wv))
        kc = lax.dynamic_update_slice(kc, k, (0, pos, 0, 0))
        vc = lax.dynamic_update_slice(vc, w, (0, pos, 0, 0))
        s = jnp.einsum("bqhd,bthd->bhqt", q, kc) / 2.0
        s = jnp.where(jnp.arange(T) <= pos, s, -1e9)
        y = jnp.einsum("bhqt,bthd->bqhd", jax.nn.softmax(s, -1), vc).reshape(B, H * hd)
        return x + y @ wo, kc, vc
    def dist(x, wq, wk, wv, wo, kc, vc, pos):
        h = H // n
        b = x.shape[0]
        q, k, w = ((x @ t).reshape(b, 1, h, hd) for t in (wq, wk, wv))
        k2 = lax.dynamic_update_slice_in_dim(kc, k, pos, axis=1)
        v2 = lax.dynamic_update_slice_in_dim(vc, w, pos - 1 if bug("write_pos") else pos, axis=1)  # BUG[write_pos] cache-slice: value written one position early
        s = lax.dot_general(q[:, 0], (kc if bug("stale_k") else k2), (((2,), (3,)), ((0, 1), (0, 2)))) / 2.0  # BUG[stale_k] stale-value: scores read the cache before the write
        s = jnp.where(lax.iota(jnp.int32, T)[None, None] > pos, -1e9, s)
        p = _softmax(s)
        y = jnp.einsum("bht,bthd->bhd", p, v2).reshape(b, h * hd)
        r = lax.psum(y @ wo, "tp")
        return x + r, k2, v2
    bt = "dp" if v.dp else None
    c = lambda: In((B, T, H, hd), P(bt, None, "tp"))
    w = lambda: In((D, H * hd), P(None, "tp"))
    mesh = dict(dp=2, tp=n) if v.dp else dict(tp=n)
    return Prog(mesh, (In((B, D), P(bt)), w(), w(), w(), In((H * hd, D), P("tp")), c(), c(), In((), P(), "i32", range=(1, T - 1))), base, dist,
                (P(bt), P(bt, None, "tp"), P(bt, None, "tp")))


@pair("attention", "tensor", dict(n=2), dict(n=4))
def latent_attention(v, bug):
    """Keys and values from a shared low-rank latent, heads sharded; absorbed form."""
    n, H, hd, D, R, S = v.n, 4, 4, 10, 6, 4
    def base(x, q, dn, uk, uv, o):
        c = x @ dn
        qh = (x @ q).reshape(S, H, hd)
        k = jnp.einsum("sr,rhd->shd", c, uk)
        w = jnp.einsum("sr,rhd->shd", c, uv)
        s = jnp.einsum("qhd,khd->hqk", qh, k) / 2
        y = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(_causal(S), s, -1e9), -1), w)
        return jnp.einsum("qhd,hde->qe", y, o)
    def dist(x, q, dn, uk, uv, o):
        c = jnp.dot(x, dn)
        qh = (x @ q).reshape(S, H // n, hd)
        qa = jnp.einsum("qhd,rhd->qhr", qh, uv if bug("up") else uk)  # BUG[up] wrong-operand: value projection absorbed into the queries
        s = jnp.einsum("qhr,kr->hqk", qa, c) / (np.sqrt(R).astype(np.float32) if bug("scale") else 2)  # BUG[scale] wrong-scale: scaled by the latent width
        p = jax.nn.softmax(jnp.where(_causal(S), s, -1e9), -1)
        z = jnp.einsum("hqk,kr->qhr", p, c)
        y = jnp.einsum("qhr,rhd->qhd", z, uv)
        return lax.psum(jnp.einsum("qhd,hde->qe", y, o), "tp")
    return Prog(dict(tp=n), (In((S, D)), In((D, H * hd), P(None, "tp")), In((D, R)), In((R, H, hd), P(None, "tp")), In((R, H, hd), P(None, "tp")), In((H, hd, D), P("tp"))), base, dist, P())


@pair("attention", "tensor+data", dict(m=dict(dp=2, tp=2)), dict(m=dict(tp=2, dp=3)))
def cross_softcap(v, bug):
    """Cross attention with capped logits, padding mask, fused KV weight."""
    H, hd, D, S, T, B = 4, 4, 8, 3, 5, 6
    n = v.m["tp"]
    def base(x, c, q, kv, o, lens):
        qh = (x @ q).reshape(B, S, H, hd)
        z = jnp.einsum("btd,dghe->gbthe", c, kv)
        s = jnp.einsum("bshe,bthe->bhst", qh, z[0]) * 0.5
        s = 30.0 * jnp.tanh(s / 30.0)
        s = jnp.where((jnp.arange(T)[None] < lens[:, None])[:, None, None], s, -1e9)
        y = jnp.einsum("bhst,bthe->bshe", jax.nn.softmax(s, -1), z[1])
        return y.reshape(B, S, H * hd) @ o
    def dist(x, c, q, kv, o, lens):
        b, h = x.shape[0], H // n
        qh = jnp.dot(x, q).reshape(b, S, h, hd)
        k, w = (jnp.einsum("btd,dhe->bthe", c, kv[:, g]) for g in ((1, 0) if bug("order") else (0, 1)))  # BUG[order] wrong-slice: keys and values exchanged in the fused weight
        s = jnp.einsum("bshe,bthe->bhst", qh, k) * 0.5
        s = 50.0 * jnp.tanh(s / 50.0) if bug("cap") else jnp.tanh(s / 30.0) * 30.0  # BUG[cap] wrong-constant: another cap
        ok = lax.iota(jnp.int32, T)[None, :] < lens[:, None]
        s = lax.select(jnp.broadcast_to(ok[:, None, None, :], s.shape), s, jnp.full_like(s, -1e9))
        y = jnp.einsum("bhst,bthe->bshe", _softmax(s), w).reshape(b, S, h * hd)
        return lax.psum(y @ o, "tp")
    return Prog(v.m, (In((B, S, D), P("dp"), scale=3.0), In((B, T, D), P("dp"), scale=3.0), In((D, H * hd), P(None, "tp")), In((D, 2, H, hd), P(None, None, "tp")), In((H * hd, D), P("tp")), In((B,), P("dp"), "i32", range=(1, T))), base, dist, P("dp"))

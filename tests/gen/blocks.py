"""Transformer blocks and stacks: Llama-like, GPT-2-like, sequence parallel, pipelines."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


def rms(x, g, eps=1e-5):
    return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps) * g


def lnorm(x, g, b):
    c = x - jnp.mean(x, -1, keepdims=True)
    return c / jnp.sqrt(jnp.mean(c * c, -1, keepdims=True) + 1e-5) * g + b


def rotary(x, base=10000.0):
    s, hd = x.shape[1], x.shape[-1]
    ang = jnp.outer(jnp.arange(s), base ** (-jnp.arange(0, hd, 2) / hd))
    c, sn = jnp.cos(ang)[None, :, None], jnp.sin(ang)[None, :, None]
    a, b = x[..., : hd // 2], x[..., hd // 2:]
    return jnp.concatenate([a * c - b * sn, b * c + a * sn], axis=-1)


def sdpa(q, k, v, causal=True):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        i = jnp.arange(q.shape[1])
        s = jnp.where(i[:, None] >= i[None, :], s, np.float32(-1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), v)


def llama_params(L, D, F, H, K, hd, lead=True):
    pre, o = ((L,), (None,)) if lead else ((), ())
    col, row = P(*o, None, "tp"), P(*o, "tp")
    mk = lambda s, p: In(pre + s, p, scale=0.3)
    return {"ln1": In(pre + (D,), P()), "wq": mk((D, H * hd), col), "wk": mk((D, K * hd), col), "wv": mk((D, K * hd), col),
            "wo": mk((H * hd, D), row), "ln2": In(pre + (D,), P()), "gate": mk((D, F), col), "up": mk((D, F), col), "down": mk((F, D), row)}


def llama_layer(x, p, h, k, hd, red=lambda y: y, eps=1e-5, theta=10000.0):
    b, s, _ = x.shape
    z = rms(x, p["ln1"], eps)
    q = rotary((z @ p["wq"]).reshape(b, s, h, hd), theta)
    kk = rotary((z @ p["wk"]).reshape(b, s, k, hd), theta)
    vv = (z @ p["wv"]).reshape(b, s, k, hd)
    kk, vv = jnp.repeat(kk, h // k, axis=2), jnp.repeat(vv, h // k, axis=2)
    x = x + red(sdpa(q, kk, vv).reshape(b, s, h * hd) @ p["wo"])
    z = rms(x, p["ln2"], eps)
    return x + red((jax.nn.silu(z @ p["gate"]) * (z @ p["up"])) @ p["down"])


@pair("llama", "tensor", dict(L=2, how="unroll", n=2, m={}), dict(L=3, how="scan", n=2, m={}), dict(L=2, how="remat", n=4, m=dict(dp=2)), dict(L=4, how="scan_remat", n=2, m=dict(dp=2)), dict(L=2, how="list", n=4, m={}, bugs=("layer", "one_layer")))
def llama_stack(v, bug):
    """A Llama stack in several loops; baseline unrolled or scanned."""
    n, L, D, F, H, K, hd = v.n, v.L, 16, 24, 4, 4, 4
    bt = "dp" if v.m else None
    as_list = v.how == "list"
    ps = [llama_params(1, D, F, H, K, hd, False) for _ in range(L)] if as_list else llama_params(L, D, F, H, K, hd)
    def layers(ps):
        return ps if as_list else [jax.tree.map(lambda w: w[i], ps) for i in range(L)]
    scan_base = v.how.startswith("scan")
    def base(x, ps, fin):
        if scan_base:
            x = lax.scan(lambda c, p: (llama_layer(c, p, H, K, hd), None), x, ps)[0]
        else:
            for p in layers(ps):
                x = llama_layer(x, p, H, K, hd)
        return rms(x, fin)
    def dist(x, ps, fin):
        red = lambda y: lax.psum(y, "tp")
        one = functools.partial(llama_layer, h=H // n, k=K // n, hd=hd, red=red)
        if bug("theta"):
            one = functools.partial(one, theta=500000.0)  # BUG[theta] wrong-constant: another rotary base
        if "remat" in v.how:
            one = jax.checkpoint(one)
        if v.how.startswith("scan"):
            x = lax.scan(lambda c, p: (one(c, p), None), x, ps)[0]
        else:
            seq = layers(ps)
            if bug("layer"):
                seq = [seq[0]] * L  # BUG[layer] wrong-operand: weights of layer 0 in every layer
            for i, p in enumerate(seq):
                if bug("one_layer") and i == L - 1:
                    x = llama_layer(x, p, H // n, K // n, hd, lambda y: y)  # BUG[one_layer] missing-collective: last layer not reduced
                else:
                    x = one(x, p)
        return rms(x, fin)
    return Prog({**v.m, "tp": n}, (In((2, 5, D), P(bt)), ps, In((D,))), base, dist, P(bt))


@pair("gpt2", "tensor", dict(n=2, par=False), dict(n=4, par=True), dict(n=4, par=False))
def gpt_block(v, bug):
    """GPT-2 block with biases and fused QKV, serial or parallel residual branches."""
    n, D, H, hd, S, B = v.n, 16, 4, 4, 5, 2
    def core(x, p, h, red, swap=False, stale=False):
        z = lnorm(x, p["g1"], p["b1"])
        qkv = jnp.einsum("bsd,dthe->tbshe", z, p["wqkv"]) + p["bqkv"][:, None, None]
        a = jnp.einsum("bshe,hed->bsd", sdpa(qkv[0], qkv[1], qkv[2]), p["wo"])
        if v.par:
            f = jax.nn.gelu(z @ p["w1"] + p["c1"]) @ p["w2"]
            return x + red(a + f) + p["bo"] + p["c2"]
        x = x + red(a) + p["bo"]
        z = lnorm(x, p["g2"], p["b2"])
        return x + red(jax.nn.gelu(z @ p["w1"] + p["c1"]) @ p["w2"]) + p["c2"]
    def base(x, p):
        return core(x, p, H, lambda y: y)
    def dist(x, p):
        if bug("stale") and not v.par:
            z = lnorm(x, p["g1"], p["b1"])
            qkv = jnp.einsum("bsd,dthe->tbshe", z, p["wqkv"]) + p["bqkv"][:, None, None]
            a = lax.psum(jnp.einsum("bshe,hed->bsd", sdpa(*qkv), p["wo"]), "tp") + p["bo"]
            y = x + a
            z = lnorm(x, p["g2"], p["b2"])  # BUG[stale] stale-residual: second norm reads the block's input
            return y + lax.psum(jax.nn.gelu(z @ p["w1"] + p["c1"]) @ p["w2"], "tp") + p["c2"]
        if bug("c2"):
            p = {**p, "c2": p["c2"] * n}  # BUG[c2] wrong-scale: output bias counted once per rank
        if bug("bo"):
            p = {**p, "bo": lax.psum(p["bo"], "tp")}  # BUG[bo] extra-collective: replicated bias reduced
        return core(x, p, H // n, lambda y: lax.psum(y, "tp"))
    p = {"g1": In((D,)), "b1": In((D,)), "g2": In((D,)), "b2": In((D,)), "wqkv": In((D, 3, H, hd), P(None, None, "tp"), scale=.3),
         "bqkv": In((3, H, hd), P(None, "tp")), "wo": In((H, hd, D), P("tp"), scale=.3), "bo": In((D,)),
         "w1": In((D, 32), P(None, "tp"), scale=.3), "c1": In((32,), P("tp")), "w2": In((32, D), P("tp"), scale=.3), "c2": In((D,))}
    return Prog(dict(tp=n), (In((B, S, D)), p), base, dist, P())


@pair("sequence-parallel", "tensor+sequence", dict(n=2, tiled=True), dict(n=4, tiled=False), dict(n=4, tiled=True))
def megatron_sp(v, bug):
    """Norms on sequence shards; gather before, scatter after each parallel region."""
    n, D, S, B, H, hd = v.n, 12, 8, 2, 4, 4
    def base(x, p):
        z = rms(x, p["g1"])
        q, k, w = ((z @ p[t]).reshape(B, S, H, hd) for t in ("q", "k", "v"))
        x = x + sdpa(q, k, w).reshape(B, S, -1) @ p["o"]
        return x + jax.nn.relu(rms(x, p["g2"]) @ p["a"]) @ p["b"]
    def gather(z):
        if v.tiled:
            return lax.all_gather(z, "tp", axis=1, tiled=True)
        return jnp.moveaxis(lax.all_gather(z, "tp"), 0, 1).reshape(B, S, -1)
    def scatter(y):
        if v.tiled:
            return lax.psum_scatter(y, "tp", scatter_dimension=1, tiled=True)
        return lax.psum_scatter(y.reshape(B, n, S // n, -1), "tp", scatter_dimension=1, tiled=False)
    def dist(x, p):
        z = gather(rms(x, p["g1"]))
        q, k, w = ((z @ p[t]).reshape(B, S, H // n, hd) for t in ("q", "k", "v"))
        y = sdpa(q, k, w).reshape(B, S, -1) @ p["o"]
        if bug("slice_only"):
            s = lax.dynamic_slice_in_dim(y, lax.axis_index("tp") * (S // n), S // n, 1)  # BUG[slice_only] missing-collective: own slice kept, partial sums not reduced
        else:
            s = scatter(y)
        x = x + s
        g2 = p["g1"] if bug("gain") else p["g2"]  # BUG[gain] wrong-operand: first gain used twice
        z = gather(rms(x, g2))  # NEAR[gain]
        y = jnp.maximum(z @ p["a"], 0) @ p["b"]
        if bug("no_res"):
            return scatter(y)  # BUG[no_res] stale-residual: residual dropped
        return x + scatter(y)
    w = lambda a, b, s: In((a, b), s, scale=.4)
    c, r = P(None, "tp"), P("tp")
    p = {"g1": In((D,)), "g2": In((D,)), "q": w(D, 16, c), "k": w(D, 16, c), "v": w(D, 16, c), "o": w(16, D, r), "a": w(D, 16, c), "b": w(16, D, r)}
    return Prog(dict(tp=n), (In((B, S, D), P(None, "tp")), p), base, dist, P(None, "tp"))


@pair("block", "tensor+data+sequence", dict(m=dict(dp=2, sp=2, tp=2)), dict(m=dict(tp=2, sp=2, dp=2)))
def block_3d(v, bug):
    """One block on three axes: heads, sequence (gathered keys), batch."""
    D, S, H, hd = 8, 4, 2, 4
    def base(x, q, k, w, o, g, a, b):
        z = rms(x, g)
        B = x.shape[0]
        f = lambda t: (z @ t).reshape(B, S, H, hd)
        x = x + sdpa(f(q), f(k), f(w)).reshape(B, S, -1) @ o
        return x + jnp.tanh(x @ a) @ b
    def dist(x, q, k, w, o, g, a, b):
        z = rms(x, g)
        B, s, _ = x.shape
        f = lambda t: (z @ t).reshape(B, s, H // 2, hd)
        gax = "dp" if bug("gather_axis") else "sp"  # BUG[gather_axis] wrong-axis: keys gathered over the batch axis
        kk, ww = (lax.all_gather(f(t), gax, axis=1, tiled=True) for t in (k, w))  # NEAR[gather_axis]
        i = lax.axis_index("tp") if bug("index") else lax.axis_index("sp")  # BUG[index] wrong-index: mask offset from the tensor axis
        sc = jnp.einsum("bqhd,bkhd->bhqk", f(q), kk) * 0.5
        ok = (i * s + jnp.arange(s))[:, None] >= jnp.arange(S)[None]
        p = jax.nn.softmax(jnp.where(ok, sc, -1e9), -1)
        y = jnp.einsum("bhqk,bkhd->bqhd", p, ww).reshape(B, s, -1) @ o
        x = x + lax.psum(y, "tp")
        return x + lax.psum(jnp.tanh(x @ a) @ b, ("tp", "sp") if bug("both") else "tp")  # BUG[both] wrong-axis: reduced over the sequence axis too
    c, r = P(None, "tp"), P("tp")
    t = lambda sp: In((D, D), sp)
    return Prog(v.m, (In((4, S, D), P("dp", "sp")), t(c), t(c), t(c), t(r), In((D,)), In((D, 8), c), In((8, D), r)), base, dist, P("dp", "sp"))


@pair("pipeline", "pipeline", dict(n=2, M=3), dict(n=4, M=2))
def pipeline_unrolled(v, bug):
    """A pipeline of stages over microbatches, unrolled in time."""
    n, M, D = v.n, v.M, 6
    def base(x, w):
        for i in range(n):
            x = x + jnp.tanh(x @ w[i])
        return x
    def dist(x, w):
        i = lax.axis_index("pp")
        buf = jnp.zeros_like(x[0])
        outs = []
        for t in range(M + n - 1):
            inp = jnp.where(i == 0, x[min(t, M - 1)], buf)
            y = inp + jnp.tanh(inp @ w[0])
            off = n - 2 if bug("early") else n - 1  # BUG[early] wrong-index: results taken one tick early
            if t >= off and len(outs) < M:
                outs.append(y)  # NEAR[early]
            buf = lax.ppermute(y, "pp", [(k, k + 1) for k in range(n - 1)])
        o = jnp.stack(outs)
        o = jnp.where(i == (0 if bug("rank") else n - 1), o, 0.0)  # BUG[rank] wrong-index: results of the first stage
        return lax.psum(o, "pp")
    return Prog(dict(pp=n), (In((M, 2, D)), In((n, D, D), P("pp"))), base, dist, P())


@pair("recurrent", "tensor", dict(n=2, how="scan"), dict(n=4, how="scan"))
def ssm_channels(v, bug):
    """A selective state-space scan with channels sharded."""
    n, C, N, S = v.n, 8, 3, 5
    def base(x, win, a, bm, cm, wout):
        u = x @ win
        def step(h, t):
            ut, bt, ct = t
            h = h * jnp.exp(-jax.nn.softplus(a)) + ut[:, None] * bt[None]
            return h, (h * ct[None]).sum(-1)
        _, y = lax.scan(step, jnp.zeros((C, N)), (u, x @ bm, x @ cm))
        return (y * jax.nn.silu(u)) @ wout
    def dist(x, win, a, bm, cm, wout):
        u = jnp.dot(x, win)
        def step(h, t):
            ut, bt, ct = t
            dec = jnp.exp(jax.nn.softplus(a)) if bug("decay") else jnp.exp(-jax.nn.softplus(a))  # BUG[decay] wrong-sign: state grows
            h = dec * h + jnp.outer(ut, bt)
            return h, h @ ct
        _, y = lax.scan(step, jnp.zeros((C // n, N)), (u, x @ bm, x @ cm))
        return lax.psum((y * jax.nn.silu(u)) @ wout, "tp")
    return Prog(dict(tp=n), (In((S, 6)), In((6, C), P(None, "tp")), In((C, N), P("tp")), In((6, N)), In((6, N)), In((C, 6), P("tp"))), base, dist, P())

"""Deep stacks of equal layers, with errors in one of them."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from blocks import llama_layer, llama_params, rms, rotary, sdpa
from harness import In, Prog, pair


@pair("deep", "tensor", dict(n=2, m={}), dict(n=4, m=dict(dp=2)))
def deep_llama(v, bug):
    """Eight Llama layers with their activations as outputs."""
    n, L, D, F, H, K, hd = v.n, 8, 16, 24, 4, 4, 4
    bt = "dp" if v.m else None
    ps = [llama_params(1, D, F, H, K, hd, False) for _ in range(L)]
    def base(x, ps):
        seen = []
        for p in ps:
            x = llama_layer(x, p, H, K, hd)
            seen.append(jnp.tanh(x @ p["gate"]))
        return x, seen
    def dist(x, ps):
        seen, xs = [], [x]
        ps = list(ps)
        if bug("weights"):
            ps[5] = {**ps[5], "up": ps[4]["up"]}  # BUG[weights] wrong-operand: layer 5 takes a weight of layer 4
        for k, p in enumerate(ps):
            red = lambda y: lax.psum(y, "tp")
            if bug("sum") and k == 4:
                red = lambda y: y  # BUG[sum] missing-collective: layer 4 is not reduced
            theta = 10000.0
            if bug("theta") and k == 6:
                theta = 5000.0  # BUG[theta] wrong-constant: another rotary base in layer 6
            one = functools.partial(llama_layer, h=H // n, k=K // n, hd=hd, red=red, theta=theta)
            if bug("skip") and k == 3:
                xs.append(one(xs[k - 1], p))  # BUG[skip] wrong-operand: layer 3 starts from the input of layer 2
            else:
                xs.append(one(xs[k], p))
            seen.append(jnp.tanh(xs[-1] @ p["gate"]))
        if bug("shown"):
            seen[2], seen[3] = seen[3], seen[2]  # BUG[shown] wrong-operand: two outputs exchanged
        return xs[-1], seen
    out = (P(bt), [P(bt, None, "tp")] * L)
    return Prog({**v.m, "tp": n}, (In((2, 5, D), P(bt)), ps), base, dist, out)


@pair("deep", "sequence", dict(n=4))
def deep_sequence(v, bug):
    """Seven blocks between which activations are split along the sequence."""
    n, L, D, F, S = v.n, 7, 8, 16, 8
    w = lambda: {"g": In((D,)), "a": In((D, F), P(None, "tp"), scale=0.3), "b": In((F, D), P("tp"), scale=0.3)}
    ps = [w() for _ in range(L)]
    def layer(x, p, gather, scatter):
        z = gather(rms(x, p["g"]))
        h = jax.nn.gelu(z @ p["a"])
        return x + scatter(h @ p["b"]) * np.float32(0.5)
    def base(x, ps):
        for p in ps:
            x = layer(x, p, lambda y: y, lambda y: y)
        return x
    def dist(x, ps):
        gather = lambda y: lax.all_gather(y, "tp", axis=1, tiled=True)
        scatter = lambda y: lax.psum_scatter(y, "tp", scatter_dimension=1, tiled=True)
        for k, p in enumerate(ps):
            s = scatter
            if bug("mean") and k == 2:
                s = lambda y: scatter(y) / n  # BUG[mean] wrong-scale: layer 2 takes the mean
            if bug("first") and k == 5:
                s = lambda y: lax.dynamic_slice_in_dim(y, lax.axis_index("tp") * (S // n), S // n, 1)  # BUG[first] missing-collective: layer 5 keeps its own summand
            x = layer(x, p, gather, s)
        return x
    return Prog({"tp": n}, (In((2, S, D), P(None, "tp")), ps), base, dist, P(None, "tp"))


@pair("deep", "context", dict(n=2))
def deep_context(v, bug):
    """Six causal attention layers over keys gathered along the sequence."""
    n, L, D, H, hd, S = v.n, 6, 8, 2, 4, 8
    w = lambda: {k: In((D, D), scale=0.4) for k in "qkvo"}
    ps = [w() for _ in range(L)]
    def layer(x, p, at, all_, rotate):
        b, s, _ = x.shape
        q, k, u = (rotate((x @ p[c]).reshape(b, s, H, hd)) for c in "qku".replace("u", "v"))
        k, u = all_(k), all_(u)
        z = jnp.einsum("bqhd,bkhd->bhqk", q, k) * np.float32(0.5)
        i, j = at + jnp.arange(s), jnp.arange(k.shape[1])
        z = jnp.where(i[:, None] >= j[None, :], z, np.float32(-1e9))
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(z, -1), u).reshape(b, s, D)
        return x + y @ p["o"]
    keep = lambda y: y
    def base(x, ps):
        for p in ps:
            x = layer(x, p, 0, keep, keep)
        return x
    def dist(x, ps):
        gather = lambda y: lax.all_gather(y, "sp", axis=1, tiled=True)
        for k, p in enumerate(ps):
            at = lax.axis_index("sp") * (S // n)
            if bug("offset") and k == 4:
                at = 0  # BUG[offset] wrong-offset: layer 4 masks as if at the start
            x = layer(x, p, at, gather, keep)
        return x
    return Prog({"sp": n}, (In((2, S, D), P(None, "sp")), ps), base, dist, P(None, "sp"))


@pair("deep", "expert", dict(n=2))
def deep_expert(v, bug):
    """Six layers whose experts live on different devices."""
    n, L, D, F, E, C = v.n, 6, 6, 8, 4, 3
    w = lambda: {"a": In((E, D, F), P("ep"), scale=0.4), "b": In((E, F, D), P("ep"), scale=0.4)}
    ps = [w() for _ in range(L)]
    def experts(x, p):
        return jnp.einsum("gecf,efd->gecd", jax.nn.relu(jnp.einsum("gecd,edf->gecf", x, p["a"])), p["b"])
    def base(x, ps):
        for p in ps:
            x = x + jnp.tanh(experts(x, p))
        return x
    def dist(x, ps):
        for k, p in enumerate(ps):
            z = lax.all_to_all(x, "ep", split_axis=1, concat_axis=0, tiled=True)
            y = experts(z, p)
            if bug("back") and k == 3:
                y = lax.all_to_all(y[::-1], "ep", split_axis=0, concat_axis=1, tiled=True)  # BUG[back] wrong-layout: layer 3 sends its groups back in another order
            else:
                y = lax.all_to_all(y, "ep", split_axis=0, concat_axis=1, tiled=True)
            x = x + jnp.tanh(y)
        return x
    return Prog({"ep": n}, (In((4, E, C, D), P("ep")), ps), base, dist, P("ep"))


@pair("deep", "data+tensor", dict(dp=2, tp=2))
def deep_train(v, bug):
    """A step of AdamW, gradients clipped by their norm, on six layers."""
    L, D, F, B = 6, 6, 8, 8
    w = lambda s: {"g": In((D,), scale=s), "a": In((D, F), P(None, "tp"), scale=s), "b": In((F, D), P("tp"), scale=s)}
    ws, ms = [w(0.4) for _ in range(L)], [w(0.1) for _ in range(L)]
    vs = [{k: In(i.shape, i.spec, scale=0.1, positive=True) for k, i in w(1.0).items()} for _ in range(L)]
    def loss(ws, x, y, red):
        for p in ws:
            x = x + red(jnp.tanh(rms(x, p["g"]) @ p["a"]) @ p["b"])
        return jnp.mean((x - y) ** 2)
    def update(ws, ms, vs, g, norm, decay):
        g = jax.tree.map(lambda t: t * jnp.minimum(1.0, 0.5 / norm), g)
        ms = jax.tree.map(lambda m, t: 0.9 * m + 0.1 * t, ms, g)
        vs = jax.tree.map(lambda q, t: 0.99 * q + 0.01 * t * t, vs, g)
        new = [{k: p[k] - 0.1 * (ms[j][k] / (jnp.sqrt(vs[j][k]) + 1e-3) + decay(j) * p[k]) for k in p} for j, p in enumerate(ws)]
        return new, ms, vs
    def base(ws, ms, vs, x, y):
        l, g = jax.value_and_grad(loss)(ws, x, y, lambda t: t)
        norm = jnp.sqrt(sum(jnp.sum(t * t) for t in jax.tree.leaves(g)))
        return (*update(ws, ms, vs, g, norm, lambda j: 0.01), l)
    def dist(ws, ms, vs, x, y):
        @jax.custom_vjp
        def red(t):
            return lax.psum(t, "tp")
        red.defvjp(lambda t: (red(t), None), lambda _, t: (t,))
        @jax.custom_vjp
        def enter(t):
            return t
        enter.defvjp(lambda t: (t, None), lambda _, t: (lax.psum(t, "tp"),))
        def own(ws, x, y):
            for j, p in enumerate(ws):
                z = rms(x, p["g"])
                z = z if bug("enter") and j == 3 else enter(z)  # BUG[enter] missing-collective: the gradient into layer 3 is not summed
                x = x + red(jnp.tanh(z @ p["a"]) @ p["b"])
            return jnp.mean((x - y) ** 2)
        l, g = jax.value_and_grad(own)(ws, x, y)
        g = [{k: lax.pmean(t, "dp") for k, t in p.items()} for p in g]
        if bug("local"):
            g[4] = {**g[4], "a": g[4]["a"] * 2.0}  # BUG[local] wrong-scale: a gradient of layer 4 is summed, not averaged
        square = lambda k, t: jnp.sum(t * t) if k == "g" else lax.psum(jnp.sum(t * t), "tp")
        norm = jnp.sqrt(sum(square(k, t) for p in g for k, t in p.items()))
        decay = lambda j: 0.02 if bug("decay") and j == 2 else 0.01  # BUG[decay] wrong-constant: weight decay of layer 2
        return (*update(ws, ms, vs, g, norm, decay), lax.pmean(l, "dp"))
    spec = [{"g": P(), "a": P(None, "tp"), "b": P("tp")}] * L
    return Prog({"dp": 2, "tp": 2}, (ws, ms, vs, In((B, D), P("dp")), In((B, D), P("dp"))), base, dist, (spec, spec, spec, P()))

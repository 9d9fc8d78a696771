"""Mixtures of experts."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from harness import In, Prog, pair


def _gates(x, r, k, renorm=True):
    p = jax.nn.softmax(x @ r, axis=-1)
    w, i = lax.top_k(p, k)
    if renorm:
        w = w / w.sum(-1, keepdims=True)
    return jnp.sum(jax.nn.one_hot(i, r.shape[1]) * w[..., None], axis=1)


@pair("moe", "tensor", dict(n=2, k=2, E=4), dict(n=4, k=1, E=4))
def experts_tensor(v, bug):
    """Every expert sliced along its hidden dimension."""
    n, E, D, F, T = v.n, v.E, 6, 8, 5
    def base(x, r, a, b):
        g = _gates(x, r, v.k)
        h = jax.nn.silu(jnp.einsum("td,edf->tef", x, a))
        return jnp.einsum("ted,te->td", jnp.einsum("tef,efd->ted", h, b), g)
    def dist(x, r, a, b):
        g = _gates(x, r, v.k, not bug("renorm"))  # BUG[renorm] wrong-scale: gates not renormalised
        y = 0.0
        for e in range(E):
            h = x @ a[e]
            y = y + (h * jax.nn.sigmoid(h) @ b[e]) * g[:, e:e + 1]
        return y if bug("no_psum") else lax.psum(y, "tp")  # BUG[no_psum] missing-collective: experts' partial sums not reduced
    return Prog(dict(tp=n), (In((T, D)), In((D, E)), In((E, D, F), P(None, None, "tp")), In((E, F, D), P(None, "tp"))), base, dist, P())


@pair("moe", "expert", dict(n=4, E=4, k=2, st="loop"), dict(n=2, E=6, k=2, st="einsum"), dict(n=2, E=4, k=1, st="vmap"))
def experts_masked(v, bug):
    """Experts on ranks, tokens everywhere: own experts applied, then summed."""
    n, E, D, F, T = v.n, v.E, 6, 8, 5
    def base(x, r, a, b):
        g = _gates(x, r, v.k)
        y = jax.vmap(lambda p, q: jnp.tanh(x @ p) @ q)(a, b)
        return jnp.einsum("etd,te->td", y, g)
    def dist(x, r, a, b):
        m = a.shape[0]
        g = _gates(x, r, v.k)
        i = lax.axis_index("ep")
        i = (i + 1) % n if bug("shifted") else i  # BUG[shifted] wrong-index: gates of the next rank's experts
        gl = lax.dynamic_slice_in_dim(g, i * m, m, axis=1)
        if v.st == "loop":
            y = sum(jnp.tanh(x @ a[e]) @ b[e] * gl[:, e][:, None] for e in range(m))
        elif v.st == "vmap":
            y = jax.vmap(lambda p, q, w: (jnp.tanh(x @ p) @ q) * w[:, None], in_axes=(0, 0, 1))(a, b, gl).sum(0)
        else:
            h = jnp.tanh(jnp.einsum("td,edf->etf", x, a))
            y = jnp.einsum("etf,efd,te->td", h, b, gl)
        y = y / n if bug("avg") else y  # BUG[avg] wrong-scale: averaged over ranks
        return lax.psum(y, "ep")
    return Prog(dict(ep=n), (In((T, D)), In((D, E)), In((E, D, F), P("ep")), In((E, F, D), P("ep"))), base, dist, P())


@pair("moe", "expert", dict(n=4, E=4, tp=1), dict(n=2, E=4, tp=1), dict(n=2, E=2, tp=2, bugs=("no_psum",)))
def experts_a2a(v, bug):
    """Tokens sent to experts by all_to_all (dense dispatch), and back."""
    n, E, D, F, T = v.n, v.E, 6, 8, 8
    def base(x, r, a, b):
        g = _gates(x, r, min(2, E))
        h = jax.nn.relu(jnp.einsum("td,edf->etf", x, a))
        return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", h, b), g)
    def dist(x, r, a, b):
        t, m = x.shape[0], a.shape[0]
        g = _gates(x, r, min(2, E))
        send = jnp.broadcast_to(x[None], (E, t, D))
        got = lax.all_to_all(send, "ep", split_axis=0, concat_axis=1, tiled=True)
        h = jnp.maximum(jnp.einsum("etd,edf->etf", got, a), 0.0)
        y = jnp.einsum("etf,efd->etd", h, b)
        if v.tp > 1:
            y = y if bug("no_psum") else lax.psum(y, "tp")  # BUG[no_psum] missing-collective: expert's slices not summed
        back = lax.all_to_all(y, "ep", split_axis=1, concat_axis=0, tiled=True)
        back = back[::-1] if bug("expert_order") else back  # BUG[expert_order] wrong-layout: experts returned in reverse
        return jnp.einsum("etd,te->td", back, g)
    tp = "tp" if v.tp > 1 else None
    mesh = dict(ep=n, tp=v.tp) if tp else dict(ep=n)
    return Prog(mesh, (In((T, D), P("ep")), In((D, E)), In((E, D, F), P("ep", None, tp)), In((E, F, D), P("ep", tp))), base, dist, P("ep"))


@pair("moe", "expert", dict(n=2), dict(n=4))
def soft_experts(v, bug):
    """Soft mixture: slots by softmax over tokens, experts sharded, with load-balancing loss."""
    n, E, D, F, T = v.n, 4, 6, 8, 5
    def base(x, r, a, b):
        z = x @ r
        d, c = jax.nn.softmax(z, 0), jax.nn.softmax(z, 1)
        s = jnp.einsum("td,te->ed", x, d)
        y = jnp.einsum("ef,efd->ed", jax.nn.gelu(jnp.einsum("ed,edf->ef", s, a)), b)
        return c @ y, E * jnp.sum(c.mean(0) ** 2)
    def dist(x, r, a, b):
        z = x @ r
        d = jax.nn.softmax(z, axis=0)
        c = jax.nn.softmax(z, axis=0) if bug("combine") else jax.nn.softmax(z, axis=1)  # BUG[combine] wrong-dimension: combine weights normalised over tokens
        m = a.shape[0]
        i = lax.axis_index("ep") * m
        s = lax.dynamic_slice(d, (0, i), (T, m)).T @ x
        y = jnp.einsum("ef,efd->ed", jax.nn.gelu(jnp.einsum("ed,edf->ef", s, a)), b)
        y = lax.all_gather(y, "ep", axis=0, tiled=True)
        k = m if bug("count") else E  # BUG[count] wrong-scale: local number of experts
        return c @ y, k * jnp.sum(jnp.square(jnp.mean(c, 0)))  # NEAR[count]
    return Prog(dict(ep=n), (In((T, D)), In((D, E)), In((E, D, F), P("ep")), In((E, F, D), P("ep"))), base, dist, P())

"""A Llama decoder layer: RMS norm, rotary embedding, grouped-query attention
with a causal mask, SwiGLU. `axis` is the mesh axis over which the weights are
split (attention by heads, MLP by hidden units); None means one device."""

import jax
import jax.numpy as jnp

HEAD = 16


def rms_norm(x, scale):
    var = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(var + 1e-6) * scale


def rope(x):
    """x: [batch, time, heads, HEAD]."""
    freq = 10000.0 ** (-jnp.arange(0, HEAD, 2) / HEAD)
    angle = jnp.arange(x.shape[1])[:, None] * freq
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(x, w):
    b, t, _ = x.shape
    q = rope((x @ w["wq"]).reshape(b, t, -1, HEAD))
    k = rope((x @ w["wk"]).reshape(b, t, -1, HEAD))
    v = (x @ w["wv"]).reshape(b, t, -1, HEAD)
    q = q.reshape(b, t, k.shape[2], -1, HEAD)
    scores = jnp.einsum("btkgh,bskh->bkgts", q, k) / HEAD**0.5
    mask = jnp.arange(t)[:, None] >= jnp.arange(t)
    probs = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
    out = jnp.einsum("bkgts,bskh->btkgh", probs, v)
    return out.reshape(b, t, -1) @ w["wo"]


def mlp(x, w):
    return (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def all_reduce(x, axis):
    return x if axis is None else jax.lax.psum(x, axis)


def layer(x, w, axis=None):
    x = x + all_reduce(attention(rms_norm(x, w["norm1"]), w), axis)
    return x + all_reduce(mlp(rms_norm(x, w["norm2"]), w), axis)


def layer_without_second_all_reduce(x, w, axis):
    """A mistake that runs without complaint: each device adds its own partial sum."""
    x = x + all_reduce(attention(rms_norm(x, w["norm1"]), w), axis)
    return x + mlp(rms_norm(x, w["norm2"]), w)


def arguments(batch=2, time=32, model=64, q_heads=8, kv_heads=4, hidden=256):
    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    weights = dict(
        norm1=array(model),
        wq=array(model, q_heads * HEAD),
        wk=array(model, kv_heads * HEAD),
        wv=array(model, kv_heads * HEAD),
        wo=array(q_heads * HEAD, model),
        norm2=array(model),
        gate=array(model, hidden),
        up=array(model, hidden),
        down=array(hidden, model),
    )
    return array(batch, time, model), weights

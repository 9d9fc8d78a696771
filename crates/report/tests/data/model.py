import jax


def mlp(x, w1, w2):
    h = jax.nn.relu(x @ w1)
    return h @ w2


def step(x, w1, w2):
    return mlp(x, w1, w2)

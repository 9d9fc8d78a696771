"""Further reports of losses, optimisers, caches, updates and recurrences (ids M11 and on)."""
from bugs import Case

INF = float("inf")

# M11: load-balancing loss of routers.
c = Case("M11_load_balancing_loss", ["huggingface/transformers#28255", "NVIDIA-NeMo/Automodel#1412", "mindspore-ai/hyper-parallel#752"],
         "A loss that multiplies mean counts by mean probabilities is taken over all layers at once, or per device.",
         {"dp": 2}, [("z", "f32[2,6,4]", "-,dp")], [""])


def balance(b, z, mean_f, mean_p, total=lambda v: v):
    """4 * sum over layers and experts of (share of tokens) * (mean probability)."""
    p = b.softmax(z)
    top = b.bcast(b.red(p, 2, "maximum"), p.d, [0, 1])
    hit = b.where(p.cmp("EQ", top), b.full(1, "f32", p.d), 0.0)
    return total(b.red(mean_f(b.red(hit, 1)) * mean_p(b.red(p, 1)), [0, 1])) * 4.0


six = lambda v: v / 6.0  # noqa: E731
c.base(lambda b, z: balance(b, z, six, six))
c.right()(lambda b, z: balance(b, z, lambda v: b.ar(v) / 6.0, lambda v: b.ar(v) / 6.0))
c.right("linear", note="counts are summed; the loss is linear in the local probabilities")(
    lambda b, z: balance(b, z, lambda v: b.ar(v) / 6.0, six, b.ar))
c.right("per_layer")(lambda b, z: balance(b, b.slice(z, (0, 1)), lambda v: b.ar(v) / 6.0, lambda v: b.ar(v) / 6.0)
                     + balance(b, b.slice(z, (1, 2)), lambda v: b.ar(v) / 6.0, lambda v: b.ar(v) / 6.0))
c.wrong("missing-all-reduce", note="the mean of the devices' losses")(
    lambda b, z: balance(b, z, lambda v: b.guilty(v / 3.0), lambda v: b.guilty(v / 3.0), lambda v: b.ar(v) / 2.0))


@c.wrong("wrong-operand", "layers_at_once")
def _(b, z):
    p = b.guilty(b.reshape(z, 1, 6, 4))
    return balance(b, p, lambda v: b.ar(v) / 12.0, lambda v: b.ar(v) / 12.0) * 2.0


# M12: a cache of a sliding window.
c = Case("M12_sliding_window_cache", ["huggingface/transformers#37574", "ollama/ollama#14912"],
         "The window rolls one step before it is full.",
         {"tp": 2}, [("cache", "f32[4,2,3]", "-,tp"), ("k", "f32[1,2,3]", "-,tp"), ("q", "f32[2,3]", "tp"),
                     ("pos", "s32[]", "", (2, 5))], ["tp", "-,tp"])


def attend(b, q, kv, pos):
    s = b.dot(q, kv, 1, 2, (0,), (1,))
    s = b.where(b.iota(f"s32[{s.d[0]},4]", 1).cmp("LE", b.bcast(pos, s.d, [])), s, -INF)
    return b.dot(b.softmax(s), kv, 1, 0, (0,), (1,)), kv


def rolled(b, cache, k, pos, first):
    full = b.bcast(pos.cmp("GE", first), cache.d, [])
    return b.where(full, b.cat([b.slice(cache, (1, 4)), k]), b.dus(cache, k, pos))


c.base(lambda b, cache, k, q, pos: attend(b, q, rolled(b, cache, k, pos, 4), pos))
c.right()(lambda b, cache, k, q, pos: attend(b, q, rolled(b, cache, k, pos, 4), pos))


@c.right("one_update", note="the cache is rolled first, the place is the smaller of position and last slot")
def _(b, cache, k, q, pos):
    full = b.bcast(pos.cmp("GE", 4), cache.d, [])
    x = b.where(full, b.cat([b.slice(cache, (1, 4)), b.slice(cache, (0, 1))]), cache)
    return attend(b, q, b.dus(x, k, pos.min(3)), pos)


@c.right("taken", note="rows are taken at shifted places of cache and new key")
def _(b, cache, k, q, pos):
    full = pos.cmp("GE", 4)
    both = b.cat([cache, k])
    i = b.iota("s32[4]")
    i = i + b.bcast(b.where(full, b.full(1, "s32", []), 0), [4], [])
    at = b.where(i.cmp("EQ", b.bcast(pos.min(4), [4], [])), b.full(4, "s32", [4]), i)
    return attend(b, q, b.rows(both, at), pos)


c.wrong("offset")(lambda b, cache, k, q, pos: attend(b, q, b.guilty(rolled(b, cache, k, pos, 3)), pos))


@c.wrong("offset", "wrapped", note="the place wraps, but the keys stay where they are")
def _(b, cache, k, q, pos):
    return attend(b, q, b.guilty(b.dus(cache, k, pos % 4)), pos)


# M13: gradients accumulated over microbatches.
c = Case("M13_rescaled_accumulator", ["pytorch/torchtitan#1733", "pytorch/torchtitan#1732"],
         "The accumulated gradient is divided after every microbatch.",
         {"dp": 2}, [("x", "f32[4,4,3]", "-,dp"), ("y", "f32[4,4,2]", "-,dp"), ("w", "f32[3,2]", "")], [""])


def grad(b, x, y, w):
    """x^T (x w - y), rows summed."""
    return b.dot(x, b.dot(x, w) - y, 0, 0)


def accumulate(b, x, y, w, step, zero=None):
    def body(i, acc, x, y, w):
        take = lambda v: b.reshape(b.ds(v, i, 1), *v.d[1:])  # noqa: E731
        return [step(acc, grad(b, take(x), take(y), w)), x, y, w]
    return b.fori(0, 4, [zero or b.zeros("f32[3,2]"), x, y, w], body)[0]


c.base(lambda b, x, y, w: b.dot(x, b.dot(x, w) - y, (0, 1), (0, 1)) / 16.0)
c.right()(lambda b, x, y, w: b.ar(accumulate(b, x, y, w, lambda a, g: a + g)) / 16.0)
c.right("scaled_first")(lambda b, x, y, w: b.ar(accumulate(b, x, y, w, lambda a, g: a + g / 8.0)) / 2.0)
c.right("reduced_each")(lambda b, x, y, w: accumulate(b, x, y, w, lambda a, g: a + b.ar(g) / 16.0))
c.right("unrolled")(lambda b, x, y, w: b.ar(sum((grad(b, *[b.reshape(b.slice(v, (i, i + 1)), *v.d[1:]) for v in (x, y)], w)
                                                 for i in range(1, 4)),
                                                grad(b, *[b.reshape(b.slice(v, (0, 1)), *v.d[1:]) for v in (x, y)], w))) / 16.0)
c.wrong("scale")(lambda b, x, y, w: b.ar(accumulate(b, x, y, w, lambda a, g: b.guilty((a + g) / 4.0))) / 4.0)
c.wrong("scale", "twice", note="divided by the number of microbatches once more")(
    lambda b, x, y, w: b.guilty(b.ar(accumulate(b, x, y, w, lambda a, g: a + g / 4.0)) / 16.0))
c.wrong("duplicate-all-reduce", "accumulator_reduced", note="the accumulator is reduced in every step")(
    lambda b, x, y, w: accumulate(b, x, y, w, lambda a, g: b.guilty(b.ar(a + g))) / 16.0)

# M14: a mean over microbatches that hold something.
c = Case("M14_valid_microbatches", ["NVIDIA-NeMo/RL#212", "areal-project/AReaL#1273", "NovaSky-AI/SkyRL#925"],
         "A loss over valid tokens is divided by the number of microbatches.",
         {"dp": 2}, [("loss", "f32[4,2,5]", "-,dp"), ("keep", "s32[4,2,5]", "-,dp", (0, 1))], [""])


def valid_sums(b, x, k):
    """Per microbatch (sum over valid tokens, their number)."""
    m = b.conv(k, "f32")
    return b.red(x * m, [1, 2]), b.red(m, [1, 2])


def loss_of(b, x, k, all_sum=lambda v: v):
    s, n = valid_sums(b, x, k)
    return all_sum(b.red(s, 0)) / all_sum(b.red(n, 0)).max(1.0)


c.base(lambda b, x, k: loss_of(b, x, k))
c.right()(lambda b, x, k: loss_of(b, x, k, b.ar))


@c.right("weights", note="each microbatch by its share of the tokens")
def _(b, x, k):
    s, n = valid_sums(b, x, k)
    total = b.ar(b.red(n, 0)).max(1.0)
    return b.ar(b.red(s / b.bcast(total, [4], []), 0))


@c.right("loop", note="numerator and count are carried")
def _(b, x, k):
    def body(i, s, n, x, k):
        ds = lambda v: b.ds(v, i, 1)  # noqa: E731
        m = b.conv(ds(k), "f32")
        return [s + b.red(ds(x) * m, [0, 1, 2]), n + b.red(m, [0, 1, 2]), x, k]
    s, n = b.fori(0, 4, [b.const(0.0), b.const(0.0), x, k], body)[:2]
    return b.ar(s) / b.ar(n).max(1.0)


@c.wrong("scale", note="a mean of the microbatches' means")
def _(b, x, k):
    s, n = valid_sums(b, x, k)
    return b.red(b.guilty(b.ar(s) / b.ar(n).max(1.0)), 0) / 4.0


@c.wrong("scale", "again", note="the right mean divided by the number of microbatches")
def _(b, x, k):
    return b.guilty(loss_of(b, x, k, b.ar) / 4.0)


@c.wrong("missing-all-reduce", "local_count")
def _(b, x, k):
    s, n = valid_sums(b, x, k)
    return b.ar(b.guilty(b.red(s, 0) / b.red(n, 0).max(1.0))) / 2.0


# M15: a mean over samples of means over tokens.
c = Case("M15_mean_per_sample", ["NVIDIA-NeMo/Speech#8343", "verl-project/verl#593", "huggingface/trl#2995"],
         "The mean over all tokens of a batch in place of the mean over samples of their means.",
         {"dp": 2}, [("lp", "f32[4,6]", "dp"), ("adv", "f32[4]", "dp"), ("len", "s32[4]", "dp", (1, 6))], [""])


def per_sample(b, lp, adv, n):
    i = b.iota(f"s32[{lp.d[0]},6]", 1)
    m = b.where(i.cmp("LT", b.bcast(n, lp.d, [0])), b.full(1, "f32", lp.d), 0.0)
    r = b.exp(lp)
    a = b.bcast(adv, lp.d, [0])
    clip = r.max(0.8).min(1.2)
    return b.red((r * a).min(clip * a) * m, 1), b.conv(n, "f32")


@c.base
def _(b, lp, adv, n):
    s, k = per_sample(b, lp, adv, n)
    return b.red(s / k, 0) / 4.0


@c.right()
def _(b, lp, adv, n):
    s, k = per_sample(b, lp, adv, n)
    return b.ar(b.red(s / k, 0)) / 4.0


@c.right("mean_of_means", note="the same number of samples on both devices")
def _(b, lp, adv, n):
    s, k = per_sample(b, lp, adv, n)
    return b.ar(b.red(s * (0.5 / k), 0)) * 0.5


@c.wrong("scale")
def _(b, lp, adv, n):
    s, k = per_sample(b, lp, adv, n)
    return b.guilty(b.ar(b.red(s, 0)) / b.ar(b.red(k, 0)))


# M16: a sharded optimiser step.
c = Case("M16_sharded_adam", ["flagos-ai/FlagGems#4988", "aiqm/torchani#261", "bitsandbytes-foundation/bitsandbytes#2010", "apache/mxnet#9881"],
         "Decay enters the gradient, or the decayed weight's update; the small number is scaled with the moments.",
         {"dp": 2}, [("g", "f32[2,8]", "dp"), ("p", "f32[8]", "dp"), ("m", "f32[8]", "dp"), ("v", "f32[8]", "dp"), ("t", "s32[]", "", (1, 5))],
         ["dp", "dp", "dp"], draw={"v": "positive"})
LR, B1, B2, EPS, WD = 0.1, 0.5, 0.75, 0.125, 0.25
LOG1, LOG2 = -0.6931471805599453, -0.2876820724517809


def corrections(b, t):
    t = b.conv(t, "f32")
    return 1.0 - b.exp(t * LOG1), 1.0 - b.exp(t * LOG2)


def adam(b, g, p, m, v, t, form="plain"):
    c1, c2 = corrections(b, t)
    if form == "l2":
        g = b.guilty(g + p * WD)
    m, v = m * B1 + g * (1 - B1), v * B2 + g * g * (1 - B2)
    if form == "folded":
        u = m * (b.sqrt(c2) / c1) / (b.sqrt(v) + b.sqrt(c2) * EPS)
    elif form == "scaled_eps":
        u = b.guilty(m * (b.sqrt(c2) / c1) / (b.sqrt(v) + EPS))
    else:
        u = (m / c1) / (b.sqrt(v / c2) + EPS)
    if form == "after":
        p = b.guilty((p - u * LR) * (1 - LR * WD))
    elif form == "decay_first":
        p = p * (1 - LR * WD) - u * LR
    elif form == "l2":
        p = p - u * LR
    else:
        p = p - (u + p * WD) * LR
    return p, m, v


def mean_grad(b, g):
    return b.reshape(b.rs(g, 1) / 2.0, 4)


c.base(lambda b, g, p, m, v, t: adam(b, b.red(g, 0) / 2.0, p, m, v, t))
c.right()(lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t))
c.right("decay_first")(lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t, "decay_first"))
c.right("folded", note="corrections folded into the step size and the small number")(
    lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t, "folded"))
c.wrong("wrong-operand")(lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t, "l2"))
c.wrong("wrong-operand", "decay_after")(lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t, "after"))
c.wrong("scale", "small_number")(lambda b, g, p, m, v, t: adam(b, mean_grad(b, g), p, m, v, t, "scaled_eps"))
c.wrong("scale", "sum")(lambda b, g, p, m, v, t: adam(b, b.guilty(b.reshape(b.rs(g, 1), 4)), p, m, v, t))

# M17: batched updates at flattened places.
c = Case("M17_flattened_scatter", ["tillahoffmann/jax-mps#240", "tenstorrent/tt-metal#56875"],
         "Updates out of range are dropped; at flattened places they land in the next batch.",
         {"dp": 2}, [("x", "f32[2,5,3]", "dp"), ("at", "s32[2,4]", "dp", (0, 6)), ("u", "f32[2,4,3]", "dp")], ["dp"])
near = [("x", "f32[2,5,3]", "dp"), ("at", "s32[2,4]", "dp", (0, 4)), ("u", "f32[2,4,3]", "dp")]


def scatter_two(b, x, at, u):
    """x[n,r] += u[n,k] at r = at[n,k], by pairs of batch and row."""
    n = b.iota(f"s32[{at.d[0]},4]", 0)
    i = b.cat([b.reshape(v, *at.d, 1) for v in (n, at)], 2)
    return b.emit("scatter", x.t, x.d, [x, i, u], "update_window_dims={2}, inserted_window_dims={0,1}, "
                  f"scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=2, to_apply={b.reducer('add', x.t)}")


def flat(b, x, at, u):
    return b.reshape(b.scatter_rows(b.reshape(x, 10, 3), b.reshape(at, 8), b.reshape(u, 8, 3)), 2, 5, 3)


def whole(b, f, x, at, u):
    """The whole scatter on every device, then the device's batch."""
    return b.ds(f(b, b.ag(x, 0), b.ag(at, 0), b.ag(u, 0)), b.pid(), 1)


c.base(lambda b, x, at, u: scatter_two(b, x, at, u))
c.right()(lambda b, x, at, u: scatter_two(b, x, at, u))
c.right("own_batch")(lambda b, x, at, u: b.reshape(
    b.scatter_rows(b.reshape(x, 5, 3), b.reshape(at, 4), b.reshape(u, 4, 3)), 1, 5, 3))


@c.right("masked", note="places out of range are sent behind the end")
def _(b, x, at, u):
    def f(b, x, at, u):
        p = at + b.iota("s32[2,4]", 0) * 5
        return flat(b, x, b.where(at.cmp("LT", 5), p, 10), u)
    return whole(b, f, x, at, u)


@c.right("in_range", ins=near)
def _(b, x, at, u):
    return whole(b, lambda b, x, at, u: flat(b, x, at + b.iota("s32[2,4]", 0) * 5, u), x, at, u)


@c.wrong("offset")
def _(b, x, at, u):
    return whole(b, lambda b, x, at, u: flat(b, x, b.guilty(at + b.iota("s32[2,4]", 0) * 5), u), x, at, u)


@c.wrong("mask", "clamped", note="the last row takes what is out of range")
def _(b, x, at, u):
    return scatter_two(b, x, b.guilty(at.min(4)), u)


# M18: outputs of experts summed into their tokens.
c = Case("M18_repeated_rows", ["torch-spyre/torch-spyre#3638"],
         "Rows of experts are added to their tokens, several to one: the last one wins.",
         {"tp": 2}, [("y", "f32[8,6]", "-,tp"), ("w", "f32[8]", ""), ("x", "f32[4,6]", "-,tp")], ["-,tp"])
token = lambda b: b.reshape(b.bcast(b.iota("s32[4]"), [4, 2], [0]), 8)  # noqa: E731
weighed = lambda b, y, w: y * b.bcast(w, y.d, [0])  # noqa: E731
c.base(lambda b, y, w, x: b.scatter_rows(x, token(b), weighed(b, y, w)))
c.right()(lambda b, y, w, x: b.scatter_rows(x, token(b), weighed(b, y, w)))
c.right("summed", note="two rows per token, summed")(
    lambda b, y, w, x: x + b.red(b.reshape(weighed(b, y, w), 4, 2, 3), 1))
c.right("product", note="a product with a matrix of ones and zeros")(lambda b, y, w, x: x + b.dot(
    b.where(b.iota("s32[4,8]", 0).cmp("EQ", b.bcast(token(b), [4, 8], [1])), b.bcast(w, [4, 8], [1]), 0.0), y))
c.wrong("wrong-reducer")(lambda b, y, w, x: b.guilty(b.scatter_rows(x, token(b), weighed(b, y, w), "set")))
c.wrong("layout", "by_expert", note="rows ordered by the choice, then by the token")(
    lambda b, y, w, x: x + b.red(b.guilty(b.reshape(weighed(b, y, w), 2, 4, 3)), 0))

# M19: scales per group of a row-parallel quantised weight.
c = Case("M19_scales_per_group", ["vllm-project/vllm#41511"],
         "Scales per group of rows are not split with the rows: the group size is computed from the wrong count.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp"), ("w", "s8[8,5]", "tp", (-8, 7)), ("s", "f32[4,5]", "")], [""])


def unpack(b, w, s, group):
    k, n = w.d
    r = b.reshape(b.bcast(s, [s.d[0], group, n], [0, 2]), k, n)
    return b.conv(w, "f32") * r


c.base(lambda b, x, w, s: b.dot(x, unpack(b, w, s, 2)))
c.right()(lambda b, x, w, s: b.ar(b.dot(x, unpack(b, w, b.ds(s, b.pid() * 2, 2), 2))))


@c.right("per_group", note="products per group, scaled and summed")
def _(b, x, w, s):
    y = b.dot(b.reshape(x, 3, 2, 2), b.reshape(b.conv(w, "f32"), 2, 2, 5), 2, 1, (1,), (0,))
    return b.ar(b.red(y * b.bcast(b.ds(s, b.pid() * 2, 2), y.d, [0, 2]), 0))


c.right("split_scales", ins=[("x", "f32[3,8]", "-,tp"), ("w", "s8[8,5]", "tp", (-8, 7)), ("s", "f32[4,5]", "tp")])(
    lambda b, x, w, s: b.ar(b.dot(x, unpack(b, w, s, 2))))
c.wrong("wrong-dimension", note="four groups of one row")(lambda b, x, w, s: b.ar(b.dot(x, b.guilty(unpack(b, w, s, 1)))))
c.wrong("stale-slice", "first_groups")(lambda b, x, w, s: b.ar(b.dot(x, unpack(b, w, b.guilty(b.slice(s, (0, 2))), 2))))


# M31: statistics of groups of channels over a split image.
c = Case("M31_group_norm_of_rows", ["NVIDIA/physicsnemo#1421"],
         "Norms over groups of channels and all places of an image of five rows on two devices.",
         {"sp": 2}, [("x", "f32[2,5,3,4]", "-,sp"), ("w", "f32[4]", "")], ["-,sp"])


def group_norm(b, x, w, keep=None, whole=lambda v: v, count=30.0, one_pass=False):
    n, h, k, ch = x.d
    r = b.reshape(x, n, h, k, 2, 2)
    only = lambda v: v if keep is None else b.where(b.bcast(keep, r.d, [1]), v, 0.0)  # noqa: E731
    back = lambda v: b.bcast(v, r.d, [0, 3])  # noqa: E731
    mean = whole(b.red(only(r), [1, 2, 4])) / count
    e = r - back(mean)
    var = whole(b.red(only(r * r), [1, 2, 4])) / count - mean * mean if one_pass else whole(b.red(only(e * e), [1, 2, 4])) / count
    return b.reshape(e * back(b.rsqrt(var + 1e-3)), *x.d) * b.bcast(w, x.d, [3])


rows_held = lambda b: (b.iota("s32[3]") + b.pid() * 3).cmp("LT", 5)  # noqa: E731
c.base(lambda b, x, w: group_norm(b, x, w))
c.right()(lambda b, x, w: group_norm(b, x, w, rows_held(b), b.ar))
c.right("one_pass")(lambda b, x, w: group_norm(b, x, w, rows_held(b), b.ar, one_pass=True))
c.wrong("mask", note="the padding row is counted")(lambda b, x, w: group_norm(b, x, w, None, lambda v: b.guilty(b.ar(v))))
c.wrong("missing-all-reduce", "local")(lambda b, x, w: group_norm(b, x, w, rows_held(b), b.guilty, 15.0))
c.wrong("scale", "padded_count")(lambda b, x, w: group_norm(b, x, w, rows_held(b), lambda v: b.guilty(b.ar(v)), 36.0))

# M32: a linear recurrence over a split sequence.
c = Case("M32_state_between_devices", ["huggingface/accelerate#4177", "NVIDIA/Megatron-LM#6808"],
         "The state of a gated linear recurrence starts from zero on every device.",
         {"cp": 2}, [("a", "f32[6,3]", "cp"), ("u", "f32[6,3]", "cp")], ["cp"])


def recur(b, a, u, h, n):
    """Unrolled h_t = a_t h_{t-1} + u_t from state h; (all states, products of a up to each step)."""
    out, prods, p = [], [], None
    for t in range(n):
        at, ut = b.slice(a, (t, t + 1)), b.slice(u, (t, t + 1))
        h = ut if h is None else at * h + ut
        p = at if p is None else p * at
        out.append(h)
        prods.append(p)
    return b.cat(out), b.cat(prods)


def carried(b, s):
    """The last state of the device before; zeros on the first."""
    return b.cp(b.slice(s, (2, 3)), [(0, 1)])


c.base(lambda b, a, u: recur(b, a, u, None, 6)[0])


@c.right()
def _(b, a, u):
    s, p = recur(b, a, u, None, 3)
    return s + p * b.bcast(b.reshape(carried(b, s), 3), [3, 3], [1])


@c.right("started", note="the state of the first device starts the second's; computed twice")
def _(b, a, u):
    s, _ = recur(b, a, u, None, 3)
    return recur(b, a, u, carried(b, s), 3)[0]


@c.right("gathered")
def _(b, a, u):
    return b.ds(recur(b, b.ag(a, 0), b.ag(u, 0), None, 6)[0], b.pid() * 3, 3)


c.wrong("stale-slice", note="zero on every device")(lambda b, a, u: b.guilty(recur(b, a, u, None, 3)[0]))


@c.wrong("scale", "no_decay", note="the state is added without its decay")
def _(b, a, u):
    s, _ = recur(b, a, u, None, 3)
    return s + b.guilty(b.bcast(b.reshape(carried(b, s), 3), [3, 3], [1]))


c = Case("M32_state_in_loop", ["huggingface/accelerate#4177", "NVIDIA/Megatron-LM#6808"],
         "The same recurrence in a loop.",
         {"cp": 2}, [("a", "f32[6,3]", "cp"), ("u", "f32[6,3]", "cp")], ["cp"])


def loop_states(b, a, u, h):
    """(all states, last state) by a loop over rows."""
    def body(i, h, y, a, u):
        h = b.reshape(b.ds(a, i, 1), 3) * h + b.reshape(b.ds(u, i, 1), 3)
        return [h, b.dus(y, b.reshape(h, 1, 3), i), a, u]
    h, y = b.fori(0, a.d[0], [h, b.zeros(f"f32[{a.d[0]},3]"), a, u], body)[:2]
    return y, h


c.base(lambda b, a, u: loop_states(b, a, u, b.zeros("f32[3]"))[0])


@c.right()
def _(b, a, u):
    h = b.cp(loop_states(b, a, u, b.zeros("f32[3]"))[1], [(0, 1)])
    return loop_states(b, a, u, h)[0]


@c.right("products", note="local states plus products of the gates times the carried state")
def _(b, a, u):
    y, h = loop_states(b, a, u, b.zeros("f32[3]"))
    p, _ = loop_states(b, a, b.zeros("f32[3,3]"), b.full(1, "f32", [3]))
    return y + p * b.bcast(b.cp(h, [(0, 1)]), [3, 3], [1])


c.wrong("stale-slice")(lambda b, a, u: b.guilty(loop_states(b, a, u, b.zeros("f32[3]"))[0]))

# M33: a convolution with holes over a split axis.
c = Case("M33_halo_of_dilated_kernel", ["distdl/distdl#178"],
         "A convolution with dilation 2 over a split axis needs two columns of each neighbour.",
         {"sp": 4}, [("x", "f32[2,12,3]", "-,sp"), ("w", "f32[3,3,5]", "")], ["-,sp"])


def conv1(b, x, w, lo, hi, rd=2, ld=1, n=None):
    n = x.d[1] if n is None else n
    win = f"window={{size=3 pad={lo}_{hi}" + (f" lhs_dilate={ld}" if ld > 1 else "") + (f" rhs_dilate={rd}" if rd > 1 else "") + "}"
    return b.emit("convolution", x.t, [x.d[0], n, w.d[2]], [x, w], win + ", dim_labels=b0f_0io->b0f")


def halo(b, x, width, flip=False):
    up, down = [(k, k + 1) for k in range(3)], [(k + 1, k) for k in range(3)]
    left, right = (down, up) if flip else (up, down)
    a = b.cp(b.slice(x, None, (3 - width, 3)), left)
    z = b.cp(b.slice(x, None, (0, width)), right)
    return a, z


c.base(lambda b, x, w: conv1(b, x, w, 2, 2))


@c.right()
def _(b, x, w):
    a, z = halo(b, x, 2)
    return conv1(b, b.cat([a, x, z], 1), w, 0, 0, n=3)


@c.right("gathered", note="everything gathered, the device's columns cut out")
def _(b, x, w):
    g = b.pad(b.ag(x, 1), 0.0, (0, 0), (2, 2))
    return conv1(b, b.ds(g, b.pid() * 3, 7, 1), w, 0, 0, n=3)


@c.right("products", note="one product per tap")
def _(b, x, w):
    a, z = halo(b, x, 2)
    y = b.cat([a, x, z], 1)
    t = [b.dot(b.slice(y, None, (2 * k, 2 * k + 3)), b.reshape(b.slice(w, (k, k + 1)), 3, 5)) for k in range(3)]
    return t[0] + t[1] + t[2]


c.wrong("wrong-permute", "no_halo", note="zeros at every boundary")(
    lambda b, x, w: b.guilty(conv1(b, x, w, 2, 2)))


@c.wrong("wrong-permute", "flipped", note="each neighbour's columns on the other side")
def _(b, x, w):
    a, z = halo(b, x, 2, True)
    return conv1(b, b.cat([b.guilty(a), x, b.guilty(z)], 1), w, 0, 0, n=3)


@c.wrong("offset", "one_column", note="one column of each neighbour, as without dilation")
def _(b, x, w):
    a, z = halo(b, x, 1)
    return b.guilty(conv1(b, b.cat([a, x, z], 1), w, 1, 1, n=3))


# M34: an all-reduce moved out of a loop.
c = Case("M34_hoisted_scatter_gradient", ["openxla/xla#49143"],
         "Gradients of an embedding, summed over devices in every step, are summed once behind the loop.",
         {"dp": 2}, [("ids", "s32[3,4]", "-,dp", (0, 5)), ("g", "f32[3,4,2]", "-,dp"), ("acc", "f32[6,2]", "")], [""])


def embedding_steps(b, ids, g, start, each=lambda v: v):
    def body(i, acc, ids, g):
        k, u = b.ds(ids, i, 1), b.ds(g, i, 1)
        d = b.scatter_rows(b.zeros("f32[6,2]"), b.reshape(k, k.d[1]), b.reshape(u, u.d[1], 2))
        return [acc + each(d), ids, g]
    return b.fori(0, 3, [start, ids, g], body)[0]


c.base(lambda b, ids, g, acc: embedding_steps(b, ids, g, acc))
c.right()(lambda b, ids, g, acc: embedding_steps(b, ids, g, acc, b.ar))
c.right("hoisted")(lambda b, ids, g, acc: acc + b.ar(embedding_steps(b, ids, g, b.zeros("f32[6,2]"))))
c.right("at_once", note="all rows in one scatter")(lambda b, ids, g, acc: acc + b.ar(
    b.scatter_rows(b.zeros("f32[6,2]"), b.reshape(ids, 6), b.reshape(g, 6, 2))))
c.wrong("duplicated-bias", note="the start value is summed too")(
    lambda b, ids, g, acc: b.ar(b.guilty(embedding_steps(b, ids, g, acc))))
c.wrong("missing-all-reduce", "lost")(lambda b, ids, g, acc: b.guilty(embedding_steps(b, ids, g, acc)))

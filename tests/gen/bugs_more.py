"""Further reports of attention, norms, adapters and experts, collected apart from the others (ids M01 to M10)."""
from bugs import Case

INF = float("inf")


def rotary(b, x, cos, sin):
    """Halves of the last axis of x [t,h,d] rotated by cos, sin [t,d/2]."""
    t, h, d = x.d
    p, q = b.slice(x, None, None, (0, d // 2)), b.slice(x, None, None, (d // 2, d))
    c, s = b.bcast(cos, p.d, [0, 2]), b.bcast(sin, p.d, [0, 2])
    return b.cat([p * c - q * s, q * c + p * s], 2)


# M01: rotary positions of packed sequences, each split in front and back pieces over a context group.
order = [0, 3, 4, 7, 1, 2, 5, 6]
c = Case("M01_packed_rotary", ["NVIDIA/Megatron-LM#5243"],
         "Two packed sequences of four, each cut into front and back pieces over two devices: a table of angles per "
         "packed token is read without the offset of the sequence.",
         {"cp": 2}, [("x", "f32[8,2,4]", "cp"), ("cos", "f32[8,2]", ""), ("sin", "f32[8,2]", "")], ["cp"])
mine = lambda b, rows: b.reshape(b.ds(b.const(rows, "s32"), b.pid(), 1), len(rows[0]))  # noqa: E731


@c.base
def _(b, x, cos, sin):
    # The tokens are stored in the order of the devices.
    k = b.const(order, "s32")
    return rotary(b, x, b.rows(cos, k), b.rows(sin, k))


@c.right()
def _(b, x, cos, sin):
    k = mine(b, [order[:4], order[4:]])
    return rotary(b, x, b.rows(cos, k), b.rows(sin, k))


@c.right("slices", note="front and back pieces of both sequences by slices at the device's place")
def _(b, x, cos, sin):
    def take(v):
        # In each sequence the front piece, then the back one: 0, 3 on the first device, 1, 2 on the second.
        return b.cat([b.ds(v, s, 1) for seq in (0, 4) for s in (b.pid() + seq, 3 + seq - b.pid())])
    return rotary(b, x, take(cos), take(sin))


@c.wrong("offset", note="the second sequence reads the angles of the first")
def _(b, x, cos, sin):
    k = b.guilty(mine(b, [[0, 3, 0, 3], [1, 2, 1, 2]]))
    return rotary(b, x, b.rows(cos, k), b.rows(sin, k))


@c.wrong("offset", "contiguous", note="the angles of contiguous pieces")
def _(b, x, cos, sin):
    k = b.guilty(b.iota("s32[4]") + b.pid() * 4)
    return rotary(b, x, b.rows(cos, k), b.rows(sin, k))


# M02: linear position biases of head shards.
c = Case("M02_alibi_slopes", ["bigscience-workshop/Megatron-DeepSpeed#227", "flashinfer-ai/flashinfer#1606"],
         "Every device takes the slopes of the first heads for its own.",
         {"tp": 2}, [("q", "f32[4,5,3]", "tp"), ("k", "f32[4,5,3]", "tp"), ("v", "f32[4,5,3]", "tp")], ["tp"])


def slopes(b, h, off=None, step=2.0):
    i = b.iota(f"s32[{h}]") + 1
    i = i if off is None else i + off
    r = b.conv(i, "f32") * (-0.6931471805599453 * step)
    return b.exp(b.guilty(r) if step != 2.0 else r)


def alibi(b, q, k, v, m):
    h, t, d = q.d
    s = b.dot(q, k, 2, 2, (0,), (0,)) * 0.57735026
    i, j = b.iota(f"s32[{t},{t}]", 0), b.iota(f"s32[{t},{t}]", 1)
    s = s + b.bcast(m, s.d, [0]) * b.bcast(b.conv(j - i, "f32"), s.d, [1, 2])
    s = b.where(b.bcast(j.cmp("LE", i), s.d, [1, 2]), s, -INF)
    return b.dot(b.softmax(s), v, 2, 1, (0,), (0,))


c.base(lambda b, q, k, v: alibi(b, q, k, v, slopes(b, 4)))
c.right()(lambda b, q, k, v: alibi(b, q, k, v, slopes(b, 2, b.pid() * 2)))
c.right("cut", note="slopes of all heads, then the device's")(
    lambda b, q, k, v: alibi(b, q, k, v, b.ds(slopes(b, 4), b.pid() * 2, 2)))


@c.right("without_row_term", note="a bias by the column alone: softmax does not see what is constant along a row")
def _(b, q, k, v):
    h, t, d = q.d
    s = b.dot(q, k, 2, 2, (0,), (0,)) * 0.57735026
    i, j = b.iota(f"s32[{t},{t}]", 0), b.iota(f"s32[{t},{t}]", 1)
    m = slopes(b, 2, b.pid() * 2)
    s = s + b.bcast(m, s.d, [0]) * b.bcast(b.conv(j, "f32"), s.d, [1, 2])
    s = b.where(b.bcast(j.cmp("LE", i), s.d, [1, 2]), s, -INF)
    return b.dot(b.softmax(s), v, 2, 1, (0,), (0,))


c.wrong("offset")(lambda b, q, k, v: alibi(b, q, k, v, b.guilty(slopes(b, 2))))
c.wrong("scale", "local_count", note="the ratio of slopes from the local number of heads")(
    lambda b, q, k, v: alibi(b, q, k, v, b.guilty(slopes(b, 2, b.pid() * 2, 4.0))))

# M03: partial attention over pieces of the context, joined by log sums of exponentials.
c = Case("M03_base_of_logarithm", ["sgl-project/sglang#40903", "lightseekorg/tokenspeed#571"],
         "Pieces of attention are joined by natural exponentials of logarithms to base 2.",
         {"cp": 2}, [("q", "f32[2,3,4]", ""), ("k", "f32[2,6,4]", "-,cp"), ("v", "f32[2,6,4]", "-,cp")], [""])
LN2 = 0.6931471805599453


def scores(b, q, k):
    return b.dot(q, k, 2, 2, (0,), (0,)) * 0.5


def piece(b, q, k, v):
    """(attention over the piece, log of its sum of exponentials)."""
    s = scores(b, q, k)
    m = b.red(s, 2, "maximum")
    e = b.exp(s - b.bcast(m, s.d, [0, 1]))
    z = b.red(e, 2)
    o = b.dot(e, v, 2, 1, (0,), (0,))
    return o / b.bcast(z, o.d, [0, 1]), m + b.log(z)


def join(b, o, l, exp):
    """Weighted mean of the devices' pieces by exp(l - largest l)."""
    top = b.ar(l, None, "maximum")
    w = exp(l - top)
    n = b.ar(o * b.bcast(w, o.d, [0, 1]))
    return n / b.bcast(b.ar(w), o.d, [0, 1])


c.base(lambda b, q, k, v: b.dot(b.softmax(scores(b, q, k)), v, 2, 1, (0,), (0,)))


@c.right()
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    return join(b, o, l, b.exp)


@c.right("base_two", note="logarithms to base 2, joined by powers of 2")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    return join(b, o, l / LN2, lambda d: b.exp(d * LN2))


@c.right("normalised_weights", note="each device weighs by exp(l - log sum exp l)")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    top = b.ar(l, None, "maximum")
    whole = top + b.log(b.ar(b.exp(l - top)))
    return b.ar(o * b.bcast(b.exp(l - whole), o.d, [0, 1]))


@c.right("gathered", note="pieces gathered and joined on every device")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    o, l = b.ag(b.reshape(o, 1, *o.d), 0), b.ag(b.reshape(l, 1, *l.d), 0)
    w = b.exp(l - b.bcast(b.red(l, 0, "maximum"), l.d, [1, 2]))
    n = b.red(o * b.bcast(w, o.d, [0, 1, 2]), 0)
    return n / b.bcast(b.red(w, 0), n.d, [0, 1])


@c.wrong("scale")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    return join(b, o, b.guilty(l / LN2), b.exp)


@c.wrong("wrong-operand", "unweighted", note="the mean of the pieces")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    return b.ar(b.guilty(o)) / 2.0


@c.wrong("missing-all-reduce", "denominator")
def _(b, q, k, v):
    o, l = piece(b, q, k, v)
    top = b.ar(l, None, "maximum")
    w = b.guilty(b.exp(l - top))
    n = b.ar(o * b.bcast(w, o.d, [0, 1]))
    return n / b.bcast(w * 2.0, o.d, [0, 1])


# M04: batch statistics of uneven batches.
c = Case("M04_uneven_batch_statistics", ["pytorch/pytorch#22192", "PaddlePaddle/Paddle#32464", "leggedrobotics/rsl_rl#226"],
         "Mean and variance of five rows on two devices from statistics of devices that count the same.",
         {"dp": 2}, [("x", "f32[5,4]", "dp"), ("g", "f32[4]", ""), ("h", "f32[4]", "")], ["dp", "", ""])


def normed(b, x, mean, var, g, h):
    y = (x - b.bcast(mean, x.d, [1])) * b.bcast(b.rsqrt(var + 1e-3), x.d, [1])
    return y * b.bcast(g, x.d, [1]) + b.bcast(h, x.d, [1])


def held(b, x):
    """Which rows of the block are rows of the batch."""
    return (b.iota(f"s32[{x.d[0]},{x.d[1]}]", 0) + b.pid() * 3).cmp("LT", 5)


@c.base
def _(b, x, g, h):
    mean = b.red(x, 0) / 5.0
    e = x - b.bcast(mean, x.d, [1])
    var = b.red(e * e, 0) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


@c.right()
def _(b, x, g, h):
    p = held(b, x)
    mean = b.ar(b.red(b.where(p, x, 0.0), 0)) / 5.0
    e = b.where(p, x - b.bcast(mean, x.d, [1]), 0.0)
    var = b.ar(b.red(e * e, 0)) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


@c.right("moments", note="variance as the mean of squares minus the square of the mean")
def _(b, x, g, h):
    z = b.where(held(b, x), x, 0.0)
    mean = b.ar(b.red(z, 0)) / 5.0
    var = b.ar(b.red(z * z, 0)) / 5.0 - mean * mean
    return normed(b, x, mean, var, g, h), mean, var


@c.right("combined", note="local moments weighed by local counts, with the offset of the local mean")
def _(b, x, g, h):
    p = held(b, x)
    n = b.red(b.where(p, b.full(1, "f32", x.d), 0.0), 0)
    own = b.red(b.where(p, x, 0.0), 0) / n
    e = b.where(p, x - b.bcast(own, x.d, [1]), 0.0)
    mine = b.red(e * e, 0)
    mean = b.ar(own * n) / 5.0
    d = own - mean
    var = b.ar(mine + n * d * d) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


@c.wrong("scale", "mean_of_means")
def _(b, x, g, h):
    p = held(b, x)
    n = b.red(b.where(p, b.full(1, "f32", x.d), 0.0), 0)
    mean = b.ar(b.guilty(b.red(b.where(p, x, 0.0), 0) / n)) / 2.0
    e = b.where(p, x - b.bcast(mean, x.d, [1]), 0.0)
    var = b.ar(b.red(e * e, 0)) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


@c.wrong("wrong-operand", "summed_variances", note="variances about local means are summed")
def _(b, x, g, h):
    p = held(b, x)
    z = b.where(p, x, 0.0)
    n = b.red(b.where(p, b.full(1, "f32", x.d), 0.0), 0)
    mean = b.ar(b.red(z, 0)) / 5.0
    e = b.where(p, b.guilty(x - b.bcast(b.red(z, 0) / n, x.d, [1])), 0.0)
    var = b.ar(b.red(e * e, 0)) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


@c.wrong("mask", "padding", note="the padding row enters the squares")
def _(b, x, g, h):
    p = held(b, x)
    mean = b.ar(b.red(b.where(p, x, 0.0), 0)) / 5.0
    e = b.guilty(x - b.bcast(mean, x.d, [1]))
    var = b.ar(b.red(e * e, 0)) / 5.0
    return normed(b, x, mean, var, g, h), mean, var


# M05: grouped, gated root-mean-square norm of a split hidden axis.
c = Case("M05_groups_of_gated_norm", ["state-spaces/mamba#951", "state-spaces/mamba#547", "state-spaces/mamba#910"],
         "The group size of a norm comes from the local width and the global number of groups.",
         {"tp": 2}, [("x", "f32[3,16]", "-,tp"), ("z", "f32[3,16]", "-,tp"), ("w", "f32[16]", "tp"),
                     ("o", "f32[16,5]", "tp")], [""])


def gated(b, x, z, w, groups, before=True):
    t, d = x.d
    gate = z * (1.0 / (1.0 + b.exp(-z)))
    y = x * gate if before else x
    r = b.reshape(y, t, groups, d // groups)
    r = r if groups == d // 4 else b.guilty(r)
    ms = b.red(r * r, 2) / float(d // groups)
    r = r * b.bcast(b.rsqrt(ms + 1e-5), r.d, [0, 1])
    y = b.reshape(r, t, d) * b.bcast(w, x.d, [1])
    return y if before else b.guilty(y * gate)


c.base(lambda b, x, z, w, o: b.dot(gated(b, x, z, w, 4), o))
c.right()(lambda b, x, z, w, o: b.ar(b.dot(gated(b, x, z, w, 2), o)))


@c.right("logistic", note="the gate by the logistic operation, the norm's weight on the product's")
def _(b, x, z, w, o):
    y = x * z * b.un("logistic", z)
    r = b.reshape(y, 3, 2, 4)
    r = r * b.bcast(b.rsqrt(b.red(r * r, 2) / 4.0 + 1e-5), r.d, [0, 1])
    return b.ar(b.dot(b.reshape(r, 3, 8), o * b.bcast(w, o.d, [0])))


@c.wrong("wrong-operand", note="four groups of two on each device")
def _(b, x, z, w, o):
    return b.ar(b.dot(gated(b, x, z, w, 4), o))


@c.wrong("wrong-operand", "one_group", note="one group for all the device's columns")
def _(b, x, z, w, o):
    return b.ar(b.dot(gated(b, x, z, w, 1), o))


@c.wrong("wrong-operand", "gate_after", note="the gate behind the norm")
def _(b, x, z, w, o):
    return b.ar(b.dot(gated(b, x, z, w, 2, False), o))


# M06: low-rank adapter of a fused projection.
c = Case("M06_fused_adapter", ["NVIDIA/TensorRT-LLM#8063"],
         "The fused second factor of an adapter is split as one block, not per projection.",
         {"tp": 2}, [("x", "f32[3,4]", ""), ("wq", "f32[4,4]", "-,tp"), ("wk", "f32[4,2]", "-,tp"), ("wv", "f32[4,2]", "-,tp"),
                     ("a", "f32[4,2]", ""), ("bb", "f32[2,8]", "")], ["-,tp", "-,tp", "-,tp"])


def fused(b, x, ws, low, parts):
    w = b.cat(ws, 1)
    y = b.dot(x, w) + b.dot(low, parts) * 0.5
    out, at = [], 0
    for v in ws:
        out.append(b.slice(y, None, (at, at + v.d[1])))
        at += v.d[1]
    return out


c.base(lambda b, x, q, k, v, a, u: fused(b, x, [q, k, v], b.dot(x, a), u))


def per_part(b, u):
    return b.cat([b.ds(b.slice(u, None, (lo, lo + 2 * n)), b.pid() * n, n, 1) for lo, n in ((0, 2), (4, 1), (6, 1))], 1)


c.right()(lambda b, x, q, k, v, a, u: fused(b, x, [q, k, v], b.dot(x, a), per_part(b, u)))


@c.right("apart", note="projections and adapters one by one")
def _(b, x, q, k, v, a, u):
    low = b.dot(x * 0.5, a)
    return [b.dot(x, w) + b.ds(b.dot(low, b.slice(u, None, (lo, lo + 2 * n))), b.pid() * n, n, 1)
            for w, lo, n in ((q, 0, 2), (k, 4, 1), (v, 6, 1))]


c.wrong("axis-split")(lambda b, x, q, k, v, a, u: fused(b, x, [q, k, v], b.dot(x, a), b.guilty(b.ds(u, b.pid() * 4, 4, 1))))

# M07: adapter of smaller rank than its buffer.
c = Case("M07_rank_with_padding", ["vllm-project/vllm#31994"],
         "The rank is split by its own size, then padded and gathered: zeros stand between the parts.",
         {"tp": 2}, [("x", "f32[3,5]", ""), ("a", "f32[5,4]", ""), ("u", "f32[4,6]", "")], [""])


def low_rank(b, x, a, u, n, w):
    """The device's n columns of a, in a buffer of w columns; u in a buffer of 2w rows."""
    k = b.ds(b.pad(a, 0.0, (0, 0), (0, 2 * w - 4)), b.pid() * n, n, 1)
    y = b.pad(b.dot(x, k), 0.0, (0, 0), (0, w - n))
    return b.ag(y, 1), b.pad(u, 0.0, (0, 2 * w - 4))


c.base(lambda b, x, a, u: b.dot(b.dot(x, a), u))


@c.right()
def _(b, x, a, u):
    y, p = low_rank(b, x, a, u, 4, 4)
    return b.dot(y, p)


@c.right("even", note="no padding")
def _(b, x, a, u):
    y, p = low_rank(b, x, a, u, 2, 2)
    return b.dot(y, p)


@c.wrong("layout")
def _(b, x, a, u):
    y, p = low_rank(b, x, a, u, 2, 4)
    return b.dot(b.guilty(y), p)


# M08: a tied embedding: gradients of two stages, of which each device holds a part.
c = Case("M08_tied_embedding_parts", ["NVIDIA/Megatron-LM#844"],
         "Gradients of a tied weight are reduced over data first and lie in other parts on the two stages; these parts are added.",
         {"pp": 2, "dp": 2}, [("g", "f32[2,2,8,3]", "pp,dp")], [""])


def stage(b, g):
    return b.reshape(g, 8, 3)


c.base(lambda b, g: b.red(g, [0, 1]) / 2.0)
c.right()(lambda b, g: b.ag(b.ar(b.rs(stage(b, g), 0, "dp"), "pp"), 0, "dp") / 2.0)
c.right("embedding_first", note="over the stages first")(
    lambda b, g: b.ag(b.rs(b.ar(stage(b, g), "pp"), 0, "dp") / 2.0, 0, "dp"))
c.right("everyone")(lambda b, g: b.ar(stage(b, g) * 0.5))


@c.right("other_part", note="the second stage holds the other part, which is sent back before the sum")
def _(b, g):
    x = stage(b, g)
    flip = b.bcast(b.axis("pp").cmp("EQ", 1), x.d, [])
    x = b.where(flip, b.cat([b.slice(x, (4, 8)), b.slice(x, (0, 4))]), x)
    r = b.rs(x, 0, "dp")
    back = b.cp(r, [(0, 0), (1, 1), (2, 3), (3, 2)])
    return b.ag(b.ar(back, "pp"), 0, "dp") / 2.0


@c.wrong("layout")
def _(b, g):
    x = stage(b, g)
    flip = b.bcast(b.axis("pp").cmp("EQ", 1), x.d, [])
    x = b.where(flip, b.cat([b.slice(x, (4, 8)), b.slice(x, (0, 4))]), x)
    return b.ag(b.ar(b.guilty(b.rs(x, 0, "dp")), "pp"), 0, "dp") / 2.0


c.wrong("missing-all-reduce", "untied")(lambda b, g: b.ag(b.guilty(b.rs(stage(b, g), 0, "dp")), 0, "dp") / 2.0)
c.wrong("scale", "all_four")(lambda b, g: b.guilty(b.ar(stage(b, g)) / 4.0))

# M09: soft cap of attention scores.
c = Case("M09_cap_and_mask", ["onnx/onnx#7867", "emmtrix/emx-onnx-cgen#731"],
         "Scores are capped after the mask is added: masked positions get a finite score.",
         {"tp": 2}, [("q", "f32[4,3,2]", "tp"), ("k", "f32[4,3,2]", "tp"), ("v", "f32[4,3,2]", "tp"), ("bias", "f32[3,3]", "")], ["tp"])
cap = lambda b, s: b.tanh(s / 5.0) * 5.0  # noqa: E731


def capped(b, q, k, v, bias, order):
    s = b.dot(q, k, 2, 2, (0,), (0,)) * 0.70710678
    keep = b.iota("s32[3,3]", 1).cmp("LE", b.iota("s32[3,3]", 0))
    add = lambda s: s + b.bcast(bias, s.d, [1, 2])  # noqa: E731
    mask = lambda s: b.where(b.bcast(keep, s.d, [1, 2]), s, -INF)  # noqa: E731
    for f in order:
        s = {"cap": lambda s: cap(b, s), "bias": add, "mask": mask}[f](s)
        if f == "cap" and order[0] == "bias":
            b.guilty(s)
    return b.dot(b.softmax(s), v, 2, 1, (0,), (0,))


c.base(lambda b, q, k, v, m: capped(b, q, k, v, m, ["cap", "bias", "mask"]))
c.right()(lambda b, q, k, v, m: capped(b, q, k, v, m, ["cap", "bias", "mask"]))


@c.right("mask_first", note="the cap of minus infinity is masked again")
def _(b, q, k, v, m):
    return capped(b, q, k, v, m, ["mask", "cap", "bias", "mask"])


@c.right("scaled_query")
def _(b, q, k, v, m):
    return capped(b, q * 0.5, k * 2.0, v, m, ["cap", "bias", "mask"])


@c.wrong("wrong-operand")
def _(b, q, k, v, m):
    return capped(b, q, k, v, m, ["bias", "cap", "mask"])


@c.wrong("mask", "masked_before")
def _(b, q, k, v, m):
    return capped(b, q, k, v, m, ["bias", "mask", "cap"])


# M10: shared expert beside experts that are split.
c = Case("M10_shared_expert", ["sgl-project/sglang#26845"],
         "A gated shared expert on every device is summed with the routed ones.",
         {"ep": 2}, [("x", "f32[3,4]", ""), ("p", "f32[3,4]", ""), ("w1", "f32[4,4,6]", "ep"), ("w2", "f32[4,6,4]", "ep"),
                     ("up", "f32[4,6]", ""), ("down", "f32[6,4]", ""), ("gate", "f32[4,1]", "")], [""])


def silu(b, x):
    return x * b.un("logistic", x)


def routed(b, x, p, w1, w2):
    """Sum over experts of p[t,e] * mlp_e(x)."""
    e = w1.d[0]
    h = silu(b, b.dot(b.bcast(x, [e, *x.d], [1, 2]), w1, 2, 1, (0,), (0,)))
    y = b.dot(h, w2, 2, 1, (0,), (0,))
    return b.red(y * b.bcast(p, y.d, [1, 0]), 0)


def shared(b, x, s1, s2, sg):
    y = b.dot(silu(b, b.dot(x, s1)), s2)
    return y, b.bcast(b.reshape(b.un("logistic", b.dot(x, sg)), 3), y.d, [0])


def local_probs(b, p):
    return b.ds(p, b.pid() * 2, 2, 1)


@c.base
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return routed(b, x, p, w1, w2) + y * g


@c.right()
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return b.ar(routed(b, x, local_probs(b, p), w1, w2)) + y * g


@c.right("halved", note="the gate is divided by the number of devices")
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return b.ar(routed(b, x, local_probs(b, p), w1, w2) + y * (g / 2.0))


@c.right("split_shared", note="each device has half of the shared expert's hidden units")
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, b.ds(s1, b.pid() * 3, 3, 1), b.ds(s2, b.pid() * 3, 3), sg)
    return b.ar(routed(b, x, local_probs(b, p), w1, w2) + y * g)


@c.wrong("duplicated-bias")
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return b.ar(b.guilty(routed(b, x, local_probs(b, p), w1, w2) + y * g))


@c.wrong("scale", "halved_behind", note="the division without the sum")
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return b.ar(routed(b, x, local_probs(b, p), w1, w2)) + y * b.guilty(g / 2.0)


@c.wrong("stale-slice", "probabilities", note="every device reads the probabilities of the first experts")
def _(b, x, p, w1, w2, s1, s2, sg):
    y, g = shared(b, x, s1, s2, sg)
    return b.ar(routed(b, x, b.guilty(b.slice(p, None, (0, 2))), w1, w2)) + y * g

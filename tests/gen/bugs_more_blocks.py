"""Whole blocks: caches in pages, dispatch to experts, rings, stages (ids P..).

The faults are of kinds that were reported many times; cases without a link follow no single report.
"""
from bugs import Case

INF = float("inf")


def silu(b, x):
    return x * b.un("logistic", x)


def rms(b, x, w, eps=1e-5):
    k = len(x.d) - 1
    lead = list(range(k))
    ms = b.red(x * x, k) / float(x.d[k])
    return x * b.bcast(b.rsqrt(ms + eps), x.d, lead) * b.bcast(w, x.d, [k])


# P01: a cache in pages.
c = Case("P01_pages_of_cache", [],
         "A cache in pages of two slots: pages and slots of a sequence are found by a table.",
         {"tp": 2}, [("pool", "f32[6,2,4,3]", "-,-,tp"), ("q", "f32[4,3]", "tp"), ("k", "f32[4,3]", "tp"),
                     ("table", "s32[3]", "", (0, 5)), ("pos", "s32[]", "", (0, 5))], ["tp"])


def paged(b, pool, q, k, table, pos, slot=None, mask=None):
    h = q.d[0]
    page = b.reshape(b.ds(table, pos / 2, 1), 1)
    z = b.const(0, "s32")
    at = pos % 2 if slot is None else slot
    u = b.reshape(k, 1, 1, h, 3)
    pool = b.emit("dynamic-update-slice", "f32", pool.d, [pool, u, b.reshape(page), at, z, z])
    kv = b.reshape(b.rows(pool, table), 6, h, 3)
    s = b.dot(q, kv, 1, 2, (0,), (1,))
    last = pos if mask is None else mask
    s = b.where(b.iota(f"s32[{h},6]", 1).cmp("LE", b.bcast(last, s.d, [])), s, -INF)
    return b.dot(b.softmax(s), kv, 1, 0, (0,), (1,))


c.base(paged)
c.right()(paged)


@c.right("flat", note="pages and slots as one axis of slots")
def _(b, pool, q, k, table, pos):
    slots = b.reshape(pool, 12, 2, 3)
    i = b.reshape(b.bcast(table, [3, 2], [0]) * 2 + b.iota("s32[3,2]", 1), 6)
    page = b.reshape(b.ds(table, pos / 2, 1))
    slots = b.dus(slots, b.reshape(k, 1, 2, 3), page * 2 + pos % 2)
    kv = b.rows(slots, i)
    s = b.dot(q, kv, 1, 2, (0,), (1,))
    s = b.where(b.iota("s32[2,6]", 1).cmp("LE", b.bcast(pos, s.d, [])), s, -INF)
    return b.dot(b.softmax(s), kv, 1, 0, (0,), (1,))


@c.wrong("offset", "slot", note="pages of three slots are taken for pages of two")
def _(b, pool, q, k, table, pos):
    return paged(b, pool, q, k, table, pos, slot=b.guilty(pos / 3))


@c.wrong("mask", "one_more")
def _(b, pool, q, k, table, pos):
    return paged(b, pool, q, k, table, pos, mask=b.guilty(pos + 1))


# P02: tokens sent to experts of other devices, with room for all.
c = Case("P02_dispatch_to_experts", [],
         "Tokens are put into slots per expert, exchanged, worked on, exchanged back and weighed.",
         {"ep": 2}, [("x", "f32[6,4]", "ep"), ("z", "f32[6,2]", "ep"), ("w1", "f32[2,4,5]", "ep"), ("w2", "f32[2,5,4]", "ep")], ["ep"])


def choice(b, z):
    """Whether the second expert is chosen, the probability of the chosen one."""
    p = b.softmax(z)
    second = b.reshape(b.slice(z, None, (1, 2)), z.d[0]).cmp("GT", b.reshape(b.slice(z, None, (0, 1)), z.d[0]))
    return second, b.red(p, 1, "maximum")


def expert(b, x, w1, w2):
    """x [e,c,d] through expert e's two layers."""
    return b.dot(silu(b, b.dot(x, w1, 2, 1, (0,), (0,))), w2, 2, 1, (0,), (0,))


@c.base
def _(b, x, z, w1, w2):
    second, p = choice(b, z)
    y = expert(b, b.bcast(x, [2, *x.d], [1, 2]), w1, w2)
    y0, y1 = (b.reshape(b.slice(y, (k, k + 1)), *x.d) for k in (0, 1))
    return b.where(b.bcast(second, x.d, [0]), y1, y0) * b.bcast(p, x.d, [0])


def slots(b, x, second):
    """[expert, slot, d]: every token has its own slot in the buffer of its expert, zeros elsewhere."""
    s = b.bcast(second, x.d, [0])
    return b.cat([b.reshape(b.where(s, 0.0, x), 1, *x.d), b.reshape(b.where(s, x, 0.0), 1, *x.d)])


def exchanged(b, x, z, w1, w2, back=lambda b, y: y, weigh=True):
    second, p = choice(b, z)
    t = b.a2a(slots(b, x, second), 0)                      # [device, slot, d] of the own expert
    y = expert(b, b.reshape(t, 1, 6, 4), w1, w2)
    y = back(b, b.reshape(y, 2, 3, 4))
    y = b.a2a(y, 0)                                        # [expert, slot, d] of the own tokens
    y0, y1 = (b.reshape(b.slice(y, (k, k + 1)), 3, 4) for k in (0, 1))
    r = b.where(b.bcast(second, x.d, [0]), y1, y0)
    return r * b.bcast(p, x.d, [0]) if weigh else b.guilty(r)


c.right()(exchanged)


@c.right("summed", note="both buffers are summed: an expert maps zeros to zeros")
def _(b, x, z, w1, w2):
    second, p = choice(b, z)
    t = b.a2a(slots(b, x * 1.0, second), 0)
    y = b.a2a(b.reshape(expert(b, b.reshape(t, 1, 6, 4), w1, w2), 2, 3, 4), 0)
    return b.red(y, 0) * b.bcast(p, x.d, [0])


@c.right("reduce_scatter", note="tokens are gathered, each device works for its expert")
def _(b, x, z, w1, w2):
    second, p = choice(b, b.ag(z, 0))
    g = b.ag(x, 0)
    y = b.reshape(expert(b, b.reshape(g, 1, 6, 4), w1, w2), 6, 4) * b.bcast(p, [6, 4], [0])
    own = b.conv(second, "s32").cmp("EQ", b.bcast(b.pid(), [6], []))
    return b.rs(b.where(b.bcast(own, [6, 4], [0]), y, 0.0), 0)


@c.right("reduce_scatter_by_device", note="the same, the mask from a choice between the flag and its opposite")
def _(b, x, z, w1, w2):
    second, p = choice(b, b.ag(z, 0))
    y = b.reshape(expert(b, b.reshape(b.ag(x, 0), 1, 6, 4), w1, w2), 6, 4) * b.bcast(p, [6, 4], [0])
    own = b.where(b.bcast(b.pid().cmp("EQ", 1), [6], []), second, b.un("not", second))
    return b.rs(b.where(b.bcast(own, [6, 4], [0]), y, 0.0), 0)


@c.right("gathered", note="tokens are gathered, both experts' rows are gathered, each device picks its tokens'")
def _(b, x, z, w1, w2):
    second, p = choice(b, z)
    y = b.reshape(expert(b, b.reshape(b.ag(x, 0), 1, 6, 4), w1, w2), 1, 6, 4)
    y = b.ds(b.ag(y, 0), b.pid() * 3, 3, 1)
    y0, y1 = (b.reshape(b.slice(y, (k, k + 1)), 3, 4) for k in (0, 1))
    return b.where(b.bcast(second, x.d, [0]), y1, y0) * b.bcast(p, x.d, [0])


@c.right("all_tokens", note="every token to both experts")
def _(b, x, z, w1, w2):
    second, p = choice(b, z)
    t = b.a2a(b.bcast(x, [2, *x.d], [1, 2]), 0)
    y = b.a2a(b.reshape(expert(b, b.reshape(t, 1, 6, 4), w1, w2), 2, 3, 4), 0)
    y0, y1 = (b.reshape(b.slice(y, (k, k + 1)), 3, 4) for k in (0, 1))
    return b.where(b.bcast(second, x.d, [0]), y1, y0) * b.bcast(p, x.d, [0])


@c.wrong("layout", "interleaved", note="slots and devices are mixed before the way back")
def _(b, x, z, w1, w2):
    return exchanged(b, x, z, w1, w2, lambda b, y: b.guilty(b.reshape(b.tr(b.reshape(y, 3, 2, 4), 1, 0, 2), 2, 3, 4)))


@c.wrong("wrong-operand", "not_weighed")
def _(b, x, z, w1, w2):
    return exchanged(b, x, z, w1, w2, weigh=False)


@c.wrong("wrong-kind-collective", "not_sent_back")
def _(b, x, z, w1, w2):
    second, p = choice(b, z)
    t = b.a2a(slots(b, x, second), 0)
    y = b.guilty(b.reshape(expert(b, b.reshape(t, 1, 6, 4), w1, w2), 2, 3, 4))
    y0, y1 = (b.reshape(b.slice(y, (k, k + 1)), 3, 4) for k in (0, 1))
    return b.where(b.bcast(second, x.d, [0]), y1, y0) * b.bcast(p, x.d, [0])


# P03: a ring over four devices.
c = Case("P03_ring_of_four", [],
         "Causal attention of four blocks with a running maximum and sum, keys passed around a ring.",
         {"cp": 4}, [("q", "f32[8,3]", "cp"), ("k", "f32[8,3]", "cp"), ("v", "f32[8,3]", "cp")], ["cp"])


def causal(b, q, k, row, col):
    s = b.dot(q, k, 1, 1) * 0.57735026
    i = b.iota(f"s32[{s.d[0]},{s.d[1]}]", 0) + row
    j = b.iota(f"s32[{s.d[0]},{s.d[1]}]", 1) + col
    return b.where(j.cmp("LE", i), s, -INF)


@c.base
def _(b, q, k, v):
    return b.dot(b.softmax(causal(b, q, k, 0, 0)), v)


def ring(b, q, k, v, rescale=True, source=lambda b, step: (b.pid() + (4 - step)) % 4, pairs=None, bad=False):
    """Step by step with the keys of device pid - step."""
    pairs = pairs or [(d, (d + 1) % 4) for d in range(4)]
    m = l = o = None
    for step in range(4):
        s = causal(b, q, k, b.pid() * 2, source(b, step) * 2)
        top = b.red(s, 1, "maximum")
        n = top if m is None else m.max(top)
        e = b.exp(s - b.bcast(n, s.d, [0]))
        z, y = b.red(e, 1), b.dot(e, v)
        if m is None:
            l, o = z, y
        else:
            r = b.exp(m - n) if rescale else b.guilty(b.full(1, "f32", m.d))
            l, o = l * r + z, o * b.bcast(r, o.d, [0]) + y
        m = n
        if step < 3:
            k, v = b.cp(k, pairs), b.cp(v, pairs)
            if bad:
                b.guilty(k), b.guilty(v)
    return o / b.bcast(l, o.d, [0])


c.right()(ring)
c.right("gathered")(lambda b, q, k, v: b.dot(b.softmax(causal(b, q, b.ag(k, 0), b.pid() * 2, 0)), b.ag(v, 0)))


@c.right("two_halves", note="keys are gathered in pairs of devices, then exchanged between the pairs")
def _(b, q, k, v):
    pair = [[0, 1], [2, 3]]
    k, v = b.ag(k, 0, pair), b.ag(v, 0, pair)
    swap = [(0, 2), (1, 3), (2, 0), (3, 1)]
    half = b.pid() / 2
    s1 = causal(b, q, k, b.pid() * 2, half * 4)
    s2 = causal(b, q, b.cp(k, swap), b.pid() * 2, (1 - half) * 4)
    m = b.red(s1, 1, "maximum").max(b.red(s2, 1, "maximum"))
    e1, e2 = (b.exp(s - b.bcast(m, s.d, [0])) for s in (s1, s2))
    o = b.dot(e1, v) + b.dot(e2, b.cp(v, swap))
    return o / b.bcast(b.red(e1, 1) + b.red(e2, 1), o.d, [0])


c.wrong("scale", "not_rescaled")(lambda b, q, k, v: ring(b, q, k, v, rescale=False))
c.wrong("offset", "other_way", note="the mask of a ring in the other direction")(
    lambda b, q, k, v: ring(b, q, k, v, source=lambda b, step: b.guilty((b.pid() + step) % 4)))
c.wrong("wrong-permute", "other_pairs")(
    lambda b, q, k, v: ring(b, q, k, v, pairs=[((d + 1) % 4, d) for d in range(4)], bad=True))

# P04: cross entropy over a split vocabulary, forward and backward.
c = Case("P04_gradient_of_split_loss", [],
         "Loss and gradient over a split vocabulary with a label that is not counted, a cap and a squared log sum.",
         {"dp": 2, "tp": 2}, [("h", "f32[6,4]", "dp"), ("w", "f32[4,8]", "-,tp"), ("y", "s32[6]", "dp", (0, 7)),
                              ("keep", "s32[6]", "dp", (0, 1))], ["", "dp", "-,tp"])


def loss_and_gradients(b, h, w, y, keep, tp=lambda v, op: v, dp=lambda v: v, off=None, grad_h=None, cut=None):
    u = b.dot(h, w)
    t = b.tanh(u / 4.0)
    z = t * 4.0
    m = tp(b.red(z, 1, "maximum"), "maximum")
    e = b.exp(z - b.bcast(m, z.d, [0]))
    s = tp(b.red(e, 1), "add")
    lse = m + b.log(s)
    i = b.iota(f"s32[{z.d[0]},{z.d[1]}]", 1)
    hit = (i if off is None else i + off).cmp("EQ", b.bcast(y, z.d, [0]))
    label = tp(b.red(b.where(hit, z, 0.0), 1), "add")
    k = b.conv(keep, "f32")
    n = dp(b.red(k, 0)).max(1.0)
    loss = dp(b.red((lse - label + lse * lse * 0.01) * k, 0)) / n
    p = e / b.bcast(s, z.d, [0])
    dz = p * b.bcast(lse * 0.02 + 1.0, z.d, [0]) - b.where(hit, b.full(1, "f32", z.d), 0.0)
    du = dz * b.bcast(k / b.bcast(n, k.d, []), z.d, [0]) * (1.0 - t * t)
    if cut:
        du = cut(du)
    dh, dw = b.dot(du, w, 1, 1), b.dot(h, du, 0, 0)
    return loss, (grad_h or (lambda v: tp(v, "add")))(dh), dp(dw)


TP = lambda b: lambda v, op: b.ar(v, "tp", op)  # noqa: E731
DP = lambda b: lambda v: b.ar(v, "dp")  # noqa: E731
OFF = lambda b: b.axis("tp") * 4  # noqa: E731
c.base(loss_and_gradients)
c.right()(lambda b, *v: loss_and_gradients(b, *v, TP(b), DP(b), OFF(b)))
c.right("scattered", note="the gradient of the input by reduce-scatter and all-gather")(
    lambda b, *v: loss_and_gradients(b, *v, TP(b), DP(b), OFF(b), lambda g: b.ag(b.rs(g, 1, "tp"), 1, "tp")))
c.wrong("missing-all-reduce", "input")(lambda b, *v: loss_and_gradients(b, *v, TP(b), DP(b), OFF(b), b.guilty))
c.wrong("missing-all-reduce", "weight")(
    lambda b, *v: loss_and_gradients(b, *v, TP(b), lambda g: b.guilty(g) if g.d == [4, 4] else b.ar(g, "dp"), OFF(b)))
c.wrong("offset", "label")(lambda b, *v: loss_and_gradients(b, *v, TP(b), DP(b), b.guilty(b.axis("dp") * 4)))
c.wrong("wrong-group", "loss")(
    lambda b, *v: loss_and_gradients(b, *v, TP(b), lambda g: b.guilty(b.ar(g, "tp")) if not g.d else b.ar(g, "dp"), OFF(b)))

# P05: stages of a pipeline in one program.
c = Case("P05_stages_in_a_loop", [],
         "Two stages, four microbatches, five ticks: activations are passed on, outputs are kept on the last stage.",
         {"pp": 2}, [("x", "f32[4,2,3]", ""), ("w", "f32[2,3,3]", "pp"), ("n", "f32[2,3]", "pp")], [""])


def stage(b, h, w, n):
    return h + b.tanh(b.dot(rms(b, h, n), w))


@c.base
def _(b, x, w, n):
    h = b.reshape(x, 8, 3)
    for k in (0, 1):
        h = stage(b, h, b.reshape(b.slice(w, (k, k + 1)), 3, 3), b.reshape(b.slice(n, (k, k + 1)), 3))
    return b.reshape(h, 4, 2, 3)


def ticks(b, x, w, n, keep=lambda b, t: t - 1, unroll=False, gather=True):
    w, n = b.reshape(w, 3, 3), b.reshape(n, 3)
    first = lambda d: b.bcast(b.pid().cmp("EQ", 0), d, [])  # noqa: E731
    def body(i, h, out, x, w, n):
        feed = b.reshape(b.ds(x, i.min(3), 1), 2, 3)
        y = stage(b, b.where(first([2, 3]), feed, h), w, n)
        out = b.dus(out, b.reshape(y, 1, 2, 3), keep(b, i))
        return [b.cp(y, [(0, 1), (1, 0)]), out, x, w, n]
    state = [b.zeros("f32[2,3]"), b.zeros("f32[4,2,3]"), x, w, n]
    if unroll:
        for t in range(5):
            state = body(b.const(t, "s32"), *state)
    else:
        state = b.fori(0, 5, state, body)
    return b.ar(b.where(first([4, 2, 3]), 0.0, state[1]))


c.right()(ticks)
c.right("unrolled")(lambda b, x, w, n: ticks(b, x, w, n, unroll=True))


@c.right("by_hand", note="without ticks: each microbatch is sent once")
def _(b, x, w, n):
    w, n = b.reshape(w, 3, 3), b.reshape(n, 3)
    out = []
    for k in range(4):
        y = stage(b, b.reshape(b.slice(x, (k, k + 1)), 2, 3), w, n)
        y = stage(b, b.cp(y, [(0, 1)]), w, n)
        out.append(b.reshape(y, 1, 2, 3))
    return b.ar(b.where(b.bcast(b.pid().cmp("EQ", 1), [4, 2, 3], []), b.cat(out), 0.0))


c.wrong("offset", "late", note="outputs are kept one tick early")(lambda b, x, w, n: ticks(b, x, w, n, keep=lambda b, t: b.guilty(t.min(3))))


@c.wrong("wrong-permute", "first_stage", note="the outputs of the first stage are returned")
def _(b, x, w, n):
    w, n = b.reshape(w, 3, 3), b.reshape(n, 3)
    out = []
    for k in range(4):
        y = stage(b, b.reshape(b.slice(x, (k, k + 1)), 2, 3), w, n)
        y = stage(b, b.guilty(b.cp(y, [(1, 0)])), w, n)
        out.append(b.reshape(y, 1, 2, 3))
    return b.ar(b.where(b.bcast(b.pid().cmp("EQ", 1), [4, 2, 3], []), b.cat(out), 0.0))


# P06: a ranking across devices.
c = Case("P06_split_sort", ["pytorch/pytorch#151071"],
         "Sorts and running sums along a split axis work on the blocks.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp")], ["-,tp", "-,tp"], draw={"x": "distinct"})


def running(b, x):
    """Sums of everything up to each column, by a windowed sum."""
    n = x.d[1]
    return b.emit("reduce-window", "f32", x.d, [x, b.const(0.0)],
                  f"window={{size=1x{n} pad=0_0x{n - 1}_0}}, to_apply={b.reducer('add', 'f32')}")


c.base(lambda b, x: (b.sort_down(x, 1), running(b, x)))


def carry(b, x):
    """Sums of the blocks before."""
    s = b.ag(b.reshape(b.red(x, 1), 3, 1), 1)
    before = b.iota("s32[3,2]", 1).cmp("LT", b.bcast(b.pid(), [3, 2], []))
    return b.bcast(b.red(b.where(before, s, 0.0), 1), x.d, [0])


mine = lambda b, v: b.ds(v, b.pid() * 4, 4, 1)  # noqa: E731
c.right()(lambda b, x: (mine(b, b.sort_down(b.ag(x, 1), 1)), running(b, x) + carry(b, x)))
c.right("sorted_blocks", note="sorted blocks are gathered and sorted again")(
    lambda b, x: (mine(b, b.sort_down(b.ag(b.sort_down(x, 1), 1), 1)), mine(b, running(b, b.ag(x, 1)))))
c.wrong("axis-split", "local_sort")(lambda b, x: (b.guilty(b.sort_down(x, 1)), running(b, x) + carry(b, x)))
c.wrong("axis-split", "local_sums")(lambda b, x: (mine(b, b.sort_down(b.ag(x, 1), 1)), b.guilty(running(b, x))))


# P07: an adapter merged into its weight.
c = Case("P07_merged_adapter", ["InfiniTensor/InfiniTrain#150"],
         "A row-parallel layer with an adapter: both paths are summed over devices, together or apart.",
         {"tp": 2}, [("x", "f32[3,6]", "-,tp"), ("w", "f32[6,5]", "tp"), ("a", "f32[6,2]", "tp"), ("u", "f32[2,5]", "")], [""])
c.base(lambda b, x, w, a, u: b.dot(x, w) + b.dot(b.dot(x, a), u) * 0.5)
c.right()(lambda b, x, w, a, u: b.ar(b.dot(x, w) + b.dot(b.dot(x, a), u) * 0.5))
c.right("apart")(lambda b, x, w, a, u: b.ar(b.dot(x, w)) + b.dot(b.ar(b.dot(x, a)), u * 0.5))
c.right("merged", note="the adapter is added to the weight")(lambda b, x, w, a, u: b.ar(b.dot(x, w + b.dot(a, u) * 0.5)))
c.right("joined", note="one product with weight and adapter side by side")(
    lambda b, x, w, a, u: (lambda y: b.slice(y, None, (0, 5)) + b.dot(b.slice(y, None, (5, 7)), u) * 0.5)(b.ar(b.dot(x, b.cat([w, a], 1)))))
c.wrong("missing-all-reduce")(lambda b, x, w, a, u: b.ar(b.dot(x, w)) + b.dot(b.guilty(b.dot(x, a)), u) * 0.5)
c.wrong("duplicate-all-reduce", "twice")(lambda b, x, w, a, u: b.ar(b.dot(x, w) + b.guilty(b.dot(b.ar(b.dot(x, a)), u)) * 0.5))
c.wrong("scale", "merged")(lambda b, x, w, a, u: b.ar(b.dot(x, w + b.guilty(b.dot(a, u)))))

# P08: a mean of differences.
c = Case("P08_terms_of_a_loss", [],
         "A loss summed term by term: log sums and label scores apart, a weight that is used twice.",
         {"dp": 2}, [("h", "f32[6,3]", "dp"), ("w", "f32[3,5]", ""), ("y", "s32[6]", "dp", (0, 4))], ["", ""])


def terms(b, h, w, y):
    z = b.dot(h, w)
    m = b.red(z, 1, "maximum")
    lse = m + b.log(b.red(b.exp(z - b.bcast(m, z.d, [0])), 1))
    hit = b.iota(f"s32[{z.d[0]},5]", 1).cmp("EQ", b.bcast(y, z.d, [0]))
    return lse, b.red(b.where(hit, z, 0.0), 1), b.exp(z - b.bcast(lse, z.d, [0])), b.where(hit, b.full(1, "f32", z.d), 0.0)


@c.base
def _(b, h, w, y):
    lse, z, p, o = terms(b, h, w, y)
    return b.red(lse - z, 0) / 6.0, b.dot(h, p - o, 0, 0) / 6.0


@c.right()
def _(b, h, w, y):
    lse, z, p, o = terms(b, h, w, y)
    return b.ar(b.red(lse - z, 0)) / 6.0, b.ar(b.dot(h, p - o, 0, 0)) / 6.0


@c.right("apart", note="each term is summed on its own")
def _(b, h, w, y):
    lse, z, p, o = terms(b, h, w, y)
    return b.ar(b.red(lse, 0) - b.red(z, 0)) / 6.0, (b.ar(b.dot(h, p, 0, 0)) - b.ar(b.dot(h, o, 0, 0))) / 6.0


@c.wrong("missing-all-reduce", "label")
def _(b, h, w, y):
    lse, z, p, o = terms(b, h, w, y)
    return b.ar(b.red(lse, 0)) / 6.0 - b.guilty(b.red(z, 0)) / 3.0, b.ar(b.dot(h, p - o, 0, 0)) / 6.0


@c.wrong("missing-all-reduce", "gradient")
def _(b, h, w, y):
    lse, z, p, o = terms(b, h, w, y)
    return b.ar(b.red(lse - z, 0)) / 6.0, (b.ar(b.dot(h, p, 0, 0)) - b.guilty(b.dot(h, o, 0, 0)) * 2.0) / 6.0


# P09: masks that are added, selected and multiplied.
c = Case("P09_forms_of_masks", [],
         "A causal mask within documents: selected, added as minus infinity, multiplied after the exponential.",
         {"cp": 2}, [("q", "f32[6,3]", "cp"), ("k", "f32[6,3]", "cp"), ("v", "f32[6,3]", "cp"), ("doc", "s32[6]", "", (0, 2))], ["cp"])


def visible(b, n, doc, row, own, causal="LE", segments=True):
    m = b.iota(f"s32[{n},6]", 1).cmp(causal, b.iota(f"s32[{n},6]", 0) + row)
    return m & b.bcast(own, [n, 6], [0]).cmp("EQ", b.bcast(doc, [n, 6], [1])) if segments else m


c.base(lambda b, q, k, v, doc: b.dot(b.softmax(b.where(visible(b, 6, doc, 0, doc), b.dot(q, k, 1, 1), -INF)), v))


def local(b, q, k, doc, **kw):
    row = b.pid() * 3
    return b.dot(q, b.ag(k, 0), 1, 1), visible(b, 3, doc, row, b.ds(doc, row, 3), **kw)


@c.right()
def _(b, q, k, v, doc):
    s, m = local(b, q, k, doc)
    return b.dot(b.softmax(b.where(m, s, -INF)), b.ag(v, 0))


@c.right("added")
def _(b, q, k, v, doc):
    s, m = local(b, q, k, doc)
    return b.dot(b.softmax(s + b.where(m, b.full(0, "f32", s.d), -INF)), b.ag(v, 0))


@c.right("multiplied")
def _(b, q, k, v, doc):
    s, m = local(b, q, k, doc)
    e = b.exp(s) * b.conv(m, "f32")
    return b.dot(e, b.ag(v, 0)) / b.bcast(b.red(e, 1), [3, 3], [0])


@c.right("two_selections")
def _(b, q, k, v, doc):
    row = b.pid() * 3
    s = b.dot(q, b.ag(k, 0), 1, 1)
    s = b.where(visible(b, 3, doc, row, None, segments=False), s, -INF)
    own = b.ds(doc, row, 3)
    s = b.where(b.bcast(own, s.d, [0]).cmp("EQ", b.bcast(doc, s.d, [1])), s, -INF)
    return b.dot(b.softmax(s), b.ag(v, 0))


@c.wrong("mask", "documents", note="documents are not told apart")
def _(b, q, k, v, doc):
    s, _ = local(b, q, k, doc)
    return b.dot(b.softmax(b.where(b.guilty(visible(b, 3, doc, b.pid() * 3, None, segments=False)), s, -INF)), b.ag(v, 0))


@c.wrong("offset", "first_rows", note="the documents of the first device's rows")
def _(b, q, k, v, doc):
    s, _ = local(b, q, k, doc)
    m = visible(b, 3, doc, b.pid() * 3, b.guilty(b.slice(doc, (0, 3))))
    i, j = b.iota("s32[3,6]", 0) + b.pid() * 3, b.iota("s32[3,6]", 1)
    return b.dot(b.softmax(b.where(m | j.cmp("EQ", i), s, -INF)), b.ag(v, 0))


# P10: one key per step.
c = Case("P10_key_by_key", [],
         "Attention over a cache that is updated, key by key, with a running maximum.",
         {"tp": 2}, [("cache", "f32[5,4,3]", "-,tp"), ("q", "f32[4,3]", "tp"), ("new", "f32[4,3]", "tp"), ("at", "s32[]", "", (0, 4))], ["tp", "tp"])


def updated(b, cache, q, new, at):
    return b.dus(cache, b.reshape(b.tanh(new), 1, *new.d), at)


@c.base
def _(b, cache, q, new, at):
    kv = updated(b, cache, q, new, at)
    p = b.softmax(b.dot(q, kv, 1, 2, (0,), (1,)))
    return b.dot(p, kv, 1, 0, (0,), (1,)), b.reshape(b.ds(kv, at, 1), *q.d)


def stream(b, kv, q, scale=True):
    h = q.d[0]
    def body(i, m, l, o, q, kv):
        r = b.reshape(b.ds(kv, i, 1), h, 3)
        s = b.red(q * r, 1)
        n = m.max(s)
        f, e = b.exp(m - n), b.exp(s - n)
        o = (o * b.bcast(f, o.d, [0]) if scale else b.guilty(o * 1.0)) + r * b.bcast(e, o.d, [0])
        return [n, l * f + e, o, q, kv]
    st = b.fori(0, 5, [b.full(-INF, "f32", [h]), b.zeros(f"f32[{h}]"), b.zeros(f"f32[{h},3]"), q, kv], body)
    return st[2] / b.bcast(st[1], [h, 3], [0])


@c.right("cached", note="the new key is returned without reading it back")
def _(b, cache, q, new, at):
    kv = updated(b, cache, q, new, at)
    p = b.softmax(b.dot(q, kv, 1, 2, (0,), (1,)))
    return b.dot(p, kv, 1, 0, (0,), (1,)), b.tanh(new)


@c.right("streamed")
def _(b, cache, q, new, at):
    kv = updated(b, cache, q, new, at)
    return stream(b, kv, q), b.reshape(b.ds(kv, at, 1), 2, 3)


@c.wrong("scale", "not_rescaled")
def _(b, cache, q, new, at):
    kv = updated(b, cache, q, new, at)
    return stream(b, kv, q, False), b.reshape(b.ds(kv, at, 1), 2, 3)


@c.wrong("stale-slice", "before_update")
def _(b, cache, q, new, at):
    kv = updated(b, cache, q, new, at)
    p = b.softmax(b.dot(q, kv, 1, 2, (0,), (1,)))
    return b.dot(p, kv, 1, 0, (0,), (1,)), b.reshape(b.guilty(b.ds(cache, at, 1)), 2, 3)

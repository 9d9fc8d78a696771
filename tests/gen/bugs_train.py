"""Reports about training: losses, normalisers, gradients, sequence parallelism (ids B.., C.., G..)."""
from bugs import Case

INF = float("inf")


def lse_parts(b, z, red):
    """(row maximum, sum of exponentials) over dimension 1, completed by `red`."""
    m = red(b.red(z, 1, "maximum"), "maximum")
    return m, red(b.red(b.exp(z - b.bcast(m, z.d, [0])), 1), "add")


def pick(b, z, y, off=None):
    """Sum over columns of z at the label, 0 where the label is elsewhere."""
    i = b.iota(f"s32[{z.d[0]},{z.d[1]}]", 1)
    i = i if off is None else i + off
    return b.red(b.where(i.cmp("EQ", b.bcast(y, z.d, [0])), z, 0.0), 1)


# B02: label smoothing over a split vocabulary.
c = Case("B02_label_smoothing", ["NVIDIA/Megatron-LM#7464", "NVIDIA/Megatron-LM#737", "NVIDIA/Megatron-LM#5522"],
         "Label smoothing in a vocabulary-parallel loss uses the mean and the size of the local vocabulary.",
         {"tp": 2}, [("z", "f32[6,8]", "-,tp"), ("y", "s32[6]", "", (0, 7))], [""])


def smoothed(b, z, y, red, off, mean, k):
    m, s = lse_parts(b, z, red)
    lse = m + b.log(s)
    nll = lse - red(pick(b, z, y, off), "add")
    eps = 0.1 * k / (k - 1)
    return nll * (1 - eps) - (mean - lse) * eps


none = lambda v, op: v  # noqa: E731
c.base(lambda b, z, y: smoothed(b, z, y, none, None, b.red(z, 1) / 8.0, 8))
c.right()(lambda b, z, y: smoothed(b, z, y, lambda v, op: b.ar(v, None, op), b.pid() * 4, b.ar(b.red(z, 1)) / 8.0, 8))
c.right("mean_of_means", note="equal shards: the mean of local means is the mean")(
    lambda b, z, y: smoothed(b, z, y, lambda v, op: b.ar(v, None, op), b.pid() * 4, b.ar(b.red(z, 1) / 4.0) / 2.0, 8))
c.wrong("missing-all-reduce")(
    lambda b, z, y: smoothed(b, z, y, lambda v, op: b.ar(v, None, op), b.pid() * 4, b.guilty(b.red(z, 1)) / 4.0, 8))


@c.wrong("scale", "factor", note="smoothing factor from the local vocabulary size")
def _(b, z, y):
    r = smoothed(b, z, y, lambda v, op: b.ar(v, None, op), b.pid() * 4, b.ar(b.red(z, 1)) / 8.0, 4)
    return b.guilty(r)


# B03: gathered logits in a vocabulary-parallel loss.
c = Case("B03_gathered_logits", ["NVIDIA/Megatron-LM#7452"],
         "The sum of exponentials of already gathered logits is reduced again: the loss is too high by log(TP).",
         {"tp": 2}, [("z", "f32[4,8]", "")], [""])


def lse(b, z, red):
    m, s = lse_parts(b, z, red)
    return m + b.log(s)


c.base(lambda b, z: lse(b, z, none))
c.right()(lambda b, z: lse(b, z, none))
c.right("split", note="each device takes its columns first")(
    lambda b, z: lse(b, b.ds(z, b.pid() * 4, 4, 1), lambda v, op: b.ar(v, None, op)))
c.right("divided", note="reduced over copies and divided by their number")(
    lambda b, z: lse(b, z, lambda v, op: b.ar(v, None, op) / 2.0 if op == "add" else v))
c.wrong("duplicate-all-reduce")(
    lambda b, z: lse(b, z, lambda v, op: b.guilty(b.ar(v, None, op)) if op == "add" else b.ar(v, None, op)))

# B04: losses scaled by local token counts.
c = Case("B04_local_token_count", ["NVIDIA/Megatron-LM#7452", "NVIDIA/Megatron-LM#1532", "NVIDIA/Megatron-LM#3959", "NVIDIA/Megatron-LM#5047"],
         "A loss is divided by the number of tokens of the device, then averaged.",
         {"cp": 2}, [("loss", "f32[6,5]", "cp"), ("keep", "s32[6,5]", "cp", (0, 1))], [""])


def masked(b, x, k):
    m = b.conv(k, "f32")
    return b.red(x * m, [0, 1]), b.red(m, [0, 1])


@c.base
def _(b, x, k):
    s, n = masked(b, x, k)
    return s / n


@c.right()
def _(b, x, k):
    s, n = masked(b, x, k)
    return b.ar(s) / b.ar(n)


@c.right("weighted", note="mean of local quotients by the global count")
def _(b, x, k):
    s, n = masked(b, x, k)
    return b.ar(s / b.ar(n))


@c.wrong("scale", note="mean of local means")
def _(b, x, k):
    s, n = masked(b, x, k)
    return b.ar(b.guilty(s / n)) / 2.0


@c.wrong("missing-all-reduce", "count")
def _(b, x, k):
    s, n = masked(b, x, k)
    b.guilty(n)
    return b.ar(s) / (n * 2.0)


# B05: the group of another module.
c = Case("B05_group_of_another_module", ["NVIDIA/Megatron-LM#7452", "NVIDIA/Megatron-LM#7403"],
         "Recomputation gathers over the global group in place of the module's own.",
         {"dp": 2, "tp": 3}, [("x", "f32[4,9]", "dp,tp")], ["dp,-"])
c.base(lambda b, x: b.tanh(x))
c.right()(lambda b, x: b.ag(b.tanh(x), 1, "tp"))
c.right("cut", note="gathered over everyone, then the own half")(
    lambda b, x: b.ds(b.ag(b.tanh(x), 1), b.axis("dp") * 9, 9, 1))
c.wrong("wrong-group", "cut_first", note="gathered over everyone, then always the first half")(
    lambda b, x: b.guilty(b.slice(b.ag(b.tanh(x), 1), None, (0, 9))))
c.wrong("wrong-group")(lambda b, x: b.guilty(b.ag(b.tanh(x), 1, [[0, 2, 4], [1, 3, 5]])))

# B08: norm weight used on head shards.
c = Case("B08_norm_weight_on_heads", ["NVIDIA/Megatron-LM#7452"],
         "The gradient of a norm weight shared by head shards is not summed over them.",
         {"tp": 2}, [("x", "f32[3,4,5]", "-,tp"), ("dy", "f32[3,4,5]", "-,tp")], [""])


def unit(b, x):
    k = len(x.d) - 1
    ms = b.red(x * x, k) / float(x.d[k])
    return x * b.bcast(b.rsqrt(ms + 1e-5), x.d, range(k))


c.base(lambda b, x, dy: b.red(unit(b, x) * dy, [0, 1]))
c.right()(lambda b, x, dy: b.ar(b.red(unit(b, x) * dy, [0, 1])))
c.right("gathered_heads", note="summed over positions, gathered, summed over heads")(
    lambda b, x, dy: b.red(b.ag(b.red(unit(b, x) * dy, 0), 0), 0))
c.wrong("missing-all-reduce")(lambda b, x, dy: b.guilty(b.red(unit(b, x) * dy, [0, 1])))

# B10: layer norm under sequence parallelism.
c = Case("B10_layer_norm_gradient", ["NVIDIA/Megatron-LM#1446", "NVIDIA/Megatron-LM#474", "NVIDIA/TransformerEngine#435"],
         "Gradients of the final norm's weight and bias stay local under sequence parallelism.",
         {"tp": 2}, [("x", "f32[6,5]", "tp"), ("dy", "f32[6,5]", "tp")], ["", ""])


def centred(b, x):
    d = x - b.bcast(b.red(x, 1) / float(x.d[1]), x.d, [0])
    return d * b.bcast(b.rsqrt(b.red(d * d, 1) / float(x.d[1]) + 1e-5), x.d, [0])


c.base(lambda b, x, dy: (b.red(centred(b, x) * dy, 0), b.red(dy, 0)))
c.right()(lambda b, x, dy: (b.ar(b.red(centred(b, x) * dy, 0)), b.ar(b.red(dy, 0))))


@c.right("one_reduction", note="both in one all-reduce")
def _(b, x, dy):
    r = b.ar(b.cat([b.red(centred(b, x) * dy, 0), b.red(dy, 0)]))
    return b.slice(r, (0, 5)), b.slice(r, (5, 10))


c.wrong("missing-all-reduce")(lambda b, x, dy: (b.guilty(b.red(centred(b, x) * dy, 0)), b.ar(b.red(dy, 0))))
c.wrong("missing-all-reduce", "bias")(lambda b, x, dy: (b.ar(b.red(centred(b, x) * dy, 0)), b.guilty(b.red(dy, 0))))

# B11: two scale factors in two places.
c = Case("B11_two_scale_factors", ["NVIDIA/Megatron-LM#906", "NVIDIA/Megatron-LM#673"],
         "The loss is multiplied by the context-parallel size, the gradient divided by the size of both axes.",
         {"dp": 2, "cp": 3}, [("g", "f32[12,4]", "dp+cp")], [""])
c.base(lambda b, g: b.red(g, 0) / 12.0)
c.right(note="6 tokens per data-parallel rank; times cp; averaged over dp and cp")(
    lambda b, g: b.ar(b.red(g, 0) / 6.0 * 3.0) / 6.0)
c.right("plain")(lambda b, g: b.ar(b.red(g, 0)) / 12.0)
c.right("no_factor", note="no factor cp, averaged over dp only")(lambda b, g: b.ar(b.red(g, 0) / 6.0) / 2.0)
c.wrong("scale", note="the factor cp is missing")(lambda b, g: b.guilty(b.ar(b.red(g, 0) / 6.0) / 6.0))
c.wrong("scale", "factor", note="times cp, but averaged over dp only")(lambda b, g: b.guilty(b.ar(b.red(g, 0) / 6.0 * 3.0) / 2.0))
c.wrong("wrong-group", "dp_only")(lambda b, g: b.guilty(b.ar(b.red(g, 0) / 6.0 * 3.0, "dp")) / 6.0)

# B13: backward of attention over key shards.
c = Case("B13_attention_backward", ["NVIDIA/Megatron-LM#1464", "NVIDIA/Megatron-LM#1465", "NVIDIA/TransformerEngine#1557"],
         "Attention over key shards: right forward, but the backward normalises by the local sum.",
         {"cp": 2}, [("q", "f32[3,4]", ""), ("k", "f32[6,4]", "cp"), ("do", "f32[3,4]", "")], ["cp"])


def dv(b, q, k, do, red):
    z = b.dot(q, k, 1, 1)
    m, s = lse_parts(b, z, red)
    p = b.exp(z - b.bcast(m, z.d, [0])) / b.bcast(s, z.d, [0])
    return b.dot(p, do, 0, 0)


c.base(lambda b, q, k, do: dv(b, q, k, do, none))
c.right()(lambda b, q, k, do: dv(b, q, k, do, lambda v, op: b.ar(v, None, op)))
c.right("gathered_keys")(lambda b, q, k, do: b.ds(dv(b, q, b.ag(k, 0), do, none), b.pid() * 3, 3))
c.wrong("missing-all-reduce")(
    lambda b, q, k, do: dv(b, q, k, do, lambda v, op: b.ar(v, None, op) if op == "maximum" else b.guilty(v)))
c.wrong("missing-all-reduce", "both")(lambda b, q, k, do: dv(b, q, k, do, lambda v, op: b.guilty(v)))

# B15: expert gradients over the group of dense ones.
c = Case("B15_expert_group", ["NVIDIA/Megatron-LM#1622"],
         "Gradients of expert weights are reduced over the data group of dense weights.",
         {"o": 2, "e": 2, "t": 2}, [("g", "f32[6,4,5]", "o,e")], ["e"])
c.base(lambda b, g: b.red(g, 0))
c.right()(lambda b, g: b.ar(b.red(g, 0), "o"))
c.right("copies", note="over the copies on t too, halved")(lambda b, g: b.ar(b.red(g, 0), "o+t") / 2.0)
c.wrong("wrong-group")(lambda b, g: b.guilty(b.ar(b.red(g, 0), "o+e")))
c.wrong("wrong-group", "copies")(lambda b, g: b.guilty(b.ar(b.red(g, 0), "t")))

# B16: an accumulator that aliases its operand.
c = Case("B16_aliased_accumulator", ["NVIDIA/Megatron-LM#6660"],
         "Gradients double with every microbatch: the new value is an alias of the accumulator.",
         {"dp": 2}, [("g", "f32[3,4]", "-,dp")], ["dp"])
row = lambda b, g, k: b.reshape(b.slice(g, (k, k + 1)), g.d[1])  # noqa: E731
c.base(lambda b, g: b.red(g, 0))
c.right()(lambda b, g: row(b, g, 0) + row(b, g, 1) + row(b, g, 2))


@c.wrong("wrong-operand")
def _(b, g):
    acc = row(b, g, 0)
    for k in (1, 2):
        new = acc + row(b, g, k)
        acc = b.guilty(acc + new)
    return acc


# B17: a vocabulary that does not divide.
c = Case("B17_uneven_vocabulary", ["NVIDIA/Megatron-LM#1754"],
         "A vocabulary of 5 on 2 devices: the padded column counts in the sum of exponentials.",
         {"tp": 2}, [("z", "f32[4,5]", "-,tp")], [""])


def uneven(b, z, fill):
    i = b.iota("s32[4,3]", 1) + b.pid() * 3
    z = b.where(i.cmp("LT", 5), z, fill)
    return lse(b, z, lambda v, op: b.ar(v, None, op))


c.base(lambda b, z: lse(b, z, none))
c.right()(lambda b, z: uneven(b, z, -INF))
c.wrong("mask", "zeros", note="padding set to 0, which counts as exp(0)")(lambda b, z: b.guilty(uneven(b, z, 0.0)))


@c.wrong("mask", note="whatever the padding holds is counted")
def _(b, z):
    return lse(b, z, lambda v, op: b.guilty(b.ar(v, None, op)))


# B19: softmax after or before the choice of experts.
c = Case("B19_router_order", ["NVIDIA/Megatron-LM#894", "NVIDIA/Megatron-LM#955"],
         "Router weights: softmax of the chosen logits in place of the chosen of the softmax.",
         {}, [("x", "f32[3,5]", "")], [""], draw={"x": "distinct"})
topk = lambda b, x: b.slice(b.sort_down(x, 1), None, (0, 2))  # noqa: E731
c.base(lambda b, x: topk(b, b.softmax(x * 0.3)))


@c.right(note="softmax keeps the order: sort first, normalise by all, then cut")
def _(b, x):
    return b.slice(b.softmax(b.sort_down(x * 0.3, 1)), None, (0, 2))


c.wrong("wrong-operand")(lambda b, x: b.guilty(b.softmax(topk(b, x * 0.3))))

# B21: one orthogonalisation step on a fused weight.
c = Case("B21_fused_weight_orthogonalised", ["NVIDIA/Megatron-LM#7117"],
         "An optimiser step meant for each of three weights runs on the fused one.",
         {}, [("w", "f32[6,4]", "")], [""])


def newton(b, w):
    return w * 1.5 - b.dot(b.dot(w, w, 1, 1), w) * 0.5


c.base(lambda b, w: b.cat([newton(b, b.slice(w, (2 * k, 2 * k + 2))) for k in range(3)]))


@c.right("batched")
def _(b, w):
    v = b.reshape(w, 3, 2, 4)
    g = b.dot(v, v, 2, 2, [0], [0])
    return b.reshape(v * 1.5 - b.dot(g, v, 2, 1, [0], [0]) * 0.5, 6, 4)


c.wrong("axis-split")(lambda b, w: b.guilty(newton(b, w)))

# B22: a layout contract broken before a gather.
c = Case("B22_gather_after_transpose", ["NVIDIA-NeMo/Megatron-Bridge#5385"],
         "A value transposed to batch first goes into a layer that gathers dimension 0.",
         {"sp": 2}, [("x", "f32[4,3,5]", "sp")], [""])
c.base(lambda b, x: b.tr(x, 1, 0, 2))
c.right()(lambda b, x: b.tr(b.ag(x, 0), 1, 0, 2))
c.right("dimension_1")(lambda b, x: b.ag(b.tr(x, 1, 0, 2), 1))
c.wrong("wrong-dimension")(lambda b, x: b.reshape(b.guilty(b.ag(b.tr(x, 1, 0, 2), 0)), 3, 4, 5))

# B25: embedding gradient of a fused loss.
c = Case("B25_fused_loss_gradient", ["apple/ml-cross-entropy#42"],
         "A vocabulary-parallel fused loss does not reduce the gradient of its input.",
         {"tp": 2}, [("dz", "f32[4,8]", "-,tp"), ("w", "f32[8,5]", "tp")], [""])
c.base(lambda b, dz, w: b.dot(dz, w) * 0.25)
c.right()(lambda b, dz, w: b.ar(b.dot(dz, w)) * 0.25)
c.right("scaled_first")(lambda b, dz, w: b.ar(b.dot(dz * 0.25, w)))
c.right("scattered", note="reduce-scatter, then all-gather")(lambda b, dz, w: b.ag(b.rs(b.dot(dz, w), 0), 0) * 0.25)
c.wrong("missing-all-reduce")(lambda b, dz, w: b.guilty(b.dot(dz, w)) * 0.25)
c.wrong("wrong-kind-collective", "gathered", note="gathered and cut where a sum is needed")(
    lambda b, dz, w: b.slice(b.guilty(b.ag(b.dot(dz, w), 0)), (0, 4)) * 0.25)

# B26: a reduction whose result nobody reads.
c = Case("B26_result_not_used", ["NovaSky-AI/SkyRL#1886"],
         "The all-reduce runs on a temporary copy; the program goes on with its operand.",
         {"dp": 2}, [("x", "f32[6,4]", "dp")], [""])
c.base(lambda b, x: b.tanh(b.red(x, 0)))
c.right()(lambda b, x: b.tanh(b.ar(b.red(x, 0))))


@c.wrong("missing-all-reduce")
def _(b, x):
    s = b.guilty(b.red(x, 0))
    b.guilty(b.ar(b.reshape(s, 4, 1)))
    return b.tanh(s)


# B28: mean in place of sum.
c = Case("B28_mean_for_sum", ["EleutherAI/gpt-neox#1259"],
         "The hook of a norm's gradient averages over tensor-parallel ranks where it should add.",
         {"tp": 4}, [("g", "f32[8,3]", "tp")], [""])
c.base(lambda b, g: b.red(g, 0))
c.right()(lambda b, g: b.ar(b.red(g, 0)))
c.wrong("scale")(lambda b, g: b.guilty(b.ar(b.red(g, 0)) / 4.0))
c.wrong("scale", "first")(lambda b, g: b.ar(b.guilty(b.red(g, 0) / 4.0)))

# B29: shared keys of multi-query attention.
c = Case("B29_multi_query_gradient", ["bigcode-project/Megatron-LM#11"],
         "Gradients of the shared key weight and its bias are not summed over query heads on other devices.",
         {"tp": 2}, [("x", "f32[5,3]", ""), ("dk", "f32[4,5,6]", "tp")], ["", ""])
c.base(lambda b, x, dk: (b.dot(x, b.red(dk, 0), 0, 0), b.red(dk, [0, 1])))
c.right()(lambda b, x, dk: (b.dot(x, b.ar(b.red(dk, 0)), 0, 0), b.ar(b.red(dk, [0, 1]))))
c.right("late")(lambda b, x, dk: (b.ar(b.dot(x, b.red(dk, 0), 0, 0)), b.ar(b.red(dk, [0, 1]))))
c.wrong("missing-all-reduce")(lambda b, x, dk: (b.guilty(b.dot(x, b.red(dk, 0), 0, 0)), b.ar(b.red(dk, [0, 1]))))
c.wrong("missing-all-reduce", "bias")(lambda b, x, dk: (b.ar(b.dot(x, b.red(dk, 0), 0, 0)), b.guilty(b.red(dk, [0, 1]))))
c.wrong("duplicate-all-reduce", "twice")(
    lambda b, x, dk: (b.guilty(b.ar(b.dot(x, b.ar(b.red(dk, 0)), 0, 0))), b.ar(b.red(dk, [0, 1]))))

# B30: a rotary key shared by sharded heads.
c = Case("B30_shared_rotary_key", ["pytorch/torchtitan#1373"],
         "A key is replicated and expanded to sharded heads; its gradient lacks the sum over devices.",
         {"tp": 2}, [("ds", "f32[4,5,7]", "tp"), ("q", "f32[4,5,3]", "tp")], [""])
dk = lambda b, s, q: b.red(b.dot(s, q, 1, 1, [0], [0]), 0)  # noqa: E731
c.base(dk)
c.right()(lambda b, s, q: b.ar(dk(b, s, q)))
c.right("one_dot", note="heads contracted in the dot")(lambda b, s, q: b.ar(b.dot(s, q, [0, 1], [0, 1])))
c.wrong("missing-all-reduce")(lambda b, s, q: b.guilty(dk(b, s, q)))

# B37: norm over replicated and sharded parameters.
c = Case("B37_clip_norm_of_shards", ["NVIDIA/Megatron-LM#7452"],
         "Parameters split by head count as replicated ones in the clipping norm: one shard only.",
         {"tp": 2}, [("w", "f32[3]", ""), ("s", "f32[4]", "tp")], [""])
sq = lambda b, v: b.red(v * v, 0)  # noqa: E731
c.base(lambda b, w, s: b.sqrt(sq(b, w) + sq(b, s)))
c.right()(lambda b, w, s: b.sqrt(sq(b, w) + b.ar(sq(b, s))))
c.right("first_device", note="replicated ones are counted on device 0 only")(
    lambda b, w, s: b.sqrt(b.ar(b.where(b.pid().cmp("EQ", 0), sq(b, w), 0.0) + sq(b, s))))
c.right("halved")(lambda b, w, s: b.sqrt(b.ar(sq(b, w) * 0.5 + sq(b, s))))
c.wrong("mask")(lambda b, w, s: b.sqrt(sq(b, w) + b.ar(b.guilty(b.where(b.pid().cmp("EQ", 0), sq(b, s), 0.0)))))
c.wrong("duplicate-all-reduce", "replicated", note="replicated ones are counted on every device")(
    lambda b, w, s: b.sqrt(b.guilty(b.ar(sq(b, w) + sq(b, s)))))
c.wrong("missing-all-reduce", "local")(lambda b, w, s: b.sqrt(sq(b, w) + b.guilty(sq(b, s))))

# C01: the second exchange of Ulysses.
c = Case("C01_second_all_to_all", ["deepspeedai/DeepSpeed#5664", "deepspeedai/DeepSpeed#8317", "deepspeedai/DeepSpeed#7868",
                                    "deepspeedai/DeepSpeed#5808", "deepspeedai/DeepSpeed#5823", "deepspeedai/DeepSpeed#5366"],
         "The exchange back to sequence shards mixes tokens and heads; all shapes agree.",
         {"sp": 2}, [("x", "f32[4,3,4,2]", "-,-,sp")], ["sp"])


def back(b, x, perm, out):
    """[S,B,H/P,D] -> exchanged [P,S/P,B,H/P,D], permuted and joined."""
    s, n, h, d = x.d
    y = b.a2a(b.reshape(x, 2, s // 2, n, h, d), 0)
    return b.reshape(b.guilty(b.tr(y, *perm)) if perm else b.guilty(y), *out)


c.base(lambda b, x: x * 2.0)
c.right()(lambda b, x: back(b, x * 2.0, (1, 2, 0, 3, 4), (2, 3, 4, 2)))
c.right("gather", note="gathers the heads and cuts the sequence")(lambda b, x: b.ds(b.ag(x * 2.0, 2), b.pid() * 2, 2))
c.wrong("layout")(lambda b, x: back(b, x * 2.0, None, (2, 3, 4, 2)))
c.wrong("layout", "batch_first", note="the formula for another order of axes")(
    lambda b, x: back(b, x * 2.0, (1, 0, 2, 3, 4), (2, 3, 4, 2)))

c = Case("C01_batch_one", ["deepspeedai/DeepSpeed#5664"],
         "With a batch of one the permutation that misplaces the batch is right: a test with it hides the fault.",
         {"sp": 2}, [("x", "f32[4,1,4,2]", "-,-,sp")], ["sp"])
c.base(lambda b, x: x * 2.0)
c.right()(lambda b, x: back(b, x * 2.0, (1, 2, 0, 3, 4), (2, 1, 4, 2)))
c.right("batch_first")(lambda b, x: back(b, x * 2.0, (1, 0, 2, 3, 4), (2, 1, 4, 2)))
c.wrong("layout")(lambda b, x: back(b, x * 2.0, None, (2, 1, 4, 2)))

# C02: tokens dropped by a floor division.
c = Case("C02_tokens_dropped", ["deepspeedai/DeepSpeed#7384"],
         "A sequence of 9 on 2 devices is cut into shards of 4: the last token is never used.",
         {"sp": 2}, [("x", "f32[9,3]", "")], [""])
c.base(lambda b, x: b.red(x, 0))
c.right()(lambda b, x: b.ar(b.red(b.ds(b.pad(x, 0, (0, 1)), b.pid() * 5, 5), 0)))
c.right("rest", note="the rest is added once more after the reduction")(
    lambda b, x: b.ar(b.red(b.ds(x, b.pid() * 4, 4), 0)) + b.reshape(b.slice(x, (8, 9)), 3))
c.wrong("axis-split")(lambda b, x: b.ar(b.red(b.guilty(b.ds(x, b.pid() * 4, 4)), 0)))
c.wrong("axis-split", "clamped", note="shards of 5 without padding: the start of the second is clamped, a token counts twice")(
    lambda b, x: b.ar(b.red(b.guilty(b.ds(x, b.pid() * 5, 5)), 0)))

# C03: head ranges from another model.
c = Case("C03_stale_head_count", ["deepspeedai/DeepSpeed#8291", "deepspeedai/DeepSpeed#8316"],
         "12 heads over 4 devices with the ranges of a model of 16: 4, 4, 4 and none.",
         {"tp": 4}, [("x", "f32[12,5]", "")], [""])
c.base(lambda b, x: b.red(x, 0))
c.right()(lambda b, x: b.ar(b.red(b.ds(x, b.pid() * 3, 3), 0)))


@c.right("masked", note="ranges of 4, the fourth masked out")
def _(b, x):
    s = b.red(b.ds(x, b.pid() * 4, 4), 0)
    return b.ar(b.where(b.bcast(b.pid().cmp("LT", 3), [5], []), s, 0.0))


c.wrong("axis-split", note="the fourth range is clamped to the third")(
    lambda b, x: b.ar(b.red(b.guilty(b.ds(x, b.pid() * 4, 4)), 0)))
c.wrong("axis-split", "short", note="three devices of 3, the fourth none")(
    lambda b, x: b.ar(b.guilty(b.where(b.bcast(b.pid().cmp("LT", 3), [5], []), b.red(b.ds(x, b.pid() * 3, 3), 0), 0.0))))

# C04: division by the data-parallel size only.
c = Case("C04_divided_by_dp_only", ["deepspeedai/DeepSpeed#5248", "deepspeedai/DeepSpeed#5419", "deepspeedai/DeepSpeed#6841"],
         "Sequence-parallel gradients are too large by the size of the sequence group.",
         {"dp": 2, "sp": 4}, [("g", "f32[16,3]", "dp+sp")], [""])
c.base(lambda b, g: b.red(g, 0) / 16.0)
c.right()(lambda b, g: b.ar(b.red(g, 0) / 2.0) / 8.0)
c.right("two_steps")(lambda b, g: b.ar(b.ar(b.red(g, 0) / 2.0, "sp") / 4.0, "dp") / 2.0)
c.wrong("scale")(lambda b, g: b.guilty(b.ar(b.red(g, 0) / 2.0) / 2.0))
c.wrong("missing-all-reduce", "one_axis")(lambda b, g: b.guilty(b.ar(b.red(g, 0) / 2.0, "dp")) / 2.0)

# C07: ratio of query to key heads.
c = Case("C07_head_ratio", ["vllm-project/vllm-omni#5716"],
         "Query and key heads padded apart: 12 to 3 becomes 12 to 4, and queries read other keys.",
         {"tp": 2}, [("q", "f32[12,5]", "tp"), ("k", "f32[3,5]", "")], ["tp"])


def heads(b, q, k, ratio):
    i = b.guilty((b.iota("s32[6]") + b.pid() * 6) / ratio)
    return b.red(q * b.rows(k, i), 1)


c.base(lambda b, q, k: b.red(b.reshape(b.reshape(q, 3, 4, 5) * b.bcast(k, [3, 4, 5], [0, 2]), 12, 5), 1))
c.right()(lambda b, q, k: heads(b, q, k, 4))
c.right("expanded")(lambda b, q, k: b.red(q * b.ds(b.reshape(b.bcast(k, [3, 4, 5], [0, 2]), 12, 5), b.pid() * 6, 6), 1))
c.wrong("offset", note="the fourth key is padding")(lambda b, q, k: heads(b, q, b.pad(k, 0, (0, 1)), 3))
c.wrong("layout", "interleaved")(lambda b, q, k: b.red(q * b.guilty(
    b.ds(b.reshape(b.bcast(k, [4, 3, 5], [1, 2]), 12, 5), b.pid() * 6, 6)), 1))

# C08: a block of keys that is masked out entirely.
c = Case("C08_fully_masked_block", ["vllm-project/vllm-omni#767", "vllm-project/vllm-omni#4767"],
         "A query whose block of keys is masked out entirely gives exp(-inf - -inf) while blocks are merged.",
         {"sp": 2}, [("z", "f32[5,6]", "-,sp"), ("v", "f32[6,3]", "sp")], [""])


def causal(b, z, off, joint):
    """Keys j <= i + joint are visible."""
    j = b.iota(f"s32[{z.d[0]},{z.d[1]}]", 1)
    j = j if off is None else j + off
    return b.where(j.cmp("LE", b.iota(f"s32[{z.d[0]},{z.d[1]}]", 0) + joint), z, -INF)


def merge(b, z, v, guard, joint=1):
    z = causal(b, z, b.pid() * 3, joint)
    m = b.red(z, 1, "maximum")
    safe = b.where(m.cmp("GT", -INF), m, 0.0) if guard else m
    e = b.exp(z - b.bcast(safe, z.d, [0]))
    w = b.exp(m - b.ar(m, None, "maximum"))
    o = b.ar(b.dot(e, v) * b.bcast(w, [5, 3], [0]))
    return o / b.bcast(b.ar(b.red(e, 1) * w), [5, 3], [0])


@c.base
def _(b, z, v):
    return b.dot(b.softmax(causal(b, z, None, 1)), v)


c.right()(lambda b, z, v: merge(b, z, v, True))


@c.right("global_maximum", note="the maximum over all keys is never -inf")
def _(b, z, v):
    z = causal(b, z, b.pid() * 3, 1)
    m, s = lse_parts(b, z, lambda v, op: b.ar(v, None, op))
    return b.ar(b.dot(b.exp(z - b.bcast(m, z.d, [0])) / b.bcast(s, z.d, [0]), v))


c.wrong("mask", note="NaN")(lambda b, z, v: b.guilty(merge(b, z, v, False)))
c.wrong("offset", "joint", note="the mask forgets the joint token")(lambda b, z, v: b.guilty(merge(b, z, v, True, 0)))

# C10: global expert ids.
c = Case("C10_global_expert_ids", ["deepspeedai/DeepSpeed#6589", "flashinfer-ai/flashinfer#3547", "vllm-project/vllm-gaudi#1796"],
         "Local experts are indexed with global ids.",
         {"ep": 2}, [("ids", "s32[5]", "", (0, 5)), ("x", "f32[5,3]", ""), ("w", "f32[6,3]", "ep")], [""])


def expert(b, ids, x, w, shift):
    i = ids - b.pid() * 3 if shift else ids
    mine = i.cmp("GE", 0) & i.cmp("LT", 3)
    y = x * b.guilty(b.rows(w, b.where(mine, i, 0)))
    return b.ar(b.where(b.bcast(mine, [5, 3], [0]), y, 0.0))


c.base(lambda b, ids, x, w: x * b.rows(w, ids))
c.right()(lambda b, ids, x, w: expert(b, ids, x, w, True))
c.right("gather")(lambda b, ids, x, w: x * b.rows(b.ag(w, 0), ids))
c.wrong("offset", note="ids 0 to 2 are read on both devices, 3 to 5 on none")(lambda b, ids, x, w: expert(b, ids, x, w, False))


@c.wrong("mask", "no_mask", note="out of range ids are clamped and counted")
def _(b, ids, x, w):
    return b.ar(b.guilty(x * b.rows(w, (ids - b.pid() * 3).max(0).min(2))))


# G01: mean of per-step means.
c = Case("G01_mean_of_step_means", ["huggingface/transformers#34191", "huggingface/transformers#34198"],
         "Gradient accumulation with 3 and 5 tokens: each step's mean counts the same.",
         {}, [("l", "f32[8]", "")], [""])
c.base(lambda b, x: b.red(x, 0) / 8.0)
c.right()(lambda b, x: (b.red(b.slice(x, (0, 3)), 0) + b.red(b.slice(x, (3, 8)), 0)) / 8.0)
c.right("weighted")(lambda b, x: b.red(b.slice(x, (0, 3)), 0) / 3.0 * 0.375 + b.red(b.slice(x, (3, 8)), 0) / 5.0 * 0.625)
c.right("even", note="4 and 4 tokens: the mean of means is the mean")(
    lambda b, x: (b.red(b.slice(x, (0, 4)), 0) / 4.0 + b.red(b.slice(x, (4, 8)), 0) / 4.0) / 2.0)
c.wrong("scale")(lambda b, x: b.guilty((b.red(b.slice(x, (0, 3)), 0) / 3.0 + b.red(b.slice(x, (3, 8)), 0) / 5.0) / 2.0))

# G04: two levels of means.
c = Case("G04_two_levels_of_means", ["modelscope/ms-swift#10165"],
         "A loss is normalised per microbatch and per device.",
         {"dp": 2}, [("l", "f32[4,6]", "dp"), ("keep", "s32[4,6]", "dp", (0, 1))], [""])


@c.base
def _(b, x, k):
    s, n = masked(b, x, k)
    return s / n


def micro(b, x, k, i):
    return masked(b, b.slice(x, (i, i + 1)), b.slice(k, (i, i + 1)))


@c.right()
def _(b, x, k):
    (s0, n0), (s1, n1) = micro(b, x, k, 0), micro(b, x, k, 1)
    return b.ar(s0 + s1) / b.ar(n0 + n1)


@c.right("separate")
def _(b, x, k):
    (s0, n0), (s1, n1) = micro(b, x, k, 0), micro(b, x, k, 1)
    n = b.ar(n0) + b.ar(n1)
    return b.ar(s0 / n) + b.ar(s1 / n)


@c.wrong("scale")
def _(b, x, k):
    (s0, n0), (s1, n1) = micro(b, x, k, 0), micro(b, x, k, 1)
    return b.ar(b.guilty((s0 / n0 + s1 / n1) / 2.0)) / 2.0


@c.wrong("scale", "per_device")
def _(b, x, k):
    (s0, n0), (s1, n1) = micro(b, x, k, 0), micro(b, x, k, 1)
    return b.ar(b.guilty((s0 + s1) / (n0 + n1))) / 2.0

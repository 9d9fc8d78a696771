"""Reports about placements, sharded modules, serving engines and attention (ids D.., E.., F.., H..)."""
from bugs import Case

INF = float("inf")

# D02: something added to a partial value.
c = Case("D02_added_to_partial", ["pytorch/pytorch#163193", "pytorch/pytorch#153603", "pytorch/torchtitan#2106"],
         "A scalar or a replicated bias is added to a partial sum, once per device.",
         {"dp": 4}, [("x", "f32[8,3]", "dp"), ("bias", "f32[3]", "")], [""])
first = lambda b, v: b.where(b.bcast(b.pid().cmp("EQ", 0), v.d, []), v, 0.0)  # noqa: E731
c.base(lambda b, x, k: b.red(x, 0) + k)
c.right()(lambda b, x, k: b.ar(b.red(x, 0)) + k)
c.right("first_device", note="the bias enters on device 0 only")(lambda b, x, k: b.ar(b.red(x, 0) + first(b, k)))
c.right("quarter", note="a quarter of the bias on each of four devices")(lambda b, x, k: b.ar(b.red(x, 0) + k / 4.0))
c.wrong("duplicated-bias")(lambda b, x, k: b.ar(b.guilty(b.red(x, 0) + k)))
c.wrong("mask", "all_but_first")(
    lambda b, x, k: b.ar(b.red(x, 0) + b.guilty(b.where(b.bcast(b.pid().cmp("NE", 0), [3], []), k, 0.0))))
c.wrong("scale", "halved")(lambda b, x, k: b.ar(b.red(x, 0) + b.guilty(k / 2.0)))

c = Case("D02_scalar", ["pytorch/pytorch#163193"],
         "The same with a constant.", {"dp": 2}, [("x", "f32[6,3]", "dp")], [""])
c.base(lambda b, x: b.red(x, 0) + 10.0)
c.right()(lambda b, x: b.ar(b.red(x, 0)) + 10.0)
c.right("halved")(lambda b, x: b.ar(b.red(x, 0) + 5.0))
c.wrong("duplicated-bias")(lambda b, x: b.ar(b.guilty(b.red(x, 0) + 10.0)))

c = Case("D02_two_partials", ["pytorch/pytorch#163193"],
         "The look-alike that is right: two partial values are added and reduced once.",
         {"tp": 2}, [("x", "f32[3,4]", "-,tp"), ("w", "f32[4,5]", "tp"), ("v", "f32[4,5]", "tp")], [""])
c.base(lambda b, x, w, v: b.dot(x, w) + b.dot(b.tanh(x), v))
c.right()(lambda b, x, w, v: b.ar(b.dot(x, w) + b.dot(b.tanh(x), v)))
c.right("apart")(lambda b, x, w, v: b.ar(b.dot(x, w)) + b.ar(b.dot(b.tanh(x), v)))
c.wrong("duplicate-all-reduce", note="one of the two is already reduced")(
    lambda b, x, w, v: b.ar(b.guilty(b.ar(b.dot(x, w)) + b.dot(b.tanh(x), v))))
c.wrong("missing-all-reduce", "one")(lambda b, x, w, v: b.ar(b.dot(x, w)) + b.guilty(b.dot(b.tanh(x), v)))

# D03: maximum and its index.
c = Case("D03_index_of_maximum", ["pytorch/pytorch#173936", "pytorch/pytorch#175776"],
         "Maximum along a sharded axis: values are combined, indices are local or combined by maximum.",
         {"tp": 2}, [("x", "f32[6,3]", "tp")], ["", ""], draw={"x": "distinct"})


def pairs(b, x, off):
    i = b.iota("s32[3,3]", 0)
    v, k = b.argmax(x, i + b.pid() * 3 if off else i, 0)
    return v, k


def again(b, v, k):
    return b.argmax(b.ag(b.reshape(v, 1, 3), 0), b.ag(b.reshape(k, 1, 3), 0), 0)


c.base(lambda b, x: b.argmax(x, b.iota("s32[6,3]", 0), 0))
c.right()(lambda b, x: again(b, *pairs(b, x, True)))
c.right("gather")(lambda b, x: b.argmax(b.ag(x, 0), b.iota("s32[6,3]", 0), 0))


@c.wrong("wrong-reducer")
def _(b, x):
    v, k = pairs(b, x, True)
    return b.ar(v, None, "maximum"), b.guilty(b.ar(k, None, "maximum"))


@c.wrong("offset", "local")
def _(b, x):
    v, k = pairs(b, x, False)
    b.guilty(k)
    return again(b, v, k)


@c.wrong("missing-all-reduce", "first")
def _(b, x):
    v, k = pairs(b, x, True)
    return b.ar(v, None, "maximum"), b.guilty(k)


# D04: mean with uneven shards.
c = Case("D04_mean_of_uneven_shards", ["pytorch/pytorch#162692"],
         "The mean of 3 rows on 2 devices is taken as the mean of local means.",
         {"dp": 2}, [("x", "f32[3,4]", "dp")], [""])


def valid(b, x):
    i = b.iota("s32[2,4]", 0) + b.pid() * 2
    p = i.cmp("LT", 3)
    return b.red(b.where(p, x, 0.0), 0), b.red(b.where(p, b.full(1, "f32", [2, 4]), 0.0), 0)


c.base(lambda b, x: b.red(x, 0) / 3.0)
c.right()(lambda b, x: b.ar(valid(b, x)[0]) / 3.0)


@c.right("counted")
def _(b, x):
    s, n = valid(b, x)
    return b.ar(s) / b.ar(n)


@c.wrong("scale")
def _(b, x):
    s, n = valid(b, x)
    return b.ar(b.guilty(s / n)) / 2.0


c.wrong("mask", "padding", note="the padding row is counted")(lambda b, x: b.guilty(b.ar(b.red(x, 0))) / 3.0)

c = Case("D04_mean_of_even_shards", ["pytorch/pytorch#162692"],
         "The look-alike that is right: shards of equal size.",
         {"dp": 2}, [("x", "f32[6,4]", "dp")], [""])
c.base(lambda b, x: b.red(x, 0) / 6.0)
c.right()(lambda b, x: b.ar(b.red(x, 0) / 3.0) / 2.0)
c.right("global")(lambda b, x: b.ar(b.red(x, 0)) / 6.0)
c.wrong("scale")(lambda b, x: b.guilty(b.ar(b.red(x, 0) / 3.0)))

# D06: order of mesh axes in a contracted dimension.
c = Case("D06_order_of_axes", ["pytorch/pytorch#166598"],
         "Contracting dimensions sharded over the same axes in another order: local pieces do not match.",
         {"a": 2, "b": 3}, [("x", "f32[4,12]", "-,a+b"), ("w", "f32[12,5]", "a+b")], [""])
other = [("x", "f32[4,12]", "-,a+b"), ("w", "f32[12,5]", "b+a")]
# Device (a, b) holds tile b*2+a of w and needs tile a*3+b.
moves = [(src, dst) for src in range(6) for dst in range(6) if (src % 3) * 2 + src // 3 == dst]
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.ar(b.dot(x, w)))
c.right("moved", ins=other, note="the other order, permuted first")(lambda b, x, w: b.ar(b.dot(x, b.cp(w, moves))))
c.wrong("axis-split", ins=other)(lambda b, x, w: b.ar(b.guilty(b.dot(x, w))))
c.wrong("wrong-permute", "moved_back", ins=other)(
    lambda b, x, w: b.ar(b.dot(x, b.guilty(b.cp(w, [(d, s) for s, d in moves])))))

# D07: a strided order of shards.
c = Case("D07_strided_shards", ["pytorch/pytorch#178785"],
         "The order of a strided shard is dropped: interleaved elements are taken for blocks.",
         {"d": 2}, [("x", "f32[6,2]", "-,d")], [""])
c.base(lambda b, x: b.slice(b.reshape(x, 12), (0, 6)))
c.right()(lambda b, x: b.slice(b.reshape(b.ag(x, 1), 12), (0, 6)))
c.right("cut_first")(lambda b, x: b.reshape(b.ag(b.slice(x, (0, 3)), 1), 6))
c.wrong("layout")(lambda b, x: b.slice(b.guilty(b.ag(b.reshape(x, 6), 0)), (0, 6)))
c.wrong("layout", "local")(lambda b, x: b.guilty(b.ag(b.reshape(b.slice(x, (0, 3)), 3), 0)))

# D08: gradient of a partial value.
c = Case("D08_gradient_of_partial", ["pytorch/pytorch#172932", "pytorch/pytorch#173454", "pytorch/pytorch#115967"],
         "The gradient of a summed partial value is reduced once more, hence doubled.",
         {"dp": 2}, [("x", "f32[6,3]", "dp"), ("dy", "f32[3]", "")], ["dp"])
c.base(lambda b, x, dy: x * b.bcast(dy, [6, 3], [1]))
c.right()(lambda b, x, dy: x * b.bcast(dy, [3, 3], [1]))
c.right("halved", note="reduced and divided by the device count")(lambda b, x, dy: x * b.bcast(b.ar(dy) / 2.0, [3, 3], [1]))
c.wrong("duplicate-all-reduce")(lambda b, x, dy: x * b.bcast(b.guilty(b.ar(dy)), [3, 3], [1]))
c.wrong("scale", "divided")(lambda b, x, dy: x * b.bcast(b.guilty(dy / 2.0), [3, 3], [1]))

# D09: chunks of partial gradients.
c = Case("D09_chunked_loss", ["pytorch/torchtitan#3412"],
         "Partial gradients of two chunks are joined and taken for replicated.",
         {"tp": 2}, [("dz", "f32[6,8]", "-,tp"), ("w", "f32[8,5]", "tp")], [""])
c.base(lambda b, dz, w: b.dot(dz, w))


def chunks(b, dz, w):
    return [b.dot(b.slice(dz, (3 * k, 3 * k + 3)), w) for k in (0, 1)]


c.right()(lambda b, dz, w: b.ar(b.cat(chunks(b, dz, w))))
c.right("each")(lambda b, dz, w: b.cat([b.ar(v) for v in chunks(b, dz, w)]))
c.wrong("missing-all-reduce")(lambda b, dz, w: b.guilty(b.cat(chunks(b, dz, w))))


@c.wrong("missing-all-reduce", "second_chunk")
def _(b, dz, w):
    p, q = chunks(b, dz, w)
    return b.cat([b.ar(p), b.guilty(q)])


# D13: gradient norm of the local shard.
c = Case("D13_local_gradient_norm", ["pytorch/pytorch#170862", "pytorch/pytorch#88621", "areal-project/AReaL#312", "hiyouga/LlamaFactory#10640"],
         "Clipping by the norm of the local shard.",
         {"dp": 2}, [("g", "f32[6,3]", "dp")], ["dp"])


def clip(b, g, red, late=False):
    n = b.red(g * g, [0, 1])
    n = red(b.sqrt(n)) if late else b.sqrt(red(n))
    return g * (1.0 / n).min(1.0)


c.base(lambda b, g: clip(b, g, lambda v: v))
c.right()(lambda b, g: clip(b, g, b.ar))
c.wrong("missing-all-reduce")(lambda b, g: clip(b, g, b.guilty))
c.wrong("wrong-operand", "norms_added", note="the sum of norms is not the norm")(lambda b, g: clip(b, g, lambda v: b.guilty(b.ar(v)), True))
c.wrong("wrong-reducer", "maximum")(lambda b, g: clip(b, g, lambda v: b.guilty(b.ar(v, None, "maximum"))))

# D14: infinity norm.
c = Case("D14_infinity_norm", ["meta-pytorch/torchrec#3199"],
         "The infinity norm of shards is combined with the formula for finite powers.",
         {"tp": 2}, [("g", "f32[8]", "tp")], [""])
top = lambda b, g: b.red(b.un("abs", g), 0, "maximum")  # noqa: E731
c.base(top)
c.right()(lambda b, g: b.ar(top(b, g), None, "maximum"))
c.right("gather")(lambda b, g: b.red(b.ag(b.reshape(top(b, g), 1), 0), 0, "maximum"))


@c.wrong("wrong-operand")
def _(b, g):
    s = b.ar(b.emit("power", "f32", [], [top(b, g), b.const(INF)]))
    return b.guilty(b.emit("power", "f32", [], [s, b.const(0.0)]))


c.wrong("wrong-reducer", "sum")(lambda b, g: b.guilty(b.ar(top(b, g))))

# D16: a parameter with one element.
c = Case("D16_one_element_parameter", ["pytorch/pytorch#144045"],
         "A parameter with one element on two devices: its gradient arrives on the empty shard.",
         {"dp": 2}, [("g", "f32[6]", "dp")], ["dp"])
c.base(lambda b, g: b.reshape(b.red(g, 0), 1))
c.right()(lambda b, g: b.rs(b.pad(b.reshape(b.red(g, 0), 1), 0, (0, 1)), 0))
c.right("everywhere")(lambda b, g: b.reshape(b.ar(b.red(g, 0)), 1))
c.wrong("offset")(lambda b, g: b.guilty(b.rs(b.pad(b.reshape(b.red(g, 0), 1), 0, (1, 0)), 0)))

# D17: scatter dimension of a fused matmul.
c = Case("D17_scatter_dimension", ["pytorch/pytorch#153595"],
         "A fused matmul and reduce-scatter is wrong for scatter dimension 1.",
         {"tp": 2}, [("x", "f32[4,8]", "-,tp"), ("w", "f32[8,6]", "tp")], ["-,tp"])
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.rs(b.dot(x, w), 1))
c.right("transposed")(lambda b, x, w: b.tr(b.rs(b.tr(b.dot(x, w), 1, 0), 0), 1, 0))
c.right("swapped_operands")(lambda b, x, w: b.tr(b.rs(b.dot(w, x, 0, 1), 0), 1, 0))
c.wrong("wrong-dimension")(lambda b, x, w: b.reshape(b.guilty(b.rs(b.dot(x, w), 0)), 4, 3))

# D18: split, concatenation and reduce-scatter.
c = Case("D18_split_cat_scatter", ["pytorch/pytorch#162736"],
         "A product split on its last dimension, joined on its first and scattered is fused as if never split.",
         {"tp": 2}, [("x", "f32[4,8]", "-,tp"), ("w", "f32[8,6]", "tp")], ["tp"])
halves = lambda b, y: b.cat([b.slice(y, None, (0, 3)), b.slice(y, None, (3, 6))])  # noqa: E731
c.base(lambda b, x, w: halves(b, b.dot(x, w)))
c.right()(lambda b, x, w: b.rs(halves(b, b.dot(x, w)), 0))
c.right("last_dimension", note="scattering the last dimension gives the same blocks")(lambda b, x, w: b.rs(b.dot(x, w), 1))
c.wrong("wrong-dimension")(lambda b, x, w: b.reshape(b.guilty(b.rs(b.dot(x, w), 0)), 4, 3))

# D19: reduced twice.
c = Case("D19_reduced_twice", ["meta-pytorch/autoparallel#517"],
         "A value that is reduced still counts as partial and is reduced again.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp"), ("w", "f32[8,5]", "tp")], [""])
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.ar(b.dot(x, w)))
c.right("halved")(lambda b, x, w: b.ar(b.ar(b.dot(x, w))) / 2.0)
c.right("maximum", note="a second reduction by maximum is harmless")(lambda b, x, w: b.ar(b.ar(b.dot(x, w)), None, "maximum"))
c.wrong("duplicate-all-reduce")(lambda b, x, w: b.guilty(b.ar(b.ar(b.dot(x, w)))))

# D20: balanced order of sequence chunks.
c = Case("D20_balanced_chunks", ["pytorch/pytorch#152261", "pytorch/pytorch#183968"],
         "Devices take chunks (0, 3) and (1, 2); outputs are joined without the inverse permutation.",
         {"cp": 2}, [("x", "f32[8,3]", "")], [""])


def chunk(b, x):
    lo = b.ds(x, b.pid() * 2, 2)
    hi = b.ds(x, 6 - b.pid() * 2, 2)
    return b.ag(b.tanh(b.cat([lo, hi])), 0)


def order(b, y, p):
    return b.guilty(b.cat([b.slice(y, (2 * k, 2 * k + 2)) for k in p]))


c.base(lambda b, x: b.tanh(x))
c.right()(lambda b, x: order(b, chunk(b, x), (0, 2, 3, 1)))
c.wrong("layout")(lambda b, x: b.guilty(chunk(b, x)))
c.wrong("layout", "not_inverse", note="the permutation again in place of its inverse")(lambda b, x: order(b, chunk(b, x), (0, 3, 1, 2)))

# D22: gradients never averaged, or twice.
c = Case("D22_average_of_gradients", ["HenryNdubuaku/nanodl#12", "deepmodeling/deepmd-kit#1104", "apache/singa#65", "OpenNMT/OpenNMT-py#2209"],
         "Data-parallel gradients are not averaged, averaged twice, or divided by a local count.",
         {"dp": 2}, [("g", "f32[8,3]", "dp"), ("w", "f32[3]", "")], [""])
c.base(lambda b, g, w: w - b.red(g, 0) / 8.0 * 0.5)
c.right()(lambda b, g, w: w - b.ar(b.red(g, 0)) / 8.0 * 0.5)
c.right("mean_of_means")(lambda b, g, w: w - b.ar(b.red(g, 0) / 4.0) * 0.25)
c.wrong("missing-all-reduce")(lambda b, g, w: w - b.guilty(b.red(g, 0) / 4.0) * 0.5)
c.wrong("scale", "sum")(lambda b, g, w: w - b.guilty(b.ar(b.red(g, 0) / 4.0)) * 0.5)
c.wrong("scale", "twice")(lambda b, g, w: w - b.guilty(b.ar(b.red(g, 0) / 8.0) / 2.0) * 0.5)

# E03: expert and tensor parallelism together.
c = Case("E03_one_group_of_two", ["sgl-project/sglang#32963"],
         "A fused all-reduce covers one of two groups.",
         {"ep": 2, "tp": 4}, [("x", "f32[3,16]", "-,ep+tp"), ("w", "f32[16,5]", "ep+tp")], [""])
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.ar(b.dot(x, w)))
c.right("two_steps")(lambda b, x, w: b.ar(b.ar(b.dot(x, w), "tp"), "ep"))
c.wrong("missing-all-reduce")(lambda b, x, w: b.guilty(b.ar(b.dot(x, w), "tp")))
c.wrong("wrong-group", "halves", note="pairs in place of fours")(
    lambda b, x, w: b.ar(b.guilty(b.ar(b.dot(x, w), [[0, 1], [2, 3], [4, 5], [6, 7]])), "ep"))

# E05: the first shard on every rank.
c = Case("E05_first_shard_everywhere", ["vllm-project/vllm-gguf-plugin#103"],
         "Every rank loads the first shard of merged weights.",
         {"tp": 2}, [("x", "f32[3,5]", ""), ("w", "f32[5,8]", "")], ["-,tp"])
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.dot(x, b.ds(w, b.pid() * 4, 4, 1)))
c.right("cut")(lambda b, x, w: b.ds(b.dot(x, w), b.pid() * 4, 4, 1))
c.wrong("stale-slice")(lambda b, x, w: b.dot(x, b.guilty(b.slice(w, None, (0, 4)))))
c.wrong("offset", "by_one")(lambda b, x, w: b.dot(x, b.guilty(b.ds(w, b.pid(), 4, 1))))

# E08: fused projections gathered rank by rank.
c = Case("E08_fused_projections", ["vllm-project/vllm#36242", "ndif-team/nnsight#719", "ndif-team/nnsight#631"],
         "A gathered fused output ordered q0 k0 v0 q1 k1 v1 is read as q k v.",
         {"tp": 2}, [("x", "f32[3,5]", ""), ("wq", "f32[5,4]", "-,tp"), ("wk", "f32[5,4]", "-,tp"), ("wv", "f32[5,4]", "-,tp")],
         ["", "", ""])
c.base(lambda b, x, q, k, v: [b.dot(x, w) for w in (q, k, v)])


def fused(b, x, q, k, v):
    return b.ag(b.dot(x, b.cat([q, k, v], 1)), 1)


def thirds(b, y):
    return [b.slice(y, None, (4 * k, 4 * k + 4)) for k in range(3)]


@c.right()
def _(b, *a):
    y = b.reshape(b.tr(b.reshape(fused(b, *a), 3, 2, 3, 2), 0, 2, 1, 3), 3, 12)
    return thirds(b, y)


@c.right("apart")
def _(b, x, q, k, v):
    return [b.ag(b.dot(x, w), 1) for w in (q, k, v)]


@c.wrong("layout")
def _(b, *a):
    return thirds(b, b.guilty(fused(b, *a)))


@c.wrong("layout", "order")
def _(b, *a):
    y = b.reshape(b.guilty(b.tr(b.reshape(fused(b, *a), 3, 3, 2, 2), 0, 2, 1, 3)), 3, 12)
    return thirds(b, y)


# E09: norm per head.
c = Case("E09_norm_per_head", ["vllm-project/vllm#16311"],
         "A norm per head runs over all heads of the device.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp")], ["-,tp"])


def rms(b, x, n, red=lambda v: v):
    k = len(x.d) - 1
    return x * b.bcast(b.rsqrt(red(b.red(x * x, k)) / float(n) + 1e-5), x.d, range(k))


def per_head(b, x, d):
    r, n = x.d
    return b.reshape(rms(b, b.reshape(x, r, n // d, d), d), r, n)


c.base(lambda b, x: per_head(b, x, 2))
c.right()(lambda b, x: per_head(b, x, 2))
c.wrong("wrong-dimension")(lambda b, x: b.guilty(per_head(b, x, 4)))
c.wrong("wrong-dimension", "interleaved", note="elements of one head two apart")(
    lambda b, x: b.guilty(b.reshape(b.tr(rms(b, b.tr(b.reshape(x, 3, 2, 2), 0, 2, 1), 2), 0, 2, 1), 3, 4)))

# E10: RMS norm over a sharded axis.
c = Case("E10_norm_over_shards", ["vllm-project/vllm#35932", "vllm-project/vllm#38191", "sgl-project/sglang#20967"],
         "RMS norm over a sharded axis uses the local mean of squares.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp"), ("w", "f32[8]", "tp")], ["-,tp"])
c.base(lambda b, x, w: rms(b, x, 8) * b.bcast(w, x.d, [1]))
c.right()(lambda b, x, w: rms(b, x, 8, b.ar) * b.bcast(w, x.d, [1]))
c.right("mean_of_means", note="the shards are equal")(
    lambda b, x, w: rms(b, x, 2, lambda v: b.ar(v / 4.0)) * b.bcast(w, x.d, [1]))
c.wrong("missing-all-reduce")(lambda b, x, w: rms(b, x, 4, b.guilty) * b.bcast(w, x.d, [1]))
c.wrong("scale", "count", note="the sum of all divided by the local count")(
    lambda b, x, w: b.guilty(rms(b, x, 4, b.ar)) * b.bcast(w, x.d, [1]))

# E11: fewer key heads than devices.
c = Case("E11_fewer_key_heads", ["vllm-project/vllm#2379", "aws-neuron/aws-neuron-sdk#1289", "NVIDIA/TensorRT-LLM#4308", "NVIDIA/TensorRT-LLM#6447"],
         "Two key heads on four devices: device r must use head r/2, not r mod 2.",
         {"tp": 4}, [("q", "f32[4,5]", "tp"), ("k", "f32[2,5]", "")], ["tp"])
c.base(lambda b, q, k: q * b.reshape(b.bcast(k, [2, 2, 5], [0, 2]), 4, 5))
c.right()(lambda b, q, k: q * b.ds(k, b.pid() / 2, 1))
c.right("expanded")(lambda b, q, k: q * b.ds(b.reshape(b.bcast(k, [2, 2, 5], [0, 2]), 4, 5), b.pid(), 1))
c.wrong("offset")(lambda b, q, k: q * b.guilty(b.ds(k, b.pid() % 2, 1)))
c.wrong("offset", "clamped", note="the rank itself, clamped to the last head")(lambda b, q, k: q * b.guilty(b.ds(k, b.pid(), 1)))

# E13: decode and prefill tokens in the wrong order.
c = Case("E13_order_of_tokens", ["vllm-project/vllm#40766"],
         "Prefill-first tokens are cut as if decode tokens came first: wrong cache slots are written.",
         {"tp": 2}, [("cache", "f32[9,4]", "-,tp"), ("x", "f32[5,4]", "-,tp"), ("p", "s32[]", "", (0, 3)), ("d", "s32[]", "", (6, 7))],
         ["-,tp"])


def write(b, cache, x, p, d, cut):
    a, z = (b.slice(x, (0, cut)), b.slice(x, (cut, 5)))
    if cut == 3:
        return b.dus(b.dus(cache, a, p), z, d)
    return b.dus(b.dus(cache, b.guilty(z), p), b.guilty(a), d)


c.base(lambda b, k, x, p, d: write(b, k, x, p, d, 3))
c.right()(lambda b, k, x, p, d: write(b, k, x, p, d, 3))


@c.right("other_order", note="the two ranges of slots are disjoint")
def _(b, k, x, p, d):
    return b.dus(b.dus(k, b.slice(x, (3, 5)), d), b.slice(x, (0, 3)), p)


c.wrong("stale-slice")(lambda b, k, x, p, d: write(b, k, x, p, d, 2))


@c.wrong("offset", "slots")
def _(b, k, x, p, d):
    return b.dus(b.dus(k, b.slice(x, (0, 3)), p), b.guilty(b.slice(x, (3, 5))), d - 1)


# E14, E15: scales of eight-bit weights.
def q8(b, w, s):
    return b.conv(b.conv(w / s, "f8e4m3fn"), "f32") * s


amax = lambda b, w: b.red(b.un("abs", w), [0, 1], "maximum")  # noqa: E731

c = Case("E14_shared_scale", ["vllm-project/vllm#41021", "vllm-project/vllm#40934"],
         "One eight-bit scale for a fused weight crushes its small part.",
         {}, [("w", "f32[4,3]", ""), ("u", "f32[4,3]", "")], ["", ""])
c.base(lambda b, w, u: [q8(b, v, amax(b, v) / 448.0) for v in (w, u * 0.001)])


@c.right("joined", note="one array, a scale per part")
def _(b, w, u):
    v = b.cat([b.reshape(w, 1, 12), b.reshape(u * 0.001, 1, 12)])
    s = b.bcast(b.red(b.un("abs", v), 1, "maximum") / 448.0, [2, 12], [0])
    y = q8(b, v, s)
    return [b.reshape(b.slice(y, (k, k + 1)), 4, 3) for k in (0, 1)]


@c.wrong("precision")
def _(b, w, u):
    u = u * 0.001
    s = b.guilty(amax(b, w).max(amax(b, u)) / 448.0)
    return q8(b, w, s), q8(b, u, s)


c = Case("E15_scale_per_rank", ["vllm-project/vllm#49764"],
         "Online quantisation picks its scale from the local shard.",
         {"tp": 2}, [("w", "f32[4,6]", "-,tp")], ["-,tp"])
c.base(lambda b, w: q8(b, w, amax(b, w) / 448.0))
c.right()(lambda b, w: q8(b, w, b.ar(amax(b, w), None, "maximum") / 448.0))
c.wrong("missing-all-reduce")(lambda b, w: q8(b, w, b.guilty(amax(b, w)) / 448.0))
c.wrong("wrong-reducer", "sum")(lambda b, w: q8(b, w, b.guilty(b.ar(amax(b, w))) / 448.0))

# E18: bias in a step of its own.
c = Case("E18_bias_rounded_apart", ["vllm-project/vllm#28972"],
         "The bias of a row-parallel layer is added after the product was rounded to bf16.",
         {"tp": 2}, [("x", "f32[6,8]", "-,tp"), ("w", "f32[8,5]", "tp"), ("k", "f32[5]", "")], [""])
wide = lambda b, x, w, k, red: red(b.dot(x, w)) + b.bcast(k, [6, 5], [1])  # noqa: E731
c.base(lambda b, x, w, k: b.conv(wide(b, x, w, k, lambda v: v), "bf16"))
c.right()(lambda b, x, w, k: b.conv(wide(b, x, w, k, b.ar), "bf16"))
c.wrong("precision")(lambda b, x, w, k: b.guilty(b.conv(b.ar(b.dot(x, w)), "bf16") + b.conv(b.bcast(k, [6, 5], [1]), "bf16")))
c.wrong("precision", "reduced", note="each device's part is rounded before the sum")(
    lambda b, x, w, k: b.conv(b.conv(b.ar(b.guilty(b.conv(b.dot(x, w), "bf16"))), "f32") + b.bcast(k, [6, 5], [1]), "bf16"))

# E19: cast before or after the weight.
c = Case("E19_cast_before_weight", ["vllm-project/vllm#42325", "vllm-project/vllm#42379", "vllm-project/vllm#29810",
                                    "huggingface/transformers#30236", "NVIDIA/TransformerEngine#1132"],
         "RMS norm: the weight multiplies before or after the cast to bf16.",
         {"dp": 2}, [("x", "f32[6,8]", "dp"), ("w", "f32[8]", "")], ["dp"])
wb = lambda b, w, d, t: b.conv(b.bcast(w, d, [1]), t)  # noqa: E731
c.base(lambda b, x, w: b.conv(rms(b, x, 8) * wb(b, w, x.d, "f32"), "bf16"))
c.right()(lambda b, x, w: b.conv(rms(b, x, 8) * wb(b, w, x.d, "f32"), "bf16"))
c.wrong("precision")(lambda b, x, w: b.guilty(b.conv(rms(b, x, 8), "bf16") * wb(b, w, x.d, "bf16")))

c = Case("E19_one_plus_weight", ["vllm-project/vllm#42325"],
         "A weight stored as its difference from one is added in bf16.",
         {"dp": 2}, [("x", "f32[6,8]", "dp"), ("w", "f32[8]", "")], ["dp"])
c.base(lambda b, x, w: rms(b, x, 8) * (wb(b, w, x.d, "f32") * 0.01 + 1.0))
c.right()(lambda b, x, w: rms(b, x, 8) * b.bcast(w * 0.01 + 1.0, x.d, [1]))
c.wrong("precision")(lambda b, x, w: rms(b, x, 8) * b.bcast(b.conv(b.guilty(b.conv(w * 0.01, "bf16") + 1.0), "f32"), x.d, [1]))

# E20: router logits in low precision.
c = Case("E20_router_in_bf16", ["sgl-project/sglang#33764", "sgl-project/sglang#39351", "Avarok-Cybersecurity/atlas#495",
                                "ViperEkura/AstrAI#57", "vllm-project/vllm#58076", "marin-community/marin#4234"],
         "Router logits in bf16 choose other experts for some tokens.",
         {"dp": 2}, [("x", "f32[96,8]", "dp"), ("w", "f32[8,32]", "")], ["dp"])


def route(b, z):
    return b.argmax(z, b.iota(f"s32[{z.d[0]},{z.d[1]}]", 1), 1)[1]


c.base(lambda b, x, w: route(b, b.dot(x, w)))
c.right()(lambda b, x, w: route(b, b.dot(x, w)))
c.wrong("precision")(lambda b, x, w: route(b, b.conv(b.guilty(b.conv(b.dot(x, w), "bf16")), "f32")))

# E23: a replicated layer behind column-parallel heads.
c = Case("E23_replicated_output_layer", ["FlashML-org/FreeToken#440"],
         "The output projection is built as a replicated layer: nothing sums the parts.",
         {"tp": 2}, [("x", "f32[3,5]", ""), ("wv", "f32[5,8]", "-,tp"), ("wo", "f32[8,5]", "tp")], [""])
c.base(lambda b, x, v, o: b.dot(b.dot(x, v), o) + x)
c.right()(lambda b, x, v, o: b.ar(b.dot(b.dot(x, v), o)) + x)
c.right("half_residual", note="half of the residual on each of two devices")(lambda b, x, v, o: b.ar(b.dot(b.dot(x, v), o) + x * 0.5))
c.wrong("missing-all-reduce")(lambda b, x, v, o: b.guilty(b.dot(b.dot(x, v), o)) + x)
c.wrong("duplicated-bias", "residual", note="the residual enters before the sum")(
    lambda b, x, v, o: b.ar(b.guilty(b.dot(b.dot(x, v), o) + x)))

# F01: batch-first layout.
c = Case("F01_batch_first", ["aws-neuron/transformers-neuronx#106", "aws-neuron/transformers-neuronx#104"],
         "Rows of tokens and sequences are reshaped to batch first where a transpose is needed too.",
         {"tp": 2}, [("x", "f32[6,4]", "-,tp"), ("w", "f32[4,5]", "tp")], [""])
c.base(lambda b, x, w: b.tr(b.reshape(b.dot(x, w), 2, 3, 5), 1, 0, 2))
c.right()(lambda b, x, w: b.tr(b.reshape(b.ar(b.dot(x, w)), 2, 3, 5), 1, 0, 2))
c.right("early", note="transposed before the product")(
    lambda b, x, w: b.ar(b.dot(b.tr(b.reshape(x, 2, 3, 2), 1, 0, 2), w)))
c.wrong("layout")(lambda b, x, w: b.guilty(b.reshape(b.ar(b.dot(x, w)), 3, 2, 5)))

c = Case("F01_batch_one", ["aws-neuron/transformers-neuronx#106"],
         "With one sequence the reshape is right: a test with it hides the fault.",
         {"tp": 2}, [("x", "f32[6,4]", "-,tp"), ("w", "f32[4,5]", "tp")], [""])
c.base(lambda b, x, w: b.tr(b.reshape(b.dot(x, w), 6, 1, 5), 1, 0, 2))
c.right("reshaped")(lambda b, x, w: b.reshape(b.ar(b.dot(x, w)), 1, 6, 5))
c.wrong("missing-all-reduce")(lambda b, x, w: b.reshape(b.guilty(b.dot(x, w)), 1, 6, 5))

# F02: attention sharded over the batch.
c = Case("F02_heads_to_batch", ["aws-neuron/transformers-neuronx#108"],
         "The exchange from head shards to batch shards splits and joins the wrong axes.",
         {"tp": 2}, [("x", "f32[4,6,3]", "-,tp")], ["tp"])


def exchange(b, x, split, perm, out):
    return b.reshape(b.guilty(b.tr(b.a2a(b.reshape(x, *split), 0), *perm)), *out)


c.base(lambda b, x: x * 2.0)
c.right()(lambda b, x: exchange(b, x * 2.0, (2, 2, 3, 3), (1, 0, 2, 3), (2, 6, 3)))
c.right("gather")(lambda b, x: b.ds(b.ag(x * 2.0, 1), b.pid() * 2, 2))
c.wrong("layout")(lambda b, x: exchange(b, x * 2.0, (2, 2, 3, 3), (0, 1, 2, 3), (2, 6, 3)))
c.wrong("layout", "interleaved")(lambda b, x: exchange(b, x * 2.0, (2, 2, 3, 3), (1, 2, 0, 3), (2, 6, 3)))

# F06: products with transposes.
c = Case("F06_products_with_transposes", ["aws-neuron/aws-neuron-sdk#756"],
         "dot(dot(x,x), x^T) + dot(x^T, dot(x,x)) compiled with a transpose lost.",
         {}, [("x", "f32[3,3]", "")], [""])


def both(b, x, p, q):
    y = b.dot(x, x)
    return b.dot(y, p) + b.dot(q, y)


c.base(lambda b, x: both(b, x, b.tr(x, 1, 0), b.tr(x, 1, 0)))


@c.right("contracted", note="transposes as contracted dimensions")
def _(b, x):
    y = b.dot(x, x)
    return b.dot(y, x, 1, 1) + b.dot(x, y, 0, 0)


c.wrong("layout")(lambda b, x: b.guilty(both(b, x, b.tr(x, 1, 0), x)))
c.wrong("layout", "first")(lambda b, x: b.guilty(both(b, x, x, b.tr(x, 1, 0))))

# H03: causal attention over two sequence blocks.
c = Case("H03_causal_blocks", ["zhuzilin/ring-flash-attention#54", "zhuzilin/ring-flash-attention#15", "feifeibear/long-context-attention#149"],
         "Causal attention over blocks: the mask uses local positions, or skips the wrong block.",
         {"sp": 2}, [("q", "f32[6,4]", "sp"), ("k", "f32[6,4]", "sp"), ("v", "f32[6,3]", "sp")], ["sp"])


def attend(b, q, k, v, qoff, koff):
    z = b.dot(q, k, 1, 1)
    i, j = b.iota(f"s32[{z.d[0]},{z.d[1]}]", 0), b.iota(f"s32[{z.d[0]},{z.d[1]}]", 1)
    i = i if qoff is None else i + qoff
    j = j if koff is None else j + koff
    return b.dot(b.softmax(b.where(j.cmp("LE", i), z, -INF)), v)


def ring(b, q, k, v, own_only_causal, swap=False):
    """The own block is causal; the other one is seen in full by device 1."""
    me = b.pid()
    i, j = b.iota("s32[3,3]", 0), b.iota("s32[3,3]", 1)
    z0 = b.where(j.cmp("LE", i), b.dot(q, k, 1, 1), -INF)
    k1, v1 = b.cp(k, [(0, 1), (1, 0)]), b.cp(v, [(0, 1), (1, 0)])
    seen = b.bcast(me.cmp("EQ", 0 if swap else 1), [3, 3], [])
    if not own_only_causal:
        seen = seen & j.cmp("LE", i)
    z1 = b.where(b.guilty(seen), b.dot(q, k1, 1, 1), -INF)
    m = b.red(z0, 1, "maximum").max(b.red(z1, 1, "maximum"))
    e0, e1 = b.exp(z0 - b.bcast(m, [3, 3], [0])), b.exp(z1 - b.bcast(m, [3, 3], [0]))
    return (b.dot(e0, v) + b.dot(e1, v1)) / b.bcast(b.red(e0, 1) + b.red(e1, 1), [3, 3], [0])


c.base(lambda b, q, k, v: attend(b, q, k, v, None, None))
c.right("gathered")(lambda b, q, k, v: attend(b, q, b.ag(k, 0), b.ag(v, 0), b.pid() * 3, None))
c.right("ring")(lambda b, q, k, v: ring(b, q, k, v, True))
c.wrong("offset", note="query positions are local")(lambda b, q, k, v: b.guilty(attend(b, q, b.ag(k, 0), b.ag(v, 0), None, None)))
c.wrong("mask", "causal_twice", note="the other block is masked by local positions too")(lambda b, q, k, v: ring(b, q, k, v, False))
c.wrong("mask", "other_device", note="device 0 sees the future, device 1 not the past")(lambda b, q, k, v: ring(b, q, k, v, True, True))

# H04: a gradient that is a transposed view.
c = Case("H04_strides_ignored", ["Dao-AILab/flash-attention#355", "pytorch/pytorch#133671"],
         "The incoming gradient is a transposed view, read in memory order.",
         {"tp": 2}, [("w", "f32[3,6]", "-,tp"), ("dy", "f32[4,3]", "")], ["tp"])
c.base(lambda b, w, dy: b.dot(w, b.tr(dy, 1, 0), 0, 0))
c.right()(lambda b, w, dy: b.dot(w, b.tr(dy, 1, 0), 0, 0))
c.right("contracted")(lambda b, w, dy: b.dot(w, dy, 0, 1))
c.wrong("layout")(lambda b, w, dy: b.dot(w, b.guilty(b.reshape(dy, 3, 4)), 0, 0))

# H06: repeated indices.
c = Case("H06_repeated_indices", ["NVIDIA/cudnn-frontend#385"],
         "Gradients at repeated indices overwrite each other.",
         {"tp": 2}, [("ids", "s32[5]", "", (0, 2)), ("dy", "f32[5,4]", "-,tp")], ["-,tp"])
c.base(lambda b, i, dy: b.scatter_rows(b.zeros("f32[3,4]"), i, dy))
c.right()(lambda b, i, dy: b.scatter_rows(b.zeros("f32[3,2]"), i, dy))


@c.right("one_hot", note="as a product with a one-hot matrix")
def _(b, i, dy):
    hot = b.iota("s32[5,3]", 1).cmp("EQ", b.bcast(i, [5, 3], [0]))
    return b.dot(b.conv(hot, "f32"), dy, 0, 0)


c.wrong("wrong-reducer")(lambda b, i, dy: b.guilty(b.scatter_rows(b.zeros("f32[3,2]"), i, dy, "set")))

# H08: a row without any visible key.
c = Case("H08_row_without_keys", ["pytorch/pytorch#100318", "pytorch/pytorch#131060", "pytorch/pytorch#186775", "iree-org/iree#24175"],
         "A row masked out entirely is 0 by a guard; after fusion it is NaN.",
         {"dp": 2}, [("z", "f32[8,3]", "dp"), ("seen", "pred[8,3]", "dp"), ("v", "f32[3,4]", "")], ["dp"])


def guarded(b, z, seen, v, guard):
    y = b.softmax(b.where(seen, z, -INF))
    if guard:
        y = b.where(seen, y, 0.0)
    return b.dot(b.guilty(y), v)


c.base(lambda b, z, s, v: guarded(b, z, s, v, True))
c.right()(lambda b, z, s, v: guarded(b, z, s, v, True))


@c.right("sum_guard", note="divides by the sum where there is one")
def _(b, z, s, v):
    m = b.red(b.where(s, z, -INF), 1, "maximum")
    m = b.where(m.cmp("GT", -INF), m, 0.0)
    e = b.where(s, b.exp(z - b.bcast(m, z.d, [0])), 0.0)
    n = b.red(e, 1)
    return b.dot(e / b.bcast(b.where(n.cmp("GT", 0.0), n, 1.0), z.d, [0]), v)


c.wrong("mask")(lambda b, z, s, v: guarded(b, z, s, v, False))
c.wrong("mask", "multiplied", note="a product with the mask: 0 * NaN is NaN")(
    lambda b, z, s, v: b.dot(b.guilty(b.softmax(b.where(s, z, -INF)) * b.conv(s, "f32")), v))


@c.wrong("mask", "late", note="rows are cleared by a product after the values were summed")
def _(b, z, s, v):
    y = b.dot(b.softmax(b.where(s, z, -INF)), v)
    some = b.red(b.conv(s, "f32"), 1, "maximum")
    return b.guilty(y * b.bcast(some, [4, 4], [0]))


@c.wrong("mask", "uniform", note="a large negative number in place of -inf: the mean of all values")
def _(b, z, s, v):
    return b.dot(b.guilty(b.softmax(b.where(s, z, -1e30))), v)


# H09: heads without transpose.
c = Case("H09_heads_without_transpose", ["llvm/torch-mlir#4470"],
         "[batch, sequence, hidden] is reshaped straight to [batch, heads, sequence, d].",
         {"dp": 2}, [("x", "f32[4,3,6]", "dp")], ["dp"])
c.base(lambda b, x: b.tr(b.reshape(x, 4, 3, 2, 3), 0, 2, 1, 3))
c.right()(lambda b, x: b.tr(b.reshape(x, 2, 3, 2, 3), 0, 2, 1, 3))
c.right("cut", note="one head after the other")(
    lambda b, x: b.cat([b.reshape(b.slice(x, None, None, (3 * k, 3 * k + 3)), 2, 1, 3, 3) for k in (0, 1)], 1))
c.wrong("layout")(lambda b, x: b.guilty(b.reshape(x, 2, 2, 3, 3)))

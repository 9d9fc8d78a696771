"""Reports about partitioners and their collectives (ids A..)."""
from bugs import Case

# A02: a slice whose start is out of range, its result split over devices.
c = Case("A02_sharded_dynamic_slice_clamp", ["openxla/xla#49122"],
         "The start of a sharded dynamic-slice is clamped to the shard's window instead of the whole one.",
         {"tp": 2}, [("x", "s32[2,8]", ""), ("start", "s32[]", "", (0, 9))], ["-,tp"], draw={"x": "distinct"})
c.base(lambda b, x, s: b.ds(x, s, 6, 1))


@c.right(note="the whole window is clamped once, then the shard's offset is added")
def _(b, x, s):
    return b.ds(x, s.max(0).min(2) + b.pid() * 3, 3, 1)


@c.right("in_range", ins=[("x", "s32[2,8]", ""), ("start", "s32[]", "", (0, 2))],
         note="without any clamp: right because the start is declared in range")
def _(b, x, s):
    return b.ds(x, s + b.pid() * 3, 3, 1)


c.right("cut", note="whole slice, then the device's columns")(lambda b, x, s: b.ds(b.ds(x, s, 6, 1), b.pid() * 3, 3, 1))


@c.wrong("offset", note="both devices read the last three columns when the start is 7")
def _(b, x, s):
    return b.guilty(b.ds(x, s + b.pid() * 3, 3, 1))


@c.wrong("offset", "local_clamp")
def _(b, x, s):
    return b.guilty(b.ds(x, s.max(0).min(5) + b.pid() * 3, 3, 1))


# A03: embedding gradient.
c = Case("A03_slice_before_sum", ["openxla/xla#42481"],
         "A partial scatter is cut to the local vocabulary rows before the sum over devices.",
         {"tp": 2}, [("ids", "s32[6]", "tp", (0, 7)), ("dy", "f32[6,3]", "tp")], ["tp"])
c.base(lambda b, i, dy: b.scatter_rows(b.zeros("f32[8,3]"), i, dy))
c.right()(lambda b, i, dy: b.ds(b.ar(b.scatter_rows(b.zeros("f32[8,3]"), i, dy)), b.pid() * 4, 4))
c.right("reduce_scatter")(lambda b, i, dy: b.rs(b.scatter_rows(b.zeros("f32[8,3]"), i, dy), 0))


@c.right("gathered_tokens", note="all tokens on every device, one scatter, then the device's rows")
def _(b, i, dy):
    return b.ds(b.scatter_rows(b.zeros("f32[8,3]"), b.ag(i, 0), b.ag(dy, 0)), b.pid() * 4, 4)


@c.wrong("stale-slice", note="row i of one shard is added to row i of the other")
def _(b, i, dy):
    g = b.scatter_rows(b.zeros("f32[8,3]"), i, dy)
    return b.ar(b.guilty(b.ds(g, b.pid() * 4, 4)))


@c.wrong("missing-all-reduce", "local")
def _(b, i, dy):
    return b.ds(b.guilty(b.scatter_rows(b.zeros("f32[8,3]"), i, dy)), b.pid() * 4, 4)


# A04: partial over two mesh axes, wanted sharded on one and replicated on the other.
c = Case("A04_partial_on_two_axes", ["openxla/xla#40034"],
         "A matmul partial over two mesh axes is reduced over one of them only.",
         {"a": 2, "b": 4}, [("x", "f32[4,16]", "-,a+b"), ("w", "f32[16,6]", "a+b")], ["a,-"])
c.base(lambda b, x, w: b.dot(x, w))
c.right()(lambda b, x, w: b.ar(b.rs(b.dot(x, w), 0, "a"), "b"))
c.right("other_order")(lambda b, x, w: b.rs(b.ar(b.dot(x, w), "b"), 0, "a"))
c.right("reduce_then_cut")(lambda b, x, w: b.ds(b.ar(b.dot(x, w)), b.axis("a") * 2, 2))
c.wrong("missing-all-reduce", note="differs between the replicas on axis b")(
    lambda b, x, w: b.guilty(b.rs(b.dot(x, w), 0, "a")))


@c.wrong("wrong-group", "same_axis_twice")
def _(b, x, w):
    return b.guilty(b.ar(b.rs(b.dot(x, w), 0, "a"), "a"))


# A06: reductions hoisted out of a loop.
c = Case("A06_hoisted_product", ["openxla/xla#36441", "openxla/xla#42006"],
         "Two all-reduces whose results are multiplied in a loop body are moved behind the loop as one.",
         {"dp": 2}, [("g", "f32[2,3,5]", "dp"), ("s", "f32[2,3,5]", "dp")], [""])


def step(b, red):
    def body(i, acc, g, s):
        gi = red(b.red(b.ds(g, i, 1, 1), [0, 1]))
        si = red(b.red(b.ds(s, i, 1, 1), [0, 1]))
        return acc + gi * si, g, s
    return body


c.base(lambda b, g, s: b.fori(0, 3, [b.zeros("f32[5]"), g, s], step(b, lambda v: v))[0])
c.right()(lambda b, g, s: b.fori(0, 3, [b.zeros("f32[5]"), g, s], step(b, b.ar))[0])


@c.right("reduced_before", note="both operands are summed before the loop")
def _(b, g, s):
    return b.fori(0, 3, [b.zeros("f32[5]"), b.ar(g), b.ar(s)], step(b, lambda v: v))[0]


@c.wrong("wrong-operand", note="sum(g) * sum(s) is not sum(g * s)")
def _(b, g, s):
    return b.guilty(b.ar(b.fori(0, 3, [b.zeros("f32[5]"), g, s], step(b, lambda v: v))[0]))


@c.wrong("missing-all-reduce", "one_operand")
def _(b, g, s):
    def body(i, acc, g, s):
        gi = b.ar(b.red(b.ds(g, i, 1, 1), [0, 1]))
        si = b.guilty(b.red(b.ds(s, i, 1, 1), [0, 1]))
        return acc + gi * si, g, s
    return b.fori(0, 3, [b.zeros("f32[5]"), g, s], body)[0]


c = Case("A06_hoisted_scaled", ["openxla/xla#36441"],
         "The look-alike that may be hoisted: the factor is the same on all devices; but not with a bias inside.",
         {"dp": 2}, [("g", "f32[4,3,5]", "dp"), ("s", "f32[3]", ""), ("bias", "f32[5]", "")], [""])


def scaled(b, red, bias):
    def body(i, acc, g, s):
        gi = red(b.red(b.ds(g, i, 1, 1), [0, 1])) * b.reshape(b.ds(s, i, 1))
        return (acc + gi + bias(i) if bias else acc + gi), g, s
    return body


@c.base
def _(b, g, s, k):
    a = b.fori(0, 3, [b.zeros("f32[5]"), g, s], scaled(b, lambda v: v, None))[0]
    return a + k * 3.0


@c.right()
def _(b, g, s, k):
    return b.fori(0, 3, [b.zeros("f32[5]"), g, s], scaled(b, b.ar, None))[0] + k * 3.0


@c.right("hoisted")
def _(b, g, s, k):
    return b.ar(b.fori(0, 3, [b.zeros("f32[5]"), g, s], scaled(b, lambda v: v, None))[0]) + k * 3.0


@c.right("first_device", note="the bias enters on device 0 only")
def _(b, g, s, k):
    k0 = b.where(b.bcast(b.pid().cmp("EQ", 0), [5], []), k * 3.0, 0.0)
    return b.ar(b.fori(0, 3, [k0, g, s], scaled(b, lambda v: v, None))[0])


@c.wrong("duplicated-bias")
def _(b, g, s, k):
    return b.guilty(b.ar(b.fori(0, 3, [k * 3.0, g, s], scaled(b, lambda v: v, None))[0]))


# A07: an accumulator with a second use inside the loop.
c = Case("A07_hoisted_with_second_use", ["openxla/xla#46440"],
         "An all-reduce accumulated in a loop is hoisted although the running value is read in the body.",
         {"dp": 2}, [("g", "f32[4,3,5]", "dp")], ["", ""])


def running(b, red):
    def body(i, acc, top, g):
        acc = acc + red(b.red(b.ds(g, i, 1, 1), [0, 1]))
        return acc, top.max(acc), g
    return body


c.base(lambda b, g: b.fori(0, 3, [b.zeros("f32[5]"), b.zeros("f32[5]"), g], running(b, lambda v: v))[:2])
c.right()(lambda b, g: b.fori(0, 3, [b.zeros("f32[5]"), b.zeros("f32[5]"), g], running(b, b.ar))[:2])
c.right("before")(lambda b, g: b.fori(0, 3, [b.zeros("f32[5]"), b.zeros("f32[5]"), b.ar(g)], running(b, lambda v: v))[:2])


@c.wrong("wrong-operand")
def _(b, g):
    a, top, _ = b.fori(0, 3, [b.zeros("f32[5]"), b.zeros("f32[5]"), g], running(b, lambda v: v))
    return b.ar(a), b.guilty(b.ar(top))


# A08: a permutation of two cycles, cut into back edges and forward edges.
c = Case("A08_two_cycles", ["openxla/xla#45222", "openxla/xla#46248"],
         "A collective-permute with two cycles is cut in two, and one of two back edges is forgotten in the select.",
         {"d": 4}, [("x", "f32[8,3]", "d")], ["d"])


@c.base
def _(b, x):
    p = [b.slice(x, (2 * k, 2 * k + 2)) for k in range(4)]
    return b.cat([p[1], p[0], p[3], p[2]])


c.right()(lambda b, x: b.cp(x, [(0, 1), (1, 0), (2, 3), (3, 2)]))


def split(b, x, p):
    back, fwd = b.cp(x, [(1, 0), (3, 2)]), b.cp(x, [(0, 1), (2, 3)])
    return b.where(b.bcast(p, x.d, []), back, fwd)


c.right("split")(lambda b, x: split(b, x, b.pid().cmp("EQ", 0) | b.pid().cmp("EQ", 2)))
c.right("added", note="devices that receive nothing hold zeros")(
    lambda b, x: b.cp(x, [(1, 0), (3, 2)]) + b.cp(x, [(0, 1), (2, 3)]))
c.wrong("mask", note="device 0 gets zeros")(lambda b, x: b.guilty(split(b, x, b.pid().cmp("EQ", 2))))
c.wrong("wrong-permute", "one_pair")(lambda b, x: b.guilty(b.cp(x, [(0, 1), (1, 0), (2, 3)])))

# A09: a gather of all shards and a table, turned into a permute without self pairs.
c = Case("A09_permute_without_self_pairs", ["openxla/xla#45218"],
         "All-gather and table-indexed slice become a permute that drops the devices which keep their shard.",
         {"d": 4}, [("x", "f32[4,3]", "d")], ["d"])
c.base(lambda b, x: b.cat([b.slice(x, (k, k + 1)) for k in (0, 2, 1, 3)]))


@c.right(note="as before the rewrite")
def _(b, x):
    t = b.reshape(b.ds(b.const([0, 2, 1, 3], "s32"), b.pid(), 1))
    return b.ds(b.ag(x, 0), t, 1)


c.right("permute")(lambda b, x: b.cp(x, [(0, 0), (1, 2), (2, 1), (3, 3)]))


@c.right("kept", note="self pairs dropped, but the shard is kept by a select")
def _(b, x):
    mine = b.pid().cmp("EQ", 0) | b.pid().cmp("EQ", 3)
    return b.where(b.bcast(mine, x.d, []), x, b.cp(x, [(1, 2), (2, 1)]))


c.wrong("wrong-permute")(lambda b, x: b.guilty(b.cp(x, [(1, 2), (2, 1)])))

# A10: concatenation along a sharded axis on a mesh with an unused axis.
c = Case("A10_concat_on_unused_axis", ["jax-ml/jax#24576", "jax-ml/jax#19106"],
         "Shards written into zeros are summed over all devices, also over copies along an unused mesh axis.",
         {"data": 4, "rep": 2}, [("a", "f32[4]", "data"), ("c", "f32[12]", "data")], [""])
c.base(lambda b, x, y: b.cat([x, y]))


def placed(b, x, y):
    i = b.axis("data")
    return b.dus(b.dus(b.zeros("f32[16]"), x, i), y, i * 3 + 4)


c.right()(lambda b, x, y: b.ar(placed(b, x, y), "data"))
c.right("gather")(lambda b, x, y: b.cat([b.ag(x, 0, "data"), b.ag(y, 0, "data")]))
c.right("halved", note="summed over all and divided by the copies")(lambda b, x, y: b.ar(placed(b, x, y)) / 2.0)
c.wrong("wrong-group", note="twice the values")(lambda b, x, y: b.guilty(b.ar(placed(b, x, y))))


@c.wrong("offset", "no_base", note="the second array is written from 0 on")
def _(b, x, y):
    i = b.axis("data")
    return b.ar(b.guilty(b.dus(b.dus(b.zeros("f32[16]"), x, i), y, i * 3)), "data")


# A11: prefix sums along a sharded axis.
c = Case("A11_prefix_sum", ["jax-ml/jax#21403"],
         "Prefix sums along a sharded axis lack the carry of earlier shards.",
         {"tp": 4}, [("x", "s32[2,8]", "-,tp", (-9, 9))], ["-,tp"])


def cumsum(b, x):
    n = x.d[1]
    z = b.const(0, x.t)
    return b.emit("reduce-window", x.t, x.d, [x, z],
                  f"window={{size=1x{n} pad=0_0x{n - 1}_0}}, to_apply={b.reducer('add', x.t)}")


def carry(b, x, direction="LT"):
    sums = b.ag(b.reshape(b.red(x, 1), 2, 1), 1)
    before = b.iota("s32[2,4]", 1).cmp(direction, b.pid())
    return b.bcast(b.red(b.where(before, sums, 0), 1), x.d, [0])


c.base(cumsum)
c.right()(lambda b, x: cumsum(b, x) + carry(b, x))
c.right("gather")(lambda b, x: b.ds(cumsum(b, b.ag(x, 1)), b.pid() * 2, 2, 1))
c.wrong("axis-split")(lambda b, x: b.guilty(cumsum(b, x)))
c.wrong("mask", "own_shard", note="the carry counts the own shard too")(
    lambda b, x: b.guilty(cumsum(b, x) + carry(b, x, "LE")))

# A12: top-k over a sharded axis.
c = Case("A12_top_k", ["jax-ml/jax#19271"],
         "Top-k over a sharded axis without the second selection.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp")], [""], draw={"x": "distinct"})


def top(b, x, k):
    return b.slice(b.sort_down(x, 1), None, (0, k))


c.base(lambda b, x: top(b, x, 2))
c.right()(lambda b, x: top(b, b.ag(top(b, x, 2), 1), 2))
c.right("gather_first")(lambda b, x: top(b, b.ag(x, 1), 2))
c.wrong("wrong-operand", note="keeps the first device's selection")(
    lambda b, x: b.guilty(b.slice(b.ag(top(b, x, 2), 1), None, (0, 2))))
c.wrong("axis-split", "one_each", note="the two largest may be on one device")(
    lambda b, x: b.sort_down(b.ag(b.guilty(top(b, x, 1)), 1), 1))
c.wrong("wrong-reducer", "max", note="largest of each rank by position")(lambda b, x: b.guilty(b.ar(top(b, x, 2), None, "maximum")))

# A13: a shift along a sharded axis.
c = Case("A13_shift", ["jax-ml/jax#18434"],
         "A shift along a sharded axis takes its boundary element from the wrong neighbour.",
         {"d": 4}, [("x", "f32[16]", "d")], ["d"])
c.base(lambda b, x: b.pad(b.slice(x, (1, 16)), 0, (0, 1)))


def shifted(b, x, pairs):
    return b.cat([b.slice(x, (1, 4)), b.guilty(b.cp(b.slice(x, (0, 1)), pairs))])


c.right(note="the last device receives nothing, hence zero")(lambda b, x: shifted(b, x, [(1, 0), (2, 1), (3, 2)]))
c.right("gather")(lambda b, x: b.ds(b.pad(b.slice(b.ag(x, 0), (1, 16)), 0, (0, 1)), b.pid() * 4, 4))
c.wrong("wrong-permute", "direction")(lambda b, x: shifted(b, x, [(0, 1), (1, 2), (2, 3)]))
c.wrong("wrong-permute", "wraps", note="the last device gets the first element")(
    lambda b, x: shifted(b, x, [(1, 0), (2, 1), (3, 2), (0, 3)]))
c.wrong("wrong-permute", "far", note="a neighbour two devices away")(lambda b, x: shifted(b, x, [(2, 0), (3, 1), (1, 2)]))

c = Case("A13_roll", ["jax-ml/jax#18434"],
         "The look-alike in which the wrap is wanted.",
         {"d": 4}, [("x", "f32[16]", "d")], ["d"])
c.base(lambda b, x: b.cat([b.slice(x, (1, 16)), b.slice(x, (0, 1))]))
c.right()(lambda b, x: shifted(b, x, [(1, 0), (2, 1), (3, 2), (0, 3)]))
c.wrong("wrong-permute", note="the last device gets zero")(lambda b, x: shifted(b, x, [(1, 0), (2, 1), (3, 2)]))

# A15: a strided convolution split over batch and output channels.
c = Case("A15_strided_conv", ["jax-ml/jax#16894"],
         "Convolution with stride, split over batch and output channels.",
         {"dp": 2, "tp": 3}, [("x", "f32[4,7,9,2]", "dp"), ("w", "f32[3,3,2,6]", "-,-,-,tp")], ["dp,-,-,tp"])


def conv(b, x, w, pad="1_1x1_1", stride="2x2"):
    sh, sw = (int(k) for k in stride.split("x"))
    d = [x.d[0], (x.d[1] - 1) // sh + 1, (x.d[2] - 1) // sw + 1, w.d[3]]
    return b.emit("convolution", x.t, d, [x, w], f"window={{size=3x3 stride={stride} pad={pad}}}, dim_labels=b01f_01io->b01f")


c.base(conv)
c.right()(conv)
c.right("gathered_weights")(lambda b, x, w: b.ds(conv(b, x, b.ag(w, 3, "tp")), b.axis("tp") * 2, 2, 3))
c.wrong("offset", note="window moved by one column")(lambda b, x, w: b.guilty(conv(b, x, w, "1_1x0_2")))
c.wrong("wrong-group", "channels", note="weights of the batch neighbour's group")(
    lambda b, x, w: conv(b, x, b.guilty(b.cp(w, [(k, (k + 1) % 6) for k in range(6)]))))

# A16: counters of a random generator.
c = Case("A16_counter_based_random", ["jax-ml/jax#40232", "jax-ml/jax#21232"],
         "Random values depend on the sharding: the counter is the local index.",
         {"d": 2}, [("key", "u32[]", "")], ["d"])


def bits(b, key, i):
    v = (i * 2654435761 ^ b.bcast(key, i.d, [])) * 2246822519
    return v ^ b.emit("shift-right-logical", "u32", v.d, [v, b.full(15, "u32", v.d)])


def upid(b):
    return b.emit("partition-id", "u32", [], [])


c.base(lambda b, key: bits(b, key, b.iota("u32[10]")))
c.right()(lambda b, key: bits(b, key, b.iota("u32[5]") + upid(b) * 5))
c.right("cut")(lambda b, key: b.ds(bits(b, key, b.iota("u32[10]")), b.pid() * 5, 5))
c.wrong("offset")(lambda b, key: bits(b, key, b.guilty(b.iota("u32[5]"))))
c.wrong("wrong-operand", "folded_key")(lambda b, key: bits(b, b.guilty(key + upid(b)), b.iota("u32[5]")))

# A17: a mask computed twice.
c = Case("A17_mask_recomputed", ["jax-ml/jax#17982"],
         "The dropout mask of the backward pass is made from other counters than that of the forward pass.",
         {"d": 2}, [("key", "u32[]", ""), ("x", "f32[10]", "d"), ("dy", "f32[10]", "d")], ["d", "d"])


def drop(b, key, x, off):
    i = b.iota(f"u32[{x.d[0]}]")
    keep = bits(b, key, i if off is None else i + off).cmp("LT", 1 << 31)
    return b.where(keep, x * 2.0, 0.0)


c.base(lambda b, key, x, dy: (drop(b, key, x, None), drop(b, key, dy, None)))
c.right()(lambda b, key, x, dy: (drop(b, key, x, upid(b) * 5), drop(b, key, dy, upid(b) * 5)))
c.right("replicated")(lambda b, key, x, dy: (drop(b, key, x, upid(b) * 5), b.ds(drop(b, key, b.ag(dy, 0), None), b.pid() * 5, 5)))
c.wrong("offset")(lambda b, key, x, dy: (drop(b, key, x, upid(b) * 5), b.guilty(drop(b, key, dy, None))))

# A18: gradient of a summed loss with respect to a replicated weight.
c = Case("A18_gradient_of_psum", ["jax-ml/jax#3970", "jax-ml/jax#1633"],
         "The transpose of a sum over devices is taken as the same sum: gradients scaled by the device count.",
         {"dp": 4}, [("w", "f32[5]", ""), ("d", "f32[8,5]", "dp")], [""])
c.base(lambda b, w, d: w * 2.0 * b.red(d, 0))
c.right()(lambda b, w, d: w * 2.0 * b.ar(b.red(d, 0)))
c.right("inside")(lambda b, w, d: b.ar(w * 2.0 * b.red(d, 0)))
c.wrong("missing-all-reduce", note="own data times the device count")(lambda b, w, d: b.guilty(w * 2.0 * b.red(d, 0)) * 4.0)
c.wrong("scale", "both")(lambda b, w, d: b.guilty(b.ar(w * 2.0 * b.red(d, 0)) * 4.0))

# A20: a branch on the device index.
c = Case("A20_branch_on_device", ["jax-ml/jax#40823"],
         "A conditional on the device index is taken to give the same value everywhere.",
         {"d": 2}, [("ct", "f32[3]", "")], [""])
c.base(lambda b, t: t * 2.0 + t * 3.0)


def branch(b, t):
    return b.cond(b.pid().cmp("EQ", 0), t, lambda v: v * 2.0, lambda v: v * 3.0)


c.right()(lambda b, t: b.ar(branch(b, t)))
c.right("select")(lambda b, t: b.ar(b.where(b.bcast(b.pid().cmp("EQ", 0), [3], []), t * 2.0, t * 3.0)))
c.wrong("missing-all-reduce", note="both devices counted as device 0")(lambda b, t: b.guilty(branch(b, t)) * 2.0)
c.wrong("mask", "condition")(lambda b, t: b.ar(b.guilty(b.cond(b.pid().cmp("GE", 0), t, lambda v: v * 2.0, lambda v: v * 3.0))))

# A21: gradient of a replicated operand of a custom primitive.
c = Case("A21_transpose_without_sum", ["flatironinstitute/jax-finufft#226", "flatironinstitute/jax-finufft#232"],
         "The gradient of a replicated operand is left per device.",
         {"tp": 3}, [("a", "f32[6,4]", "tp"), ("dy", "f32[6]", "tp")], [""])
c.base(lambda b, a, dy: b.dot(a, dy, 0, 0))
c.right()(lambda b, a, dy: b.ar(b.dot(a, dy, 0, 0)))
c.right("gather")(lambda b, a, dy: b.dot(b.ag(a, 0), b.ag(dy, 0), 0, 0))
c.wrong("missing-all-reduce")(lambda b, a, dy: b.guilty(b.dot(a, dy, 0, 0)))
c.wrong("wrong-reducer", "max")(lambda b, a, dy: b.guilty(b.ar(b.dot(a, dy, 0, 0), None, "maximum")))

# A25: no pairs at all.
c = Case("A25_empty_permute", ["jax-ml/jax#1703"],
         "The list of pairs was consumed before lowering: a collective-permute without pairs gives zeros.",
         {"d": 4}, [("x", "f32[8,3]", "d")], ["d"])
c.base(lambda b, x: b.cat([b.slice(x, (6, 8)), b.slice(x, (0, 6))]))
c.right()(lambda b, x: b.cp(x, [(0, 1), (1, 2), (2, 3), (3, 0)]))
c.right("two_hops")(lambda b, x: b.cp(b.cp(x, [(0, 2), (1, 3), (2, 0), (3, 1)]), [(0, 3), (1, 0), (2, 1), (3, 2)]))
c.wrong("wrong-permute")(lambda b, x: b.guilty(b.cp(x, [])))
c.wrong("wrong-permute", "reversed")(lambda b, x: b.guilty(b.cp(x, [(1, 0), (2, 1), (3, 2), (0, 3)])))

# A29: the numbers in replica groups have three meanings.
c = Case("A29_meaning_of_groups", ["pytorch/xla#5279", "openxla/xla#5655"],
         "replica_groups={{0}} is a sum over all partitions in one mode and no sum at all in another.",
         {"d": 4}, [("x", "f32[3,8]", "-,d"), ("w", "f32[8,5]", "d")], [""])


def raw(b, x, attrs):
    return b.emit("all-reduce", x.t, x.d, [x], f"{attrs}, to_apply={b.reducer('add', x.t)}")


c.base(lambda b, x, w: b.dot(x, w))
c.right(note="numbers are global device ids")(lambda b, x, w: b.ar(b.dot(x, w)))
c.right("replicas_and_partitions", note="numbers are replicas, all partitions of each take part")(
    lambda b, x, w: raw(b, b.dot(x, w), "channel_id=1, replica_groups={{0}}"))
c.right("replicas", replicas=True, note="numbers are replicas")(lambda b, x, w: raw(b, b.dot(x, w), "replica_groups={{0,1,2,3}}"))
c.right("all_replicas", replicas=True)(lambda b, x, w: raw(b, b.dot(x, w), "replica_groups={}"))
c.wrong("wrong-group", note="without a channel the one replica of each partition sums with itself")(
    lambda b, x, w: b.guilty(raw(b, b.dot(x, w), "replica_groups={{0}}")))
c.wrong("wrong-group", "pairs", replicas=True)(
    lambda b, x, w: b.guilty(raw(b, b.dot(x, w), "replica_groups={{0,1},{2,3}}")))

# A30: backward of an all-gather.
c = Case("A30_backward_of_all_gather", ["pytorch/xla#5784"],
         "The backward of an all-gather only cuts the incoming gradient, which differs per device.",
         {"tp": 2}, [("c", "f32[4,6]", "tp")], ["tp"])
c.base(lambda b, k: b.red(k, 0))
c.right()(lambda b, k: b.rs(b.red(k, 0), 0))
c.right("reduce_then_cut")(lambda b, k: b.ds(b.ar(b.red(k, 0)), b.pid() * 3, 3))
c.wrong("wrong-kind-collective")(lambda b, k: b.guilty(b.ds(b.red(k, 0), b.pid() * 3, 3)))

# A32: groups dropped.
c = Case("A32_groups_dropped", ["aws-neuron/aws-neuron-sdk#1107"],
         "An all-reduce over one-device groups is emitted with empty groups and sums over everyone.",
         {"d": 8}, [("x", "f32[16]", "d")], ["d"])
one = "{{0},{1},{2},{3},{4},{5},{6},{7}}"
c.base(lambda b, x: x * 2.0)
c.right()(lambda b, x: raw(b, x * 2.0, f"channel_id=1, replica_groups={one}, use_global_device_ids=true"))
c.right("replicas", replicas=True)(lambda b, x: raw(b, x * 2.0, f"replica_groups={one}"))
c.right("none")(lambda b, x: x * 2.0)
c.wrong("wrong-group")(lambda b, x: b.guilty(raw(b, x * 2.0, "channel_id=1, replica_groups={}")))
c.wrong("wrong-group", "replicas", replicas=True)(lambda b, x: b.guilty(raw(b, x * 2.0, "replica_groups={}")))

# A34: argmax over a sharded axis.
c = Case("A34_argmax_sum_of_indices", ["tenstorrent/tt-mlir#8623"],
         "Argmax over a sharded axis adds the local indices.",
         {"tp": 2}, [("x", "f32[3,8]", "-,tp")], [""], draw={"x": "distinct"})


def local_argmax(b, x, off):
    i = b.iota("s32[3,4]", 1)
    return b.argmax(x, i + b.pid() * 4 if off else i, 1)


def second(b, v, i):
    return b.argmax(b.ag(b.reshape(v, 3, 1), 1), b.ag(b.reshape(i, 3, 1), 1), 1)[1]


c.base(lambda b, x: b.argmax(x, b.iota("s32[3,8]", 1), 1)[1])
c.right()(lambda b, x: second(b, *local_argmax(b, x, True)))


@c.right("where", note="the least index whose value is the maximum")
def _(b, x):
    v, i = local_argmax(b, x, True)
    return b.ar(b.where(v.cmp("EQ", b.ar(v, None, "maximum")), i, 99), None, "minimum")


c.wrong("wrong-reducer")(lambda b, x: b.guilty(b.ar(local_argmax(b, x, False)[1])))
c.wrong("wrong-reducer", "max")(lambda b, x: b.guilty(b.ar(local_argmax(b, x, True)[1], None, "maximum")))


@c.wrong("offset", "local_index")
def _(b, x):
    v, i = local_argmax(b, x, False)
    b.guilty(i)
    return second(b, v, i)


# A35: sum, then mean over devices.
c = Case("A35_sum_then_mean", ["tenstorrent/tt-mlir#3646"],
         "Sum over rows, then mean over devices: one of the two is lost.",
         {"dp": 2}, [("x", "f32[6,4]", "dp")], [""])
c.base(lambda b, x: b.red(x, 0) / 2.0)
c.right()(lambda b, x: b.ar(b.red(x, 0)) / 2.0)
c.right("divided_first")(lambda b, x: b.ar(b.red(x, 0) / 2.0))
c.wrong("missing-all-reduce")(lambda b, x: b.guilty(b.red(x, 0)) / 2.0)
c.wrong("scale", "sum")(lambda b, x: b.guilty(b.ar(b.red(x, 0))))
c.wrong("scale", "twice")(lambda b, x: b.guilty(b.ar(b.red(x, 0) / 2.0) / 2.0))

# A36: strided slice of a sharded axis.
c = Case("A36_strided_slice_start", ["tenstorrent/tt-mlir#4799"],
         "The start of a strided slice is divided by the number of shards, like its limit.",
         {"tp": 4}, [("x", "f32[3,16]", "-,tp")], ["-,tp"])
c.base(lambda b, x: b.slice(x, None, (1, 16, 2)))
c.right()(lambda b, x: b.slice(x, None, (1, 4, 2)))
c.right("gather")(lambda b, x: b.ds(b.slice(b.ag(x, 1), None, (1, 16, 2)), b.pid() * 2, 2, 1))
c.wrong("offset")(lambda b, x: b.guilty(b.slice(x, None, (0, 4, 2))))

# A40: one reduction computation for two purposes.
c = Case("A40_reducer_mixed_up", ["openxla/xla#8800"],
         "Reduction computations of different operations were merged: the all-reduce gets the wrong one.",
         {"tp": 2}, [("x", "bf16[4,6]", "-,tp")], ["", ""], tol=2e-2)
c.base(lambda b, x: (b.red(x, 1), b.red(x, 1, "maximum")))
c.right()(lambda b, x: (b.ar(b.red(x, 1)), b.ar(b.red(x, 1, "maximum"), None, "maximum")))
c.wrong("wrong-reducer")(lambda b, x: (b.ar(b.red(x, 1)), b.guilty(b.ar(b.red(x, 1, "maximum")))))
c.wrong("wrong-reducer", "max")(lambda b, x: (b.guilty(b.ar(b.red(x, 1), None, "maximum")), b.ar(b.red(x, 1, "maximum"), None, "maximum")))

# A41: gather of the next weights, prefetched in a loop that does not start at zero.
c = Case("A41_prefetch_index", ["openxla/xla#19363", "openxla/xla#18568"],
         "A pipelined loop computes the next index as if its counter began at zero.",
         {"dp": 2}, [("w", "f32[6,4]", "-,dp"), ("x", "f32[4]", "")], [""])


def plain(b, w, x, gather):
    def body(i, acc, w):
        return b.tanh(acc + b.reshape(gather(b.ds(w, i, 1)), 4)), w
    return b.fori(3, 6, [x, w], body)[0]


def pipelined(b, w, x, first, back):
    def body(i, acc, g, w):
        n = (i + 1 - back if back else i + 1).min(5)
        return b.tanh(acc + b.reshape(g, 4)), b.ag(b.guilty(b.ds(w, n, 1)), 1), w
    return b.fori(3, 6, [x, b.ag(b.slice(w, (first, first + 1)), 1), w], body)[0]


c.base(lambda b, w, x: plain(b, w, x, lambda v: v))
c.right()(lambda b, w, x: plain(b, w, x, lambda v: b.ag(v, 1)))
c.right("pipelined")(lambda b, w, x: pipelined(b, w, x, 3, 0))
c.wrong("offset")(lambda b, w, x: pipelined(b, w, x, 3, 3))


@c.wrong("offset", "first")
def _(b, w, x):
    g = b.ag(b.guilty(b.slice(w, (0, 1))), 1)
    def body(i, acc, g, w):
        return b.tanh(acc + b.reshape(g, 4)), b.ag(b.ds(w, (i + 1).min(5), 1), 1), w
    return b.fori(3, 6, [x, g, w], body)[0]

# A19: gradient of a replicated value inside a mapped region.
c = Case("A19_gradient_in_shard_map", ["jax-ml/jax#36886"],
         "Per-sample gradients of a replicated weight, taken inside a mapped region, are summed over devices.",
         {"d": 2}, [("w", "f32[3]", ""), ("x", "f32[4,3]", "d")], ["d"])


def sample_gradients(b, w, x):
    t = b.tanh(b.dot(x, w))
    return b.bcast(1.0 - t * t, x.d, [0]) * x


c.base(sample_gradients)
c.right()(sample_gradients)
c.right("gather")(lambda b, w, x: b.ds(sample_gradients(b, w, b.ag(x, 0)), b.pid() * 2, 2))
c.wrong("duplicate-all-reduce", note="samples of other devices at the same place are added")(
    lambda b, w, x: b.guilty(b.ar(sample_gradients(b, w, x))))
c.wrong("scale", "averaged")(lambda b, w, x: b.guilty(sample_gradients(b, w, x) / 2.0))

"""Further reports about compilers that rewrite a graph, collected apart from the others (ids N..)."""
from bugs import Case

INF = float("inf")

# N01: slices that are reshaped to heads.
c = Case("N01_slices_to_heads", ["ROCm/AMDMIGraphX#1496", "ROCm/AMDMIGraphX#1499", "ROCm/AMDMIGraphX#2146"],
         "Slices of a fused projection, each reshaped to heads, become one reshape and slices of it.",
         {}, [("x", "f32[2,3,16]", ""), ("w", "f32[16,16]", "")], ["", ""])


def heads(b, v, n):
    return b.tr(b.reshape(v, 2, 3, n, v.d[2] // n), 0, 2, 1, 3)


def qk(b, q, k):
    return b.dot(q, k, 3, 3, (0, 1), (0, 1)), q


def project(b, x, w):
    return b.dot(x, w)


@c.base
def _(b, x, w):
    y = project(b, x, w)
    return qk(b, heads(b, b.slice(y, None, None, (0, 8)), 2), heads(b, b.slice(y, None, None, (8, 16)), 2))


@c.right()
def _(b, x, w):
    y = heads(b, project(b, x, w), 4)
    return qk(b, b.slice(y, None, (0, 2)), b.slice(y, None, (2, 4)))


@c.right("apart", note="two products with slices of the weight")
def _(b, x, w):
    q, k = (project(b, x, b.slice(w, None, (lo, lo + 8))) for lo in (0, 8))
    return qk(b, heads(b, q, 2), heads(b, k, 2))


@c.right("five_axes")
def _(b, x, w):
    y = b.tr(b.reshape(project(b, x, w), 2, 3, 2, 2, 4), 2, 0, 3, 1, 4)
    return qk(b, *[b.reshape(b.slice(y, (k, k + 1)), 2, 2, 3, 4) for k in (0, 1)])


@c.wrong("layout", note="heads first, then the parts")
def _(b, x, w):
    y = b.tr(b.guilty(b.reshape(project(b, x, w), 2, 3, 2, 2, 4)), 3, 0, 2, 1, 4)
    return qk(b, *[b.reshape(b.slice(y, (k, k + 1)), 2, 2, 3, 4) for k in (0, 1)])


@c.wrong("layout", "permuted", note="the permutation of the slice is applied to the whole with batch and heads merged")
def _(b, x, w):
    y = b.guilty(b.reshape(b.tr(b.reshape(project(b, x, w), 2, 3, 4, 4), 2, 0, 1, 3), 2, 4, 3, 4))
    return qk(b, b.slice(y, None, (0, 2)), b.slice(y, None, (2, 4)))


# N02: rows written one by one.
c = Case("N02_rows_joined", ["EnzymeAD/Enzyme-JAX#2938"],
         "Pieces of a vector written as rows become one slice that is joined along the other axis.",
         {}, [("x", "f32[20]", ""), ("y", "f32[4,4]", "")], [""])


@c.base
def _(b, x, y):
    z = b.zeros("f32[4,4]")
    for k in range(4):
        z = b.dus(z, b.reshape(b.slice(x, (4 * (k + 1), 4 * (k + 2))), 1, 4), k)
    return b.dot(z, y)


c.right()(lambda b, x, y: b.dot(b.cat([b.reshape(b.slice(x, (4 * k, 4 * k + 4)), 1, 4) for k in range(1, 5)]), y))
c.right("one_slice")(lambda b, x, y: b.dot(b.reshape(b.slice(x, (4, 20)), 4, 4), y))
c.right("columns", note="joined as columns and transposed")(
    lambda b, x, y: b.dot(b.cat([b.reshape(b.slice(x, (4 * k, 4 * k + 4)), 4, 1) for k in range(1, 5)], 1), y, 0))
c.wrong("layout", note="joined as columns")(
    lambda b, x, y: b.dot(b.guilty(b.cat([b.reshape(b.slice(x, (4 * k, 4 * k + 4)), 4, 1) for k in range(1, 5)], 1)), y))
c.wrong("offset", "from_start")(lambda b, x, y: b.dot(b.reshape(b.guilty(b.slice(x, (0, 16))), 4, 4), y))

# N03: signed division by a power of two.
c = Case("N03_division_as_shift", ["google/xls#732", "tinygrad/tinygrad#10803"],
         "Signed division by four becomes an arithmetic shift, its remainder a mask.",
         {}, [("x", "s32[12]", "")], ["", ""], draw={"x": "distinct"})
sh = lambda b, op, v, k: b.emit(op, v.t, v.d, [v, b.full(k, v.t, v.d)])  # noqa: E731
asr = lambda b, v, k: sh(b, "shift-right-arithmetic", v, k)  # noqa: E731
lsr = lambda b, v, k: sh(b, "shift-right-logical", v, k)  # noqa: E731
shl = lambda b, v, k: sh(b, "shift-left", v, k)  # noqa: E731


def by_shift(b, x, q):
    return q, x - shl(b, q, 2)


c.base(lambda b, x: (x / 4, x % 4))
c.right()(lambda b, x: by_shift(b, x, asr(b, x + lsr(b, asr(b, x, 31), 30), 2)))
c.right("select")(lambda b, x: by_shift(b, x, asr(b, b.where(x.cmp("LT", 0), x + 3, x), 2)))
c.right("not_negative", ins=[("x", "s32[12]", "", (0, 1000))])(lambda b, x: (asr(b, x, 2), x & 3))
c.right("remainder_only", note="the quotient as it is, the remainder from it")(lambda b, x: by_shift(b, x, x / 4))
c.wrong("wrong-operand")(lambda b, x: by_shift(b, x, b.guilty(asr(b, x, 2))))
c.wrong("wrong-operand", "mask")(lambda b, x: (x / 4, b.guilty(x & 3)))
c.wrong("wrong-operand", "in_range", ins=[("x", "s32[12]", "", (-50, 1000))])(lambda b, x: by_shift(b, x, b.guilty(asr(b, x, 2))))

# N04: division by a shifted value.
c = Case("N04_division_by_shifted", ["google/xls#4949"],
         "Division by y << k becomes a division by y and a shift, though y << k may overflow.",
         {}, [("x", "u8[6]", "", (0, 255)), ("y", "u8[6]", "", (1, 255))], [""])
small = [("x", "u8[6]", "", (0, 255)), ("y", "u8[6]", "", (1, 15))]
c.base(lambda b, x, y: x / shl(b, y, 4))
c.right("product")(lambda b, x, y: x / (y * 16))
c.right("in_range", ins=small)(lambda b, x, y: lsr(b, x / y, 4))
c.right("shifted_first", ins=small)(lambda b, x, y: lsr(b, x, 4) / y)
c.wrong("wrong-operand")(lambda b, x, y: b.guilty(lsr(b, x / y, 4)))

# N05: remainder of a rounded index.
c = Case("N05_index_of_layout", ["apache/tvm#10336"],
         "Indices of a change from blocks of four channels to blocks of two: i % 20 / 2 * 2 % 4 becomes i % 4.",
         {}, [("x", "f32[80]", ""), ("i", "s32[9]", "", (0, 79))], [""])


def at(b, x, i, k):
    return b.rows(x, i / 20 * 20 + k)


c.base(lambda b, x, i: at(b, x, i, (i % 20) / 2 * 2 % 4))
c.right()(lambda b, x, i: at(b, x, i, i / 2 * 2 % 4))
c.right("rounded_remainder")(lambda b, x, i: at(b, x, i, i % 4 / 2 * 2))
c.right("less_the_bit")(lambda b, x, i: at(b, x, i, i % 4 - i % 2))
c.right("bits")(lambda b, x, i: at(b, x, i, i & 2))
c.wrong("offset")(lambda b, x, i: at(b, x, i, b.guilty(i % 4)))

c = Case("N05_blocks_of_channels", ["apache/tvm#10336"],
         "The change of layout itself.",
         {}, [("x", "f32[2,5,3,4]", "")], [""])
c.base(lambda b, x: b.reshape(b.tr(b.reshape(x, 2, 5, 3, 2, 2), 0, 1, 3, 2, 4), 2, 10, 3, 2))
c.right("channels_last")(lambda b, x: b.tr(b.reshape(b.reshape(b.tr(x, 0, 2, 1, 3), 2, 3, 20), 2, 3, 10, 2), 0, 2, 1, 3))


@c.right("taken", note="by index from the flat array")
def _(b, x):
    i = lambda k: b.iota("s32[2,10,3,2]", k)  # noqa: E731
    ch = i(1) * 2 + i(3)
    return b.rows(b.reshape(x, 120), ((i(0) * 5 + ch / 4) * 3 + i(2)) * 4 + ch % 4)


c.wrong("layout")(lambda b, x: b.reshape(b.guilty(b.tr(b.reshape(x, 2, 5, 3, 2, 2), 0, 1, 4, 2, 3)), 2, 10, 3, 2))


@c.wrong("offset", "taken")
def _(b, x):
    i = lambda k: b.iota("s32[2,10,3,2]", k)  # noqa: E731
    ch = i(1) * 2 + i(3)
    return b.rows(b.reshape(x, 120), b.guilty(((i(0) * 5 + ch / 4) * 3 + i(2)) * 4 + i(1) % 4))


# N06: padding of a dilated operand.
c = Case("N06_negative_padding", ["tillahoffmann/jax-mps#150"],
         "A negative padding is cut off before the operand is dilated.",
         {}, [("x", "f32[2,6,3]", ""), ("w", "f32[3,3,4]", "")], [""])


def conv(b, x, w, n, win):
    return b.emit("convolution", x.t, [x.d[0], n, w.d[2]], [x, w], f"window={{size=3 {win}}}, dim_labels=b0f_0io->b0f")


def spread(b, x):
    """Zeros between the columns of x."""
    y = b.pad(b.reshape(x, 2, 6, 1, 3), 0.0, (0, 0), (0, 0), (0, 1))
    return b.slice(b.reshape(y, 2, 12, 3), None, (0, 11))


c.base(lambda b, x, w: conv(b, x, w, 7, "pad=-1_-1 lhs_dilate=2"))
c.right()(lambda b, x, w: conv(b, b.slice(spread(b, x), None, (1, 10)), w, 7, "pad=0_0"))
c.right("negative")(lambda b, x, w: conv(b, spread(b, x), w, 7, "pad=-1_-1"))
c.right("interior")(lambda b, x, w: conv(
    b, b.emit("pad", "f32", [2, 9, 3], [x, b.const(0.0)], "padding=0_0x-1_-1_1x0_0"), w, 7, "pad=0_0"))
c.right("cut_first", note="the columns cut off and the zeros beside them")(
    lambda b, x, w: conv(b, b.slice(x, None, (1, 5)), w, 7, "pad=1_1 lhs_dilate=2"))
c.wrong("offset", note="columns are cut off, the dilated ones padded behind")(
    lambda b, x, w: b.guilty(conv(b, b.slice(x, None, (1, 5)), w, 7, "pad=0_2 lhs_dilate=2")))
c.wrong("wrong-operand", "zeros_lost", note="zeros stand before the columns, not between them")(
    lambda b, x, w: conv(b, b.guilty(b.slice(b.reshape(b.pad(b.reshape(x, 2, 6, 1, 3), 0.0, (0, 0), (0, 0), (1, 0)), 2, 12, 3),
                                             None, (1, 10))), w, 7, "pad=0_0"))

# N07: what relu makes of values that are not numbers.
c = Case("N07_not_a_number", ["pytorch/pytorch#93784", "tracel-ai/burn#5609"],
         "The larger of zero and 0/0 becomes zero where a comparison selects.",
         {}, [("x", "s32[8]", "", (0, 1)), ("y", "s32[8]", "", (0, 1))], [""])


def quotient(b, x, y):
    return b.conv(x, "f32") / b.conv(y, "f32")


def ramp(b, x, y, f):
    return f(quotient(b, x, y) - 0.5)


c.base(lambda b, x, y: ramp(b, x, y, lambda v: v.max(0)))
c.right()(lambda b, x, y: ramp(b, x, y, lambda v: b.where(v.cmp("LE", 0.0), b.full(0, "f32", v.d), v)))
c.right("asked")(lambda b, x, y: ramp(b, x, y, lambda v: b.where(v.cmp("GT", 0.0) | v.cmp("NE", v), v, 0.0)))
c.right("numbers", ins=[("x", "s32[8]", "", (0, 1)), ("y", "s32[8]", "", (1, 2))])(
    lambda b, x, y: ramp(b, x, y, lambda v: b.where(v.cmp("GT", 0.0), v, 0.0)))
c.wrong("wrong-operand")(lambda b, x, y: ramp(b, x, y, lambda v: b.guilty(b.where(v.cmp("GT", 0.0), v, 0.0))))

# N08: order of products.
c = Case("N08_order_of_products", ["apache/tvm#20277"],
         "A product with the identity permutation of a product is reordered as with its transpose.",
         {"tp": 2}, [("x", "f32[4,4]", "-,tp"), ("y", "f32[4,4]", "tp"), ("z", "f32[4,4]", "")], [""])
c.base(lambda b, x, y, z: b.dot(x, b.tr(b.dot(y, z), 0, 1)))
c.right()(lambda b, x, y, z: b.dot(b.ar(b.dot(x, y)), z))
c.right("late")(lambda b, x, y, z: b.ar(b.dot(x, b.dot(y, z))))
c.right("transposed")(lambda b, x, y, z: b.tr(b.dot(b.tr(z, 1, 0), b.ar(b.dot(y, x, 0, 1))), 1, 0))
c.wrong("layout")(lambda b, x, y, z: b.dot(b.guilty(b.dot(b.ag(x, 1), z, 1, 1)), b.ag(y, 0), 1, 1))

# N09: two transposes of a flat matrix.
c = Case("N09_flat_transposes", ["llvm/llvm-project#135397"],
         "Two transposes of a flat matrix cancel only if the second reads the shape that the first has written.",
         {}, [("x", "f32[12]", ""), ("w", "f32[12]", "")], [""])
flat = lambda b, x, m, n: b.reshape(b.tr(b.reshape(x, m, n), 1, 0), 12)  # noqa: E731
c.base(lambda b, x, w: flat(b, flat(b, x, 3, 4), 3, 4) * w)
c.right("once", note="a permutation of the two-by-two-by-three pieces")(
    lambda b, x, w: b.rows(x, b.const([(k % 3 * 4 + k // 3) % 3 * 4 + (k % 3 * 4 + k // 3) // 3 for k in range(12)], "s32")) * w)
c.right("inverse_on_weight", note="the weight is permuted back, the product forth")(
    lambda b, x, w: flat(b, flat(b, x * flat(b, flat(b, w, 4, 3), 4, 3), 3, 4), 3, 4))
c.wrong("layout")(lambda b, x, w: b.guilty(x * w))
c.wrong("layout", "cancelled_other")(lambda b, x, w: b.guilty(flat(b, flat(b, x, 4, 3), 4, 3)) * w)

# N10: a dynamic slice of a slice.
c = Case("N10_dynamic_slice_of_slice", ["EnzymeAD/Enzyme-JAX#1833"],
         "A dynamic slice of a slice is taken from the whole with the sum of starts, not clamped.",
         {"dp": 2}, [("x", "f32[4,10]", "dp"), ("i", "s32[]", "", (-2, 9))], ["dp"])
c.base(lambda b, x, i: b.tanh(b.ds(b.slice(x, None, (2, 8)), i, 3, 1)))
c.right()(lambda b, x, i: b.tanh(b.ds(x, i.max(0).min(3) + 2, 3, 1)))
c.right("in_range", ins=[("x", "f32[4,10]", "dp"), ("i", "s32[]", "", (0, 3))])(
    lambda b, x, i: b.tanh(b.ds(x, i + 2, 3, 1)))
c.right("behind")(lambda b, x, i: b.ds(b.slice(b.tanh(x), None, (2, 8)), i, 3, 1))
c.wrong("offset")(lambda b, x, i: b.tanh(b.guilty(b.ds(x, i + 2, 3, 1))))
c.wrong("offset", "clamped_late")(lambda b, x, i: b.tanh(b.guilty(b.ds(x, (i + 2).max(2).min(7), 3, 1))))

# N11: split of a value and its parts put together (the report: misplaced second half).
c = Case("N11_halves_joined", ["apache/tvm#20207"],
         "The second half of a split is read from the wrong place.",
         {"tp": 2}, [("x", "f32[3,16]", "-,tp"), ("w", "f32[16,5]", "tp")], [""])


def gate(b, y, halves):
    p, q = halves(b, y)
    return b.cat([q, -p], 1)


def cut(b, y):
    n = y.d[1] // 2
    return b.slice(y, None, (0, n)), b.slice(y, None, (n, 2 * n))


c.base(lambda b, x, w: b.dot(gate(b, x, cut), w))


@c.right()
def _(b, x, w):
    # The halves lie on two devices: they are exchanged.
    y = b.cp(x, [(0, 1), (1, 0)])
    sign = b.where(b.pid().cmp("EQ", 0), b.full(1, "f32", []), -1.0)
    return b.ar(b.dot(y * sign, w))


@c.right("weights_move", note="the weight's halves are exchanged, not the activation's")
def _(b, x, w):
    sign = b.where(b.pid().cmp("EQ", 0), b.full(-1, "f32", []), 1.0)
    return b.ar(b.dot(x, b.cp(w, [(0, 1), (1, 0)])) * sign)


@c.right("gathered")
def _(b, x, w):
    return b.dot(gate(b, b.ag(x, 1), cut), b.ag(w, 0))


@c.wrong("wrong-permute", "local", note="the halves of the device's block")
def _(b, x, w):
    return b.ar(b.dot(b.guilty(gate(b, x, cut)), w))


@c.wrong("scale", "sign", note="the other half gets the sign")
def _(b, x, w):
    y = b.cp(x, [(0, 1), (1, 0)])
    sign = b.where(b.pid().cmp("EQ", 1), b.full(1, "f32", []), -1.0)
    return b.ar(b.dot(b.guilty(y * sign), w))


# N12: integer products summed in a narrow type.
c = Case("N12_narrow_sum", [],
         "Products of eight-bit numbers are summed in eight bits (seen in several back ends; no one report).",
         {"tp": 2}, [("x", "s8[3,8]", "-,tp", (-128, 127)), ("w", "s8[8,4]", "tp", (-128, 127)), ("s", "f32[4]", "")], [""])


def wide(b, x, w):
    return b.dot(b.conv(x, "s32"), b.conv(w, "s32"))


def scaled(b, y, s):
    return b.conv(y, "f32") * b.bcast(s, y.d, [1])


c.base(lambda b, x, w, s: scaled(b, wide(b, x, w), s))
c.right()(lambda b, x, w, s: scaled(b, b.ar(wide(b, x, w)), s))
c.right("floats", note="exact: the sums are small")(
    lambda b, x, w, s: b.ar(b.dot(b.conv(x, "f32"), b.conv(w, "f32"))) * b.bcast(s, [3, 4], [1]))
c.right("scaled_first")(lambda b, x, w, s: b.ar(scaled(b, wide(b, x, w), s)))
c.wrong("wrong-operand", note="wraps around")(lambda b, x, w, s: scaled(b, b.ar(b.conv(b.guilty(b.dot(x, w)), "s32")), s))
c.wrong("wrong-operand", "reduced_narrow")(
    lambda b, x, w, s: scaled(b, b.conv(b.guilty(b.ar(b.conv(wide(b, x, w), "s8"))), "s32"), s))

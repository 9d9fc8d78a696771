"""Reports about compilers that rewrite a graph for one device (ids I.., J..)."""
from bugs import Case

# I01: two nested slices merged.
c = Case("I01_nested_slices", ["openxla/xla#49121", "jax-ml/jax#40849"],
         "Two nested dynamic slices are merged with the sum of unclamped starts.",
         {}, [("x", "f32[10]", ""), ("i", "s32[]", "", (0, 9)), ("j", "s32[]", "", (0, 3))], [""])
c.base(lambda b, x, i, j: b.ds(b.ds(x, i, 4), j, 1))
c.right("clamped")(lambda b, x, i, j: b.ds(x, i.max(0).min(6) + j.max(0).min(3), 1))
c.right("in_range", ins=[("x", "f32[10]", ""), ("i", "s32[]", "", (0, 6)), ("j", "s32[]", "", (0, 3))],
        note="starts declared in range")(lambda b, x, i, j: b.ds(x, i + j, 1))
c.wrong("offset")(lambda b, x, i, j: b.guilty(b.ds(x, i + j, 1)))
c.wrong("offset", "inner_size", note="the outer start is clamped to the size of the inner slice")(
    lambda b, x, i, j: b.guilty(b.ds(x, i.max(0).min(9) + j, 1)))

c = Case("I01_nested_updates", ["openxla/xla#49121"],
         "The same for an update of a slice that is written back.",
         {}, [("x", "f32[10]", ""), ("u", "f32[2]", ""), ("i", "s32[]", "", (0, 9)), ("j", "s32[]", "", (0, 2))], [""])
c.base(lambda b, x, u, i, j: b.dus(x, b.dus(b.ds(x, i, 4), u, j), i))
c.right("clamped")(lambda b, x, u, i, j: b.dus(x, u, i.min(6) + j))
c.wrong("offset")(lambda b, x, u, i, j: b.guilty(b.dus(x, u, i + j)))

# I02: an update out of range.
c = Case("I02_update_out_of_range", ["openxla/xla#49120"],
         "A constant start out of range is used raw as a place in memory.",
         {}, [("x", "f32[3,2,9]", ""), ("u", "f32[1,1,4]", "")], [""])


def update(b, x, u, at):
    s = [b.const(k, "s32") for k in at]
    return b.emit("dynamic-update-slice", x.t, x.d, [x, u] + s)


c.base(lambda b, x, u: update(b, x, u, (0, 2, 7)))
c.right("clamped")(lambda b, x, u: update(b, x, u, (0, 1, 5)))
c.right("pieces", note="as concatenation")(lambda b, x, u: b.cat([b.cat([
    b.slice(x, (0, 1), (0, 1)), b.cat([b.slice(x, (0, 1), (1, 2), (0, 5)), u], 2)], 1), b.slice(x, (1, 3))]))
c.wrong("offset", note="row-major place of the raw start")(
    lambda b, x, u: b.reshape(b.guilty(b.dus(b.reshape(x, 54), b.reshape(u, 4), 2 * 9 + 7)), 3, 2, 9))
c.wrong("offset", "one_axis")(lambda b, x, u: b.guilty(update(b, x, u, (0, 1, 4))))

# I04: bias of an epilogue.
c = Case("I04_bias_along_columns", ["openxla/xla#46897"],
         "A bias per row is folded into a product and added along columns.",
         {}, [("x", "f32[4,3]", ""), ("w", "f32[3,4]", ""), ("k", "f32[4]", "")], [""])
c.base(lambda b, x, w, k: b.dot(x, w) + b.bcast(k, [4, 4], [0]))
c.right("transposed", note="along columns of the transposed product")(
    lambda b, x, w, k: b.tr(b.dot(w, x, 0, 1) + b.bcast(k, [4, 4], [1]), 1, 0))
c.right("as_column", note="one more column contracted with ones")(lambda b, x, w, k: b.dot(
    b.cat([x, b.reshape(k, 4, 1)], 1), b.cat([w, b.full(1, "f32", [1, 4])])))
c.wrong("wrong-dimension")(lambda b, x, w, k: b.dot(x, w) + b.guilty(b.bcast(k, [4, 4], [1])))

# I05: scale of an epilogue.
c = Case("I05_alpha_ignored", ["ml-explore/mlx#2578", "ml-explore/mlx#2569"],
         "The factor of a product is forgotten where a bias is fused.",
         {}, [("x", "f32[4,3]", ""), ("w", "f32[3,5]", ""), ("k", "f32[5]", ""), ("alpha", "f32[]", "")], [""])
bias = lambda b, k: b.bcast(k, [4, 5], [1])  # noqa: E731
c.base(lambda b, x, w, k, a: b.dot(x, w) * a + bias(b, k))
c.right("inside")(lambda b, x, w, k, a: b.dot(x * a, w) + bias(b, k))
c.right("on_weights")(lambda b, x, w, k, a: bias(b, k) + b.dot(x, w * a))
c.wrong("scale")(lambda b, x, w, k, a: b.guilty(b.dot(x, w) + bias(b, k)))
c.wrong("scale", "bias_too")(lambda b, x, w, k, a: b.guilty((b.dot(x, w) + bias(b, k)) * a))

# I08: a round trip through bf16 removed.
c = Case("I08_round_trip_removed", ["openxla/xla#41605", "jax-ml/jax#23007", "openxla/xla#10687"],
         "A conversion to bf16 and back is removed.",
         {"dp": 2}, [("x", "f32[4,3]", "dp")], ["dp"])
trip = lambda b, x, t="bf16": b.conv(b.conv(x, t), "f32")  # noqa: E731
c.base(lambda b, x: trip(b, x) * 2.0)
c.right()(lambda b, x: trip(b, x) * 2.0)
c.right("twice", note="the second round trip changes nothing")(lambda b, x: trip(b, trip(b, x)) * 2.0)
c.wrong("precision")(lambda b, x: b.guilty(x * 2.0))
c.wrong("precision", "f16")(lambda b, x: b.guilty(trip(b, x, "f16")) * 2.0)

# I12: an update in place that reads what it wrote.
c = Case("I12_reads_its_own_writes", ["jax-ml/jax#7461", "jax-ml/jax#10129"],
         "y[1:] = 1 + x[:-1] runs in place and reads elements already written.",
         {}, [("x", "f32[6]", "")], [""])


def steps(b, x, source):
    def body(i, y, x):
        v = b.ds(y if source == "y" else x, i, 1) + 1.0
        if source == "y":
            b.guilty(v)
        return b.dus(y, v, i + 1), x
    return b.fori(0, 5, [x, x], body)[0]


c.base(lambda b, x: b.cat([b.slice(x, (0, 1)), b.slice(x, (0, 5)) + 1.0]))
c.right("loop")(lambda b, x: steps(b, x, "x"))
c.right("update")(lambda b, x: b.dus(x, b.slice(x, (0, 5)) + 1.0, 1))
c.wrong("wrong-operand")(lambda b, x: steps(b, x, "y"))

# I13: two outputs of one fusion.
c = Case("I13_two_outputs", ["jax-ml/jax#9399"],
         "A symmetric sum and its transpose are returned; a fusion adds a term twice to one.",
         {}, [("x", "f32[4,4]", "")], ["", ""])
c.base(lambda b, x: (x + b.tr(x, 1, 0), b.tr(x + b.tr(x, 1, 0), 1, 0)))


@c.right("shared", note="the sum is symmetric")
def _(b, x):
    y = x + b.tr(x, 1, 0)
    return y, y


@c.wrong("wrong-operand")
def _(b, x):
    t = b.tr(x, 1, 0)
    y = x + t
    return y, b.guilty(y + t)


# I14: order of a folded constant.
c = Case("I14_order_of_constant", ["jax-ml/jax#33479", "openxla/xla#34260"],
         "A gather of a constant is folded, and the constant is read in another order than it was written.",
         {}, [("k", "s32[]", "", (0, 4))], [""])


def columns(b, table, k):
    t = b.const(table, "s32")
    return b.reshape(b.emit("dynamic-slice", "s32", [2, 1], [t, b.const(0, "s32"), k], "dynamic_slice_sizes={2,1}"), 2) + 1


rows_ = [[10, 11, 12, 13, 14], [25, 26, 27, 28, 29]]
flat = [v for r in zip(*rows_) for v in r]
c.base(lambda b, k: columns(b, rows_, k))
c.right("from_rows")(lambda b, k: b.iota("s32[2]") * 15 + b.bcast(k, [2], []) + 11)
c.wrong("layout")(lambda b, k: b.guilty(columns(b, [flat[:5], flat[5:]], k)))

# I15: copies through a bitcast collapsed.
c = Case("I15_copies_collapsed", ["openxla/xla#18441"],
         "Transpose and reshape across an axis of size 1 are collapsed as if no data moved.",
         {}, [("x", "f32[3,1,2]", "")], [""])
c.base(lambda b, x: b.reshape(b.tr(x, 2, 1, 0), 1, 6))
c.right("two_axes")(lambda b, x: b.reshape(b.tr(b.reshape(x, 3, 2), 1, 0), 1, 6))
c.right("columns")(lambda b, x: b.reshape(b.cat([b.slice(x, None, None, (k, k + 1)) for k in (0, 1)]), 1, 6))
c.wrong("layout")(lambda b, x: b.guilty(b.reshape(x, 1, 6)))

# I22: transpose and window swapped.
c = Case("I22_inverse_permutation", ["EnzymeAD/Enzyme-JAX#3223"],
         "A transpose is moved behind a windowed sum with the inverse permutation of its window.",
         {}, [("x", "f32[2,3,4]", "")], [""])


def window(b, x, w):
    """Sums of windows that begin at each element; zeros past the end."""
    z = b.const(0, "f32")
    pads = "x".join(f"0_{k - 1}" for k in w)
    return b.emit("reduce-window", x.t, x.d, [x, z],
                  f"window={{size={'x'.join(map(str, w))} pad={pads}}}, to_apply={b.reducer('add', 'f32')}")


c.base(lambda b, x: window(b, b.tr(x, 1, 2, 0), (1, 2, 1)))
c.right("swapped")(lambda b, x: b.tr(window(b, x, (1, 1, 2)), 1, 2, 0))
c.wrong("wrong-dimension")(lambda b, x: b.tr(b.guilty(window(b, x, (2, 1, 1))), 1, 2, 0))
c.wrong("wrong-dimension", "not_permuted")(lambda b, x: b.tr(b.guilty(window(b, x, (1, 2, 1))), 1, 2, 0))

# I23: two broadcasts merged.
c = Case("I23_broadcasts_merged", ["EnzymeAD/Enzyme-JAX#1796", "EnzymeAD/Enzyme-JAX#948"],
         "Two broadcasts are merged with their dimension maps composed in the wrong order.",
         {}, [("x", "f32[3,3]", "")], [""])
c.base(lambda b, x: b.bcast(b.bcast(x, [3, 2, 3], [0, 2]), [3, 3, 2, 4], [1, 2, 0]))


@c.right("merged", note="the second broadcast keeps the transposed order of the first")
def _(b, x):
    return b.bcast(b.tr(x, 1, 0), [3, 3, 2, 4], [0, 1])


c.wrong("wrong-dimension")(lambda b, x: b.guilty(b.bcast(x, [3, 3, 2, 4], [0, 1])))

# I27, J08: division and remainder of negative numbers.
c = Case("I27_floor_division", ["jax-ml/jax#9604"],
         "Floor division in a loop is compiled as truncating division.",
         {}, [("x", "s32[5]", "", (-40, 40))], [""])


def floor_div(b, x, n):
    q = x / n
    return b.where((x % n).cmp("LT", 0), q - 1, q)


def looped(b, x, f):
    return b.fori(0, 3, [x], lambda i, v: [f(v) - b.bcast(i, [5], [])])[0]


c.base(lambda b, x: looped(b, x, lambda v: floor_div(b, v, 3)))
c.right("unrolled")(lambda b, x: floor_div(b, floor_div(b, floor_div(b, x, 3), 3) - 1, 3) - 2)
c.wrong("wrong-operand")(lambda b, x: looped(b, x, lambda v: b.guilty(v / 3)))

c = Case("J08_floor_remainder", ["apache/tvm#2486", "apache/tvm#13359", "apache/tvm#4997", "apache/tvm#5505"],
         "The remainder that rounds down is folded to the one that truncates.",
         {"d": 2}, [("x", "s32[6]", "d", (-20, 20))], ["d"])


def floor_mod(b, x, n):
    r = x % n
    return b.where(r.cmp("LT", 0), r + n, r)


c.base(lambda b, x: floor_mod(b, x, 4))
c.right()(lambda b, x: floor_mod(b, x, 4))
c.right("bits", note="the low bits")(lambda b, x: x & 3)
c.right("non_negative", ins=[("x", "s32[6]", "d", (0, 20))], note="both remainders agree where no input is negative")(lambda b, x: x % 4)
c.wrong("wrong-operand")(lambda b, x: b.guilty(x % 4))

# J01: a transpose that is none.
c = Case("J01_identity_transpose", ["microsoft/onnxruntime#32228", "microsoft/onnxruntime#32418"],
         "A fusion of transpose and product does not read the permutation: the identity is taken for a swap.",
         {}, [("a", "f32[3,3]", ""), ("c", "f32[3,3]", "")], [""])
c.base(lambda b, x, y: b.dot(b.tr(x, 0, 1), y))
c.right("dropped")(lambda b, x, y: b.dot(x, y))
c.right("twice")(lambda b, x, y: b.tr(b.dot(y, b.tr(x, 1, 0), 0, 0), 1, 0))
c.wrong("layout")(lambda b, x, y: b.guilty(b.dot(x, y, 0, 0)))

# J07: a scale folded through relu, and quotients by roots.
c = Case("J07_scale_through_relu", ["apache/tvm#16211"],
         "A negative factor is moved through relu.",
         {}, [("x", "f32[4,3]", ""), ("w", "f32[3,5]", "")], [""])
c.base(lambda b, x, w: b.relu(b.dot(x, w)) * -1.5)
c.right("minimum", note="a negative factor turns the maximum into a minimum")(lambda b, x, w: (b.dot(x, w) * -1.5).min(0.0))
c.right("sign_apart")(lambda b, x, w: -b.relu(b.dot(x, w * 1.5)))
c.wrong("scale")(lambda b, x, w: b.relu(b.guilty(b.dot(x, w * -1.5))))

c = Case("J07_positive_scale", ["apache/tvm#16211"],
         "The look-alike that is right: a positive factor.",
         {}, [("x", "f32[4,3]", ""), ("w", "f32[3,5]", "")], [""])
c.base(lambda b, x, w: b.relu(b.dot(x, w)) * 1.5)
c.right("inside")(lambda b, x, w: b.relu(b.dot(x, w * 1.5)))
c.wrong("scale")(lambda b, x, w: b.guilty(b.relu(b.dot(x, w * 1.5)) * 1.5))

c = Case("J07_root_quotient", ["apache/tvm#16211"],
         "A quotient by a root and a product with a reciprocal root; the epsilon must stay inside.",
         {}, [("x", "f32[5]", ""), ("y", "f32[5]", "")], [""], draw={"y": "positive"})
c.base(lambda b, x, y: x / b.sqrt(y + 0.01))
c.right("rsqrt")(lambda b, x, y: x * b.rsqrt(y + 0.01))
c.wrong("wrong-operand")(lambda b, x, y: b.guilty(x * (b.rsqrt(y) + 0.01)))

# J10: broadcast and slice.
c = Case("J10_broadcast_then_slice", ["openvinotoolkit/openvino#16872", "openvinotoolkit/openvino#30996",
                                      "openvinotoolkit/openvino#30666", "openvinotoolkit/openvino#16261"],
         "A slice of a broadcast is folded on the wrong axis.",
         {}, [("x", "f32[3]", "")], [""])
c.base(lambda b, x: b.slice(b.bcast(x, [3, 3], [0]), (1, 3)))
c.right("folded")(lambda b, x: b.bcast(b.slice(x, (1, 3)), [2, 3], [0]))
c.wrong("wrong-dimension")(lambda b, x: b.guilty(b.bcast(x, [2, 3], [1])))
c.wrong("offset", "start")(lambda b, x: b.bcast(b.guilty(b.slice(x, (0, 2))), [2, 3], [0]))

# J11: an attention pattern matched for any permutation.
c = Case("J11_attention_pattern", ["pytorch/pytorch#195320", "pytorch/pytorch#191260", "pytorch/pytorch#195383"],
         "An attention pattern is matched for any permutation of the keys. All axes are equal, so shapes agree.",
         {}, [("q", "f32[1,2,2,2]", ""), ("k", "f32[1,2,2,2]", ""), ("v", "f32[1,2,2,2]", "")], [""])


def attention(b, q, k, v, perm):
    kt = b.guilty(b.tr(k, *perm))
    p = b.softmax(b.dot(q, kt, 3, 2, [0, 1], [0, 1]))
    return b.dot(p, v, 3, 2, [0, 1], [0, 1])


c.base(lambda b, q, k, v: attention(b, q, k, v, (0, 3, 2, 1)))
c.right("contracted", note="the permutation as choice of contracted dimension")(
    lambda b, q, k, v: b.dot(b.softmax(b.dot(q, k, 3, 2, [0, 1], [0, 3])), v, 3, 2, [0, 1], [0, 1]))
c.wrong("layout")(lambda b, q, k, v: attention(b, q, k, v, (0, 1, 3, 2)))
c.wrong("layout", "plain")(lambda b, q, k, v: attention(b, q, k, v, (0, 1, 2, 3)))

# I06: cropping folded into the padding of a window.
c = Case("I06_crop_in_window", ["openxla/xla#48715"],
         "A negative pad, which crops, is folded into the padding of a windowed sum.",
         {}, [("x", "s32[3,7]", "", (-9, 9))], [""])


def pairs_of(b, x, lo):
    z = b.const(0, "s32")
    return b.emit("reduce-window", "s32", [3, x.d[1] + lo - 1], [x, z],
                  f"window={{size=1x2 pad=0_0x{lo}_0}}, to_apply={b.reducer('add', 's32')}")


c.base(lambda b, x: pairs_of(b, b.pad(x, 0, (0, 0), (-1, 0)), 1))
c.right("sliced")(lambda b, x: pairs_of(b, b.slice(x, None, (1, 7)), 1))
c.right("added")(lambda b, x: b.slice(x, None, (1, 7)) + b.pad(b.slice(x, None, (1, 6)), 0, (0, 0), (1, 0)))
c.wrong("offset", note="the cropped column is read where the padding belongs")(lambda b, x: b.guilty(pairs_of(b, x, 0)))

# I16: a pattern that does not compare its operands.
c = Case("I16_operands_not_compared", ["openxla/xla#14074"],
         "sqrt(x) * sqrt(y) is rewritten to x as if both roots were of one value.",
         {}, [("x", "f32[5]", ""), ("y", "f32[5]", "")], [""])
root = lambda b, v: b.sqrt(b.un("abs", v) + 0.1)  # noqa: E731
c.base(lambda b, x, y: root(b, x) * root(b, y))
c.right("swapped")(lambda b, x, y: root(b, y) * root(b, x))
c.right("one_root")(lambda b, x, y: b.sqrt((b.un("abs", x) + 0.1) * (b.un("abs", y) + 0.1)))
c.wrong("wrong-operand")(lambda b, x, y: b.guilty(b.un("abs", x) + 0.1))

c = Case("I16_same_operand", ["openxla/xla#14074"],
         "The look-alike that is right: both roots are of one value.",
         {}, [("x", "f32[5]", "")], [""])
c.base(lambda b, x: root(b, x) * root(b, x))
c.right("rewritten")(lambda b, x: b.un("abs", x) + 0.1)
c.wrong("wrong-operand")(lambda b, x: b.guilty(x + 0.1))

# I21: a rule for predicates on integers.
c = Case("I21_and_with_one", ["openxla/stablehlo#2633"],
         "x and 1 is folded to x, x or 1 to 1: rules for predicates applied to integers.",
         {}, [("x", "s32[6]", "", (-20, 20))], ["", ""])
c.base(lambda b, x: (x & 1, x | 1))


@c.right("arithmetic")
def _(b, x):
    odd = (x % 2).cmp("NE", 0)
    return b.where(odd, b.full(1, "s32", [6]), 0), b.where(odd, x, x + 1)


c.wrong("wrong-operand")(lambda b, x: (b.guilty(x + 0), x | 1))
c.wrong("wrong-operand", "or")(lambda b, x: (x & 1, b.guilty(b.full(1, "s32", [6]))))

c = Case("I21_and_with_true", ["openxla/stablehlo#2633"],
         "The look-alike that is right: predicates.",
         {}, [("p", "pred[6]", "")], ["", ""])
c.base(lambda b, p: (p & b.full(1, "pred", [6]), p | b.full(1, "pred", [6])))
c.right("folded")(lambda b, p: (p, b.full(1, "pred", [6])))
c.wrong("wrong-operand")(lambda b, p: (p, b.guilty(p | p)))

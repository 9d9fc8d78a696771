//! One table: per opcode what is inferred, and per side condition a case that
//! breaks it. Expected shapes follow from the definitions of the operations;
//! `crates/hlo` compares with XLA's answers.

mod common;

use Opcode::*;
use common::*;
use scalify_ir::*;

struct Case {
    op: Opcode,
    operands: &'static str,
    attrs: Attrs,
    calls: &'static [&'static str],
    declared: &'static str,
    /// A shape, `free`, or `!` and a part of the error.
    want: &'static str,
}

fn run(c: &Case) -> Result<Option<Shape>, InferError> {
    let mut m = ModuleBuilder::new("m");
    let calls: Vec<_> = c.calls.iter().map(|s| callee(&mut m, s)).collect();
    let mut b = m.computation("main");
    let xs: Vec<_> = shapes(c.operands).into_iter().map(|s| b.parameter_of(s)).collect();
    let declared = (!c.declared.is_empty()).then(|| shape(c.declared));
    infer_op(b.module(), c.op, &c.attrs, &xs, &calls, declared.as_ref())
}

fn check(table: Vec<Case>) {
    let mut failed = Vec::new();
    for c in &table {
        let got = match run(c) {
            Ok(None) => "free".to_string(),
            Ok(Some(s)) => s.to_string(),
            Err(e) => format!("!{e}"),
        };
        let ok = match c.want.strip_prefix('!') {
            Some(part) => got.starts_with('!') && got.contains(part),
            None => got == *c.want,
        };
        if !ok {
            failed.push(format!("{}({}): {got}, wanted {}", c.op, c.operands, c.want));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), table.len(), failed.join("\n"));
}

fn case(op: Opcode, operands: &'static str, attrs: Attrs, want: &'static str) -> Case {
    Case { op, operands, attrs, calls: &[], declared: "", want }
}

fn with(
    op: Opcode,
    operands: &'static str,
    attrs: Attrs,
    calls: &'static [&'static str],
    want: &'static str,
) -> Case {
    Case { op, operands, attrs, calls, declared: "", want }
}

impl Case {
    fn declared(mut self, s: &'static str) -> Self {
        self.declared = s;
        self
    }
}

fn d(v: &[i64]) -> smallvec::SmallVec<[i64; 6]> {
    v.into()
}

fn dims(v: &[i64]) -> Attrs {
    Attrs::Dims(d(v))
}

const NO: Attrs = Attrs::None;

#[test]
fn unary() {
    let mut t = Vec::new();
    let mut add = |ops: &[Opcode], x, want| {
        t.extend(ops.iter().map(|&op| case(op, x, NO, want)));
    };
    let float = [Floor, Cbrt, Ceil, Erf, RoundNearestAfz, RoundNearestEven];
    add(&float, "f32[2]", "f32[2]");
    add(&float, "c64[2]", "!float");
    add(&float, "s32[2]", "!float");
    let analytic = [
        Acos,
        Acosh,
        Asin,
        Asinh,
        Atanh,
        Cosh,
        Cosine,
        Exponential,
        ExponentialMinusOne,
        Log,
        LogPlusOne,
        Logistic,
        Rsqrt,
        Sine,
        Sinh,
        Sqrt,
        Tan,
        Tanh,
    ];
    add(&analytic, "bf16[2,<=3]", "bf16[2,<=3]");
    add(&analytic, "c64[?]", "c64[?]");
    add(&analytic, "s32[2]", "!float or complex");
    add(&[Real, Imag, Abs], "c128[2]", "f64[2]");
    add(&[Real, Imag], "f32[2]", "f32[2]");
    add(&[Real, Imag], "s32[2]", "!float or complex");
    add(&[Abs, Sign], "s8[2]", "s8[2]");
    add(&[Abs, Sign], "u8[2]", "!signed");
    add(&[Sign], "c64[2]", "c64[2]");
    add(&[Clz, PopulationCount], "u8[2]", "u8[2]");
    add(&[Clz, PopulationCount], "f32[2]", "!integer");
    add(&[Negate], "u8[2]", "u8[2]");
    add(&[Negate], "pred[2]", "!integer");
    add(&[Not], "pred[2]", "pred[2]");
    add(&[Not], "f32[2]", "!pred");
    add(&[IsFinite], "f16[2]", "pred[2]");
    add(&[IsFinite], "s32[2]", "!float");
    add(&[Copy, Domain, OptimizationBarrier], "(f32[2], token[])", "(f32[2], token[])");
    add(&[Tanh, Not], "(f32[2])", "!an array");
    add(&[Tanh, Copy], "f32[2], f32[2]", "!1 operands");
    check(t);
}

#[test]
fn binary() {
    let mut t = Vec::new();
    let mut add = |ops: &[Opcode], x, want| {
        t.extend(ops.iter().map(|&op| case(op, x, NO, want)));
    };
    let any = [Add, Maximum, Minimum, Multiply];
    let number = [Subtract, Power, Divide, Remainder];
    let shift = [ShiftLeft, ShiftRightArithmetic, ShiftRightLogical];
    let logic = [And, Or, Xor];
    for ops in [&any[..], &number, &shift, &logic] {
        add(ops, "s32[2], s32[2]", "s32[2]");
        add(ops, "s32[2], s32[]", "!no implicit broadcast");
        add(ops, "s32[2], s32[1]", "!no implicit broadcast");
        add(ops, "s32[2], u32[2]", "!one element type");
        add(ops, "s32[2]", "!2 operands");
    }
    add(&any, "pred[2], pred[2]", "pred[2]");
    add(&number, "pred[2], pred[2]", "!element type");
    add(&shift, "pred[2], pred[2]", "!element type");
    add(&logic, "pred[2], pred[2]", "pred[2]");
    add(&logic, "f32[2], f32[2]", "!pred");
    add(&any, "f32[2], bf16[2]", "f32[2]");
    add(&any, "bf16[2], f16[2]", "bf16[2]");
    add(&any, "f32[?,<=4,5], f32[3,4,?]", "f32[3,<=4,5]");
    add(&any, "f32[?,<=4], f32[?,<=4]", "f32[?,<=4]");
    add(&[Atan2], "f32[2], f32[2]", "f32[2]");
    add(&[Atan2], "s32[2], s32[2]", "!float or complex");
    add(&[Complex], "f32[2], f32[2]", "c64[2]");
    add(&[Complex], "f64[2], f64[2]", "c128[2]");
    add(&[Complex], "f16[2], f16[2]", "!two f32 or two f64");
    add(&[Complex], "s32[2], s32[2]", "!float");
    check(t);

    let cmp = |kind| Attrs::Compare { direction: Comparison::Lt, kind };
    use CompareKind::*;
    check(vec![
        case(Compare, "f32[2], f32[2]", cmp(None), "pred[2]"),
        case(Compare, "f32[2], f32[2]", cmp(Some(TotalOrder)), "pred[2]"),
        case(Compare, "f32[2], f32[2]", cmp(Some(Signed)), "!FLOAT or TOTALORDER"),
        case(Compare, "s32[2], s32[2]", cmp(Some(Signed)), "pred[2]"),
        case(Compare, "s32[2], s32[2]", cmp(Some(Unsigned)), "!SIGNED"),
        case(Compare, "u32[2], u32[2]", cmp(Some(TotalOrder)), "!UNSIGNED"),
        case(Compare, "pred[2], pred[2]", cmp(Some(Unsigned)), "pred[2]"),
        case(Compare, "c64[2], c64[2]", cmp(Some(Float)), "pred[2]"),
        case(Compare, "f32[2], f32[3]", cmp(None), "!no implicit broadcast"),
        case(Compare, "f32[2], f32[2]", NO, "!attributes"),
    ]);
}

#[test]
fn select_clamp_convert_map() {
    let rp = |exponent, mantissa| Attrs::ReducePrecision { exponent, mantissa };
    check(vec![
        case(Select, "pred[], f32[2], f32[2]", NO, "f32[2]"),
        case(Select, "pred[2], f32[2], bf16[2]", NO, "f32[2]"),
        case(Select, "pred[<=2], f32[2], f32[2]", NO, "f32[<=2]"),
        case(Select, "pred[], f32[?], f32[<=2]", NO, "f32[<=2]"),
        case(Select, "s32[2], f32[2], f32[2]", NO, "!pred"),
        case(Select, "pred[3], f32[2], f32[2]", NO, "!scalar predicate"),
        case(Select, "pred[], f32[2], f32[3]", NO, "!one shape"),
        case(Select, "pred[], f32[2], s32[2]", NO, "!one shape"),
        case(Select, "pred[], (f32[2]), (f32[2])", NO, "!an array"),
        case(Clamp, "f32[], f32[2], f32[2]", NO, "f32[2]"),
        case(Clamp, "f32[3], f32[2], f32[]", NO, "!scalar bounds"),
        case(Clamp, "f32[], f32[2], s32[]", NO, "!element type"),
        case(Clamp, "f32[], f32[2]", NO, "!3 operands"),
        case(Convert, "f32[2,<=3]", NO, "s8[2,<=3]").declared("s8[2,3]"),
        case(Convert, "f32[2]", NO, "!a result shape"),
        case(Convert, "(f32[2])", NO, "!an array").declared("s8[2]"),
        case(BitcastConvert, "f32[2]", NO, "s32[2]").declared("s32[2]"),
        case(BitcastConvert, "f32[2]", NO, "u8[2,4]").declared("u8[2,4]"),
        case(BitcastConvert, "u8[2,4]", NO, "f32[2]").declared("f32[2]"),
        case(BitcastConvert, "f32[2]", NO, "u4[2,8]").declared("u4[2,8]"),
        case(BitcastConvert, "c64[2]", NO, "c128[]").declared("c128[]"),
        case(BitcastConvert, "u8[2,3]", NO, "!last dimension of size 4").declared("f32[2]"),
        case(BitcastConvert, "u8[]", NO, "!last dimension of size 4").declared("f32[]"),
        case(BitcastConvert, "c64[2]", NO, "!complex").declared("u64[2]"),
        case(StochasticConvert, "f32[2], u32[2]", NO, "bf16[2]").declared("bf16[2]"),
        case(StochasticConvert, "f32[2], s32[2]", NO, "!unsigned").declared("bf16[2]"),
        case(StochasticConvert, "f32[2], u16[2]", NO, "!width").declared("bf16[2]"),
        case(StochasticConvert, "f32[2], u32[3]", NO, "!dimensions").declared("bf16[2]"),
        case(StochasticConvert, "s32[2], u32[2]", NO, "!float").declared("bf16[2]"),
        case(ReducePrecision, "f32[2]", rp(5, 10), "f32[2]"),
        case(ReducePrecision, "f32[2]", rp(0, 10), "!exponent"),
        case(ReducePrecision, "s32[2]", rp(5, 10), "!float"),
        with(Map, "f32[2], s32[2]", dims(&[0]), &["f32[], s32[] -> pred[]"], "pred[2]"),
        with(Map, "f32[2], f32[3]", dims(&[0]), &["f32[], f32[] -> f32[]"], "!same dimensions"),
        with(Map, "f32[2,2]", dims(&[0]), &["f32[] -> f32[]"], "!all dimensions"),
        with(Map, "f32[2]", dims(&[0]), &["f32[], f32[] -> f32[]"], "!1 parameters"),
        with(Map, "f32[2]", dims(&[0]), &["s32[] -> f32[]"], "!f32[]"),
        with(Map, "f32[2]", dims(&[0]), &["f32[] -> f32[2]"], "!a scalar"),
        with(Map, "f32[2]", dims(&[0]), &[], "!1 called computations"),
    ]);
}

#[test]
fn movement() {
    let pad = |v: &[(i64, i64, i64)]| {
        let dim = |&(low, high, interior): &_| PadDim { low, high, interior };
        Attrs::Pad(v.iter().map(dim).collect())
    };
    let slice = |v: &[(i64, i64, i64)]| {
        Attrs::Slice(Box::new(SliceAttrs {
            start: v.iter().map(|r| r.0).collect(),
            limit: v.iter().map(|r| r.1).collect(),
            stride: v.iter().map(|r| r.2).collect(),
        }))
    };
    check(vec![
        case(Broadcast, "f32[3]", dims(&[1]), "f32[2,3]").declared("f32[2,3]"),
        case(Broadcast, "f32[]", dims(&[]), "f32[2,3]").declared("f32[2,3]"),
        case(Broadcast, "f32[2,3]", dims(&[1, 0]), "f32[3,2]").declared("f32[3,2]"),
        case(Broadcast, "f32[1]", dims(&[0]), "!size 1").declared("f32[3]"),
        case(Broadcast, "f32[3]", dims(&[2]), "!below 2").declared("f32[2,3]"),
        case(Broadcast, "f32[3,3]", dims(&[1, 1]), "!distinct").declared("f32[2,3]"),
        case(Broadcast, "f32[3]", dims(&[]), "!1 dimension numbers").declared("f32[3]"),
        case(Broadcast, "f32[3]", dims(&[0]), "!type f32").declared("s32[3]"),
        case(Concatenate, "f32[2,3], f32[2,4]", dims(&[1]), "f32[2,7]"),
        case(Concatenate, "f32[2,?], f32[?,4]", dims(&[1]), "f32[2,?]"),
        case(Concatenate, "f32[2,<=3], f32[2,4]", dims(&[1]), "f32[2,<=7]"),
        case(Concatenate, "f32[?], f32[<=2]", dims(&[0]), "f32[?]"),
        case(Concatenate, "bf16[2], f32[2]", dims(&[0]), "f32[4]"),
        case(Concatenate, "f32[2], s32[2]", dims(&[0]), "!element type"),
        case(Concatenate, "f32[2,3], f32[3,3]", dims(&[1]), "!outside"),
        case(Concatenate, "f32[2], f32[2,2]", dims(&[0]), "!rank"),
        case(Concatenate, "f32[2]", dims(&[1]), "!below 1"),
        case(Concatenate, "f32[2]", dims(&[-1]), "!below 1"),
        case(Concatenate, "", dims(&[0]), "!at least 1"),
        case(Pad, "f32[4], f32[]", pad(&[(1, 2, 1)]), "f32[10]"),
        case(Pad, "f32[4], f32[]", pad(&[(-1, -1, 0)]), "f32[2]"),
        case(Pad, "f32[0], f32[]", pad(&[(1, 1, 3)]), "f32[2]"),
        case(Pad, "f32[?,<=3], f32[]", pad(&[(1, 1, 0), (1, 0, 0)]), "f32[?,<=4]"),
        case(Pad, "f32[4], f32[]", pad(&[(-3, -3, 0)]), "!result size"),
        case(Pad, "f32[4], f32[]", pad(&[(i64::MAX, i64::MAX, 0)]), "!result size"),
        case(Pad, "f32[4], f32[]", pad(&[(0, 0, -1)]), "!interior"),
        case(Pad, "f32[4], f32[]", pad(&[]), "!1 dimensions"),
        case(Pad, "f32[4], f32[1]", pad(&[(0, 0, 0)]), "!a scalar"),
        case(Pad, "f32[4], s32[]", pad(&[(0, 0, 0)]), "!type f32"),
        case(Reshape, "f32[2,3]", NO, "f32[6]").declared("f32[6]"),
        case(Reshape, "f32[?]", NO, "f32[6]").declared("f32[6]"),
        case(Reshape, "f32[2,3]", NO, "!6 elements").declared("f32[5]"),
        case(Reshape, "f32[2,3]", NO, "!type f32").declared("s32[6]"),
        case(Reshape, "f32[2,3]", NO, "!a result shape"),
        case(DynamicReshape, "f32[6], s32[], s32[]", NO, "f32[2,<=3]").declared("f32[2,<=3]"),
        case(DynamicReshape, "f32[6], s32[]", NO, "!2 size operands").declared("f32[2,<=3]"),
        case(DynamicReshape, "f32[6], s64[]", NO, "!s32 scalar").declared("f32[<=6]"),
        case(DynamicReshape, "f32[6], s32[]", NO, "!6 elements").declared("f32[<=7]"),
        case(Reverse, "f32[2,3]", dims(&[1]), "f32[2,3]"),
        case(Reverse, "f32[2,3]", dims(&[1, 1]), "!distinct"),
        case(Reverse, "f32[2,3]", dims(&[2]), "!below 2"),
        case(Slice, "f32[10]", slice(&[(1, 8, 3)]), "f32[3]"),
        case(Slice, "f32[10]", slice(&[(4, 4, 1)]), "f32[0]"),
        case(Slice, "f32[<=4]", slice(&[(0, 1, 1)]), "f32[1]"),
        case(Slice, "f32[<=4]", slice(&[(0, 2, 1)]), "f32[<=2]"),
        case(Slice, "f32[?]", slice(&[(0, 20, 1)]), "f32[20]"),
        case(Slice, "f32[10]", slice(&[(-1, 4, 1)]), "!0 <= start"),
        case(Slice, "f32[10]", slice(&[(0, 11, 1)]), "!limit <= 10"),
        case(Slice, "f32[10]", slice(&[(5, 4, 1)]), "!start <= limit"),
        case(Slice, "f32[10]", slice(&[(0, 4, 0)]), "!stride"),
        case(Slice, "f32[10,2]", slice(&[(0, 4, 1)]), "!2 starts"),
        case(Transpose, "f32[2,<=3,4]", dims(&[2, 0, 1]), "f32[4,2,<=3]"),
        case(Transpose, "f32[2,3]", dims(&[0, 0]), "!permutation"),
        case(Transpose, "f32[2,3]", dims(&[0]), "!permutation"),
        case(Transpose, "f32[2,3]", dims(&[0, 2]), "!permutation"),
        case(Iota, "", Attrs::Iota(1), "s32[2,3]").declared("s32[2,3]"),
        case(Iota, "", Attrs::Iota(2), "!below 2").declared("s32[2,3]"),
        case(Iota, "", Attrs::Iota(0), "!below 0").declared("s32[]"),
        case(Iota, "", Attrs::Iota(0), "!integer, float or complex").declared("pred[2]"),
        case(GetDimensionSize, "f32[2,<=3]", Attrs::Dim(1), "s32[]"),
        case(GetDimensionSize, "f32[2]", Attrs::Dim(1), "!below 1"),
        case(GetDimensionSize, "f32[3000000000]", Attrs::Dim(0), "!fits s32"),
        case(SetDimensionSize, "f32[2,3], s32[]", Attrs::Dim(1), "f32[2,<=3]"),
        case(SetDimensionSize, "f32[2,3], s32[]", Attrs::Dim(-1), "!below 2"),
        case(SetDimensionSize, "f32[2,3], s64[]", Attrs::Dim(1), "!s32"),
        case(SetDimensionSize, "f32[2,3], s32[1]", Attrs::Dim(1), "!scalar"),
        case(Bitcast, "f32[2,3]", NO, "free"),
    ]);
}

fn gather(f: impl FnOnce(&mut GatherAttrs)) -> Attrs {
    // Rows of f32[5,7] by s32[3]: f32[3,7].
    let mut g = GatherAttrs {
        offset_dims: d(&[1]),
        collapsed_slice_dims: d(&[0]),
        start_index_map: d(&[0]),
        index_vector_dim: 1,
        slice_sizes: d(&[1, 7]),
        ..Default::default()
    };
    f(&mut g);
    Attrs::Gather(Box::new(g))
}

fn scatter(f: impl FnOnce(&mut ScatterAttrs)) -> Attrs {
    let mut s = ScatterAttrs {
        update_window_dims: d(&[1]),
        inserted_window_dims: d(&[0]),
        scatter_dims_to_operand_dims: d(&[0]),
        index_vector_dim: 1,
        ..Default::default()
    };
    f(&mut s);
    Attrs::Scatter(Box::new(s))
}

#[test]
fn indexing() {
    let ds = |v: &[i64]| Attrs::DynamicSlice(d(v));
    check(vec![
        case(DynamicSlice, "f32[4,5], s32[], s32[]", ds(&[1, 5]), "f32[1,5]"),
        case(DynamicSlice, "f32[4,<=5], s32[], s32[]", ds(&[1, 5]), "f32[1,<=5]"),
        case(DynamicSlice, "f32[4,<=5], s32[], s32[]", ds(&[1, 4]), "f32[1,4]"),
        case(DynamicSlice, "f32[4,5], s32[2]", ds(&[1, 5]), "f32[1,5]"),
        case(DynamicSlice, "f32[4,5], s32[3]", ds(&[1, 5]), "!integer vector of 2"),
        case(DynamicSlice, "f32[4,5], s32[]", ds(&[1, 5]), "!2 start indices"),
        case(DynamicSlice, "f32[4,5], s32[], f32[]", ds(&[1, 5]), "!integer scalar"),
        case(DynamicSlice, "f32[4,5], s32[], s64[]", ds(&[1, 5]), "!one type"),
        case(DynamicSlice, "f32[4,5], s32[], s32[]", ds(&[5, 5]), "!from 0 to 4"),
        case(DynamicSlice, "f32[4,5], s32[], s32[]", ds(&[-1, 5]), "!from 0 to 4"),
        case(DynamicSlice, "f32[4,5], s32[], s32[]", ds(&[1]), "!2 slice sizes"),
        case(DynamicUpdateSlice, "f32[4,5], f32[1,5], s32[], s32[]", NO, "f32[4,5]"),
        case(DynamicUpdateSlice, "f32[4,5], f32[1,<=5], s32[], s32[]", NO, "f32[4,<=5]"),
        case(DynamicUpdateSlice, "b(f32[4]), f32[1], s32[]", NO, "b(f32[4])"),
        case(DynamicUpdateSlice, "f32[4,5], f32[1,6], s32[], s32[]", NO, "!at most 5"),
        case(DynamicUpdateSlice, "f32[4,5], f32[5], s32[], s32[]", NO, "!rank"),
        case(DynamicUpdateSlice, "f32[4,5], s32[1,5], s32[], s32[]", NO, "!element type"),
        case(DynamicUpdateSlice, "f32[4,5], f32[1,5], s32[]", NO, "!2 start indices"),
        case(DynamicUpdateSlice, "(f32[4]), f32[1], s32[]", NO, "!an array"),
    ]);
    const X: &str = "f32[5,7], s32[3]";
    check(vec![
        case(Gather, X, gather(|_| ()), "f32[3,7]"),
        case(Gather, "f32[5,7], s32[3,1]", gather(|_| ()), "f32[3,7]"),
        case(Gather, "f32[5,7], s32[<=3]", gather(|_| ()), "f32[<=3,7]"),
        case(Gather, "f32[5,<=7], s32[3]", gather(|_| ()), "f32[3,<=7]"),
        case(Gather, X, gather(|g| g.slice_sizes = d(&[1, 2])), "f32[3,2]"),
        case(Gather, X, gather(|g| g.offset_dims = d(&[0])), "f32[7,3]"),
        case(
            Gather,
            "f32[3,5,7], s32[3,2]",
            gather(|g| {
                g.offset_dims = d(&[2]);
                g.collapsed_slice_dims = d(&[1]);
                g.start_index_map = d(&[1]);
                g.operand_batching_dims = d(&[0]);
                g.start_indices_batching_dims = d(&[0]);
                g.index_vector_dim = 2;
                g.slice_sizes = d(&[1, 1, 7]);
            }),
            "f32[3,2,7]",
        ),
        case(Gather, "f32[5,7], f32[3]", gather(|_| ()), "!integer indices"),
        case(Gather, X, gather(|g| g.index_vector_dim = 2), "!index_vector_dim from 0 to 1"),
        case(Gather, X, gather(|g| g.index_vector_dim = -1), "!index_vector_dim"),
        case(Gather, X, gather(|g| g.offset_dims = d(&[2])), "!ascending offset_dims below 2"),
        case(Gather, X, gather(|g| g.offset_dims = d(&[1, 1])), "!ascending offset_dims"),
        case(
            Gather,
            X,
            gather(|g| g.start_index_map = d(&[0, 1])),
            "!1 entries in start_index_map",
        ),
        case(Gather, X, gather(|g| g.start_index_map = d(&[2])), "!start_index_map"),
        case(Gather, X, gather(|g| g.collapsed_slice_dims = d(&[2])), "!collapsed_slice_dims"),
        case(Gather, X, gather(|g| g.collapsed_slice_dims = d(&[])), "!2 slice sizes"),
        case(Gather, X, gather(|g| g.slice_sizes = d(&[1])), "!2 slice sizes"),
        case(Gather, X, gather(|g| g.slice_sizes = d(&[1, 8])), "!from 0 to 7"),
        case(Gather, X, gather(|g| g.slice_sizes = d(&[1, -1])), "!from 0 to 7"),
        case(Gather, X, gather(|g| g.slice_sizes = d(&[2, 7])), "!slice size 0 or 1"),
        case(
            Gather,
            X,
            gather(|g| g.operand_batching_dims = d(&[1])),
            "!1 entries in start_indices",
        ),
        case(Gather, X, gather(|g| g.operand_batching_dims = d(&[0])), "!disjoint"),
        case(
            Gather,
            X,
            gather(|g| {
                g.operand_batching_dims = d(&[1]);
                g.start_indices_batching_dims = d(&[0]);
            }),
            "!equal sizes of batching",
        ),
    ]);
    const A: &[&str] = &["f32[], f32[] -> f32[]"];
    const Y: &str = "f32[5,7], s32[3], f32[3,7]";
    check(vec![
        with(Scatter, Y, scatter(|_| ()), A, "f32[5,7]"),
        with(Scatter, "f32[5,7], s32[3], f32[3,2]", scatter(|_| ()), A, "f32[5,7]"),
        with(
            Scatter,
            "f32[5,7], s32[5,7], s32[3], f32[3,7], s32[3,7]",
            scatter(|_| ()),
            &["f32[], s32[], f32[], s32[] -> (f32[], s32[])"],
            "(f32[5,7], s32[5,7])",
        ),
        with(
            Scatter,
            "f32[3,5,7], s32[3,2], f32[3,2,7]",
            scatter(|s| {
                s.update_window_dims = d(&[2]);
                s.inserted_window_dims = d(&[1]);
                s.scatter_dims_to_operand_dims = d(&[1]);
                s.input_batching_dims = d(&[0]);
                s.scatter_indices_batching_dims = d(&[0]);
                s.index_vector_dim = 2;
            }),
            A,
            "f32[3,5,7]",
        ),
        with(Scatter, "f32[5,7], s32[3], f32[3,8]", scatter(|_| ()), A, "!at most 7"),
        with(Scatter, "f32[5,7], s32[3], f32[4,7]", scatter(|_| ()), A, "!size 3"),
        with(Scatter, "f32[5,7], s32[3], f32[3]", scatter(|_| ()), A, "!rank 2"),
        with(Scatter, "f32[5,7], f32[3], f32[3,7]", scatter(|_| ()), A, "!integer indices"),
        with(Scatter, "f32[5,7], s32[3], f32[3,7], f32[3,7]", scatter(|_| ()), A, "!n operands"),
        with(
            Scatter,
            "f32[5,7], f32[5,6], s32[3], f32[3,7], f32[3,6]",
            scatter(|_| ()),
            A,
            "!same dimensions",
        ),
        with(Scatter, Y, scatter(|s| s.update_window_dims = d(&[2])), A, "!update_window_dims"),
        with(Scatter, Y, scatter(|s| s.inserted_window_dims = d(&[])), A, "!2 window"),
        with(Scatter, Y, scatter(|s| s.inserted_window_dims = d(&[2])), A, "!inserted_window_dims"),
        with(
            Scatter,
            Y,
            scatter(|s| s.scatter_dims_to_operand_dims = d(&[2])),
            A,
            "!scatter_dims_to_operand_dims",
        ),
        with(Scatter, Y, scatter(|s| s.index_vector_dim = 2), A, "!index_vector_dim"),
        with(Scatter, Y, scatter(|_| ()), &["f32[] -> f32[]"], "!2 parameters"),
        with(Scatter, Y, scatter(|_| ()), &["s32[], s32[] -> s32[]"], "!initial value"),
        with(Scatter, Y, scatter(|_| ()), &[], "!called computations"),
    ]);
}

#[test]
fn dots() {
    let dot = |f: &dyn Fn(&mut DotAttrs)| {
        let mut a =
            DotAttrs { lhs_contracting: d(&[1]), rhs_contracting: d(&[0]), ..Default::default() };
        f(&mut a);
        Attrs::Dot(Box::new(a))
    };
    let batched = |a: &mut DotAttrs| {
        a.lhs_batch = d(&[0]);
        a.rhs_batch = d(&[2]);
        a.lhs_contracting = d(&[1]);
        a.rhs_contracting = d(&[0]);
    };
    const X: &str = "f32[2,3], f32[3,4]";
    check(vec![
        case(Dot, X, dot(&|_| ()), "f32[2,4]"),
        case(Dot, X, dot(&|_| ()), "f64[2,4]").declared("f64[2,4]"),
        case(Dot, "s8[2,3], s8[3,4]", dot(&|_| ()), "s32[2,4]").declared("s32[2,4]"),
        case(Dot, "bf16[2,3], f32[3,4]", dot(&|_| ()), "f32[2,4]"),
        case(Dot, "f32[<=2,?], f32[3,?]", dot(&|_| ()), "f32[<=2,?]"),
        case(Dot, "f32[5,3,2], f32[3,4,5]", dot(&batched), "f32[5,2,4]"),
        case(
            Dot,
            X,
            dot(&|a| {
                a.lhs_contracting = d(&[]);
                a.rhs_contracting = d(&[]);
            }),
            "f32[2,3,3,4]",
        ),
        case(Dot, "f32[2,3], f32[5,4]", dot(&|_| ()), "!equal contracting sizes"),
        case(Dot, "f32[6,3,2], f32[3,4,5]", dot(&batched), "!equal batch sizes"),
        case(Dot, X, dot(&|a| a.lhs_contracting = d(&[2])), "!distinct lhs"),
        case(Dot, X, dot(&|a| a.rhs_contracting = d(&[0, 0])), "!distinct rhs"),
        case(Dot, X, dot(&|a| a.lhs_batch = d(&[1])), "!distinct lhs"),
        case(Dot, X, dot(&|a| a.lhs_batch = d(&[0])), "!as many batch"),
        case(Dot, X, dot(&|a| a.lhs_contracting = d(&[0, 1])), "!as many contracting"),
        case(Dot, "f32[2,3], f32[3,4], u16[2]", dot(&|_| ()), "!2 operands"),
        case(Dot, "f32[2,3], (f32[3])", dot(&|_| ()), "!an array"),
        case(
            ScaledDot,
            "f8e4m3fn[2,32], f8e4m3fn[32,4], f8e8m0fnu[2,1], f8e8m0fnu[1,4]",
            dot(&|_| ()),
            "f32[2,4]",
        )
        .declared("f32[2,4]"),
        case(
            ScaledDot,
            "f32[2,3], f32[3,4], f32[2,4], f32[1,4]",
            dot(&|_| ()),
            "!a scale of at most",
        ),
        case(
            ScaledDot,
            "f32[2,3], f32[3,4], f32[2], f32[1,4]",
            dot(&|_| ()),
            "!a scale of at most",
        ),
        case(ScaledDot, "f32[2,3], f32[3,4]", dot(&|_| ()), "!4 operands"),
    ]);
    // [m,k] x [g,k,n] by groups of m.
    let m = |f: &dyn Fn(&mut DotAttrs)| {
        dot(&|a| {
            a.rhs_contracting = d(&[1]);
            a.lhs_ragged = d(&[0]);
            a.rhs_group = d(&[0]);
            f(a);
        })
    };
    // [m,k] x [k,n] by groups of k, and [b,m,k] x [b,k,n] by groups of b.
    let k = dot(&|a| a.lhs_ragged = d(&[1]));
    let b = |f: &dyn Fn(&mut DotAttrs)| {
        dot(&|a| {
            a.lhs_batch = d(&[0]);
            a.rhs_batch = d(&[0]);
            a.lhs_contracting = d(&[2]);
            a.rhs_contracting = d(&[1]);
            a.lhs_ragged = d(&[0]);
            f(a);
        })
    };
    const R: &str = "f32[11,5], f32[3,5,7], s32[3]";
    check(vec![
        case(RaggedDot, R, m(&|_| ()), "f32[11,7]"),
        case(RaggedDot, "f32[11,5], f32[5,7], s32[3]", k, "f32[3,11,7]"),
        case(RaggedDot, "f32[4,11,5], f32[4,5,7], s32[3]", b(&|_| ()), "f32[4,11,7]"),
        case(
            RaggedDot,
            "f32[4,11,5], f32[3,4,5,7], s32[4,3]",
            b(&|a| {
                a.rhs_batch = d(&[1]);
                a.rhs_contracting = d(&[2]);
                a.rhs_group = d(&[0]);
                a.lhs_ragged = d(&[1]);
            }),
            "f32[4,11,7]",
        ),
        case(RaggedDot, R, m(&|a| a.lhs_ragged = d(&[])), "!one lhs ragged"),
        case(RaggedDot, R, m(&|a| a.lhs_ragged = d(&[2])), "!one lhs ragged"),
        case(RaggedDot, R, m(&|a| a.rhs_group = d(&[])), "!one rhs group"),
        case(RaggedDot, R, m(&|a| a.rhs_group = d(&[1])), "!neither batch nor contracting"),
        case(RaggedDot, "f32[11,5], f32[4,5,7], s32[3]", m(&|_| ()), "!of size 3"),
        case(RaggedDot, "f32[11,5], f32[3,5,7], s32[2,3]", m(&|_| ()), "!group sizes"),
        case(RaggedDot, "f32[11,5], f32[3,5,7], s32[]", m(&|_| ()), "!group sizes"),
        case(
            RaggedDot,
            "f32[4,11,5], f32[4,5,7], s32[3]",
            b(&|a| a.rhs_group = d(&[2])),
            "!no rhs group",
        ),
    ]);
}

#[test]
fn convolution() {
    let w = |size| WindowDim { size, ..Default::default() };
    let conv = |f: &dyn Fn(&mut ConvAttrs)| {
        // b01f_01io->b01f
        let mut a = ConvAttrs {
            window: vec![w(3), w(3)],
            input_batch: 0,
            input_feature: 3,
            input_spatial: d(&[1, 2]),
            kernel_input_feature: 2,
            kernel_output_feature: 3,
            kernel_spatial: d(&[0, 1]),
            output_batch: 0,
            output_feature: 3,
            output_spatial: d(&[1, 2]),
            feature_group_count: 1,
            batch_group_count: 1,
            precision: Vec::new(),
        };
        f(&mut a);
        Attrs::Conv(Box::new(a))
    };
    const X: &str = "f32[4,9,10,6], f32[3,3,6,8]";
    check(vec![
        case(Convolution, X, conv(&|_| ()), "f32[4,7,8,8]"),
        case(
            Convolution,
            X,
            conv(&|a| {
                a.window[0].stride = 2;
                a.window[0].pad_low = 1;
                a.window[1].window_dilation = 2;
                a.window[1].base_dilation = 3;
            }),
            // (9+1-3)/2+1 = 4; base 28, window 5: 24.
            "f32[4,4,24,8]",
        ),
        case(Convolution, X, conv(&|a| a.window[0].pad_low = -8), "f32[4,0,8,8]"),
        case(
            Convolution,
            "f32[4,9,10,6], f32[3,3,3,8]",
            conv(&|a| a.feature_group_count = 2),
            "f32[4,7,8,8]",
        ),
        case(Convolution, X, conv(&|a| a.batch_group_count = 2), "f32[2,7,8,8]"),
        case(Convolution, "f32[?,?,<=10,6], f32[3,3,6,8]", conv(&|_| ()), "f32[?,?,<=8,8]"),
        case(Convolution, "s8[4,9,10,6], s8[3,3,6,8]", conv(&|_| ()), "s32[4,7,8,8]")
            .declared("s32[4,7,8,8]"),
        case(
            Convolution,
            X,
            conv(&|a| {
                a.output_batch = 3;
                a.output_feature = 0;
            }),
            "f32[8,7,8,4]",
        ),
        case(Convolution, X, conv(&|a| a.feature_group_count = 0), "!positive group counts"),
        case(Convolution, X, conv(&|a| a.batch_group_count = -1), "!positive group counts"),
        case(
            Convolution,
            X,
            conv(&|a| {
                a.feature_group_count = 2;
                a.batch_group_count = 2;
            }),
            "!at most one above 1",
        ),
        case(Convolution, X, conv(&|a| a.feature_group_count = 4), "!groups of the kernel"),
        case(Convolution, "f32[4,9,10,5], f32[3,3,6,8]", conv(&|_| ()), "!groups of the kernel"),
        case(
            Convolution,
            "f32[4,9,10,6], f32[3,3,3,7]",
            conv(&|a| a.feature_group_count = 2),
            "!divisible by the group counts",
        ),
        case(
            Convolution,
            "f32[5,9,10,6], f32[3,3,6,8]",
            conv(&|a| a.batch_group_count = 2),
            "!divisible by 2",
        ),
        case(Convolution, X, conv(&|a| a.window[1].size = 2), "!window size 3"),
        case(Convolution, X, conv(&|a| a.window[1].stride = 0), "!at least 1"),
        case(Convolution, X, conv(&|a| a.window.truncate(1)), "!1 spatial dimensions"),
        case(Convolution, X, conv(&|a| a.input_batch = 3), "!4 input dimensions once"),
        case(Convolution, X, conv(&|a| a.kernel_spatial = d(&[0, 9])), "!4 kernel dimensions once"),
        case(Convolution, X, conv(&|a| a.output_batch = -1), "!4 output dimensions once"),
        case(Convolution, "f32[9,10,6], f32[3,3,6,8]", conv(&|_| ()), "!rank 4"),
        case(Convolution, "f32[4,9,10,6], f32[3,3,6,<=8]", conv(&|_| ()), "!static output feature"),
    ]);
}

#[test]
fn reductions() {
    const A: &[&str] = &["f32[], f32[] -> f32[]"];
    const AA: &[&str] = &["f32[], s32[], f32[], s32[] -> (f32[], s32[])"];
    check(vec![
        with(Reduce, "f32[2,<=3,4], f32[]", dims(&[2, 0]), A, "f32[<=3]"),
        with(Reduce, "f32[2,3], f32[]", dims(&[]), A, "f32[2,3]"),
        with(Reduce, "f32[2,3], s32[2,3], f32[], s32[]", dims(&[1]), AA, "(f32[2], s32[2])"),
        with(Reduce, "bf16[2,3], f32[]", dims(&[1]), A, "f32[2]"),
        with(Reduce, "f32[2,3], f32[]", dims(&[2]), A, "!below 2"),
        with(Reduce, "f32[2,3], f32[]", dims(&[1, 1]), A, "!distinct"),
        with(Reduce, "f32[2,3], f32[], f32[]", dims(&[1]), A, "!n initial values"),
        with(Reduce, "f32[2,3], f32[1]", dims(&[1]), A, "!a scalar"),
        with(Reduce, "f32[2,3], s32[]", dims(&[1]), A, "!initial value of type f32"),
        with(Reduce, "s32[2,3], s32[]", dims(&[1]), A, "!initial value"),
        with(Reduce, "f32[2,3], s32[2,4], f32[], s32[]", dims(&[1]), AA, "!same dimensions"),
        with(Reduce, "f32[2,3], f32[]", dims(&[1]), &["f32[] -> f32[]"], "!2 parameters"),
        with(Reduce, "f32[2,3], f32[]", dims(&[1]), &["f32[], f32[] -> f32[1]"], "!scalar results"),
        with(Reduce, "f32[2,3], f32[]", dims(&[1]), &["f32[], s32[] -> f32[]"], "!parameter 1"),
        with(Reduce, "f32[2,3], f32[]", dims(&[1]), &["s32[], f32[] -> f32[]"], "!parameter 0"),
        with(
            Reduce,
            "f32[2,3], s32[2,3], f32[], s32[]",
            dims(&[1]),
            &["f32[], s32[], f32[], s32[] -> f32[]"],
            "!a tuple of 2 scalars",
        ),
        with(Reduce, "f32[2,3], f32[]", dims(&[1]), &[], "!called computations"),
    ]);
    let win = |v: &[WindowDim]| Attrs::Window(v.to_vec());
    let w = |size, stride, pad_low, pad_high| WindowDim {
        size,
        stride,
        pad_low,
        pad_high,
        ..Default::default()
    };
    let one = WindowDim::default();
    check(vec![
        with(ReduceWindow, "f32[8,9], f32[]", win(&[w(2, 2, 0, 0), w(3, 1, 1, 1)]), A, "f32[4,9]"),
        with(
            ReduceWindow,
            "f32[8], f32[]",
            win(&[WindowDim { size: 2, window_dilation: 3, base_dilation: 2, ..one }]),
            A,
            // base 15, window 4
            "f32[12]",
        ),
        with(ReduceWindow, "f32[2], f32[]", win(&[w(3, 1, 0, 0)]), A, "f32[0]"),
        with(ReduceWindow, "f32[0], f32[]", win(&[w(3, 1, 2, 2)]), A, "f32[2]"),
        with(ReduceWindow, "f32[?,<=4], f32[]", win(&[w(2, 1, 0, 0), one]), A, "f32[?,<=4]"),
        with(
            ReduceWindow,
            "f32[8], s32[8], f32[], s32[]",
            win(&[w(2, 2, 0, 0)]),
            AA,
            "(f32[4], s32[4])",
        ),
        with(ReduceWindow, "f32[8], f32[]", win(&[]), A, "!window of 1 dimensions"),
        with(ReduceWindow, "f32[8], f32[]", win(&[w(0, 1, 0, 0)]), A, "!at least 1"),
        with(ReduceWindow, "f32[8], f32[]", win(&[w(1, 0, 0, 0)]), A, "!at least 1"),
        with(
            ReduceWindow,
            "f32[8], f32[]",
            win(&[WindowDim { base_dilation: 0, ..one }]),
            A,
            "!at least 1",
        ),
        with(
            ReduceWindow,
            "f32[8], f32[]",
            win(&[WindowDim { window_dilation: 0, ..one }]),
            A,
            "!at least 1",
        ),
        with(ReduceWindow, "f32[8], s32[]", win(&[one]), A, "!initial value"),
    ]);
    const SS: &[&str] = &["f32[], f32[] -> pred[]", "f32[], f32[] -> f32[]"];
    let s = || win(&[w(2, 2, 0, 0)]);
    check(vec![
        with(SelectAndScatter, "f32[8], f32[4], f32[]", s(), SS, "f32[8]"),
        with(SelectAndScatter, "f32[8], f32[3], f32[]", s(), SS, "!source of shape f32[4]"),
        with(SelectAndScatter, "f32[8], f32[4], f32[1]", s(), SS, "!a scalar"),
        with(
            SelectAndScatter,
            "f32[8], f32[4], f32[]",
            s(),
            &["f32[], f32[] -> f32[]", "f32[], f32[] -> f32[]"],
            "!pred[]",
        ),
        with(
            SelectAndScatter,
            "f32[8], f32[4], f32[]",
            s(),
            &["f32[] -> pred[]", "f32[], f32[] -> f32[]"],
            "!2 parameters",
        ),
        with(
            SelectAndScatter,
            "f32[8], f32[4], f32[]",
            s(),
            &["f32[], s32[] -> pred[]", "f32[], f32[] -> f32[]"],
            "!f32[]",
        ),
        with(
            SelectAndScatter,
            "f32[8], f32[4], f32[]",
            s(),
            &["f32[], f32[] -> pred[]", "f32[] -> f32[]"],
            "!2 parameters",
        ),
    ]);
    let sort = |dim| Attrs::Sort { dim, stable: false };
    check(vec![
        with(Sort, "f32[2,3]", sort(1), &["f32[], f32[] -> pred[]"], "f32[2,3]"),
        with(
            Sort,
            "f32[3], s32[3]",
            sort(0),
            &["f32[], f32[], s32[], s32[] -> pred[]"],
            "(f32[3], s32[3])",
        ),
        with(Sort, "f32[2,3]", sort(2), &["f32[], f32[] -> pred[]"], "!below 2"),
        with(Sort, "f32[2,3]", sort(-1), &["f32[], f32[] -> pred[]"], "!below 2"),
        with(Sort, "f32[2]", sort(0), &["f32[], f32[] -> f32[]"], "!pred[]"),
        with(Sort, "f32[2]", sort(0), &["f32[] -> pred[]"], "!2 parameters"),
        with(Sort, "f32[2]", sort(0), &["f32[], s32[] -> pred[]"], "!f32[]"),
        with(
            Sort,
            "f32[3], s32[4]",
            sort(0),
            &["f32[], f32[], s32[], s32[] -> pred[]"],
            "!same dimensions",
        ),
    ]);
    let topk = |k| Attrs::TopK { k, largest: true };
    check(vec![
        case(TopK, "f32[2,8]", topk(3), "(f32[2,3], s32[2,3])"),
        case(TopK, "f32[<=2,<=8]", topk(3), "(f32[<=2,3], s32[<=2,3])"),
        case(TopK, "f32[2,8]", topk(9), "!k from 0 to 8"),
        case(TopK, "f32[2,8]", topk(-1), "!k from 0 to 8"),
        case(TopK, "f32[]", topk(1), "!rank 1 or more"),
    ]);
    let scan = |dim, num_carries| {
        Attrs::Scan(Box::new(ScanAttrs { dim, num_carries, ..Default::default() }))
    };
    const F: &[&str] = &["f32[3], s32[] -> (f32[3], f32[], s32[])"];
    check(vec![
        with(
            Scan,
            "f32[10], f32[]",
            scan(0, 1),
            &["f32[], f32[] -> (f32[], f32[])"],
            "(f32[10], f32[])",
        ),
        with(Scan, "f32[10,3], s32[]", scan(0, 1), F, "(f32[10,3], f32[10], s32[])"),
        with(Scan, "f32[10,3], s32[]", scan(2, 1), F, "!below 2"),
        with(Scan, "f32[10,3], s32[]", scan(1, 1), F, "!f32[10]"),
        with(Scan, "f32[10,3], s32[]", scan(0, 3), F, "!num_carries from 0 to 2"),
        with(Scan, "f32[10,3], f32[]", scan(0, 1), F, "!carry 0"),
        with(Scan, "f32[10,3]", scan(0, 0), F, "!1 parameters"),
        with(
            Scan,
            "f32[10], f32[11], s32[]",
            scan(0, 1),
            &["f32[], f32[], s32[] -> (f32[], s32[])"],
            "!size 10",
        ),
        with(Scan, "f32[10], f32[]", scan(0, 1), &["f32[], f32[] -> ()"], "!at least 1 results"),
    ]);
}

#[test]
fn linear_algebra_and_random() {
    let bn = |feature| Attrs::BatchNorm { epsilon: 0.1, feature };
    let fft = |kind, v: &[i64]| Attrs::Fft { kind, length: d(v) };
    use FftKind::{Ifft, Irfft, Rfft};
    check(vec![
        case(BatchNormTraining, "f32[2,3], f32[3], f32[3]", bn(1), "(f32[2,3], f32[3], f32[3])"),
        case(BatchNormTraining, "f32[2,3], f32[2], f32[3]", bn(1), "!f32[3]"),
        case(BatchNormTraining, "f32[2,3], f32[3], f32[1,3]", bn(1), "!f32[3]"),
        case(BatchNormTraining, "f32[2,3], f32[3], s32[3]", bn(1), "!f32[3]"),
        case(BatchNormTraining, "f32[2,3], f32[3], f32[3]", bn(2), "!below 2"),
        case(BatchNormTraining, "f32[2,3], f32[3], f32[3]", bn(-1), "!below 2"),
        case(BatchNormTraining, "s32[2,3], s32[3], s32[3]", bn(1), "!float"),
        case(BatchNormInference, "f32[2,3], f32[3], f32[3], f32[3], f32[3]", bn(1), "f32[2,3]"),
        case(BatchNormInference, "f32[2,3], f32[3], f32[3], f32[3], f32[2]", bn(1), "!f32[3]"),
        case(
            BatchNormGrad,
            "f32[2,3], f32[3], f32[3], f32[3], f32[2,3]",
            bn(1),
            "(f32[2,3], f32[3], f32[3])",
        ),
        case(BatchNormGrad, "f32[2,3], f32[3], f32[3], f32[3], f32[3,3]", bn(1), "!gradient"),
        case(BatchNormGrad, "f32[2,3], f32[3], f32[3], f32[4], f32[2,3]", bn(1), "!f32[3]"),
        case(Fft, "c64[2,8]", fft(FftKind::Fft, &[8]), "c64[2,8]"),
        case(Fft, "c64[2,8]", fft(Ifft, &[2, 8]), "c64[2,8]"),
        case(Fft, "f32[2,8]", fft(Rfft, &[8]), "c64[2,5]"),
        case(Fft, "f64[2,8]", fft(Rfft, &[2, 8]), "c128[2,5]"),
        case(Fft, "f32[2,0]", fft(Rfft, &[0]), "c64[2,0]"),
        case(Fft, "c64[2,5]", fft(Irfft, &[8]), "f32[2,8]"),
        case(Fft, "c64[2,5]", fft(Irfft, &[9]), "f32[2,9]"),
        case(Fft, "f32[8]", fft(FftKind::Fft, &[8]), "!complex"),
        case(Fft, "c64[8]", fft(Rfft, &[8]), "!f32 or f64"),
        case(Fft, "f32[7]", fft(Rfft, &[8]), "!minor dimensions"),
        case(Fft, "c64[4]", fft(Irfft, &[8]), "!size 5"),
        case(Fft, "c64[3,5]", fft(Irfft, &[2, 8]), "!before the last"),
        case(Fft, "f32[5]", fft(Irfft, &[8]), "!complex"),
        case(Fft, "c64[8]", fft(FftKind::Fft, &[8, 8]), "!rank 2"),
        case(Fft, "c64[8]", fft(FftKind::Fft, &[]), "!1 to 3"),
        case(Fft, "c64[1,1,1,8]", fft(FftKind::Fft, &[1, 1, 1, 8]), "!1 to 3"),
    ]);
    let chol = || Attrs::Cholesky { lower: true };
    let tri = |left_side| Attrs::TriangularSolve {
        left_side,
        lower: true,
        unit_diagonal: false,
        transpose_a: TransposeKind::Adjoint,
    };
    check(vec![
        case(Cholesky, "f32[2,3,3]", chol(), "f32[2,3,3]"),
        case(Cholesky, "f32[3,4]", chol(), "!square"),
        case(Cholesky, "f32[3]", chol(), "!square"),
        case(Cholesky, "s32[3,3]", chol(), "!square float"),
        case(TriangularSolve, "f32[2,3,3], f32[2,3,5]", tri(true), "f32[2,3,5]"),
        case(TriangularSolve, "f32[2,3,3], f32[2,5,3]", tri(false), "f32[2,5,3]"),
        case(TriangularSolve, "f32[3,3], f32[5,3]", tri(true), "!rows"),
        case(TriangularSolve, "f32[3,3], f32[3,5]", tri(false), "!columns"),
        case(TriangularSolve, "f32[3,4], f32[3,5]", tri(true), "!square"),
        case(TriangularSolve, "f32[3,3], f64[3,5]", tri(true), "!one type"),
        case(TriangularSolve, "f32[3,3], f32[3]", tri(true), "!one type and batch"),
        case(TriangularSolve, "f32[2,3,3], f32[1,3,5]", tri(true), "!batch"),
    ]);
    let uniform = || Attrs::Rng(RngDistribution::Uniform);
    let normal = || Attrs::Rng(RngDistribution::Normal);
    let bits = || Attrs::RngBits(RngAlgorithm::ThreeFry);
    check(vec![
        case(Rng, "f32[], f32[]", uniform(), "f32[2]").declared("f32[2]"),
        case(Rng, "s32[], s32[]", uniform(), "s32[2]").declared("s32[2]"),
        case(Rng, "s32[], s32[]", normal(), "!distribution").declared("s32[2]"),
        case(Rng, "c64[], c64[]", uniform(), "!distribution").declared("c64[2]"),
        case(Rng, "f32[], f64[]", uniform(), "!result's type").declared("f32[2]"),
        case(Rng, "f32[1], f32[]", uniform(), "!scalar").declared("f32[2]"),
        case(RngBitGenerator, "u64[2]", bits(), "(u64[2], u32[4])").declared("(u64[2], u32[4])"),
        case(RngBitGenerator, "u64[2]", bits(), "u32[4]").declared("u32[4]"),
        case(RngBitGenerator, "u64[2]", bits(), "!state of shape").declared("(u64[3], u32[4])"),
        case(RngBitGenerator, "u64[2]", bits(), "!(state, bits)").declared("(u64[2])"),
        case(RngBitGenerator, "u64[2]", bits(), "!a result shape"),
        case(RngGetAndUpdateState, "", Attrs::RngDelta(1), "u64[2]"),
        case(RngGetAndUpdateState, "u64[2]", Attrs::RngDelta(1), "!0 operands"),
        case(PartitionId, "", NO, "u32[]"),
        case(ReplicaId, "", NO, "u32[]"),
        case(PartitionId, "u32[]", NO, "!0 operands"),
    ]);
}

fn groups(v: &[&[i64]]) -> ReplicaGroups {
    ReplicaGroups::List(v.iter().map(|g| g.to_vec()).collect())
}

/// Cross-replica groups of two.
fn coll(f: impl FnOnce(&mut CollectiveAttrs)) -> Attrs {
    let mut a = CollectiveAttrs {
        groups: groups(&[&[0, 1], &[2, 3]]),
        dimension: Some(0),
        ..Default::default()
    };
    f(&mut a);
    Attrs::Collective(Box::new(a))
}

#[test]
fn collectives() {
    let c = || coll(|_| ());
    let open = || coll(|a| a.groups = ReplicaGroups::all());
    let iota = || {
        coll(|a| {
            a.groups = ReplicaGroups::Iota(IotaTile {
                dims: [2, 4].into_iter().collect(),
                reshape: [4, 2].into_iter().collect(),
                perm: [1, 0].into_iter().collect(),
            })
        })
    };
    const A: &[&str] = &["f32[], f32[] -> f32[]"];
    check(vec![
        case(AllGather, "f32[3,5]", c(), "f32[6,5]"),
        case(AllGather, "f32[3,5]", iota(), "f32[12,5]"),
        case(AllGather, "f32[3], f32[4]", c(), "(f32[6], f32[8])"),
        case(AllGather, "f32[3]", open(), "f32[24]").declared("f32[24]"),
        case(AllGather, "f32[3]", open(), "!whole ratio").declared("f32[25]"),
        case(AllGather, "f32[3]", open(), "!a group size or a result"),
        case(AllGather, "f32[?]", c(), "f32[?]"),
        case(AllGather, "f32[3]", coll(|a| a.dimension = Some(1)), "!below 1"),
        case(AllGather, "f32[3]", coll(|a| a.dimension = None), "!dimensions={d}"),
        case(AllGather, "f32[3]", coll(|a| a.use_global_device_ids = true), "!a channel_id"),
        case(AllGather, "(f32[3])", c(), "!an array"),
        case(AllGatherStart, "f32[3]", c(), "(f32[3], f32[6])"),
        case(AllGatherStart, "f32[3], s8[1]", c(), "((f32[3], s8[1]), (f32[6], s8[2]))"),
        case(AllGatherDone, "(f32[3], f32[6])", NO, "f32[6]"),
        case(AllGatherDone, "f32[6]", NO, "!a tuple"),
        with(AllReduce, "f32[3]", c(), A, "f32[3]"),
        with(AllReduce, "f32[3], bf16[2]", c(), A, "(f32[3], bf16[2])"),
        with(AllReduce, "f32[3]", c(), &[], "!called computations"),
        with(AllReduce, "f32[3]", c(), &["f32[] -> f32[]"], "!2 parameters"),
        with(AllReduce, "s32[3]", c(), A, "!initial value"),
        with(AllReduce, "f32[3]", coll(|a| a.use_global_device_ids = true), A, "!a channel_id"),
        with(AllReduceStart, "f32[3]", c(), A, "f32[3]"),
        case(AllReduceDone, "f32[3]", NO, "f32[3]"),
        with(ReduceScatter, "f32[6,5]", c(), A, "f32[3,5]"),
        with(ReduceScatter, "f32[6], f32[2]", c(), A, "(f32[3], f32[1])"),
        with(ReduceScatter, "f32[6]", open(), A, "f32[2]").declared("f32[2]"),
        with(ReduceScatter, "f32[5]", c(), A, "!divisible by 2"),
        with(ReduceScatter, "f32[6]", coll(|a| a.dimension = Some(1)), A, "!below 1"),
        with(ReduceScatter, "f32[6]", c(), &[], "!called computations"),
        case(AllToAll, "f32[4,3]", c(), "f32[4,3]"),
        case(AllToAll, "f32[5,3]", c(), "!divisible by 2"),
        case(AllToAll, "f32[4], f32[4]", c(), "!1 operand"),
        case(AllToAll, "f32[4], f32[4]", coll(|a| a.dimension = None), "(f32[4], f32[4])"),
        case(AllToAll, "f32[4]", coll(|a| a.dimension = None), "!2 operands"),
        case(AllToAll, "f32[4], f32[3]", coll(|a| a.dimension = None), "!one shape"),
        case(RaggedAllToAll, "f32[8,2], f32[9,2], s32[4], s32[4], s32[4], s32[4]", c(), "f32[9,2]"),
        case(RaggedAllToAll, "f32[8], s32[9], s32[4], s32[4], s32[4], s32[4]", c(), "!one type"),
        case(
            RaggedAllToAll,
            "f32[8], f32[9], s32[4], s32[4], s32[4], s32[3]",
            c(),
            "!equal dimensions",
        ),
        case(
            RaggedAllToAll,
            "f32[8], f32[9], s32[4], f32[4], s32[4], s32[4]",
            c(),
            "!integer offsets",
        ),
        case(RaggedAllToAll, "f32[8], f32[9]", c(), "!6 operands"),
        case(CollectiveBroadcast, "f32[3]", c(), "f32[3]"),
        case(CollectiveBroadcast, "f32[3], s32[1]", c(), "f32[3]").declared("f32[3]"),
        case(CollectiveBroadcast, "f32[3], f32[1]", c(), "!s32[1]").declared("f32[3]"),
        case(CollectivePermute, "f32[3]", c(), "f32[3]"),
        case(CollectivePermute, "f32[3], s8[2]", c(), "(f32[3], s8[2])"),
        case(CollectivePermute, "f32[3], f32[9], (s32[]), (s32[])", c(), "f32[9]"),
        case(CollectivePermute, "(f32[3])", c(), "!an array"),
        case(CollectivePermute, "f32[3]", NO, "!attributes"),
        case(CollectivePermuteStart, "f32[3]", c(), "(f32[3], f32[3])"),
        case(CollectivePermuteStart, "f32[3]", c(), "(f32[3], f32[3], u32[], u32[])")
            .declared("(f32[3], f32[3], u32[], u32[])"),
        case(CollectivePermuteDone, "(f32[3], f32[3], u32[], u32[])", NO, "f32[3]"),
        case(CollectivePermuteDone, "(f32[3])", NO, "!(input, output, ..)"),
    ]);
}

#[test]
fn group_sizes_follow_the_mode() {
    // (channel, global ids, num_partitions): factor of all-gather over {{0,1}}.
    let table = [
        (None, false, None, "f32[6]"),
        (Some(1), true, Some(8), "f32[6]"),
        // Each replica brings its 4 partitions.
        (Some(1), false, Some(4), "f32[24]"),
    ];
    for (channel_id, use_global_device_ids, parts, want) in table {
        let mut m = ModuleBuilder::new("m");
        m.module().header.num_partitions = parts;
        let mut b = m.computation("main");
        let x = b.parameter(DType::F32, [3]);
        let a = CollectiveAttrs {
            groups: groups(&[&[0, 1]]),
            channel_id,
            use_global_device_ids,
            dimension: Some(0),
            ..Default::default()
        };
        let y = b.collective(AllGather, &[x], a, None).unwrap();
        assert_eq!(b.module().shape(y).to_string(), want);
    }
}

#[test]
fn calls_and_control_flow() {
    let fusion = || {
        let mut i = Interner::default();
        Attrs::Fusion { kind: i.intern("kLoop") }
    };
    const F: &[&str] = &["f32[2], s32[] -> (f32[2])"];
    const W: &[&str] = &["(s32[], f32[2]) -> pred[]", "(s32[], f32[2]) -> (s32[], f32[2])"];
    const B: &[&str] = &["f32[] -> f32[2]", "(s32[]) -> f32[2]"];
    check(vec![
        with(Call, "f32[2], s32[]", NO, F, "(f32[2])"),
        with(Call, "f32[2]", NO, F, "!2 operands"),
        with(Call, "f32[2], f32[]", NO, F, "!shape s32[] of parameter 1"),
        with(
            Call,
            "f32[2], bf16[]",
            NO,
            &["f32[2], f32[] -> f32[]"],
            "!shape f32[] of parameter 1",
        ),
        with(Call, "", NO, &[], "!called computations"),
        with(Fusion, "f32[2], s32[]", fusion(), F, "(f32[2])"),
        with(Fusion, "f32[2]", fusion(), F, "!at most 1 parameters"),
        with(Fusion, "f32[3], s32[]", fusion(), F, "!shape f32[2] of parameter 0"),
        with(While, "(s32[], f32[2])", NO, W, "(s32[], f32[2])"),
        with(While, "(s32[], f32[3])", NO, W, "!shape (s32[], f32[2])"),
        with(While, "s32[]", NO, &["s32[] -> s32[]", "s32[] -> s32[]"], "!pred[]"),
        with(While, "s32[]", NO, &["s32[] -> pred[]", "s32[] -> s64[]"], "!returns s32[]"),
        with(While, "s32[]", NO, &["s32[], s32[] -> pred[]", "s32[] -> s32[]"], "!1 parameters"),
        with(While, "s32[]", NO, &["s32[] -> pred[]"], "!2 called computations"),
        with(Conditional, "pred[], f32[], (s32[])", NO, B, "f32[2]"),
        with(Conditional, "s32[], f32[], (s32[])", NO, B, "f32[2]"),
        with(Conditional, "s32[], f32[]", NO, &["f32[] -> f32[2]"], "f32[2]"),
        with(Conditional, "pred[], f32[]", NO, &["f32[] -> f32[2]"], "!2 branches"),
        with(Conditional, "u32[], f32[], (s32[])", NO, B, "!s32 scalar"),
        with(Conditional, "s32[1], f32[], (s32[])", NO, B, "!a scalar"),
        with(Conditional, "s32[], f32[]", NO, B, "!3 operands"),
        with(Conditional, "s32[], f32[1], (s32[])", NO, B, "!shape f32[]"),
        with(
            Conditional,
            "s32[], f32[], f32[]",
            NO,
            &["f32[] -> f32[]", "f32[] -> s32[]"],
            "!all return",
        ),
        with(Conditional, "s32[], f32[]", NO, &["f32[], f32[] -> f32[]"], "!1 parameters"),
        case(Tuple, "f32[2], (s32[])", NO, "(f32[2], (s32[]))"),
        case(Tuple, "", NO, "()"),
        case(GetTupleElement, "(f32[2], s32[])", Attrs::TupleIndex(1), "s32[]"),
        case(GetTupleElement, "(f32[2])", Attrs::TupleIndex(1), "!below 1"),
        case(GetTupleElement, "(f32[2])", Attrs::TupleIndex(-1), "!below 1"),
        case(GetTupleElement, "f32[2]", Attrs::TupleIndex(0), "!a tuple"),
        case(Parameter, "", Attrs::Parameter(0), "f32[2]").declared("f32[2]"),
        case(AfterAll, "token[], token[]", NO, "token[]"),
        case(AddDependency, "f32[2], token[]", NO, "f32[2]"),
        case(AddDependency, "f32[2], f32[2]", NO, "!a token"),
    ]);
}

#[test]
fn constant_and_custom_call() {
    let l = Literal::dense(ArrayShape::new(DType::S32, [2]), vec![0; 8]);
    check(vec![
        case(Constant, "", Attrs::Constant(Box::new(l)), "s32[2]"),
        case(Constant, "", NO, "!attributes"),
    ]);
    let mut i = Interner::default();
    let mut cc = custom(i.intern("t"));
    let free = Attrs::CustomCall(Box::new(cc.clone()));
    cc.operand_layouts = vec![shape("f32[2]")];
    let tied = || Attrs::CustomCall(Box::new(cc.clone()));
    check(vec![
        case(CustomCall, "f32[2]", free, "free").declared("s8[9]"),
        case(CustomCall, "f32[2]", tied(), "free").declared("s8[9]"),
        case(CustomCall, "f32[3]", tied(), "!layout constraint of shape f32[3]"),
        case(CustomCall, "f32[2], f32[2]", tied(), "!2 operand layout"),
    ]);
}

#[test]
fn transfers_and_async() {
    let ch = || Attrs::Channel { channel_id: Some(1), is_host_transfer: false };
    let a = || Attrs::Async { sugar: None, thread: None };
    const F: &[&str] = &["f32[2] -> s32[]"];
    check(vec![
        case(CopyStart, "f32[2]", NO, "(f32[2], f32[2], u32[])"),
        case(CopyDone, "(f32[2], f32[2], u32[])", NO, "f32[2]"),
        case(CopyDone, "(f32[2], f32[3], u32[])", NO, "!(destination, source"),
        case(CopyDone, "f32[2]", NO, "!a tuple"),
        case(Send, "f32[2], token[]", ch(), "(f32[2], u32[], token[])"),
        case(Send, "f32[2], f32[2]", ch(), "!a token"),
        case(SendDone, "(f32[2], u32[], token[])", ch(), "token[]"),
        case(Recv, "token[]", ch(), "(f32[2], u32[], token[])")
            .declared("(f32[2], u32[], token[])"),
        case(Recv, "f32[]", ch(), "!a token").declared("(f32[2], u32[], token[])"),
        case(Recv, "token[]", ch(), "!a result shape"),
        case(RecvDone, "(f32[2], u32[], token[])", ch(), "(f32[2], token[])"),
        case(RecvDone, "f32[2]", ch(), "!a tuple"),
        case(Infeed, "token[]", NO, "(f32[2], token[])").declared("(f32[2], token[])"),
        case(Infeed, "f32[]", NO, "!a token").declared("(f32[2], token[])"),
        case(Infeed, "token[]", NO, "!(data, token[])").declared("f32[2]"),
        case(Outfeed, "f32[2], token[]", NO, "token[]"),
        case(Outfeed, "f32[2], f32[2]", NO, "!a token"),
        with(AsyncStart, "f32[2]", a(), F, "((f32[2]), s32[])"),
        with(AsyncStart, "f32[2]", a(), F, "((f32[2]), s32[], u32[])")
            .declared("((f32[2]), s32[], u32[])"),
        with(AsyncStart, "f32[2]", a(), F, "!shape s32[]").declared("((f32[2]), f32[])"),
        with(AsyncStart, "f32[3]", a(), F, "!as the state").declared("((f32[2]), s32[])"),
        with(AsyncStart, "f32[2]", a(), F, "!shape f32[2]").declared("((f32[3]), s32[])"),
        with(AsyncStart, "f32[2]", a(), F, "!((operands..)").declared("(f32[2], s32[])"),
        with(AsyncStart, "f32[2], f32[2]", a(), F, "!1 operands").declared("((f32[2]), s32[])"),
        with(AsyncUpdate, "((f32[2]), s32[], u32[])", a(), F, "((f32[2]), s32[], u32[])"),
        with(AsyncDone, "((f32[2]), s32[], u32[])", a(), F, "s32[]"),
        case(AsyncDone, "((f32[2]), s32[], u32[])", a(), "s32[]"),
        with(AsyncDone, "((f32[2]), f32[], u32[])", a(), F, "!shape s32[]"),
        case(AsyncDone, "s32[]", a(), "!((operands..)"),
    ]);
}

#[test]
fn every_opcode_survives_anything() {
    // No panic on any opcode with any of these operands, attributes, callees.
    let operands = [
        "",
        "f32[]",
        "f32[2,3]",
        "(f32[2])",
        "token[]",
        "f32[?,<=3], s32[]",
        "pred[], f32[2], f32[2]",
        "f32[0], (), token[], u8[1]",
        "s32[2,2], s32[2,2], s32[2], c64[1], (s32[]), f32[9]",
    ];
    let attrs = || {
        vec![
            NO,
            dims(&[]),
            dims(&[-1]),
            dims(&[7, 7]),
            Attrs::Dim(i64::MIN),
            Attrs::Iota(i64::MAX),
            Attrs::TupleIndex(-5),
            Attrs::DynamicSlice(d(&[i64::MIN])),
            Attrs::Pad(vec![PadDim { low: i64::MIN, high: i64::MIN, interior: i64::MAX }]),
            Attrs::Slice(Box::new(SliceAttrs {
                start: d(&[0]),
                limit: d(&[i64::MAX]),
                stride: d(&[1]),
            })),
            Attrs::Dot(Box::new(DotAttrs { lhs_ragged: d(&[i64::MIN]), ..Default::default() })),
            Attrs::Conv(Box::new(ConvAttrs {
                feature_group_count: 1,
                batch_group_count: 1,
                ..Default::default()
            })),
            gather(|g| g.index_vector_dim = 0),
            scatter(|s| s.index_vector_dim = i64::MAX),
            Attrs::Window(vec![
                WindowDim {
                    size: i64::MAX,
                    pad_low: i64::MIN,
                    pad_high: i64::MAX,
                    window_dilation: i64::MAX,
                    base_dilation: i64::MAX,
                    stride: i64::MAX,
                    reversal: true
                };
                2
            ]),
            Attrs::Fft { kind: FftKind::Rfft, length: d(&[i64::MIN]) },
            Attrs::Fft { kind: FftKind::Irfft, length: d(&[i64::MAX]) },
            Attrs::TopK { k: i64::MAX, largest: false },
            Attrs::Sort { dim: i64::MIN, stable: true },
            Attrs::Scan(Box::new(ScanAttrs {
                dim: i64::MAX,
                num_carries: i64::MAX,
                ..Default::default()
            })),
            Attrs::Scan(Box::new(ScanAttrs { dim: i64::MAX, ..Default::default() })),
            Attrs::BatchNorm { epsilon: 0.0, feature: i64::MAX },
            Attrs::Cholesky { lower: true },
            coll(|a| a.dimension = Some(i64::MAX)),
            coll(|a| a.groups = groups(&[&[]])),
            Attrs::Async { sugar: None, thread: None },
        ]
    };
    let declared = ["", "f32[2,3]", "(f32[2], s32[])"];
    let calls: [&[&str]; 3] = [&[], &["f32[], f32[] -> f32[]"], &["-> ()", "(f32[2]) -> pred[]"]];
    let mut n = 0usize;
    for &op in Opcode::ALL {
        for x in operands {
            for c in calls {
                for s in declared {
                    for a in attrs() {
                        let case =
                            Case { op, operands: x, attrs: a, calls: c, declared: s, want: "" };
                        n += usize::from(run(&case).is_ok());
                    }
                }
            }
        }
    }
    assert!(n > 1000, "only {n} were well-formed");
}

//! Which operations round to narrow types in one program only.

use scalify_ir::{DType, Module, Opcode};
use scalify_prove::outcome::Outcome;
use std::collections::BTreeSet;

/// Arithmetic and conversions in floats narrower than `f32`.
fn narrow(m: &Module) -> BTreeSet<(Opcode, DType)> {
    let small = |d: DType| d.is_float() && d.literal_bytes() < DType::F32.literal_bytes();
    let mut out = BTreeSet::new();
    for (k, i) in m.instrs.iter().enumerate() {
        let op = i.opcode;
        let rounds = op.is_unary_elementwise()
            || op.is_binary_elementwise()
            || matches!(op, Opcode::Convert | Opcode::ReducePrecision)
            || matches!(op, Opcode::Dot | Opcode::Convolution | Opcode::Reduce | Opcode::AllReduce);
        let exact = matches!(op, Opcode::Negate | Opcode::Abs | Opcode::Maximum | Opcode::Minimum);
        if !rounds || exact {
            continue;
        }
        let d = m.dtype(scalify_ir::InstrId(k as u32));
        if let Some(d) = d.filter(|&d| small(d) || op == Opcode::ReducePrecision) {
            out.insert((op, d));
        }
    }
    out
}

/// For programs that agree where nothing is rounded: where only one of them
/// rounds to a narrow type, the first finding says so, unless it names
/// another kind of fault already.
pub(crate) fn name(outcome: &mut Outcome, base: &Module, dist: &Module) {
    let (b, d) = (narrow(base), narrow(dist));
    let only = |x: &BTreeSet<(Opcode, DType)>, y: &BTreeSet<(Opcode, DType)>| {
        x.difference(y).next().map(|(op, t)| format!("{op} in {t}"))
    };
    let text = match (only(&d, &b), only(&b, &d)) {
        (Some(x), _) => format!("only the distributed program has {x}"),
        (None, Some(x)) => format!("only the baseline has {x}"),
        (None, None) => return,
    };
    if let Some(f) = outcome.frontier.first_mut() {
        if matches!(f.code, "unrelated" | "differs" | "extra-operation" | "wrong-scale") {
            f.code = "precision";
            f.reason = format!("equal on all inputs tried where nothing is rounded, but {text}");
        }
    }
}

/// As [`name`], where both programs round, but other values: in their own
/// types the outputs differ by `by` of their size.
pub(crate) fn apart(outcome: &mut Outcome, base: &Module, dist: &Module, by: f64) {
    let (b, d) = (narrow(base), narrow(dist));
    let Some((op, t)) = d.iter().find(|x| b.contains(x)) else { return };
    if let Some(f) = outcome.frontier.first_mut() {
        if matches!(f.code, "unrelated" | "differs") {
            f.code = "precision";
            f.reason = format!(
                "equal on all inputs tried where nothing is rounded, but {by:.0e} apart in their own types: other values are rounded by {op} in {t}"
            );
        }
    }
}

//! Plants numeric faults in modules.
//!
//! Shared by the tests and `examples/attribution.rs`.

use scalify_ir::{Attrs, CompId, DType, InstrId, LiteralData, Module, Opcode};
use scalify_mutate::edit::{Edit, decode, encode};
use scalify_refute::random::Random;

/// A module with one fault.
pub(crate) struct Planted {
    /// The module.
    pub(crate) m: Module,
    /// Instructions that are the fault: the one chosen and those put in.
    pub(crate) names: Vec<String>,
    /// The instruction whose value is changed first, in the changed module.
    pub(crate) result: InstrId,
    /// What was done.
    pub(crate) what: String,
}

/// Kinds of faults.
pub(crate) const KINDS: [&str; 5] = ["result", "operand", "accumulate", "ulp", "constant"];

fn coarser(d: DType, r: &mut Random) -> Option<DType> {
    let bits = d.mantissa_bits()?;
    let all = [DType::Bf16, DType::F16, DType::F8E5M2, DType::F8E4M3Fn];
    let fit: Vec<DType> =
        all.into_iter().filter(|t| t.mantissa_bits().is_some_and(|b| b < bits)).collect();
    (!fit.is_empty()).then(|| fit[r.int(0, fit.len() as i64 - 1) as usize])
}

/// Plants a fault of a kind at instruction `id` of computation `comp`.
pub(crate) fn plant(
    m: &Module,
    comp: CompId,
    id: InstrId,
    kind: &str,
    r: &mut Random,
) -> Option<Planted> {
    let mut e = Edit::new(m, comp, 1);
    let d = m.dtype(id).filter(|d| d.is_float())?;
    let op = m.instr(id).opcode;
    let before = m.instrs.len();
    let (result, what) = match kind {
        "result" => {
            if matches!(op, Opcode::Constant | Opcode::Parameter) {
                return None;
            }
            let t = coarser(d, r)?;
            let new = e.behind(id, |e, at| {
                let c = e.convert(at, id, t)?;
                e.convert(at, c, d)
            })?;
            (new, format!("result rounded to {t}"))
        }
        "operand" => {
            let n = m.instr(id).operands.len() as i64;
            if n == 0 {
                return None;
            }
            let k = r.int(0, n - 1) as usize;
            let x = m.instr(id).operands[k];
            let dx = m.dtype(x).filter(|d| d.is_float())?;
            let t = coarser(dx, r)?;
            let c = e.convert(id, x, t)?;
            let c = e.convert(id, c, dx)?;
            e.set_operand(id, k, c)?;
            (id, format!("operand {k} rounded to {t}"))
        }
        "accumulate" => {
            let sums = |i: InstrId| {
                m.instr(i)
                    .calls
                    .last()
                    .is_some_and(|&c| m.instr(m.comp(c).root).opcode == Opcode::Add)
            };
            if !matches!(op, Opcode::Reduce | Opcode::AllReduce | Opcode::ReduceScatter)
                || !sums(id)
            {
                return None;
            }
            let t = if d == DType::Bf16 { DType::F8E5M2 } else { DType::Bf16 };
            let mut ops = Vec::new();
            for &x in &m.instr(id).operands {
                ops.push(e.convert(id, x, t)?);
            }
            let f = e.reducer(Opcode::Add, t)?;
            let shape = m.array(id)?.clone();
            let small =
                scalify_ir::Shape::Array(scalify_ir::ArrayShape { dtype: t, ..shape.clone() });
            let attrs = m.instr(id).attrs.clone();
            let s = e.put(id, op, attrs, &ops, &[f], small)?;
            // The old instruction becomes the conversion back.
            let i = e.instr_mut(id);
            i.opcode = Opcode::Convert;
            i.attrs = Attrs::None;
            i.operands = [s].into_iter().collect();
            i.calls = Default::default();
            (id, format!("{op} in {t}"))
        }
        "ulp" => {
            if bad_for_ulp(op) {
                return None;
            }
            let k = (2f64).powf(4.0 + 10.0 * r.unit()).round();
            let u = 2f64.powi(1 - d.mantissa_bits()? as i32);
            if k * u > 0.25 {
                return None;
            }
            let new = e.behind(id, |e, at| {
                let c = e.filled(at, id, 1.0 + k * u)?;
                e.add(at, Opcode::Multiply, Attrs::None, &[id, c], &[])
            })?;
            (new, format!("off by {k} ulp"))
        }
        "constant" => {
            if op != Opcode::Constant {
                return None;
            }
            let delta = 10f64.powf(-4.0 + 3.0 * r.unit());
            let Attrs::Constant(l) = &mut e.instr_mut(id).attrs else { return None };
            let LiteralData::Dense(b) = &mut l.data else { return None };
            let w = d.literal_bytes();
            let mut changed = false;
            let mut bytes = b.to_vec();
            for c in bytes.chunks_exact_mut(w) {
                let v = decode(d, c)?;
                if v == 0.0 || !v.is_finite() {
                    continue;
                }
                let n = encode(d, v * (1.0 + delta))?;
                changed |= n != c;
                c.copy_from_slice(&n);
            }
            *b = bytes.into();
            if !changed {
                return None;
            }
            (id, format!("constant times 1 + {delta:.1e}"))
        }
        _ => return None,
    };
    let mut names = vec![e.m.name_of(id).to_owned()];
    names.extend((before..e.m.instrs.len()).map(|k| e.m.name_of(InstrId(k as u32)).to_owned()));
    Some(Planted { m: e.m, names, result, what })
}

fn bad_for_ulp(op: Opcode) -> bool {
    scalify_diff::bound::moves(op) || matches!(op, Opcode::Constant | Opcode::Convert)
}

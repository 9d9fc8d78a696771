//! Which instructions are shown as tags of their users instead of boxes.

use scalify_ir::{InstrId, Module, Opcode};

/// Per instruction: parameters, constants and iotas, and what only moves
/// such values. A computation's root and values without users are never
/// folded.
pub fn folded(m: &Module) -> Vec<bool> {
    let n = m.instrs.len();
    let mut out = vec![false; n];
    let mut constant = vec![false; n];
    let mut used = vec![false; n];
    for i in &m.instrs {
        for o in &i.operands {
            if let Some(u) = used.get_mut(o.0 as usize) {
                *u = true;
            }
        }
    }
    for c in &m.comps {
        for &InstrId(k) in &c.instrs {
            let k = k as usize;
            let Some(i) = m.instrs.get(k) else { continue };
            let first = i.operands.first().map(|o| o.0 as usize);
            let of = |v: &[bool]| {
                i.operands.len() == 1 && first.is_some_and(|f| v.get(f) == Some(&true))
            };
            use Opcode::*;
            let (fold, fixed) = match i.opcode {
                Constant | Iota => (true, true),
                Parameter => (true, false),
                Broadcast | Reshape | Bitcast => (of(&out), of(&constant)),
                Convert | Negate => (of(&constant), of(&constant)),
                GetTupleElement => (of(&out), false),
                _ => (false, false),
            };
            constant[k] = fixed;
            out[k] = fold && used[k] && c.root.0 as usize != k;
        }
    }
    out
}

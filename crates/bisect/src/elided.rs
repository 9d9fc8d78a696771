//! Constants whose values the text of a dump leaves out.

use scalify_ir::{Attrs, InstrId, LiteralData, Module, Opcode};

fn is_elided(a: &Attrs) -> bool {
    matches!(a, Attrs::Constant(l) if matches!(l.data, LiteralData::Elided))
}

/// How many there are.
pub(crate) fn count(m: &Module) -> usize {
    m.instrs.iter().filter(|i| is_elided(&i.attrs)).count()
}

/// Those of the entry.
fn of_entry(m: &Module) -> Vec<InstrId> {
    let all = m.entry_comp().instrs.iter().copied();
    all.filter(|&i| is_elided(&m.instr(i).attrs)).collect()
}

/// Makes inputs of the entries' constants that have one name and shape in both
/// modules, and says how many there are. What is proved of all values of them
/// holds for those that were left out, if passes do not rename constants.
pub(crate) fn to_inputs(a: &mut Module, b: &mut Module) -> usize {
    let (left, right) = (of_entry(a), of_entry(b));
    let mut pairs: Vec<(InstrId, InstrId)> = Vec::new();
    for &x in &left {
        let same = |y: InstrId| a.name_of(x) == b.name_of(y) && a.shape(x).same(b.shape(y));
        pairs.extend(right.iter().copied().find(|&y| same(y)).map(|y| (x, y)));
    }
    for &(x, y) in &pairs {
        input(a, x);
        input(b, y);
    }
    pairs.len()
}

fn input(m: &mut Module, i: InstrId) {
    let Some(comp) = m.comps.get_mut(m.entry.0 as usize) else { return };
    let n = comp.params.len() as u32;
    comp.params.push(i);
    // Of parameters alone.
    m.header.entry_layout = None;
    if let Some(ins) = m.instrs.get_mut(i.0 as usize) {
        ins.opcode = Opcode::Parameter;
        ins.attrs = Attrs::Parameter(n);
        // A path would be that of the operation that made the constant.
        ins.metadata = None;
    }
}

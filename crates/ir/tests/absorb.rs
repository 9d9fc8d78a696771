//! Modules taken into others.

use scalify_ir::{CompId, DType, Module, ModuleBuilder, Opcode, ValidateOptions, validate};

/// A module with a reducer and an entry that calls it.
fn sum(name: &str) -> Module {
    let mut b = ModuleBuilder::new(name);
    let add = b.reducer(Opcode::Add, DType::F32).unwrap();
    let mut c = b.computation(&format!("main_{name}"));
    let x = c.parameter(DType::F32, [3, 4]);
    let zero = c.f32(0.0);
    let y = c.reduce(x, zero, &[1], add).unwrap();
    let entry = c.finish(y);
    b.finish(entry)
}

#[test]
fn an_absorbed_module_stands_behind_the_others() {
    let (a, b) = (sum("a"), sum("b"));
    let mut m = Module::new("both");
    m.strings.intern("something before");
    let (p, q) = (m.absorb(&a), m.absorb(&b));
    assert_eq!((p.first, q.first as usize), (0, a.instrs.len()));
    assert_eq!(m.comps.len(), a.comps.len() + b.comps.len() - 2);
    for (x, from) in [(&p, &a), (&q, &b)] {
        assert_eq!(m.str(x.entry.name), from.str(from.entry_comp().name));
        for (&i, &j) in x.entry.instrs.iter().zip(&from.entry_comp().instrs) {
            assert_eq!(x.instr(j), i);
            assert_eq!(m.name_of(i), from.name_of(j));
            assert_eq!((m.instr(i).opcode, m.shape(i)), (from.instr(j).opcode, from.shape(j)));
            assert_eq!(m.literal(i), from.literal(j));
        }
    }
    // The reducer of the second is the second's.
    assert_eq!(m.instr(q.entry.root).calls[0], CompId(1));
    // Only the second's entry is used: what is left of the first's goes.
    m.comps.push(q.entry.clone());
    m.entry = CompId(2);
    let before = m.instrs.len();
    m.drop_loose();
    assert_eq!(before - m.instrs.len(), p.entry.instrs.len());
    let root = m.instr(m.entry_comp().root);
    assert_eq!(root.opcode, Opcode::Reduce);
    assert_eq!(m.instr(root.operands[0]).opcode, Opcode::Parameter);
    let mut bad = validate(&m, &ValidateOptions::default());
    // Both reducers have one name.
    bad.retain(|i| !i.message.contains("name"));
    assert!(bad.is_empty(), "{bad:?}");
}

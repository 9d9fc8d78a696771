//! Broken input gives an error that says where, and never a panic.

use scalify_hlo_proto::{ProtoError, read, write};
use scalify_ir::same::{Compare, difference};
use scalify_ir::{InstrId, Module};
use std::time::{Duration, Instant};

const SEEDS: &[&[u8]] = &[
    include_bytes!("data/odd.hlo.pb"),
    include_bytes!("data/generate_loop.hlo.pb"),
    include_bytes!("data/f8_dot.hlo.pb"),
];

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// What is read must be fit to be written and read again, and then stays.
fn try_one(bytes: &[u8]) -> bool {
    let Ok(m) = read(bytes) else { return false };
    let once = read(&write(&m)).expect("what was read can be written and read");
    let twice = read(&write(&once)).expect("what was read can be written and read");
    assert_eq!(difference(&once, &twice, Compare::ALL), None);
    true
}

#[test]
fn mutations_never_panic() {
    let mut r = Random(7);
    let (mut good, mut bad) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) && good + bad < 20_000 {
        let mut b = SEEDS[r.below(SEEDS.len())].to_vec();
        for _ in 0..=r.below(4) {
            let at = r.below(b.len());
            match r.below(5) {
                0 => b[at] = r.next() as u8,
                1 => b[at] ^= 1 << r.below(8),
                2 => drop(b.drain(at..(at + r.below(40)).min(b.len()))),
                3 => {
                    let piece = b[at..(at + r.below(40)).min(b.len())].to_vec();
                    let to = r.below(b.len());
                    b.splice(to..to, piece);
                }
                _ => b.insert(at, [0, 1, 0x7f, 0x80, 0xff][r.below(5)]),
            }
        }
        if try_one(&b) { good += 1 } else { bad += 1 }
    }
    assert!(good > 50 && bad > 50, "{good} read, {bad} refused: the mutations are too weak");
}

#[test]
fn truncations_never_panic() {
    for seed in SEEDS {
        for n in (0..seed.len()).step_by(7) {
            try_one(&seed[..n]);
        }
    }
}

fn base() -> Module {
    let text = "HloModule m\n\n\
        inner {\n  ip = f32[2] parameter(0)\n  ROOT ineg = f32[2] negate(ip)\n}\n\n\
        ENTRY main {\n  p = f32[2] parameter(0)\n  c = f32[2] call(p), to_apply=inner\n  \
        ROOT a = f32[2] add(c, p)\n}\n";
    scalify_hlo::parse(text).expect("valid text")
}

fn instr<'m>(m: &'m mut Module, name: &str) -> &'m mut scalify_ir::Instruction {
    let id = (0..m.instrs.len()).find(|&i| m.name_of(InstrId(i as u32)) == name).expect(name);
    &mut m.instrs[id]
}

fn refused(m: &Module, place: &str, field: &str) {
    match read(&write(m)) {
        Err(ProtoError::Field { place: p, field: f, what }) => {
            assert_eq!((p.as_str(), f), (place, field), "{what}");
        }
        other => panic!("expected a fault of {field}, got {:?}", other.map(|_| ())),
    }
}

#[test]
fn faults_are_named() {
    read(&write(&base())).expect("the base is good");

    let mut m = base();
    instr(&mut m, "a").operands[0] = InstrId(1000);
    refused(&m, "instruction `a` of computation `main`", "operand_ids");

    // An operand of another computation.
    let mut m = base();
    instr(&mut m, "a").operands[0] = InstrId(0);
    refused(&m, "instruction `a` of computation `main`", "operand_ids");

    let mut m = base();
    let id = m.entry_comp().instrs[2];
    instr(&mut m, "a").operands[0] = id;
    refused(&m, "instruction `a` of computation `main`", "operand_ids");

    let mut m = base();
    let main = m.entry;
    instr(&mut m, "c").calls[0] = main;
    refused(&m, "computation `main`", "called_computation_ids");

    let mut m = base();
    instr(&mut m, "c").calls[0] = scalify_ir::CompId(77);
    refused(&m, "instruction `c` of computation `main`", "called_computation_ids");

    let mut m = base();
    let e = m.entry.0 as usize;
    m.comps[e].root = InstrId(0);
    refused(&m, "computation `main`", "root_id");

    let mut m = base();
    instr(&mut m, "p").attrs = scalify_ir::Attrs::Parameter(3);
    refused(&m, "instruction `p` of computation `main`", "parameter_number");

    let mut m = base();
    let first = m.entry_comp().instrs[0];
    let e = m.entry.0 as usize;
    m.comps[e].instrs.push(first);
    refused(&m, "instruction `p.1` of computation `main`", "id");

    let mut m = base();
    m.entry = scalify_ir::CompId(9);
    refused(&m, "module", "entry_computation_id");
}

#[test]
fn other_orders_are_sorted() {
    let mut m = base();
    let e = m.entry.0 as usize;
    m.comps[e].instrs.reverse();
    let sorted = read(&write(&m)).expect("instructions in any order");
    let d = difference(&base(), &sorted, Compare::ALL);
    assert_eq!(d, None);
    for (k, &i) in sorted.entry_comp().instrs.iter().enumerate() {
        let before = &sorted.entry_comp().instrs[..k];
        assert!(sorted.instr(i).operands.iter().all(|o| before.contains(o)));
    }

    // Callers before callees.
    let mut m = base();
    m.comps.swap(0, 1);
    m.entry = scalify_ir::CompId(1 - m.entry.0);
    instr(&mut m, "c").calls[0] = scalify_ir::CompId(1 - m.entry.0);
    let sorted = read(&write(&m)).expect("computations in any order");
    assert_eq!(sorted.str(sorted.comps[0].name), "inner");
    assert_eq!(sorted.str(sorted.entry_comp().name), "main");
}

/// Nesting far beyond what the decoder allows ends in an error.
#[test]
fn deep_nesting_is_refused() {
    let mut m = base();
    let mut s = scalify_ir::Shape::array(scalify_ir::DType::F32, [2]);
    for _ in 0..500 {
        s = scalify_ir::Shape::Tuple(vec![s]);
    }
    let id = m.shape_id(s);
    instr(&mut m, "c").shape = id;
    refused(&m, "instruction `c` of computation `main`", "shape");
}

/// A literal whose shape claims more than the file holds allocates nothing.
#[test]
fn claimed_sizes_are_checked() {
    use scalify_ir::{ArrayShape, Attrs, DType, Literal, LiteralData, Shape};
    let mut m = base();
    for dims in [vec![1 << 40], vec![i64::MAX, i64::MAX], vec![3]] {
        let shape = Shape::Array(ArrayShape::new(DType::F32, dims));
        let id = m.shape_id(shape.clone());
        let data = LiteralData::Dense(vec![0u8; 4].into());
        let p = instr(&mut m, "a");
        p.opcode = scalify_ir::Opcode::Constant;
        p.operands.clear();
        p.shape = id;
        p.attrs = Attrs::Constant(Box::new(Literal { shape, data }));
        refused(&m, "instruction `a` of computation `main`", "literal");
    }
}

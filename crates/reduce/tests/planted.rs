//! Programs with a planted fault.

use scalify_claim::Claim;
use scalify_ir::{InstrId, Module, Opcode};
use scalify_reduce::check::Refuted;
use scalify_reduce::edits;
use scalify_reduce::{Blind, State, Watch, reduce};
use std::time::Duration;

fn parse(t: &str) -> Module {
    scalify_hlo::parse(t).unwrap_or_else(|e| panic!("{}\n{t}", e.message))
}

/// A chain of `n` blocks of four operations, with `wrong` at block `at`.
fn chain(n: usize, at: usize, wrong: &str) -> Module {
    let mut t = "HloModule chain
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
half { x = f32[8] parameter(0)
  h = f32[] constant(0.5)
  w = f32[8] broadcast(h), dimensions={}
  ROOT y = f32[8] multiply(x, w) }
ENTRY e {
  x0 = f32[8] parameter(0)
  y = f32[8] parameter(1)
  z = f32[8] parameter(2)
"
    .to_owned();
    for k in 0..n {
        let op = if k == at { wrong } else { "add" };
        t += &format!(
            "  a{k} = f32[8] multiply(x{k}, y)
  b{k} = f32[8] {op}(a{k}, z)
  c{k} = f32[8] tanh(b{k})
  x{} = f32[8] call(c{k}), to_apply=half\n",
            k + 1
        );
    }
    t += &format!(
        "  zero = f32[] constant(0)
  s = f32[] reduce(x{n}, zero), dimensions={{0}}, to_apply=add
  ROOT r = (f32[], f32[8], f32[8]) tuple(s, x{n}, a0)
}}"
    );
    parse(&t)
}

#[test]
fn a_pair_of_two_hundred_instructions() {
    let (a, b) = (chain(50, 31, "add"), chain(50, 31, "subtract"));
    let s = State { modules: vec![a, b], claim: Claim::default() };
    assert!(s.size() > 400);
    let mut check = Refuted { code: None, time: Duration::from_secs(20), seed: 1 };
    let first = check.decide(&s).unwrap();
    assert_eq!(first.outcome.verdict, scalify_prove::outcome::Verdict::Refuted);
    let r = reduce(s, &mut check, &mut Blind, None);
    assert_eq!(r.invalid, 0);
    let [a, b] = &r.state.modules[..] else { panic!() };
    let ops = |m: &Module| -> Vec<Opcode> {
        m.instrs.iter().map(|i| i.opcode).filter(|o| *o != Opcode::Parameter).collect()
    };
    // The planted operation is what is left.
    assert!(ops(a).contains(&Opcode::Add) && ops(b).contains(&Opcode::Subtract), "{:?}", ops(b));
    assert!(r.state.size() <= 4, "{:?} {:?}", ops(a), ops(b));
}

#[test]
fn one_program_and_a_condition() {
    // The condition: some tanh of a difference is left.
    let m = chain(50, 20, "subtract");
    let has = |m: &Module| {
        m.instrs.iter().any(|i| {
            let of = i.operands.first().map(|&o| m.instr(o).opcode);
            i.opcode == Opcode::Tanh && of == Some(Opcode::Subtract)
        })
    };
    let s = State { modules: vec![m], claim: Claim::default() };
    let mut check = |s: &State| has(&s.modules[0]);
    let r = reduce(s, &mut check, &mut Blind, None);
    assert_eq!(r.invalid, 0);
    assert!(has(&r.state.modules[0]));
    assert_eq!(r.state.size(), 2, "{}", text(&r.state.modules[0]));
}

fn text(m: &Module) -> String {
    scalify_hlo::write(m, &scalify_hlo::WriteOptions::default())
}

#[test]
fn it_stops_when_told_to() {
    struct Stop(usize);
    impl Watch for Stop {
        fn tried(&mut self, tried: usize) -> bool {
            self.0 = tried;
            tried >= 5
        }
    }
    let s = State { modules: vec![chain(20, 3, "subtract")], claim: Claim::default() };
    let mut w = Stop(0);
    let r = reduce(s, &mut |_: &State| true, &mut w, None);
    assert!(r.stopped && w.0 == 5 && r.tried == 5);
}

const LOOP: &str = "HloModule loops
cond { p = (s32[], f32[4,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[4,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,3] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4,3] sine(x)
  z = f32[4,3] add(y, x)
  ROOT t = (s32[], f32[4,3]) tuple(j, z) }
yes { a = f32[4,3] parameter(0)
  ROOT r = f32[4,3] negate(a) }
no { a = f32[4,3] parameter(0)
  ROOT r = f32[4,3] cosine(a) }
less { p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT }
ENTRY e {
  x = f32[4,3] parameter(0)
  k = s32[] constant(0)
  c = f32[4,3] constant({{1,2,3},{4,5,6},{7,8,9},{1,0,1}})
  w = f32[4,3] add(x, c)
  t = (s32[], f32[4,3]) tuple(k, w)
  l = (s32[], f32[4,3]) while(t), condition=cond, body=body
  g = f32[4,3] get-tuple-element(l), index=1
  f = f32[4,3] fusion(g), kind=kLoop, calls=yes
  b = s32[] constant(1)
  d = f32[4,3] conditional(b, f, g), branch_computations={yes, no}
  s = f32[4,3] sort(d), dimensions={0}, to_apply=less
  i = s32[4,3] iota(), iota_dimension=1
  v = f32[4,3] convert(i)
  h = f32[4,3] exponential-minus-one(s)
  ROOT r = (f32[4,3], (f32[4,3], s32[4,3])) tuple(h, u)
}";

/// Every proposal, and every proposal made of one, is valid, whatever is kept.
#[test]
fn all_candidates_are_valid() {
    let nested = LOOP.replace(
        "  ROOT r = (f32[4,3], (f32[4,3]",
        "  u = (f32[4,3], s32[4,3]) tuple(v, i)\n  ROOT r = (f32[4,3], (f32[4,3]",
    );
    let (mut seen, mut seed) = (0usize, 12345u64);
    for start in [parse(&nested), chain(6, 2, "subtract")] {
        let check = |m: &Module, what: &str| {
            let s = State { modules: vec![m.clone()], claim: Claim::default() };
            assert!(s.is_valid(), "{what}\n{}", text(m));
            let again = scalify_hlo::parse(&text(m));
            assert!(again.is_ok(), "{what}: {:?}\n{}", again.err(), text(m));
        };
        // Random walks through proposals.
        for _ in 0..12 {
            let mut m = start.clone();
            for _ in 0..12 {
                let mut next: Vec<(String, Module)> =
                    edits::single(&m, 0).map(|(_, w, m)| (w, m)).collect();
                for &i in &m.entry_comp().instrs {
                    next.push((format!("result {}", m.name_of(i)), edits::returning(&m, &[i])));
                }
                let cut: Vec<(InstrId, String)> = m
                    .entry_comp()
                    .instrs
                    .iter()
                    .filter(|&&i| m.array(i).is_some())
                    .map(|&i| (i, format!("p{}", i.0 as usize + 1000 * m.instrs.len())))
                    .collect();
                let all = edits::parameters(&m, &cut);
                next.push(("unused".into(), edits::without_parameters(&all, &edits::unused(&all))));
                next.push(("parameters".into(), all));
                for (what, n) in &next {
                    check(n, what);
                    seen += 1;
                }
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99991);
                let Some(n) = next.get((seed >> 33) as usize % next.len().max(1)) else { break };
                m = n.1.clone();
            }
        }
    }
    assert!(seen > 2000, "{seen}");
}

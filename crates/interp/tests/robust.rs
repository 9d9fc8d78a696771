//! Damaged modules give errors or values, never a panic.

#[path = "common/mod.rs"]
mod common;

use scalify_interp::{RunOptions, run};
use scalify_ir::{CompId, InstrId, Module, ShapeId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

struct Random(u64);

impl Random {
    /// xorshift64
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn damage(m: &mut Module, r: &mut Random) -> String {
    let n = m.instrs.len();
    let i = r.below(n);
    let kind = r.below(8);
    match kind {
        0 => {
            m.instrs[i].operands.pop();
        }
        1 => {
            let k = r.below(m.instrs[i].operands.len());
            let to = InstrId(r.below(n + 1) as u32);
            if let Some(o) = m.instrs[i].operands.get_mut(k) {
                *o = to;
            }
        }
        2 => m.instrs[i].shape = ShapeId(r.below(m.shapes.len() + 1) as u32),
        3 => m.instrs[i].attrs = m.instrs[r.below(n)].attrs.clone(),
        4 => {
            let c = CompId(r.below(m.comps.len() + 1) as u32);
            m.instrs[i].calls = [c].into_iter().collect();
        }
        5 => m.instrs[i].opcode = m.instrs[r.below(n)].opcode,
        6 => {
            let k = r.below(m.comps.len());
            m.comps[k].root = InstrId(r.below(n + 1) as u32);
        }
        _ => {
            let extra = InstrId(r.below(n) as u32);
            m.instrs[i].operands.push(extra);
        }
    }
    format!("kind {kind} at {}", m.str(m.instrs[i].name))
}

#[test]
fn damaged_modules_do_not_panic() {
    let cases = common::cases().expect("the suite is readable");
    let mut r = Random(0x5EED);
    let (mut runs, mut errors) = (0, 0);
    for c in cases.iter().step_by(3) {
        let Ok(good) = scalify_hlo::parse(&c.text) else { continue };
        for _ in 0..6 {
            let mut m = good.clone();
            let mut what = Vec::new();
            for _ in 0..1 + r.below(2) {
                what.push(damage(&mut m, &mut r));
            }
            let options = RunOptions {
                partitions: 2,
                memory_limit: 64 << 20,
                time_limit: Some(Duration::from_secs(2)),
                step_limit: Some(20_000),
                ..Default::default()
            };
            runs += 1;
            let go = AssertUnwindSafe(|| run(&m, None, &[Vec::new(), Vec::new()], options).is_err());
            match catch_unwind(go) {
                Ok(e) => errors += e as u32,
                Err(_) => panic!("{} panics after {what:?}", c.name),
            }
        }
    }
    // Damage mostly shows; if nothing failed the test would not test.
    assert!(errors * 4 > runs, "only {errors} of {runs} runs fail");
}

//! What a fault may be where no edit is proved to mend it: from the values of
//! both programs on one input, and from where the programs part.
//!
//! Each finding says what was seen, no more: every element is so many times
//! the expected one, the expected elements stand in another order, a window
//! starts elsewhere than in the baseline.

use crate::candidates::Context;
use crate::evaluate::{Inputs, RunLimits};
use crate::search::{Counterexample, Refuter};
use rustc_hash::FxHashMap;
use scalify_interp::Value;
use scalify_ir::{InstrId, Module, Opcode};
use std::time::Duration;

/// A kind of fault that no repair confirms.
#[derive(Clone, Debug)]
pub struct Observed {
    /// See [`scalify_prove::outcome::FrontierItem::code`].
    pub code: &'static str,
    /// The distributed instruction to show.
    pub at: InstrId,
    /// What was seen.
    pub reason: String,
    /// The baseline instruction that stands in its place.
    pub counterpart: Option<InstrId>,
    /// Gives way to any other name of the fault.
    pub vague: bool,
}

/// One output of both programs on one input, in `f64`, per device: what the
/// device should hold and what it holds.
pub(crate) struct Side {
    /// Position among the outputs.
    pub output: usize,
    /// Per device the expected elements of its block.
    pub expected: Vec<Vec<f64>>,
    /// Per device the elements that it has.
    pub actual: Vec<Vec<f64>>,
}

impl Side {
    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let all = self.expected.iter().zip(&self.actual);
        all.flat_map(|(e, a)| e.iter().copied().zip(a.iter().copied()))
    }

    pub(crate) fn differs(&self) -> bool {
        self.pairs().any(|(e, a)| !near(e, a))
    }
}

fn near(x: f64, y: f64) -> bool {
    x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-9 * (x.abs() + y.abs()) + 1e-300
}

/// Most elements that are compared as a set.
const MANY: usize = 1 << 20;

/// The first kind that the values or the programs show.
pub(crate) fn observe(
    ctx: &Context<'_>,
    outputs: &[InstrId],
    refuter: &Refuter<'_>,
    example: &Counterexample,
) -> Option<Observed> {
    if let Some(x) = undefined(ctx, refuter, example) {
        return Some(x);
    }
    let sides: Vec<Side> =
        refuter.sides(example).into_iter().flatten().filter(Side::differs).collect();
    let at = |s: &Side| outputs.get(s.output).copied();
    let first = sides.first().and_then(at)?;
    let (reason, code) = if let Some(x) = factor(ctx, &sides) {
        (x, "wrong-scale")
    } else if in_other_order(&sides) {
        let parted = ctx.parted(&[]);
        if let Some(x) = parted.filter(|x| matches!(x.code, "stale-slice" | "wrong-dimension")) {
            return Some(x);
        }
        let code = if after(ctx.m, first, Opcode::CollectivePermute) {
            "wrong-permute"
        } else {
            "wrong-layout"
        };
        ("the expected elements, in another order or on other devices".to_owned(), code)
    } else if let Some(x) = ctx.parted(&sides.iter().filter_map(at).collect::<Vec<_>>()) {
        return Some(x);
    } else if let Some(x) = summands(ctx, &sides) {
        (x, "missing-all-reduce")
    } else {
        return ctx.last_resort();
    };
    Some(Observed { code, at: first, reason, counterpart: None, vague: false })
}

/// Is an instruction computed from one of this opcode, in its computation?
fn after(m: &Module, x: InstrId, op: Opcode) -> bool {
    let mut list = vec![x];
    let mut k = 0;
    while k < list.len() && list.len() < 4096 {
        let i = m.instr(list[k]);
        if i.opcode == op {
            return true;
        }
        list.extend(i.operands.iter().filter(|o| !list.contains(o)).copied().collect::<Vec<_>>());
        k += 1;
    }
    false
}

/// Every element is the same multiple of what it should be, by the size of
/// mesh axes or its square root.
fn factor(ctx: &Context<'_>, sides: &[Side]) -> Option<String> {
    let mut all = sides.iter().flat_map(Side::pairs).filter(|p| p.0 != 0.0 || p.1 != 0.0);
    let (e, a) = all.next()?;
    let r = a / e;
    if !r.is_finite() || r == 0.0 || near(r, 1.0) || !all.all(|(e, a)| near(e * r, a)) {
        return None;
    }
    let of = if near(r.fract(), 0.0) || r > 1.0 {
        format!("every element is {r} times the expected one")
    } else {
        format!("every element is 1/{} of the expected one", 1.0 / r)
    };
    for mask in ctx.masks() {
        let n: i64 =
            (0..ctx.mesh.len()).filter(|j| mask & 1 << j != 0).map(|j| ctx.mesh[j].1).product();
        let n = n as f64;
        for (size, what) in [(n, "size"), (n.sqrt(), "square root of the size")] {
            if near(r, size) || near(r, 1.0 / size) {
                return Some(format!("{of}: the {what} of {}", ctx.axes(mask)));
            }
        }
    }
    // One number is a multiple of any other.
    let n: usize = sides.iter().map(|s| s.pairs().count() / s.actual.len().max(1)).sum();
    (n >= 4).then_some(of)
}

/// All devices together hold the expected elements, but not where they
/// belong.
fn reordered(sides: &[&Side]) -> bool {
    let sorted = |f: &dyn Fn(&Side) -> &Vec<Vec<f64>>| {
        let mut v: Vec<f64> = sides.iter().flat_map(|s| f(s).iter().flatten().copied()).collect();
        v.sort_by(f64::total_cmp);
        v
    };
    let n: usize = sides.iter().flat_map(|s| &s.actual).map(Vec::len).sum();
    if n > MANY {
        return false;
    }
    let (e, a) = (sorted(&|s| &s.expected), sorted(&|s| &s.actual));
    // Few different values are in any order.
    let mut distinct = e.clone();
    distinct.dedup();
    distinct.len() >= 4 && e.len() == a.len() && e.iter().zip(&a).all(|(x, y)| near(*x, *y))
}

/// Each device has the whole block of another one.
pub(crate) fn exchanged(sides: &[Side]) -> bool {
    let differ: Vec<&Side> = sides.iter().filter(|s| s.differs()).collect();
    let same =
        |x: &[f64], y: &[f64]| x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(*x, *y));
    let blocks = |s: &&Side| s.actual.iter().all(|a| s.expected.iter().any(|e| same(a, e)));
    !differ.is_empty() && differ.iter().all(blocks)
}

/// As [`reordered`], of the outputs that differ.
pub(crate) fn in_other_order(sides: &[Side]) -> bool {
    let differ: Vec<&Side> = sides.iter().filter(|s| s.differs()).collect();
    !differ.is_empty() && reordered(&differ)
}

/// What devices hold along some mesh axes adds up to what each should hold.
fn summands(ctx: &Context<'_>, sides: &[Side]) -> Option<String> {
    for mask in ctx.masks() {
        let devices: i64 = ctx.mesh.iter().map(|a| a.1).product();
        let groups = ctx.template(mask).groups.expand(devices)?;
        let mut hit = false;
        let whole = sides.iter().all(|s| {
            groups.iter().all(|g| {
                let of = |v: &Vec<Vec<f64>>, d: &i64| v.get(*d as usize).cloned();
                let Some(e) = g.first().and_then(|d| of(&s.expected, d)) else { return false };
                (0..e.len()).all(|k| {
                    let sum: f64 = g.iter().filter_map(|d| s.actual.get(*d as usize)?.get(k)).sum();
                    hit |= !near(sum, 0.0);
                    near(sum, e[k])
                        && g.iter().all(|d| {
                            s.expected.get(*d as usize).and_then(|v| v.get(k)) == Some(&e[k])
                        })
                })
            })
        });
        if whole && hit {
            return Some(format!(
                "the values of the devices along {} add up to the expected one",
                ctx.axes(mask)
            ));
        }
    }
    None
}

/// Where a number that should be finite becomes NaN: infinities subtracted, as
/// in a row that is masked out whole.
pub(crate) fn undefined(
    ctx: &Context<'_>,
    refuter: &Refuter<'_>,
    example: &Counterexample,
) -> Option<Observed> {
    let broken = |d: &crate::search::Difference| d.actual.is_nan() && d.expected.is_finite();
    let big = crate::search::volume(ctx.m) > 1e7;
    if big || !example.outputs.iter().any(broken) {
        return None;
    }
    // Per device: instructions with NaN, with infinities.
    let mut seen: FxHashMap<(usize, InstrId), (bool, bool)> = FxHashMap::default();
    let mut found: Option<(InstrId, usize)> = None;
    let m = ctx.m;
    refuter.trace(&example.inputs, example, &mut |d: usize, x: InstrId, v: &Value| {
        let Some(t) = v.as_tensor().filter(|t| t.dtype.is_float()) else { return };
        let (mut nan, mut inf) = (false, false);
        for y in t.to_f64() {
            nan |= y.is_nan();
            inf |= y.is_infinite();
        }
        if nan && found.is_none() {
            let of = |o: &InstrId| seen.get(&(d, *o)).copied().unwrap_or_default();
            let i = m.instr(x);
            let clean = i.operands.iter().all(|o| !of(o).0);
            if clean && i.opcode == Opcode::Subtract && i.operands.iter().all(|o| of(o).1) {
                found = Some((x, d));
            }
        }
        seen.insert((d, x), (nan, inf));
    });
    let (at, device) = found?;
    Some(Observed {
        code: "wrong-mask",
        at,
        reason: format!(
            "infinity minus infinity on device {device}: a row of which nothing is left by the mask"
        ),
        counterpart: None,
        vague: false,
    })
}

impl Refuter<'_> {
    /// Limits of one evaluation here.
    pub(crate) fn short(&self) -> RunLimits {
        RunLimits { memory: 1 << 30, time: Duration::from_secs(2) }
    }

    /// Evaluates the distributed program and shows every value.
    pub(crate) fn trace(
        &self,
        x: &Inputs,
        c: &Counterexample,
        see: &mut dyn FnMut(usize, InstrId, &Value),
    ) {
        let (m, p) = (self.dist_module(), self.problem());
        let _ = crate::evaluate::dist_traced(m, p, &c.placements, x, self.short(), see);
    }
}

//! Whether a mutant differs: both programs are run on random inputs.
//!
//! A draw is evaluated with all floats in `f64` first, where programs that are
//! equal over the reals differ by some 1e-13 of their values; then in the
//! element types, where a mutant that rounds once more differs if it is much
//! farther from the `f64` result than both originals.

use crate::cases::Pair;
use crate::draw::{self, Inputs, block};
use crate::random::Random;
use scalify_claim::{Mesh, Placement};
use scalify_interp::tensor::Data;
use scalify_interp::{Accumulate, RunOptions, Tensor, Trace, Value};
use scalify_ir::{ArrayShape, InstrId, Module, Opcode, Shape, ShardingKind};
use scalify_prove::outcome::Side;
use scalify_prove::problem::{self, Problem};
use std::collections::HashSet;
use std::time::Duration;

/// Draws that are also run in the element types.
const PLAIN: usize = 2;

/// What the samples say about a mutant.
#[derive(Clone, PartialEq, Debug)]
pub enum Judgement {
    /// Equal up to rounding on all draws.
    Equal,
    /// Differs by more than rounding.
    Differs {
        /// Index of the draw.
        draw: usize,
        /// One line.
        how: String,
        /// Finite values differ, not only where one is NaN or infinite.
        finite: bool,
    },
    /// Equal in `f64`, but much farther from that in the element types than
    /// the originals, without a further conversion to a coarser type.
    Coarser {
        /// Index of the draw.
        draw: usize,
        /// One line.
        how: String,
    },
    /// It cannot be run.
    NoValue(String),
}

/// One array result: float elements (two per complex number) or integers.
#[derive(Clone, Debug)]
struct Out {
    dims: Vec<i64>,
    float: Vec<f64>,
    int: Vec<i64>,
    /// Relative rounding error of the element type.
    eps: f64,
}

/// Results of a program: per device, per output.
type Outs = Vec<Vec<Out>>;

struct Draw {
    inputs: Inputs,
    base: Outs,
    dist: Outs,
    /// Per output: largest difference of the originals, and of the baseline
    /// from itself with other roundings.
    noise: Vec<f64>,
    /// Per output: error in the element types, of both originals.
    plain: Option<Vec<f64>>,
}

/// A pair that agrees on all draws, ready to judge mutants of it.
pub struct Judge {
    problem: Problem,
    /// Per output the layouts that may be meant.
    layouts: Vec<Vec<Placement>>,
    draws: Vec<Draw>,
    /// Conversions to coarser types in both originals.
    roundings: [usize; 2],
}

/// The judge of a pair, or why there is none.
pub enum Made {
    /// It agrees.
    Judge(Box<Judge>),
    /// It cannot be run.
    Skip(String),
    /// The originals differ.
    Differs(String),
}

/// How two results differ.
enum Gap {
    None,
    NonFinite(String),
    Finite(String),
}

fn out(t: &Tensor) -> Out {
    let dims = t.dims.to_vec();
    let eps = match t.dtype.complex_part().unwrap_or(t.dtype).mantissa_bits() {
        Some(b) => (-f64::from(b)).exp2(),
        None => 0.0,
    };
    let (mut float, mut int) = (Vec::new(), Vec::new());
    match &t.data {
        Data::C128(v) => float.extend(v.iter().flat_map(|z| [z.re, z.im])),
        Data::C64(v) => float.extend(v.iter().flat_map(|z| [f64::from(z.re), f64::from(z.im)])),
        _ => match t.to_i64() {
            Some(v) => int = v,
            None => float = t.to_f64(),
        },
    }
    Out { dims, float, int, eps }
}

fn leaves(v: &Value, to: &mut Vec<Out>) {
    match v {
        Value::Tensor(t) => to.push(out(t)),
        Value::Tuple(v) => v.iter().for_each(|v| leaves(v, to)),
        Value::Token => {}
    }
}

/// Compares `x` with the expected block `y`; `noise`: of the originals.
fn gap(x: &Out, y: &Out, noise: f64) -> Gap {
    if x.float.len() != y.float.len() || x.int.len() != y.int.len() {
        return Gap::Finite("results of different sizes".into());
    }
    if let Some(k) = (0..x.int.len()).find(|&k| x.int[k] != y.int[k]) {
        return Gap::Finite(format!("element {k}: {} and not {}", x.int[k], y.int[k]));
    }
    let top = y.float.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let mut special = Gap::None;
    for (k, (&a, &b)) in x.float.iter().zip(&y.float).enumerate() {
        if a == b || a.is_nan() && b.is_nan() {
            continue;
        }
        let text = || format!("element {k}: {a:e} and not {b:e}");
        if !a.is_finite() || !b.is_finite() {
            if matches!(special, Gap::None) {
                special = Gap::NonFinite(text());
            }
        } else if (a - b).abs() > 1e-9 * b.abs() + 1e-12 * top + 100.0 * noise {
            return Gap::Finite(text());
        }
    }
    special
}

/// Largest difference of finite elements.
fn distance(x: &Out, y: &Out) -> f64 {
    let d = x.float.iter().zip(&y.float).map(|(a, b)| (a - b).abs());
    d.filter(|d| d.is_finite()).fold(0.0, f64::max)
}

fn part(o: &Out, q: &Placement, device: u32) -> Option<Out> {
    if q.is_replicated() {
        return Some(o.clone());
    }
    let n: i64 = o.dims.iter().product();
    let w = if n > 0 { o.float.len() / n as usize } else { 1 };
    let float =
        if o.float.is_empty() { Vec::new() } else { block(&o.float, &o.dims, w, q, device)? };
    let int = if o.int.is_empty() { Vec::new() } else { block(&o.int, &o.dims, 1, q, device)? };
    let dims = q.local_shape(&o.dims)?;
    Some(Out { dims, float, int, eps: o.eps })
}

impl Judge {
    /// Draws `draws` inputs and runs the pair on them.
    pub fn prepare(pair: &Pair, draws: usize, seed: u64) -> Made {
        let p = problem::setup(&pair.base, &pair.dist, &pair.claim);
        if let Some(e) = p.errors.first() {
            return Made::Skip(e.clone());
        }
        if p.base_spmd {
            return Made::Skip("the baseline is a program for many devices".into());
        }
        if p.devices > 64 {
            return Made::Skip(format!("{} devices", p.devices));
        }
        let layouts = match layouts(pair, &p) {
            Ok(l) => l,
            Err(e) => return Made::Skip(e),
        };
        let roundings = [roundings(&pair.base), roundings(&pair.dist)];
        let mut j = Judge { problem: p, layouts, draws: Vec::new(), roundings };
        let mut seen = false;
        for kind in 0..draws.min(draw::KINDS.len()) {
            let mut r = Random::new(seed).fork(kind as u64);
            let inputs =
                match draw::draw(&pair.base, &pair.dist, &j.problem, &pair.claim, kind, &mut r) {
                    Ok(i) => i,
                    Err(e) => return Made::Skip(e),
                };
            let both = |a: Accumulate| -> Result<(Outs, Outs), String> {
                let b = j.run(Side::Base, &pair.base, &inputs, a)?;
                let d = j.run(Side::Dist, &pair.dist, &inputs, a)?;
                Ok((b, d))
            };
            let (base, dist) = match both(Accumulate::F64) {
                Ok(x) => x,
                Err(e) => return Made::Skip(e),
            };
            seen |= base[0]
                .iter()
                .all(|o| o.float.iter().filter(|v| v.is_finite()).count() * 2 >= o.float.len());
            // Which layouts agree, to 1e-6: rounding comes later.
            let mut fitting = Vec::new();
            for k in 0..j.layouts.len() {
                let before = j.layouts[k].len();
                let mut why = String::new();
                let fit: Vec<Placement> = j.layouts[k]
                    .iter()
                    .filter(|q| match j.compare(k, q, &base, &dist, None) {
                        Gap::Finite(t) => {
                            why = t;
                            false
                        }
                        _ => true,
                    })
                    .cloned()
                    .collect();
                if fit.is_empty() {
                    let kind = draw::KINDS[kind];
                    let text = format!("output {k}, draw {kind}: {why}, {before} layouts tried");
                    return Made::Differs(text);
                }
                fitting.push(fit);
            }
            let error = |k: usize, d: &Outs| {
                fitting.get(k).and_then(|l| l.first()).map_or(0.0, |q| j.error(k, q, &base, d))
            };
            let condition = match j.condition(&pair.base, &inputs, &base) {
                Ok(c) => c,
                Err(e) => return Made::Skip(e),
            };
            let noise = (0..fitting.len()).map(|k| error(k, &dist).max(condition[k])).collect();
            let plain = match kind < PLAIN {
                true => match both(Accumulate::Plain) {
                    Ok((b, d)) => Some(
                        (0..fitting.len())
                            .map(|k| distance(&b[0][k], &base[0][k]).max(error(k, &d)))
                            .collect(),
                    ),
                    Err(e) => return Made::Skip(e),
                },
                false => None,
            };
            j.layouts = fitting;
            j.draws.push(Draw { inputs, base, dist, noise, plain });
        }
        if !seen {
            return Made::Skip("no draw gives finite values".into());
        }
        Made::Judge(Box::new(j))
    }

    /// Number of devices.
    pub fn devices(&self) -> i64 {
        self.problem.devices
    }

    /// Inputs of a draw.
    pub fn inputs(&self, draw: usize) -> Option<&Inputs> {
        self.draws.get(draw).map(|d| &d.inputs)
    }

    fn run(&self, side: Side, m: &Module, i: &Inputs, a: Accumulate) -> Result<Outs, String> {
        self.execute(side, m, i, a, None, None)
    }

    /// Per output of the baseline, how far it moves when every result of
    /// its arithmetic moves by up to a unit in the last place of `f64`: what
    /// equal formulas may differ by. A jump (of a comparison, say) is no
    /// rounding: at most 1e-12 of the largest value on the way, masks and the
    /// like aside.
    fn condition(&self, base: &Module, i: &Inputs, was: &Outs) -> Result<Vec<f64>, String> {
        let Some(was) = was.first() else { return Err("the baseline has no result".into()) };
        let mut top = 0f64;
        let mut see = |_: usize, _: InstrId, v: &Value| {
            let Value::Tensor(t) = v else { return };
            if t.dtype.is_float() {
                let usual = t.to_f64().into_iter().map(f64::abs).filter(|x| *x < 1e15);
                top = usual.fold(top, f64::max);
            }
        };
        let (side, wide) = (Side::Base, Accumulate::F64);
        self.execute(side, base, i, wide, None, Some(&mut see))?;
        let mut most = vec![0f64; was.len()];
        for seed in 1..=3 {
            let got = self.execute(side, base, i, wide, Some(seed), None)?;
            let moved = got.iter().flatten().zip(was).map(|(x, y)| distance(x, y));
            most.iter_mut().zip(moved).for_each(|(m, d)| *m = m.max(d));
        }
        Ok(most.into_iter().map(|m| m.min(1e-12 * top)).collect())
    }

    fn execute(
        &self,
        side: Side,
        m: &Module,
        i: &Inputs,
        a: Accumulate,
        jitter: Option<u64>,
        trace: Option<Trace<'_>>,
    ) -> Result<Outs, String> {
        let n = self.problem.devices.max(1) as usize;
        let base = [i.base.clone()];
        let (args, devices) = match side {
            Side::Base => (&base[..], 1),
            Side::Dist => (&i.dist[..], n),
        };
        let replicas = m.header.replica_count.max(1) as usize;
        let (replicas, partitions) = match side {
            Side::Base => (1, 1),
            Side::Dist if self.problem.replica_mode => (devices, 1),
            Side::Dist if devices.is_multiple_of(replicas) => (replicas, devices / replicas),
            Side::Dist => (1, devices),
        };
        let o = RunOptions {
            replicas,
            partitions,
            memory_limit: 2 << 30,
            time_limit: Some(Duration::from_secs(10)),
            step_limit: Some(2_000_000),
            accumulate: a,
            jitter,
            trace,
        };
        let v = scalify_interp::run(m, None, args, o).map_err(|e| e.to_string())?;
        Ok(v.iter()
            .map(|v| {
                let mut to = Vec::new();
                leaves(v, &mut to);
                to
            })
            .collect())
    }

    /// True if a program has no NaN, no +inf and no exponential near the ends
    /// of its range on these inputs.
    fn tame(&self, side: Side, m: &Module, i: &Inputs) -> bool {
        let exponent: Vec<Option<InstrId>> = m
            .instrs
            .iter()
            .map(|i| {
                let exp = matches!(i.opcode, Opcode::Exponential | Opcode::ExponentialMinusOne);
                i.operands.first().copied().filter(|_| exp)
            })
            .collect();
        let wanted: HashSet<InstrId> = exponent.iter().flatten().copied().collect();
        let mut extreme: HashSet<(usize, InstrId)> = HashSet::new();
        let mut wild = false;
        let mut see = |d: usize, id: InstrId, v: &Value| {
            let Value::Tensor(t) = v else { return };
            if !(t.dtype.is_float() || t.dtype.is_complex()) {
                return;
            }
            let x = t.to_f64();
            // Masks are far beyond.
            if wanted.contains(&id) {
                if x.iter().any(|x| (600.0..9e3).contains(&x.abs())) {
                    extreme.insert((d, id));
                } else {
                    extreme.remove(&(d, id));
                }
            }
            let fixed = matches!(m.instr(id).opcode, Opcode::Constant | Opcode::Broadcast);
            wild |= !fixed && x.iter().any(|x| x.is_nan() || *x == f64::INFINITY);
            let of = exponent.get(id.0 as usize).copied().flatten();
            wild |= of.is_some_and(|o| extreme.contains(&(d, o)));
        };
        self.execute(side, m, i, Accumulate::F64, None, Some(&mut see)).is_ok() && !wild
    }

    /// Judges a mutant on the draws on which the assumption of finite values
    /// holds; `None` if there is none.
    pub fn judge_tame(&self, side: Side, mutant: &Module) -> Option<Judgement> {
        let keep: Vec<usize> = (0..self.draws.len())
            .filter(|&k| self.tame(side, mutant, &self.draws[k].inputs))
            .collect();
        if keep.is_empty() { None } else { Some(self.judge_on(side, mutant, &keep)) }
    }

    /// Output `k` on all devices against the baseline's in a layout; without
    /// `noise` differences up to 1e-6 pass.
    fn compare(
        &self,
        k: usize,
        q: &Placement,
        base: &Outs,
        dist: &Outs,
        noise: Option<f64>,
    ) -> Gap {
        let mut special = Gap::None;
        for (d, outs) in dist.iter().enumerate() {
            let (Some(x), Some(y)) = (outs.get(k), base.first().and_then(|b| b.get(k))) else {
                return Gap::Finite("an output is missing".into());
            };
            let Some(y) = part(y, q, d as u32) else {
                return Gap::Finite("an uneven layout".into());
            };
            let top = y.float.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
            match gap(x, &y, noise.unwrap_or(1e-8 * top)) {
                Gap::None => {}
                Gap::NonFinite(t) => {
                    special = Gap::NonFinite(format!("output {k} on device {d}: {t}"));
                }
                Gap::Finite(t) => return Gap::Finite(format!("output {k} on device {d}: {t}")),
            }
        }
        special
    }

    /// Largest finite difference of output `k`.
    fn error(&self, k: usize, q: &Placement, base: &Outs, dist: &Outs) -> f64 {
        let mut worst = 0f64;
        for (d, outs) in dist.iter().enumerate() {
            let (Some(x), Some(y)) = (outs.get(k), base.first().and_then(|b| b.get(k))) else {
                continue;
            };
            if let Some(y) = part(y, q, d as u32) {
                worst = worst.max(distance(x, &y));
            }
        }
        worst
    }

    /// Judges a mutant of one side.
    pub fn judge(&self, side: Side, mutant: &Module) -> Judgement {
        self.judge_on(side, mutant, &(0..self.draws.len()).collect::<Vec<_>>())
    }

    /// Judges a mutant on one input more, on which the refuter says that it
    /// differs: the originals must agree there and the mutant must not.
    pub fn judge_at(&self, side: Side, pair: &Pair, mutant: &Module, inputs: &Inputs) -> Judgement {
        let run = |s, m: &Module| self.run(s, m, inputs, Accumulate::F64);
        let all = run(Side::Base, &pair.base)
            .and_then(|b| Ok((b, run(Side::Dist, &pair.dist)?, run(side, mutant)?)));
        let (base, dist, got) = match all {
            Ok(x) => x,
            Err(e) => return Judgement::NoValue(e),
        };
        for (k, qs) in self.layouts.iter().enumerate() {
            let fits = |q: &&Placement| matches!(self.compare(k, q, &base, &dist, None), Gap::None);
            let fitting: Vec<&Placement> = qs.iter().filter(fits).collect();
            let (b, d) = match side {
                Side::Base => (&got, &dist),
                Side::Dist => (&base, &got),
            };
            let gaps = fitting.iter().map(|q| {
                let noise = self.error(k, q, &base, &dist);
                match self.compare(k, q, b, d, Some(noise)) {
                    Gap::None => None,
                    Gap::NonFinite(t) => Some((t, false)),
                    Gap::Finite(t) => Some((t, true)),
                }
            });
            let Some(gaps) = gaps.collect::<Option<Vec<_>>>() else { continue };
            if let Some((t, finite)) = gaps.into_iter().next() {
                let how = format!("{t} (the refuter's inputs, in f64)");
                return Judgement::Differs { draw: usize::MAX, how, finite };
            }
        }
        Judgement::Equal
    }

    /// How the judge places inputs and outputs.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    fn judge_on(&self, side: Side, mutant: &Module, draws: &[usize]) -> Judgement {
        let draws = || draws.iter().filter_map(|&n| Some((n, self.draws.get(n)?)));
        let mut alive = self.layouts.clone();
        let mut special = None;
        let name = |k: usize| draw::KINDS.get(k).copied().unwrap_or("");
        for (n, d) in draws() {
            let got = match self.run(side, mutant, &d.inputs, Accumulate::F64) {
                Ok(g) => g,
                Err(e) => return Judgement::NoValue(e),
            };
            let (base, dist) = match side {
                Side::Base => (&got, &d.dist),
                Side::Dist => (&d.base, &got),
            };
            for (k, qs) in alive.iter_mut().enumerate() {
                let mut why = String::new();
                qs.retain(|q| match self.compare(k, q, base, dist, Some(d.noise[k])) {
                    Gap::None => true,
                    Gap::NonFinite(t) => {
                        special.get_or_insert((n, t));
                        true
                    }
                    Gap::Finite(t) => {
                        why = t;
                        false
                    }
                });
                if qs.is_empty() {
                    let how = format!("{why} ({} draw, in f64)", name(n));
                    return Judgement::Differs { draw: n, how, finite: true };
                }
            }
        }
        if let Some((draw, how)) = special {
            let how = format!("{how} ({} draw, in f64)", name(draw));
            return Judgement::Differs { draw, how, finite: false };
        }
        for (n, d) in draws() {
            let Some(limits) = &d.plain else { continue };
            let got = match self.run(side, mutant, &d.inputs, Accumulate::Plain) {
                Ok(g) => g,
                Err(e) => return Judgement::NoValue(e),
            };
            for (k, limit) in limits.iter().enumerate() {
                let (Some(q), Some(y)) = (alive[k].first(), d.base[0].get(k)) else { continue };
                let e = match side {
                    Side::Dist => self.error(k, q, &d.base, &got),
                    Side::Base => got[0].get(k).map_or(0.0, |x| distance(x, y)),
                };
                let top =
                    y.float.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
                if e > 16.0 * limit + 8.0 * y.eps * top {
                    let how = format!(
                        "output {k}: error {e:e}, that of the originals {limit:e} ({} draw)",
                        name(n)
                    );
                    let was = self.roundings[usize::from(side == Side::Dist)];
                    return if roundings(mutant) > was {
                        Judgement::Differs { draw: n, how, finite: true }
                    } else {
                        Judgement::Coarser { draw: n, how }
                    };
                }
            }
        }
        Judgement::Equal
    }
}

/// Per output the layouts that the claim, the annotations or the shapes admit.
fn layouts(pair: &Pair, p: &Problem) -> Result<Vec<Vec<Placement>>, String> {
    let (b, d) = (problem::output_shapes(&pair.base), problem::output_shapes(&pair.dist));
    if b.len() != d.len() {
        return Err("different numbers of outputs".into());
    }
    let mesh = Mesh::new(p.mesh.clone()).ok();
    let n = p.devices as u32;
    let mut out = Vec::new();
    let arrays = b.iter().zip(&d).filter(|(b, _)| **b != Shape::Token);
    for (k, (b, d)) in arrays.enumerate() {
        let (Shape::Array(g), Shape::Array(l)) = (b, d) else {
            return Err("an output is no array".into());
        };
        let fits = |q: &Placement| even(q, g) && q.local_shape(&g.dims).as_deref() == Some(&l.dims);
        let name = format!("#{k}");
        let declared = match (pair.claim.output_spec(k, &[&name]), &mesh) {
            (Some(s), Some(m)) => Placement::from_spec(m, s, g.rank()).ok().filter(fits),
            _ => None,
        };
        let annotated = || {
            let o = pair.dist.header.spmd_output_sharding.as_ref()?;
            let leaf = match &o.kind {
                ShardingKind::Tuple(t) => t.get(k)?,
                _ => o,
            };
            Placement::from_op_sharding(leaf, g.rank(), n).ok().filter(fits)
        };
        let all = if let Some(q) = declared {
            vec![q]
        } else if g.dims == l.dims {
            vec![Placement::replicated(g.rank(), n)]
        } else if let Some(q) = annotated() {
            vec![q]
        } else {
            let all = problem::candidates(&p.mesh, p.devices, &g.dims, &l.dims, 64);
            all.into_iter().filter(|q| even(q, g)).collect()
        };
        if all.is_empty() {
            return Err(format!("no layout for output {k}"));
        }
        out.push(all);
    }
    Ok(out)
}

/// Conversions to coarser float types.
fn roundings(m: &Module) -> usize {
    let bits = |i: InstrId| m.dtype(i).and_then(|t| t.mantissa_bits());
    let coarser = |k: &usize| {
        let i = &m.instrs[*k];
        match (i.opcode, i.operands.first().and_then(|&o| bits(o)), bits(InstrId(*k as u32))) {
            (Opcode::Convert, Some(from), Some(to)) => to < from,
            (Opcode::ReducePrecision, ..) => true,
            _ => false,
        }
    };
    (0..m.instrs.len()).filter(coarser).count()
}

fn even(q: &Placement, g: &ArrayShape) -> bool {
    q.dims.iter().zip(&g.dims).all(|(p, d)| d % i64::from(p.tiles.max(1)) == 0)
}

//! Two programs on the same inputs, operation by operation.

use crate::analyze::{Analyzer, Kind, Row, Worst, distance, unflatten};
use crate::bound::{narrow_sum, numbers, roundoff};
use crate::flow::{Engine, Flow, FlowError, Limits, Node, NodeId, PerDevice, Slot};
use crate::pairing::{Basis, Pair, Pairs, Places, Runs, placed};
use crate::values::Values;
use rustc_hash::FxHashSet;
use scalify_claim::{Claim, Placement};
use scalify_interp::{Tensor, Value};
use scalify_ir::{ArrayShape, InstrId, Module, Opcode, Shape};
use scalify_prove::problem::{self, Problem};
use scalify_refute::compare;
use scalify_refute::domain::{self, Profile};
use scalify_refute::evaluate::{self, Inputs};
use scalify_refute::random::Random;
use scalify_refute::{Options as RefuteOptions, Refuter, Search};
use serde::{Serialize, Serializer};
use std::time::Duration;
use thiserror::Error;

/// JSON has no NaN: numbers that are not finite are strings.
pub fn number<S: Serializer>(x: &f64, s: S) -> Result<S::Ok, S::Error> {
    if x.is_finite() {
        s.serialize_f64(*x)
    } else if x.is_nan() {
        s.serialize_str("NaN")
    } else if *x > 0.0 {
        s.serialize_str("Infinity")
    } else {
        s.serialize_str("-Infinity")
    }
}

/// Why two programs were not compared.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DiffError {
    /// Inputs, outputs or devices do not fit.
    #[error("{0}")]
    Problem(String),
    /// One of them could not be run.
    #[error("the {0} program: {1}")]
    Run(&'static str, FlowError),
}

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of drawn inputs and signs.
    pub seed: u64,
    /// Inputs drawn to find ones on which the outputs differ.
    pub samples: usize,
    /// Time of that search.
    pub search: Duration,
    /// Time of the prover.
    pub prove: Duration,
    /// Time of the comparison of operations.
    pub compare: Duration,
    /// Elements over all devices of values that the prover relates.
    pub max_elements: usize,
    /// Limits of each run.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            samples: 8,
            search: Duration::from_secs(10),
            prove: Duration::from_secs(20),
            compare: Duration::from_secs(120),
            max_elements: 1 << 22,
            limits: Limits::default(),
        }
    }
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No operation introduces more than rounding.
    Equal,
    /// One does, or outputs differ.
    Different,
    /// Nothing but inputs could be compared.
    Unknown,
}

/// How one output compares, end to end.
#[derive(Clone, Debug, Serialize)]
pub struct Output {
    /// Position among the array leaves.
    pub index: usize,
    /// Largest error against the first program in `f64`.
    #[serde(serialize_with = "number")]
    pub max: f64,
    /// That error over what rounding explains, at most.
    #[serde(serialize_with = "number")]
    pub ratio: f64,
    /// What it is.
    pub kind: Kind,
    /// Where it is worst.
    pub worst: Worst,
}

/// What [`diff`] found.
#[derive(Debug)]
pub struct Report {
    /// The answer.
    pub verdict: Verdict,
    /// Compared pairs in the order of the second program.
    pub rows: Vec<Row>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// The first operation of the second program that introduces more than
    /// its bound.
    pub first: Option<Blame>,
    /// Operations of the second program.
    pub operations: usize,
    /// Most names are in both programs.
    pub versions: bool,
    /// Facts for the reader.
    pub notes: Vec<String>,
    /// The first program's run.
    pub a: Flow,
    /// The second program's run.
    pub b: Flow,
    /// The inputs.
    pub inputs: Inputs,
    /// Names of the inputs.
    pub names: Vec<String>,
}

/// The operation to look at first.
#[derive(Clone, Debug)]
pub struct Blame {
    /// Operation of the second program.
    pub node: NodeId,
    /// What is wrong with it.
    pub kind: Kind,
    /// Its row, if it has one.
    pub row: Option<usize>,
    /// The prover named it.
    pub by_prover: bool,
}

pub(crate) fn bad(s: impl Into<String>) -> DiffError {
    DiffError::Problem(s.into())
}

/// Draws inputs of a problem.
///
/// # Errors
/// Inputs that cannot be drawn.
pub fn draw(
    base: &Module,
    p: &Problem,
    claim: &Claim,
    profile: Profile,
    seed: u64,
) -> Result<Inputs, DiffError> {
    let domains = domain::domains(base, p, claim);
    let copies = if p.local_inputs { p.devices as usize } else { 1 };
    let mut r = Random::new(seed);
    let mut values = Vec::new();
    for (leaf, d) in p.base_inputs.iter().zip(&domains) {
        let Shape::Array(a) = &leaf.shape else {
            values.push(Vec::new());
            continue;
        };
        let v: Option<Vec<Tensor>> =
            (0..copies).map(|_| domain::draw(a, *d, profile, &mut r)).collect();
        values.push(v.ok_or_else(|| bad(format!("input {} cannot be drawn", leaf.name())))?);
    }
    Ok(Inputs { values })
}

/// Arguments of the first program per device.
pub fn base_arguments(base: &Module, p: &Problem, x: &Inputs) -> Option<Vec<Vec<Value>>> {
    let mut own = p.clone();
    own.dist_inputs = p.base_inputs.clone();
    own.pairs = (0..p.base_inputs.len())
        .map(|k| problem::InputPair { dist: k, base: Some(k), placement: None, inferred: false })
        .collect();
    if !p.base_spmd {
        own.devices = 1;
    }
    evaluate::dist_arguments(base, &own, &[], x)
}

/// Both programs, run and paired.
pub struct Prepared<'m> {
    /// The first program.
    pub a: &'m Module,
    /// The second program.
    pub b: &'m Module,
    /// Inputs, outputs and devices.
    pub problem: Problem,
    /// The inputs.
    pub inputs: Inputs,
    /// Engine of the first program.
    pub ea: Engine<'m>,
    /// Engine of the second program.
    pub eb: Engine<'m>,
    /// The first program's run.
    pub fa: Flow,
    /// The second program's run.
    pub fb: Flow,
    /// The first program's slots in `f64`.
    pub wa: Vec<PerDevice>,
    /// The second program's slots in `f64`.
    pub wb: Vec<PerDevice>,
    /// The pairs.
    pub pairs: Pairs,
    /// Arguments of the second program per device.
    pub args_b: Vec<Vec<Value>>,
    /// Replicas and partitions of the second program.
    pub topology_b: (usize, usize),
    outputs: Vec<Output>,
    /// The outputs differ over the reals.
    pub apart: bool,
    coarse: Option<scalify_refute::search::Precision>,
    notes: Vec<String>,
}

impl Prepared<'_> {
    /// Both runs.
    pub fn runs(&self) -> Runs<'_> {
        let (fa, fb, wa, wb) = (&self.fa, &self.fb, &self.wa[..], &self.wb[..]);
        Runs { ma: self.a, fa, wa, mb: self.b, fb, wb }
    }
}

/// Runs both programs on `inputs`, or on inputs drawn, and pairs their values.
///
/// # Errors
/// Programs that do not fit or cannot be run.
pub fn prepare<'m>(
    a: &'m Module,
    b: &'m Module,
    claim: &Claim,
    inputs: Option<Inputs>,
    o: &Options,
) -> Result<Prepared<'m>, DiffError> {
    let p = problem::setup(a, b, claim);
    if let Some(e) = p.errors.first() {
        return Err(bad(e.clone()));
    }
    if p.pairs.iter().any(|q| q.base.is_none()) {
        return Err(bad("an input has no counterpart"));
    }
    let mut notes = p.notes.clone();
    let mut placements: Vec<Option<Placement>> =
        p.pairs.iter().map(|q| q.placement.clone()).collect();
    let mut coarse = None;
    let mut seen = Vec::new();
    let inputs = match inputs {
        Some(x) => x,
        None => {
            let found = if o.samples == 0 {
                None
            } else {
                let r = RefuteOptions {
                    time: o.search,
                    samples: o.samples,
                    seed: o.seed,
                    ..RefuteOptions::default()
                };
                match Refuter::new(a, b, &p, claim, r).map(|r| r.search()) {
                    Ok(Search::Differ(c)) => Some(c),
                    Ok(Search::Agree(e)) => {
                        coarse = e.precision;
                        None
                    }
                    _ => None,
                }
            };
            match found {
                Some(c) => {
                    notes.push("inputs on which the outputs differ were searched".into());
                    placements = c.placements.clone();
                    seen = c.outputs.clone();
                    c.drawn
                }
                None => draw(a, &p, claim, Profile::Normal, o.seed)?,
            }
        }
    };
    let n = p.devices as usize;
    let na = if p.base_spmd { n } else { 1 };
    let args_a = base_arguments(a, &p, &inputs).ok_or_else(|| bad("inputs do not fit"))?;
    let args_b = evaluate::dist_arguments(b, &p, &placements, &inputs)
        .ok_or_else(|| bad("inputs do not fit"))?;
    let ta = if p.base_spmd { evaluate::topology(a, &p, na) } else { (1, 1) };
    let tb = evaluate::topology(b, &p, n);
    let (first, second) = (|e| DiffError::Run("first", e), |e| DiffError::Run("second", e));
    let mut ea = Engine::new(a, ta, o.limits).map_err(first)?;
    let mut eb = Engine::new(b, tb, o.limits).map_err(second)?;
    let fa = ea.flow(&args_a, o.limits).map_err(first)?;
    let fb = eb.flow(&args_b, o.limits).map_err(second)?;
    let wa = ea.again(&fa, &fa.values, crate::flow::Mode::Wide).map_err(first)?;
    let wb = eb.again(&fb, &fb.values, crate::flow::Mode::Wide).map_err(second)?;

    let runs = Runs { ma: a, fa: &fa, wa: &wa, mb: b, fb: &fb, wb: &wb };
    let given = input_pairs(&p, &fa, &fb, &placements, n)?;
    let versions = runs.versions();
    let proof = (!versions).then(|| {
        let po = scalify_prove::Options { time_limit: Some(o.prove), ..Default::default() };
        scalify_prove::correspond(a, b, claim, &p, &po, o.max_elements)
    });
    let mut pairs = runs.pairs(given, proof.as_ref());

    // Outputs, end to end.
    let moved = moved(a, &fa, o.seed);
    let near = ea.again(&fa, &moved, crate::flow::Mode::Wide).map_err(first)?;
    let (mut outputs, ends) = outputs(&p, claim, &runs, &near, &mut pairs, n)?;
    let mut moved = Vec::new();
    for k in 0..2 {
        let a = constants_moved(&mut ea, &fa, o.seed + k).map_err(first)?;
        moved.push([a, constants_moved(&mut eb, &fb, o.seed + k).map_err(second)?]);
    }
    let apart = apart(&runs, &ends, &near, &moved);
    drop(moved);
    // What the search has established, with its own care for ties.
    for d in &seen {
        if let Some(o) = outputs.get_mut(d.output).filter(|o| o.kind != Kind::Function) {
            o.kind = Kind::Function;
            o.worst = Worst {
                device: d.device as usize,
                index: d.local.clone(),
                expected: d.expected,
                actual: d.actual,
                bound: d.bound,
            };
            o.ratio = distance(d.expected, d.actual) / d.bound;
        }
    }
    if let Some(c) = &coarse {
        notes.push(format!(
            "output {}: root mean square rounding error {:.1e}, of the first program {:.1e}",
            c.output, c.dist, c.base
        ));
        if let Some(o) = outputs.get_mut(c.output).filter(|o| o.kind == Kind::Rounding) {
            o.kind = Kind::Precision;
        }
    }

    Ok(Prepared {
        a,
        b,
        problem: p,
        inputs,
        ea,
        eb,
        fa,
        fb,
        wa,
        wb,
        pairs,
        args_b,
        topology_b: tb,
        outputs,
        apart,
        coarse,
        notes,
    })
}

/// Compares `b` with `a` on `inputs`, or on inputs drawn.
///
/// # Errors
/// Programs that do not fit or cannot be run.
pub fn diff(
    a: &Module,
    b: &Module,
    claim: &Claim,
    inputs: Option<Inputs>,
    o: &Options,
) -> Result<Report, DiffError> {
    let x = prepare(a, b, claim, inputs, o)?;
    let Prepared { problem: p, inputs, mut ea, mut eb, fa, fb, wa, wb, mut pairs, .. } = x;
    let (outputs, apart, coarse, mut notes) = (x.outputs, x.apart, x.coarse, x.notes);
    let versions = pairs.versions;
    let runs = Runs { ma: a, fa: &fa, wa: &wa, mb: b, fb: &fb, wb: &wb };
    if !versions {
        Values::new(&runs).pair(&runs, &mut pairs.of, apart);
    }
    let mut z = Analyzer { runs: &runs, ea: &mut ea, eb: &mut eb, pairs: &pairs, seed: o.seed };
    let (mut rows, late) = z.rows(o.compare);
    if late {
        notes.push("the time was up before all operations were compared".into());
    }
    let differ = outputs.iter().any(|o| o.kind == Kind::Function);
    for r in &mut rows {
        // Pairs that nothing proves, and proofs under assumptions, need an
        // output that differs.
        let sure = differ || apart || versions || r.pair.basis == Basis::Operation;
        if r.kind == Kind::Function && !sure {
            r.kind = Kind::Rounding;
            r.blamed = None;
        }
    }
    if !versions {
        for r in rows.iter_mut().filter(|r| r.kind == Kind::Function) {
            if let Some(k) = r.blamed.and_then(|k| odd_constant(&runs, &pairs, k)) {
                r.blamed = Some(k);
            }
        }
    }
    let mut blame =
        rows.iter().enumerate().find(|(_, r)| r.kind != Kind::Rounding).map(|(k, r)| Blame {
            node: r.blamed.unwrap_or_default(),
            kind: r.kind,
            row: Some(k),
            by_prover: false,
        });
    if apart && !versions {
        // The rows at fault; without any, the first that is not the same over
        // the reals.
        let at: Vec<usize> = match &blame {
            Some(b) if b.kind == Kind::Function => {
                let failed = rows.iter().enumerate().filter(|x| x.1.kind == Kind::Function);
                failed.map(|x| x.0).take(EXPLAINED).collect()
            }
            Some(_) => Vec::new(),
            None => rows.iter().position(|r| r.apart > APART).into_iter().collect(),
        };
        let mut z = Analyzer { runs: &runs, ea: &mut ea, eb: &mut eb, pairs: &pairs, seed: o.seed };
        let known = constants(a, &fa);
        let foreign = |k: NodeId| {
            constant(b, &fb, &fb.nodes[k as usize]).is_some_and(|c| !known.contains(&c))
        };
        let found = at
            .into_iter()
            .find_map(|k| Some((z.odd_factor(&rows[k].pair, &foreign).ok().flatten()?, k)));
        if let Some((node, k)) = found {
            blame = Some(Blame { node, kind: Kind::Function, row: Some(k), by_prover: false });
        }
    }
    let vague = |b: &Option<Blame>, rows: &[Row]| match b {
        None => true,
        Some(b) => b.row.is_some_and(|k| {
            let p = &rows[k].pair;
            rows[k].kind == Kind::Function
                && p.basis == Basis::Output
                && b.node == fb.slots[p.b as usize]
        }),
    };
    if differ && !versions && vague(&blame, &rows) {
        let po = scalify_prove::Options { time_limit: Some(o.prove), ..Default::default() };
        let found = scalify_prove::verify(a, b, claim, &po);
        let node =
            found.frontier.iter().find_map(|f| fb.nodes.iter().position(|n| n.instr == f.instr));
        if let Some(node) = node {
            let node = odd_constant(&runs, &pairs, node as NodeId).unwrap_or(node as NodeId);
            blame = Some(Blame { node, kind: Kind::Function, row: None, by_prover: true });
        }
    }
    if coarse.is_some() && blame.is_none() {
        // The first sum in a type that the first program does not sum in.
        let has = |d| (0..a.instrs.len() as u32).any(|i| narrow_sum(a, InstrId(i)) == Some(d));
        let one = |n: &Node| narrow_sum(b, n.instr).is_some_and(|d| !has(d));
        blame = fb.nodes.iter().position(one).map(|k| Blame {
            node: k as NodeId,
            kind: Kind::Precision,
            row: None,
            by_prover: false,
        });
    }
    let verdict = if blame.is_some() || outputs.iter().any(|o| o.kind != Kind::Rounding) {
        Verdict::Different
    } else if rows.is_empty() && outputs.is_empty() {
        Verdict::Unknown
    } else {
        Verdict::Equal
    };
    let names = p.base_inputs.iter().map(|l| l.name().to_owned()).collect();
    let operations = fb.nodes.len();
    Ok(Report {
        verdict,
        rows,
        outputs,
        first: blame,
        operations,
        versions,
        notes,
        a: fa,
        b: fb,
        inputs,
        names,
    })
}

/// Rows that a constant may explain.
const EXPLAINED: usize = 6;
/// Relative difference of values that are not the same over the reals: more than
/// roundings of constants.
const APART: f64 = 1e-6;

/// The numbers of a float constant.
fn constant(m: &Module, f: &Flow, n: &Node) -> Option<Vec<f64>> {
    let t = f.values.get(n.slots.0 as usize)?.first()?;
    let float = m.instr(n.instr).opcode == Opcode::Constant && t.dtype.is_float();
    float.then(|| numbers(t))
}

/// Float constants of a run.
fn constants(m: &Module, f: &Flow) -> Vec<Vec<f64>> {
    f.nodes.iter().filter_map(|n| constant(m, f, n)).collect()
}

/// A constant that leads to `node` through values without counterpart, and is
/// near a constant of the first program but equal to none.
fn odd_constant(r: &Runs<'_>, pairs: &Pairs, node: NodeId) -> Option<NodeId> {
    let known = constants(r.ma, r.fa);
    let size = |v: &[f64]| compare::rms(v.iter().copied());
    let mut queue = vec![node];
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    while let Some(k) = queue.pop() {
        if !seen.insert(k) || seen.len() > 1000 {
            continue;
        }
        let n = &r.fb.nodes[k as usize];
        if let Some(x) = constant(r.mb, r.fb, n) {
            let near = |y: &Vec<f64>| {
                let d: Vec<f64> = x.iter().zip(y).map(|(x, y)| x - y).collect();
                x.len() == y.len() && *y != x && size(&d) < 0.2 * size(y)
            };
            if known.iter().any(near) && !known.contains(&x) {
                return Some(k);
            }
        }
        let open = n.reads().into_iter().filter(|&s| pairs.of[s as usize].is_none());
        queue.extend(open.map(|s| r.fb.slots[s as usize]));
    }
    None
}

/// Slots of inputs by position among all leaves.
fn input_slots(leaves: &[problem::Leaf], f: &Flow) -> Vec<Option<Slot>> {
    let mut it = f.inputs.iter();
    leaves
        .iter()
        .map(|l| if matches!(l.shape, Shape::Array(_)) { it.next().copied() } else { None })
        .collect()
}

fn input_pairs(
    p: &Problem,
    fa: &Flow,
    fb: &Flow,
    placements: &[Option<Placement>],
    n: usize,
) -> Result<Vec<Pair>, DiffError> {
    let (sa, sb) = (input_slots(&p.base_inputs, fa), input_slots(&p.dist_inputs, fb));
    let mut out = Vec::new();
    for (k, q) in p.pairs.iter().enumerate() {
        let a = q.base.and_then(|x| sa.get(x).copied().flatten());
        let (Some(a), Some(b)) = (a, sb.get(q.dist).copied().flatten()) else { continue };
        let (x, y) = (&fa.values[a as usize][0], &fb.values[b as usize][0]);
        let place = placements.get(k).and_then(Option::as_ref);
        let places: Option<Places> = placed(&x.dims, &y.dims, place, n)
            .ok_or_else(|| bad("an input does not fit its layout"))?;
        let coarsest = roundoff(x.dtype);
        out.push(Pair { a, b, places, basis: Basis::Input, coarsest });
    }
    Ok(out)
}

/// The values of a run with its float inputs moved by at most a unit roundoff.
fn moved(m: &Module, f: &Flow, seed: u64) -> Vec<PerDevice> {
    let u = compare::roundoff(m);
    let mut r = Random::new(seed ^ 0x6d6f_7665);
    let mut values = f.values.clone();
    for &s in &f.inputs {
        let mut new: Vec<Tensor> = Vec::new();
        let per = &f.values[s as usize];
        for (d, t) in per.iter().enumerate() {
            if let Some(k) = per[..d].iter().position(|o| o.data.same(&t.data)) {
                let t: Tensor = new[k].clone();
                new.push(t);
                continue;
            }
            if !t.dtype.is_float() {
                new.push(t.clone());
                continue;
            }
            let v = t.to_f64().iter().map(|x| x * (1.0 + u * (2.0 * r.unit() - 1.0))).collect();
            let dims = t.dims.iter().copied();
            new.push(Tensor::from_vec(t.dtype, dims, v).unwrap_or_else(|| t.clone()));
        }
        values[s as usize] = new;
    }
    values
}

/// A run in `f64` with its float constants moved by a unit roundoff; those
/// of a few digits are what they are meant to be.
fn constants_moved(e: &mut Engine<'_>, f: &Flow, seed: u64) -> Result<Vec<PerDevice>, FlowError> {
    let m = e.module;
    let mut r = Random::new(seed ^ 0x636f_6e73);
    let mut change = |n: &Node, v: Vec<PerDevice>| -> Vec<PerDevice> {
        if m.instr(n.instr).opcode != Opcode::Constant {
            return v;
        }
        let one = |t: &Tensor, r: &mut Random| -> Option<Tensor> {
            let u = m.dtype(n.instr).filter(|d| d.is_float()).map(roundoff)?;
            let few = |x: f64| x.to_bits() & ((1 << 44) - 1) == 0;
            let x = t.to_f64();
            let v = x.iter().map(|&x| match few(x) {
                true => x,
                false if r.bits() & 1 == 0 => x * (1.0 + u),
                false => x * (1.0 - u),
            });
            Tensor::from_vec(t.dtype, t.dims.iter().copied(), v.collect())
        };
        let per = |v: PerDevice, r: &mut Random| -> PerDevice {
            // A constant is the same on all devices.
            let new = v.first().and_then(|t| one(t, r));
            new.map_or(v.clone(), |t| vec![t; v.len()])
        };
        v.into_iter().map(|v| per(v, &mut r)).collect()
    };
    e.again_with(f, &f.values, crate::flow::Mode::Wide, &mut change)
}

/// Do outputs differ in `f64` by more than what evaluation in `f64` and the
/// roundings of constants explain?
fn apart(r: &Runs<'_>, ends: &[Pair], near: &[PerDevice], moved: &[[Vec<PerDevice>; 2]]) -> bool {
    let list = |v: &PerDevice| -> Vec<Vec<f64>> { v.iter().map(numbers).collect() };
    ends.iter().any(|q| {
        let (a, b) = (q.a as usize, q.b as usize);
        let width = compare::width(r.fb.values[b][0].dtype);
        let (x, near, y) = (list(&r.wa[a]), list(&near[a]), list(&r.wb[b]));
        let size = compare::rms(x.iter().flatten().copied());
        // How far constants move both.
        let far = |v: &[Vec<f64>], w: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let one = |(v, w): (&Vec<f64>, &Vec<f64>)| {
                v.iter().zip(w).map(|(v, w)| (v - w).abs()).collect()
            };
            v.iter().zip(w).map(one).collect()
        };
        let by: Vec<_> =
            (moved.iter()).map(|m| (far(&list(&m[0][a]), &x), far(&list(&m[1][b]), &y))).collect();
        (0..y.len()).any(|d| {
            let (Some(x), Some(near)) = (q.pick(&x, d, width), q.pick(&near, d, width)) else {
                return false;
            };
            let own: Vec<_> = by.iter().filter_map(|m| q.pick(&m.0, d, width)).collect();
            x.iter().zip(&near).zip(&y[d]).enumerate().any(|(i, ((&x, near), &y))| {
                let a = own.iter().map(|v| v[i]).fold(0f64, f64::max);
                let b = by.iter().map(|m| m.1[d][i]).fold(0f64, f64::max);
                let bound = 8.0 * (a + b) + 1e-6 * (near - x).abs() + 1e-9 * (x.abs() + size);
                compare::differs(x, y, bound)
            })
        })
    })
}

fn outputs(
    p: &Problem,
    claim: &Claim,
    r: &Runs<'_>,
    near: &[PerDevice],
    pairs: &mut Pairs,
    n: usize,
) -> Result<(Vec<Output>, Vec<Pair>), DiffError> {
    let (oa, ob) = (&r.fa.outputs, &r.fb.outputs);
    if oa.len() != ob.len() {
        return Err(bad(format!("{} outputs against {}", oa.len(), ob.len())));
    }
    let u = compare::roundoff(r.ma);
    let mut out = Vec::new();
    let mut ends = Vec::new();
    for (k, (&a, &b)) in oa.iter().zip(ob).enumerate() {
        let (x, y) = (&r.fa.values[a as usize][0], &r.fb.values[b as usize][0]);
        let g = ArrayShape::new(x.dtype, x.dims.iter().copied());
        let l = ArrayShape::new(y.dtype, y.dims.iter().copied());
        let own = p.base_spmd && g.dims == l.dims;
        let layouts = if own {
            vec![None]
        } else {
            let q = problem::output_layouts(p, claim, r.mb, k, &g, &l).map_err(bad)?;
            q.into_iter().map(|q| Some(q.0)).collect()
        };
        let width = compare::width(g.dtype);
        let list = |v: &PerDevice| -> Vec<Vec<f64>> { v.iter().map(numbers).collect() };
        let (xa, pa, ma) =
            (list(&r.wa[a as usize]), list(&r.fa.values[a as usize]), list(&near[a as usize]));
        let bounds: Vec<Vec<f64>> =
            (0..xa.len()).map(|d| compare::bounds(&xa[d], &pa[d], &[ma[d].clone()], u)).collect();
        let (wide, plain) = (list(&r.wb[b as usize]), list(&r.fb.values[b as usize]));
        let coarsest = roundoff(x.dtype);
        let mut best: Option<(Output, Pair)> = None;
        for q in layouts {
            let Some(places) = placed(&g.dims, &l.dims, q.as_ref(), n) else { continue };
            let pair = Pair { a, b, places, basis: Basis::Output, coarsest };
            let mut o = Output {
                index: k,
                max: 0.0,
                ratio: 0.0,
                kind: Kind::Rounding,
                worst: Worst::default(),
            };
            let (mut function, mut top) = (false, -1f64);
            for d in 0..n {
                let (Some(x), Some(e)) = (pair.pick(&xa, d, width), pair.pick(&bounds, d, width))
                else {
                    return Err(bad(format!("output {k} does not fit its layout")));
                };
                for i in 0..x.len() {
                    let (w, y) = (wide[d][i], plain[d][i]);
                    o.max = o.max.max(distance(x[i], y));
                    let f = compare::differs(x[i], w, e[i]);
                    // Discrete values may flip where floats are rounded.
                    let g = compare::differs(x[i], y, e[i])
                        && r.fb.values[b as usize][0].dtype.is_float();
                    function |= f;
                    let size = if f || g {
                        let e = if f { distance(x[i], w) / e[i] } else { distance(x[i], y) / e[i] };
                        if e.is_nan() { f64::INFINITY } else { e.max(1.0 + 1e-9) }
                    } else {
                        (distance(x[i], y) / e[i]).min(1.0)
                    };
                    if size.is_finite() && size > top || size.is_infinite() && top.is_finite() {
                        top = size;
                        o.worst = Worst {
                            device: d,
                            index: unflatten(i / width, &l.dims),
                            expected: x[i],
                            actual: y,
                            bound: e[i],
                        };
                    }
                }
            }
            o.ratio = top.max(0.0);
            o.kind = match (o.ratio > 1.0, function) {
                (false, _) => Kind::Rounding,
                (true, true) => Kind::Function,
                (true, false) => Kind::Precision,
            };
            let better = best.as_ref().is_none_or(|(x, _)| {
                (x.kind != Kind::Rounding && o.kind == Kind::Rounding) || x.ratio > o.ratio
            });
            if better {
                best = Some((o, pair));
            }
        }
        let Some((o, pair)) = best else {
            return Err(bad(format!("output {k} has no layout that fits")));
        };
        if pairs.of[b as usize].is_none() {
            pairs.of[b as usize] = Some(pair.clone());
        }
        ends.push(pair);
        out.push(o);
    }
    Ok((out, ends))
}

//! Looks for inputs on which two programs differ by more than rounding.

mod outputs;
mod precision;
mod sides;
mod trial;

pub use trial::Trial;

use crate::compare::{self, bounds, numbers, rms};
use crate::cut::Cut;
use crate::domain::{self, Domain, Profile};
use crate::edit::Ids;
use crate::evaluate::{self, Inputs, Results, RunLimits};
use crate::random::Random;
use crate::shrink::Reduced;
use crate::together::both;
use scalify_claim::{Claim, Placement};
use scalify_interp::{Accumulate, RunError, Tensor};
use scalify_ir::{ArrayShape, Module, Opcode, Shape};
use scalify_prove::problem::{self, Problem};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Wall time of the whole search.
    pub time: Duration,
    /// Bytes that one evaluation may take.
    pub memory: u64,
    /// Inputs drawn at most.
    pub samples: usize,
    /// Seed of the inputs.
    pub seed: u64,
    /// Fewer evaluations per draw: for reduced pairs, where a difference
    /// counts only with a proved repair.
    pub quick: bool,
    /// Only this output is compared; the others are left out of the programs
    /// ([`crate::restrict`]).
    pub output: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            time: Duration::from_secs(20),
            memory: 2 << 30,
            samples: 8,
            seed: 1,
            quick: false,
            output: None,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub enum Search {
    /// Inputs on which the programs differ.
    Differ(Box<Counterexample>),
    /// No difference beyond rounding was seen.
    Agree(Evidence),
    /// The programs cannot be evaluated, for this reason.
    Unable(String),
}

/// Samples on which no difference was seen.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Inputs evaluated.
    pub samples: usize,
    /// Largest difference over its bound, below 1.
    pub worst: f64,
    /// The programs round differently.
    pub precision: Option<Precision>,
    /// Of the inputs evaluated: those on which the baseline gives NaN where
    /// the distributed program gives a number. The comparison says nothing
    /// about such elements.
    pub undefined: usize,
}

/// Same function over the reals, but rounded more coarsely.
#[derive(Clone, Debug)]
pub struct Precision {
    /// Output.
    pub output: usize,
    /// Root mean square error of the distributed program against its own
    /// evaluation in `f64`.
    pub dist: f64,
    /// The same of the baseline.
    pub base: f64,
    /// Root mean square of the output.
    pub scale: f64,
}

/// Inputs on which two programs differ.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// Values of the baseline's inputs.
    pub inputs: Inputs,
    /// Names of the baseline's inputs.
    pub names: Vec<String>,
    /// Placement of each distributed input that was taken.
    pub placements: Vec<Option<Placement>>,
    /// Outputs that differ, the worst first.
    pub outputs: Vec<Difference>,
    /// The inputs before they were simplified.
    pub drawn: Inputs,
    /// How the inputs were drawn.
    pub profile: Profile,
    /// Differing draws of those tried.
    pub seen: (usize, usize),
}

/// How one output differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Position among the array leaves of the result.
    pub output: usize,
    /// A device on which it differs most.
    pub device: u32,
    /// Index in the baseline's output.
    pub index: Vec<i64>,
    /// Index in the device's output.
    pub local: Vec<i64>,
    /// The baseline's value there, in `f64`.
    pub expected: f64,
    /// The device's value there, in `f64`.
    pub actual: f64,
    /// The same two in the programs' own types.
    pub plain: (f64, f64),
    /// Largest difference that rounding explains.
    pub bound: f64,
    /// Elements that differ and elements compared, over all devices.
    pub count: (usize, usize),
    /// Devices on which it differs.
    pub devices: Vec<u32>,
    /// Placement of the output that was taken.
    pub placement: Option<Placement>,
}

/// Programs whose results are not a function of their inputs.
fn unpredictable(m: &Module) -> Option<String> {
    let i = m.instrs.iter().find(|i| {
        matches!(
            i.opcode,
            Opcode::Rng
                | Opcode::RngGetAndUpdateState
                | Opcode::Infeed
                | Opcode::Outfeed
                | Opcode::Send
                | Opcode::Recv
        )
    })?;
    Some(format!("{} ({}) has effects that cannot be replayed", m.str(i.name), i.opcode))
}

/// Bytes of the biggest values of a module; a cheap refusal of programs that
/// cannot be evaluated.
pub(crate) fn volume(m: &Module) -> f64 {
    m.comps
        .iter()
        .flat_map(|c| &c.instrs)
        .map(|&i| {
            let s = m.shape(i);
            s.leaves()
                .iter()
                .filter_map(|s| s.as_array())
                .map(|a| a.dims.iter().map(|&d| d as f64).product::<f64>())
                .sum::<f64>()
        })
        .sum()
}

/// Elements over all instructions and devices above which a program is not
/// evaluated as it stands.
pub(crate) const MAX_VOLUME: f64 = 4e8;

/// Further draws where integers are inputs, and the time after which there are
/// none.
const MORE: usize = 24;
const MORE_TIME: Duration = Duration::from_millis(300);

/// Why the programs are not evaluated as they stand, if they are too big.
pub fn too_big(base: &Module, dist: &Module, p: &Problem) -> Option<String> {
    let v = volume(base) + volume(dist) * p.devices as f64;
    (v > MAX_VOLUME).then(|| format!("too big to evaluate: {v:.1e} elements over all instructions"))
}

/// One setting of what the problem leaves open.
#[derive(Clone)]
struct Layouts {
    inputs: Vec<Option<Placement>>,
}

/// All ways to lay out inputs whose placement was inferred; `None` if too
/// many to try.
fn layouts(p: &Problem) -> Option<Vec<Layouts>> {
    let mut out = vec![Vec::new()];
    for pair in &p.pairs {
        let mut options = vec![pair.placement.clone()];
        if let (true, Some(b)) = (pair.inferred, pair.base) {
            if let (Shape::Array(g), Shape::Array(l)) =
                (&p.base_inputs[b].shape, &p.dist_inputs[pair.dist].shape)
            {
                let c = problem::candidates(&p.mesh, p.devices, &g.dims, &l.dims, 9);
                let sections = |q: &Placement| q.dims.iter().any(|d| !d.sections.is_empty());
                options.retain(|o| o.as_ref().is_some_and(sections));
                options.extend(c.into_iter().map(Some));
            }
        }
        if out.len() * options.len() > 16 {
            return None;
        }
        if let [one] = &options[..] {
            out.iter_mut().for_each(|v| v.push(one.clone()));
            continue;
        }
        out = out
            .into_iter()
            .flat_map(|v: Vec<Option<Placement>>| {
                options.iter().map(move |o| {
                    let mut v = v.clone();
                    v.push(o.clone());
                    v
                })
            })
            .collect();
    }
    Some(out.into_iter().map(|inputs| Layouts { inputs }).collect())
}

/// The problem with everything a search needs at hand.
pub struct Refuter<'a> {
    base: &'a Module,
    dist: &'a Module,
    p: &'a Problem,
    domains: Vec<Domain>,
    layouts: Vec<Layouts>,
    /// Per output leaf: shapes and possible placements.
    outputs: Vec<(ArrayShape, Vec<Placement>)>,
    u: f64,
    options: Options,
    start: Instant,
    cut: Option<&'a Cut>,
    /// Of the baseline on the draw that a quick search found to differ.
    runs: Mutex<Option<Runs>>,
}

/// How the inputs of a search are drawn, one after the other.
const PLAN: [Profile; 8] = {
    use Profile::*;
    [Simple, Normal, Mixed, Small, Positive, Large, Mixed, Normal]
};

/// Many inputs are not read one by one: they are not simplified.
fn readable(x: &Inputs) -> bool {
    x.values.len() <= 64
}

/// Runs of the baseline on one draw.
#[derive(Clone)]
struct Runs {
    /// In `f64`.
    wide: Results,
    /// In its own types.
    plain: Results,
    /// In `f64` on inputs moved by a roundoff.
    near: Vec<Results>,
}

/// Floats stored as `f64`, so that no run in `f64` widens them again.
fn widened(x: &Inputs) -> Inputs {
    let values = x.values.iter().map(|v| v.iter().map(Tensor::widened).collect());
    Inputs { values: values.collect() }
}

enum Verdict {
    Same { worst: f64, undefined: bool },
    Differ(Vec<Difference>),
}

impl<'a> Refuter<'a> {
    /// Prepares a search.
    ///
    /// # Errors
    /// Why the programs cannot be evaluated or compared.
    pub fn new(
        base: &'a Module,
        dist: &'a Module,
        p: &'a Problem,
        claim: &Claim,
        options: Options,
    ) -> Result<Self, String> {
        if let Some(e) = p.errors.first() {
            return Err(e.clone());
        }
        for m in [base, dist] {
            if let Some(e) = unpredictable(m) {
                return Err(e);
            }
        }
        if p.pairs.iter().any(|q| q.base.is_none()) {
            return Err("an input has no counterpart".into());
        }
        if let Some(e) = too_big(base, dist, p) {
            return Err(e);
        }
        let layouts = layouts(p).ok_or_else(|| {
            "too many ways to lay out inputs whose sharding is not declared".to_owned()
        })?;
        let (bs, ds) = (problem::output_shapes(base), problem::output_shapes(dist));
        if bs.len() != ds.len() {
            return Err(format!("{} outputs against {}", bs.len(), ds.len()));
        }
        let mut outputs = Vec::new();
        for (k, (b, d)) in bs.iter().zip(&ds).enumerate() {
            let (Shape::Array(g), Shape::Array(l)) = (b, d) else { continue };
            if g.dtype != l.dtype {
                return Err(format!("output {k} is {} here, {} there", l.dtype, g.dtype));
            }
            if g.dynamic != 0 || l.dynamic != 0 {
                return Err(format!("output {k} has a dynamic size"));
            }
            if options.output.is_some_and(|o| o != k) {
                let whole = Placement::replicated(g.dims.len(), p.devices as u32);
                outputs.push((g.clone(), vec![whole]));
                continue;
            }
            let q = problem::output_layouts(p, claim, dist, k, g, l)?;
            outputs.push((g.clone(), q.into_iter().map(|x| x.0).collect()));
        }
        let domains = domain::domains(base, p, claim);
        let u = compare::roundoff(base);
        let start = Instant::now();
        let runs = Mutex::new(None);
        let cut = None;
        Ok(Refuter { base, dist, p, domains, layouts, outputs, u, options, start, cut, runs })
    }

    /// Evaluates the distributed program from the values of the cut on.
    pub fn from(self, cut: &'a Cut) -> Self {
        Refuter { cut: Some(cut), ..self }
    }

    /// The same, that evaluates all of the distributed program.
    pub fn whole(&self) -> Self {
        Refuter {
            domains: self.domains.clone(),
            layouts: self.layouts.clone(),
            outputs: self.outputs.clone(),
            start: Instant::now(),
            cut: None,
            runs: Mutex::new(None),
            ..*self
        }
    }

    /// The given distributed program's instructions in the one that is
    /// evaluated, of a pair at reduced sizes or for one output.
    pub(crate) fn ids<'r>(&'r self, r: &'r Reduced) -> &'r Ids {
        self.cut.map_or(&r.dist_ids, |c| &c.ids)
    }

    /// The distributed program as it is evaluated.
    pub fn evaluated(&self) -> &Module {
        self.cut.map_or(self.dist, |c| &c.dist)
    }

    /// What the distributed program gives on the first inputs that a search
    /// draws, in `f64`, for [`Refuter::confirm`]; `None` if that would not
    /// confirm anything.
    pub fn ahead(&self) -> Option<Results> {
        let [l] = &self.layouts[..] else { return None };
        let x = self.draw(PLAN[0], &mut Random::new(self.options.seed))?;
        if readable(&x) {
            return None;
        }
        let (m, limits) = (self.dist, self.limits());
        evaluate::dist(m, self.p, &l.inputs, &widened(&x), Accumulate::F64, limits).ok()
    }

    fn limits(&self) -> RunLimits {
        let left = self.options.time.saturating_sub(self.start.elapsed());
        RunLimits { memory: self.options.memory, time: left }
    }

    fn out_of_time(&self) -> bool {
        self.start.elapsed() >= self.options.time
    }

    /// Inputs of a profile.
    fn draw(&self, profile: Profile, r: &mut Random) -> Option<Inputs> {
        let copies = if self.p.local_inputs { self.p.devices as usize } else { 1 };
        let mut values = Vec::new();
        for (k, (leaf, d)) in self.p.base_inputs.iter().zip(&self.domains).enumerate() {
            let Shape::Array(a) = &leaf.shape else {
                values.push(Vec::new());
                continue;
            };
            let v: Option<Vec<Tensor>> =
                (0..copies).map(|_| domain::draw(a, *d, profile, r)).collect();
            let v = v?;
            values.push((0..copies).filter_map(|d| v.get(self.p.holder(k, d)).cloned()).collect());
        }
        Some(Inputs { values })
    }

    /// Inputs with every float moved by at most a unit roundoff.
    fn moved(&self, x: &Inputs, r: &mut Random) -> Inputs {
        let mut one = |t: &Tensor| {
            if !t.dtype.is_float() {
                return t.clone();
            }
            let mut v = t.to_f64();
            let count = v.len().min(domain::PERIOD);
            let by: Vec<f64> = (0..count).map(|_| 1.0 + self.u * (2.0 * r.unit() - 1.0)).collect();
            v.chunks_mut(domain::PERIOD)
                .flatten()
                .zip(by.iter().cycle())
                .for_each(|(x, k)| *x *= k);
            // Wide storage: not rounded back.
            Tensor::from_vec(t.dtype, t.dims.iter().copied(), v).unwrap_or_else(|| t.clone())
        };
        let values = x.values.iter().map(|v| v.iter().map(&mut one).collect()).collect();
        Inputs { values }
    }

    fn run_base(&self, x: &Inputs, a: Accumulate) -> Result<Results, RunError> {
        let m = self.cut.as_ref().map_or(self.base, |c| &c.base);
        evaluate::base(m, self.p, x, a, self.limits())
    }

    /// `b`: the baseline's results on the same inputs.
    fn run_dist(
        &self,
        l: &Layouts,
        x: &Inputs,
        b: &Results,
        a: Accumulate,
    ) -> Result<Results, RunError> {
        match &self.cut {
            Some(c) => c.run(&c.dist, &l.inputs, x, b, a, self.limits(), None),
            None => evaluate::dist(self.dist, self.p, &l.inputs, x, a, self.limits()),
        }
    }

    /// The baseline's output `k` that device `d` is compared with.
    fn expected<'r>(&self, b: &'r Results, d: usize, k: usize) -> Option<&'r Tensor> {
        let per = if self.p.local_inputs { b.get(d)? } else { b.first()? };
        per.get(k)
    }

    /// Decides one draw under one layout: a difference counts only if it is
    /// still there on inputs moved by a roundoff (no tie, no discontinuity)
    /// and, for integers, in the programs' own types too.
    fn decide(&self, l: &Layouts, x: &Inputs, r: &mut Random) -> Result<Option<Verdict>, RunError> {
        let count = if self.options.quick { 1 } else { 2 };
        let mut ahead = None;
        // A first look with a bound that rounding in f64 cannot reach.
        let tight = |wide: &Results, k: usize, d: usize| match self.expected(wide, d, k) {
            Some(t) => {
                let v = numbers(t);
                let s = rms(v.iter().copied());
                v.iter().map(|x| 1e-11 * (x.abs() + s) + f64::MIN_POSITIVE).collect()
            }
            None => Vec::new(),
        };
        let first = || -> Result<_, RunError> {
            let x = widened(x);
            let wide = self.run_base(&x, Accumulate::F64)?;
            let got = self.run_dist(l, &x, &wide, Accumulate::F64)?;
            let look = self.compare(&wide, &|k, d| tight(&wide, k, d), &got, None);
            Ok((wide, got, look))
        };
        let (wide, got, look) = if self.options.quick {
            // What is likely to be needed, beside.
            let moved = vec![self.moved(x, r)];
            let (more, first) = both(|| self.more(x, &moved), first);
            ahead = Some((moved, more));
            first?
        } else {
            first()?
        };
        match look {
            None => return Ok(None),
            Some(Verdict::Same { worst, undefined }) => {
                return Ok(Some(Verdict::Same { worst: worst * 1e-3, undefined }));
            }
            Some(Verdict::Differ(_)) => {}
        }
        let (moved, more) = ahead.unwrap_or_else(|| {
            let moved: Vec<Inputs> = (0..count).map(|_| self.moved(x, r)).collect();
            let more = self.more(x, &moved);
            (moved, more)
        });
        let (plain, near) = more?;
        let bound = |at: &Results, others: &[&Results], k: usize, d: usize| {
            let get = |r: &Results| self.expected(r, d, k).map(numbers).unwrap_or_default();
            let int = self
                .outputs
                .get(k)
                .is_some_and(|o| !o.0.dtype.is_float() && !o.0.dtype.is_complex());
            let o: Vec<Vec<f64>> = others.iter().map(|r| get(r)).collect();
            let (w, p) = (get(at), get(&plain));
            if int {
                // Integers are exact; where the baseline's own runs disagree
                // anything goes.
                let same =
                    |k: usize| w.get(k) == p.get(k) && o.iter().all(|v| v.get(k) == w.get(k));
                return (0..w.len()).map(|k| if same(k) { 0.25 } else { f64::INFINITY }).collect();
            }
            bounds(&w, &p, &o, self.u)
        };
        let others: Vec<&Results> = near.iter().collect();
        let first = |k: usize, d: usize| bound(&wide, &others, k, d);
        let Some(v) = self.compare(&wide, &first, &got, None) else { return Ok(None) };
        let Verdict::Differ(mut found) = v else { return Ok(Some(v)) };
        for (m, n) in moved.iter().zip(&near) {
            let again = self.run_dist(l, m, n, Accumulate::F64)?;
            // The same rounding bound, around the moved baseline.
            let b = |k: usize, d: usize| bound(n, &[&wide], k, d);
            match self.compare(n, &b, &again, None) {
                Some(Verdict::Differ(f)) => {
                    found.retain(|x| f.iter().any(|y| y.output == x.output));
                }
                _ => found.clear(),
            }
        }
        if self.options.quick {
            if found.is_empty() {
                return Ok(Some(Verdict::Same { worst: 1.0, undefined: false }));
            }
            if let Ok(mut runs) = self.runs.lock() {
                *runs = Some(Runs { wide, plain, near });
            }
            return Ok(Some(Verdict::Differ(found)));
        }
        // In the programs' own types: what the user will see.
        let own = self.run_dist(l, x, &plain, Accumulate::Plain)?;
        match self.compare(&plain, &first, &own, None) {
            Some(Verdict::Differ(f)) => found.retain(|x| f.iter().any(|y| y.output == x.output)),
            _ => found.clear(),
        }
        if found.is_empty() {
            return Ok(Some(Verdict::Same { worst: 1.0, undefined: false }));
        }
        match self.compare(&wide, &first, &got, Some((&plain, &own))) {
            Some(Verdict::Differ(f)) => {
                found =
                    f.into_iter().filter(|x| found.iter().any(|y| y.output == x.output)).collect();
            }
            _ => return Ok(None),
        }
        found.sort_by(|a, b| {
            let s = |x: &Difference| (x.expected - x.actual).abs() / x.bound;
            s(b).total_cmp(&s(a))
        });
        Ok(Some(Verdict::Differ(found)))
    }

    /// The baseline in its own types and, in `f64`, on moved inputs.
    fn more(&self, x: &Inputs, moved: &[Inputs]) -> Result<(Results, Vec<Results>), RunError> {
        let plain = self.run_base(x, Accumulate::Plain)?;
        let near: Result<_, _> = moved.iter().map(|m| self.run_base(m, Accumulate::F64)).collect();
        Ok((plain, near?))
    }

    /// The outputs of a counterexample, found from a cut ([`Refuter::from`]),
    /// in which the distributed program differs as a whole too. `cut`: what
    /// found it, for the same pair; `ahead`: [`Refuter::ahead`] of this one.
    ///
    /// # Errors
    /// Why they cannot be evaluated or compared.
    pub fn confirm(
        &self,
        c: &Counterexample,
        cut: &Refuter<'_>,
        ahead: Option<Results>,
    ) -> Result<Vec<Difference>, String> {
        if readable(&c.inputs) {
            // Others than those that were drawn.
            return self.check(&c.inputs, &c.placements);
        }
        let runs = cut.runs.lock().ok().and_then(|r| r.clone()).ok_or("nothing was found")?;
        let got = match ahead.filter(|_| c.seen.1 == 1 && self.layouts.len() == 1) {
            Some(got) => got,
            None => {
                let l = Layouts { inputs: c.placements.clone() };
                let got = self.run_dist(&l, &c.drawn, &runs.wide, Accumulate::F64);
                got.map_err(|e| e.to_string())?
            }
        };
        let get = |r: &Results, d, k| self.expected(r, d, k).map(numbers).unwrap_or_default();
        let bound = |k: usize, d: usize| {
            let near: Vec<Vec<f64>> = runs.near.iter().map(|r| get(r, d, k)).collect();
            let (wide, plain) = (get(&runs.wide, d, k), get(&runs.plain, d, k));
            if self.outputs.get(k).is_some_and(|o| o.0.dtype.is_float() || o.0.dtype.is_complex()) {
                return bounds(&wide, &plain, &near, self.u);
            }
            let same = |k: usize| {
                wide.get(k) == plain.get(k) && near.iter().all(|v| v.get(k) == wide.get(k))
            };
            (0..wide.len()).map(|k| if same(k) { 0.25 } else { f64::INFINITY }).collect()
        };
        match self.compare(&runs.wide, &bound, &got, None) {
            Some(Verdict::Differ(mut found)) => {
                found.retain(|x| c.outputs.iter().any(|y| y.output == x.output));
                Ok(found)
            }
            Some(Verdict::Same { .. }) => Ok(Vec::new()),
            None => Err("results cannot be compared".to_owned()),
        }
    }

    /// How the programs differ on given inputs, split as `placements` (one per
    /// distributed input) say; empty if by no more than rounding.
    ///
    /// # Errors
    /// Why they cannot be evaluated or compared.
    pub fn check(
        &self,
        inputs: &Inputs,
        placements: &[Option<Placement>],
    ) -> Result<Vec<Difference>, String> {
        let l = Layouts { inputs: placements.to_vec() };
        match self.decide(&l, inputs, &mut Random::new(self.options.seed)) {
            Ok(Some(Verdict::Differ(found))) => Ok(found),
            Ok(Some(Verdict::Same { .. })) => Ok(Vec::new()),
            Ok(None) => Err("results cannot be compared".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Runs the search.
    pub fn search(&self) -> Search {
        let mut evidence = Evidence::default();
        let mut tried = 0;
        let mut r = Random::new(self.options.seed);
        // Integers take more draws: a difference may be at few of them.
        let ranges = self.domains.iter().any(|d| matches!(d, Domain::Int(a, b) if a < b));
        let more = if ranges && !self.options.quick { MORE } else { 0 };
        let profiles = PLAN.iter().cycle().take(self.options.samples);
        for (k, profile) in profiles.chain(std::iter::repeat_n(&Profile::Ends, more)).enumerate() {
            let late = k >= self.options.samples && self.start.elapsed() > MORE_TIME;
            if k > 0 && (late || self.out_of_time()) {
                break;
            }
            let Some(x) = self.draw(*profile, &mut r) else {
                return Search::Unable("inputs are too big to draw".into());
            };
            tried += 1;
            let mut all: Option<(Vec<Difference>, usize)> = None;
            let mut agreed = false;
            for (j, l) in self.layouts.iter().enumerate() {
                match self.decide(l, &x, &mut r) {
                    Ok(Some(Verdict::Differ(f))) => {
                        all.get_or_insert((f, j));
                    }
                    Ok(Some(Verdict::Same { worst, undefined })) => {
                        evidence.worst = evidence.worst.max(worst);
                        evidence.undefined += usize::from(undefined);
                        agreed = true;
                        break;
                    }
                    Ok(None) => return Search::Unable("results cannot be compared".into()),
                    Err(RunError::Limit { .. }) if evidence.samples > 0 => {
                        return Search::Agree(evidence);
                    }
                    Err(e) => return Search::Unable(e.to_string()),
                }
            }
            match all.filter(|_| !agreed) {
                Some((outputs, j)) => {
                    let mut c = Counterexample {
                        drawn: x.clone(),
                        inputs: x,
                        names: self.p.base_inputs.iter().map(|l| l.name().to_owned()).collect(),
                        placements: self.layouts[j].inputs.clone(),
                        outputs,
                        profile: *profile,
                        seen: (1, tried),
                    };
                    let drawn = self.runs.lock().ok().and_then(|mut r| r.take());
                    self.simplify(&mut c, &mut r);
                    if let Ok(mut runs) = self.runs.lock() {
                        *runs = drawn;
                    }
                    return Search::Differ(Box::new(c));
                }
                None => evidence.samples += 1,
            }
        }
        if evidence.samples > 0 {
            let x = self.draw(Profile::Normal, &mut r);
            evidence.precision = x.and_then(|x| self.precision(&x));
        }
        Search::Agree(evidence)
    }

    /// Simpler inputs with the same difference: whole inputs of ones or zeros.
    fn simplify(&self, c: &mut Counterexample, r: &mut Random) {
        if !readable(&c.inputs) {
            return;
        }
        let budget = (self.options.time / 4).min(Duration::from_secs(2));
        let start = Instant::now();
        let l = Layouts { inputs: c.placements.clone() };
        for k in 0..c.inputs.values.len() {
            for value in [0.0, 1.0] {
                if start.elapsed() > budget || self.layouts.len() > 1 {
                    return;
                }
                let leaf = &self.p.base_inputs[k];
                let Shape::Array(a) = &leaf.shape else { continue };
                if self.domains[k] != Domain::Float {
                    continue;
                }
                let n = a.dims.iter().product::<i64>() as usize;
                let Some(t) = domain::from_f64(a, vec![value; n]) else { continue };
                let mut x = c.inputs.clone();
                for slot in &mut x.values[k] {
                    *slot = t.clone();
                }
                if let Ok(Some(Verdict::Differ(f))) = self.decide(&l, &x, r) {
                    (c.inputs, c.outputs) = (x, f);
                    break;
                }
            }
        }
    }
}

impl Refuter<'_> {
    /// The problem.
    pub fn problem(&self) -> &Problem {
        self.p
    }

    /// The distributed program.
    pub(crate) fn dist_module(&self) -> &Module {
        self.dist
    }
}

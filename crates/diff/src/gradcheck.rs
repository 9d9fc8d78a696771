//! Gradients against finite differences, in `f64`.
//!
//! A *joint* program returns a scalar loss and, per parameter, its gradient or
//! the parameter after a plain step `p - s g`; or one program returns the loss
//! and another the gradients. Per parameter, `g v` is compared
//! with central differences of the loss along random directions `v` and along
//! single elements. The step is the one of [`STEPS`] at which two neighbouring
//! differences agree best; their distance is the error of the difference. A
//! test fails only if it is off by far more than that. Where the program is
//! analytic and the complex step agrees with the differences, it takes their
//! place: it has no error but rounding.

use crate::complex_step::{Lifted, STEP};
use crate::diff::{DiffError, number};
use scalify_interp::{Accumulate, Tensor};
use scalify_ir::{Module, Shape};
use scalify_prove::problem::Problem;
use scalify_refute::evaluate::{self, Inputs, RunLimits};
use scalify_refute::random::Random;
use serde::Serialize;

/// Steps over the norm of the parameter (at least 1).
pub const STEPS: [f64; 6] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6];

/// What an output is to the parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The gradient.
    Gradient,
    /// The parameter after a step along it.
    Step,
    /// What an optimizer makes of it: compared with the same made of the
    /// derivative ([`crate::symbolic`]).
    Update,
}

/// Result of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All tests agree.
    Pass,
    /// One is off by more than the error of finite differences.
    Fail,
    /// The differences are too rough to tell.
    Unsure,
}

/// A test of a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Flat element, or none for a random direction.
    pub element: Option<usize>,
    /// Derivative by the program.
    #[serde(serialize_with = "number")]
    pub given: f64,
    /// Derivative by differences or the complex step.
    #[serde(serialize_with = "number")]
    pub measured: f64,
    /// Error of the latter.
    #[serde(serialize_with = "number")]
    pub error: f64,
    /// Step taken.
    pub step: f64,
    /// How it was measured.
    pub method: Method,
    /// Result.
    pub verdict: Verdict,
}

/// How a derivative along a direction is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Central differences.
    Differences,
    /// `Im f(x + i h v) / h`, for programs of analytic operations.
    ComplexStep,
}

/// A checked parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Input leaf.
    pub input: usize,
    /// Output leaf.
    pub output: usize,
    /// What the output is to it.
    pub role: Role,
    /// Result: the worst of its tests.
    pub verdict: Verdict,
    /// Tests.
    pub checks: Vec<Check>,
    /// For [`Role::Update`]: largest difference from what the derivative gives,
    /// over the largest change.
    pub off: Option<f64>,
}

/// What [`check`] found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// `scalify-gradcheck/1`.
    pub schema: &'static str,
    /// Result: the worst of the parameters'.
    pub verdict: Verdict,
    /// The step size `s`, for steps: the median over all tests. A factor that
    /// all gradients have in common is in it.
    #[serde(serialize_with = "number")]
    pub rate: f64,
    /// Output leaf of the loss.
    pub loss: usize,
    /// Parameters.
    pub parameters: Vec<Parameter>,
}

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Random directions per parameter.
    pub directions: usize,
    /// Elements per parameter.
    pub elements: usize,
    /// Seed.
    pub seed: u64,
    /// What the outputs are, if it is known.
    pub role: Option<Role>,
    /// Size of steps, if it is known.
    pub rate: Option<f64>,
    /// Limits of a run.
    pub limits: RunLimits,
}

/// Which output belongs to which input: as `given` (output, input), else each
/// to an input of its shape, from the last on; with the other inputs of that
/// shape, to be tried if that one fails.
///
/// # Errors
/// No output fits an input.
pub fn pairing(
    m: &Module,
    p: &Problem,
    given: &[(usize, usize)],
) -> Result<(Option<usize>, Vec<Pairing>), DiffError> {
    let outs = scalify_prove::problem::output_shapes(m);
    let float = |s: &Shape| s.as_array().is_some_and(|a| a.dtype.is_float());
    let scalar = |s: &Shape| s.as_array().is_some_and(|a| a.dims.is_empty()) && float(s);
    let loss = outs.iter().position(scalar);
    if !given.is_empty() {
        for &(o, i) in given {
            let fits = match (outs.get(o), p.dist_inputs.get(i)) {
                (Some(s), Some(l)) => float(s) && s.dims() == l.shape.dims(),
                _ => false,
            };
            if !fits {
                let e = format!("output {o} is no gradient of input {i}: the shapes differ");
                return Err(DiffError::Problem(e));
            }
        }
        return Ok((loss, given.iter().map(|&(o, i)| (o, vec![i])).collect()));
    }
    // From the end: losses and data come first, parameters after them.
    let mut out = Vec::new();
    let mut left = p.dist_inputs.len();
    for (o, s) in outs.iter().enumerate().rev().filter(|x| Some(x.0) != loss && float(x.1)) {
        let fits = |&i: &usize| {
            let l = &p.dist_inputs[i].shape;
            float(l) && l.dims() == s.dims()
        };
        if let Some(i) = (0..left).rev().find(fits) {
            let others = (0..p.dist_inputs.len()).filter(fits).filter(|&k| k != i);
            out.push((o, std::iter::once(i).chain(others.take(MAX_OTHERS)).collect()));
            left = i;
        }
    }
    out.reverse();
    if out.is_empty() {
        return Err(DiffError::Problem("no output has the shape of an input".into()));
    }
    Ok((loss, out))
}

/// An output and the inputs it may be the gradient of, the likeliest first.
pub type Pairing = (usize, Vec<usize>);

/// Other inputs of the same shape that are tried.
const MAX_OTHERS: usize = 3;

struct Runner<'a> {
    m: &'a Module,
    p: &'a Problem,
    limits: RunLimits,
    /// For the complex step, where it is legal.
    lifted: Option<Lifted>,
}

impl Runner<'_> {
    /// Outputs of device 0, in `f64`.
    fn run(&self, x: &Inputs) -> Result<Vec<Tensor>, DiffError> {
        let none = vec![None; self.p.dist_inputs.len()];
        let r = evaluate::dist(self.m, self.p, &none, x, Accumulate::F64, self.limits)
            .map_err(|e| DiffError::Run("joint", e.into()))?;
        Ok(r.first().cloned().unwrap_or_default())
    }

    /// Real and imaginary part by a program that [`Lifted`] made; `None` if it
    /// cannot be run.
    fn complex(&self, m: &Module, x: &Inputs) -> Option<[f64; 2]> {
        let none = vec![None; self.p.dist_inputs.len()];
        let r = evaluate::dist(m, self.p, &none, x, Accumulate::F64, self.limits).ok()?;
        match r.first()?.as_slice() {
            [re, im] => Some([*re.to_f64().first()?, *im.to_f64().first()?]),
            _ => None,
        }
    }

    /// The derivative along `v`, an input of the entry, by the complex step.
    fn complex_slope(&self, x: &Inputs, i: usize, v: &[f64]) -> Option<f64> {
        let m = self.lifted.as_ref()?.along(i, v)?;
        Some(self.complex(&m, x)?[1] / STEP).filter(|d| d.is_finite())
    }

    fn loss(&self, x: &Inputs, loss: usize) -> Result<f64, DiffError> {
        let out = self.run(x)?;
        let v = out.get(loss).map(Tensor::to_f64).unwrap_or_default();
        v.first().copied().ok_or_else(|| DiffError::Problem("no loss".into()))
    }
}

/// `x` with input `i` moved by `h v`.
fn moved(x: &Inputs, i: usize, v: &[f64], h: f64) -> Inputs {
    let mut y = x.clone();
    for t in y.values.get_mut(i).into_iter().flatten() {
        let new = t.to_f64().iter().zip(v).map(|(a, b)| a + h * b).collect();
        if let Some(n) = Tensor::from_vec(t.dtype, t.dims.iter().copied(), new) {
            *t = n;
        }
    }
    y
}

/// A direction and the loss's derivative along it.
struct Slope {
    element: Option<usize>,
    along: Vec<f64>,
    measured: f64,
    error: f64,
    step: f64,
    method: Method,
}

impl Runner<'_> {
    /// Derivatives along random directions and elements of input `i`.
    fn slopes(
        &self,
        x: &Inputs,
        i: usize,
        loss: usize,
        o: &Options,
        r: &mut Random,
    ) -> Result<Vec<Slope>, DiffError> {
        let value = x.values.get(i).and_then(|v| v.first()).map(Tensor::to_f64).unwrap_or_default();
        let n = value.len();
        let norm = value.iter().map(|v| v * v).sum::<f64>().sqrt().max(1.0);
        let mut directions: Vec<(Option<usize>, Vec<f64>)> = Vec::new();
        for _ in 0..o.directions {
            let v: Vec<f64> = (0..n).map(|_| r.normal()).collect();
            let l = v.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-300);
            directions.push((None, v.into_iter().map(|v| v / l).collect()));
        }
        for _ in 0..o.elements.min(n) {
            let e = r.int(0, n as i64 - 1) as usize;
            let mut v = vec![0.0; n];
            v[e] = 1.0;
            directions.push((Some(e), v));
        }
        let mut out = Vec::new();
        for (element, along) in directions {
            let mut last: Option<f64> = None;
            let mut best = (0.0, f64::INFINITY, 0.0);
            for s in STEPS {
                let h = s * norm;
                let up = self.loss(&moved(x, i, &along, h), loss)?;
                let down = self.loss(&moved(x, i, &along, -h), loss)?;
                let d = (up - down) / (2.0 * h);
                if let Some(l) = last {
                    // What cancels in the difference.
                    let noise = 4e-16 * up.abs().max(down.abs()) / h;
                    let error = (d - l).abs().max(noise);
                    if error < best.1 {
                        best = (d, error, h);
                    }
                }
                last = Some(d);
            }
            let (mut measured, mut error, mut step) = best;
            let mut method = Method::Differences;
            // Both must agree as far as differences can tell.
            let agrees = |d: &f64| (d - measured).abs() <= 100.0 * error + 1e-5 * d.abs();
            if let Some(d) = self.complex_slope(x, i, &along).filter(agrees) {
                (measured, error, step) = (d, 1e-11 * d.abs(), STEP);
                method = Method::ComplexStep;
            }
            out.push(Slope { element, along, measured, error, step, method });
        }
        Ok(out)
    }
}

fn judged(given: f64, s: &Slope, f0: f64) -> Verdict {
    let off = (given - s.measured).abs();
    let scale = given.abs().max(s.measured.abs());
    let floor = 1e-12 * (1.0 + f0.abs());
    if !off.is_finite() || !s.error.is_finite() {
        Verdict::Unsure
    } else if off <= 10.0 * s.error + 1e-6 * scale + floor {
        Verdict::Pass
    } else if off > 100.0 * s.error + 1e-4 * scale + 1e3 * floor {
        Verdict::Fail
    } else {
        Verdict::Unsure
    }
}

fn dot(a: impl Iterator<Item = f64>, b: &[f64]) -> f64 {
    a.zip(b).map(|(a, b)| a * b).sum()
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
        (Verdict::Unsure, _) | (_, Verdict::Unsure) => Verdict::Unsure,
        _ => Verdict::Pass,
    }
}

/// Outputs of a program in `f64`.
///
/// # Errors
/// Programs that cannot be run.
pub fn outputs(
    m: &Module,
    p: &Problem,
    x: &Inputs,
    limits: RunLimits,
) -> Result<Vec<Tensor>, DiffError> {
    Runner { m, p, limits, lifted: None }.run(x)
}

/// Checks gradients, among the outputs `out` of a program as `pairs` say,
/// against output `loss` of program `m` on inputs `x` (whole arrays).
///
/// # Errors
/// Programs that cannot be run.
pub fn check(
    m: &Module,
    p: &Problem,
    x: &Inputs,
    loss: usize,
    out: &[Tensor],
    pairs: &[Pairing],
    o: &Options,
) -> Result<Found, DiffError> {
    let mut run = Runner { m, p, limits: o.limits, lifted: Lifted::new(m, loss) };
    let f0 = run.loss(x, loss)?;
    // The same value, and no imaginary part, at real inputs.
    let lifted = run.lifted.as_ref().and_then(|l| run.complex(l.real(), x));
    let same = |f: [f64; 2]| f[1] == 0.0 && (f[0] - f0).abs() <= 1e-9 * f0.abs().max(1e-3);
    if !lifted.is_some_and(same) {
        run.lifted = None;
    }
    let mut r = Random::new(o.seed);
    let value = |i: usize| -> Vec<f64> {
        x.values.get(i).and_then(|v| v.first()).map(Tensor::to_f64).unwrap_or_default()
    };
    // Slopes of each input that is needed.
    let mut slopes: std::collections::BTreeMap<usize, Vec<Slope>> = Default::default();
    let mut gradients = Vec::new();
    for (output, inputs) in pairs {
        let i = inputs[0];
        let g = out.get(*output).map(Tensor::to_f64).unwrap_or_default();
        if g.len() != value(i).len() || g.is_empty() {
            let e = format!("output {output} has not the elements of input {i}");
            return Err(DiffError::Problem(e));
        }
        gradients.push(g);
        if let std::collections::btree_map::Entry::Vacant(e) = slopes.entry(i) {
            e.insert(run.slopes(x, i, loss, o, &mut r)?);
        }
    }
    let given = |role: Role, rate: f64, g: &[f64], i: usize, v: &[f64]| match role {
        Role::Gradient => dot(g.iter().copied(), v),
        Role::Step | Role::Update => dot(g.iter().zip(value(i)).map(|(g, x)| (x - g) / rate), v),
    };
    // The common rate of steps: the median of the ratios.
    let mut rates: Vec<f64> = Vec::new();
    for ((_, inputs), g) in pairs.iter().zip(&gradients) {
        for s in slopes.get(&inputs[0]).into_iter().flatten() {
            if s.measured.abs() > 1e3 * s.error {
                let q = given(Role::Step, 1.0, g, inputs[0], &s.along) / s.measured;
                rates.extend(Some(q).filter(|q| q.is_finite() && *q > 0.0));
            }
        }
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(1.0);
    let rate = o.rate.unwrap_or(median);
    let roles = match o.role {
        Some(r) => vec![r],
        None => vec![Role::Gradient, Role::Step],
    };
    let mut parameters: Vec<Parameter> = Vec::new();
    for ((output, inputs), g) in pairs.iter().zip(&gradients) {
        let mut best: Option<Parameter> = None;
        'tries: for &i in inputs {
            if let std::collections::btree_map::Entry::Vacant(e) = slopes.entry(i) {
                e.insert(run.slopes(x, i, loss, o, &mut r)?);
            }
            for &role in &roles {
                let mut q = Parameter {
                    name: p.dist_inputs[i].name().to_owned(),
                    input: i,
                    output: *output,
                    role,
                    verdict: Verdict::Pass,
                    checks: Vec::new(),
                    off: None,
                };
                for s in slopes.get(&i).into_iter().flatten() {
                    let d = given(role, rate, g, i, &s.along);
                    let verdict = judged(d, s, f0);
                    q.verdict = worse(q.verdict, verdict);
                    q.checks.push(Check {
                        element: s.element,
                        given: d,
                        measured: s.measured,
                        error: s.error,
                        step: s.step,
                        method: s.method,
                        verdict,
                    });
                }
                let passed = q.verdict == Verdict::Pass;
                if best.is_none() || passed {
                    best = Some(q);
                }
                if passed {
                    break 'tries;
                }
            }
        }
        parameters.extend(best);
    }
    // What most are, those that fail are taken to be too.
    let steps = |q: &&Parameter| q.verdict == Verdict::Pass && q.role == Role::Step;
    let (passed, stepped) = (
        parameters.iter().filter(|q| q.verdict == Verdict::Pass).count(),
        parameters.iter().filter(steps).count(),
    );
    if o.role.is_none() && 2 * stepped > passed {
        for (q, g) in parameters.iter_mut().zip(&gradients) {
            if q.verdict == Verdict::Pass {
                continue;
            }
            (q.role, q.verdict) = (Role::Step, Verdict::Pass);
            let own = slopes.get(&q.input).map(Vec::as_slice).unwrap_or_default();
            for (c, s) in q.checks.iter_mut().zip(own) {
                c.given = given(Role::Step, rate, g, q.input, &s.along);
                c.verdict = judged(c.given, s, f0);
                q.verdict = worse(q.verdict, c.verdict);
            }
        }
    }
    let mut verdict = parameters.iter().fold(Verdict::Pass, |v, p| worse(v, p.verdict));
    // Nothing fits: other optimizers, or other outputs. With a factor in
    // common they are gradients all the same.
    let factor = || {
        let q: Vec<f64> = (parameters.iter())
            .flat_map(|p| &p.checks)
            .filter(|c| c.measured.abs() > 1e3 * c.error)
            .map(|c| c.given / c.measured)
            .collect();
        let first = q.first().copied().unwrap_or(f64::NAN);
        q.iter().all(|x| (x - first).abs() <= 1e-3 * first.abs())
    };
    let open = o.role.is_none() && o.rate.is_none();
    if verdict == Verdict::Fail && passed == 0 && open && !factor() {
        verdict = Verdict::Unsure;
    }
    Ok(Found { schema: "scalify-gradcheck/1", verdict, rate, loss, parameters })
}

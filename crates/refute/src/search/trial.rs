//! Edited programs on inputs on which the given ones differ.

use super::{Counterexample, Layouts, Refuter, Runs, Verdict};
use crate::compare::{bounds, numbers};
use crate::domain::Profile;
use crate::evaluate::{self, Inputs, Results, RunLimits};
use crate::random::Random;
use scalify_claim::Placement;
use scalify_interp::{Accumulate, Limit, RunError};
use scalify_ir::Module;
use std::time::Duration;

/// Inputs on which the programs differ, with the baseline's results: what an
/// edited program must agree with.
pub struct Trial {
    inputs: Vec<Inputs>,
    wide: Vec<Results>,
    bounds: Vec<Vec<Vec<f64>>>,
    layouts: Layouts,
    /// An edit may make a loop endless: several times the steps that the
    /// program takes as it is.
    steps: u64,
}

impl Refuter<'_> {
    /// Prepares the trial of edits on the inputs of a counterexample and on
    /// `more` (up to two) further draws.
    pub fn trial(&self, c: &Counterexample, more: usize) -> Option<Trial> {
        let mut r = Random::new(self.options.seed ^ 0x5eed);
        let mut inputs = vec![c.drawn.clone()];
        for profile in [Profile::Normal, Profile::Small].into_iter().take(more) {
            inputs.push(self.draw(profile, &mut r)?);
        }
        let mut t = Trial {
            inputs: Vec::new(),
            wide: Vec::new(),
            bounds: Vec::new(),
            layouts: Layouts { inputs: c.placements.clone() },
            steps: 0,
        };
        let mut known = self.runs.lock().ok().and_then(|r| r.clone());
        for x in inputs {
            let runs = match known.take() {
                // Of the inputs drawn.
                Some(runs) if t.inputs.is_empty() => Some(runs),
                _ => None,
            };
            let Runs { wide, plain, near } = match runs {
                Some(runs) => runs,
                None => Runs {
                    wide: self.run_base(&x, Accumulate::F64).ok()?,
                    plain: self.run_base(&x, Accumulate::Plain).ok()?,
                    near: vec![self.run_base(&self.moved(&x, &mut r), Accumulate::F64).ok()?],
                },
            };
            if t.steps == 0 {
                t.steps = self.steps(c, &wide);
            }
            let mut all = Vec::new();
            for k in 0..self.outputs.len() {
                let per = if self.p.local_inputs { self.p.devices as usize } else { 1 };
                let mut v = Vec::new();
                for d in 0..per {
                    let get = |r: &Results| self.expected(r, d, k).map(numbers).unwrap_or_default();
                    let near: Vec<Vec<f64>> = near.iter().map(get).collect();
                    v.extend(bounds(&get(&wide), &get(&plain), &near, self.u));
                }
                all.push(v);
            }
            t.inputs.push(x);
            t.wide.push(wide);
            t.bounds.push(all);
        }
        Some(t)
    }

    /// Runs an edit of the distributed program in so many steps.
    fn run_edited(
        &self,
        m: &Module,
        q: &[Option<Placement>],
        x: &Inputs,
        b: &Results,
        limits: RunLimits,
        steps: u64,
    ) -> Result<Results, RunError> {
        let a = Accumulate::F64;
        match &self.cut {
            Some(c) => c.run(m, q, x, b, a, limits, Some(steps)),
            None => evaluate::dist_within(m, self.p, q, x, a, limits, Some(steps)),
        }
    }

    /// Eight to sixteen times the steps that the distributed program takes.
    /// `b`: the baseline's results on the inputs drawn.
    fn steps(&self, c: &Counterexample, b: &Results) -> u64 {
        let mut limit = 4 * self.dist.instrs.len().max(64) as u64;
        loop {
            let m = self.evaluated();
            let run = self.run_edited(m, &c.placements, &c.drawn, b, self.limits(), limit);
            match run {
                Err(RunError::Limit { limit: Limit::Steps, .. }) => limit = limit.saturating_mul(2),
                _ => return limit.saturating_mul(8),
            }
        }
    }
}

impl Trial {
    /// True if a program of the same interface agrees with the baseline on
    /// all inputs of the trial.
    pub fn agrees(&self, r: &Refuter<'_>, m: &Module) -> bool {
        for (k, x) in self.inputs.iter().enumerate() {
            let limits = RunLimits { memory: r.options.memory, time: Duration::from_secs(5) };
            let q = &self.layouts.inputs;
            let run = r.run_edited(m, q, x, &self.wide[k], limits, self.steps);
            let Ok(got) = run else { return false };
            let bound = |o: usize, d: usize| {
                let all = &self.bounds[k][o];
                if r.p.local_inputs {
                    let n = all.len() / r.p.devices.max(1) as usize;
                    all[d * n..(d + 1) * n].to_vec()
                } else {
                    all.clone()
                }
            };
            if !matches!(r.compare(&self.wide[k], &bound, &got, None), Some(Verdict::Same { .. })) {
                return false;
            }
        }
        true
    }
}

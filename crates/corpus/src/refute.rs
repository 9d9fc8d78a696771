//! The whole decision over cases: verdicts, lines, repairs.

use crate::{Case, localised, planted};
use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_prove::outcome::Verdict;
use scalify_refute::{Plan, decide};
use std::fmt;
use std::time::{Duration, Instant};

/// Counts over cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    right: usize,
    proved: usize,
    false_refutations: usize,
    wrong: usize,
    false_proofs: usize,
    refuted: usize,
    precision: usize,
    innermost: usize,
    line: usize,
    repaired: usize,
    likely: usize,
    seconds: f64,
}

impl Tally {
    /// Runs a case; a line about it, with `!!` where it is not as it should
    /// be.
    pub fn add(
        &mut self,
        case: &Case,
        base: &Module,
        dist: &Module,
        claim: &Claim,
        plan: &Plan,
    ) -> String {
        let same = case.expected == "equivalent";
        let options = scalify_prove::Options {
            time_limit: Some(Duration::from_secs(20)),
            ..Default::default()
        };
        let t = Instant::now();
        let d = decide(base, dist, claim, &options, plan);
        let s = t.elapsed().as_secs_f64();
        self.seconds += s;
        let o = &d.outcome;
        let precision = d.evidence.as_ref().and_then(|e| e.precision.clone());
        let mut bad = Vec::new();
        if same {
            self.right += 1;
            self.proved += usize::from(o.verdict == Verdict::Proved);
            if o.verdict == Verdict::Refuted {
                self.false_refutations += 1;
                bad.push("FALSE REFUTATION");
            }
        } else {
            self.wrong += 1;
            if o.verdict == Verdict::Proved {
                self.false_proofs += 1;
                bad.push("FALSE PROOF");
            }
            let named = o.verdict == Verdict::Refuted || precision.is_some();
            self.refuted += usize::from(o.verdict == Verdict::Refuted);
            self.precision += usize::from(precision.is_some());
            if !named {
                bad.push("not refuted");
            }
            let (a, mut b) = localised(case, o);
            b |= d.repairs.iter().take(2).any(|r| {
                let shown = std::iter::once(r.at).chain(r.places.iter().copied());
                shown.flat_map(|i| dist.frames(i)).any(|f| planted(case, f.file, f.line))
            });
            self.innermost += usize::from(a);
            self.line += usize::from(b);
            if !b {
                bad.push("line");
            }
            match d.repairs.first() {
                Some(r) if r.grade.is_some() => self.repaired += 1,
                Some(_) => self.likely += 1,
                None => {}
            }
        }
        let mut line = format!("{:?} {s:.2} s, {} edits", o.verdict, d.edits_tried);
        if let Some(p) = precision {
            line += &format!(" precision {:.1e} against {:.1e}", p.dist, p.base);
        }
        if let Some(e) = &d.unable {
            line += &format!(" unable: {e}");
        }
        if let (Some(e), Verdict::Unknown) = (&d.evidence, o.verdict) {
            line += &format!(" agree on {} samples, worst {:.1e}", e.samples, e.worst);
        }
        if o.verdict == Verdict::Unknown {
            line += &o.notes.iter().map(|n| format!("\n        note: {n}")).collect::<String>();
        }
        if let Some(c) = &d.counterexample {
            let x = &c.outputs[0];
            line += &format!(
                " {:?} output {} device {} {:?}: {:.4e} for {:.4e}, bound {:.0e}",
                c.profile, x.output, x.device, x.index, x.actual, x.expected, x.bound
            );
        }
        for r in d.repairs.iter().take(2) {
            line += &format!("\n        [{}] {:?} with {}", r.code, r.grade, r.text);
        }
        if !same {
            if let (Some(f), Some(b)) = (o.frontier.first(), &case.bug) {
                let l: Vec<u32> = f.frames.iter().take(4).map(|f| f.line).collect();
                line += &format!(
                    "\n        named %{} lines {l:?}; planted [{}] {} lines {:?} near {:?}",
                    dist.name_of(f.instr),
                    b.category,
                    b.description,
                    b.lines,
                    b.near_lines
                );
            }
        }
        if !bad.is_empty() {
            line = format!("!! {} {line}", bad.join(", "));
        }
        line
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (r, w) = (self.right, self.wrong);
        writeln!(f, "right pairs proved   {}/{r}", self.proved)?;
        writeln!(f, "right pairs refuted  {}/{r} (must be 0)", self.false_refutations)?;
        writeln!(f, "wrong pairs proved   {}/{w} (must be 0)", self.false_proofs)?;
        writeln!(
            f,
            "wrong pairs refuted  {}/{w}, another precision {}",
            self.refuted, self.precision
        )?;
        writeln!(
            f,
            "line named           {}/{w} innermost frame, {}/{w} any line shown",
            self.innermost, self.line
        )?;
        writeln!(
            f,
            "repaired             {}/{w} proved, {}/{w} only evaluated",
            self.repaired, self.likely
        )?;
        write!(f, "time                 {:.1} s", self.seconds)
    }
}

//! The refuter over cases: what it says of right and of wrong pairs.

use crate::Case;
use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_refute::{Options, Search, refute};
use std::fmt;
use std::time::{Duration, Instant};

/// Counts over cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    right: usize,
    false_refutations: usize,
    right_precision: usize,
    wrong: usize,
    refuted: usize,
    precision: usize,
    unable: usize,
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
    ) -> Option<String> {
        let same = case.expected == "equivalent";
        let o = Options { time: Duration::from_secs(30), ..Options::default() };
        let t = Instant::now();
        let found = refute(base, dist, claim, o);
        let s = t.elapsed().as_secs_f64();
        self.seconds += s;
        if same {
            self.right += 1;
        } else {
            self.wrong += 1;
        }
        let mark = |bad: bool| if bad { "!!" } else { "" };
        Some(match found {
            Search::Differ(c) => {
                if same {
                    self.false_refutations += 1;
                } else {
                    self.refuted += 1;
                }
                let d = &c.outputs[0];
                format!(
                    "{} differ {:?} output {} device {} {:?}: {:e} for {:e}, bound {:.1e}, {}/{} {:.3} s",
                    mark(same),
                    c.profile,
                    d.output,
                    d.device,
                    d.index,
                    d.actual,
                    d.expected,
                    d.bound,
                    d.count.0,
                    d.count.1,
                    s
                )
            }
            Search::Agree(e) => {
                if let Some(p) = e.precision {
                    if same {
                        self.right_precision += 1;
                    } else {
                        self.precision += 1;
                    }
                    format!(
                        "{} precision output {}: error {:.1e}, baseline {:.1e} {s:.3} s",
                        mark(same),
                        p.output,
                        p.dist,
                        p.base
                    )
                } else {
                    format!("{} agree {} worst {:.1e} {s:.3} s", mark(!same), e.samples, e.worst)
                }
            }
            Search::Unable(e) => {
                self.unable += 1;
                format!("{} unable: {e}", mark(!same))
            }
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "right pairs refuted  {}/{} (must be 0), another precision {}",
            self.false_refutations, self.right, self.right_precision
        )?;
        writeln!(
            f,
            "wrong pairs refuted  {}/{}, another precision {}",
            self.refuted, self.wrong, self.precision
        )?;
        write!(f, "not evaluated        {}; {:.1} s", self.unable, self.seconds)
    }
}

//! From the best attempt to an outcome: grade, assumptions, what is regrouped,
//! outputs, frontier, and the precondition that would do.

use crate::decide::{Attempt, DIST_TAG, best};
use crate::lift::{Lifted, Stop};
use crate::outcome::*;
use crate::problem::Problem;
use crate::{Options, blame, relate};
use scalify_claim::Claim;
use scalify_ir::{Module, Opcode, Shape};
use scalify_terms::{ClassId, Store};
use std::time::Instant;

/// Ranges that the claim declares, as assumptions.
pub(crate) fn declared(p: &Problem, claim: &Claim) -> Vec<Assumption> {
    let mut out = Vec::new();
    for x in &claim.assume {
        let names = p.base_inputs.iter().filter(|l| {
            let n: Vec<&str> = l.names.iter().map(String::as_str).collect();
            x.selector.matches(l.index, &n)
        });
        for l in names {
            let text = format!("input {} in [{}, {}], as declared", l.name(), x.lo, x.hi);
            out.push(Assumption { kind: AssumptionKind::IntRange, text, at: None });
        }
    }
    out
}

/// The grade of a proof that rests on these assumptions.
pub(crate) fn grade_with(grade: Grade, assumptions: &[Assumption]) -> Grade {
    let weak = |k: AssumptionKind| !matches!(k, AssumptionKind::Layout | AssumptionKind::Inferred);
    if grade == Grade::Reassociated && assumptions.iter().any(|x| weak(x.kind)) {
        return Grade::UnderAssumptions;
    }
    grade
}

/// What an attempt comes to; `early`: further ones may follow.
pub(crate) fn outcome(
    a: &mut Attempt,
    grade: Option<Grade>,
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    t0: Instant,
    early: bool,
) -> Outcome {
    let all = grade.is_some() && p.errors.is_empty();
    let mut assumptions = assumptions(a, p, base, dist);
    assumptions.extend(declared(p, claim));
    let mut grade = if all { grade } else { None };
    let mut outputs = Vec::new();
    let fallback = |m: &Module, r: &[Lifted], i: u32| {
        r.get(i as usize).map_or(m.entry_comp().root, |r| r.instr)
    };
    for k in 0..a.outputs.len() {
        let (bi, di) = (
            fallback(base, &a.base, a.outputs[k].base_rec),
            fallback(dist, &a.dist, a.outputs[k].dist_rec),
        );
        let o = &a.outputs[k];
        if let Some(t) = &o.assumed {
            assumptions.push(Assumption {
                kind: AssumptionKind::Layout,
                text: t.clone(),
                at: None,
            });
        }
        let (ok, reason, q) = (o.proved, o.reason.clone(), o.placement.clone());
        let relation = if ok { relate::output(a, base, k, bi, q.as_ref()) } else { None };
        outputs.push(OutputResult {
            index: k,
            name: output_name(dist, k, a.outputs.len()),
            base: bi,
            dist: di,
            verdict: if ok { Verdict::Proved } else { Verdict::Unknown },
            relation,
            reason,
        });
    }
    grade = grade.map(|g| grade_with(g, &assumptions));
    let mut notes = p.notes.clone();
    notes.extend(p.errors.iter().cloned());
    let mut frontier = if all { Vec::new() } else { blame::frontier(a, base, dist, p, claim) };
    if !all && !early && p.errors.is_empty() && a.stop.is_none() {
        if let Some(text) = missing_precondition(a, base, dist, claim, p, options, t0) {
            notes.push(format!("with {text} every output is PROVED equal"));
            if let Some(f) = frontier.first_mut() {
                f.code = "missing-precondition";
                f.reason = format!(
                    "equals the baseline only for inputs in range: {text} is needed and was not given"
                );
                f.expected = Some(text);
            }
        }
    }
    let regrouped =
        if all && grade != Some(Grade::Exact) { regrouped(a, dist) } else { Vec::new() };
    let exhausted = a.stop.map(|s| match s {
        Stop::Time => "time",
        Stop::Nodes => "memory",
        Stop::Steps => "steps",
        Stop::Interrupted => "interrupted",
    });
    Outcome {
        verdict: if all { Verdict::Proved } else { Verdict::Unknown },
        grade,
        assumptions,
        regrouped,
        outputs,
        frontier,
        mesh: p.mesh.clone(),
        notes,
        exhausted,
        stats: Stats {
            base_instructions: a.base.len(),
            dist_instructions: a.dist.len(),
            classes: a.st.len(),
            frontier_events: a.replaced,
            seconds: t0.elapsed().as_secs_f64(),
            devices: p.devices as u32,
            parts: 0,
            lemmas: 0,
        },
    }
}

/// Ranges of undeclared integer inputs, as far as they are used as indices,
/// under which the proof goes through: as command-line options.
fn missing_precondition(
    a: &Attempt,
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
) -> Option<String> {
    let mut add: Vec<scalify_claim::Assume> = Vec::new();
    let mut text: Vec<String> = Vec::new();
    for leaf in &p.base_inputs {
        let Shape::Array(s) = &leaf.shape else { continue };
        let names: Vec<&str> = leaf.names.iter().map(String::as_str).collect();
        let declared = claim.assume.iter().any(|x| x.selector.matches(leaf.index, &names));
        if !s.dtype.is_int() || declared {
            continue;
        }
        // Least extent of a dimension that it indexes.
        let mut least: Option<i64> = None;
        for r in &a.base {
            let ins = base.instr(r.instr);
            let uses = |k: usize| {
                r.operands.get(k).and_then(|&o| a.base.get(o as usize)).is_some_and(|x| {
                    x.tv.as_ref()
                        .is_some_and(|t| reads_param(&a.st, t.val.r.class, leaf.index as u32, 10))
                })
            };
            let dims = |k: usize| base.array(ins.operands[k]).map(|x| x.dims.clone());
            let top = match (&ins.attrs, ins.opcode) {
                (scalify_ir::Attrs::Gather(g), Opcode::Gather) if uses(1) => {
                    dims(0).and_then(|d| {
                        g.start_index_map
                            .iter()
                            .map(|&k| d[k as usize] - g.slice_sizes[k as usize])
                            .min()
                    })
                }
                (scalify_ir::Attrs::DynamicSlice(w), Opcode::DynamicSlice) => dims(0)
                    .and_then(|d| (0..d.len()).filter(|&k| uses(k + 1)).map(|k| d[k] - w[k]).min()),
                (_, Opcode::DynamicUpdateSlice) => dims(0).zip(dims(1)).and_then(|(d, w)| {
                    (0..d.len()).filter(|&k| uses(k + 2)).map(|k| d[k] - w[k]).min()
                }),
                _ => None,
            };
            if let Some(t) = top.filter(|&t| t > 0) {
                least = Some(least.map_or(t, |l: i64| l.min(t)));
            }
        }
        if let Some(hi) = least {
            add.push(scalify_claim::Assume {
                selector: scalify_claim::Selector::Index(leaf.index),
                lo: 0,
                hi,
            });
            text.push(format!("--assume '{} in [0, {hi}]'", leaf.name()));
        }
    }
    if add.is_empty() {
        return None;
    }
    let mut c = claim.clone();
    c.assume.extend(add);
    let (_, grade) = best(base, dist, &c, p, options, start);
    grade.map(|_| text.join(" "))
}

/// True if the definition of a class reads an input within some steps.
fn reads_param(st: &Store, c: ClassId, id: u32, depth: u32) -> bool {
    let class = st.class(c);
    class.op == scalify_terms::Op::Param(id)
        || (depth > 0 && class.args.iter().any(|x| reads_param(st, x.r.class, id, depth - 1)))
}

pub(crate) fn output_name(m: &Module, k: usize, n: usize) -> String {
    let _ = m;
    if n == 1 { "output".to_owned() } else { format!("output #{k}") }
}

/// Float sums whose grouping differs from the baseline's.
pub(crate) fn regrouped(a: &Attempt, dist: &Module) -> Vec<Regrouped> {
    let mut out: Vec<Regrouped> = Vec::new();
    for r in &a.dist {
        let ins = dist.instr(r.instr);
        if !matches!(ins.opcode, Opcode::AllReduce | Opcode::AllReduceStart | Opcode::ReduceScatter)
            || r.base.is_none()
        {
            continue;
        }
        let Some(d) = dist.dtype(r.instr).filter(|d| d.is_float()) else { continue };
        let add =
            ins.calls.first().is_some_and(|c| dist.instr(dist.comp(*c).root).opcode == Opcode::Add);
        if !add || out.iter().any(|x| x.instr == r.instr) {
            continue;
        }
        out.push(Regrouped {
            instr: r.instr,
            dtype: d,
            text: format!("a {d} sum is taken per device, then over the devices"),
        });
    }
    out
}

/// Assumptions of laws, from the log, each once with its first instruction.
pub(crate) fn assumptions(
    a: &Attempt,
    p: &Problem,
    base: &Module,
    dist: &Module,
) -> Vec<Assumption> {
    let _ = (base, dist);
    let mut out: Vec<Assumption> = Vec::new();
    for t in &p.assumed {
        out.push(Assumption { kind: AssumptionKind::Inferred, text: t.clone(), at: None });
    }
    let mut seen: Vec<&'static str> = Vec::new();
    for u in &a.st.log {
        if seen.contains(&u.law) {
            continue;
        }
        seen.push(u.law);
        let (side, recs, k) = if u.at >= DIST_TAG {
            (Side::Dist, &a.dist, u.at - DIST_TAG)
        } else {
            (Side::Base, &a.base, u.at)
        };
        let at = recs.get(k as usize).map(|r| (side, r.instr));
        let kind = match u.law {
            "x / x = 1" => AssumptionKind::NonZero,
            _ => AssumptionKind::Finite,
        };
        let constant =
            u.law.starts_with("a constant stands") || u.law == scalify_terms::arith::MASK;
        let text = if constant { u.law.to_owned() } else { format!("{} (finite values)", u.law) };
        out.push(Assumption { kind, text, at });
    }
    out
}

//! Steps from dump to dump and their verdicts.

use crate::cache::{self, Entry};
use crate::elided;
use crate::phase::{self, Phase};
use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_load::{DumpFile, DumpModule};
use scalify_prove::outcome::{Assumption, AssumptionKind, Grade, Verdict};
use scalify_refute::Plan;
use scalify_report::sources::Sources;
use scalify_report::{Subject, json, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How steps are decided.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// What is declared about every pair.
    pub claim: &'a Claim,
    /// Limits of each proof.
    pub prover: scalify_prove::Options<'a>,
    /// What to do where there is no proof.
    pub plan: Plan,
    /// Go on after the first step that is not proved.
    pub all: bool,
    /// Folder with results of earlier runs.
    pub cache: Option<&'a Path>,
    /// Where source files are looked up.
    pub source_root: &'a [PathBuf],
}

/// The step from one dump to the next.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Number, from 1.
    pub number: usize,
    /// The dump before.
    pub before: PathBuf,
    /// The dump after.
    pub after: PathBuf,
    /// Pipeline of the pass, may be empty.
    pub pipeline: String,
    /// The pass after which the second dump was written; `pipeline-start` if
    /// it was written at the start of `pipeline`.
    pub pass: String,
    /// The pass that ran first after the dump before, if its name says it.
    pub next_pass: Option<String>,
    /// The answer.
    pub verdict: Verdict,
    /// Both dumps are the same text: nothing was to be proved.
    pub identical: bool,
    /// The step turns the program of all devices into that of each.
    pub partitioning: bool,
    /// The result is one of an earlier run.
    pub cached: bool,
    /// Wall time (seconds).
    pub seconds: f64,
    /// Why there is no proof, in one sentence.
    pub reason: Option<String>,
    /// The report of the pair (`docs/JSON.md`), if it was decided.
    pub report: Option<Value>,
    /// The same for people, without colours; empty if there is none.
    pub text: String,
}

/// The steps of a module.
#[derive(Clone, PartialEq, Debug)]
pub struct Steps {
    /// Name of the module.
    pub module: String,
    /// Steps in order; without `all`, up to the first that is not proved.
    pub steps: Vec<Step>,
    /// Steps there are.
    pub total: usize,
    /// Entries of the cache that could not be written, and such.
    pub notes: Vec<String>,
}

impl Steps {
    /// Refuted if a step is, else unknown if a step is.
    pub fn verdict(&self) -> Verdict {
        let has = |v| self.steps.iter().any(|s| s.verdict == v);
        if has(Verdict::Refuted) {
            Verdict::Refuted
        } else if has(Verdict::Unknown) {
            Verdict::Unknown
        } else {
            Verdict::Proved
        }
    }

    /// The step to look at: the first refuted one, else the first unknown one.
    pub fn first(&self) -> Option<&Step> {
        let of = |v| self.steps.iter().find(|s| s.verdict == v);
        of(Verdict::Refuted).or_else(|| of(Verdict::Unknown))
    }
}

/// A dump that was read.
struct Read {
    path: PathBuf,
    bytes: Vec<u8>,
    module: Module,
}

fn read(path: &Path) -> Result<Read, String> {
    let name = path.display().to_string();
    let most = scalify_load::Options::default().max_bytes;
    let size = std::fs::metadata(path).map_err(|e| format!("{name}: {e}"))?.len();
    if size > most {
        return Err(format!("{name}: has more than {most} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{name}: {e}"))?;
    let module = scalify_load::load_bytes(&name, &bytes).map_err(|e| e.to_string())?.module;
    let options = ValidateOptions { mixed_precision: true, ..ValidateOptions::default() };
    let found = validate(&module, &options);
    if let Some(bad) = found.into_iter().find(|i| i.severity == Severity::Error) {
        let whose = bad.instr.map(|i| format!("%{}: ", module.name_of(i))).unwrap_or_default();
        return Err(format!("{name}: {whose}{}, expected {}", bad.message, bad.expected));
    }
    Ok(Read { path: path.to_owned(), bytes, module })
}

/// Decides the steps between dumps of one module. `progress` hears of each step
/// before it is decided.
pub fn run(
    m: &DumpModule,
    dumps: &[DumpFile],
    o: &Options<'_>,
    progress: &mut dyn FnMut(&DumpFile, usize, usize),
) -> Steps {
    let total = dumps.len().saturating_sub(1);
    let mut out = Steps { module: m.name.clone(), steps: Vec::new(), total, notes: Vec::new() };
    let Some(first) = dumps.first() else { return out };
    let mut last = read(&first.path);
    if let Err(e) = &last {
        out.notes.push(format!("left out: {e}"));
    }
    let mut partitioned = phase::says_partitioned(first).then_some(true);
    for (k, d) in dumps.iter().enumerate().skip(1) {
        progress(d, k, total);
        let start = Instant::now();
        let mut step = Step {
            number: k,
            before: last.as_ref().map_or_else(|_| first.path.clone(), |l| l.path.clone()),
            after: d.path.clone(),
            pipeline: d.pipeline().to_owned(),
            pass: d.pass().to_owned(),
            next_pass: dumps.get(k - 1).and_then(|d| d.next_pass()).map(str::to_owned),
            verdict: Verdict::Unknown,
            identical: false,
            partitioning: false,
            cached: false,
            seconds: 0.0,
            reason: None,
            report: None,
            text: String::new(),
        };
        let says = phase::says_partitioned(d);
        let mut goes_on = true;
        match (read(&d.path), &last) {
            (Err(e), _) => step.reason = Some(format!("the dump cannot be read: {e}")),
            (Ok(now), Err(_)) => {
                step.reason = Some("there is no readable dump before this one".to_owned());
                partitioned = partitioned.or(says.then_some(true));
                last = Ok(now);
            }
            (Ok(mut now), Ok(before)) => {
                let phase = phase::phase(&before.module, &now.module, partitioned, says);
                step.partitioning = phase == Phase::Partitioning;
                if phase != Phase::Whole {
                    partitioned = Some(true);
                }
                if before.bytes == now.bytes {
                    (step.identical, step.verdict) = (true, Verdict::Proved);
                } else {
                    if step.partitioning {
                        phase::carry_shardings(&before.module, &mut now.module);
                    }
                    decide(before, &now, phase, o, &mut step, &mut out.notes);
                    // A partitioner may be out of reach; the passes after it
                    // are not.
                    goes_on = step.partitioning && step.verdict == Verdict::Unknown;
                }
                last = Ok(now);
            }
        }
        step.seconds = start.elapsed().as_secs_f64();
        let proved = step.verdict == Verdict::Proved;
        out.steps.push(step);
        if !(proved || o.all || goes_on) {
            break;
        }
    }
    out
}

fn decide(
    a: &Read,
    b: &Read,
    phase: Phase,
    o: &Options<'_>,
    step: &mut Step,
    notes: &mut Vec<String>,
) {
    let mut claim = o.claim.clone();
    claim.per_device |= phase == Phase::PerDevice;
    let key = o.cache.map(|_| {
        let rest = format!(
            "{}|{phase:?}|{claim:?}|{:?}|{:?}|{:?}|{:?}",
            env!("CARGO_PKG_VERSION"),
            o.plan,
            o.prover.time_limit,
            o.prover.memory_limit,
            o.source_root,
        );
        cache::digest([a.bytes.as_slice(), &b.bytes, rest.as_bytes()])
    });
    let cached = o.cache.zip(key.as_deref()).and_then(|(dir, key)| {
        let e = cache::get(dir, key)?;
        let v = verdict(&e.report)?;
        Some((e, v))
    });
    let (entry, verdict) = match cached {
        Some(hit) => {
            step.cached = true;
            hit
        }
        None => {
            let (entry, verdict, final_) = match solve(a, b, &claim, o) {
                Ok(x) => x,
                Err(e) => {
                    step.reason = Some(e);
                    return;
                }
            };
            if let Some((dir, key)) = o.cache.zip(key.as_deref()).filter(|_| final_) {
                if let Err(e) = cache::put(dir, key, &entry) {
                    let note = format!("{}: cannot be written: {e}", dir.display());
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
            (entry, verdict)
        }
    };
    // An entry of an earlier run may name the files otherwise.
    let mut report = entry.report;
    for (side, file) in [("base", &a.path), ("dist", &b.path)] {
        if let Some(f) = report.get_mut(side).and_then(|s| s.get_mut("file")) {
            *f = Value::String(file.display().to_string());
        }
    }
    step.verdict = verdict;
    if verdict != Verdict::Proved {
        let elided = elided::count(&a.module) + elided::count(&b.module);
        step.reason = Some(reason(&report, elided));
    }
    step.text = entry.text;
    step.report = Some(report);
}

/// Decides a pair. The flag: another run would not come to another result.
fn solve(
    a: &Read,
    b: &Read,
    claim: &Claim,
    o: &Options<'_>,
) -> Result<(Entry, Verdict, bool), String> {
    let (mut base, mut dist) = (&a.module, &b.module);
    let mut open;
    let mut plan = o.plan;
    let mut inputs = 0;
    if elided::count(base) > 0 && elided::count(dist) > 0 {
        open = (base.clone(), dist.clone());
        inputs = elided::to_inputs(&mut open.0, &mut open.1);
        (base, dist) = (&open.0, &open.1);
        // Other values than those left out refute nothing.
        plan.refute &= inputs == 0;
    }
    let mut decision = scalify_refute::decide(base, dist, claim, &o.prover, &plan);
    if inputs > 0 {
        let text =
            format!("{inputs} constants that the dumps leave out are equal, as their names are");
        decision.outcome.assumptions.push(Assumption {
            kind: AssumptionKind::Inferred,
            text,
            at: None,
        });
        if decision.outcome.grade.is_some() {
            decision.outcome.grade = Some(Grade::UnderAssumptions);
        }
    }
    let problem = scalify_prove::problem::setup(base, dist, claim);
    let (base_file, dist_file) = (a.path.display().to_string(), b.path.display().to_string());
    let subject = Subject {
        decision: &decision,
        problem: &problem,
        base,
        dist,
        base_file: &base_file,
        dist_file: &dist_file,
        seed: o.plan.search.seed,
        witness: None,
    };
    let bad = |e: serde_json::Error| format!("the report cannot be made: {e}");
    let report = serde_json::from_str(&json::render(&subject).map_err(bad)?).map_err(bad)?;
    let mut options = text::TextOptions {
        color: false,
        quiet: false,
        all: false,
        sources: Sources::new(o.source_root.to_vec()),
    };
    let text = text::render(&subject, &mut options);
    let verdict = decision.outcome.verdict;
    // What ran out of time or room may do better another time.
    let settled = verdict != Verdict::Unknown
        || decision.outcome.exhausted.is_none() && decision.unable.is_none();
    Ok((Entry { report, text }, verdict, settled))
}

fn verdict(report: &Value) -> Option<Verdict> {
    match report.get("verdict")?.as_str()? {
        "proved" => Some(Verdict::Proved),
        "refuted" => Some(Verdict::Refuted),
        "unknown" => Some(Verdict::Unknown),
        _ => None,
    }
}

/// Why a report proves nothing, in one sentence.
fn reason(report: &Value, elided: usize) -> String {
    let list = |key: &str| report.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut out = match list("frontier").first() {
        Some(f) => {
            let place = place(f).map(|p| format!(" ({p})")).unwrap_or_default();
            let what = text(f, "reason").unwrap_or_default();
            format!("%{}{place}: {what}", text(f, "instruction").unwrap_or_default())
        }
        None => {
            let open = list("outputs").iter().find_map(|o| {
                Some(format!("output #{} {}", o.get("index")?.as_u64()?, text(o, "reason")?))
            });
            let note = || list("notes").iter().filter_map(Value::as_str).next().map(str::to_owned);
            open.or_else(note).unwrap_or_else(|| "no proof was found".to_owned())
        }
    };
    let samples = report.get("evidence").and_then(|e| e.get("samples")?.as_u64());
    if let Some(n) = samples.filter(|&n| n > 0) {
        out = format!("{out}; both agree on the {n} inputs tried");
    }
    if let Some(x) = text(report, "exhausted") {
        out = format!("{out}; the {x} ran out");
    }
    if elided > 0 {
        out = format!(
            "{out}; {elided} constants are left out of the dumps: dump with \
             --xla_dump_hlo_as_proto or --xla_dump_large_constants"
        );
    }
    out
}

/// `file:line` of a frontier item.
pub(crate) fn place(item: &Value) -> Option<String> {
    let s = item.get("source").filter(|s| !s.is_null())?;
    let file = s.get("file")?.as_str()?;
    Some(match s.get("line").and_then(Value::as_u64) {
        Some(n) => format!("{file}:{n}"),
        None => file.to_owned(),
    })
}

//! Every program of every case of `tests/bugs` against its baseline: right ones
//! are proved, except those listed in `not_yet.txt` (which must not be), and
//! never refuted; for wrong ones the refuter finds inputs, except those listed
//! in `not_refuted.txt` (for which it must not), and they are never proved.
//! `BUGS_TABLE=1` prints a line each; `BUGS_REPAIR=n` also looks for repairs,
//! n seconds each, which name more faults.
#![allow(clippy::print_stdout)]

use libtest_mimic::{Arguments, Failed, Trial};
use scalify_claim::Claim;
use scalify_corpus::bugs::{BugCase, Graph};
use scalify_corpus::{find, module, word};
use scalify_ir::Module;
use scalify_prove::outcome::{Grade, Outcome, Verdict};
use scalify_prove::{Options, verify};
use scalify_refute::{Decision, Plan, decide};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static RIGHT: AtomicUsize = AtomicUsize::new(0);
static PROVED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);
static REFUTED: AtomicUsize = AtomicUsize::new(0);
static PRECISION: AtomicUsize = AtomicUsize::new(0);
static NAMED: AtomicUsize = AtomicUsize::new(0);
static SAME_KIND: AtomicUsize = AtomicUsize::new(0);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bugs")
}

fn add(n: &AtomicUsize) {
    n.fetch_add(1, Ordering::Relaxed);
}

fn why(o: &Outcome) -> String {
    let first = o.frontier.first().map(|f| f.reason.clone()).unwrap_or_default();
    format!("{:?} {:?} {first}", o.notes, o.exhausted)
}

fn found(d: &Decision) -> String {
    if let Some(c) = &d.counterexample {
        let x = c.outputs.first().map(|d| format!("{:e} for {:e}", d.actual, d.expected));
        return format!("differ {}", x.unwrap_or_default());
    }
    match (&d.evidence, &d.unable) {
        (Some(e), _) if e.precision.is_some() => "precision".to_owned(),
        (Some(e), _) => format!("agree on {}", e.samples),
        (None, Some(e)) => format!("unable: {e}"),
        _ => "nothing".to_owned(),
    }
}

/// The kinds of `case.json` that a finding of this code names.
fn kinds(code: &str) -> &[&str] {
    match code {
        "missing-all-reduce" | "misplaced-all-reduce" => &["missing-all-reduce"],
        "duplicate-collective" => &["duplicate-all-reduce", "wrong-kind-collective"],
        "missing-all-gather" => &["wrong-kind-collective"],
        "wrong-offset" | "wrong-mesh-axis" => &["offset"],
        "wrong-scale" | "missing-factor" => &["scale"],
        "duplicated-operand" => &["duplicated-bias"],
        "wrong-layout" => &["layout", "axis-split"],
        "wrong-mask" => &["mask"],
        "wrong-group" => &["wrong-group"],
        "wrong-reducer" => &["wrong-reducer"],
        "wrong-dimension" => &["wrong-dimension"],
        "wrong-permute" | "missing-collective-permute" => &["wrong-permute"],
        // The list of kinds has no other word for another operation.
        "wrong-operand" | "wrong-operation" | "missing-operation" | "extra-operation"
        | "missing-operand" => &["wrong-operand"],
        "precision" => &["precision"],
        "stale-slice" => &["stale-slice"],
        "axis-split" => &["axis-split"],
        "wrong-kind-collective" => &["wrong-kind-collective"],
        _ => &[],
    }
}

/// Baselines that are proved equal to themselves by more than the same bits: a
/// dilated input is padded by laws that need finite values.
const NOT_EXACT: &[&str] = &["N06_negative_padding"];

/// The baseline is proved equal to itself.
fn own(dir: &Path) -> Result<(), Failed> {
    let case = BugCase::read(dir)?;
    let base = module(&find(dir, "base.hlo.txt").ok_or("no baseline")?)?;
    let first = case.graphs.first().ok_or("no program to compare")?;
    let claim = Claim { assume: case.claim(first)?.assume, ..Claim::default() };
    let o = verify(&base, &base, &claim, &Options::default());
    let listed = dir.file_name().is_some_and(|n| NOT_EXACT.iter().any(|x| n == *x));
    if o.verdict != Verdict::Proved || (o.grade == Some(Grade::Exact)) == listed {
        return Err(format!("baseline against itself: {:?} {}", o.grade, why(&o)).into());
    }
    Ok(())
}

fn right(d: &Decision, not_yet: bool) -> Result<(), Failed> {
    add(&RIGHT);
    let o = &d.outcome;
    let proved = o.verdict == Verdict::Proved;
    if proved {
        add(&PROVED);
    }
    if o.verdict == Verdict::Refuted || d.counterexample.is_some() {
        return Err(format!("FALSE REFUTATION: {}", found(d)).into());
    }
    if proved == not_yet {
        return Err(format!("proved is {proved}: {}", why(o)).into());
    }
    Ok(())
}

fn wrong(d: &Decision, graph: &Graph, dist: &Module, late: bool) -> Result<(), Failed> {
    add(&WRONG);
    let o = &d.outcome;
    if o.verdict == Verdict::Proved {
        return Err("FALSE PROOF".into());
    }
    let precision = d.evidence.as_ref().is_some_and(|e| e.precision.is_some());
    if d.counterexample.is_some() {
        add(&REFUTED);
    } else if precision {
        add(&PRECISION);
    }
    if o.frontier.is_empty() && o.notes.is_empty() {
        return Err("not proved and no reason given".into());
    }
    if let Some(f) = o.frontier.first() {
        if graph.guilty.iter().any(|g| g == dist.name_of(f.instr)) {
            add(&NAMED);
        }
        let kind = graph.kind.as_deref().unwrap_or("");
        if kinds(f.code).contains(&kind) || precision && kind == "precision" {
            add(&SAME_KIND);
        }
    }
    if d.counterexample.is_some() == late {
        return Err(format!("the refuter: {}", found(d)).into());
    }
    Ok(())
}

fn run(dir: &Path, graph: &Graph, late: bool) -> Result<(), Failed> {
    let case = BugCase::read(dir)?;
    let base = module(&find(dir, "base.hlo.txt").ok_or("no baseline")?)?;
    let dist = module(&find(dir, &graph.file).ok_or("no program")?)?;
    for g in &graph.guilty {
        if !dist.instrs.iter().any(|i| dist.str(i.name) == g) {
            return Err(format!("no instruction {g}").into());
        }
    }
    let claim = case.claim(graph)?;
    let seconds = std::env::var("BUGS_REPAIR").ok().and_then(|s| s.parse().ok());
    let repair = Duration::from_secs(seconds.unwrap_or(0));
    let plan = Plan { repair, cross_check: true, ..Plan::default() };
    let d = decide(&base, &dist, &claim, &Options::default(), &plan);
    let o = &d.outcome;
    if std::env::var_os("BUGS_TABLE").is_some() {
        let f = o.frontier.first().map_or("", |f| f.code);
        let kind = graph.kind.as_deref().unwrap_or("");
        let grade = o.grade.map(|g| format!("{g:?}")).unwrap_or_default();
        println!(
            "{} {} {} {grade} {kind} {f} {}",
            case.name,
            graph.file,
            word(o.verdict),
            found(&d)
        );
        for r in &d.repairs {
            println!("    {} with {}", if r.grade.is_some() { "proved" } else { "agrees" }, r.text);
        }
        for a in &o.assumptions {
            println!("    {:?}: {}", a.kind, a.text);
        }
    }
    match graph.expected.as_str() {
        "equivalent" => right(&d, late),
        _ => wrong(&d, graph, &dist, late),
    }
}

fn main() {
    let args = Arguments::from_args();
    let read = |f: &str| std::fs::read_to_string(root().join(f)).unwrap_or_default();
    let list = read("not_yet.txt") + &read("not_refuted.txt");
    let listed: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let mut trials = Vec::new();
    let mut seen = Vec::new();
    for e in std::fs::read_dir(root()).into_iter().flatten().flatten() {
        let dir = e.path();
        let name = e.file_name().to_string_lossy().into_owned();
        if !dir.join("case.json").exists() {
            continue;
        }
        match BugCase::read(&dir) {
            Err(e) => {
                let e = format!("{e:#}");
                trials.push(Trial::test(name, move || Err(e.into())));
            }
            Ok(case) => {
                let d = dir.clone();
                trials.push(Trial::test(format!("{name}/base"), move || own(&d)));
                for g in case.graphs {
                    let id = format!("{name}/{}", g.file.trim_end_matches(".hlo.txt"));
                    let late = listed.contains(&id.as_str());
                    seen.push(id.clone());
                    let d = dir.clone();
                    trials.push(Trial::test(id, move || run(&d, &g, late)));
                }
            }
        }
    }
    let lost: Vec<String> =
        listed.iter().filter(|n| !seen.iter().any(|s| s == *n)).map(|n| (*n).to_owned()).collect();
    trials.push(Trial::test("lists", move || {
        if lost.is_empty() { Ok(()) } else { Err(format!("no such programs: {lost:?}").into()) }
    }));
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    let end = libtest_mimic::run(&args, trials);
    let n = |a: &AtomicUsize| a.load(Ordering::Relaxed);
    println!(
        "right: {} of {} proved; wrong: {} of {} refuted, {} more coarser; the first finding names the instruction in {}, the kind in {}",
        n(&PROVED),
        n(&RIGHT),
        n(&REFUTED),
        n(&WRONG),
        n(&PRECISION),
        n(&NAMED),
        n(&SAME_KIND)
    );
    end.exit();
}

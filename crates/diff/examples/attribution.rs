//! Measures how well `diff` names the operation at fault.
//!
//! ```sh
//! cargo run --release -p scalify-diff --example attribution -- plant ROOT.. [-n N] [--seed S]
//! cargo run --release -p scalify-diff --example attribution -- cross ROOT..    # the same, baseline against distributed
//! cargo run --release -p scalify-diff --example attribution -- right ROOT..    # equal pairs
//! cargo run --release -p scalify-diff --example attribution -- bugs ROOT..     # wrong pairs
//! cargo run --release -p scalify-diff --example attribution -- pipeline ROOT   # before.hlo, after.hlo, io.npz
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "../tests/common/measure.rs"]
mod measure;
#[path = "../tests/common/plant.rs"]
mod plant;

use anyhow::Context as _;
use measure::{Planting, faults, pair_modules};
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_diff::analyze::Kind;
use scalify_diff::diff::{Options, Verdict, diff};
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Module};
use scalify_prove::problem;
use scalify_refute::evaluate::Inputs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().context("expected plant, cross, right, bugs or pipeline")?;
    let (mut roots, mut n, mut seed, mut verbose, mut only) =
        (Vec::new(), 2usize, 1u64, false, None);
    while let Some(a) = args.next() {
        match a.as_str() {
            "-n" => n = args.next().context("-n N")?.parse()?,
            "--seed" => seed = args.next().context("--seed S")?.parse()?,
            "--only" => only = args.next(),
            "-v" => verbose = true,
            _ => roots.push(PathBuf::from(a)),
        }
    }
    let mut dirs: Vec<PathBuf> = Vec::new();
    for r in &roots {
        for e in std::fs::read_dir(r).with_context(|| r.display().to_string())? {
            let p = e?.path();
            let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if p.is_dir() && only.as_ref().is_none_or(|o| name.contains(o.as_str())) {
                dirs.push(p);
            }
        }
    }
    dirs.sort();
    match mode.as_str() {
        "plant" => planting(&dirs, n, seed, verbose, false),
        "cross" => planting(&dirs, n, seed, verbose, true),
        "right" => pairs(&dirs, "equivalent", verbose),
        "bugs" => pairs(&dirs, "different", verbose),
        "pipeline" => pipeline(&dirs, verbose),
        _ => anyhow::bail!("expected plant, cross, right, bugs or pipeline"),
    }
}

fn label(d: &Path) -> String {
    d.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn planting(
    dirs: &[PathBuf],
    n: usize,
    seed: u64,
    verbose: bool,
    cross: bool,
) -> anyhow::Result<()> {
    let mut total: BTreeMap<(&'static str, &'static str), Planting> = BTreeMap::new();
    for dir in dirs {
        if label(dir).starts_with("bug__") {
            continue;
        }
        let all = pair_modules(dir)?;
        let base = all.iter().find(|x| x.0 == "base").map(|x| x.1.clone());
        for (form, m, claim) in all {
            if cross && form == "base" {
                continue;
            }
            let against = base.as_ref().filter(|_| cross);
            let start = Instant::now();
            for (kind, p) in faults(&m, against, &claim, n, seed, &label(dir), verbose) {
                total.entry((form, kind)).or_default().add(&p);
            }
            let s = start.elapsed().as_secs_f64();
            if verbose || s > 20.0 {
                eprintln!("{} {form}: {s:.1} s", label(dir));
            }
        }
    }
    println!(
        "{:10} {:12} {:>8} {:>6} {:>6} {:>6} {:>7}",
        "module", "fault", "planted", "inert", "above", "named", "others"
    );
    let mut all = Planting::default();
    for ((form, kind), p) in &total {
        println!(
            "{form:10} {kind:12} {:8} {:6} {:6} {:6} {:7}",
            p.planted, p.inert, p.above, p.named, p.other
        );
        all.add(p);
    }
    let share = 100.0 * all.named as f64 / all.above.max(1) as f64;
    println!(
        "all: {} planted, {} inert, {} above the bound, {} named ({share:.2} %), {} another named, {} below the bound named, {} below another named",
        all.planted, all.inert, all.above, all.named, all.other, all.below_named, all.below_other
    );
    Ok(())
}

fn pairs(dirs: &[PathBuf], expected: &str, verbose: bool) -> anyhow::Result<()> {
    let (mut right, mut wrong, mut failed, mut line, mut slow) = (0, 0, 0, 0, 0f64);
    for dir in dirs {
        if !dir.join("case.json").exists() {
            continue;
        }
        let case = Case::read(dir)?;
        if case.expected != expected {
            continue;
        }
        for form in ["dist", "dist.spmd"] {
            let Some(path) = find(dir, &format!("{form}.hlo.txt")) else { continue };
            let Some(base) = find(dir, "base.hlo.txt") else { continue };
            if form == "dist.spmd" && expected == "different" {
                continue;
            }
            let mut claim = case.claim()?;
            if form == "dist.spmd" {
                claim.outputs.clear();
            }
            let (a, b) = (module(&base)?, module(&path)?);
            let start = Instant::now();
            let r = diff(&a, &b, &claim, None, &Options::default());
            let s = start.elapsed().as_secs_f64();
            slow = slow.max(s);
            let name = format!("{}/{form}", label(dir));
            match r {
                Ok(r) => {
                    let ok = (r.verdict == Verdict::Equal) == (expected == "equivalent");
                    right += usize::from(ok);
                    wrong += usize::from(!ok);
                    let src = r.first.as_ref().and_then(|f| r.b.source(&b, f.node));
                    line += usize::from(src.is_some());
                    if !ok || verbose {
                        let first = r.first.as_ref().map(|f| {
                            let row = f.row.map(|k| &r.rows[k]);
                            format!(
                                "{} {:?} ratio {:?} {:?} {:?}",
                                r.b.name(&b, f.node),
                                f.kind,
                                row.map(|r| r.ratio),
                                row.map(|r| r.pair.basis),
                                row.map(|r| &r.worst)
                            )
                        });
                        let outs: Vec<_> = r
                            .outputs
                            .iter()
                            .filter(|o| o.kind != Kind::Rounding)
                            .map(|o| (o.index, o.ratio, o.kind))
                            .collect();
                        println!(
                            "{name}: {:?} rows {} of {} {s:.1} s, first {first:?} {src:?} outputs {outs:?}",
                            r.verdict,
                            r.rows.len(),
                            r.operations
                        );
                    }
                }
                Err(e) => {
                    failed += 1;
                    println!("{name}: not compared: {e}");
                }
            }
        }
    }
    println!(
        "{expected}: {right} as expected, {wrong} not, {failed} not compared, {line} with a source line, slowest {slow:.1} s"
    );
    Ok(())
}

fn pipeline(dirs: &[PathBuf], verbose: bool) -> anyhow::Result<()> {
    let (mut right, mut wrong, mut failed) = (0, 0, 0);
    for dir in dirs {
        let (Some(a), Some(b)) = (find(dir, "before.hlo.txt"), find(dir, "after.hlo.txt")) else {
            continue;
        };
        let (a, b) = (module(&a)?, module(&b)?);
        let inputs = recorded(&a, dir);
        let with = inputs.is_some();
        match diff(&a, &b, &Claim::default(), inputs, &Options::default()) {
            Ok(r) => {
                let ok = r.verdict == Verdict::Equal;
                right += usize::from(ok);
                wrong += usize::from(!ok);
                if !ok || verbose {
                    let first = r.first.as_ref().map(|f| {
                        let row = f.row.map(|k| &r.rows[k]);
                        format!(
                            "{} {:?} {:?} {:?}",
                            r.b.name(&b, f.node),
                            f.kind,
                            row.map(|r| (r.ratio, r.pair.basis)),
                            row.map(|r| &r.worst)
                        )
                    });
                    let outs: Vec<_> =
                        r.outputs.iter().map(|o| (o.index, o.ratio, o.kind)).collect();
                    println!(
                        "{}: {:?} recorded inputs {with}, rows {} of {}, first {first:?}, outputs {outs:?}",
                        label(dir),
                        r.verdict,
                        r.rows.len(),
                        r.operations
                    );
                }
            }
            Err(e) => {
                failed += 1;
                println!("{}: not compared: {e}", label(dir));
            }
        }
    }
    println!("pipeline: {right} equal, {wrong} different, {failed} not compared");
    Ok(())
}

/// Inputs recorded with a module: arrays `in0`, `in1`, .. of `io.npz`.
fn recorded(m: &Module, dir: &Path) -> Option<Inputs> {
    let z = scalify_tensors::Archive::open(dir.join("io.npz")).ok()?;
    let mut values = Vec::new();
    for (k, l) in problem::inputs(m).iter().enumerate() {
        let s: &ArrayShape = l.shape.as_array()?;
        let at = z.find(&format!("in{k}"))?;
        let t = z.tensor(at, Some(s.dtype)).ok()?;
        values.push(vec![Tensor::from_bytes(s, &t.bytes().ok()?)?]);
    }
    Some(Inputs { values })
}

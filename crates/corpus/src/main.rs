//! `scalify-corpus DIR... [--form NAME]... [--only TEXT]... [-v]`: verdicts of
//! all cases in the folders, by form, with the bars. `--layout third`: folders
//! of partitioner records; forms are partitioners. `--layout files`: folders
//! with two modules and no record. `--layout neuron`: folders `tpT_layerL`,
//! each against `tp1_layerL`. A form `A:B` names the files of the baseline and
//! of the distributed module, without `.hlo.txt`. `--seconds N`: time limit of
//! a pair. `--refute`: prove, refute
//! and repair (`--repair SECONDS` each), with the table of all three;
//! `--wrong`: only pairs that are different.
//! `--terms N`: the terms of
//! the outputs to that depth; `--each`: with the devices lifted one by one.
//! `--lemmas`: each pair once more, with lemmas wherever a program repeats
//! itself: how many are proved so, and where the answers differ.

use scalify_corpus::{Case, find, localised, module, third, word};
use scalify_prove::outcome::{Outcome, Verdict};
use scalify_prove::{Memo, Options};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[allow(clippy::print_stdout)]
fn main() -> anyhow::Result<()> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let mut forms: Vec<String> = Vec::new();
    let mut only: Vec<String> = Vec::new();
    let mut verbose = false;
    let mut terms = 0;
    let mut layout = String::from("hand");
    let mut seconds = 20.0;
    let mut refuting = false;
    let mut wrong_only = false;
    let mut plan = scalify_refute::Plan::default();
    let mut tally = scalify_corpus::refute::Tally::default();
    let mut each = false;
    let mut lemmas = false;
    let (mut by_lemmas, mut other) = (0, 0);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--form" => forms.extend(args.next()),
            "--only" => only.extend(args.next()),
            "-v" => verbose = true,
            "--refute" => refuting = true,
            "--repair" => {
                let s = args.next().and_then(|d| d.parse().ok()).unwrap_or(10.0);
                plan.repair = Duration::from_secs_f64(s);
            }
            "--wrong" => wrong_only = true,
            "--layout" => layout = args.next().unwrap_or_default(),
            "--seconds" => seconds = args.next().and_then(|d| d.parse().ok()).unwrap_or(20.0),
            "--each" => each = true,
            "--lemmas" => lemmas = true,
            "--terms" => terms = args.next().and_then(|d| d.parse().ok()).unwrap_or(4),
            _ => dirs.push(a.into()),
        }
    }
    let records = layout == "third";
    if forms.is_empty() {
        let all: &[&str] = match layout.as_str() {
            "third" => &["shardy", "gspmd"],
            "files" => &[
                "before:after",
                "base.input:tp.post_spmd",
                "base.input:fsdp.post_spmd",
                "base.input:base.opt",
                "tp.post_spmd:tp.opt",
                "fsdp.post_spmd:fsdp.opt",
            ],
            "neuron" => &["graph.hlo.0.pb"],
            _ => &["dist", "dist.body", "dist.spmd"],
        };
        forms = all.iter().map(|&f| f.to_owned()).collect();
    }
    let (mut right, mut proved, mut wrong, mut false_proofs) = (0, 0, 0, 0);
    let (mut local, mut near, mut errors) = (0, 0, 0);
    for dir in &dirs {
        let mut cases: Vec<PathBuf> =
            std::fs::read_dir(dir)?.filter_map(|e| e.ok().map(|e| e.path())).collect();
        cases.sort();
        for c in cases.into_iter().filter(|c| c.is_dir()) {
            let name = c.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if !only.is_empty() && !only.iter().any(|o| name.contains(o.as_str())) {
                continue;
            }
            for f in &forms {
                let Some((bp, dp)) = files(&c, &layout, f) else { continue };
                let base = module(&bp)?;
                let case = if records {
                    third::read(&c, f.split(['.', ':']).next().unwrap_or(f))
                } else if find(&c, "case.json").is_some() {
                    Case::read(&c)
                } else {
                    Ok(Case::bare(&c))
                };
                let case = match case {
                    Ok(x) => x,
                    Err(e) => {
                        errors += 1;
                        println!("{name:44} {f:10} ERROR {e}");
                        continue;
                    }
                };
                if wrong_only && case.expected == "equivalent" {
                    continue;
                }
                let declared = case.claim()?;
                let dist = match module(&dp) {
                    Ok(m) => m,
                    Err(e) => {
                        errors += 1;
                        println!("{name:44} {f:10} ERROR {e}");
                        continue;
                    }
                };
                // The partitioner chooses the layout of outputs itself.
                let mut claim = declared.clone();
                if !records && (f.contains("spmd") || f.contains("opt")) {
                    claim.outputs.clear();
                }
                if refuting {
                    let l = tally.add(&case, &base, &dist, &claim, &plan);
                    if verbose || l.starts_with("!!") {
                        println!("{name:44} {f:10} {l}");
                    }
                    continue;
                }
                let t = Instant::now();
                let o = Options {
                    time_limit: Some(Duration::from_secs_f64(seconds)),
                    memo: if lemmas { Memo::Never } else { Memo::Auto },
                    ..Options::default()
                };
                let out = scalify_prove::verify(&base, &dist, &claim, &o);
                let ms = t.elapsed().as_secs_f64() * 1e3;
                if lemmas {
                    let o = Options { memo: Memo::Always, ..o };
                    let t = Instant::now();
                    let x = scalify_prove::verify(&base, &dist, &claim, &o);
                    let took = t.elapsed().as_secs_f64() * 1e3;
                    by_lemmas += usize::from(x.stats.lemmas > 0);
                    let report = |o: &Outcome| {
                        (
                            o.verdict,
                            o.grade,
                            o.outputs.clone(),
                            o.assumptions.len(),
                            o.regrouped.clone(),
                        )
                    };
                    if x.stats.lemmas > 0 && verbose {
                        println!(
                            "{name:44} {f:10} {} parts, {} lemmas: {took:.1} ms, whole {ms:.1} ms",
                            x.stats.parts, x.stats.lemmas
                        );
                    }
                    if (x.verdict, x.grade) != (out.verdict, out.grade) {
                        other += 1;
                        println!(
                            "{name:44} {f:10} !! lemmas: {} {:?}, whole: {} {:?}",
                            word(x.verdict),
                            x.grade,
                            word(out.verdict),
                            out.grade
                        );
                    } else if x.stats.lemmas > 0 && report(&x) != report(&out) {
                        other += 1;
                        println!("{name:44} {f:10} !! the reports differ");
                    }
                }
                let same = case.expected == "equivalent";
                let ok = out.verdict == Verdict::Proved;
                let mut mark = "";
                if same {
                    right += 1;
                    proved += usize::from(ok);
                    if !ok {
                        mark = "MISSED";
                    }
                } else {
                    wrong += 1;
                    if ok {
                        false_proofs += 1;
                        mark = "FALSE PROOF";
                    }
                    let (a, b) = localised(&case, &out);
                    local += usize::from(a);
                    near += usize::from(b);
                    if !b && mark.is_empty() {
                        mark = "line missed";
                    }
                }
                if terms > 0 {
                    for (ok, b, d) in
                        scalify_prove::output_terms(&base, &dist, &claim, &o, terms, each)
                    {
                        println!(
                            "        {}\n          base {b}\n          dist {d}",
                            if ok { "same" } else { "differ" }
                        );
                    }
                }
                let n = out.stats.base_instructions + out.stats.dist_instructions;
                if verbose || !mark.is_empty() {
                    let done = out.outputs.iter().filter(|o| o.verdict == Verdict::Proved).count();
                    println!(
                        "{name:44} {f:10} {:7} {:?} {done}/{} {ms:7.1} ms {:5.1} us/inst {mark}",
                        word(out.verdict),
                        out.grade,
                        out.outputs.len(),
                        ms * 1e3 / n.max(1) as f64,
                    );
                    if !ok && (mark == "MISSED" || verbose) {
                        for e in out.notes.iter().take(3) {
                            println!("        note: {e}");
                        }
                        for i in out.frontier.iter().take(2) {
                            let l = i.frames.first().map_or(0, |f| f.line);
                            println!(
                                "        {} %{} line {l}: {}",
                                dist.instr(i.instr).opcode,
                                dist.name_of(i.instr),
                                i.reason
                            );
                        }
                        for x in out.outputs.iter().filter(|o| o.reason.is_some()).take(2) {
                            println!(
                                "        output {}: {}",
                                x.index,
                                x.reason.as_deref().unwrap_or("")
                            );
                        }
                    }
                    if let (false, Some(b), true) = (same, &case.bug, verbose) {
                        println!(
                            "        bug [{}] {} lines {:?} near {:?}",
                            b.category, b.description, b.lines, b.near_lines
                        );
                        for i in out.frontier.iter().take(5) {
                            let l: Vec<u32> = i.frames.iter().take(4).map(|f| f.line).collect();
                            println!(
                                "          {} %{} lines {l:?} [{}] {}",
                                dist.instr(i.instr).opcode,
                                dist.name_of(i.instr),
                                i.code,
                                i.reason
                            );
                        }
                    }
                }
            }
        }
    }
    if lemmas {
        println!("by lemmas: {by_lemmas}, other answers: {other}");
    }
    if refuting {
        println!("{tally}");
        return Ok(());
    }
    println!("right pairs proved   {proved}/{right}");
    println!("wrong pairs proved   {false_proofs}/{wrong} (must be 0)");
    println!("line named           {local}/{wrong} innermost frame, {near}/{wrong} with call site");
    println!("read errors          {errors}");
    if false_proofs > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The files of a pair.
fn files(case: &Path, layout: &str, form: &str) -> Option<(PathBuf, PathBuf)> {
    // Constants may be elided in the text beside a proto.
    let name = |n: &str| {
        let proto = (layout == "files").then(|| find(case, &format!("{n}.hlo.pb"))).flatten();
        proto.or_else(|| find(case, &format!("{n}.hlo.txt")))
    };
    if let Some((b, d)) = form.split_once(':') {
        return Some((name(b)?, name(d)?));
    }
    match layout {
        "third" => Some((name("base.input")?, name(&format!("{form}.post_spmd"))?)),
        "neuron" => {
            let folder = case.file_name()?.to_str()?;
            let (tp, rest) = folder.strip_prefix("tp")?.split_once("_layer")?;
            let layers = rest.split('.').next()?;
            let base = case.parent()?.join(format!("tp1_layer{layers}"));
            let file = form;
            (tp != "1").then_some(())?;
            Some((find(&base, file)?, find(case, file)?))
        }
        _ => Some((name("base")?, name(form)?)),
    }
}

//! Validates every HLO text below the given folders.
//!
//! `validate [--quiet] PATH...`: one line per report, then totals. Files of
//! several modules split by `// -----` are read one by one.
#![allow(clippy::print_stdout)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut v: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    v.sort();
    for p in v {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if p.is_dir() {
            walk(&p, out);
        } else if [".hlo", ".txt"].iter().any(|e| name.trim_end_matches(".gz").ends_with(e)) {
            out.push(p);
        }
    }
}

fn load(p: &Path) -> Option<String> {
    let bytes = std::fs::read(p).ok()?;
    if p.extension().is_some_and(|e| e == "gz") {
        let mut s = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut s).ok()?;
        return String::from_utf8(s).ok();
    }
    String::from_utf8(bytes).ok()
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let quiet = args.first().is_some_and(|a| a == "--quiet");
    if quiet {
        args.remove(0);
    }
    let mut files = Vec::new();
    for a in &args {
        let p = PathBuf::from(a);
        if p.is_dir() { walk(&p, &mut files) } else { files.push(p) }
    }
    let options = scalify_ir::ValidateOptions::default();
    let (mut modules, mut refused, mut instrs, mut invalid) = (0, 0, 0, 0);
    let (mut reading, mut validating) = (Duration::ZERO, Duration::ZERO);
    for p in &files {
        let Some(text) = load(p) else { continue };
        for (part, text) in text.split("\n// -----").enumerate() {
            if !text.contains("ENTRY") && part > 0 {
                continue;
            }
            let t = Instant::now();
            let parsed = scalify_hlo::parse(text);
            reading += t.elapsed();
            let Ok(m) = parsed else {
                refused += 1;
                continue;
            };
            let t = Instant::now();
            let reports = scalify_ir::validate(&m, &options);
            validating += t.elapsed();
            modules += 1;
            instrs += m.instrs.len();
            invalid +=
                usize::from(reports.iter().any(|r| r.severity == scalify_ir::Severity::Error));
            if quiet {
                continue;
            }
            for r in reports {
                let name = r.instr.map_or("", |i| m.name_of(i));
                let op = r.instr.map_or("", |i| m.instr(i).opcode.name());
                println!("{}#{part}\t{:?}\t{op}\t{name}\t{r}", p.display(), r.severity);
            }
        }
    }
    println!("{modules} modules, {refused} refused, {instrs} instructions, {invalid} invalid");
    println!(
        "reading {:.2} s, validating {:.3} s = {:.0} ns per instruction",
        reading.as_secs_f64(),
        validating.as_secs_f64(),
        validating.as_secs_f64() * 1e9 / (instrs as f64).max(1.0)
    );
}

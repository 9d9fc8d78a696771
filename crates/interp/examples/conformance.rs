//! Runs the StableHLO suite and prints the pass table as Markdown; failures
//! with their reasons go to standard error. Arguments select programs by
//! substring. `--write FILE` puts the tables between the file's markers.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

const BEGIN: &str = "<!-- generated -->";
const END: &str = "<!-- end -->";

fn main() -> std::io::Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let file = match args.iter().position(|a| a == "--write") {
        Some(i) if i + 1 < args.len() => {
            args.remove(i);
            Some(args.remove(i))
        }
        _ => None,
    };
    let start = Instant::now();
    // (programs, passed) by check, and by operation family.
    let mut by_check: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut by_family: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let (mut failures, mut normwise) = (Vec::new(), Vec::new());
    let (mut total, mut passed) = (0, 0);
    for case in common::cases()? {
        if !args.is_empty() && !args.iter().any(|a| case.name.contains(a.as_str())) {
            continue;
        }
        let t = Instant::now();
        let verdict = common::judge(&case);
        if t.elapsed().as_secs() >= 2 {
            eprintln!("slow: {} {:?}", case.name, t.elapsed());
        }
        let ok = verdict.is_ok() as u32;
        total += 1;
        passed += ok;
        let types = ["float", "bfloat", "int", "uint", "bool", "complex", "f8", "ui", "si"];
        let family: Vec<&str> = case
            .name
            .split('_')
            .take_while(|w| {
                !types.iter().any(|t| w.starts_with(t) && w.ends_with(|c: char| c.is_ascii_digit()))
                    && *w != "bool"
            })
            .take(3)
            .collect();
        for (map, key) in [
            (&mut by_check, case.checks.first().cloned().unwrap_or_default()),
            (&mut by_family, family.join("_")),
        ] {
            let e = map.entry(key).or_default();
            *e = (e.0 + 1, e.1 + ok);
        }
        match verdict {
            Ok(common::Fit::Strict) => {}
            Ok(common::Fit::Normwise(e)) => normwise.push((case.name, e)),
            Err(e) => {
                eprintln!("FAIL {}: {e}", case.name);
                failures.push((case.name, e));
            }
        }
    }
    let mut out = String::new();
    let strict = passed as usize - normwise.len();
    let percent = 100.0 * strict as f64 / (total as f64).max(1.0);
    let _ = writeln!(
        out,
        "**{strict} of {total} programs pass by their own checks ({percent:.2} %)**; {} more are within",
        normwise.len()
    );
    let _ = writeln!(
        out,
        "8 ulps of the largest expected magnitude of the array; {} fail.\n",
        failures.len()
    );
    let _ = writeln!(out, "| check | programs | pass |\n|---|---:|---:|");
    for (k, (n, p)) in &by_check {
        let _ = writeln!(out, "| `{k}` | {n} | {p} |");
    }
    for (title, list) in
        [("Failures", &failures), ("Within 8 ulps of the array's magnitude", &normwise)]
    {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "\n### {title}\n\n| program | worst element against the suite's criterion |\n|---|---|"
        );
        for (n, e) in list {
            let _ = writeln!(
                out,
                "| `{n}` | {} |",
                e.replace('|', "\\|").replace('\n', " ").chars().take(160).collect::<String>()
            );
        }
    }
    let _ = writeln!(out, "\n### By family\n\n| family | programs | pass |\n|---|---:|---:|");
    for (k, (n, p)) in &by_family {
        let _ = writeln!(out, "| {k} | {n} | {p} |");
    }
    match file {
        Some(f) => {
            // Between the markers only; the rest is written by hand.
            let old = std::fs::read_to_string(&f)?;
            let (Some(a), Some(b)) = (old.find(BEGIN), old.find(END)) else {
                return Err(std::io::Error::other(format!("{f} lacks {BEGIN} and {END}")));
            };
            let new = format!("{}\n\n{out}\n{}", &old[..a + BEGIN.len()], &old[b..]);
            std::fs::write(f, new)?;
        }
        None => println!("{}", out.split("### By family").next().unwrap_or("")),
    }
    eprintln!("{passed}/{total} in {:?}", start.elapsed());
    Ok(())
}

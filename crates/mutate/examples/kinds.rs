//! Which kind of fault the first finding names, per mutation operator:
//! `kinds [-v] N OPERATOR..`, up to N refuted mutants of each operator, of the
//! distributed programs of `tests/bugs` and `tests/corpus/hand` that are right.
//! A star: no edit is proved to mend the mutant. An operator is no kind (an
//! inserted scale may be a missing mean), so nothing is checked.
#![allow(clippy::print_stdout)]

use scalify_corpus::bugs::BugCase;
use scalify_corpus::{Case, find, module};
use scalify_mutate::operators;
use scalify_mutate::random::Random;
use scalify_prove::outcome::Verdict;
use scalify_refute::{Plan, decide};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let verbose = args.first().is_some_and(|a| a == "-v");
    if verbose {
        args.remove(0);
    }
    let n: usize = args.first().and_then(|a| a.parse().ok()).unwrap_or(10);
    let names = &args[1.min(args.len())..];
    let mut pairs = Vec::new();
    for e in std::fs::read_dir(root.join("bugs"))?.flatten() {
        let dir = e.path();
        if !dir.join("case.json").exists() {
            continue;
        }
        let case = BugCase::read(&dir)?;
        for g in case.graphs.iter().filter(|g| g.expected == "equivalent") {
            let (Some(b), Some(d)) = (find(&dir, "base.hlo.txt"), find(&dir, &g.file)) else {
                continue;
            };
            pairs.push((
                format!("{}/{}", case.name, g.file),
                module(&b)?,
                module(&d)?,
                case.claim(g)?,
            ));
        }
    }
    for e in std::fs::read_dir(root.join("corpus/hand"))?.flatten() {
        let dir = e.path();
        let Ok(case) = Case::read(&dir) else { continue };
        let (Some(b), Some(d)) = (find(&dir, "base.hlo.txt"), find(&dir, "dist.body.hlo.txt"))
        else {
            continue;
        };
        if case.expected == "equivalent" {
            pairs.push((
                e.file_name().to_string_lossy().into_owned(),
                module(&b)?,
                module(&d)?,
                case.claim()?,
            ));
        }
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let mut r = Random::new(7);
    for op in operators::all() {
        if op.equal || !names.is_empty() && !names.iter().any(|n| n == op.name) {
            continue;
        }
        let mut codes: BTreeMap<String, usize> = BTreeMap::new();
        let mut made = 0;
        let mut sites = Vec::new();
        for (k, p) in pairs.iter().enumerate() {
            let s = op.sites(&p.2);
            for _ in 0..3.min(s.len()) {
                sites.push((k, s[r.below(s.len())]));
            }
        }
        for _ in 0..sites.len() * 2 {
            if made >= n || sites.is_empty() {
                break;
            }
            let (k, site) = sites.swap_remove(r.below(sites.len()));
            let p = &pairs[k];
            let devices = p.2.header.num_partitions.unwrap_or(1) * p.2.header.replica_count.max(1);
            let Some(m) = op.apply(&p.2, site, devices, &mut r) else { continue };
            let plan = Plan { repair: Duration::from_secs(3), ..Plan::default() };
            let o = scalify_prove::Options {
                time_limit: Some(Duration::from_secs(10)),
                ..Default::default()
            };
            let d = decide(&p.1, &m.module, &p.3, &o, &plan);
            if d.outcome.verdict != Verdict::Refuted {
                continue;
            }
            made += 1;
            let f = d.outcome.frontier.first();
            let mut code = f.map_or("", |f| f.code).to_owned();
            if !d.repairs.iter().any(|r| r.grade.is_some()) {
                code += "*";
            }
            if verbose {
                println!(
                    "{} | {} | {} | {code} | {}",
                    op.name,
                    p.0,
                    m.text,
                    f.map_or("", |f| &f.reason)
                );
            }
            *codes.entry(code).or_default() += 1;
        }
        let mut v: Vec<(String, usize)> = codes.into_iter().collect();
        v.sort_by_key(|x| std::cmp::Reverse(x.1));
        let t: Vec<String> = v.iter().map(|x| format!("{} {}", x.1, x.0)).collect();
        println!("{:26} {}", op.name, t.join(", "));
    }
    Ok(())
}

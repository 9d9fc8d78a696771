//! `scalify-mutate`: mutates proved pairs and checks verdicts against values.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use scalify_mutate::campaign::{self, Config, End, Watch};
use scalify_mutate::{cases, draw, operators, table};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Mutates proved pairs; a mutant that differs must not be PROVED, one that
/// does not must not be REFUTED. Exit code 1 if one is.
#[derive(Parser)]
#[command(name = "scalify-mutate")]
struct Args {
    /// Folders of pairs, of partitioners' records or of pipelines (default:
    /// tests/corpus/hand, tests/pairs, examples).
    dirs: Vec<PathBuf>,
    /// Number of mutants.
    #[arg(long, short = 'n', default_value_t = 1000)]
    mutants: usize,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draws of inputs per pair.
    #[arg(long, default_value_t = draw::KINDS.len())]
    draws: usize,
    /// Worker threads, 0: one per core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Seconds after which the campaign ends.
    #[arg(long)]
    time_limit: Option<u64>,
    /// At most so many pairs, evenly chosen.
    #[arg(long)]
    pairs: Option<usize>,
    /// Only pairs whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only operators whose name contains this.
    #[arg(long, default_value = "")]
    operator: String,
    /// Look for no counterexamples of what is not proved.
    #[arg(long)]
    no_refute: bool,
    /// Folder for mutants that end badly.
    #[arg(long, default_value = "target/mutants")]
    evidence: PathBuf,
    /// Puts the table into this document.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "docs/MUTATION.md")]
    write: Option<PathBuf>,
    /// One line per mutant; twice: also pairs left out.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Lists the operators.
    #[arg(long)]
    list: bool,
}

struct Bar(ProgressBar);

static STOP: AtomicBool = AtomicBool::new(false);

impl Watch for Bar {
    fn phase(&self, name: &str, n: usize) {
        self.0.reset();
        self.0.set_length(n as u64);
        self.0.set_message(name.to_owned());
    }

    fn step(&self) {
        self.0.inc(1);
    }

    fn stop(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

#[allow(clippy::print_stdout)]
fn main() -> anyhow::Result<()> {
    let a = Args::parse();
    if a.list {
        for o in operators::all() {
            println!("{:30} {}", o.name, o.about);
        }
        return Ok(());
    }
    let dirs = if a.dirs.is_empty() {
        ["tests/corpus/hand", "tests/pairs", "examples"].map(PathBuf::from).to_vec()
    } else {
        a.dirs.clone()
    };
    let mut sources = Vec::new();
    for d in &dirs {
        sources.extend(cases::sources(d)?);
    }
    sources.retain(|s| s.name.contains(&a.only));
    if let Some(n) = a.pairs {
        sources = cases::some(sources, n);
    }
    let c = Config {
        mutants: a.mutants,
        seed: a.seed,
        draws: a.draws,
        threads: a.threads,
        time_limit: a.time_limit.map(Duration::from_secs),
        operator: a.operator.clone(),
        refute: !a.no_refute,
        ..Config::default()
    };
    let bar = Bar(ProgressBar::new(0));
    if let Ok(s) = ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {eta}") {
        bar.0.set_style(s);
    }
    // The first interruption ends the campaign, the second the program.
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    let r = campaign::run(&sources, &c, &bar);
    bar.0.finish_and_clear();
    if a.verbose > 1 {
        for (n, e) in &r.skipped {
            println!("left out {n}: {e}");
        }
    }
    for (n, e) in &r.originals {
        println!("ORIGINAL DIFFERS {n}: {e}");
    }
    let mut bad = r.originals.len();
    for x in &r.records {
        if x.end.bad() || a.verbose > 0 {
            println!("{} {:?} {} {} {:?}: {}", x.number, x.end, x.operator, x.pair, x.side, x.text);
        }
        if x.end.bad() {
            bad += 1;
            table::save(&a.evidence, x)?;
        }
    }
    let mut command = format!("scalify-mutate -n {} --seed {}", a.mutants, a.seed);
    for (k, v) in [("only", &a.only), ("operator", &a.operator)] {
        if !v.is_empty() {
            command.push_str(&format!(" --{k} {v}"));
        }
    }
    let t = table::markdown(&r, &command);
    println!("{t}");
    println!("{} pairs left out, {:.0} s", r.skipped.len(), r.seconds);
    if let Some(f) = &a.write {
        let text = std::fs::read_to_string(f).unwrap_or_default();
        std::fs::write(f, table::splice(&text, &t))?;
    }
    let assumed = r.records.iter().filter(|x| x.end == End::Assumed).count();
    if assumed > 0 && a.verbose == 0 {
        println!("{assumed} proved under the assumption of finite values (-v lists them)");
    }
    if bad > 0 {
        println!("{bad} bad, see {}", a.evidence.display());
        std::process::exit(1);
    }
    Ok(())
}

//! `scalify reduce`: the smallest programs that still fail in the same way.

use crate::numeric::{ProgramArgs, save_text};
use crate::{Exit, input, output};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use scalify_claim::Claim;
use scalify_prove::outcome::Verdict;
use scalify_prove::problem;
use scalify_reduce::check::{Different, Refuted};
use scalify_reduce::{Check, State, Watch, reduce};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Failure {
    /// `verify` refutes, and blames the same kind of fault
    Verify,
    /// `diff` finds the same kind of error
    Diff,
}

#[derive(Args)]
#[command(
    after_help = "The folder with the result is on the last line, also after Ctrl-C.\nExit codes: 0 reduced as far as it goes or until stopped, 2 bad usage or input, 3 the programs do not fail to begin with"
)]
pub(crate) struct ReduceArgs {
    /// The program, or the baseline of a pair: HLO text or proto
    base: PathBuf,
    /// The other program of the pair
    dist: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramArgs,
    /// What counts as failing, for a pair; else `verify`, and `diff` if that
    /// does not fail
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "test")]
    failure: Option<Failure>,
    /// A shell command that gets the file (or both) as last arguments and exits
    /// with 0 if they still fail
    #[arg(long, value_name = "COMMAND")]
    test: Option<String>,
    /// Time of one run of the command
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "60s")]
    test_time: Duration,
    /// Time of one verification or comparison
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "20s")]
    check_time: Duration,
    /// Time of the whole reduction
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    time_limit: Option<Duration>,
    /// Folder for the result; it must be empty or not exist
    #[arg(short, long, value_name = "DIR", default_value = "reduced")]
    output: PathBuf,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

/// A command of the user's.
struct Shell {
    command: String,
    dir: PathBuf,
    time: Duration,
    stop: Arc<AtomicBool>,
}

impl Shell {
    fn run(&self, s: &State) -> anyhow::Result<bool> {
        let mut files = Vec::new();
        for (m, name) in s.modules.iter().zip(names(s.modules.len())) {
            let path = self.dir.join(name);
            save_text(&path, &text(m))?;
            files.push(path);
        }
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{} \"$@\"", self.command))
            .arg("sh")
            .args(&files)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sh")?;
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                return Ok(status.success());
            }
            if start.elapsed() > self.time || self.stop.load(Ordering::Relaxed) {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(false);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

impl Check for Shell {
    fn fails(&mut self, s: &State) -> bool {
        self.run(s).unwrap_or(false)
    }
}

fn names(n: usize) -> &'static [&'static str] {
    if n == 1 { &["module.hlo.txt"] } else { &["base.hlo.txt", "dist.hlo.txt"] }
}

fn text(m: &scalify_ir::Module) -> String {
    scalify_hlo::write(m, &scalify_hlo::WriteOptions::default())
}

/// Writes the state; files appear whole.
fn save(dir: &Path, s: &State) -> anyhow::Result<()> {
    for (m, name) in s.modules.iter().zip(names(s.modules.len())) {
        save_text(&dir.join(name), &text(m))?;
    }
    if s.modules.len() > 1 {
        let spec = serde_json::to_string_pretty(&scalify_witness::spec_file(&s.claim))?;
        save_text(&dir.join("spec.json"), &(spec + "\n"))?;
    }
    Ok(())
}

/// Says what happens, keeps the best state on disk.
struct Say<'a> {
    dir: &'a Path,
    stop: Arc<AtomicBool>,
    first: usize,
    loud: bool,
    line: bool,
    tried: usize,
    failed: Option<anyhow::Error>,
}

impl Watch for Say<'_> {
    fn smaller(&mut self, s: &State, what: &str) {
        if let Err(e) = save(self.dir, s) {
            self.failed.get_or_insert(e);
        }
        if self.loud {
            let end = if self.line { "\x1b[K" } else { "\n" };
            let start = if self.line { "\r" } else { "" };
            let (now, first, tried) = (s.size(), self.first, self.tried);
            output::stderr(&format!(
                "{start}{now} of {first} instructions, {tried} tried: {what}{end}"
            ));
        }
    }

    fn tried(&mut self, tried: usize) -> bool {
        self.tried = tried;
        self.failed.is_some() || self.stop.load(Ordering::Relaxed)
    }
}

pub(crate) fn run(a: &ReduceArgs) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        a.program.inputs.is_empty(),
        "--inputs: inputs are drawn; expected none, or a --test command that has its own"
    );
    let claim = a.program.claim()?;
    let modules = match &a.dist {
        Some(d) => {
            let (x, y) = input::load_both(&a.base, d)?;
            vec![x, y]
        }
        None => vec![input::load_valid(&a.base)?],
    };
    anyhow::ensure!(
        modules.len() == 2 || a.test.is_some(),
        "one program does not fail by itself: expected a second one, or --test COMMAND"
    );
    empty(&a.output)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // A second handler in one process is refused; the first one serves.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    let state = State { modules, claim };
    let (mut check, what): (Box<dyn Check>, String) = match &a.test {
        Some(t) => {
            let dir = a.output.join("candidate");
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            let shell = Shell { command: t.clone(), dir, time: a.test_time, stop: stop.clone() };
            if !shell.run(&state)? {
                clean(&a.output);
                output::stderr("the command does not exit with 0 on the programs as they are\n");
                return Ok(Exit::Unknown);
            }
            (Box::new(shell), format!("`{t}` exits with 0"))
        }
        None => match failure(a, &state) {
            Some(f) => f,
            None => {
                output::stderr("the programs do not differ, as far as verify and diff can tell\n");
                return Ok(Exit::Unknown);
            }
        },
    };
    std::fs::create_dir_all(&a.output)
        .with_context(|| format!("cannot create {}", a.output.display()))?;
    save(&a.output, &state)?;
    let first = state.size();
    let mut say = Say {
        dir: &a.output,
        stop,
        first,
        loud: !a.quiet,
        line: std::io::stderr().is_terminal(),
        tried: 0,
        failed: None,
    };
    let r = reduce(state, check.as_mut(), &mut say, a.time_limit);
    if say.loud && say.line {
        output::stderr("\r\x1b[K");
    }
    if let Some(e) = say.failed {
        return Err(e);
    }
    let _ = std::fs::remove_dir_all(a.output.join("candidate"));
    save(&a.output, &r.state)?;
    let mut dir = a.output.clone();
    if let Some(w) = witness(a, &r.state)? {
        dir = w;
    }
    output::stdout(&format!(
        "{} of {first} instructions are left, {} states tried{}: {what}\n{}\n",
        r.state.size(),
        r.tried,
        if r.stopped { ", stopped" } else { "" },
        dir.display()
    ))?;
    Ok(Exit::Success)
}

/// What fails about a pair.
fn failure(a: &ReduceArgs, s: &State) -> Option<(Box<dyn Check>, String)> {
    if a.failure != Some(Failure::Diff) {
        let mut r = Refuted { code: None, time: a.check_time, seed: a.program.seed };
        let d = r.decide(s)?;
        if d.outcome.verdict == Verdict::Refuted && d.reduced.is_none() {
            r.code = Refuted::code_of(&d);
            let code = r.code.map(|c| format!(", fault {c}")).unwrap_or_default();
            return Some((Box::new(r), format!("verify refutes{code}")));
        }
    }
    if a.failure != Some(Failure::Verify) {
        let options = scalify_diff::diff::Options {
            seed: a.program.seed,
            search: a.check_time,
            prove: a.check_time,
            compare: a.check_time,
            ..Default::default()
        };
        if let Some(kind) = Different::kind_of(s, &options) {
            let word = match kind {
                scalify_diff::analyze::Kind::Precision => "precision",
                _ => "another function",
            };
            return Some((Box::new(Different { kind, options }), format!("diff finds {word}")));
        }
    }
    None
}

/// A pair that verify refutes is saved as a witness, with inputs.
fn witness(a: &ReduceArgs, s: &State) -> anyhow::Result<Option<PathBuf>> {
    let [base, dist] = &s.modules[..] else { return Ok(None) };
    if a.test.is_some() || a.failure == Some(Failure::Diff) {
        return Ok(None);
    }
    let r = Refuted { code: None, time: a.check_time, seed: a.program.seed };
    let Some(d) = r.decide(s) else { return Ok(None) };
    let Some(c) = &d.counterexample else { return Ok(None) };
    let p = problem::setup(base, dist, &s.claim);
    let claim: &Claim = &s.claim;
    let dir = a.output.join("witness");
    let none = PathBuf::new();
    let (base_file, dist_file) =
        (a.base.display().to_string(), a.dist.as_ref().unwrap_or(&none).display().to_string());
    let w = scalify_witness::Witness {
        base,
        dist,
        base_file: &base_file,
        dist_file: &dist_file,
        claim,
        problem: &p,
        example: c,
        seed: a.program.seed,
    };
    scalify_witness::save(&dir, &w)?;
    Ok(Some(dir))
}

/// Only an empty folder is written to.
fn empty(dir: &Path) -> anyhow::Result<()> {
    match std::fs::read_dir(dir) {
        Ok(mut e) => {
            anyhow::ensure!(
                e.next().is_none(),
                "{} is not empty: expected a new folder (-o DIR)",
                dir.display()
            );
            Ok(())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| format!("cannot open {}", dir.display())),
    }
}

/// Takes away what was made before the first test.
fn clean(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir.join("candidate"));
    let _ = std::fs::remove_dir(dir);
}

//! Command-line arguments.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(
    name = "scalify",
    version,
    about = "Proves or refutes that a distributed HLO program computes the same function as its single-device baseline",
    after_help = "Exit codes: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Prove or refute that DIST computes the same function as BASE
    Verify(Box<VerifyArgs>),
    /// Evaluate the witness in a folder that `verify --witness` wrote
    Replay(ReplayArgs),
    /// Write a page that shows one module, two side by side, or all passes of a dump
    View(Box<crate::view::ViewArgs>),
    /// Find the compiler pass that changes what a program computes
    Bisect(Box<crate::bisect::BisectArgs>),
    /// Run a module on the reference interpreter
    Run(Box<RunArgs>),
    /// Show what a module holds: signature, meshes, opcodes, collectives, sources
    Inspect(InspectArgs),
    /// Read a module and write it in another format
    Convert(ConvertArgs),
    /// Compare two files of tensors, expected and actual
    Compare(Box<crate::compare::CompareArgs>),
    /// Judge a report of `compare` under other tolerances
    Recheck(Box<crate::recheck::RecheckArgs>),
    /// Compare two programs operation by operation, in their own types
    Diff(Box<crate::diff::DiffArgs>),
    /// Find where NaN and infinities begin
    NanTrace(Box<crate::nan_trace::NanTraceArgs>),
    /// Find the smallest programs that still fail in the same way
    Reduce(Box<crate::reduce::ReduceArgs>),
    /// Compare the gradients that a program returns with finite differences, and
    /// prove them equal to the derivative
    Gradcheck(Box<crate::gradcheck::GradcheckArgs>),
    /// Show what a module costs, and what a profiler's trace says it took
    Profile(Box<crate::profile::ProfileArgs>),
    /// Rewrite a module so that it reports values that are not finite
    Instrument(Box<crate::instrument::InstrumentArgs>),
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal and NO_COLOR is not set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// The single-device program: HLO text or proto, may be compressed
    pub(crate) base: PathBuf,
    /// The distributed program
    #[arg(required_unless_present = "distributed")]
    pub(crate) dist: Option<PathBuf>,
    /// A stage of a pipeline, in order (repeats): all stages together are the
    /// distributed program
    #[arg(long, value_name = "FILE", conflicts_with = "dist")]
    pub(crate) distributed: Vec<PathBuf>,
    /// Input of a stage and the output of another that it takes, e.g.
    /// '1:x=0:#0'; else by channel or position
    #[arg(long, value_name = "INPUT=OUTPUT", requires = "distributed")]
    pub(crate) link: Vec<String>,
    /// Output of a stage that is an output of the pipeline, in order, e.g. 1:#0;
    /// else all that no stage takes
    #[arg(long, value_name = "OUTPUT", requires = "distributed")]
    pub(crate) result: Vec<String>,
    /// Device mesh, major axis first, e.g. dp=2,tp=4
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// Layout of an input, e.g. '#0=P(None, "tp")' or 'params.wq=P("tp")'
    #[arg(long = "in", value_name = "INPUT=SPEC")]
    pub(crate) inputs: Vec<String>,
    /// Layout of an output, e.g. '#0=P("dp")'
    #[arg(long = "out", value_name = "OUTPUT=SPEC")]
    pub(crate) outputs: Vec<String>,
    /// Range of an integer input, e.g. 'tokens in [0, 31999]'
    #[arg(long, value_name = "INPUT in [LO, HI]")]
    pub(crate) assume: Vec<String>,
    /// Baseline input and the distributed input that stands for it
    #[arg(long, value_name = "BASE=DIST")]
    pub(crate) pair: Vec<String>,
    /// Spec file (TOML or JSON, see docs/SPEC.md); options override it
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// Write a JSON report (see docs/JSON.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: how every distributed instruction stands to the baseline
    #[arg(long, requires = "json")]
    pub(crate) relations: bool,
    /// Show how the relation of a distributed instruction was found
    #[arg(long, value_name = "INSTRUCTION")]
    pub(crate) explain: Option<String>,
    /// Worker threads, 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Stop after this wall time and report what is known, e.g. 30s, 5m, 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Stop at this use of memory and report what is known, e.g. 4G, 500M
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Lift big programs whole, too: parts that repeat themselves are else
    /// proved once, as a lemma
    #[arg(long)]
    pub(crate) no_memo: bool,
    /// Where source files are looked up (may repeat)
    #[arg(long, value_name = "DIR")]
    pub(crate) source_root: Vec<PathBuf>,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
    /// List every output and frontier item
    #[arg(long)]
    pub(crate) all: bool,
    /// Verdict only, no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) reports: crate::reports::ReportArgs,
    #[command(flatten)]
    pub(crate) refute: RefuteArgs,
}

/// What to do where there is no proof.
#[derive(Args)]
#[command(next_help_heading = "Refutation")]
pub(crate) struct RefuteArgs {
    #[command(flatten)]
    pub(crate) limits: RefuteLimits,
    /// Evaluate proved programs too
    #[arg(long, conflicts_with = "no_refute")]
    pub(crate) cross_check: bool,
    /// Save inputs on which the programs differ, both programs, and a script
    /// that runs them in XLA, in this new folder
    #[arg(long, value_name = "DIR", conflicts_with = "no_refute")]
    pub(crate) witness: Option<PathBuf>,
}

/// Limits of the search for inputs on which the programs differ.
#[derive(Args)]
#[command(next_help_heading = "Refutation")]
pub(crate) struct RefuteLimits {
    /// Prove only: do not look for inputs on which the programs differ; proofs
    /// under assumptions are tried on two all the same
    #[arg(long)]
    pub(crate) no_refute: bool,
    /// Time for that search
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub(crate) refute_time: Duration,
    /// Inputs drawn at most
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) samples: usize,
    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time to look for a repair of a refuted program
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) repair_time: Duration,
    /// Do not look for a repair
    #[arg(long)]
    pub(crate) no_repair: bool,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 no difference, 1 the difference is there, 2 bad usage or input"
)]
pub(crate) struct ReplayArgs {
    /// The folder
    pub(crate) dir: PathBuf,
    /// Wall time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) time_limit: Duration,
    /// Memory for the values of one evaluation, e.g. 4G
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

#[derive(Args)]
#[command(after_help = "Exit codes: 0 done, 2 bad usage or input, or the program cannot be run")]
pub(crate) struct RunArgs {
    /// HLO text or proto, may be compressed
    pub(crate) module: PathBuf,
    /// Inputs (npz, safetensors, npy) by name, else `#0` or `arr_0` by
    /// position; `x@0`, `x@1`, .. are the values of each device (may repeat)
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Draw the inputs that no file has: standard normal, integers in the range
    /// of what they index
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Number of devices, if the module does not say
    #[arg(long, value_name = "N")]
    pub(crate) devices: Option<u32>,
    /// Device mesh, major axis first, e.g. dp=2,tp=4
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// Layout of an input: each device takes its block of the array, e.g.
    /// 'x=P(None, "tp")'
    #[arg(long = "in", value_name = "INPUT=SPEC")]
    pub(crate) inputs_specs: Vec<String>,
    /// Layout of an output: the blocks of the devices are joined
    #[arg(long = "out", value_name = "OUTPUT=SPEC")]
    pub(crate) output_specs: Vec<String>,
    /// Range of a drawn integer input, e.g. 'tokens in [0, 31999]'
    #[arg(long, value_name = "INPUT in [LO, HI]")]
    pub(crate) assume: Vec<String>,
    /// Write the outputs (npz, safetensors, npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) outputs: Option<PathBuf>,
    /// Evaluate all floats in f64, without rounding to their types
    #[arg(long)]
    pub(crate) f64: bool,
    /// Write every intermediate value as `instruction@device` (npz,
    /// safetensors), or one row of facts about each (jsonl)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Wall time, e.g. 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) time_limit: Option<Duration>,
    /// Memory for values, e.g. 4G
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) memory_limit: Option<u64>,
}

#[derive(Args)]
pub(crate) struct InspectArgs {
    /// HLO text or proto, may be compressed
    pub(crate) file: PathBuf,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Format of a written module.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModuleFormat {
    /// HLO text
    Text,
    /// HloModuleProto
    Proto,
}

#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// HLO text or proto, may be compressed
    pub(crate) input: PathBuf,
    /// File to write, `-` for standard output
    pub(crate) output: PathBuf,
    /// Format to write; else by the ending: .pb is proto, anything else text
    #[arg(long, value_enum)]
    pub(crate) to: Option<ModuleFormat>,
}

/// Splits `1.5G` into number and unit.
fn number(text: &str) -> Result<(f64, &str), String> {
    let t = text.trim();
    let end = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (n, unit) = t.split_at(end);
    match n.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok((v, unit.trim())),
        _ => Err("expected a number with a unit".into()),
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (n, unit) = number(text)?;
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected the unit ms, s, m or h".into()),
    };
    Duration::try_from_secs_f64(n * scale).map_err(|e| e.to_string())
}

/// A positive number with an optional decimal prefix: `312T`, `2.04e12`, `900G`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let t = text.trim();
    let scale = match t.chars().last() {
        Some('k' | 'K') => 1e3,
        Some('M') => 1e6,
        Some('G') => 1e9,
        Some('T') => 1e12,
        Some('P') => 1e15,
        _ => 1.0,
    };
    let digits = if scale == 1.0 { t } else { t.get(..t.len() - 1).unwrap_or("") };
    match digits.trim().parse::<f64>() {
        Ok(v) if v.is_finite() && v > 0.0 && (v * scale).is_finite() => Ok(v * scale),
        _ => Err("expected a positive number, may end with k, M, G, T or P".into()),
    }
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (n, unit) = number(text)?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("expected the unit K, M, G or T".into()),
    };
    let v = n * (1u64 << shift) as f64;
    if v < u64::MAX as f64 { Ok(v as u64) } else { Err("too much".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn units() {
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert!(duration("x").is_err() && duration("3d").is_err() && duration("1e9").is_err());
        assert!(duration("99999999999999999999999").is_err());
        assert_eq!(
            (rate("312T"), rate("2.5e9"), rate("900 G")),
            (Ok(312e12), Ok(2.5e9), Ok(900e9))
        );
        assert!(
            rate("").is_err() && rate("-1T").is_err() && rate("inf").is_err() && rate("µ").is_err()
        );
        assert_eq!(bytes("4G"), Ok(4 << 30));
        assert_eq!(bytes("1.5MiB"), Ok(3 << 19));
        assert_eq!(bytes("10"), Ok(10));
        assert!(bytes("10X").is_err() && bytes("").is_err());
        assert!(bytes("99999999999T").is_err());
    }
}

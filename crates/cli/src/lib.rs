//! The command line of Scalify.
//!
//! **What lives here:** arguments, reading and writing of files, exit codes,
//! progress.
//!
//! **What may not:** verification (`scalify-prove`) and the layout of reports
//! (`scalify-report`).

mod args;
mod bisect;
mod compare;
mod convert;
mod diff;
mod explain;
mod gradcheck;
mod input;
mod inspect;
mod instrument;
mod nan_trace;
mod numeric;
mod output;
mod profile;
mod progress;
mod recheck;
mod reduce;
mod replay;
mod reports;
mod run;
mod stages;
mod table;
mod verify;
mod view;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::IsTerminal;

/// How the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Proved, or the command did its work: 0.
    Success,
    /// Refuted: 1.
    Refuted,
    /// Bad usage, unreadable or malformed input: 2.
    Error,
    /// Neither proved nor refuted: 3.
    Unknown,
}

impl Exit {
    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Refuted => 1,
            Exit::Error => 2,
            Exit::Unknown => 3,
        }
    }
}

/// Runs the program with `args` (the first is the program's name).
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(args) {
        Ok(c) => c,
        Err(e) => {
            // Help and version come as errors that are no errors.
            let ok = !e.use_stderr();
            let text = e.render();
            let styled = if ok { std::io::stdout().is_terminal() } else { output::stderr_color() };
            let text = if styled { text.ansi().to_string() } else { text.to_string() };
            return if ok {
                output::finish(output::stdout(&text), Exit::Success)
            } else {
                output::stderr(&text);
                Exit::Error
            };
        }
    };
    let result = match &cli.command {
        Command::Verify(a) => verify::run(a),
        Command::View(a) => view::run(a),
        Command::Bisect(a) => bisect::run(a),
        Command::Replay(a) => replay::run(a),
        Command::Run(a) => run::run(a),
        Command::Inspect(a) => inspect::run(a),
        Command::Convert(a) => convert::run(a),
        Command::Compare(a) => compare::run(a),
        Command::Recheck(a) => recheck::run(a),
        Command::Diff(a) => diff::run(a),
        Command::NanTrace(a) => nan_trace::run(a),
        Command::Reduce(a) => reduce::run(a),
        Command::Gradcheck(a) => gradcheck::run(a),
        Command::Profile(a) => profile::run(a),
        Command::Instrument(a) => instrument::run(a),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "scalify", &mut text);
            output::stdout(&String::from_utf8_lossy(&text)).map(|()| Exit::Success)
        }
    };
    match result {
        Ok(exit) => exit,
        Err(e) => output::fail(&e),
    }
}

//! `convert IN OUT`: writes HLO text if OUT ends in `.txt` or `.hlo`, else an
//! HloModuleProto.

#![allow(clippy::print_stderr)]

use scalify_load::{LoadError, SaveFormat, load, save};
use std::process::ExitCode;

fn run(input: &str, output: &str) -> Result<(), LoadError> {
    let text = output.ends_with(".txt") || output.ends_with(".hlo");
    let format = if text { SaveFormat::HloText } else { SaveFormat::HloModuleProto };
    save(&load(input)?.module, output, format)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = args.as_slice() else {
        eprintln!("usage: convert IN OUT");
        return ExitCode::from(2);
    };
    match run(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

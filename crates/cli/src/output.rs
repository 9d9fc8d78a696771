//! Writing to the terminal. A reader that closed its end is no error.

use crate::Exit;
use crate::args::Color;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Writes to standard output.
///
/// # Errors
/// Any error but a broken pipe.
pub(crate) fn stdout(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())
}

/// See [`stdout`].
///
/// # Errors
/// Any error but a broken pipe.
pub(crate) fn bytes(b: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(b).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(e).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error; nothing can be done if that fails.
pub(crate) fn stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Reports an error.
pub(crate) fn fail(e: &anyhow::Error) -> Exit {
    // Rendered parse errors come with their own head.
    let text = match e.downcast_ref::<crate::input::Rendered>() {
        Some(r) => format!("{}\n", r.0.trim_end()),
        None => format!("error: {}\n", chain(e)),
    };
    stderr(&text);
    Exit::Error
}

/// An error and its causes; a cause that the message before it ends with is
/// not said twice.
fn chain(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// `exit` if writing worked.
pub(crate) fn finish(written: anyhow::Result<()>, exit: Exit) -> Exit {
    match written {
        Ok(()) => exit,
        Err(e) => fail(&e),
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Colours on standard output?
pub(crate) fn stdout_color(c: Color) -> bool {
    match c {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => wanted() && io::stdout().is_terminal(),
    }
}

/// Colours on standard error?
pub(crate) fn stderr_color() -> bool {
    wanted() && io::stderr().is_terminal()
}

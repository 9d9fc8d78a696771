//! The program as tests start it, from the repository's root.

#![allow(dead_code)] // each test takes what it needs

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Repository root; tests run there so that recorded paths resolve.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn scalify(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scalify"))
        .args(args)
        .current_dir(root())
        .env_remove("NO_COLOR")
        .output()
        .expect("the program starts")
}

pub(crate) fn out(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

pub(crate) fn err(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

pub(crate) fn code(o: &Output) -> i32 {
    o.status.code().unwrap_or(-1)
}

//! Prints the cost of one execution of modules, each loop once, as JSON lines:
//! `{"file", "flops", "transcendentals", "bytes", "custom_calls"}`.
//!
//! usage: cost FILE.. (or file names on standard input)

use std::io::BufRead as _;
use std::path::Path;

#[allow(clippy::print_stdout)]
fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        files = std::io::stdin().lock().lines().map_while(Result::ok).collect();
    }
    for f in files {
        let line = match scalify_load::load(Path::new(&f)) {
            Ok(l) => {
                let c = scalify_profile::cost::ModuleCost::new(&l.module);
                serde_json::json!({"file": f, "flops": c.once.flops,
                    "transcendentals": c.once.transcendentals, "bytes": c.once.bytes(),
                    "custom_calls": c.custom_calls})
            }
            Err(e) => serde_json::json!({"file": f, "error": e.to_string()}),
        };
        println!("{line}");
    }
}

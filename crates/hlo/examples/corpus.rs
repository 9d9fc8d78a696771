//! Reads every HLO text below the given folders and says which were refused.
//!
//! `corpus [--write OUT] DIR...`; with `--write` each module that was read is
//! written to `OUT/<n>.hlo.txt`, with a list of sources in `OUT/index.txt`.
#![allow(clippy::print_stdout)]

use std::io::Read;
use std::path::{Path, PathBuf};

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut v: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    v.sort();
    for p in v {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if p.is_dir() {
            walk(&p, out);
        } else if [".hlo", ".txt"].iter().any(|e| name.trim_end_matches(".gz").ends_with(e)) {
            out.push(p);
        }
    }
}

fn load(p: &Path) -> Option<String> {
    let bytes = std::fs::read(p).ok()?;
    if p.extension().is_some_and(|e| e == "gz") {
        let mut s = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut s).ok()?;
        return String::from_utf8(s).ok();
    }
    String::from_utf8(bytes).ok()
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = None;
    if args.first().is_some_and(|a| a == "--write") && args.len() > 1 {
        out = Some(PathBuf::from(args.remove(1)));
        args.remove(0);
    }
    let mut files = Vec::new();
    for a in &args {
        let p = PathBuf::from(a);
        if p.is_dir() { walk(&p, &mut files) } else { files.push(p) }
    }
    let (mut read, mut unstable, mut bytes) = (0, 0, 0usize);
    let mut refused = Vec::new();
    let mut index = String::new();
    for (n, p) in files.iter().enumerate() {
        let Some(text) = load(p) else { continue };
        match scalify_hlo::parse(&text) {
            Err(e) => refused.push(format!("{}\t{e}", p.display())),
            Ok(m) => {
                read += 1;
                bytes += text.len();
                let opts = scalify_hlo::WriteOptions::default();
                let once = scalify_hlo::write(&m, &opts);
                match scalify_hlo::parse(&once) {
                    Err(e) => {
                        unstable += 1;
                        println!("{}: own output refused: {e}", p.display());
                    }
                    Ok(m) => {
                        if scalify_hlo::write(&m, &opts) != once {
                            unstable += 1;
                            println!("{}: writing is no fixed point", p.display());
                        }
                    }
                }
                if let Some(dir) = &out {
                    let _ = std::fs::write(dir.join(format!("{n}.hlo.txt")), &once);
                    index.push_str(&format!("{n}\t{}\n", p.display()));
                }
            }
        }
    }
    if let Some(dir) = &out {
        let _ = std::fs::write(dir.join("index.txt"), index);
    }
    println!("files   {}", files.len());
    println!("read    {read} ({bytes} bytes)");
    println!("refused {}", refused.len());
    println!("own output refused or unstable {unstable}");
    for r in refused {
        println!("{r}");
    }
}

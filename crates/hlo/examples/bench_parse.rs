//! Reads each file again and again and prints the best speed.
//!
//! `bench_parse [--json] FILE...`
#![allow(clippy::print_stdout)]

use std::io::Read;
use std::time::Instant;

fn load(p: &str) -> Option<String> {
    let bytes = std::fs::read(p).ok()?;
    if !p.ends_with(".gz") {
        return String::from_utf8(bytes).ok();
    }
    let mut s = String::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut s).ok()?;
    Some(s)
}

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let json = files.first().is_some_and(|f| f == "--json");
    if json {
        files.remove(0);
    }
    for f in &files {
        let Some(text) = load(f) else { continue };
        let mut best = f64::INFINITY;
        let mut instrs = 0;
        let begin = Instant::now();
        for round in 0.. {
            let t = Instant::now();
            let m = scalify_hlo::parse(&text);
            best = best.min(t.elapsed().as_secs_f64());
            instrs = m.map_or(0, |m| m.instrs.len());
            if round >= 4 && begin.elapsed().as_secs_f64() > 0.5 {
                break;
            }
        }
        if json {
            println!("{{\"file\":{f:?},\"bytes\":{},\"seconds\":{best:e}}}", text.len());
        } else {
            let mb = text.len() as f64 / 1e6;
            let ns = best * 1e9 / instrs.max(1) as f64;
            println!("{:8.1} MB/s {ns:7.0} ns/instruction {mb:7.2} MB  {f}", mb / best);
        }
    }
}

//! `speed FILE.pb [N]`: best of N decodes and encodes, in MB/s of proto; with a
//! text file as third argument its reader too, for comparison.

#![allow(clippy::print_stdout)]

use std::time::Instant;

fn main() {
    let path = std::env::args().nth(1).expect("a file");
    let n: u32 = std::env::args().nth(2).map_or(5, |n| n.parse().expect("a number"));
    let bytes = std::fs::read(path).expect("a readable file");
    let text = std::env::args().nth(3).map(|p| std::fs::read_to_string(p).expect("text"));
    let mut best = [f64::MAX; 3];
    let mut count = 0;
    for round in 0..n {
        let t = Instant::now();
        let m = scalify_hlo_proto::read(&bytes).expect("a module");
        best[0] = best[0].min(t.elapsed().as_secs_f64());
        count = m.instrs.len();
        if round % 4 == 0 {
            let t = Instant::now();
            std::hint::black_box(scalify_hlo_proto::write(&m));
            best[1] = best[1].min(t.elapsed().as_secs_f64());
        }
        if let Some(text) = &text {
            let t = Instant::now();
            std::hint::black_box(scalify_hlo::parse(text).expect("HLO text"));
            best[2] = best[2].min(t.elapsed().as_secs_f64());
        }
    }
    let mb = bytes.len() as f64 / 1e6;
    println!(
        "{mb:.2} MB, {count} instructions: read {:.1} ms ({:.0} MB/s), write {:.1} ms ({:.0} MB/s)",
        best[0] * 1e3,
        mb / best[0],
        best[1] * 1e3,
        mb / best[1]
    );
    if let Some(text) = &text {
        let mb = text.len() as f64 / 1e6;
        println!("text: {mb:.2} MB, read {:.1} ms ({:.0} MB/s)", best[2] * 1e3, mb / best[2]);
    }
}

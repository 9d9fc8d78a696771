//! `agree [-o DIR] [pb txt]...`: compares what the proto reader and the text
//! reader make of the same modules (`-` for no text), and what a second trip
//! through the writer makes. `-o` stores what the writer makes of pair `n` as
//! `DIR/n.pb`.

#![allow(clippy::print_stdout)]

use scalify_ir::same::{Compare, difference};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = None;
    if args.first().is_some_and(|a| a == "-o") {
        out = args.get(1).cloned();
        args.drain(..2.min(args.len()));
    }
    let (mut good, mut bad) = (0, 0);
    for (i, pair) in args.chunks(2).enumerate() {
        let [pb, txt] = pair else { break };
        let store = out.as_ref().map(|dir| format!("{dir}/{i}.pb"));
        match check(pb, txt, store) {
            Ok(()) => good += 1,
            Err(e) => {
                bad += 1;
                println!("{pb}: {}", e.chars().take(300).collect::<String>());
            }
        }
    }
    println!("{good} agree, {bad} do not");
}

fn check(pb: &str, txt: &str, store: Option<String>) -> Result<(), String> {
    let bytes = std::fs::read(pb).map_err(|e| e.to_string())?;
    let m = scalify_hlo_proto::read(&bytes).map_err(|e| format!("read: {e}"))?;
    let first = scalify_hlo_proto::write(&m);
    if let Some(path) = store {
        std::fs::write(path, &first).map_err(|e| e.to_string())?;
    }
    let again = scalify_hlo_proto::read(&first).map_err(|e| format!("read again: {e}"))?;
    if let Some(d) = difference(&m, &again, Compare::ALL) {
        return Err(format!("write and read: {d}"));
    }
    if scalify_hlo_proto::write(&again) != first {
        return Err("the second write differs".to_owned());
    }
    if txt != "-" {
        let text = std::fs::read_to_string(txt).map_err(|e| e.to_string())?;
        let t = scalify_hlo::parse(&text).map_err(|e| format!("text: {e}"))?;
        let what = Compare { rest: false, ..Compare::ALL };
        if let Some(d) = difference(&m, &t, what) {
            return Err(format!("proto and text: {d}"));
        }
    }
    Ok(())
}

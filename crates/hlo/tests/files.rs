//! Runs the files in `ok/` and `err/`.
//!
//! `ok/x.hlo` must read, its rewriting must be a fixed point, and it must be
//! the same module as `ok/x.xla`: XLA's own print of it (made with jaxlib
//! 0.10.2) or, where XLA does not read the file, the same in a form it reads.
//!
//! `err/x.hlo` must be refused as `err/x.txt` says: `line:column: message`.

use libtest_mimic::{Arguments, Failed, Trial};
use scalify_hlo::{WriteOptions, parse, write};
use scalify_ir::{CompId, Computation, InstrId, Module};
use std::path::{Path, PathBuf};

fn read(p: &Path) -> Result<String, Failed> {
    std::fs::read_to_string(p).map_err(|e| format!("{}: {e}", p.display()).into())
}

fn module(p: &Path) -> Result<Module, Failed> {
    let text = read(p)?;
    let name = p.display().to_string();
    parse(&text).map_err(|e| e.render(&name, &text, false).into())
}

/// Text without what XLA's printer changes: layouts, header defaults, names,
/// order of computations and of unrelated instructions.
fn normal(mut m: Module) -> String {
    m.header.entry_layout = None;
    m.header.is_scheduled = false;
    for c in 0..m.comps.len() {
        m.comps[c].instrs = post_order(&m, &m.comps[c]);
    }
    let mut order = Vec::new();
    number(&m, m.entry, &mut order);
    for (k, c) in order.iter().enumerate() {
        m.comps[c.0 as usize].name = m.strings.intern(&format!("comp{k}"));
        for (j, i) in m.comps[c.0 as usize].instrs.clone().iter().enumerate() {
            m.instrs[i.0 as usize].name = m.strings.intern(&format!("comp{k}.{j}"));
        }
    }
    m.name = m.strings.intern("m");
    let text = write(&m, &WriteOptions { layouts: false, ..WriteOptions::default() });
    let mut blocks: Vec<&str> = text.split("\n\n").collect();
    blocks.sort_unstable();
    blocks.join("\n\n")
}

/// Computations in order of first call.
fn number(m: &Module, c: CompId, out: &mut Vec<CompId>) {
    if out.contains(&c) {
        return;
    }
    out.push(c);
    for &i in &m.comp(c).instrs {
        m.instr(i).calls.iter().for_each(|&c| number(m, c, out));
    }
}

/// Operands first, starting from each instruction without users.
fn post_order(m: &Module, c: &Computation) -> Vec<InstrId> {
    fn visit(m: &Module, i: InstrId, out: &mut Vec<InstrId>) {
        if !out.contains(&i) {
            m.instr(i).operands.iter().for_each(|&o| visit(m, o, out));
            out.push(i);
        }
    }
    let mut out = Vec::new();
    let used: Vec<InstrId> =
        c.instrs.iter().flat_map(|&i| m.instr(i).operands.iter().copied()).collect();
    c.instrs.iter().filter(|i| !used.contains(i)).for_each(|&i| visit(m, i, &mut out));
    out
}

fn ok(p: &Path) -> Result<(), Failed> {
    let m = module(p)?;
    let once = write(&m, &WriteOptions::default());
    let again = parse(&once).map_err(|e| e.render("own output", &once, false))?;
    if write(&again, &WriteOptions::default()) != once {
        return Err(format!("no fixed point:\n{once}").into());
    }
    let (have, want) = (normal(m), normal(module(&p.with_extension("xla"))?));
    if let Some((h, w)) = have.lines().zip(want.lines()).find(|(h, w)| h != w) {
        return Err(format!("have {h}\nwant {w}").into());
    }
    if have.lines().count() != want.lines().count() {
        return Err(format!("have\n{have}\nwant\n{want}").into());
    }
    Ok(())
}

fn err(p: &Path) -> Result<(), Failed> {
    let text = read(p)?;
    let want = read(&p.with_extension("txt"))?;
    match parse(&text) {
        Ok(_) => Err("was read".into()),
        Err(e) if e.to_string() == want.trim_end() => Ok(()),
        Err(e) => Err(format!("want {want}{}", e.render("have", &text, false)).into()),
    }
}

fn trials(dir: &str, run: fn(&Path) -> Result<(), Failed>, out: &mut Vec<Trial>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(dir);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&root)
        .map(|d| d.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    files.retain(|p| p.extension().is_some_and(|e| e == "hlo"));
    files.sort();
    assert!(!files.is_empty(), "no files in {}", root.display());
    for p in files {
        let name = format!("{dir}/{}", p.file_stem().unwrap_or_default().to_string_lossy());
        out.push(Trial::test(name, move || run(&p)));
    }
}

fn main() {
    let args = Arguments::from_args();
    let mut out = Vec::new();
    trials("ok", ok, &mut out);
    trials("err", err, &mut out);
    libtest_mimic::run(&args, out).exit();
}

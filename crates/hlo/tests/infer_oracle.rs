//! Shape inference against XLA's own answers.
//!
//! Each row of `data/infer_xla.tsv`: `ok` and the shape that XLA's parser
//! infers for the root when the text leaves it out, or `err` and why it
//! refuses; then the module, with `\n` for line ends.

use scalify_ir::infer;

/// What is wrong with the row, if anything.
fn judge(row: &str) -> Option<String> {
    let mut f = row.split('\t');
    let (verdict, answer, text) = (f.next()?, f.next()?, f.next()?.replace("\\n", "\n"));
    let m = match scalify_hlo::parse(&text) {
        Ok(m) => m,
        Err(e) => return Some(format!("not read: {e}")),
    };
    let root = m.entry_comp().root;
    let got = match infer(&m, root) {
        Ok(Some(s)) => s.to_string(),
        Ok(None) => "free".to_string(),
        Err(e) => format!("error: {e}"),
    };
    let ok = match verdict {
        "ok" => got == answer,
        _ => got.starts_with("error: "),
    };
    (!ok).then(|| format!("{got}; XLA: {verdict} {answer}\n{text}"))
}

#[test]
fn agrees_with_xla() {
    let path = std::env::var("INFER_ROWS").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/infer_xla.tsv").into()
    });
    let rows = std::fs::read_to_string(path).expect("rows");
    let wrong: Vec<String> =
        rows.lines().filter(|l| !l.starts_with('#')).filter_map(judge).collect();
    let n = rows.lines().count();
    assert!(n > 100, "{n} rows");
    assert!(wrong.is_empty(), "{} of {n} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

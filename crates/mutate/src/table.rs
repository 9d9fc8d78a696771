//! The table of a campaign, and evidence on disk.

use crate::campaign::{End, Record, Report};
use crate::operators;
use scalify_interp::Value;
use std::fmt::Write as _;
use std::path::Path;

/// Begins the part of a document that [`splice`] replaces.
pub const BEGIN: &str = "<!-- table: written by scalify-mutate --write -->";
/// Ends it.
pub const END: &str = "<!-- end of table -->";

/// Markdown: totals and one row per operator.
pub fn markdown(r: &Report, command: &str) -> String {
    let mut s = String::new();
    let of = |e: &[End], v: &[&Record]| v.iter().filter(|r| e.contains(&r.end)).count();
    let row = |name: &str, about: &str, v: &[&Record]| {
        let differ = of(&[End::Killed, End::Refuted, End::FalseProved, End::Vacuous], v);
        format!(
            "| {name} | {} | {differ} | {} | {} | {} | {} | {} | {} | {} | {about} |\n",
            v.len(),
            of(&[End::Killed, End::Refuted], v),
            of(&[End::Refuted], v),
            of(&[End::EqualProved, End::Assumed, End::Coarser], v),
            of(&[End::EqualUnknown], v),
            of(&[End::NoValue], v),
            of(&[End::FalseProved, End::Vacuous, End::ProvedWithoutValue], v),
            of(&[End::FalseRefuted], v),
        )
    };
    let all: Vec<&Record> = r.records.iter().collect();
    let _ = writeln!(
        s,
        "`{command}`: {} mutants of {} pairs, {} operators; **{} false PROVED, {} false REFUTED**.{}\n",
        all.len(),
        r.pairs,
        operators::all().iter().filter(|o| all.iter().any(|x| x.operator == o.name)).count(),
        of(&[End::FalseProved, End::Vacuous, End::ProvedWithoutValue], &all),
        of(&[End::FalseRefuted], &all),
        if r.cut_short { " Cut short." } else { "" },
    );
    s.push_str("| operator | mutants | differ | of these not proved | of these refuted | equal, proved | equal, unknown | not run | false proved | false refuted | edit |\n");
    s.push_str("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n");
    s.push_str(&row("**all**", "", &all));
    for o in operators::all() {
        let v: Vec<&Record> = r.records.iter().filter(|x| x.operator == o.name).collect();
        if !v.is_empty() {
            s.push_str(&row(o.name, o.about, &v));
        }
    }
    let assumed = of(&[End::Assumed], &all);
    if assumed > 0 {
        let _ = writeln!(
            s,
            "\n{assumed} of the equal ones differ on draws where a value is NaN, infinite or beyond an exponential's range; they are proved under the assumption that none is, and agree on the draws where none is."
        );
    }
    let coarser = of(&[End::Coarser], &all);
    if coarser > 0 {
        let _ = writeln!(
            s,
            "\n{coarser} of the equal ones are equal over the reals and lose much more to rounding: a softmax shifted by another value than its maximum, proved under the assumption of finite values."
        );
    }
    s
}

/// Replaces the part of `text` between [`BEGIN`] and [`END`]; appends it if
/// there is none.
pub fn splice(text: &str, table: &str) -> String {
    let body = format!("{BEGIN}\n\n{table}\n{END}");
    match (text.find(BEGIN), text.find(END)) {
        (Some(a), Some(b)) if a < b => {
            format!("{}{body}{}", &text[..a], &text[b + END.len()..])
        }
        _ => format!("{}\n\n{body}\n", text.trim_end()),
    }
}

fn arrays(v: &Value, to: &mut Vec<String>) {
    match v {
        Value::Tensor(t) => {
            let dims: Vec<String> = t.dims.iter().map(i64::to_string).collect();
            let v: Vec<String> = t.to_f64().iter().map(|x| format!("{x:e}")).collect();
            to.push(format!("{}[{}] {}", t.dtype, dims.join(","), v.join(" ")));
        }
        Value::Tuple(v) => v.iter().for_each(|v| arrays(v, to)),
        Value::Token => to.push("token".into()),
    }
}

/// Writes a bad mutant: both modules, the claim, the inputs, what happened.
///
/// # Errors
/// If files cannot be written.
pub fn save(dir: &Path, r: &Record) -> std::io::Result<()> {
    let Some(e) = &r.evidence else { return Ok(()) };
    let dir = dir.join(format!("{:06}-{}", r.number, r.operator));
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("base.hlo"), scalify_hlo::write(&e.base, &Default::default()))?;
    std::fs::write(dir.join("dist.hlo"), scalify_hlo::write(&e.dist, &Default::default()))?;
    let note = format!("{:?}\n{} {:?}\n{}\n\n{:#?}\n", r.end, r.pair, r.side, r.text, e.claim);
    std::fs::write(dir.join("note.txt"), note)?;
    if let Some(i) = &e.inputs {
        let mut lines = Vec::new();
        i.base.iter().for_each(|v| arrays(v, &mut lines));
        std::fs::write(dir.join("inputs.txt"), lines.join("\n") + "\n")?;
    }
    Ok(())
}

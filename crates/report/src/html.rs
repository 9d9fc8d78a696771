//! The verdict as one offline HTML page without scripts.

mod heat;
mod layout;

use crate::sources::Sources;
use crate::{Subject, json, names};
use scalify_page::esc;
use scalify_prove::outcome::Verdict;
use serde_json::Value;
use std::fmt::Write;

/// Rows of a table.
const MAX_ROWS: usize = 400;
/// Frontier items.
const MAX_ITEMS: usize = 10;
/// Lines around a source line.
const CONTEXT: u32 = 3;

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The answer in one sentence.
fn answer(s: &Subject<'_>, r: &Value) -> String {
    match s.decision.outcome.verdict {
        Verdict::Proved => match text(r, "grade") {
            "exact" => "The distributed program computes the baseline's function: the same operations on the same values.".into(),
            "reassociated" => "The distributed program computes the baseline's function over the reals; float sums are grouped differently where listed.".into(),
            _ => "The distributed program computes the baseline's function under the assumptions listed below.".into(),
        },
        Verdict::Refuted => match list(r, "repairs").first() {
            Some(x) => format!("The programs differ; {}.", text(x, "sentence")),
            None => "The programs differ on the inputs below.".into(),
        },
        Verdict::Unknown => match list(r, "frontier").first() {
            Some(f) => format!("Neither proved nor refuted. Look first at %{}: {}.", text(f, "instruction"), text(f, "reason").trim_end_matches('.')),
            None => "Neither proved nor refuted.".into(),
        },
    }
}

/// The page. Evaluates the counterexample again for its heat maps, within
/// seconds and at most 2 GB; without them if that does not do.
///
/// # Errors
/// None in practice; an error of the JSON writer is passed on.
pub fn render(s: &Subject<'_>, sources: &mut Sources) -> Result<String, serde_json::Error> {
    let r: Value = serde_json::from_str(&json::render(s)?)?;
    let verdict = text(&r, "verdict");
    let mut o = String::with_capacity(64 << 10);
    o.push_str(&scalify_page::head(&format!(
        "{} · {}",
        verdict.to_uppercase(),
        text(&r["dist"], "file")
    )));
    let _ = writeln!(o, "<header class=\"{verdict}\">");
    let grade = text(&r, "grade");
    let sign = match verdict {
        "proved" => "✓",
        "refuted" => "✗",
        _ => "?",
    };
    let _ = writeln!(
        o,
        "<h1>{sign} {}{}</h1>\n<p class=\"answer\">{}</p>\n<p class=\"files\"><code>{}</code> against <code>{}</code>{}</p>\n</header>\n<main>",
        verdict.to_uppercase(),
        if grade.is_empty() { String::new() } else { format!(" <small>({grade})</small>") },
        esc(&answer(s, &r)),
        esc(text(&r["dist"], "file")),
        esc(text(&r["base"], "file")),
        mesh(&r),
    );
    fault(&mut o, &r, sources);
    repairs(&mut o, s, &r);
    if s.decision.counterexample.is_some() {
        counterexample(&mut o, s, &r);
    }
    outputs(&mut o, s, &r);
    notes(&mut o, &r);
    time(&mut o, &r);
    o.push_str(scalify_page::TAIL);
    Ok(o)
}

fn mesh(r: &Value) -> String {
    let axes: Vec<String> =
        list(r, "mesh").iter().map(|a| format!("{}={}", esc(text(a, "axis")), a["size"])).collect();
    if axes.is_empty() {
        String::new()
    } else {
        format!(" on mesh <code>{}</code>", axes.join(","))
    }
}

/// Source lines around a frame, the line itself marked.
fn snippet(o: &mut String, f: &Value, sources: &mut Sources) {
    let file = text(f, "file");
    let line = f.get("line").and_then(Value::as_u64).and_then(|l| u32::try_from(l).ok());
    let _ = write!(o, "<p class=\"at\">{}", esc(file));
    if let Some(l) = line {
        let _ = write!(o, ":{l}");
    }
    if !text(f, "function").is_empty() {
        let _ = write!(o, " <small>in {}</small>", esc(text(f, "function")));
    }
    o.push_str("</p>\n");
    let Some(line) = line else { return };
    let lines: Vec<(u32, String)> = (line.saturating_sub(CONTEXT).max(1)
        ..=line.saturating_add(CONTEXT))
        .filter_map(|n| Some((n, sources.line(file, n)?.to_owned())))
        .collect();
    if lines.iter().all(|l| l.0 != line) {
        return;
    }
    o.push_str("<pre>");
    for (n, t) in lines {
        let t: String = t.chars().take(300).collect();
        let class = if n == line { " class=\"here\"" } else { "" };
        let _ = writeln!(o, "<span{class}>{n:5}  {}</span>", esc(&t));
    }
    o.push_str("</pre>\n");
}

fn fault(o: &mut String, r: &Value, sources: &mut Sources) {
    let frontier = list(r, "frontier");
    if text(r, "verdict") == "proved" || frontier.is_empty() {
        return;
    }
    let guilty = list(r, "repairs").first().map(|x| text(x, "instruction"));
    let first = guilty.and_then(|g| frontier.iter().find(|f| text(f, "instruction") == g));
    let first = first.or(frontier.first());
    let Some(f) = first else { return };
    let _ = writeln!(
        o,
        "<section>\n<h2>Where it goes wrong</h2>\n<p><code>%{}</code> = {} <code>{}</code></p>\n<p>{}{}</p>",
        esc(text(f, "instruction")),
        esc(text(f, "opcode")),
        esc(text(f, "shape")),
        esc(text(f, "reason")),
        f.get("expected")
            .and_then(Value::as_str)
            .filter(|e| !text(f, "reason").contains(e))
            .map(|e| format!("; expected {}", esc(e)))
            .unwrap_or_default(),
    );
    for x in list(f, "frames").iter().take(4) {
        snippet(o, x, sources);
    }
    let operands = list(f, "operands");
    if !operands.is_empty() {
        o.push_str("<h3>Its operands</h3>\n<div class=\"row\">\n");
        for x in operands.iter().take(8) {
            let _ = write!(
                o,
                "<figure><figcaption><code>%{}</code><br><small>{}</small></figcaption>",
                esc(text(x, "instruction")),
                esc(text(x, "shape"))
            );
            match x.get("relation").filter(|r| !r.is_null()) {
                Some(rel) => {
                    o.push_str(&layout::picture(rel, list(r, "mesh")));
                    let _ = write!(o, "<p>{}</p>", esc(text(rel, "text")));
                }
                None => o.push_str("<p class=\"faint\">equals no baseline value</p>"),
            }
            o.push_str("</figure>\n");
        }
        o.push_str("</div>\n");
    }
    let rest: Vec<&Value> =
        frontier.iter().filter(|x| !std::ptr::eq(*x, f)).take(MAX_ITEMS).collect();
    if !rest.is_empty() {
        o.push_str("<details><summary>Further instructions without counterpart</summary>\n<ul>\n");
        for x in rest {
            let _ = writeln!(
                o,
                "<li><code>%{}</code> {}: {}</li>",
                esc(text(x, "instruction")),
                esc(text(x, "opcode")),
                esc(text(x, "reason"))
            );
        }
        o.push_str("</ul></details>\n");
    }
    o.push_str("</section>\n");
}

/// Repairs as a difference of the two programs' instructions.
fn repairs(o: &mut String, s: &Subject<'_>, r: &Value) {
    let all = list(r, "repairs");
    if all.is_empty() {
        return;
    }
    o.push_str("<section>\n<h2>Repair</h2>\n");
    for (k, (v, x)) in all.iter().zip(&s.decision.repairs).enumerate().take(4) {
        if k == 1 {
            o.push_str("<details><summary>Other repairs</summary>\n");
        }
        let _ = writeln!(o, "<p>{}</p>", esc(text(v, "sentence")));
        o.push_str(&difference(s, x));
    }
    if all.len() > 1 {
        o.push_str("</details>\n");
    }
    o.push_str("</section>\n");
}

/// Instructions that the repaired module has and the distributed one has not,
/// and the other way round, by what they are and read.
fn difference(s: &Subject<'_>, x: &scalify_refute::Repair) -> String {
    use scalify_ir::{InstrId, Module};
    let line = |m: &Module, k: usize| {
        let id = InstrId(k as u32);
        let i = m.instr(id);
        let ops: Vec<String> =
            i.operands.iter().take(12).map(|q| format!("%{}", names::name(m, *q))).collect();
        format!("%{} = {} {}({})", m.str(i.name), names::shape(m, id), i.opcode, ops.join(", "))
    };
    let lines = |m: &Module| -> Vec<String> { (0..m.instrs.len()).map(|k| line(m, k)).collect() };
    // A repair at reduced sizes is an edit of the reduced program.
    let before = lines(s.dist);
    let after = lines(&x.module);
    let had: std::collections::BTreeSet<&str> = before.iter().map(String::as_str).collect();
    let has: std::collections::BTreeSet<&str> = after.iter().map(String::as_str).collect();
    let gone: Vec<&String> = before.iter().filter(|l| !has.contains(l.as_str())).collect();
    let new: Vec<&String> = after.iter().filter(|l| !had.contains(l.as_str())).collect();
    if gone.len() + new.len() > 24 || gone.len() + new.len() == 0 {
        return String::new();
    }
    let mut o = String::from("<pre class=\"diff\">");
    for l in gone {
        let _ = writeln!(o, "<span class=\"minus\">- {}</span>", esc(l));
    }
    for l in new {
        let _ = writeln!(o, "<span class=\"plus\">+ {}</span>", esc(l));
    }
    o.push_str("</pre>\n");
    o
}

fn number(v: &Value) -> String {
    match v {
        Value::Number(n) => {
            n.as_f64().map_or_else(|| n.to_string(), |x| crate::values::number(x, 6))
        }
        Value::String(t) => esc(t),
        _ => "–".into(),
    }
}

fn counterexample(o: &mut String, s: &Subject<'_>, r: &Value) {
    let c = &r["counterexample"];
    o.push_str("<section>\n<h2>Counterexample</h2>\n");
    if c["reduced"] == Value::Bool(true) {
        o.push_str("<p>Found on the same programs at reduced sizes.</p>\n");
    }
    let _ = writeln!(
        o,
        "<p>Inputs drawn as {}, seed {}.</p>\n<table><tr><th>input</th><th>shape</th><th>min</th><th>max</th><th>mean</th></tr>",
        esc(text(c, "draw")),
        c["seed"]
    );
    for i in list(c, "inputs").iter().take(MAX_ROWS) {
        let _ = writeln!(
            o,
            "<tr><td>#{} {}</td><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            i["index"],
            esc(text(i, "name")),
            esc(text(i, "shape")),
            number(&i["min"]),
            number(&i["max"]),
            number(&i["mean"])
        );
    }
    o.push_str("</table>\n<h3>Outputs that differ</h3>\n<table><tr><th>output</th><th>worst at</th><th>device</th><th>expected</th><th>actual</th><th>rounding explains</th><th>elements</th></tr>\n");
    for d in list(c, "outputs").iter().take(MAX_ROWS) {
        let _ = writeln!(
            o,
            "<tr><td>#{} {}</td><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} of {}</td></tr>",
            d["output"],
            esc(text(d, "name")),
            d["index"],
            d["device"],
            number(&d["expected"]),
            number(&d["actual"]),
            number(&d["bound"]),
            d["differing"],
            d["compared"]
        );
    }
    o.push_str("</table>\n");
    o.push_str(&heat::maps(s));
    o.push_str("</section>\n");
}

fn outputs(o: &mut String, s: &Subject<'_>, r: &Value) {
    let all = list(r, "outputs");
    if all.is_empty() {
        return;
    }
    o.push_str("<section>\n<h2>Outputs</h2>\n<table><tr><th>output</th><th>verdict</th><th>shape on a device</th><th>baseline</th><th>distributed</th><th>relation</th></tr>\n");
    for x in all.iter().take(MAX_ROWS) {
        let rel = x.get("relation").filter(|v| !v.is_null());
        let why = rel.map_or_else(|| esc(text(x, "reason")), |v| esc(text(v, "text")));
        let pic = rel.filter(|_| all.len() <= 24).map(|v| layout::picture(v, list(r, "mesh")));
        let _ = writeln!(
            o,
            "<tr><td>#{} {}</td><td class=\"{v}\">{v}</td><td><code>{}</code></td><td><code>%{}</code></td><td><code>%{}</code></td><td>{}{why}</td></tr>",
            x["index"],
            esc(text(x, "name")),
            esc(text(x, "shape")),
            esc(text(x, "base")),
            esc(text(x, "dist")),
            pic.unwrap_or_default(),
            v = text(x, "verdict")
        );
    }
    o.push_str("</table>\n");
    if all.len() > MAX_ROWS {
        let _ = writeln!(o, "<p>and {} more</p>", all.len() - MAX_ROWS);
    }
    let _ = s;
    o.push_str("</section>\n");
}

fn notes(o: &mut String, r: &Value) {
    let part = |o: &mut String, title: &str, items: Vec<String>| {
        if items.is_empty() {
            return;
        }
        let _ = writeln!(o, "<section>\n<h2>{title}</h2>\n<ul>");
        for i in items.iter().take(MAX_ROWS) {
            let _ = writeln!(o, "<li>{i}</li>");
        }
        o.push_str("</ul>\n</section>\n");
    };
    let place = |v: &Value| {
        let s = &v["source"];
        let at = text(v, "instruction");
        let mut t =
            if at.is_empty() { String::new() } else { format!(" <code>%{}</code>", esc(at)) };
        if !s.is_null() {
            let _ = write!(t, " <small>{}:{}</small>", esc(text(s, "file")), s["line"]);
        }
        t
    };
    part(
        o,
        "Assumptions",
        list(r, "assumptions")
            .iter()
            .map(|a| format!("{}{}", esc(text(a, "text")), place(a)))
            .collect(),
    );
    part(
        o,
        "Regrouped sums",
        list(r, "regrouped")
            .iter()
            .map(|a| format!("{}{}", esc(text(a, "text")), place(a)))
            .collect(),
    );
    part(o, "Notes", list(r, "notes").iter().filter_map(Value::as_str).map(esc).collect());
}

fn time(o: &mut String, r: &Value) {
    let st = &r["stats"];
    let _ = writeln!(
        o,
        "<footer>{} + {} instructions, {} terms, {} devices; proving took {} s{}. scalify {}</footer>",
        st["base_instructions"],
        st["dist_instructions"],
        st["classes"],
        st["devices"],
        number(&st["seconds"]),
        r.get("exhausted")
            .and_then(Value::as_str)
            .map(|e| format!("; the limit of {} was reached", esc(e)))
            .unwrap_or_default(),
        esc(text(&r["tool"], "version")),
    );
}

//! Reports about steps: for people, JSON (`docs/JSON.md`), JUnit.

use crate::steps::{Step, Steps, place};
use scalify_prove::outcome::Verdict;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Version of the JSON report; [`SCHEMA_MINOR`] is raised when fields are added.
pub const SCHEMA_VERSION: u32 = 1;
/// See [`SCHEMA_VERSION`].
pub const SCHEMA_MINOR: u32 = 0;

/// How [`text`] renders.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// With ANSI colours.
    pub color: bool,
    /// One line per module.
    pub quiet: bool,
    /// List steps of identical dumps too.
    pub all: bool,
}

/// Refuted if a module is, else unknown if one is.
pub fn verdict(all: &[Steps]) -> Verdict {
    let has = |v| all.iter().any(|s| s.verdict() == v);
    if has(Verdict::Refuted) {
        Verdict::Refuted
    } else if has(Verdict::Unknown) {
        Verdict::Unknown
    } else {
        Verdict::Proved
    }
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Proved => "proved",
        Verdict::Refuted => "refuted",
        Verdict::Unknown => "unknown",
    }
}

fn grade(s: &Step) -> Option<&str> {
    s.report.as_ref()?.get("grade")?.as_str()
}

fn file(p: &Path) -> String {
    p.file_name().map_or_else(|| p.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// `algsimp of simplification`.
fn pass(s: &Step) -> String {
    let p = match (s.pass.as_str(), s.pipeline.as_str()) {
        (p, "") => p.to_owned(),
        ("pipeline-start", q) => match &s.next_pass {
            Some(n) if n == q => format!("the start of {q}"),
            Some(n) => format!("{n} or later, up to the start of {q}"),
            None => format!("what runs before the start of {q}"),
        },
        (p, q) => format!("{p} of {q}"),
    };
    clean(&p)
}

/// Control characters that names may hold, escaped.
fn clean(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The report for people.
pub fn text(all: &[Steps], o: TextOptions) -> String {
    let paint = |code: &str, t: &str| {
        if o.color { format!("\x1b[{code}m{t}\x1b[0m") } else { t.to_owned() }
    };
    let mut t = String::new();
    for (k, m) in all.iter().enumerate() {
        let v = m.verdict();
        let code = match v {
            Verdict::Proved => "1;32",
            Verdict::Refuted => "1;31",
            Verdict::Unknown => "1;33",
        };
        if k > 0 && !o.quiet {
            t.push('\n');
        }
        let head = paint(code, &word(v).to_uppercase());
        let of = format!("{} steps", m.total);
        let _ = match m.first() {
            Some(s) => writeln!(
                t,
                "{head}  {}: {} (step {} of {})",
                clean(&m.module),
                paint("1", &pass(s)),
                s.number,
                m.total
            ),
            None => writeln!(t, "{head}  {}: all {of}", clean(&m.module)),
        };
        if o.quiet {
            continue;
        }
        let count = |f: &dyn Fn(&Step) -> bool| m.steps.iter().filter(|s| f(s)).count();
        let same = count(&|s| s.identical);
        let of = |v| count(&|s: &Step| s.verdict == v && !s.identical);
        let _ = write!(t, "{same} identical, {} proved", of(Verdict::Proved));
        for v in [Verdict::Refuted, Verdict::Unknown] {
            if of(v) > 0 {
                let _ = write!(t, ", {} {}", of(v), word(v));
            }
        }
        let left = m.total.saturating_sub(m.steps.len());
        if left > 0 {
            let _ = write!(t, ", {left} not looked at");
        }
        let cached = count(&|s| s.cached);
        if cached > 0 {
            let _ = write!(t, "; {cached} of an earlier run");
        }
        t.push_str("\n\nsteps\n");
        for s in m.steps.iter().filter(|s| o.all || !s.identical) {
            let what = if s.identical { "identical" } else { word(s.verdict) };
            let what = match grade(s) {
                Some(g) => format!("{what} ({g})"),
                None => what.to_owned(),
            };
            let kind = if s.partitioning { "  [partitioning]" } else { "" };
            let _ = writeln!(
                t,
                "  {:>4}  {:<28} {}{kind}  {}",
                s.number,
                what,
                pass(s),
                paint("2", &format!("{:.2} s", s.seconds))
            );
            if let Some(r) = &s.reason {
                let _ = writeln!(t, "        {}", clean(r));
            }
        }
        if let Some(s) = m.first() {
            let _ = writeln!(
                t,
                "\nstep {}\n  before  {}\n  after   {}",
                s.number,
                clean(&s.before.display().to_string()),
                clean(&s.after.display().to_string())
            );
            if !s.text.is_empty() {
                t.push('\n');
                t.push_str(&s.text);
            }
        }
        if !m.notes.is_empty() {
            t.push_str("\nnotes\n");
            for n in &m.notes {
                let _ = writeln!(t, "  {}", clean(n));
            }
        }
    }
    t
}

/// The report as JSON with a final newline; a failing step holds the report of
/// its pair as `verify --json` gives it.
///
/// # Errors
/// None in practice; an error of the JSON writer is passed on.
pub fn json(folder: &str, all: &[Steps]) -> Result<String, serde_json::Error> {
    let step = |s: &Step| {
        let proved = s.verdict == Verdict::Proved;
        let report = s.report.as_ref().filter(|_| !proved);
        let item = report.and_then(|r| r.get("frontier")?.as_array()?.first());
        let pick = |key: &str| item.and_then(|i| i.get(key)).cloned().unwrap_or(Value::Null);
        json!({
            "step": s.number,
            "pipeline": s.pipeline,
            "pass": s.pass,
            "next_pass": s.next_pass,
            "before": s.before.display().to_string(),
            "after": s.after.display().to_string(),
            "verdict": word(s.verdict),
            "grade": grade(s),
            "identical": s.identical,
            "partitioning": s.partitioning,
            "cached": s.cached,
            "seconds": s.seconds,
            "reason": s.reason,
            "instruction": pick("instruction"),
            "source": pick("source"),
            "report": report,
        })
    };
    let module = |m: &Steps| {
        json!({
            "module": m.module,
            "verdict": word(m.verdict()),
            "steps_total": m.total,
            "first": m.first().map(|s| s.number),
            "steps": m.steps.iter().map(step).collect::<Vec<_>>(),
            "notes": m.notes,
        })
    };
    let report = json!({
        "schema_version": SCHEMA_VERSION,
        "schema_minor": SCHEMA_MINOR,
        "tool": {"name": "scalify", "version": env!("CARGO_PKG_VERSION")},
        "command": "bisect",
        "folder": folder,
        "verdict": word(verdict(all)),
        "modules": all.iter().map(module).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}

/// JUnit XML: a test suite per module, a test case per step; refuted steps are
/// failures, unknown ones errors.
pub fn junit(all: &[Steps]) -> String {
    let xml = |t: &str| -> String {
        let mut out = String::new();
        for c in t.chars() {
            match c {
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '&' => out.push_str("&amp;"),
                '"' => out.push_str("&quot;"),
                '\n' | '\t' => out.push(c),
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
                c => out.push(c),
            }
        }
        out
    };
    let mut t = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for m in all {
        let count = |v| m.steps.iter().filter(|s| s.verdict == v).count();
        let seconds: f64 = m.steps.iter().map(|s| s.seconds).sum();
        let _ = writeln!(
            t,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{seconds:.3}\">",
            xml(&m.module),
            m.steps.len(),
            count(Verdict::Refuted),
            count(Verdict::Unknown)
        );
        for s in &m.steps {
            let _ = write!(
                t,
                "    <testcase classname=\"{}\" name=\"{} {}\" time=\"{:.3}\"",
                xml(&m.module),
                s.number,
                xml(&pass(s)),
                s.seconds
            );
            let tag = match s.verdict {
                Verdict::Proved => {
                    t.push_str("/>\n");
                    continue;
                }
                Verdict::Refuted => "failure",
                Verdict::Unknown => "error",
            };
            let at = s.report.as_ref().and_then(|r| place(r.get("frontier")?.get(0)?));
            let _ = writeln!(
                t,
                ">\n      <{tag} message=\"{}\" type=\"{}\">{}\n{}</{tag}>\n    </testcase>",
                xml(s.reason.as_deref().unwrap_or("")),
                word(s.verdict),
                xml(&file(&s.after)),
                xml(&at.unwrap_or_default())
            );
        }
        t.push_str("  </testsuite>\n");
    }
    t.push_str("</testsuites>\n");
    t
}

//! The report as one HTML page that loads nothing and runs no scripts.

mod roofline;

use crate::compare::Comparison;
use crate::report::{Doc, Row, Sum};
use crate::text::{optional, percent, ranked};
use scalify_page::{count, esc, plain, quantity, seconds, si};
use std::fmt::Write as _;

/// Rows of a table.
const MAX_ROWS: usize = 300;
/// Rows shown before a fold.
const TOP: usize = 25;

impl Doc {
    /// The page.
    pub fn html(&self) -> String {
        let mut o = scalify_page::head(&format!("Profile · {}", self.module.file));
        let _ = writeln!(
            o,
            "<header class=\"plain\">\n<h1>Profile</h1>\n<p class=\"answer\">{}</p>\n<p class=\"files\"><code>{}</code>{}</p>\n</header>\n<main>",
            esc(&self.answer()),
            esc(&self.module.file),
            self.trace
                .as_ref()
                .map(|t| format!(" with <code>{}</code> ({})", esc(&t.file), t.format))
                .unwrap_or_default()
        );
        self.facts(&mut o);
        if let Some(c) = &self.comparison {
            changes(&mut o, c);
        }
        if let Some(p) = &self.peaks {
            roofline::section(&mut o, self, p);
        }
        self.ranking(&mut o);
        self.traffic(&mut o);
        let timed = self.trace.is_some();
        sums(&mut o, "Source lines", &self.sources, timed);
        sums(&mut o, "Scopes", &self.scopes, timed);
        self.rest(&mut o);
        let _ = writeln!(
            o,
            "<footer>FLOP and bytes follow XLA's cost analysis: a multiply-add is two FLOP, transcendental functions are counted apart. Time is without what ran inside, all threads and devices together. scalify {}</footer>",
            env!("CARGO_PKG_VERSION")
        );
        o.push_str(scalify_page::TAIL);
        o
    }

    /// The most important thing in a sentence.
    fn answer(&self) -> String {
        if let Some(c) = &self.comparison {
            return self.sentence(c) + ".";
        }
        let rows = ranked(self);
        let Some(t) = &self.trace else {
            let most = rows.first().filter(|r| r.cost.flops > 0.0 && self.total.flops > 0.0);
            return match most {
                Some(r) => format!(
                    "One execution computes {} and touches {}; %{} ({}) alone is {} of the FLOP.",
                    quantity(self.total.flops, "FLOP"),
                    quantity(self.total.bytes(), "B"),
                    r.instruction,
                    r.opcode,
                    percent(r.cost.flops * r.executions / self.total.flops)
                ),
                None => format!("One execution touches {}.", quantity(self.total.bytes(), "B")),
            };
        };
        match rows.first().filter(|r| r.seconds.is_some_and(|s| s > 0.0)) {
            Some(r) => {
                let at = r.source.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
                let roof = match (r.bound, r.of_roof) {
                    (Some(b), Some(x)) => {
                        format!(", {}-bound at {} of the roofline", b.name(), percent(x))
                    }
                    _ => String::new(),
                };
                format!(
                    "Most time goes to %{}{at}: {} of {} of operations{roof}.",
                    r.instruction,
                    optional(r.share, percent),
                    seconds(t.seconds)
                )
            }
            None => "No operation of this module is in the trace.".into(),
        }
    }

    fn facts(&self, o: &mut String) {
        let mut list: Vec<(String, &str)> = Vec::new();
        if let Some(t) = &self.trace {
            list.push((seconds(t.seconds), "of operations"));
            list.push((count(t.runs), "executions"));
            list.push((percent(t.attributed), "attached to instructions"));
            list.push((t.lines.to_string(), "threads or devices"));
        }
        list.push((quantity(self.total.flops, "FLOP"), "per execution"));
        list.push((si(self.total.transcendentals), "transcendental functions"));
        list.push((quantity(self.total.bytes(), "B"), "of memory per execution"));
        if let Some(t) = self.trace.as_ref().filter(|t| t.seconds > 0.0 && t.runs > 0.0) {
            let rate = self.total.flops * t.runs / t.seconds;
            list.push((quantity(rate, "FLOP/s"), "over all operations"));
        }
        o.push_str("<section>\n<div class=\"facts\">\n");
        for (value, name) in list {
            let _ = writeln!(o, "<div><b>{}</b><span>{name}</span></div>", esc(&value));
        }
        o.push_str("</div>\n");
        if self.total != self.total_once {
            let _ = writeln!(
                o,
                "<p class=\"faint\">With each loop once, as XLA counts: {}, {}.</p>",
                quantity(self.total_once.flops, "FLOP"),
                quantity(self.total_once.bytes(), "B")
            );
        }
        o.push_str("</section>\n");
    }

    fn ranking(&self, o: &mut String) {
        let rows = ranked(self);
        let timed = self.trace.is_some();
        let rows: Vec<&&Row> = rows.iter().filter(|r| !timed || r.seconds.is_some()).collect();
        let _ = writeln!(
            o,
            "<section>\n<h2>{}</h2>",
            if timed { "Longest instructions" } else { "Instructions with most work" }
        );
        let head = if timed {
            "<tr><th></th><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">events</th><th class=\"n\">FLOP/s</th><th class=\"n\">B/s</th><th class=\"n\">FLOP/B</th><th>bound</th><th class=\"n\">of roof</th><th>instruction</th><th>source</th></tr>"
        } else {
            "<tr><th></th><th class=\"n\">FLOP</th><th class=\"n\">transc.</th><th class=\"n\">bytes</th><th class=\"n\">runs</th><th class=\"n\">FLOP/B</th><th>bound</th><th>instruction</th><th>source</th></tr>"
        };
        let weight = |r: &Row| {
            r.seconds.unwrap_or(if timed { 0.0 } else { r.cost.operations() * r.executions })
        };
        let most = rows.iter().map(|r| weight(r)).fold(0.0f64, f64::max);
        let line = |o: &mut String, r: &Row| {
            let w = if most > 0.0 { 90.0 * weight(r) / most } else { 0.0 };
            let _ = write!(o, "<tr><td><span class=\"bar\" style=\"width:{w:.0}px\"></span></td>");
            let numbers = if timed {
                vec![
                    optional(r.seconds, seconds),
                    optional(r.share, percent),
                    optional(r.count, count),
                    optional(r.flops_per_second, si),
                    optional(r.bytes_per_second, si),
                    optional(r.intensity, plain),
                ]
            } else {
                vec![
                    si(r.cost.flops),
                    si(r.cost.transcendentals),
                    si(r.cost.bytes()),
                    count(r.executions),
                    optional(r.intensity, plain),
                ]
            };
            for n in numbers {
                let _ = write!(o, "<td class=\"n\">{}</td>", esc(&n));
            }
            let _ = write!(o, "<td>{}</td>", r.bound.map_or("", |b| b.name()));
            if timed {
                let _ = write!(o, "<td class=\"n\">{}</td>", optional(r.of_roof, percent));
            }
            let trips = r.trips.map(|n| format!(" × {n}")).unwrap_or_default();
            let _ = writeln!(
                o,
                "<td><code>%{}</code> <small>{}{trips} {}</small></td><td><small>{}</small></td></tr>",
                esc(&r.instruction),
                r.opcode,
                esc(&short_shape(&r.shape)),
                esc(r.source.as_deref().unwrap_or(""))
            );
        };
        folded(o, head, &rows, |o, r| line(o, r));
        o.push_str("</section>\n");
    }

    fn traffic(&self, o: &mut String) {
        if self.collectives.is_empty() {
            return;
        }
        o.push_str("<section>\n<h2>Collectives</h2>\n<p class=\"faint\">Bytes a device sends in one execution, with ring algorithms.</p>\n");
        let head = "<tr><th>collective</th><th>over</th><th class=\"n\">executions</th><th class=\"n\">bytes</th><th class=\"n\">time</th><th class=\"n\">rate</th></tr>";
        let timed = self.trace.is_some();
        folded(o, head, &self.collectives, |o, c| {
            let _ = writeln!(
                o,
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                c.kind,
                esc(&c.over),
                count(c.executions),
                quantity(c.bytes, "B"),
                if timed { seconds(c.seconds) } else { String::new() },
                optional(c.bytes_per_second, |x| quantity(x, "B/s"))
            );
        });
        o.push_str("</section>\n");
    }

    fn rest(&self, o: &mut String) {
        if let Some(t) = &self.trace {
            for (title, list) in [
                ("Operations that are no instruction of this module", &t.unattributed),
                ("Other modules in the trace", &t.others),
            ] {
                if list.is_empty() {
                    continue;
                }
                let _ = writeln!(o, "<section>\n<h2>{title}</h2>");
                folded(
                    o,
                    "<tr><th class=\"n\">time</th><th class=\"n\">events</th><th>name</th></tr>",
                    list,
                    |o, n| {
                        let _ = writeln!(
                            o,
                            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td><code>{}</code></td></tr>",
                            seconds(n.seconds),
                            n.count,
                            esc(&n.name)
                        );
                    },
                );
                o.push_str("</section>\n");
            }
        }
        if !self.notes.is_empty() {
            o.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
            for n in &self.notes {
                let _ = writeln!(o, "<li>{}</li>", esc(n));
            }
            o.push_str("</ul>\n</section>\n");
        }
    }
}

/// Shapes of large tuples are cut.
fn short_shape(t: &str) -> String {
    if t.chars().count() > 48 {
        t.chars().take(47).collect::<String>() + "…"
    } else {
        t.to_owned()
    }
}

/// A table whose tail is folded.
fn folded<T>(o: &mut String, head: &str, rows: &[T], mut line: impl FnMut(&mut String, &T)) {
    let _ = writeln!(o, "<table>{head}");
    for r in rows.iter().take(TOP) {
        line(o, r);
    }
    o.push_str("</table>\n");
    if rows.len() > TOP {
        let _ = writeln!(o, "<details><summary>{} more</summary>\n<table>{head}", rows.len() - TOP);
        for r in rows.iter().take(MAX_ROWS).skip(TOP) {
            line(o, r);
        }
        o.push_str("</table>\n");
        if rows.len() > MAX_ROWS {
            let _ = writeln!(
                o,
                "<p class=\"faint\">and {} in the JSON report</p>",
                rows.len() - MAX_ROWS
            );
        }
        o.push_str("</details>\n");
    }
}

fn sums(o: &mut String, title: &str, list: &[Sum], timed: bool) {
    if list.iter().all(|s| s.key.is_empty()) {
        return;
    }
    let _ = writeln!(o, "<section>\n<h2>{title}</h2>");
    let head = if timed {
        "<tr><th></th><th class=\"n\">time</th><th class=\"n\">share</th><th class=\"n\">FLOP</th><th class=\"n\">bytes</th><th>where</th></tr>"
    } else {
        "<tr><th></th><th class=\"n\">FLOP</th><th class=\"n\">bytes</th><th>where</th></tr>"
    };
    let weight = |s: &Sum| if timed { s.seconds } else { s.flops };
    let most = list.iter().map(weight).fold(0.0f64, f64::max);
    folded(o, head, list, |o, s| {
        let w = if most > 0.0 { 90.0 * weight(s) / most } else { 0.0 };
        let _ = write!(o, "<tr><td><span class=\"bar\" style=\"width:{w:.0}px\"></span></td>");
        if timed {
            let _ = write!(
                o,
                "<td class=\"n\">{}</td><td class=\"n\">{}</td>",
                seconds(s.seconds),
                percent(s.share)
            );
        }
        let key = if s.key.is_empty() { "(none)" } else { &s.key };
        let _ = writeln!(
            o,
            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            si(s.flops),
            si(s.bytes),
            esc(key)
        );
    });
    o.push_str("</section>\n");
}

/// A kind of `scalify diff` in words.
fn words(kind: Option<&str>) -> &'static str {
    match kind {
        Some("rounding") => "equal up to rounding",
        Some("precision") => "less precise",
        Some("function") => "computes something else",
        _ => "",
    }
}

fn changes(o: &mut String, c: &Comparison) {
    let _ = writeln!(
        o,
        "<section>\n<h2>Against the second trace</h2>\n<p class=\"faint\">Seconds per execution of the module; changes below {} are none. Second trace: <code>{}</code>, {} executions.</p>",
        percent(crate::compare::NOISE),
        esc(&c.trace.file),
        count(c.trace.runs)
    );
    let most = c.rows.iter().map(|r| (r.after - r.before).abs()).fold(0.0f64, f64::max);
    let head = "<tr><th>change</th><th></th><th class=\"n\">before</th><th class=\"n\">after</th><th class=\"n\"></th><th>numbers</th><th>instruction</th><th>source</th></tr>";
    let rows: Vec<_> = c.rows.iter().filter(|r| r.change != "same").collect();
    folded(o, head, &rows, |o, r| {
        let w = if most > 0.0 { 90.0 * (r.after - r.before).abs() / most } else { 0.0 };
        let (sign, colour) = if r.change == "faster" {
            ("▼ faster", "#15803d")
        } else {
            ("▲ slower", "#dc2626")
        };
        let numbers = if r.traded { "precision traded" } else { words(r.numbers.as_deref()) };
        let other = r
            .counterpart
            .as_ref()
            .map(|n| format!(" → <code>%{}</code>", esc(n)))
            .unwrap_or_default();
        let _ = writeln!(
            o,
            "<tr><td>{sign}</td><td><span class=\"bar\" style=\"width:{w:.0}px;background:{colour}\"></span></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:+.0} %</td><td>{numbers}</td><td><code>%{}</code>{other} <small>{}</small></td><td><small>{}</small></td></tr>",
            seconds(r.before),
            seconds(r.after),
            100.0 * (r.after / r.before - 1.0),
            esc(&r.instruction),
            r.opcode,
            esc(r.source.as_deref().unwrap_or(""))
        );
    });
    let same = c.rows.len() - rows.len();
    if same > 0 {
        let _ = writeln!(o, "<p class=\"faint\">{same} unchanged</p>");
    }
    for (title, list) in
        [("Only in the first trace", &c.gone), ("Only in the second trace", &c.new)]
    {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(o, "<h3>{title}</h3>");
        folded(
            o,
            "<tr><th class=\"n\">time</th><th>numbers</th><th>instruction</th></tr>",
            list,
            |o, s| {
                let _ = writeln!(
                    o,
                    "<tr><td class=\"n\">{}</td><td>{}</td><td><code>%{}</code> <small>{}</small></td></tr>",
                    seconds(s.seconds),
                    words(s.numbers.as_deref()),
                    esc(&s.instruction),
                    s.opcode
                );
            },
        );
    }
    o.push_str("</section>\n");
}

//! The report as text for terminals.

use crate::report::{Doc, Row, Sum};
use scalify_page::{count, plain, quantity, seconds, si};
use std::fmt::Write as _;

/// Rows of a table, unless all are wanted.
const TOP: usize = 15;
/// Characters of a cell.
const WIDTH: usize = 60;

/// Columns: right-aligned where the name ends with `>`.
fn table(o: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let cell = |t: &str| -> String {
        // Ends tell more than beginnings of scopes and paths.
        let n = t.chars().count();
        if n <= WIDTH {
            t.to_owned()
        } else {
            "…".to_owned() + &t.chars().skip(n - WIDTH + 1).collect::<String>()
        }
    };
    let right: Vec<bool> = head.iter().map(|h| h.ends_with('>')).collect();
    let head: Vec<String> = head.iter().map(|h| h.trim_end_matches('>').to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(|c| cell(c)).collect()).collect();
    let width: Vec<usize> = (0..head.len())
        .map(|k| {
            let all = std::iter::once(&head).chain(&rows);
            all.map(|r| r.get(k).map_or(0, |c| c.chars().count())).max().unwrap_or(0)
        })
        .collect();
    for r in std::iter::once(&head).chain(&rows) {
        let line: Vec<String> = r
            .iter()
            .zip(&width)
            .zip(&right)
            .map(|((c, w), right)| if *right { format!("{c:>w$}") } else { format!("{c:w$}") })
            .collect();
        let _ = writeln!(o, "  {}", line.join("  ").trim_end());
    }
}

/// A share as a percentage.
pub(crate) fn percent(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

pub(crate) fn optional(x: Option<f64>, f: impl Fn(f64) -> String) -> String {
    x.map_or_else(String::new, f)
}

/// `1 execution`, `2 executions`; `threads or devices`.
fn plural(n: f64, what: &str) -> String {
    let n = count(n);
    if n == "1" { format!("1 {what}") } else { format!("{n} {}s", what.replace(" or", "s or")) }
}

/// A row's rank: time, else operations, else memory.
pub(crate) fn ranked(d: &Doc) -> Vec<&Row> {
    let mut v: Vec<&Row> = d.instructions.iter().collect();
    let work = |r: &Row| (r.cost.operations() * r.executions, r.cost.bytes() * r.executions);
    v.sort_by(|a, b| {
        b.seconds
            .unwrap_or(0.0)
            .total_cmp(&a.seconds.unwrap_or(0.0))
            .then(work(b).0.total_cmp(&work(a).0))
            .then(work(b).1.total_cmp(&work(a).1))
    });
    v
}

impl Doc {
    /// For people; `all` lists everything.
    pub fn text(&self, all: bool) -> String {
        let mut o = String::new();
        let top = if all { usize::MAX } else { TOP };
        let _ = writeln!(o, "{}  {} instructions", self.module.file, self.module.instructions);
        let t = &self.total;
        let _ = writeln!(
            o,
            "one execution: {}, {} transcendental, {} read, {} written",
            quantity(t.flops, "FLOP"),
            si(t.transcendentals),
            quantity(t.bytes_read, "B"),
            quantity(t.bytes_written, "B")
        );
        if self.total != self.total_once {
            let _ = writeln!(
                o,
                "  (each loop once, as XLA counts: {}, {})",
                quantity(self.total_once.flops, "FLOP"),
                quantity(self.total_once.bytes(), "B")
            );
        }
        if let Some(t) = &self.trace {
            let _ = writeln!(o, "trace: {} ({}), {} events", t.file, t.format, t.events);
            let _ = writeln!(
                o,
                "  {} of operations in {} on {}, {} attached to instructions",
                seconds(t.seconds),
                plural(t.runs, "execution"),
                plural(t.lines as f64, "thread or device"),
                percent(t.attributed)
            );
        }
        if let Some(p) = &self.peaks {
            let _ = writeln!(
                o,
                "peaks: {}, {} ({})",
                quantity(p.flops, "FLOP/s"),
                quantity(p.bytes, "B/s"),
                p.source
            );
        }
        if let Some(c) = &self.comparison {
            self.changes(&mut o, c, top);
        }
        self.longest(&mut o, top);
        let timed = self.trace.is_some();
        let sums = |o: &mut String, title: &str, v: &[Sum]| {
            if v.iter().all(|s| s.key.is_empty()) {
                return;
            }
            let _ = writeln!(o, "\n{title}");
            let rows: Vec<Vec<String>> = v
                .iter()
                .take(top)
                .map(|s| {
                    let mut r =
                        if timed { vec![seconds(s.seconds), percent(s.share)] } else { Vec::new() };
                    r.extend([
                        si(s.flops),
                        si(s.bytes),
                        if s.key.is_empty() { "(none)".into() } else { s.key.clone() },
                    ]);
                    r
                })
                .collect();
            let head: &[&str] = if timed {
                &["time>", "share>", "FLOP>", "bytes>", "where"]
            } else {
                &["FLOP>", "bytes>", "where"]
            };
            table(o, head, &rows);
        };
        sums(&mut o, "source lines", &self.sources);
        sums(&mut o, "scopes", &self.scopes);
        if !self.collectives.is_empty() {
            let _ = writeln!(o, "\ncollectives (bytes a device sends, ring algorithms)");
            let rows: Vec<Vec<String>> = self
                .collectives
                .iter()
                .take(top)
                .map(|c| {
                    vec![
                        c.kind.to_owned(),
                        c.over.clone(),
                        count(c.executions),
                        quantity(c.bytes, "B"),
                        if timed { seconds(c.seconds) } else { String::new() },
                        optional(c.bytes_per_second, |x| quantity(x, "B/s")),
                    ]
                })
                .collect();
            table(
                &mut o,
                &["collective", "over", "executions>", "bytes>", "time>", "rate>"],
                &rows,
            );
        }
        if let Some(t) = &self.trace {
            for (title, list) in [
                ("operations that are no instruction of this module", &t.unattributed),
                ("other modules in the trace", &t.others),
            ] {
                if list.is_empty() {
                    continue;
                }
                let _ = writeln!(o, "\n{title}");
                let rows: Vec<Vec<String>> = list
                    .iter()
                    .take(top)
                    .map(|n| vec![seconds(n.seconds), n.count.to_string(), n.name.clone()])
                    .collect();
                table(&mut o, &["time>", "events>", "name"], &rows);
            }
        }
        if !self.notes.is_empty() {
            let _ = writeln!(o, "\nnotes");
            for n in &self.notes {
                let _ = writeln!(o, "  {n}");
            }
        }
        o
    }

    fn longest(&self, o: &mut String, top: usize) {
        let rows = ranked(self);
        let timed = self.trace.is_some();
        let _ = writeln!(
            o,
            "\n{}",
            if timed { "longest instructions" } else { "instructions with most work" }
        );
        let list: Vec<Vec<String>> = rows
            .iter()
            .take(top)
            .filter(|r| !timed || r.seconds.is_some() || top == usize::MAX)
            .map(|r| {
                let bound = r.bound.map_or("", |b| b.name()).to_owned();
                let name = format!("%{}", r.instruction);
                let source = r.source.clone().unwrap_or_default();
                if timed {
                    vec![
                        optional(r.seconds, seconds),
                        optional(r.share, percent),
                        optional(r.count, count),
                        optional(r.flops_per_second, si),
                        optional(r.bytes_per_second, si),
                        optional(r.intensity, plain),
                        bound,
                        optional(r.of_roof, percent),
                        name,
                        r.opcode.to_owned(),
                        source,
                    ]
                } else {
                    vec![
                        si(r.cost.flops),
                        si(r.cost.transcendentals),
                        si(r.cost.bytes()),
                        count(r.executions),
                        optional(r.intensity, plain),
                        bound,
                        name,
                        r.opcode.to_owned(),
                        source,
                    ]
                }
            })
            .collect();
        let head: &[&str] = if timed {
            &[
                "time>",
                "share>",
                "events>",
                "FLOP/s>",
                "B/s>",
                "FLOP/B>",
                "bound",
                "of roof>",
                "instruction",
                "opcode",
                "source",
            ]
        } else {
            &[
                "FLOP>",
                "transc.>",
                "bytes>",
                "runs>",
                "FLOP/B>",
                "bound",
                "instruction",
                "opcode",
                "source",
            ]
        };
        table(o, head, &list);
        if rows.len() > list.len() {
            let _ = writeln!(o, "  and {} more", rows.len() - list.len());
        }
    }

    fn changes(&self, o: &mut String, c: &crate::compare::Comparison, top: usize) {
        let _ = writeln!(o, "\n{}", self.sentence(c));
        let rows: Vec<Vec<String>> = c
            .rows
            .iter()
            .filter(|r| r.change != "same" || top == usize::MAX)
            .take(top)
            .map(|r| {
                vec![
                    r.change.to_owned(),
                    seconds(r.before),
                    seconds(r.after),
                    format!("{:+.0} %", 100.0 * (r.after / r.before - 1.0)),
                    r.numbers.clone().unwrap_or_default(),
                    format!("%{}", r.instruction),
                    r.counterpart.as_ref().map(|n| format!("%{n}")).unwrap_or_default(),
                    r.opcode.to_owned(),
                    r.source.clone().unwrap_or_default(),
                ]
            })
            .collect();
        if !rows.is_empty() {
            table(
                o,
                &[
                    "",
                    "before>",
                    "after>",
                    "change>",
                    "numbers",
                    "instruction",
                    "counterpart",
                    "opcode",
                    "source",
                ],
                &rows,
            );
        }
        for (title, list) in
            [("only in the first trace", &c.gone), ("only in the second trace", &c.new)]
        {
            if list.is_empty() {
                continue;
            }
            let _ = writeln!(o, "{title}");
            let rows: Vec<Vec<String>> = list
                .iter()
                .take(top)
                .map(|s| {
                    vec![
                        seconds(s.seconds),
                        s.numbers.clone().unwrap_or_default(),
                        format!("%{}", s.instruction),
                        s.opcode.to_owned(),
                    ]
                })
                .collect();
            table(o, &["time>", "numbers", "instruction", "opcode"], &rows);
        }
    }

    /// What became of the time between two traces, in a sentence.
    pub(crate) fn sentence(&self, c: &crate::compare::Comparison) -> String {
        let total = if (c.after - c.before).abs() <= crate::compare::NOISE * c.before {
            "as fast as".to_owned()
        } else if c.after < c.before {
            format!("{:.2} times faster than", c.before / c.after)
        } else {
            format!("{:.2} times slower than", c.after / c.before.max(1e-300))
        };
        let number = |k: &str| c.rows.iter().filter(|r| r.change == k).count();
        let mut t = format!(
            "{} is {total} {}: {} instead of {} of operations per execution; {} instructions faster, {} slower",
            c.trace.file,
            self.trace.as_ref().map_or("the first", |t| &t.file),
            seconds(c.after),
            seconds(c.before),
            number("faster"),
            number("slower")
        );
        let lost = c.outputs.as_ref().is_some_and(|o| o.0 != "rounding");
        if let Some((kind, error)) = &c.outputs {
            let error =
                error.filter(|e| *e > 0.0).map(|e| format!(" (largest error {})", plain(e)));
            let what = match (kind.as_str(), c.after < c.before) {
                ("rounding", _) => "the outputs are equal up to rounding",
                ("precision", true) => {
                    "precision was traded for it: the outputs are rounded more coarsely"
                }
                ("precision", false) => "the outputs are rounded more coarsely",
                _ => "the outputs differ by more than rounding",
            };
            let _ = write!(t, "; {what}{}", error.unwrap_or_default());
        }
        if c.with_numbers {
            let _ = match c.traded {
                // Then the loss is in instructions that did not get faster.
                0 if lost => Ok(()),
                0 => write!(t, "; no faster instruction lost precision"),
                1 => write!(t, "; 1 faster instruction lost precision"),
                n => write!(t, "; {n} faster instructions lost precision"),
            };
        }
        t
    }
}

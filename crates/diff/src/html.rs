//! The report as one HTML page that loads nothing and runs no scripts.

use crate::analyze::{Kind, Worst};
use crate::diff::Verdict;
use crate::report::{Doc, Operation, short};
use scalify_page::{Log, esc};
use std::fmt::Write as _;

const WIDTH: f64 = 1060.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Decades below the largest error.
const DECADES: f64 = 14.0;
/// Points of a line; longer programs show the largest of each stretch.
const MAX_POINTS: usize = 2000;
/// Rows of a table.
const MAX_ROWS: usize = 60;

/// How a series is drawn.
#[derive(Clone, Copy)]
enum Mark {
    Line,
    Dash,
    Dot,
    Small,
}

impl Mark {
    fn stroke(self) -> &'static str {
        match self {
            Mark::Line => "stroke-width=\"1.4\" stroke-opacity=\".7\"",
            Mark::Dash => "stroke-width=\"2\"",
            Mark::Dot => "stroke-width=\"6\" stroke-linecap=\"round\"",
            Mark::Small => "stroke-width=\"3.5\" stroke-linecap=\"round\"",
        }
    }
}

/// A series of the chart: name, colour, mark, value of an operation.
type Series = (&'static str, &'static str, Mark, fn(&Operation) -> f64);

const SERIES: [Series; 4] = [
    ("local: of the operation against itself in f64", "#60a5fa", Mark::Small, |o| o.local.max),
    ("introduced: by the operation, fed with the reference's inputs", "#dc2626", Mark::Dot, |o| {
        o.introduced.max
    }),
    (
        "what rounding explains, at the element where introduced is worst",
        "currentColor",
        Mark::Dash,
        |o| o.worst.bound,
    ),
    ("accumulated: of the value against the reference's", "#d97706", Mark::Line, |o| {
        o.accumulated.max
    }),
];

impl Doc {
    /// The page.
    pub fn html(&self) -> String {
        let (class, head) = match self.verdict {
            Verdict::Equal => ("proved", "✓ EQUAL up to rounding"),
            Verdict::Different => ("refuted", "✗ DIFFERENT"),
            Verdict::Unknown => ("unknown", "? UNKNOWN"),
        };
        let mut o = scalify_page::head(&format!("{} · {}", head, self.actual));
        let _ = writeln!(
            o,
            "<header class=\"{class}\">\n<h1>{head}</h1>\n<p class=\"answer\">{}</p>\n<p class=\"files\"><code>{}</code> against <code>{}</code></p>\n</header>\n<main>",
            esc(&self.answer()),
            esc(&self.actual),
            esc(&self.expected)
        );
        self.first_section(&mut o);
        self.along(&mut o);
        self.histogram(&mut o);
        self.worst_section(&mut o);
        self.outputs_section(&mut o);
        if !self.notes.is_empty() {
            o.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
            for n in &self.notes {
                let _ = writeln!(o, "<li>{}</li>", esc(n));
            }
            o.push_str("</ul>\n</section>\n");
        }
        let c = &self.counts;
        let _ = writeln!(
            o,
            "<footer>{} of {} operations compared, {} through relations of the prover. scalify {}</footer>",
            c.compared,
            c.operations,
            c.by_proof,
            env!("CARGO_PKG_VERSION")
        );
        o.push_str(scalify_page::TAIL);
        o
    }

    /// The answer in a sentence.
    fn answer(&self) -> String {
        let Some(f) = &self.first else {
            return match self.verdict {
                Verdict::Equal => {
                    let worst = self.operations.iter().filter(|o| o.ratio.is_finite());
                    let worst = worst.max_by(|a, b| a.ratio.total_cmp(&b.ratio));
                    let near = worst.filter(|o| o.ratio > 0.0).map(|o| {
                        format!("; %{} comes nearest to its bound, at {} of it", o.operation, short(o.ratio))
                    });
                    format!(
                        "No operation introduces more than rounding{}.",
                        near.unwrap_or_default()
                    )
                }
                Verdict::Different => {
                    "The outputs differ by more than rounding, and no single operation was found to be at fault.".into()
                }
                Verdict::Unknown => "Nothing could be compared.".into(),
            };
        };
        let what = match f.kind {
            Kind::Function => "computes something else than",
            _ => "rounds more coarsely than",
        };
        let at = f.source.as_ref().map(|s| format!(" at {s}")).unwrap_or_default();
        let other = f.counterpart.as_ref().map_or("the reference".to_owned(), |c| format!("%{c}"));
        let more = self.counts.different.saturating_sub(1);
        let rest = if more > 0 {
            format!("; {more} more {} fault after it", if more == 1 { "is at" } else { "are at" })
        } else {
            String::new()
        };
        format!(
            "The first operation at fault is %{} ({}{at}): it {what} {other}{rest}.",
            f.operation, f.opcode
        )
    }

    fn first_section(&self, o: &mut String) {
        let Some(f) = &self.first else { return };
        let _ = writeln!(
            o,
            "<section>\n<h2>First operation at fault</h2>\n<p><code>%{}</code> = {} <code>{}</code></p>",
            esc(&f.operation),
            f.opcode,
            esc(&f.shape)
        );
        if let Some(s) = &f.source {
            let _ = writeln!(o, "<p class=\"at\">{}</p>", esc(s));
        }
        if let Some(w) = &f.worst {
            o.push_str("<table><tr><th>device</th><th>index</th><th class=\"n\">expected</th><th class=\"n\">actual</th><th class=\"n\">difference</th><th class=\"n\">rounding explains</th></tr>\n<tr>");
            element(o, w);
            o.push_str("</tr></table>\n");
        }
        if f.by_prover {
            o.push_str("<p>Named by the prover: its operands are related to the reference's, its value is not.</p>\n");
        }
        o.push_str("</section>\n");
    }

    /// Errors along the program.
    fn along(&self, o: &mut String) {
        let n = self.operations.len();
        if n == 0 {
            return;
        }
        // Stretches of operations that share a point.
        let step = n.div_ceil(MAX_POINTS);
        let points: Vec<&[Operation]> = self.operations.chunks(step).collect();
        let value = |c: &[Operation], f: fn(&Operation) -> f64| -> f64 {
            c.iter().map(f).filter(|x| !x.is_nan()).fold(0.0, f64::max)
        };
        let all = points.iter().flat_map(|c| SERIES.iter().map(|s| value(c, s.3)));
        let y = Log::new(all, DECADES, HEIGHT - BOTTOM, TOP);
        let x = |k: f64| LEFT + (WIDTH - LEFT - RIGHT) * (k + 0.5) / points.len() as f64;
        let low = y.range().0;
        let _ = writeln!(
            o,
            "<section>\n<h2>Error along the program</h2>\n<p class=\"faint\">Operations in the order of the second program{}; largest error of each, logarithmic. An operation whose dot is above its dash does more than round. Errors of 0 are not drawn.</p>\n<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"error along the program\">",
            if step > 1 { format!(", {step} to a point") } else { String::new() }
        );
        for t in y.ticks() {
            let at = y.at(t);
            let _ = writeln!(
                o,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{t:.0e}</text>",
                WIDTH - RIGHT,
                LEFT - 7.0,
                at + 4.0
            );
        }
        let marks = 8.min(n);
        for k in 0..marks {
            let at = k * (n - 1) / marks.max(2).saturating_sub(1).max(1);
            let _ = writeln!(
                o,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at}</text>",
                x((at / step) as f64),
                HEIGHT - BOTTOM + 17.0
            );
        }
        let _ = writeln!(
            o,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operation</text>",
            (LEFT + WIDTH) / 2.0,
            HEIGHT - 6.0
        );
        // Half the room of a point.
        let half = ((WIDTH - LEFT - RIGHT) / points.len() as f64 / 2.0 - 0.5).clamp(2.0, 9.0);
        for (name, colour, mark, f) in SERIES.iter().rev() {
            let mut path = String::new();
            for (k, c) in points.iter().enumerate() {
                let v = value(c, *f);
                if v < low {
                    continue;
                }
                let (px, py) = (x(k as f64), y.at(v));
                let _ = match mark {
                    Mark::Line => {
                        write!(path, "{}{px:.1} {py:.1}", if path.is_empty() { "M" } else { "L" })
                    }
                    Mark::Dash => write!(path, "M{:.1} {py:.1}h{:.1}", px - half, 2.0 * half),
                    // Lines of no length with round ends.
                    Mark::Dot | Mark::Small => write!(path, "M{px:.1} {py:.1}h0"),
                };
            }
            let _ = writeln!(
                o,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" {}><title>{}</title></path>",
                mark.stroke(),
                esc(name)
            );
        }
        for (k, c) in points.iter().enumerate() {
            // The worst of a stretch that is more than rounding.
            let bad = c
                .iter()
                .filter(|o| o.kind != Kind::Rounding)
                .max_by(|a, b| a.ratio.total_cmp(&b.ratio));
            let Some(b) = bad else { continue };
            let _ = writeln!(
                o,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"#dc2626\"><title>%{} {}: introduces {}, rounding explains {}</title></circle>",
                x(k as f64),
                y.at(b.introduced.max),
                esc(&b.operation),
                b.opcode,
                short(b.introduced.max),
                short(b.worst.bound)
            );
        }
        if let Some(k) = self
            .first
            .as_ref()
            .and_then(|f| self.operations.iter().position(|o| o.operation == f.operation))
        {
            let px = x((k / step) as f64);
            let end = px > WIDTH - 260.0;
            let _ = writeln!(
                o,
                "<line x1=\"{px:.1}\" y1=\"{TOP}\" x2=\"{px:.1}\" y2=\"{:.1}\" stroke=\"#dc2626\" stroke-dasharray=\"3 3\"/><text x=\"{:.1}\" y=\"{:.1}\"{}>first: %{}</text>",
                HEIGHT - BOTTOM,
                if end { px - 6.0 } else { px + 6.0 },
                HEIGHT - BOTTOM - 6.0,
                if end { " text-anchor=\"end\"" } else { "" },
                esc(&self.operations[k].operation)
            );
        }
        o.push_str("</svg>\n<ul class=\"legend\">\n");
        for (name, colour, mark, _) in SERIES {
            let d = if matches!(mark, Mark::Line) {
                "M2 5H32"
            } else if matches!(mark, Mark::Dash) {
                "M8 5H26"
            } else {
                "M17 5h0"
            };
            let _ = writeln!(
                o,
                "<li><svg width=\"34\" height=\"10\" style=\"display:inline-block\"><path d=\"{d}\" stroke=\"{colour}\" {}/></svg> {name}</li>",
                mark.stroke()
            );
        }
        o.push_str("<li><svg width=\"34\" height=\"12\" style=\"display:inline-block\"><circle cx=\"17\" cy=\"6\" r=\"5\" fill=\"#dc2626\"/></svg> more than rounding</li>\n</ul>\n</section>\n");
    }

    /// Operations by the share of their bound.
    fn histogram(&self, o: &mut String) {
        if self.operations.is_empty() {
            return;
        }
        const EDGES: [(f64, &str); 8] = [
            (0.0, "exact"),
            (1e-3, "≤ 0.001"),
            (1e-2, "≤ 0.01"),
            (1e-1, "≤ 0.1"),
            (1.0, "≤ 1"),
            (10.0, "≤ 10"),
            (1000.0, "≤ 1000"),
            (f64::INFINITY, "> 1000"),
        ];
        let mut counts = [0usize; EDGES.len()];
        for op in &self.operations {
            let r = if op.ratio.is_nan() { f64::INFINITY } else { op.ratio };
            if let Some(k) = EDGES.iter().position(|e| r <= e.0) {
                counts[k] += 1;
            }
        }
        let most = counts.iter().copied().max().unwrap_or(1).max(1);
        o.push_str("<section>\n<h2>Introduced error over what rounding explains</h2>\n<table><tr><th>share of the bound</th><th class=\"n\">operations</th><th></th></tr>\n");
        for ((edge, name), n) in EDGES.iter().zip(counts) {
            let colour = if *edge > 1.0 { "#dc2626" } else { "#2563eb" };
            let width = if n == 0 { 0.0 } else { (300.0 * n as f64 / most as f64).max(2.0) };
            let bar = if n == 0 {
                String::new()
            } else {
                format!(
                    "<span class=\"bar\" style=\"width:{width:.0}px;background:{colour}\"></span>"
                )
            };
            let _ = writeln!(o, "<tr><td>{name}</td><td class=\"n\">{n}</td><td>{bar}</td></tr>");
        }
        o.push_str("</table>\n<p class=\"faint\">Above 1 an operation does more than round, unless moved inputs or a wider type explain it.</p>\n</section>\n");
    }

    fn worst_section(&self, o: &mut String) {
        let mut list: Vec<&Operation> =
            self.operations.iter().filter(|o| o.introduced.max > 0.0).collect();
        if list.is_empty() {
            return;
        }
        let rank = |k: Kind| match k {
            Kind::Function => 2,
            Kind::Precision => 1,
            Kind::Rounding => 0,
        };
        list.sort_by(|a, b| rank(b.kind).cmp(&rank(a.kind)).then(b.ratio.total_cmp(&a.ratio)));
        o.push_str("<section>\n<h2>Worst elements</h2>\n<table><tr><th></th><th>operation</th><th>device</th><th>index</th><th class=\"n\">expected</th><th class=\"n\">actual</th><th class=\"n\">difference</th><th class=\"n\">rounding explains</th><th class=\"n\">of bound</th><th>source</th></tr>\n");
        for op in list.iter().take(MAX_ROWS) {
            let (class, sign) = match op.kind {
                Kind::Function => ("refuted", "✗ other function"),
                Kind::Precision => ("unknown", "≈ coarser"),
                Kind::Rounding => ("proved", "✓"),
            };
            let _ = write!(
                o,
                "<tr><td class=\"{class}\">{sign}</td><td><code>%{}</code> <small>{} {}</small></td>",
                esc(&op.operation),
                op.opcode,
                esc(&op.shape)
            );
            element(o, &op.worst);
            let _ = writeln!(
                o,
                "<td class=\"n\">{}</td><td><small>{}</small></td></tr>",
                short(op.ratio),
                esc(op.source.as_deref().unwrap_or(""))
            );
        }
        o.push_str("</table>\n");
        if list.len() > MAX_ROWS {
            let _ = writeln!(
                o,
                "<p class=\"faint\">and {} with smaller shares</p>",
                list.len() - MAX_ROWS
            );
        }
        o.push_str("</section>\n");
    }

    fn outputs_section(&self, o: &mut String) {
        if self.outputs.is_empty() {
            return;
        }
        o.push_str("<section>\n<h2>Outputs</h2>\n<table><tr><th>output</th><th></th><th class=\"n\">largest error</th><th class=\"n\">of bound</th><th>device</th><th>index</th><th class=\"n\">expected</th><th class=\"n\">actual</th><th class=\"n\">difference</th><th class=\"n\">rounding explains</th></tr>\n");
        for x in self.outputs.iter().take(MAX_ROWS) {
            let (class, what) = match x.kind {
                Kind::Function => ("refuted", "different"),
                Kind::Precision => ("unknown", "coarser"),
                Kind::Rounding => ("proved", "equal"),
            };
            let _ = write!(
                o,
                "<tr><td>#{}</td><td class=\"{class}\">{what}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
                x.index,
                short(x.max),
                short(x.ratio)
            );
            element(o, &x.worst);
            o.push_str("</tr>\n");
        }
        o.push_str("</table>\n</section>\n");
    }
}

/// Cells of the worst element.
fn element(o: &mut String, w: &Worst) {
    let index: Vec<String> = w.index.iter().map(i64::to_string).collect();
    let number = |x: f64| match x {
        x if x == 0.0 || !x.is_finite() => x.to_string(),
        x if (1e-4..1e7).contains(&x.abs()) => {
            format!("{x:.7}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        x => format!("{x:.6e}"),
    };
    let _ = write!(
        o,
        "<td>{}</td><td class=\"i\"><code>({})</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
        w.device,
        index.join(", "),
        number(w.expected),
        number(w.actual),
        short((w.actual - w.expected).abs()),
        short(w.bound)
    );
}

//! The roofline: achieved rate over intensity, both logarithmic.

use crate::peaks::Peaks;
use crate::report::{Bound, Doc, Row};
use scalify_page::{Log, esc, plain, quantity, seconds, si};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Points drawn, longest first.
const MAX_POINTS: usize = 400;
/// Points with a label.
const LABELS: usize = 6;
/// Decades below the top of the picture.
const DECADES: f64 = 7.0;

/// The section; nothing if no instruction has both a rate and an intensity.
pub(super) fn section(o: &mut String, d: &Doc, p: &Peaks) {
    if d.trace.is_none() {
        return;
    }
    let rate = |r: &Row| {
        let s = r.seconds.filter(|s| *s > 0.0)?;
        Some(r.cost.operations() * r.count? / s).filter(|x| *x > 0.0)
    };
    let mut points: Vec<(&Row, f64, f64)> = d
        .instructions
        .iter()
        .filter(|r| r.collective.is_none())
        .filter_map(|r| Some((r, r.intensity.filter(|x| *x > 0.0)?, rate(r)?)))
        .collect();
    if points.is_empty() {
        return;
    }
    points.sort_by(|a, b| b.0.seconds.unwrap_or(0.0).total_cmp(&a.0.seconds.unwrap_or(0.0)));
    points.truncate(MAX_POINTS);
    let ridge = p.flops / p.bytes;
    let xs = points.iter().map(|p| p.1).chain([ridge]);
    let x = Log::new(xs, DECADES, LEFT, WIDTH - RIGHT);
    let ys = points.iter().map(|p| p.2).chain([p.flops]);
    let y = Log::new(ys, DECADES, HEIGHT - BOTTOM, TOP);
    let _ = writeln!(
        o,
        "<section>\n<h2>Roofline</h2>\n<p class=\"faint\">Peaks: {}, {} ({}). The ridge is at {} FLOP per byte: left of it memory bounds, right of it arithmetic. The area of a mark is the time of an instruction; point at one for its name.</p>",
        quantity(p.flops, "FLOP/s"),
        quantity(p.bytes, "B/s"),
        esc(&p.source),
        plain(ridge)
    );
    let _ = writeln!(
        o,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"roofline\">"
    );
    for t in x.ticks() {
        let at = x.at(t);
        let _ = writeln!(
            o,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 17.0,
            plain(t)
        );
    }
    for t in y.ticks() {
        let at = y.at(t);
        let _ = writeln!(
            o,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 7.0,
            at + 4.0,
            si(t)
        );
    }
    let _ = writeln!(
        o,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">FLOP per byte</text><text x=\"{LEFT}\" y=\"{:.1}\">FLOP/s</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        TOP - 4.0
    );
    // The roof, from the left edge (or where it enters the picture) over the ridge.
    let (low, high) = x.range();
    let start = low.max(y.range().0 / p.bytes).min(ridge);
    let _ = writeln!(
        o,
        "<polyline fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
        x.at(start),
        y.at(start * p.bytes),
        x.at(ridge),
        y.at(p.flops),
        x.at(high),
        y.at(p.flops)
    );
    let whole: f64 = points.iter().filter_map(|p| p.0.seconds).sum();
    for (r, i, f) in points.iter().rev() {
        let s = r.seconds.unwrap_or(0.0);
        let radius = radius(r, whole);
        // Shape and colour: memory-bound are discs, others squares.
        let (px, py) = (x.at(*i), y.at(*f));
        let title = format!(
            "%{} {}: {}, {}, {} FLOP/B",
            r.instruction,
            r.opcode,
            seconds(s),
            quantity(*f, "FLOP/s"),
            plain(*i)
        );
        let _ = if r.bound == Some(Bound::Memory) {
            writeln!(
                o,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"{radius:.1}\" fill=\"#2563eb\" fill-opacity=\".55\" stroke=\"#2563eb\"><title>{}</title></circle>",
                esc(&title)
            )
        } else {
            writeln!(
                o,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#d97706\" fill-opacity=\".55\" stroke=\"#d97706\"><title>{}</title></rect>",
                px - radius,
                py - radius,
                2.0 * radius,
                2.0 * radius,
                esc(&title)
            )
        };
    }
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (r, i, f) in points.iter().take(LABELS) {
        let (px, py) = (x.at(*i), y.at(*f));
        let beside = radius(r, whole) + 5.0;
        let mut ty = py - 4.0;
        // Labels keep a line's distance from each other.
        while taken.iter().any(|t| (t.0 - px).abs() < 170.0 && (t.1 - ty).abs() < 14.0) {
            ty += 14.0;
        }
        taken.push((px, ty));
        let end = px > WIDTH - 190.0;
        let _ = writeln!(
            o,
            "<text x=\"{:.1}\" y=\"{ty:.1}\"{}>{}</text>",
            if end { px - beside } else { px + beside },
            if end { " text-anchor=\"end\"" } else { "" },
            esc(&r.instruction)
        );
    }
    o.push_str("</svg>\n<p class=\"legend\">● memory-bound&emsp;■ compute-bound</p>\n</section>\n");
}

/// Radius of a mark, in pixels.
fn radius(r: &Row, whole: f64) -> f64 {
    (22.0 * (r.seconds.unwrap_or(0.0) / whole.max(1e-300)).sqrt()).max(3.0)
}

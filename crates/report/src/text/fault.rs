//! The frontier: the likely fault with its source line, then the rest.

use super::{MAX_LIST, Paint, TextOptions};
use crate::sources::Sources;
use crate::{Subject, names};
use annotate_snippets::{AnnotationKind, Group, Level, Message, Origin, Renderer, Snippet};
use scalify_prove::outcome::{Frame, FrontierItem, Relation, Verdict};
use std::fmt::Write as _;

/// Call-site frames shown of one item.
const MAX_FRAMES: usize = 4;

/// The likely fault with its source lines.
pub(super) fn first(s: &Subject<'_>, options: &mut TextOptions) -> String {
    match s.decision.outcome.frontier.first() {
        Some(first) => format!("\n{}\n", snippet(s, first, options)),
        None => String::new(),
    }
}

/// The other items, one line each.
pub(super) fn rest(t: &mut String, s: &Subject<'_>, options: &TextOptions) {
    let p = Paint(options.color);
    let rest = s.decision.outcome.frontier.get(1..).unwrap_or(&[]);
    if rest.is_empty() {
        return;
    }
    let _ = writeln!(t, "\n{}", p.bold("also at the frontier, in order of suspicion"));
    let shown = if options.all || rest.len() <= MAX_LIST + 1 { rest.len() } else { MAX_LIST };
    for (i, f) in rest.iter().take(shown).enumerate() {
        let at = f.frames.first().map_or(String::new(), |f| format!("  {}", location(f)));
        let code = if f.code == "unrelated" { String::new() } else { format!("[{}] ", f.code) };
        let name = names::name(s.dist, f.instr);
        let _ = writeln!(t, "  {}. {}{at}: {code}{}", i + 2, p.bold(name), f.reason);
    }
    if shown < rest.len() {
        let _ = writeln!(t, "  {}", p.dim(&format!("... and {} more", rest.len() - shown)));
    }
}

fn location(f: &Frame) -> String {
    if f.line == 0 { f.file.clone() } else { format!("{}:{}", f.file, f.line) }
}

/// Byte range of the marked columns in `line`; the line without its
/// indentation if there are none. Recorded columns are byte offsets from 0
/// (as Python's `co_positions`).
fn marked(line: &str, f: &Frame) -> std::ops::Range<usize> {
    let end = line.trim_end().len();
    let whole = (line.len() - line.trim_start().len()).min(end)..end;
    let from = if f.column == 0 && f.end_column == 0 { whole.start } else { f.column as usize };
    let to = if f.end_column > f.column { (f.end_column as usize).min(end) } else { end };
    if from < to && line.is_char_boundary(from) && line.is_char_boundary(to) {
        from..to
    } else {
        whole
    }
}

/// The source line of a frame with its columns marked, or its position only.
fn element<'a>(
    group: Group<'a>,
    f: &'a Frame,
    sources: &mut Sources,
    kind: AnnotationKind,
    label: String,
) -> Group<'a> {
    match sources.line(&f.file, f.line) {
        Some(line) if line.len() < 400 => {
            let span = marked(line, f);
            let line = line.to_string();
            group.element(
                Snippet::source(line)
                    .line_start(f.line as usize)
                    .path(clean(&f.file))
                    .annotation(kind.span(span).label(clean(&label))),
            )
        }
        _ => {
            let mut origin = Origin::path(clean(&f.file));
            if f.line != 0 {
                origin = origin.line(f.line as usize);
            }
            group.element(origin).element(note(&label))
        }
    }
}

/// Control characters escaped, line ends kept.
fn clean(text: &str) -> String {
    super::finish(text, false)
}

fn note<'a>(text: &str) -> Message<'a> {
    Level::NOTE.message(clean(text))
}

fn relation(s: &Subject<'_>, r: &Relation) -> String {
    let text = if r.text.is_empty() {
        format!("= {}, {}", names::name(s.base, r.base), names::layout(r))
    } else {
        r.text.clone()
    };
    let steps = names::bijection(&r.bijection);
    if steps.is_empty() { text } else { format!("{text} [{steps}]") }
}

fn snippet(s: &Subject<'_>, f: &FrontierItem, options: &mut TextOptions) -> String {
    let level =
        if s.decision.outcome.verdict == Verdict::Refuted { Level::ERROR } else { Level::WARNING };
    let repair = super::example::headline(s, f).map(|r| crate::repair_sentence(s, r));
    let mut title = level.primary_title(clean(repair.as_ref().unwrap_or(&f.reason)));
    if f.code != "unrelated" {
        title = title.id(f.code);
    }
    let label = format!("{} {}", names::name(s.dist, f.instr), names::shape(s.dist, f.instr));
    let mut group = Group::with_title(title);
    match f.frames.split_first() {
        Some((inner, callers)) => {
            let label = match inner.function.as_str() {
                "" | "<module>" => label,
                function => format!("{label} in `{function}`"),
            };
            group = element(group, inner, &mut options.sources, AnnotationKind::Primary, label);
            for c in callers.iter().take(MAX_FRAMES) {
                let label = match c.function.as_str() {
                    "" | "<module>" => "called from here".to_string(),
                    function => format!("called from here in `{function}`"),
                };
                let kind = AnnotationKind::Context;
                group = element(group, c, &mut options.sources, kind, label);
            }
            if callers.len() > MAX_FRAMES {
                let more = format!("{} more callers", callers.len() - MAX_FRAMES);
                group = group.element(note(&more));
            }
        }
        None => {
            group = group.element(Origin::path(clean(s.dist_file)));
            group = group.element(note(&format!("{label}, no source line recorded")));
        }
    }
    let mut operands = String::new();
    for (k, (id, r)) in f.operands.iter().enumerate() {
        let what = match r {
            Some(r) => relation(s, r),
            None => "not related".to_string(),
        };
        let shape = names::shape(s.dist, *id);
        let line = format!("operand {k}: {} {shape}  {what}", names::name(s.dist, *id));
        let _ = write!(operands, "{}{line}", if k == 0 { "" } else { "\n" });
        if k + 1 == MAX_LIST && f.operands.len() > MAX_LIST + 1 {
            let _ = write!(operands, "\n... and {} more", f.operands.len() - MAX_LIST);
            break;
        }
    }
    if !operands.is_empty() {
        group = group.element(note(&operands));
    }
    if let Some(b) = f.counterpart {
        let place = super::place(s.base, b);
        let text = format!("compared with {place} {} of the baseline", names::shape(s.base, b));
        group = group.element(note(&text));
    }
    // The title may say it already.
    if let Some(e) = f.expected.as_ref().filter(|_| repair.is_none()) {
        group = group.element(Level::HELP.message(clean(&format!("expected {e}"))));
    }
    if !f.reaches.is_empty() {
        let name = |i: &usize| {
            let hit = s.decision.outcome.outputs.iter().find(|r| r.index == *i);
            hit.map_or(format!("#{i}"), super::output_name)
        };
        let mut text: Vec<String> = f.reaches.iter().take(MAX_LIST).map(name).collect();
        if f.reaches.len() > MAX_LIST {
            text.push(format!("and {} more", f.reaches.len() - MAX_LIST));
        }
        let plural = if f.reaches.len() == 1 { "" } else { "s" };
        let text = format!("reaches output{plural} {}", text.join(", "));
        group = group.element(note(&text));
    }
    let renderer = if options.color { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group])
}

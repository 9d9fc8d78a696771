//! The reader's error and its rendering over the source text.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use scalify_ir::Span;

/// Why a text is no HLO module, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// What is wrong.
    pub message: String,
    /// Bytes of the text it is about.
    pub span: Span,
    /// Line of the first byte, from 1.
    pub line: u32,
    /// Column of the first byte in characters, from 1.
    pub column: u32,
    /// What would have been accepted.
    pub expected: Option<String>,
    /// Further places with a remark each.
    pub labels: Vec<(Span, String)>,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if let Some(e) = &self.expected {
            write!(f, ", expected {e}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseError {}

/// Widest part of a line that is rendered, in bytes on each side.
const SIDE: usize = 160;

impl ParseError {
    pub(crate) fn new(text: &str, start: usize, end: usize, message: String) -> Self {
        let (line, column) = line_column(text, start);
        let span = Span { start: start as u32, end: end.max(start) as u32 };
        ParseError { message, span, line, column, expected: None, labels: Vec::new() }
    }

    /// The error with the line it stands on, as a compiler prints it. Only a
    /// window of the text around each place is looked at.
    pub fn render(&self, file_name: &str, text: &str, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let main = window(text, self.span);
        let note = match &self.expected {
            Some(e) => format!("expected {e}"),
            None => String::new(),
        };
        let mut annotation = AnnotationKind::Primary.span(main.at.clone());
        if !note.is_empty() {
            annotation = annotation.label(note.as_str());
        }
        let snippet = Snippet::source(main.text)
            .path(file_name)
            .line_start(self.line as usize)
            .annotation(annotation);
        let mut groups = vec![Level::ERROR.primary_title(self.message.as_str()).element(snippet)];
        for (span, remark) in &self.labels {
            let w = window(text, *span);
            let line = line_column(text, span.start as usize).0;
            groups.push(
                Level::NOTE.secondary_title(remark.as_str()).element(
                    Snippet::source(w.text)
                        .path(file_name)
                        .line_start(line as usize)
                        .annotation(AnnotationKind::Context.span(w.at)),
                ),
            );
        }
        renderer.render(&groups).to_string()
    }
}

struct Window<'a> {
    text: &'a str,
    at: std::ops::Range<usize>,
}

fn floor(text: &str, mut i: usize) -> usize {
    i = i.min(text.len());
    while !text.is_char_boundary(i) {
        i -= 1;
    }
    i
}

/// The line of `span`, cut to a readable width.
fn window(text: &str, span: Span) -> Window<'_> {
    let at = floor(text, span.start as usize);
    let from = floor(text, at.saturating_sub(SIDE));
    let start = memchr::memrchr(b'\n', &text.as_bytes()[from..at]).map_or(from, |i| from + i + 1);
    let to = floor(text, at + SIDE);
    let end = memchr::memchr(b'\n', &text.as_bytes()[at..to]).map_or(to, |i| at + i);
    let stop = floor(text, (span.end as usize).clamp(at, end));
    Window { text: &text[start..end], at: at - start..stop.max(at) - start }
}

/// Line and column (in characters), both from 1.
pub(crate) fn line_column(text: &str, at: usize) -> (u32, u32) {
    let at = floor(text, at);
    let head = &text[..at];
    let line = memchr::memchr_iter(b'\n', head.as_bytes()).count() + 1;
    let start = memchr::memrchr(b'\n', head.as_bytes()).map_or(0, |i| i + 1);
    let column = head[start..].chars().count() + 1;
    (line.min(u32::MAX as usize) as u32, column.min(u32::MAX as usize) as u32)
}

//! The page: graphs, findings and the front end in one file.

use crate::encode;
use crate::graph::Graph;
use serde_json::{Value, json};

const STYLE: &str = include_str!("../web/style.css");
/// The front end, in the order in which the browser reads it.
const SCRIPTS: [&str; 7] = [
    include_str!("../web/data.js"),
    include_str!("../web/scene.js"),
    include_str!("../web/draw.js"),
    include_str!("../web/overlay.js"),
    include_str!("../web/panel.js"),
    include_str!("../web/search.js"),
    include_str!("../web/main.js"),
];

/// What a page shows.
#[derive(Default)]
pub struct Page {
    /// Title of the window.
    pub title: String,
    /// A verification report (`docs/JSON.md`) about the two graphs.
    pub report: Option<Value>,
    /// Numbers or words per instruction: `{name: value}`,
    /// `{name: {field: value}}` or `[{instruction, field..}]`.
    pub numbers: Option<Value>,
    /// The graphs are passes of one module: names of the passes.
    pub passes: Vec<String>,
}

/// Writes the page. `lines` looks up source lines (file as recorded, line from
/// 1). Two graphs are shown side by side, passes with a slider.
///
/// # Errors
/// None in practice; errors of the JSON writer and compressor are passed on.
pub fn render(
    page: &Page,
    graphs: &[Graph<'_>],
    lines: &mut dyn FnMut(&str, u32) -> Option<String>,
) -> std::io::Result<String> {
    let mut blobs = Vec::new();
    for g in graphs {
        blobs.push(encode::pack(&encode::graph(g, lines)?)?);
    }
    let facts = json!({
        "title": page.title,
        "report": page.report,
        "numbers": page.numbers,
        "passes": page.passes,
        "graphs": graphs.iter().map(|g| json!({
            "name": g.name,
            "instructions": g.module.instrs.len(),
        })).collect::<Vec<_>>(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    let facts = encode::pack(&serde_json::to_vec(&facts)?)?;
    let mut out = String::with_capacity(1 << 20);
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    // Nothing is loaded from anywhere.
    out.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n");
    out.push_str(&format!(
        "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        scalify_page::esc(&page.title)
    ));
    out.push_str("<noscript>This page needs JavaScript to draw the graph.</noscript>\n");
    out.push_str(&format!("<script type=\"text/plain\" id=\"facts\">{facts}</script>\n"));
    for (k, b) in blobs.iter().enumerate() {
        out.push_str(&format!("<script type=\"text/plain\" id=\"graph{k}\">{b}</script>\n"));
    }
    for s in SCRIPTS {
        out.push_str("<script>\n");
        out.push_str(s);
        out.push_str("</script>\n");
    }
    out.push_str("</body>\n</html>\n");
    Ok(out)
}

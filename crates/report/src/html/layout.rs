//! Pictures of relations: which device holds which block of which dimension.

use super::{esc, list, text};
use serde_json::Value;
use std::fmt::Write;

/// Devices above which there is no picture.
const MAX_DEVICES: i64 = 64;
const COLORS: [&str; 8] =
    ["#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d", "#be185d"];

/// The array as a rectangle cut along the sharded dimensions (two of them at
/// most), each block with the ids of the devices that hold it. Empty if the
/// relation is no sharding or the mesh is large.
pub(super) fn picture(relation: &Value, mesh: &[Value]) -> String {
    let axes: Vec<(&str, i64)> =
        mesh.iter().map(|a| (text(a, "axis"), a["size"].as_i64().unwrap_or(1).max(1))).collect();
    let devices = axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.1)).unwrap_or(i64::MAX);
    let dims = list(relation, "dims");
    if devices > MAX_DEVICES || dims.is_empty() || dims.iter().any(|d| text(d, "kind") == "other") {
        return String::new();
    }
    // Tile of each device along each sharded dimension.
    let tile = |dim: &Value, device: i64| -> Option<(i64, i64)> {
        let (mut tile, mut count) = (0, 1);
        for a in list(dim, "axes") {
            let k = axes.iter().position(|x| Some(x.0) == a.as_str())?;
            let stride: i64 = axes.iter().skip(k + 1).map(|x| x.1).product();
            let size = axes.get(k)?.1;
            tile = tile * size + device / stride % size;
            count *= size;
        }
        Some((tile, count))
    };
    let sharded: Vec<(usize, &Value)> =
        dims.iter().enumerate().filter(|(_, d)| text(d, "kind") == "sharded").collect();
    if sharded.len() > 2 {
        return String::new();
    }
    // One sharded dimension is drawn along the side it has in a matrix.
    let (down, along) = match sharded[..] {
        [] => (None, None),
        [a] if a.0 + 1 == dims.len() => (None, Some(a)),
        [a] => (Some(a), None),
        [a, b] => (Some(a), Some(b)),
        _ => return String::new(),
    };
    let count = |x: Option<(usize, &Value)>| x.and_then(|d| tile(d.1, 0)).map_or(1, |t| t.1);
    let (rows, cols) = (count(down), count(along));
    if rows > 32 || cols > 32 || rows < 1 || cols < 1 {
        return String::new();
    }
    let at = |x: Option<(usize, &Value)>, d: i64| x.and_then(|x| tile(x.1, d)).map_or(0, |t| t.0);
    let mut cells = vec![Vec::new(); (rows * cols) as usize];
    for d in 0..devices {
        if let Some(c) = cells.get_mut((at(down, d) * cols + at(along, d)) as usize) {
            c.push(d);
        }
    }
    let (w, h) = (200 / cols.max(1), 100 / rows.max(1));
    let (w, h) = (w.max(26), h.max(18));
    let (left, top) = (if down.is_some() { 70 } else { 4 }, if along.is_some() { 18 } else { 4 });
    let (width, height) = (left + cols * w + 6, top + rows * h + 6);
    let mut o =
        format!("<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">");
    let label = |d: (usize, &Value)| {
        let names: Vec<&str> = list(d.1, "axes").iter().filter_map(Value::as_str).collect();
        esc(&format!("dim {} / {}", d.0, names.join("·")))
    };
    if let Some(d) = along {
        let _ = write!(o, "<text x=\"{left}\" y=\"12\">{} →</text>", label(d));
    }
    if let Some(d) = down {
        let _ = write!(o, "<text x=\"2\" y=\"{}\">{} ↓</text>", top + 14, label(d));
    }
    for (k, ids) in cells.iter().enumerate() {
        let (r, c) = (k as i64 / cols, k as i64 % cols);
        let (x, y) = (left + c * w, top + r * h);
        let color = COLORS[k % COLORS.len()];
        let most = (w / 8).max(2) as usize;
        let mut t: Vec<String> = ids.iter().take(most).map(i64::to_string).collect();
        if ids.len() as i64 == devices && devices > 1 {
            t = vec!["all".into()];
        } else if ids.len() > most {
            t.push("…".into());
        }
        let title: Vec<String> = ids.iter().map(i64::to_string).collect();
        let _ = write!(
            o,
            "<g><title>devices {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"2\" fill=\"{color}\" fill-opacity=\"0.85\"/><text class=\"on\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>",
            title.join(", "),
            w - 2,
            h - 2,
            x + w / 2 - 1,
            y + h / 2 + 3,
            t.join(",")
        );
    }
    o.push_str("</svg>");
    let partial = list(relation, "partial");
    for p in partial {
        let _ = write!(
            o,
            "<p class=\"legend\">partial {} over {}</p>",
            esc(text(p, "monoid")),
            esc(text(p, "axis"))
        );
    }
    o
}

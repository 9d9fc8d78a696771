//! The facts as text.

use super::{Facts, Value};
use std::fmt::Write as _;

/// Rows of a table shown at most.
const MAX_ROWS: usize = 40;

pub(super) fn render(f: &Facts) -> String {
    let mut t = String::new();
    let parts = match f.num_partitions {
        Some(n) => format!(", {n} partitions"),
        None => String::new(),
    };
    let replicas =
        if f.replica_count > 1 { format!(", {} replicas", f.replica_count) } else { String::new() };
    let _ = writeln!(t, "{}: module {}{parts}{replicas}", f.file, f.module);
    let _ = writeln!(
        t,
        "{} instructions in {} computations, {} in the entry computation",
        f.instructions, f.computations, f.entry_instructions
    );
    for m in &f.meshes {
        let axes: Vec<String> = m.axes.iter().map(|(a, n)| format!("{a}={n}")).collect();
        let order = if m.row_major { "" } else { ", devices in another order" };
        let _ = writeln!(t, "mesh @{}: {} ({} devices{order})", m.name, axes.join(","), m.devices);
    }
    if let Some(m) = &f.inferred_mesh {
        let axes: Vec<String> = m.iter().map(|(a, n)| format!("{a}={n}")).collect();
        let _ = writeln!(t, "mesh {} (inferred from the parameter shardings)", axes.join(","));
    }
    values(&mut t, "parameters", &f.parameters);
    values(&mut t, "outputs", &f.outputs);
    let mut codes: Vec<(&str, usize)> = f.opcodes.iter().map(|(k, v)| (*k, *v)).collect();
    codes.sort_by_key(|c| std::cmp::Reverse(c.1));
    let _ = writeln!(t, "\nopcodes");
    for (name, n) in codes {
        let _ = writeln!(t, "  {n:>7}  {name}");
    }
    if !f.collectives.is_empty() {
        let rows: Vec<[String; 4]> = f
            .collectives
            .iter()
            .map(|c| {
                let size = c.group_size.map_or(String::new(), |n| n.to_string());
                [c.count.to_string(), c.opcode.to_string(), size, size_text(c.bytes)]
            })
            .collect();
        let _ = writeln!(
            t,
            "\ncollectives (count, opcode, group size, operand bytes per device, groups)"
        );
        let w = |k: usize| rows.iter().filter_map(|r| r.get(k)).map(String::len).max().unwrap_or(0);
        let (w0, w1, w2, w3) = (w(0), w(1), w(2), w(3));
        for ([count, opcode, size, bytes], c) in rows.iter().zip(&f.collectives) {
            let _ = writeln!(
                t,
                "  {count:>w0$}  {opcode:w1$}  {size:>w2$}  {bytes:>w3$}  {}",
                c.groups
            );
        }
    }
    if !f.sources.is_empty() {
        let _ = writeln!(
            t,
            "\nsource files ({} of {} instructions have a position)",
            f.with_source, f.instructions
        );
        for s in f.sources.iter().take(MAX_ROWS) {
            let _ = writeln!(t, "  {:>7}  {}", s.instructions, s.file);
        }
        more(&mut t, f.sources.len());
    }
    clean(&t)
}

fn values(t: &mut String, title: &str, values: &[Value]) {
    let _ = writeln!(t, "\n{title} ({})", values.len());
    let rows = || values.iter().take(MAX_ROWS);
    let w0 = rows().map(|v| v.name.chars().count()).max().unwrap_or(0).min(48);
    let w1 = rows().map(|v| v.shape.chars().count()).max().unwrap_or(0).min(32);
    for v in rows() {
        let layout = match (&v.spec, &v.sharding) {
            (Some(s), _) => s.clone(),
            (None, Some(s)) => format!("{{{}}}", s.trim_start_matches('{').trim_end_matches('}')),
            (None, None) => String::new(),
        };
        let row = format!("  #{:<4} {:w0$}  {:w1$}  {layout}", v.index, v.name, v.shape);
        let _ = writeln!(t, "{}", row.trim_end());
    }
    more(t, values.len());
}

fn more(t: &mut String, n: usize) {
    if n > MAX_ROWS {
        let _ = writeln!(t, "  ... and {} more (--json lists all)", n - MAX_ROWS);
    }
}

/// `1.5 MiB`.
fn size_text(bytes: u64) -> String {
    let mut v = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if v < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{v:.1} {unit}") };
        }
        v /= 1024.0;
    }
    format!("{v:.1} TiB")
}

/// Control characters of names escaped.
fn clean(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        if c.is_control() && c != '\n' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

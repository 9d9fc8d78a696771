//! Text of shapes.

use super::comma;
use scalify_ir::{ArrayShape, Layout, Shape};
use std::fmt::Write;

pub(super) fn text(s: &Shape, layouts: bool) -> String {
    let mut out = String::new();
    write_shape(&mut out, s, layouts);
    out
}

pub(super) fn write_shape(out: &mut String, s: &Shape, layouts: bool) {
    match s {
        Shape::Array(a) => array(out, a, layouts),
        Shape::Token => out.push_str("token[]"),
        Shape::Opaque => out.push_str("opaque[]"),
        Shape::Buffer(b) => {
            out.push_str("b(");
            write_shape(out, b, layouts);
            out.push(')');
        }
        Shape::Tuple(parts) => {
            out.push('(');
            for (i, p) in parts.iter().enumerate() {
                comma(out, i);
                write_shape(out, p, layouts);
            }
            out.push(')');
        }
    }
}

fn array(out: &mut String, a: &ArrayShape, layouts: bool) {
    let _ = write!(out, "{a}");
    if let Some(l) = a.layout.as_ref().filter(|_| layouts) {
        layout(out, l);
    }
}

fn layout(out: &mut String, l: &Layout) {
    let start = out.len();
    out.push('{');
    for (i, d) in l.minor_to_major.iter().enumerate() {
        let _ = write!(out, "{}{d}", if i > 0 { "," } else { "" });
    }
    let colon = out.len();
    // XLA reads the parts in one order: D T L # * E S SC P M.
    let rest = parts(&l.rest);
    let pick = |out: &mut String, keys: &[&str]| {
        for key in keys {
            rest.iter().filter(|p| p.0 == *key).for_each(|p| out.push_str(p.1));
        }
    };
    pick(out, &["D"]);
    for (i, t) in l.tiles.iter().enumerate() {
        out.push_str(if i == 0 { "T(" } else { "(" });
        for (k, &d) in t.iter().enumerate() {
            if k > 0 {
                out.push(',');
            }
            match d {
                -1 => out.push('*'),
                d => {
                    let _ = write!(out, "{d}");
                }
            }
        }
        out.push(')');
    }
    pick(out, &["L", "#", "*"]);
    if l.element_size_in_bits != 0 {
        let _ = write!(out, "E({})", l.element_size_in_bits);
    }
    if l.memory_space != 0 {
        let _ = write!(out, "S({})", l.memory_space);
    }
    pick(out, &["SC", "P", "M"]);
    if out.len() > colon {
        out.insert(colon, ':');
    } else if colon == start + 1 {
        // Nothing to say: XLA prints no braces.
        out.truncate(start);
        return;
    }
    out.push('}');
}

/// Splits `D(..)SC(..)(..)` into (key, text) pairs.
fn parts(rest: &str) -> Vec<(&str, &str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    let mut start = 0;
    let mut depth = 0usize;
    for (i, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !rest[i + 1..].starts_with('(') {
                    let text = &rest[start..=i];
                    let key = text.split('(').next().unwrap_or("").trim();
                    out.push((key, text));
                    start = i + 1;
                }
            }
            _ => {}
        }
    }
    out
}

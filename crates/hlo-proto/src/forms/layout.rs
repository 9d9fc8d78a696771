//! The parts of a layout that the IR keeps as printed.

use super::{join, scan::Scan};
use crate::{names, xla};
use scalify_ir::Shape;
use xla::PrimitiveType;

/// `L(..)#(..)*(..)SC(..)P(..)M(..)` and `D(..)`; `shape` prints a shape.
pub(crate) fn layout_rest(
    p: &xla::LayoutProto,
    shape: impl Fn(&xla::ShapeProto) -> String,
) -> String {
    let mut s = String::new();
    if p.dim_level_types().any(|t| t != xla::DimLevelType::DimDense) {
        let letter = |t| match t {
            xla::DimLevelType::DimDense => "D",
            xla::DimLevelType::DimCompressed => "C",
            xla::DimLevelType::DimSingleton => "S",
            xla::DimLevelType::DimLooseCompressed => "H",
        };
        s += &format!("D({})", join(p.dim_level_types().map(letter), ","));
    }
    if !matches!(p.tail_padding_alignment_in_elements, 0 | 1) {
        s += &format!("L({})", p.tail_padding_alignment_in_elements);
    }
    if p.index_primitive_type() != PrimitiveType::Invalid {
        s += &format!("#({})", names::primitive_text(p.index_primitive_type()));
    }
    if p.pointer_primitive_type() != PrimitiveType::Invalid {
        s += &format!("*({})", names::primitive_text(p.pointer_primitive_type()));
    }
    for c in &p.split_configs {
        let open = if s.contains("SC(") { "" } else { "SC" };
        s += &format!("{open}({}:{})", c.dimension, join(&c.split_indices, ","));
    }
    if let Some(inner) = &p.physical_shape {
        s += &format!("P({})", shape(inner));
    }
    if p.dynamic_shape_metadata_prefix_bytes > 0 {
        s += &format!("M({})", p.dynamic_shape_metadata_prefix_bytes);
    }
    s
}

/// A shape with its layouts, as text prints it.
pub(crate) fn shape_text(s: &Shape) -> String {
    let Shape::Array(a) = s else {
        return match s {
            Shape::Tuple(parts) => format!("({})", join(parts.iter().map(shape_text), ", ")),
            Shape::Buffer(inner) => format!("b({})", shape_text(inner)),
            _ => s.to_string(),
        };
    };
    let Some(l) = &a.layout else { return a.to_string() };
    let star = |&d: &i64| if d == -1 { "*".to_owned() } else { d.to_string() };
    let mut parts = String::new();
    for (i, t) in l.tiles.iter().enumerate() {
        let key = if i == 0 { "T" } else { "" };
        parts += &format!("{key}({})", join(t.iter().map(star), ","));
    }
    if l.element_size_in_bits != 0 {
        parts += &format!("E({})", l.element_size_in_bits);
    }
    if l.memory_space != 0 {
        parts += &format!("S({})", l.memory_space);
    }
    parts += &l.rest;
    let colon = if parts.is_empty() { "" } else { ":" };
    format!("{a}{{{}{colon}{parts}}}", join(&l.minor_to_major, ","))
}

/// Adds the parts of `rest` to `p`; a physical shape is left out.
pub(crate) fn parse_layout_rest(rest: &str, p: &mut xla::LayoutProto) -> Option<()> {
    let mut c = Scan::new(rest);
    while !c.done() {
        let key = ["D", "L", "#", "*", "SC", "P", "M"].into_iter().find(|k| c.try_eat(k))?;
        let inner = c.balanced('(', ')')?;
        match key {
            "D" => {
                for t in inner.split(',') {
                    p.dim_level_types.push(match t.trim_end_matches(['+', '~']) {
                        "D" => xla::DimLevelType::DimDense.into(),
                        "C" => xla::DimLevelType::DimCompressed.into(),
                        "S" => xla::DimLevelType::DimSingleton.into(),
                        "H" => xla::DimLevelType::DimLooseCompressed.into(),
                        _ => return None,
                    });
                }
            }
            "L" => p.tail_padding_alignment_in_elements = inner.parse().ok()?,
            "#" => p.index_primitive_type = primitive(inner)?,
            "*" => p.pointer_primitive_type = primitive(inner)?,
            "M" => p.dynamic_shape_metadata_prefix_bytes = inner.parse().ok()?,
            "SC" => {
                let mut inner = inner;
                loop {
                    let (dim, at) = inner.split_once(':')?;
                    let split_indices =
                        at.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
                    let dimension = dim.trim().parse().ok()?;
                    p.split_configs.push(xla::SplitConfigProto { dimension, split_indices });
                    match c.balanced('(', ')') {
                        Some(next) => inner = next,
                        None => break,
                    }
                }
            }
            _ => {}
        }
    }
    Some(())
}

fn primitive(s: &str) -> Option<i32> {
    PrimitiveType::from_str_name(&s.to_ascii_uppercase()).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    // As jaxlib 0.10.2 prints them, less T, E and S.
    #[test]
    fn parts_survive() {
        for s in ["", "L(128)#(u32)*(u32)SC(0:1,2)M(8)", "SC(0:1)(1:2,3)"] {
            let mut p = xla::LayoutProto::default();
            parse_layout_rest(s, &mut p).unwrap();
            assert_eq!(layout_rest(&p, |_| String::new()), s);
        }
        assert!(parse_layout_rest("Q(1)", &mut xla::LayoutProto::default()).is_none());
    }
}

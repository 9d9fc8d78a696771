//! Shapes and layouts.

use crate::{forms, names, xla};
use scalify_ir::{Layout, Shape};
use xla::PrimitiveType as P;

/// Translates a shape. An array without layout gets the row-major one.
pub(crate) fn shape(s: &Shape) -> xla::ShapeProto {
    let of = |t: P, inner: Vec<xla::ShapeProto>| xla::ShapeProto {
        element_type: t.into(),
        tuple_shapes: inner,
        ..Default::default()
    };
    match s {
        Shape::Tuple(parts) => of(P::Tuple, parts.iter().map(shape).collect()),
        Shape::Token => of(P::Token, Vec::new()),
        Shape::Opaque => of(P::OpaqueType, Vec::new()),
        Shape::Buffer(inner) => of(P::Buffer, vec![shape(inner)]),
        Shape::Array(a) => xla::ShapeProto {
            element_type: names::primitive(a.dtype).into(),
            dimensions: a.dims.to_vec(),
            is_dynamic_dimension: (0..a.rank()).map(|i| a.is_dynamic(i)).collect(),
            // XLA refuses constants without a layout; text stands for this one.
            layout: Some(Box::new(match &a.layout {
                Some(l) => layout(l),
                None => layout(&Layout {
                    minor_to_major: (0..a.rank() as i64).rev().collect(),
                    ..Layout::default()
                }),
            })),
            ..Default::default()
        },
    }
}

fn layout(l: &Layout) -> xla::LayoutProto {
    let star = |&d: &i64| if d == -1 { i64::MIN } else { d };
    let mut p = xla::LayoutProto {
        minor_to_major: l.minor_to_major.to_vec(),
        tiles: l
            .tiles
            .iter()
            .map(|t| xla::TileProto { dimensions: t.iter().map(star).collect() })
            .collect(),
        element_size_in_bits: l.element_size_in_bits,
        memory_space: l.memory_space,
        tail_padding_alignment_in_elements: 1,
        ..Default::default()
    };
    let mut full = p.clone();
    if forms::parse_layout_rest(&l.rest, &mut full).is_some() {
        p = full;
    }
    p
}

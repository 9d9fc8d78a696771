//! Shapes and layouts.

use crate::error::{Part, bad};
use crate::{forms, names, xla};
use scalify_ir::shape::Dims;
use scalify_ir::{ArrayShape, Layout, Shape};
use xla::PrimitiveType as P;

const SHAPE: &str = "shape";

/// Translates a shape. Nesting is bounded by the decoder (100 levels).
pub(crate) fn shape(p: &xla::ShapeProto) -> Part<Shape> {
    let Ok(kind) = P::try_from(p.element_type) else {
        return bad(SHAPE, format!("unknown element type {}", p.element_type));
    };
    Ok(match kind {
        P::Tuple => Shape::Tuple(p.tuple_shapes.iter().map(shape).collect::<Part<Vec<Shape>>>()?),
        P::Token => Shape::Token,
        P::OpaqueType => Shape::Opaque,
        P::Buffer => match p.tuple_shapes.as_slice() {
            [inner] => match shape(inner)? {
                s @ Shape::Array(_) => Shape::Buffer(Box::new(s)),
                s => return bad(SHAPE, format!("a buffer of {s}, expected of an array")),
            },
            other => {
                return bad(SHAPE, format!("a buffer of {} shapes, expected one", other.len()));
            }
        },
        _ => Shape::Array(array(p)?),
    })
}

/// Translates the shape of an array.
pub(crate) fn array(p: &xla::ShapeProto) -> Part<ArrayShape> {
    let Some(dtype) = names::dtype(p.element_type()) else {
        return bad(SHAPE, format!("element type {} of an array", p.element_type().as_str_name()));
    };
    let rank = p.dimensions.len();
    if rank > 64 {
        return bad(SHAPE, format!("{rank} dimensions, at most 64 are supported"));
    }
    if p.is_dynamic_dimension.len() > rank {
        return bad(SHAPE, "more dynamic flags than dimensions");
    }
    let mut dynamic = 0u64;
    for (i, &d) in p.is_dynamic_dimension.iter().enumerate() {
        dynamic |= u64::from(d) << i;
    }
    for (i, &d) in p.dimensions.iter().enumerate() {
        if d == Shape::UNBOUNDED {
            dynamic |= 1 << i;
        } else if d < 0 {
            return bad(SHAPE, format!("size {d} of dimension {i} is negative"));
        }
    }
    let layout = match &p.layout {
        Some(l) => layout(l, rank)?.map(Box::new),
        None => None,
    };
    Ok(ArrayShape { dtype, dims: p.dimensions.iter().copied().collect(), dynamic, layout })
}

/// `None` for a scalar's layout that text does not print.
fn layout(p: &xla::LayoutProto, rank: usize) -> Part<Option<Layout>> {
    let minor_to_major: Dims = p.minor_to_major.iter().copied().collect();
    check_order(&minor_to_major, rank)?;
    let star = |&d: &i64| if d == i64::MIN { -1 } else { d };
    let text = |s: &xla::ShapeProto| shape(s).map_or("?".to_owned(), |s| s.to_string());
    let l = Layout {
        minor_to_major,
        tiles: p.tiles.iter().map(|t| t.dimensions.iter().map(star).collect()).collect(),
        element_size_in_bits: p.element_size_in_bits,
        memory_space: p.memory_space,
        rest: forms::layout_rest(p, text),
    };
    Ok((rank > 0 || l != Layout::default()).then_some(l))
}

fn check_order(order: &[i64], rank: usize) -> Part<()> {
    let mut seen = 0u64;
    for &d in order {
        if !(0..rank as i64).contains(&d) || seen >> d & 1 == 1 {
            return bad("shape.layout", format!("{order:?} is not an order of {rank} dimensions"));
        }
        seen |= 1 << d;
    }
    if order.len() != rank {
        return bad("shape.layout", format!("orders {} of {rank} dimensions", order.len()));
    }
    Ok(())
}

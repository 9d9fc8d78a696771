//! Text of constants.

use crate::float;
use scalify_ir::dtype::DTypeClass;
use scalify_ir::{ArrayShape, DType, Literal, LiteralData, Shape};
use std::fmt::Write;

/// Most braces printed for an array without elements.
const MAX_EMPTY: i64 = 1 << 16;

/// Appends the value as it stands between the parentheses of `constant(..)`.
pub(super) fn write(out: &mut String, l: &Literal, max: Option<usize>) {
    match (&l.data, &l.shape) {
        (LiteralData::Tuple(parts), _) => {
            out.push('(');
            for (i, p) in parts.iter().enumerate() {
                super::comma(out, i);
                write(out, p, max);
            }
            out.push(')');
        }
        (LiteralData::Dense(bytes), Shape::Array(a)) => {
            let count = a.elements().unwrap_or(0);
            let fits = max.is_none_or(|m| count as u64 <= m as u64) || a.dims.is_empty();
            let braces = a.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)));
            let small = count > 0 || braces.is_some_and(|n| n <= MAX_EMPTY);
            if fits && small {
                dense(out, a, bytes);
            } else {
                out.push_str("{...}");
            }
        }
        _ => out.push_str("{...}"),
    }
}

fn dense(out: &mut String, a: &ArrayShape, bytes: &[u8]) {
    let width = a.dtype.literal_bytes();
    let mut at = bytes.chunks_exact(width.max(1));
    level(out, a.dtype, &a.dims, &mut at);
}

fn level<'a>(out: &mut String, t: DType, dims: &[i64], at: &mut impl Iterator<Item = &'a [u8]>) {
    let Some((&n, inner)) = dims.split_first() else {
        if let Some(b) = at.next() {
            element(out, t, b);
        }
        return;
    };
    out.push('{');
    for i in 0..n {
        if i > 0 {
            out.push_str(", ");
        } else if !inner.is_empty() {
            out.push(' ');
        }
        level(out, t, inner, at);
    }
    out.push_str(if !inner.is_empty() && n > 0 { " }" } else { "}" });
}

fn bits(b: &[u8]) -> u64 {
    b.iter().rev().fold(0, |v, &b| v << 8 | b as u64)
}

fn element(out: &mut String, t: DType, b: &[u8]) {
    match t.class() {
        DTypeClass::Bool => out.push_str(if bits(b) != 0 { "true" } else { "false" }),
        DTypeClass::Unsigned => {
            let _ = write!(out, "{}", bits(b));
        }
        DTypeClass::Signed => {
            let shift = 64 - 8 * b.len().min(8) as u32;
            let _ = write!(out, "{}", (bits(b) << shift) as i64 >> shift);
        }
        DTypeClass::Float => float::write(out, t, bits(b)),
        DTypeClass::Complex => {
            let part = t.complex_part().unwrap_or(DType::F32);
            let (re, im) = b.split_at(b.len() / 2);
            out.push('(');
            float::write(out, part, bits(re));
            out.push_str(", ");
            float::write(out, part, bits(im));
            out.push(')');
        }
    }
}

/// Appends the first `max` elements, separated by commas; true if there are
/// more.
pub(super) fn flat(out: &mut String, l: &Literal, max: usize) -> Option<bool> {
    let (LiteralData::Dense(bytes), Shape::Array(a)) = (&l.data, &l.shape) else { return None };
    let mut at = bytes.chunks_exact(a.dtype.literal_bytes().max(1));
    for (i, b) in at.by_ref().take(max).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        element(out, a.dtype, b);
    }
    Some(at.next().is_some())
}

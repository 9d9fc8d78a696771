//! Values of constants.

use crate::cursor::{Cursor, R};
use crate::float;
use scalify_ir::dtype::DTypeClass;
use scalify_ir::{ArrayShape, DType, Literal, LiteralData, Shape};

/// Reads the value of a constant of this shape.
pub(crate) fn literal(c: &mut Cursor<'_>, shape: &Shape) -> R<Literal> {
    match shape {
        Shape::Array(a) => array(c, a),
        Shape::Tuple(parts) => {
            c.enter(1)?;
            c.expect(b'(', "`(` and the elements of a tuple")?;
            let mut out = Vec::new();
            for (i, p) in parts.iter().enumerate() {
                if i > 0 {
                    c.expect(b',', "`,` and the next element of the tuple")?;
                }
                out.push(literal(c, p)?);
            }
            c.expect(b')', "`)` after the elements of a tuple")?;
            c.leave(1);
            Ok(Literal { shape: shape.clone(), data: LiteralData::Tuple(out) })
        }
        _ => c.fail(c.pos, c.pos + 1, format!("a constant cannot be a {shape}")),
    }
}

fn array(c: &mut Cursor<'_>, a: &ArrayShape) -> R<Literal> {
    let start = c.pos;
    let rank = a.rank();
    let count = match a.elements() {
        Some(n) => n as u64,
        None if a.dims.contains(&0) => 0,
        None => u64::MAX,
    };
    let room = (c.text.len() - c.pos) as u64;
    let width = a.dtype.literal_bytes();
    let mut out: Vec<u8> =
        Vec::with_capacity(count.min(room / 2 + 1).min(1 << 12) as usize * width);
    let mut seen = vec![0i64; rank];
    let mut level = 0;
    let mut elided = false;
    loop {
        c.ws();
        let at = c.pos;
        match c.peek() {
            b'{' => {
                if level == rank {
                    return c.fail(at, at + 1, format!("braces nest deeper than rank {rank}"));
                }
                if level > 0 {
                    count_one(c, a, &mut seen, level - 1, at)?;
                }
                c.pos += 1;
                level += 1;
            }
            b'}' if level > 0 => {
                level -= 1;
                if seen[level] != a.dims[level] && !(elided && level == 0) {
                    let (n, want) = (seen[level], a.dims[level]);
                    return c.fail(
                        at,
                        at + 1,
                        format!("dimension {level} of {a} has {want} elements, {n} are given"),
                    );
                }
                seen[level] = 0;
                c.pos += 1;
            }
            // XLA skips any commas here.
            b',' if level > 0 => {
                c.pos += 1;
                continue;
            }
            b'.' if c.peek_at(1) == b'.' && c.peek_at(2) == b'.' => {
                if level != 1 {
                    return c.fail(at, at + 3, "`...` must stand in the outermost braces");
                }
                elided = true;
                c.pos += 3;
            }
            _ => {
                if level != rank {
                    let what = if level == 0 { "`{`" } else { "`{` or `}`" };
                    return c.expected(format!("{what} of a literal of shape {a}"));
                }
                if rank > 0 {
                    count_one(c, a, &mut seen, rank - 1, at)?;
                }
                element(c, a.dtype, &mut out)?;
            }
        }
        if level == 0 {
            break;
        }
    }
    if elided {
        return Ok(Literal { shape: Shape::Array(a.clone()), data: LiteralData::Elided });
    }
    if count.checked_mul(width as u64) != Some(out.len() as u64) {
        return c.fail(start, c.pos, format!("this is not a literal of shape {a}"));
    }
    Ok(Literal::dense(a.clone(), out))
}

#[inline]
fn count_one(c: &Cursor<'_>, a: &ArrayShape, seen: &mut [i64], d: usize, at: usize) -> R<()> {
    if seen[d] >= a.dims[d] {
        let n = a.dims[d];
        return c.fail(at, at + 1, format!("dimension {d} of {a} has only {n} elements"));
    }
    seen[d] += 1;
    Ok(())
}

#[inline]
fn element(c: &mut Cursor<'_>, t: DType, out: &mut Vec<u8>) -> R<()> {
    let width = t.literal_bytes();
    match t.class() {
        DTypeClass::Float => {
            let bits = number(c, t)?;
            out.extend_from_slice(&bits.to_le_bytes()[..width]);
        }
        DTypeClass::Complex => {
            let part = t.complex_part().unwrap_or(DType::F32);
            let w = part.literal_bytes();
            let parens = c.eat(b'(');
            let re = number(c, part)?;
            out.extend_from_slice(&re.to_le_bytes()[..w]);
            let im = if parens {
                c.expect(b',', "`,` and the imaginary part")?;
                let im = number(c, part)?;
                c.expect(b')', "`)` after the imaginary part")?;
                im
            } else {
                0
            };
            out.extend_from_slice(&im.to_le_bytes()[..w]);
        }
        class => {
            c.ws();
            let at = c.pos;
            if class == DTypeClass::Bool && matches!(c.peek(), b't' | b'f') {
                out.push(c.bool()? as u8);
                return Ok(());
            }
            if t == DType::U64 {
                out.extend_from_slice(&u64_value(c)?.to_le_bytes());
                return Ok(());
            }
            let v = match c.int(if class == DTypeClass::Bool { "a boolean" } else { "an integer" })
            {
                Ok(v) => v,
                Err(mut e) => {
                    // 1.5 and the like: point at the whole number.
                    if e.expected.is_some() {
                        e.expected = Some(format!("an element of type {t}"));
                    }
                    return Err(e);
                }
            };
            if class == DTypeClass::Bool {
                out.push((v != 0) as u8);
            } else {
                let (lo, hi) = t.int_range().unwrap_or((0, 0));
                if (v as i128) < lo || v as i128 > hi {
                    return c.fail(at, c.pos, format!("{v} is out of the range of {t}"));
                }
                out.extend_from_slice(&v.to_le_bytes()[..width]);
            }
            if c.is_ident(c.pos) {
                return c.expected(format!("an element of type {t}"));
            }
        }
    }
    Ok(())
}

fn u64_value(c: &mut Cursor<'_>) -> R<u64> {
    let at = c.pos;
    if c.peek() == b'-' {
        // XLA reads these as their two's complement.
        return c.int("an integer").map(|v| v as u64);
    }
    let end = c.ident_end(at);
    match c.slice(at, end).parse() {
        Ok(v) => {
            c.pos = end;
            Ok(v)
        }
        Err(_) if c.peek().is_ascii_digit() => c.fail(at, end, "this is not a value of type u64"),
        Err(_) => c.expected("an integer"),
    }
}

/// A float as the bits of type `t`.
#[inline]
fn number(c: &mut Cursor<'_>, t: DType) -> R<u64> {
    c.ws();
    let start = c.pos;
    let neg = c.peek() == b'-';
    let mut i = start + neg as usize;
    if c.at(i).is_some_and(|b| b.is_ascii_alphabetic()) {
        return special(c, t, start, neg);
    }
    while let Some(b) = c.at(i) {
        let sign = matches!(b, b'+' | b'-')
            && c.at(i.wrapping_sub(1)).is_some_and(|p| matches!(p, b'e' | b'E'));
        if !(b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E') || sign) {
            break;
        }
        i += 1;
    }
    let Ok(v) = c.slice(start, i).parse::<f64>() else {
        return c.expected(format!("an element of type {t}"));
    };
    if c.is_ident(i) {
        c.pos = i;
        return c.expected("`,` or `}`");
    }
    c.pos = i;
    match float::from_f64(t, v) {
        Some(bits) if v.is_finite() => Ok(bits),
        _ => c.fail(start, i, format!("{v:e} is out of the range of {t}")),
    }
}

#[cold]
fn special(c: &mut Cursor<'_>, t: DType, start: usize, neg: bool) -> R<u64> {
    c.pos = start + neg as usize;
    match c.ident_opt() {
        "inf" => {
            let v = if neg { f64::NEG_INFINITY } else { f64::INFINITY };
            match float::from_f64(t, v) {
                Some(bits) => Ok(bits),
                None => c.fail(start, c.pos, format!("{t} has no infinity")),
            }
        }
        "nan" => {
            let mut payload = None;
            if c.peek() == b'(' {
                let at = c.pos;
                let end = memchr::memchr(b')', c.text[at..].as_bytes()).map_or(at, |i| at + i);
                let hex = c.slice(at + 1, end).strip_prefix("0x").unwrap_or("");
                let v = u64::from_str_radix(hex, 16).unwrap_or(0);
                let bits = float::payload_bits(t);
                if v == 0 || v >> bits.min(63) != 0 || bits == 0 {
                    let end = (end + 1).min(c.text.len());
                    return c.fail(at, end, format!("this is no NaN payload of {t}"));
                }
                c.pos = end + 1;
                payload = Some(v);
            }
            Ok(float::nan_bits(t, neg, payload))
        }
        _ => {
            c.pos = start;
            c.expected(format!("an element of type {t}"))
        }
    }
}

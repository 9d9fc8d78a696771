//! Shapes and layouts.

use crate::cursor::{Cursor, R};
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use scalify_ir::shape::Dims;
use scalify_ir::{ArrayShape, DType, Layout, Module, Shape, ShapeId, Tile};
use std::hash::Hasher;

/// Shape ids by the text they were read from.
#[derive(Default)]
pub(crate) struct ShapeCache {
    table: HashTable<(u64, u32, u32, ShapeId)>,
}

pub(crate) fn hash(b: &[u8]) -> u64 {
    let mut h = FxHasher::default();
    h.write(b);
    h.finish()
}

/// True if a shape can start here: a type name and `[`, or a parenthesis, or
/// `b(`. White space must be skipped before.
#[inline]
pub(crate) fn can_start(c: &Cursor<'_>) -> bool {
    match c.peek() {
        b'(' => true,
        b'a'..=b'z' => {
            let e = c.ident_end(c.pos);
            match c.at(e) {
                Some(b'[') => true,
                Some(b'(') => e == c.pos + 1 && c.peek() == b'b',
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    let rest = c.text.as_bytes().get(e..).unwrap_or_default();
                    rest.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[')
                }
                _ => false,
            }
        }
        _ => false,
    }
}

impl ShapeCache {
    /// Reads a shape and interns it.
    pub(crate) fn shape(&mut self, c: &mut Cursor<'_>, m: &mut Module) -> R<ShapeId> {
        c.ws();
        let start = c.pos;
        let guess = extent(c);
        let h = hash(c.slice(start, guess).as_bytes());
        if guess > start {
            let text = c.text;
            let same = |e: &(u64, u32, u32, ShapeId)| {
                e.0 == h && text.get(e.1 as usize..e.2 as usize) == text.get(start..guess)
            };
            if let Some(e) = self.table.find(h, same) {
                c.pos = guess;
                return Ok(e.3);
            }
        }
        let s = shape(c)?;
        let id = m.shape_id(s);
        if c.pos == guess {
            self.table.insert_unique(h, (h, start as u32, guess as u32, id), |e| e.0);
        }
        Ok(id)
    }
}

/// Where the shape that starts here probably ends.
#[inline]
fn extent(c: &Cursor<'_>) -> usize {
    let mut i = c.pos;
    if c.peek() == b'(' {
        let mut depth = 0usize;
        while let Some(b) = c.at(i) {
            i += 1;
            match b {
                b'(' => depth += 1,
                b')' => {
                    depth -= 1;
                    if depth == 0 {
                        return i;
                    }
                }
                _ => {}
            }
        }
        return i;
    }
    i = c.ident_end(i);
    if c.at(i) != Some(b'[') {
        return c.pos;
    }
    while let Some(b) = c.at(i) {
        i += 1;
        if b == b']' {
            break;
        }
    }
    if c.at(i) == Some(b'{') && c.at(i + 1).is_some_and(|b| b.is_ascii_digit() || b == b':') {
        while let Some(b) = c.at(i) {
            i += 1;
            if b == b'}' {
                break;
            }
        }
    }
    i
}

/// Reads a shape.
pub(crate) fn shape(c: &mut Cursor<'_>) -> R<Shape> {
    c.ws();
    if c.peek() == b'(' {
        c.enter(1)?;
        let mut parts = Vec::new();
        c.list(b'(', b')', "`(`", |c| {
            parts.push(shape(c)?);
            Ok(())
        })?;
        c.leave(1);
        return Ok(Shape::Tuple(parts));
    }
    if c.peek() == b'b' && c.peek_at(1) == b'(' {
        c.pos += 2;
        c.enter(1)?;
        let at = c.pos;
        let inner = shape(c)?;
        if !matches!(inner, Shape::Array(_)) {
            return c.fail(at, c.pos, "a buffer must hold an array");
        }
        c.expect(b')', "`)` after the shape of a buffer")?;
        c.leave(1);
        return Ok(Shape::Buffer(Box::new(inner)));
    }
    let start = c.pos;
    let word = c.ident_opt();
    let Some(dtype) = DType::from_name(word) else {
        let kind = match word {
            "token" => Some(Shape::Token),
            "opaque" => Some(Shape::Opaque),
            _ => None,
        };
        let Some(kind) = kind else {
            if c.peek() == b'[' && !word.is_empty() {
                return c.fail(start, c.pos, format!("unknown element type `{word}`"));
            }
            c.pos = start;
            return c.expected("a shape");
        };
        let at = c.pos;
        let mut dims = Dims::new();
        c.ints(b'[', b']', &mut dims)?;
        if !dims.is_empty() {
            return c.fail(at, c.pos, format!("a {word} has no dimensions"));
        }
        if layout_follows(c) {
            layout(c, 0)?;
        }
        return Ok(kind);
    };
    let mut dims = Dims::new();
    let mut dynamic = 0u64;
    let at = c.pos;
    c.list(b'[', b']', "`[` and dimension sizes", |c| {
        c.ws();
        let i = dims.len() as u32;
        if c.eat(b'?') {
            dims.push(Shape::UNBOUNDED);
            dynamic |= 1u64.checked_shl(i).unwrap_or(0);
            return Ok(());
        }
        if c.eat_str("<=") {
            dynamic |= 1u64.checked_shl(i).unwrap_or(0);
        }
        c.ws();
        let at = c.pos;
        let v = c.int("a dimension size")?;
        if v < 0 {
            return c.fail(at, c.pos, "a dimension size is negative");
        }
        dims.push(v);
        Ok(())
    })?;
    if dims.len() > 64 {
        return c.fail(at, c.pos, "more than 64 dimensions");
    }
    let layout = if layout_follows(c) { Some(Box::new(layout(c, dims.len())?)) } else { None };
    Ok(Shape::Array(ArrayShape { dtype, dims, dynamic, layout }))
}

/// A brace starts a layout if an integer or a colon follows; else it may
/// start the body of a computation.
fn layout_follows(c: &mut Cursor<'_>) -> bool {
    let back = c.pos;
    let hit = c.eat(b'{') && {
        c.ws();
        matches!(c.peek(), b'0'..=b'9' | b':')
    };
    c.pos = back;
    hit
}

fn layout(c: &mut Cursor<'_>, rank: usize) -> R<Layout> {
    c.ws();
    let start = c.pos;
    c.expect(b'{', "`{`")?;
    let mut l = Layout::default();
    c.ws();
    if c.peek().is_ascii_digit() {
        loop {
            l.minor_to_major.push(c.int("a dimension number")?);
            if !c.eat(b',') {
                break;
            }
        }
    }
    if c.eat(b':') {
        parts(c, &mut l)?;
    }
    c.expect(b'}', "`}` after a layout")?;
    let n = l.minor_to_major.len();
    if n != rank {
        return c.fail(start, c.pos, format!("the layout orders {n} dimensions of {rank}"));
    }
    let mut seen = 0u64;
    for &d in &l.minor_to_major {
        let bit = u32::try_from(d).ok().and_then(|d| 1u64.checked_shl(d)).unwrap_or(0);
        if d < 0 || d >= rank as i64 || seen & bit != 0 {
            return c.fail(start, c.pos, "the layout is not an order of the dimensions");
        }
        seen |= bit;
    }
    Ok(l)
}

fn parts(c: &mut Cursor<'_>, l: &mut Layout) -> R<()> {
    loop {
        c.ws();
        let start = c.pos;
        let key = match c.peek() {
            b'}' => return Ok(()),
            b'#' | b'*' => {
                c.pos += 1;
                c.slice(start, c.pos)
            }
            _ => c.ident_opt(),
        };
        match key {
            "T" => loop {
                let mut t = Tile::new();
                c.list(b'(', b')', "`(` and the sizes of a tile", |c| {
                    t.push(if c.eat(b'*') { -1 } else { c.int("a tile size or `*`")? });
                    Ok(())
                })?;
                l.tiles.push(t);
                c.ws();
                if c.peek() != b'(' {
                    break;
                }
            },
            "E" | "S" => {
                c.expect(b'(', "`(`")?;
                let v = c.int("an integer")?;
                c.expect(b')', "`)`")?;
                if key == "E" {
                    l.element_size_in_bits = v;
                } else {
                    l.memory_space = v;
                }
            }
            "D" | "#" | "*" | "L" | "M" | "P" | "SC" => loop {
                c.ws();
                if c.peek() != b'(' {
                    return c.expected("`(`");
                }
                let end = parens_end(c);
                let Some(end) = end else {
                    return c.fail(
                        c.pos,
                        c.pos + 1,
                        "the parenthesis that opens here is not closed",
                    );
                };
                c.pos = end;
                if key == "SC" && c.peek() == b'(' {
                    continue;
                }
                l.rest.push_str(c.slice(start, end));
                break;
            },
            _ => {
                c.pos = start;
                return c.expected("`}` or a part of a layout such as `T(8,128)`");
            }
        }
    }
}

fn parens_end(c: &Cursor<'_>) -> Option<usize> {
    let mut depth = 0usize;
    let mut i = c.pos;
    loop {
        match c.at(i)? {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
        i += 1;
    }
}

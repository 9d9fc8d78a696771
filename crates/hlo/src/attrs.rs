//! Values of attributes, by form.

use crate::cursor::{Cursor, R};
use crate::groups;
use crate::keys::{Form, Key};
use crate::literal;
use crate::reader::Reader;
use crate::shape;
use scalify_ir::attrs::*;
use scalify_ir::shape::Dims;
use scalify_ir::{DType, ReplicaGroups, Shape, Symbol};
use smallvec::SmallVec;

/// An attribute as read.
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) val: Val,
    /// Bytes of the value; for a called computation see `use_position`.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Value of an attribute.
pub(crate) enum Val {
    Int(i64),
    Bool(bool),
    Float(f32),
    Ints(Dims),
    Comp(Symbol),
    Comps(Vec<(Symbol, u32)>),
    Window(Vec<WindowDim>),
    Padding(Vec<PadDim>),
    Slice(Box<SliceAttrs>),
    Labels(Box<ConvAttrs>),
    Groups(Box<ReplicaGroups>),
    Pairs(Vec<(i64, i64)>),
    Sym(Symbol),
    Syms(Vec<Symbol>),
    Shapes(Vec<Shape>),
}

impl Reader<'_> {
    /// Reads the value of `key` and remembers it.
    pub(crate) fn attribute_value(&mut self, key: Key, word: &str) -> R<()> {
        self.c.ws();
        let start = self.c.pos;
        let mut form = key.form();
        if key == Key::SliceSizes && self.c.peek_at(1) == b'{' {
            form = Form::Raw;
        }
        let val = match form {
            Form::Int => Val::Int(self.c.int("an integer")?),
            Form::Bool => Val::Bool(self.c.bool()?),
            Form::Float => Val::Float(float(&mut self.c)?),
            Form::Ints => {
                let mut v = Dims::new();
                self.c.ints(b'{', b'}', &mut v)?;
                Val::Ints(v)
            }
            Form::Comp => Val::Comp(self.called()?),
            Form::Comps => {
                let mut v = Vec::new();
                self.c.expect(b'{', "`{` and names of computations")?;
                if !self.c.eat(b'}') {
                    loop {
                        self.c.ws();
                        let at = self.c.pos;
                        let s = self.called()?;
                        v.push((s, self.use_position(at)));
                        if !self.c.eat(b',') {
                            break;
                        }
                    }
                    self.c.expect(b'}', "`,` or `}`")?;
                }
                Val::Comps(v)
            }
            Form::Window => Val::Window(window(&mut self.c)?),
            Form::Padding => Val::Padding(padding(&mut self.c)?),
            Form::Slice => Val::Slice(Box::new(slice(&mut self.c)?)),
            Form::DimLabels => Val::Labels(Box::new(dim_labels(&mut self.c)?)),
            Form::Groups => {
                let g = groups::replica_groups(&mut self.c, &mut self.m.strings)?;
                Val::Groups(Box::new(g))
            }
            Form::Pairs => Val::Pairs(pairs(&mut self.c)?),
            Form::Str => Val::Sym(self.text_symbol()?),
            Form::Word => {
                let w = self.c.ident("a word")?;
                Val::Sym(self.m.strings.intern(w))
            }
            Form::Words => {
                let mut v = Vec::new();
                let strings = &mut self.m.strings;
                self.c.list(b'{', b'}', "`{` and a list of words", |c| {
                    v.push(strings.intern(c.ident("a word")?));
                    Ok(())
                })?;
                Val::Syms(v)
            }
            Form::Shapes => {
                let mut v = Vec::new();
                self.c.list(b'{', b'}', "`{` and a list of shapes", |c| {
                    v.push(shape::shape(c)?);
                    Ok(())
                })?;
                Val::Shapes(v)
            }
            Form::RawInt => {
                self.c.int("an integer")?;
                self.raw(start)
            }
            Form::RawBool => {
                self.c.bool()?;
                self.raw(start)
            }
            Form::RawShape => {
                shape::shape(&mut self.c)?;
                self.raw(start)
            }
            Form::RawLiteral => {
                self.free_literal()?;
                self.raw(start)
            }
            Form::Raw => {
                self.c.raw_value()?;
                self.raw(start)
            }
            // Read by the caller.
            Form::Common => return self.c.expected(format!("another attribute than {word}")),
        };
        let end = self.c.pos as u32;
        let start = match key.form() {
            Form::Comp => self.use_position(start),
            _ => start as u32,
        };
        self.found.push(Found { key, val, start, end });
        Ok(())
    }

    fn raw(&mut self, start: usize) -> Val {
        let text = self.c.slice(start, self.c.pos);
        Val::Sym(self.m.strings.intern(text))
    }

    /// Position to blame for a computation named at `at`; past its body if
    /// it was written inline.
    fn use_position(&self, at: usize) -> u32 {
        if self.c.at(at) == Some(b'{') { self.c.pos as u32 } else { at as u32 }
    }

    fn called(&mut self) -> R<Symbol> {
        self.c.ws();
        if self.c.peek() == b'{' {
            return self.inline_computation();
        }
        let name = self.c.name("the name of a computation or `{`")?;
        Ok(self.m.strings.intern(name))
    }

    /// A literal with its shape written before it; tuples have neither.
    fn free_literal(&mut self) -> R<()> {
        self.c.ws();
        if self.c.peek() == b'(' {
            self.c.enter(1)?;
            self.c.pos += 1;
            while !self.c.eat(b')') {
                self.free_literal()?;
                self.c.ws();
                if self.c.peek() != b')' {
                    self.c.expect(b',', "`,` or `)` in a tuple literal")?;
                }
            }
            self.c.leave(1);
            return Ok(());
        }
        let s = shape::shape(&mut self.c)?;
        literal::literal(&mut self.c, &s)?;
        Ok(())
    }
}

fn float(c: &mut Cursor<'_>) -> R<f32> {
    let l = literal::literal(c, &Shape::array(DType::F64, []))?;
    let b: [u8; 8] = l.bytes().and_then(|b| b.try_into().ok()).unwrap_or_default();
    Ok(f64::from_le_bytes(b) as f32)
}

fn pairs(c: &mut Cursor<'_>) -> R<Vec<(i64, i64)>> {
    let mut out = Vec::new();
    c.list(b'{', b'}', "`{` and pairs of devices", |c| {
        c.ws();
        let at = c.pos;
        let mut p = Dims::new();
        c.ints(b'{', b'}', &mut p)?;
        match p.as_slice() {
            [s, t] => out.push((*s, *t)),
            _ => return c.fail(at, c.pos, "a pair has two devices, source and target"),
        }
        Ok(())
    })?;
    Ok(out)
}

fn slice(c: &mut Cursor<'_>) -> R<SliceAttrs> {
    let mut s = SliceAttrs::default();
    c.list(b'{', b'}', "`{` and ranges", |c| {
        c.expect(b'[', "`[` and a range")?;
        s.start.push(c.int("the first index")?);
        c.expect(b':', "`:` and the limit")?;
        s.limit.push(c.int("the limit")?);
        let stride = if c.eat(b':') { c.int("the stride")? } else { 1 };
        s.stride.push(stride);
        c.expect(b']', "`:` or `]`")
    })?;
    Ok(s)
}

/// `1_2x0_0_1`: low, high and optional interior padding per dimension.
fn padding(c: &mut Cursor<'_>) -> R<Vec<PadDim>> {
    let mut out = Vec::new();
    loop {
        let low = c.int("a padding such as `0_0x1_1`")?;
        if !c.eat_str("_") {
            return c.expected("`_` and the padding after");
        }
        let high = c.int("the padding after")?;
        let interior = if c.eat_str("_") { c.int("the padding between")? } else { 0 };
        out.push(PadDim { low, high, interior });
        if !c.eat_str("x") {
            return Ok(out);
        }
    }
}

fn window(c: &mut Cursor<'_>) -> R<Vec<WindowDim>> {
    c.ws();
    let start = c.pos;
    c.expect(b'{', "`{` and a window")?;
    let mut w: Vec<WindowDim> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    while !c.eat(b'}') {
        let at = c.pos;
        let word = c.ident("a field of the window or `}`")?;
        let end = c.pos;
        c.expect(b'=', "`=`")?;
        if seen.contains(&word) {
            return c.fail(at, end, format!("window field `{word}` is given twice"));
        }
        let mut values: SmallVec<[(i64, i64); 4]> = SmallVec::new();
        match word {
            "pad" => values.extend(padding(c)?.iter().map(|p| (p.low, p.high))),
            "size" | "stride" | "lhs_dilate" | "rhs_dilate" | "rhs_reversal" => loop {
                values.push((c.int("an integer")?, 0));
                if !c.eat_str("x") {
                    break;
                }
            },
            _ => {
                let what = format!("unknown window field `{word}`");
                return c.fail(at, end, what);
            }
        }
        if seen.is_empty() {
            w.resize(values.len(), WindowDim::default());
        }
        if w.len() != values.len() {
            let what = format!("`{word}` has {} dimensions, the window {}", values.len(), w.len());
            return c.fail(at, c.pos, what);
        }
        for (d, (v, v2)) in w.iter_mut().zip(values) {
            match word {
                "size" => d.size = v,
                "stride" => d.stride = v,
                "lhs_dilate" => d.base_dilation = v,
                "rhs_dilate" => d.window_dilation = v,
                "rhs_reversal" => d.reversal = v == 1,
                _ => (d.pad_low, d.pad_high) = (v, v2),
            }
        }
        seen.push(word);
    }
    if !seen.contains(&"size") && !seen.is_empty() {
        return c.fail(start, c.pos, "the window has no `size`");
    }
    Ok(w)
}

/// `b01f_01io->b01f`.
fn dim_labels(c: &mut Cursor<'_>) -> R<ConvAttrs> {
    c.ws();
    let start = c.pos;
    let is_label =
        |c: &Cursor<'_>| matches!(c.peek(), b'0'..=b'9' | b'b' | b'f' | b'i' | b'o' | b'?');
    let mut parts: [(usize, &str); 3] = [(0, ""); 3];
    for (i, sep) in ["_", "->", ""].iter().enumerate() {
        let at = c.pos;
        while is_label(c) {
            c.pos += 1;
        }
        parts[i] = (at, c.slice(at, c.pos));
        if c.pos == at || !c.eat_str(sep) {
            c.pos = at.max(start);
            return c.expected("dimension labels such as `b01f_01io->b01f`");
        }
    }
    let mut a = ConvAttrs::default();
    let mut spatial = [Dims::new(), Dims::new(), Dims::new()];
    for (i, (at, text)) in parts.iter().enumerate() {
        let (x, y) = if i == 1 { (b'i', b'o') } else { (b'b', b'f') };
        let n = text.bytes().filter(u8::is_ascii_digit).count();
        spatial[i] = std::iter::repeat_n(-1, n).collect();
        let mut ends = [-1i64; 2];
        for (d, l) in text.bytes().enumerate() {
            let slot = match l {
                b'?' => continue,
                l if l == x => Some(&mut ends[0]),
                l if l == y => Some(&mut ends[1]),
                b'0'..=b'9' => spatial[i].get_mut((l - b'0') as usize),
                _ => None,
            };
            match slot {
                Some(s) if *s < 0 => *s = d as i64,
                _ => {
                    let what = format!("label `{}` does not fit here", l as char);
                    return c.fail(at + d, at + d + 1, what);
                }
            }
        }
        if ends.contains(&-1) && i != 1 && !text.contains('?') {
            let what = format!("`{}` and `{}` must be among the labels", x as char, y as char);
            return c.fail(*at, at + text.len(), what);
        }
        let ends = ends.map(|e| e.max(0));
        match i {
            0 => (a.input_batch, a.input_feature) = (ends[0], ends[1]),
            1 => (a.kernel_input_feature, a.kernel_output_feature) = (ends[0], ends[1]),
            _ => (a.output_batch, a.output_feature) = (ends[0], ends[1]),
        }
    }
    if spatial[0].len() != spatial[1].len() || spatial[0].len() != spatial[2].len() {
        return c.fail(start, c.pos, "input, kernel and output differ in spatial dimensions");
    }
    let [i, k, o] = spatial;
    (a.input_spatial, a.kernel_spatial, a.output_spatial) = (i, k, o);
    Ok(a)
}

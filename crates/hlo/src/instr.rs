//! One instruction: shape, opcode, operands, attributes.

use crate::cursor::R;
use crate::infer;
use crate::keys::{self, Key};
use crate::literal;
use crate::reader::{Forward, PENDING, Reader};
use crate::shape;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_ir::attrs::Extra;
use scalify_ir::{
    Attrs, CompId, Computation, InstrId, Instruction, Opcode, Shape, ShapeId, Span, Symbol,
};
use smallvec::SmallVec;
use std::sync::LazyLock;

static OPCODES: LazyLock<HashMap<&'static str, Opcode, FxBuildHasher>> =
    LazyLock::new(|| Opcode::ALL.iter().map(|&o| (o.name(), o)).collect());

/// An opcode word: the opcode, and what it wraps in the `xxx-start` sugar.
fn opcode(word: &str) -> Option<(Opcode, Option<Opcode>)> {
    if let Some(&o) = OPCODES.get(word) {
        return Some((o, None));
    }
    let sugar = [
        ("-start", Opcode::AsyncStart),
        ("-update", Opcode::AsyncUpdate),
        ("-done", Opcode::AsyncDone),
    ];
    sugar.iter().find_map(|(end, outer)| {
        let inner = OPCODES.get(word.strip_suffix(end)?)?;
        Some((*outer, Some(*inner)))
    })
}

/// Operands and what else is known before attributes are read.
#[derive(Default)]
pub(crate) struct Operands {
    pub(crate) ids: SmallVec<[InstrId; 3]>,
    /// (index, name, position, declared shape) of names not yet defined.
    pub(crate) forward: SmallVec<[(u32, Symbol, u32, Option<ShapeId>); 1]>,
}

impl Reader<'_> {
    /// What follows `name =`. Pushes the instruction (and nested ones before
    /// it) on `instrs`.
    pub(crate) fn rhs(
        &mut self,
        name: Symbol,
        start: usize,
        attributes: bool,
        instrs: &mut Vec<InstrId>,
    ) -> R<InstrId> {
        self.c.ws();
        let shape_at = self.c.pos;
        let mut shape = None;
        if shape::can_start(&self.c) {
            shape = Some(self.shapes.shape(&mut self.c, &mut self.m)?);
        }
        self.c.ws();
        let op_at = self.c.pos;
        let word = self.c.ident("a shape or an opcode")?;
        let op_end = self.c.pos;
        let Some((op, wraps)) = opcode(word) else {
            return self.c.fail(op_at, op_end, format!("unknown opcode `{word}`"));
        };
        self.found.clear();
        let mut attrs = Attrs::None;
        let mut operands = Operands::default();
        match op {
            Opcode::Parameter => attrs = self.parameter_number()?,
            Opcode::Constant => {
                self.c.expect(b'(', "`(` and the value of the constant")?;
                let Some(s) = shape else {
                    return self.c.fail(op_at, op_end, "a constant needs a shape before it");
                };
                let s = self.m.shapes[s.0 as usize].clone();
                let l = literal::literal(&mut self.c, &s)?;
                self.c.expect(b')', "`)` after the value of the constant")?;
                attrs = Attrs::Constant(Box::new(l));
            }
            _ => self.operands(&mut operands, instrs)?,
        }
        let operands_end = self.c.pos;
        if let Some(n) = keys::arity(op) {
            if operands.ids.len() != n {
                let have = operands.ids.len();
                let what = format!("{op} takes {n} operands, {have} are given");
                return self.c.fail(op_at, operands_end, what);
            }
        }
        self.found.clear();
        let mut extra = None;
        let mut control: SmallVec<[(u32, Symbol, u32); 1]> = SmallVec::new();
        let mut metadata = None;
        if attributes {
            self.attributes(op, wraps, &mut extra, &mut control, &mut metadata)?;
        }
        let mut calls: SmallVec<[CompId; 1]> = SmallVec::new();
        let mut uses: SmallVec<[u32; 2]> = SmallVec::new();
        if !matches!(op, Opcode::Parameter | Opcode::Constant) {
            let site = keys::Site { op, at: op_at, end: op_end };
            if let (Opcode::AsyncStart, Some(inner)) = (op, wraps) {
                let wrapped = self.wrap(inner, &operands, shape, &site)?;
                calls.push(CompId(wrapped.0));
                uses.push(self.c.pos as u32);
                attrs =
                    self.build(&site, wraps, &operands.ids, &mut calls, &mut uses, &mut extra)?;
            } else {
                attrs =
                    self.build(&site, wraps, &operands.ids, &mut calls, &mut uses, &mut extra)?;
            }
        }
        let shape = match shape {
            Some(s) => s,
            None => {
                let callee = |s: &CompId| self.computation_result(Symbol(s.0));
                let results: SmallVec<[Option<Shape>; 2]> = calls.iter().map(callee).collect();
                match infer::result(&self.m, op, &operands.ids, &attrs, &results) {
                    Some(s) => self.m.shape_id(s),
                    None => {
                        let what = format!("the shape of this {op} must be written before it");
                        return self.c.fail(shape_at, op_end, what);
                    }
                }
            }
        };
        let span = Span { start: start as u32, end: self.c.pos as u32 };
        let id = self.push(Instruction {
            name,
            opcode: op,
            shape,
            operands: operands.ids,
            calls,
            attrs,
            extra,
            metadata,
            span,
        });
        instrs.push(id);
        for (slot, at) in uses.iter().enumerate() {
            self.comp_uses.push((id, slot as u32, *at));
        }
        for (index, name, at, shape) in operands.forward {
            self.forward.push(Forward { user: id, index, control: false, name, at, shape });
        }
        for (index, name, at) in control {
            self.forward.push(Forward { user: id, index, control: true, name, at, shape: None });
        }
        Ok(id)
    }

    fn parameter_number(&mut self) -> R<Attrs> {
        self.c.expect(b'(', "`(` and the number of the parameter")?;
        self.c.ws();
        let at = self.c.pos;
        let n = self.c.int("the number of the parameter")?;
        let Ok(n) = u32::try_from(n) else {
            return self.c.fail(at, self.c.pos, format!("{n} is no parameter number"));
        };
        self.c.expect(b')', "`)` after the number of the parameter")?;
        Ok(Attrs::Parameter(n))
    }

    fn operands(&mut self, out: &mut Operands, instrs: &mut Vec<InstrId>) -> R<()> {
        self.c.expect(b'(', "`(` and the operands")?;
        if self.c.eat(b')') {
            return Ok(());
        }
        loop {
            self.operand(out, instrs)?;
            if self.c.eat(b',') {
                continue;
            }
            return self.c.expect(b')', "`,` or `)` after an operand");
        }
    }

    #[inline]
    fn operand(&mut self, out: &mut Operands, instrs: &mut Vec<InstrId>) -> R<()> {
        self.c.ws();
        let start = self.c.pos;
        let mut shape = None;
        if self.c.peek() != b'%' && shape::can_start(&self.c) {
            shape = Some(self.shapes.shape(&mut self.c, &mut self.m)?);
            self.c.ws();
        }
        let at = self.c.pos;
        if shape.is_some() && matches!(self.c.peek(), b',' | b')') {
            // Only a shape: a parameter of a lone instruction.
            let name = self.fresh("operand");
            let index = out.ids.len() as u32;
            out.forward.push((index, name, at as u32, shape));
            out.ids.push(PENDING);
            return Ok(());
        }
        let percent = self.c.peek() == b'%';
        let name = self.c.name("an operand")?;
        if !percent && self.c.peek() == b'(' {
            // An instruction written in place of its name.
            const COST: u32 = 4;
            self.c.enter(COST)?;
            self.c.pos = start;
            let name = self.fresh(name);
            let id = self.rhs(name, start, false, instrs)?;
            self.define(name, id, start, self.c.pos)?;
            self.c.leave(COST);
            out.ids.push(id);
            return Ok(());
        }
        if self.c.peek() == b':' {
            self.c.pos += 1;
        }
        let name = self.m.strings.intern(name);
        match self.lookup(name) {
            Some(mut id) => {
                while self.c.peek() == b'#' {
                    id = self.element_of(id, at, instrs)?;
                }
                if let Some(want) = shape {
                    self.check_operand_shape(want, id, start)?;
                }
                out.ids.push(id);
            }
            None if self.c.peek() == b'#' => {
                let what = "an operand written `name#index` must be defined before its use";
                return self.c.fail(at, self.c.pos, what);
            }
            None => {
                out.forward.push((out.ids.len() as u32, name, at as u32, shape));
                out.ids.push(PENDING);
            }
        }
        Ok(())
    }

    /// `#index` after the name of a tuple: the element. The first use makes
    /// a get-tuple-element, which later uses share.
    fn element_of(
        &mut self,
        tuple: InstrId,
        start: usize,
        instrs: &mut Vec<InstrId>,
    ) -> R<InstrId> {
        self.c.pos += 1;
        let index = self.c.int("the index of a tuple element")?;
        let end = self.c.pos;
        let parts = self.m.shape(tuple).as_tuple().unwrap_or_default();
        let part = usize::try_from(index).ok().and_then(|i| parts.get(i)).cloned();
        let Some(part) = part else {
            let (name, shape) = (self.m.name_of(tuple), self.m.shape(tuple));
            let what = format!("`{name}` of shape {shape} has no element {index}");
            return self.c.fail(start, end, what);
        };
        let name = format!("{}.element.{index}", self.m.name_of(tuple));
        let name = self.m.strings.intern(&name);
        if let Some(id) = self.lookup(name) {
            let old = self.m.instr(id);
            if old.attrs == Attrs::TupleIndex(index) && old.operands[..] == [tuple] {
                return Ok(id);
            }
        }
        let shape = self.m.shape_id(part);
        let id = self.push(Instruction {
            name,
            opcode: Opcode::GetTupleElement,
            shape,
            operands: std::iter::once(tuple).collect(),
            calls: SmallVec::new(),
            attrs: Attrs::TupleIndex(index),
            extra: None,
            metadata: None,
            span: Span { start: start as u32, end: end as u32 },
        });
        instrs.push(id);
        self.define(name, id, start, end)?;
        Ok(id)
    }

    fn attributes(
        &mut self,
        op: Opcode,
        wraps: Option<Opcode>,
        extra: &mut Option<Box<Extra>>,
        control: &mut SmallVec<[(u32, Symbol, u32); 1]>,
        metadata: &mut Option<scalify_ir::MetaId>,
    ) -> R<()> {
        let mut common = 0u32;
        while self.c.eat(b',') {
            self.c.ws();
            let at = self.c.pos;
            let word = self.c.ident("the name of an attribute")?;
            let end = self.c.pos;
            if self.c.peek() != b'=' {
                return self.c.expected("`=` and the value of the attribute");
            }
            self.c.pos += 1;
            let Some(key) = keys::key(word) else {
                return self.unknown_attribute(op, wraps, word, at, end);
            };
            if key.is_common() {
                let bit = 1 << key.common_index();
                if common & bit != 0 {
                    return self.c.fail(at, end, format!("attribute `{word}` is given twice"));
                }
                common |= bit;
                match key {
                    Key::Metadata => *metadata = Some(self.metadata()?),
                    _ => self.common_attribute(key, word, extra, control)?,
                }
                continue;
            }
            if !keys::allows(op, wraps, key) {
                return self.unknown_attribute(op, wraps, word, at, end);
            }
            if self.found.iter().any(|f| f.key == key) {
                return self.c.fail(at, end, format!("attribute `{word}` is given twice"));
            }
            self.attribute_value(key, word)?;
        }
        Ok(())
    }

    #[cold]
    fn unknown_attribute(
        &self,
        op: Opcode,
        wraps: Option<Opcode>,
        word: &str,
        at: usize,
        end: usize,
    ) -> R<()> {
        let mut e = self.c.fail::<()>(at, end, format!("{op} has no attribute `{word}`"));
        if let Err(e) = &mut e {
            let names = keys::allowed_names(op, wraps);
            if !names.is_empty() {
                e.expected = Some(format!("one of {}", names.join(", ")));
            }
        }
        e
    }

    fn common_attribute(
        &mut self,
        key: Key,
        word: &str,
        extra: &mut Option<Box<Extra>>,
        control: &mut SmallVec<[(u32, Symbol, u32); 1]>,
    ) -> R<()> {
        let e = extra.get_or_insert_default();
        match key {
            Key::Sharding => e.sharding = Some(self.sharding()?),
            Key::FrontendAttributes => self.frontend(&mut e.frontend)?,
            Key::BackendConfig => e.backend_config = Some(self.backend_config()?),
            Key::ParameterReplication => {
                let out = &mut e.parameter_replication;
                self.c.list(b'{', b'}', "`{` and a list of booleans", |c| {
                    out.push(c.bool()?);
                    Ok(())
                })?;
            }
            Key::ControlPredecessors => {
                self.c.expect(b'{', "`{` and names of instructions")?;
                if self.c.eat(b'}') {
                    return Ok(());
                }
                loop {
                    self.c.ws();
                    let at = self.c.pos as u32;
                    let name = self.c.name("the name of an instruction")?;
                    let name = self.m.strings.intern(name);
                    let id = self.lookup(name);
                    if id.is_none() {
                        control.push((e.control_predecessors.len() as u32, name, at));
                    }
                    e.control_predecessors.push(id.unwrap_or(PENDING));
                    if !self.c.eat(b',') {
                        break;
                    }
                }
                self.c.expect(b'}', "`,` or `}`")?;
            }
            _ => {
                let name = self.m.strings.intern(word);
                self.c.ws();
                if self.c.peek() != b'{' {
                    return self.c.expected(format!("`{{` and the value of `{word}`"));
                }
                let text = self.c.braces("a value in braces")?;
                let value = self.m.strings.intern(text);
                e.other.push((name, value));
            }
        }
        Ok(())
    }

    fn backend_config(&mut self) -> R<scalify_ir::attrs::BackendConfig> {
        self.c.ws();
        if self.c.peek() == b'{' {
            let text = self.c.braces("a dictionary")?;
            let text = self.m.strings.intern(text);
            return Ok(scalify_ir::attrs::BackendConfig { text, quoted: false });
        }
        let text = self.c.string("a string or a dictionary in braces")?;
        let text = self.m.strings.intern(&text);
        Ok(scalify_ir::attrs::BackendConfig { text, quoted: true })
    }

    /// Result shape of a computation that was read already.
    fn computation_result(&self, name: Symbol) -> Option<Shape> {
        let id = self.computation_named(name)?;
        Some(self.m.shape(self.m.comp(id).root).clone())
    }

    /// The computation that the `xxx-start` sugar stands for: parameters and
    /// one instruction with the attributes just read.
    fn wrap(
        &mut self,
        inner: Opcode,
        operands: &Operands,
        shape: Option<ShapeId>,
        site: &keys::Site,
    ) -> R<Symbol> {
        let parts = shape.and_then(|s| self.m.shapes[s.0 as usize].as_tuple());
        let result = match parts {
            Some([Shape::Tuple(_), result, ..]) => result.clone(),
            _ => {
                let what = "an async start has shape ((operands), results, ...)";
                return self.c.fail(site.at, site.end, what);
            }
        };
        let mut instrs = Vec::new();
        let span = Span { start: site.at as u32, end: site.end as u32 };
        for (i, &o) in operands.ids.iter().enumerate() {
            let pending = operands.forward.iter().find(|f| f.0 as usize == i);
            let shape = match (o, pending.and_then(|f| f.3)) {
                (PENDING, Some(s)) => s,
                (PENDING, None) => {
                    let what = "operands of an async start must be defined before it";
                    return self.c.fail(site.at, site.end, what);
                }
                _ => self.m.instr(o).shape,
            };
            let name = self.m.strings.intern(&format!("async_param.{i}"));
            instrs.push(self.push(Instruction {
                name,
                opcode: Opcode::Parameter,
                shape,
                operands: SmallVec::new(),
                calls: SmallVec::new(),
                attrs: Attrs::Parameter(i as u32),
                extra: None,
                metadata: None,
                span,
            }));
        }
        let inner_site = keys::Site { op: inner, ..*site };
        let mut calls = SmallVec::new();
        let mut uses = SmallVec::new();
        let mut extra = None;
        let ids: SmallVec<[InstrId; 3]> = instrs.iter().copied().collect();
        if let Some(n) = keys::arity(inner).filter(|&n| n != ids.len()) {
            let what = format!("{inner} takes {n} operands, {} are given", ids.len());
            return self.c.fail(site.at, site.end, what);
        }
        let attrs = self.build(&inner_site, None, &ids, &mut calls, &mut uses, &mut extra)?;
        let shape = self.m.shape_id(result);
        let name = self.m.strings.intern("async_op");
        let root = self.push(Instruction {
            name,
            opcode: inner,
            shape,
            operands: ids,
            calls,
            attrs,
            extra,
            metadata: None,
            span,
        });
        for (slot, at) in uses.iter().enumerate() {
            self.comp_uses.push((root, slot as u32, *at));
        }
        let params = instrs.clone();
        instrs.push(root);
        let name = self.fresh("async_wrapped");
        let id = CompId(self.m.comps.len() as u32);
        self.m.comps.push(Computation {
            name,
            instrs,
            params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span,
        });
        self.name_computation(name, id, site.at, site.end)?;
        Ok(name)
    }
}

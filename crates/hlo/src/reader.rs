//! Module level of the reader: computations, names, order.

use crate::attrs::Found;
use crate::cursor::{Cursor, R};
use crate::shape::{self, ShapeCache};
use hashbrown::HashTable;
use scalify_ir::{
    CompId, Computation, InstrId, Instruction, MetaId, Module, Opcode, Shape, ShapeId, Span, Symbol,
};

/// State of one run.
pub(crate) struct Reader<'a> {
    pub(crate) c: Cursor<'a>,
    pub(crate) m: Module,
    pub(crate) shapes: ShapeCache,
    pub(crate) meta_cache: HashTable<(u64, u32, u32, MetaId)>,
    pub(crate) header_seen: Vec<Symbol>,
    /// Attributes of the instruction being read; kept for its storage.
    pub(crate) found: Vec<Found>,
    /// Instruction of each symbol in the computation being read.
    names: Vec<Name>,
    /// Number of the computation being read.
    epoch: u32,
    epochs: u32,
    /// Entries of `names` that inline computations overwrote.
    undo: Vec<(Symbol, Name)>,
    nested: u32,
    /// Computation of each symbol, in textual order of definition.
    pub(crate) comp_names: Vec<Option<CompId>>,
    /// Uses of computations by name.
    pub(crate) comp_uses: Vec<(InstrId, u32, u32)>,
    /// Operands that were used before their definition.
    pub(crate) forward: Vec<Forward>,
    pub(crate) anonymous: u32,
    /// A single instruction is read: unknown operands become parameters.
    single: bool,
}

#[derive(Clone, Copy, Default)]
struct Name {
    epoch: u32,
    id: u32,
}

/// A use of a name that was not defined yet.
pub(crate) struct Forward {
    pub(crate) user: InstrId,
    /// Index among the operands, or of a control predecessor.
    pub(crate) index: u32,
    pub(crate) control: bool,
    pub(crate) name: Symbol,
    pub(crate) at: u32,
    pub(crate) shape: Option<ShapeId>,
}

/// Operand that [`Forward`] will fill.
pub(crate) const PENDING: InstrId = InstrId(u32::MAX);

/// What is known of a computation while it is read.
struct Body {
    name: Symbol,
    instrs: Vec<InstrId>,
    root: Option<InstrId>,
    start: usize,
    forward: usize,
}

/// Reads a module.
pub(crate) fn read(text: &str) -> R<Module> {
    let c = Cursor::new(text);
    if text.len() >= u32::MAX as usize {
        return c.fail(0, 0, "the text is larger than 4 GiB");
    }
    let mut r = Reader {
        c,
        m: Module::new(""),
        shapes: ShapeCache::default(),
        meta_cache: HashTable::new(),
        header_seen: Vec::new(),
        found: Vec::new(),
        names: Vec::new(),
        epoch: 0,
        epochs: 0,
        undo: Vec::new(),
        nested: 0,
        comp_names: Vec::new(),
        comp_uses: Vec::new(),
        forward: Vec::new(),
        anonymous: 0,
        single: false,
    };
    r.module()?;
    r.m.instrs.shrink_to_fit();
    Ok(r.m)
}

impl Reader<'_> {
    fn module(&mut self) -> R<()> {
        if self.c.eat_word("HloModule") {
            let name = self.c.name("the name of the module")?;
            self.c.eat(b':');
            self.m.name = self.m.strings.intern(name);
            self.header()?;
        } else if self.is_single() {
            return self.single_instruction();
        }
        self.source_tables()?;
        let mut entry: Option<(CompId, usize)> = None;
        loop {
            self.c.ws();
            if self.c.at_end() && !self.m.comps.is_empty() {
                break;
            }
            let at = self.c.pos;
            if self.c.eat_word("HloModule") {
                return self.c.fail(at, self.c.pos, "a second module in this text");
            }
            let is_entry = self.c.eat_word("ENTRY");
            let id = self.computation(at)?;
            if is_entry {
                if let Some((_, first)) = entry {
                    let mut e = self.c.fail::<()>(at, at + 5, "a second ENTRY computation");
                    if let Err(e) = &mut e {
                        let span = Span { start: first as u32, end: first as u32 + 5 };
                        e.labels.push((span, "the first is here".to_owned()));
                    }
                    return e;
                }
                entry = Some((id, at));
            }
        }
        let last = CompId(self.m.comps.len() as u32 - 1);
        self.m.entry = entry.map_or(last, |e| e.0);
        if self.m.str(self.m.name).is_empty() {
            let name = format!("module_{}", self.m.str(self.m.entry_comp().name));
            self.m.name = self.m.strings.intern(&name);
        }
        self.link_computations()
    }

    /// True if the text is one instruction and no module.
    fn is_single(&mut self) -> bool {
        let back = self.c.pos;
        self.c.ws();
        let hit = shape::can_start(&self.c)
            || self.c.eat_word("ROOT")
            || !self.c.eat_word("ENTRY") && self.c.name("a name").is_ok() && self.c.eat(b'=');
        self.c.pos = back;
        hit
    }

    fn single_instruction(&mut self) -> R<()> {
        self.single = true;
        self.begin();
        let name = self.m.strings.intern("entry");
        let mut body = Body { name, instrs: Vec::new(), root: None, start: self.c.pos, forward: 0 };
        self.c.ws();
        if shape::can_start(&self.c) {
            let at = self.c.pos;
            let name = self.fresh("root");
            let id = self.rhs(name, at, true, &mut body.instrs)?;
            self.define(name, id, at, at)?;
        } else {
            self.instruction(&mut body)?;
        }
        self.c.ws();
        if !self.c.at_end() {
            return self.c.expected("the end of the text");
        }
        // Operands without a definition are parameters, in order of use.
        let pending = std::mem::take(&mut self.forward);
        let mut params: Vec<InstrId> = Vec::new();
        for f in &pending {
            let known = self.lookup(f.name);
            let id = match (known, f.shape) {
                (Some(id), _) => id,
                (None, Some(shape)) => {
                    let id = self.push(Instruction {
                        name: f.name,
                        opcode: Opcode::Parameter,
                        shape,
                        operands: Default::default(),
                        calls: Default::default(),
                        attrs: scalify_ir::Attrs::Parameter(params.len() as u32),
                        extra: None,
                        metadata: None,
                        span: Span { start: f.at, end: f.at },
                    });
                    self.set_name(f.name, id);
                    params.push(id);
                    id
                }
                (None, None) => {
                    let at = f.at as usize;
                    return self.c.fail(
                        at,
                        at + 1,
                        "this operand has neither definition nor shape",
                    );
                }
            };
            self.patch(f, id);
        }
        let root = body.instrs.last().copied();
        body.root = root;
        params.extend_from_slice(&body.instrs);
        body.instrs = params;
        let id = self.finish(body)?;
        self.m.entry = id;
        self.m.name = self.m.strings.intern("module_entry");
        self.link_computations()
    }

    fn begin(&mut self) {
        self.epochs += 1;
        self.epoch = self.epochs;
    }

    /// `name (params) -> shape { instructions }, attributes`.
    fn computation(&mut self, start: usize) -> R<CompId> {
        self.c.ws();
        let name_at = self.c.pos;
        let name = self.c.name("the name of a computation")?;
        let name_end = self.c.pos;
        self.c.eat(b':');
        let name = self.m.strings.intern(name);
        self.c.ws();
        let mut result = None;
        if self.c.peek() == b'(' {
            self.signature()?;
            self.c.ws();
            let at = self.c.pos;
            result = Some((self.shapes.shape(&mut self.c, &mut self.m)?, at, self.c.pos));
        }
        self.begin();
        self.c.ws();
        let id = self.body(name, start)?;
        if let Some((want, at, end)) = result {
            let root = self.m.instr(self.m.comp(id).root);
            let want = &self.m.shapes[want.0 as usize];
            let have = &self.m.shapes[root.shape.0 as usize];
            if !want.same(have) {
                let what = format!(
                    "the computation is declared to return {want} but its root `{}` is {have}",
                    self.m.str(root.name)
                );
                let span = root.span;
                let mut e = self.c.fail::<()>(at, end, what);
                if let Err(e) = &mut e {
                    e.labels.push((span, "the root is here".to_owned()));
                }
                return e.map(|()| id);
            }
        }
        while self.c.eat(b',') {
            self.c.ws();
            let at = self.c.pos;
            let key = self.c.ident("an attribute of the computation")?;
            if key != "execution_thread" {
                let end = at + key.len();
                return self.c.fail(at, end, format!("unknown attribute `{key}` of a computation"));
            }
            self.c.expect(b'=', "`=`")?;
            let v = self.text_symbol()?;
            self.m.comps[id.0 as usize].execution_thread = Some(v);
        }
        self.name_computation(name, id, name_at, name_end)?;
        Ok(id)
    }

    pub(crate) fn name_computation(
        &mut self,
        name: Symbol,
        id: CompId,
        at: usize,
        end: usize,
    ) -> R<()> {
        let i = name.0 as usize;
        if self.comp_names.len() <= i {
            self.comp_names.resize((i + 1).max(self.m.strings.len()), None);
        }
        if let Some(first) = self.comp_names[i] {
            let what = format!("computation `{}` is defined twice", self.m.str(name));
            let span = self.m.comp(first).span;
            let mut e = self.c.fail::<()>(at, end, what);
            if let Err(e) = &mut e {
                e.labels.push((span, "the first definition is here".to_owned()));
            }
            return e;
        }
        self.comp_names[i] = Some(id);
        Ok(())
    }

    pub(crate) fn computation_named(&self, name: Symbol) -> Option<CompId> {
        self.comp_names.get(name.0 as usize).copied().flatten()
    }

    /// `(name: shape, ...) ->`.
    fn signature(&mut self) -> R<()> {
        self.c.expect(b'(', "`(`")?;
        if !self.c.eat(b')') {
            loop {
                self.c.name("the name of a parameter")?;
                self.c.eat(b':');
                self.shapes.shape(&mut self.c, &mut self.m)?;
                if !self.c.eat(b',') {
                    break;
                }
            }
            self.c.expect(b')', "`,` or `)` after a parameter")?;
        }
        self.c.ws();
        if !self.c.eat_str("->") {
            return self.c.expected("`->` and the shape of the result");
        }
        Ok(())
    }

    /// A computation written where its name could stand.
    pub(crate) fn inline_computation(&mut self) -> R<Symbol> {
        const COST: u32 = 4;
        self.c.enter(COST)?;
        let start = self.c.pos;
        let name = self.fresh("inline");
        let (outer, undo) = (self.epoch, self.undo.len());
        let found = std::mem::take(&mut self.found);
        self.begin();
        self.nested += 1;
        let id = self.body(name, start)?;
        self.nested -= 1;
        self.epoch = outer;
        self.found = found;
        for (s, n) in self.undo.drain(undo..).rev() {
            self.names[s.0 as usize] = n;
        }
        self.name_computation(name, id, start, start + 1)?;
        self.c.leave(COST);
        Ok(name)
    }

    /// A name no text can hold yet: used for anonymous things.
    pub(crate) fn fresh(&mut self, stem: &str) -> Symbol {
        loop {
            let name = format!("{stem}.anon.{}", self.anonymous);
            self.anonymous += 1;
            if self.m.strings.lookup(&name).is_none() {
                return self.m.strings.intern(&name);
            }
        }
    }

    fn body(&mut self, name: Symbol, start: usize) -> R<CompId> {
        self.c.expect(b'{', "`{` and the instructions of the computation")?;
        let forward = self.forward.len();
        let mut body = Body { name, instrs: Vec::new(), root: None, start, forward };
        loop {
            self.instruction(&mut body)?;
            if self.c.eat(b'}') {
                break;
            }
        }
        self.finish(body)
    }

    /// Ends a computation: fills forward references, orders, checks.
    fn finish(&mut self, body: Body) -> R<CompId> {
        let Body { name, mut instrs, root, start, forward } = body;
        let Some(&last) = instrs.last() else {
            return self.c.fail(start, self.c.pos, "the computation has no instruction");
        };
        let root = root.unwrap_or(last);
        if self.forward.len() > forward || self.single {
            let pending: Vec<Forward> = self.forward.drain(forward..).collect();
            for f in &pending {
                let Some(id) = self.lookup(f.name) else {
                    let at = f.at as usize;
                    let name = self.m.str(f.name);
                    let what = format!("no instruction `{name}` in this computation");
                    let percent = self.c.at(at) == Some(b'%');
                    return self.c.fail(at, at + name.len() + percent as usize, what);
                };
                if let Some(want) = f.shape {
                    self.check_operand_shape(want, id, f.at as usize)?;
                }
                self.patch(f, id);
            }
            instrs = self.ordered(&instrs)?;
        }
        instrs.shrink_to_fit();
        let params = self.parameters(&instrs)?;
        let span = Span { start: start as u32, end: self.c.pos as u32 };
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
        Ok(id)
    }

    fn patch(&mut self, f: &Forward, id: InstrId) {
        let user = &mut self.m.instrs[f.user.0 as usize];
        let slot = if f.control {
            user.extra.as_mut().and_then(|e| e.control_predecessors.get_mut(f.index as usize))
        } else {
            user.operands.get_mut(f.index as usize)
        };
        if let Some(s) = slot {
            *s = id;
        }
    }

    /// Parameters by number, each of `0..n` once.
    fn parameters(&self, instrs: &[InstrId]) -> R<Vec<InstrId>> {
        let all: Vec<(u32, InstrId)> = instrs
            .iter()
            .filter_map(|&i| match self.m.instr(i).attrs {
                scalify_ir::Attrs::Parameter(n) => Some((n, i)),
                _ => None,
            })
            .collect();
        let mut out = vec![PENDING; all.len()];
        for &(n, i) in &all {
            let span = self.m.instr(i).span;
            let (s, e) = (span.start as usize, span.end as usize);
            match out.get_mut(n as usize) {
                None => {
                    let what = format!(
                        "parameter number {n}, but the computation has {} parameters",
                        all.len()
                    );
                    return self.c.fail(s, e, what);
                }
                Some(slot) if *slot != PENDING => {
                    let first = self.m.instr(*slot).span;
                    let mut err = self.c.fail(s, e, format!("a second parameter {n}"));
                    if let Err(err) = &mut err {
                        err.labels.push((first, "the first is here".to_owned()));
                    }
                    return err;
                }
                Some(slot) => *slot = i,
            }
        }
        Ok(out)
    }

    /// `[ROOT] name = ...`.
    fn instruction(&mut self, body: &mut Body) -> R<()> {
        self.c.ws();
        let start = self.c.pos;
        let is_root = self.c.peek() == b'R' && self.c.eat_word("ROOT");
        if is_root && body.root.is_some() {
            return self.c.fail(start, start + 4, "a second ROOT in this computation");
        }
        self.c.ws();
        let at = self.c.pos;
        let name = self.c.name("an instruction or `}`")?;
        let end = self.c.pos;
        self.c.eat(b':');
        let name = self.m.strings.intern(name);
        self.c.expect(b'=', "`=` after the name of an instruction")?;
        let id = self.rhs(name, start, true, &mut body.instrs)?;
        self.define(name, id, at, end)?;
        if is_root {
            body.root = Some(id);
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, i: Instruction) -> InstrId {
        let id = InstrId(self.m.instrs.len() as u32);
        self.m.instrs.push(i);
        id
    }

    #[inline]
    pub(crate) fn lookup(&self, name: Symbol) -> Option<InstrId> {
        let n = self.names.get(name.0 as usize)?;
        (n.epoch == self.epoch).then_some(InstrId(n.id))
    }

    fn set_name(&mut self, name: Symbol, id: InstrId) {
        let i = name.0 as usize;
        if self.names.len() <= i {
            let n = (i + 1).max(self.m.strings.len()) + 64;
            self.names.resize(n, Name::default());
        }
        if self.nested > 0 {
            self.undo.push((name, self.names[i]));
        }
        self.names[i] = Name { epoch: self.epoch, id: id.0 };
    }

    pub(crate) fn define(&mut self, name: Symbol, id: InstrId, at: usize, end: usize) -> R<()> {
        if let Some(first) = self.lookup(name) {
            let what = format!("instruction `{}` is defined twice", self.m.str(name));
            let span = self.m.instr(first).span;
            let mut e = self.c.fail::<()>(at, end, what);
            if let Err(e) = &mut e {
                e.labels.push((span, "the first definition is here".to_owned()));
            }
            return e;
        }
        self.set_name(name, id);
        Ok(())
    }

    pub(crate) fn check_operand_shape(&self, want: ShapeId, id: InstrId, at: usize) -> R<()> {
        let have = self.m.instr(id).shape;
        if want == have {
            return Ok(());
        }
        let (w, h): (&Shape, &Shape) = (&self.m.shapes[want.0 as usize], self.m.shape(id));
        if w.same(h) {
            return Ok(());
        }
        let name = self.m.name_of(id);
        let what = format!("the operand `{name}` is declared {w} here but is {h}");
        let span = self.m.instr(id).span;
        let mut e = self.c.fail::<()>(at, self.c.pos.max(at + 1), what);
        if let Err(e) = &mut e {
            e.labels.push((span, "the operand is here".to_owned()));
        }
        e
    }
}

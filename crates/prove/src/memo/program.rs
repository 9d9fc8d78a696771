//! Parts of a program as programs: some values are inputs, some are results.

use super::flow::{Flow, What};
use rustc_hash::FxHashMap;
use scalify_ir::source::Span;
use scalify_ir::{Attrs, CompId, Computation, InstrId, Instruction, Module, Opcode, Shape};
use smallvec::SmallVec;

/// A part under construction. The module is a copy of the whole one with a
/// further computation as its entry, so that called computations stay.
pub(super) struct Program<'f, 'm> {
    pub(super) flow: &'f Flow<'m>,
    pub(super) m: Module,
    /// First instruction of the part.
    first: usize,
    /// Nodes of the instructions from `first` on.
    nodes: Vec<u32>,
    /// Instructions that compute a node.
    at: FxHashMap<u32, InstrId>,
    /// Parameters that stand for a node.
    given: FxHashMap<u32, InstrId>,
    /// The nodes that parameters stand for, in order.
    pub(super) inputs: Vec<u32>,
}

impl<'f, 'm> Program<'f, 'm> {
    pub(super) fn new(flow: &'f Flow<'m>) -> Self {
        Program {
            flow,
            m: flow.m.clone(),
            first: flow.m.instrs.len(),
            nodes: Vec::new(),
            at: FxHashMap::default(),
            given: FxHashMap::default(),
            inputs: Vec::new(),
        }
    }

    /// Another part of the same program, in place of this one.
    pub(super) fn restart(&mut self) {
        self.m.instrs.truncate(self.first);
        self.m.comps.truncate(self.flow.m.comps.len());
        self.m.entry = self.flow.m.entry;
        self.nodes.clear();
        self.at.clear();
        self.given.clear();
        self.inputs.clear();
    }

    fn push(&mut self, node: u32, i: Instruction) -> InstrId {
        let id = InstrId(self.m.instrs.len() as u32);
        self.m.instrs.push(i);
        self.nodes.push(node);
        id
    }

    /// The parameter that stands for a node.
    pub(super) fn input(&mut self, n: u32) -> InstrId {
        if let Some(&i) = self.given.get(&n) {
            return i;
        }
        let shape = self.m.shape_id(self.flow.shape(n).clone());
        let k = self.inputs.len() as u32;
        let name = self.flow.instr(n).map_or(self.m.name, |i| self.flow.m.instr(i).name);
        let i = self.push(
            n,
            Instruction {
                name,
                opcode: Opcode::Parameter,
                shape,
                operands: SmallVec::new(),
                calls: SmallVec::new(),
                attrs: Attrs::Parameter(k),
                extra: None,
                metadata: None,
                span: Span::default(),
            },
        );
        self.given.insert(n, i);
        self.inputs.push(n);
        i
    }

    /// True if a parameter stands for a node, or an instruction computes it.
    pub(super) fn has(&self, n: u32) -> bool {
        self.given.contains_key(&n) || self.at.contains_key(&n)
    }

    /// The instruction that computes a node, if there is one.
    pub(super) fn computed(&self, n: u32) -> Option<InstrId> {
        self.at.get(&n).copied()
    }

    /// The instruction that computes `n` from inputs and the nodes of which
    /// `cut` says that they are given.
    pub(super) fn compute(&mut self, n: u32, cut: &dyn Fn(u32) -> bool) -> InstrId {
        let flow = self.flow;
        let is_input = |n: u32| matches!(flow.nodes[n as usize].what, What::Input { .. });
        if is_input(n) {
            return self.input(n);
        }
        let mut todo = vec![n];
        while let Some(&x) = todo.last() {
            if self.at.contains_key(&x) {
                todo.pop();
                continue;
            }
            let node = &flow.nodes[x as usize];
            let missing = node
                .operands
                .iter()
                .find(|&&o| !is_input(o) && !cut(o) && !self.at.contains_key(&o));
            if let Some(&o) = missing {
                todo.push(o);
                continue;
            }
            todo.pop();
            let operands: SmallVec<[InstrId; 3]> = node
                .operands
                .iter()
                .map(|&o| if is_input(o) || cut(o) { self.input(o) } else { self.at[&o] })
                .collect();
            let What::Instr(i) = node.what else { continue };
            let mut copy = Instruction { operands, ..flow.m.instr(i).clone() };
            if let Some(e) = &mut copy.extra {
                e.control_predecessors.clear();
            }
            let id = self.push(x, copy);
            self.at.insert(x, id);
        }
        self.at[&n]
    }

    /// The node that an instruction of the part stands for.
    pub(super) fn node(&self, i: InstrId) -> Option<u32> {
        self.nodes.get((i.0 as usize).checked_sub(self.first)?).copied()
    }

    /// The node that a parameter of the part stands for.
    pub(super) fn stands_for(&self, i: InstrId) -> Option<u32> {
        self.node(i).filter(|n| self.given.get(n) == Some(&i))
    }

    /// The instruction of the whole program that one of the part copies.
    pub(super) fn origin(&self, i: InstrId) -> InstrId {
        self.node(i).and_then(|n| self.flow.instr(n)).unwrap_or(i)
    }

    /// Ends the part; its results are these.
    pub(super) fn finish(&mut self, results: &[InstrId]) {
        let shape = Shape::Tuple(results.iter().map(|&r| self.m.shape(r).clone()).collect());
        let shape = self.m.shape_id(shape);
        let name = self.m.name;
        let root = self.push(
            u32::MAX,
            Instruction {
                name,
                opcode: Opcode::Tuple,
                shape,
                operands: results.into(),
                calls: SmallVec::new(),
                attrs: Attrs::None,
                extra: None,
                metadata: None,
                span: Span::default(),
            },
        );
        let instrs: Vec<InstrId> =
            (self.first..self.m.instrs.len()).map(|k| InstrId(k as u32)).collect();
        let params = self.inputs.iter().map(|n| self.given[n]).collect();
        self.m.entry = CompId(self.m.comps.len() as u32);
        self.m.comps.push(Computation {
            name,
            instrs,
            params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        });
    }
}

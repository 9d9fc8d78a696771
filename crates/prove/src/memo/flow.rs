//! A program as one graph of values: calls in line, elements of tuples read
//! directly, equal values once, borders of manual computations as blocks of
//! inputs and outputs.

use super::kinds::{Kinds, function, impure};
use crate::lift::regions::{Placements, RegionInfo, sdy_placements};
use rustc_hash::FxHashMap;
use scalify_claim::{NamedMesh, Placement};
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode, Shape};
use smallvec::SmallVec;
use std::rc::Rc;

/// Deepest nesting of calls.
const MAX_DEPTH: u32 = 32;

/// Instructions looked through for the one that gives an output.
const MAX_STEPS: u32 = 256;

/// What a node is.
#[derive(Clone)]
pub(super) enum What {
    /// A copy of this instruction.
    Instr(InstrId),
    /// A leaf of the entry's parameters, or the block of it that a border
    /// gives each device.
    Input { leaf: usize, block: Option<Placement>, shape: Shape },
}

/// One value.
pub(super) struct Node {
    pub(super) what: What,
    /// See [`Kinds`]; meaningless for inputs.
    pub(super) kind: u32,
    pub(super) operands: SmallVec<[u32; 3]>,
    /// Computed from inputs, not from constants and device ids alone.
    pub(super) open: bool,
}

/// One leaf of the result.
#[derive(Clone)]
pub(super) struct Out {
    pub(super) node: u32,
    /// The instruction that gives it in the whole program.
    pub(super) instr: InstrId,
    /// It is put together from blocks that lie like this.
    pub(super) block: Option<Placement>,
}

pub(super) struct Flow<'m> {
    pub(super) m: &'m Module,
    /// Operands before users.
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<Out>,
}

impl Flow<'_> {
    /// The shape of a node.
    pub(super) fn shape(&self, n: u32) -> &Shape {
        match &self.nodes[n as usize].what {
            What::Instr(i) => self.m.shape(*i),
            What::Input { shape, .. } => shape,
        }
    }

    /// The opcode of a node; `None` for inputs.
    pub(super) fn opcode(&self, n: u32) -> Option<Opcode> {
        self.instr(n).map(|i| self.m.instr(i).opcode)
    }

    /// The instruction that a node is a copy of.
    pub(super) fn instr(&self, n: u32) -> Option<InstrId> {
        match self.nodes[n as usize].what {
            What::Instr(i) => Some(i),
            What::Input { .. } => None,
        }
    }
}

/// A value while the graph is built.
#[derive(Clone)]
enum Val {
    Node(u32),
    /// The tuple instruction, if there is one.
    Tuple(Option<InstrId>, Rc<[Val]>),
    /// A global value put together from blocks.
    Whole(u32, Placement),
}

struct Build<'m> {
    m: &'m Module,
    kinds: Kinds<'m>,
    nodes: Vec<Node>,
    known: FxHashMap<(u32, SmallVec<[u32; 3]>), u32>,
    env: Vec<Option<Val>>,
    /// Nodes after which calls stay calls.
    most: usize,
    devices: u32,
    region: RegionInfo,
    placements: Placements,
}

/// The graph of a program; `None` if it has parts that this form cannot show.
pub(super) fn flow(m: &Module, devices: u32) -> Option<Flow<'_>> {
    if m.instrs.iter().enumerate().any(|(k, _)| impure(m, InstrId(k as u32))) {
        return None;
    }
    let mut b = Build {
        m,
        kinds: Kinds::new(m),
        nodes: Vec::with_capacity(m.instrs.len()),
        known: FxHashMap::default(),
        env: vec![None; m.instrs.len()],
        most: 2 * m.instrs.len() + 1000,
        devices,
        region: RegionInfo::of(m),
        placements: Placements::default(),
    };
    let mut leaf = 0;
    for &p in &m.entry_comp().params {
        b.env[p.0 as usize] = Some(b.inputs(m.shape(p), &mut leaf));
    }
    let root = b.body(m.entry, 0)?;
    let mut outputs = Vec::new();
    b.outputs(&root, m.entry_comp().root, &mut outputs)?;
    Some(Flow { m, nodes: b.nodes, outputs })
}

impl Build<'_> {
    fn inputs(&mut self, s: &Shape, leaf: &mut usize) -> Val {
        if let Shape::Tuple(t) = s {
            return Val::Tuple(None, t.iter().map(|x| self.inputs(x, leaf)).collect());
        }
        let what = What::Input { leaf: *leaf, block: None, shape: s.clone() };
        *leaf += 1;
        Val::Node(self.input(what))
    }

    fn input(&mut self, what: What) -> u32 {
        self.nodes.push(Node { what, kind: u32::MAX, operands: SmallVec::new(), open: true });
        self.nodes.len() as u32 - 1
    }

    /// Leaves of a value that an instruction gives.
    fn outputs(&mut self, v: &Val, by: InstrId, out: &mut Vec<Out>) -> Option<()> {
        let by = maker(self.m, by, &mut { MAX_STEPS });
        match v {
            Val::Tuple(_, t) => {
                let x = self.m.instr(by);
                let parts = x.opcode == Opcode::Tuple && x.operands.len() == t.len();
                t.iter().enumerate().try_for_each(|(k, v)| {
                    self.outputs(v, if parts { x.operands[k] } else { by }, out)
                })
            }
            Val::Whole(n, p) => {
                out.push(Out { node: *n, instr: by, block: Some(p.clone()) });
                Some(())
            }
            Val::Node(n) => {
                let shape = match &self.nodes[*n as usize].what {
                    What::Instr(i) => self.m.shape(*i),
                    What::Input { shape, .. } => shape,
                };
                shape.as_array()?;
                out.push(Out { node: *n, instr: by, block: None });
                Some(())
            }
        }
    }

    /// A value as one node.
    fn node(&mut self, v: &Val) -> Option<u32> {
        match v {
            Val::Node(n) => Some(*n),
            Val::Whole(..) => None,
            Val::Tuple(i, t) => {
                let i = (*i)?;
                let parts: Option<SmallVec<[u32; 3]>> = t.iter().map(|x| self.node(x)).collect();
                Some(self.add(i, parts?))
            }
        }
    }

    fn add(&mut self, i: InstrId, operands: SmallVec<[u32; 3]>) -> u32 {
        let kind = self.kinds.of(i);
        let once = function(self.m, i);
        if once {
            if let Some(&n) = self.known.get(&(kind, operands.clone())) {
                return n;
            }
        }
        let open = operands.iter().any(|&o| self.nodes[o as usize].open);
        let n = self.nodes.len() as u32;
        if once {
            self.known.insert((kind, operands.clone()), n);
        }
        self.nodes.push(Node { what: What::Instr(i), kind, operands, open });
        n
    }

    fn value(&self, i: InstrId) -> Option<Val> {
        self.env.get(i.0 as usize)?.clone()
    }

    /// The value of a computation's root, its parameters bound.
    fn body(&mut self, c: CompId, depth: u32) -> Option<Val> {
        let m = self.m;
        for &i in &m.comp(c).instrs {
            // Parameters are bound before.
            if m.instr(i).opcode == Opcode::Parameter {
                continue;
            }
            let v = self.instr(i, depth)?;
            self.env[i.0 as usize] = Some(v);
        }
        self.value(m.comp(c).root)
    }

    fn instr(&mut self, i: InstrId, depth: u32) -> Option<Val> {
        let m = self.m;
        let x = m.instr(i);
        match (x.opcode, &x.attrs) {
            (Opcode::Tuple, _) => {
                let t: Option<Rc<[Val]>> = x.operands.iter().map(|&o| self.value(o)).collect();
                return Some(Val::Tuple(Some(i), t?));
            }
            (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => {
                if let Val::Tuple(_, t) = self.value(x.operands[0])? {
                    return t.get(usize::try_from(*k).ok()?).cloned();
                }
            }
            (Opcode::Call, _) => {
                if let [f] = x.calls[..] {
                    let params = &m.comp(f).params;
                    if depth < MAX_DEPTH
                        && params.len() == x.operands.len()
                        && self.nodes.len() < self.most
                    {
                        for (&p, &o) in params.iter().zip(&x.operands) {
                            self.env[p.0 as usize] = Some(self.value(o)?);
                        }
                        return self.body(f, depth + 1);
                    }
                }
            }
            (Opcode::CustomCall, Attrs::CustomCall(c)) => match m.str(c.target) {
                "xla.sdy.GlobalToLocalShape" => return self.border(i, true),
                "xla.sdy.LocalToGlobalShape" => return self.border(i, false),
                "SPMDFullToShardShape" => {
                    let from = *x.operands.first()?;
                    let rank = m.array(i)?.dims.len();
                    let s = m.sharding(from)?;
                    let cache = self.placements.of(&NamedMesh::default());
                    let p = cache.op_sharding(s, rank, self.devices).ok()?;
                    let v = self.value(from)?;
                    return self.block(&v, p, m.shape(i));
                }
                "SPMDShardToFullShape" => {
                    let rank = m.array(i)?.dims.len();
                    let s = m.sharding(i)?;
                    let cache = self.placements.of(&NamedMesh::default());
                    let p = cache.op_sharding(s, rank, self.devices).ok()?;
                    let v = self.value(*x.operands.first()?)?;
                    let n = self.node(&v)?;
                    return Some(Val::Whole(n, p));
                }
                "Sharding" | "xla.sdy.FuncResultSharding" | "xla.sdy.ShardingConstraint" => {
                    return self.value(*x.operands.first()?);
                }
                _ => {}
            },
            (Opcode::Reshape | Opcode::Copy, _) => {
                let o = *x.operands.first()?;
                let same = m.array(i).zip(m.array(o));
                if same.is_some_and(|(a, b)| a.dtype == b.dtype && a.dims == b.dims) {
                    return self.value(o);
                }
            }
            _ => {}
        }
        let mut operands: SmallVec<[u32; 3]> = SmallVec::new();
        for &o in &x.operands {
            let v = self.value(o)?;
            operands.push(self.node(&v)?);
        }
        Some(Val::Node(self.add(i, operands)))
    }

    /// The devices' blocks of an input.
    fn block(&mut self, v: &Val, p: Placement, shape: &Shape) -> Option<Val> {
        let Val::Node(n) = v else { return None };
        let What::Input { leaf, block: None, shape: global } = &self.nodes[*n as usize].what else {
            return None;
        };
        let (g, l) = (global.as_array()?, shape.as_array()?);
        if g.dtype != l.dtype || p.local_shape(&g.dims)?[..] != l.dims[..] {
            return None;
        }
        let what = What::Input { leaf: *leaf, block: Some(p), shape: shape.clone() };
        Some(Val::Node(self.input(what)))
    }

    /// A border of Shardy: one result per operand.
    fn border(&mut self, i: InstrId, enters: bool) -> Option<Val> {
        let m = self.m;
        let x = m.instr(i);
        let key = if enters { "xla.sdy.in_shardings" } else { "xla.sdy.out_shardings" };
        let mut vals: Vec<Val> = Vec::new();
        for &o in &x.operands {
            match self.value(o)? {
                Val::Tuple(_, t) => vals.extend(t.iter().cloned()),
                v => vals.push(v),
            }
        }
        let leaves: Vec<Shape> = m.shape(i).leaves().into_iter().cloned().collect();
        if leaves.len() != vals.len() {
            return None;
        }
        let ranks: Option<Vec<usize>> =
            leaves.iter().map(|s| Some(s.as_array()?.dims.len())).collect();
        let ps =
            sdy_placements(m, &self.region, &mut self.placements, self.devices, i, key, &ranks?)
                .ok()?;
        let mut out = Vec::with_capacity(vals.len());
        for ((v, p), s) in vals.iter().zip(ps).zip(&leaves) {
            out.push(if enters {
                self.block(v, p, s)?
            } else {
                let n = self.node(v)?;
                Val::Whole(n, p)
            });
        }
        match (m.shape(i).as_tuple().is_some(), out.len()) {
            (false, 1) => out.pop(),
            (true, _) => Some(Val::Tuple(None, out.into())),
            _ => None,
        }
    }
}

/// The instruction behind calls and elements of tuples that are in the text.
fn maker(m: &Module, mut i: InstrId, steps: &mut u32) -> InstrId {
    while *steps > 0 {
        *steps -= 1;
        let x = m.instr(i);
        let next = match (x.opcode, &x.attrs) {
            (Opcode::Call, _) => x.calls.first().map(|&f| m.comp(f).root),
            (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => x.operands.first().and_then(|&t| {
                let t = m.instr(maker(m, t, steps));
                let k = usize::try_from(*k).ok()?;
                t.operands.get(k).copied().filter(|_| t.opcode == Opcode::Tuple)
            }),
            _ => None,
        };
        match next {
            Some(n) => i = n,
            None => break,
        }
    }
    i
}

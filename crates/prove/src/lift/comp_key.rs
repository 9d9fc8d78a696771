//! Text that tells called computations of different meaning apart: the graph
//! below the root, in one of the forms that compilers write it in.

use super::Lifter;
use rustc_hash::FxHashMap;
use scalify_ir::{
    Attrs, CompId, CompareKind, Comparison, DType, InstrId, LiteralData, Opcode, Shape,
};
use std::fmt::Write;
use std::rc::Rc;

/// Nodes of a key at most; larger computations get their listing.
const MAX_NODES: usize = 4096;
/// Calls within calls that are entered.
const MAX_CALLS: u32 = 16;

/// What a node does, and the nodes it does it to.
type Node = (Rc<str>, Vec<usize>);

/// Nodes so far, operands first, each once.
#[derive(Default)]
struct Nodes {
    list: Vec<Node>,
    at: FxHashMap<Node, usize>,
    steps: usize,
}

impl Nodes {
    fn add(&mut self, what: String, operands: &[usize]) -> usize {
        let node: Node = (what.into(), operands.to_vec());
        if let Some(&n) = self.at.get(&node) {
            return n;
        }
        self.list.push(node.clone());
        self.at.insert(node, self.list.len() - 1);
        self.list.len() - 1
    }

    /// What `root` is, numbered in the order of use.
    fn text(&self, root: usize) -> String {
        let mut number: FxHashMap<usize, usize> = FxHashMap::default();
        let mut out = String::from("{");
        let mut todo = vec![root];
        while let Some(&n) = todo.last() {
            let (what, operands) = &self.list[n];
            if number.contains_key(&n) {
                todo.pop();
            } else if let Some(o) = operands.iter().find(|o| !number.contains_key(o)) {
                todo.push(*o);
            } else {
                let _ = write!(out, "{what}(");
                for o in operands {
                    let _ = write!(out, "{},", number[o]);
                }
                out.push_str(");");
                number.insert(n, number.len());
                todo.pop();
            }
        }
        out.push('}');
        out
    }
}

/// The key of a comparator of values `a`, `b` and their positions that orders
/// by the values: the greater first, or the less; floats in their total order.
pub(super) fn order_text(dtype: DType, greater_first: bool) -> String {
    let mut nodes = Nodes::default();
    let scalar = |d| Shape::array(d, []);
    let (a, b) = (
        nodes.add(format!("p0:{}", scalar(dtype)), &[]),
        nodes.add(format!("p1:{}", scalar(dtype)), &[]),
    );
    let kind =
        if dtype.is_int() { String::new() } else { format!("{:?}", CompareKind::TotalOrder) };
    let operands = if greater_first { [b, a] } else { [a, b] };
    let what = format!("{}:{:?}{kind}", scalar(DType::Pred), Comparison::Lt);
    let root = nodes.add(what, &operands);
    nodes.text(root)
}

impl Lifter<'_> {
    /// Text that tells computations of different meaning apart. What the root
    /// does not use, the order of instructions, calls, and the ways to write
    /// an order of numbers leave no trace.
    pub(super) fn comp_key(&mut self, c: CompId) -> Rc<str> {
        if let Some(k) = self.comp_keys.get(&c) {
            return k.clone();
        }
        let m = self.m;
        let mut nodes = Nodes::default();
        let params: Vec<usize> = (0..m.comp(c).params.len())
            .map(|k| nodes.add(format!("p{k}:{}", m.shape(m.comp(c).params[k])), &[]))
            .collect();
        let k: Rc<str> = match self.comp_nodes(c, &params, &mut nodes, 0) {
            Some(root) => nodes.text(root).into(),
            None => self.listing(c).into(),
        };
        self.comp_keys.insert(c, k.clone());
        k
    }

    /// All instructions in order.
    fn listing(&mut self, c: CompId) -> String {
        let m = self.m;
        let comp = m.comp(c);
        let mut s = String::from("[");
        for (n, &i) in comp.instrs.iter().enumerate() {
            let ins = m.instr(i);
            let _ = write!(s, "{}:{}(", m.shape(i), ins.opcode);
            for o in &ins.operands {
                let _ = write!(s, "{},", n as i64 - i64::from(self.pos[o.0 as usize]));
            }
            let k = self.attr_key(i);
            let _ = write!(s, "){k};");
        }
        let _ = write!(s, "r{}]", self.pos[comp.root.0 as usize]);
        s
    }

    /// The root's node of a computation with these arguments; `None` if there
    /// are too many nodes.
    fn comp_nodes(
        &mut self,
        c: CompId,
        args: &[usize],
        nodes: &mut Nodes,
        depth: u32,
    ) -> Option<usize> {
        let m = self.m;
        let comp = m.comp(c);
        // Depth first, so that the order in the file leaves no trace.
        let mut at: FxHashMap<InstrId, usize> = FxHashMap::default();
        let mut todo = vec![comp.root];
        while let Some(&i) = todo.last() {
            if at.contains_key(&i) {
                todo.pop();
                continue;
            }
            let ins = m.instr(i);
            let next = ins.operands.iter().copied().find(|o| !at.contains_key(o));
            if let Some(o) = next {
                todo.push(o);
                continue;
            }
            todo.pop();
            nodes.steps += 1;
            if nodes.steps > MAX_NODES {
                return None;
            }
            let ops: Option<Vec<usize>> = ins.operands.iter().map(|o| at.get(o).copied()).collect();
            let ops = ops?;
            let n = self.comp_node(i, &ops, args, nodes, depth, &at)?;
            at.insert(i, n);
        }
        at.get(&comp.root).copied()
    }

    fn comp_node(
        &mut self,
        i: InstrId,
        ops: &[usize],
        args: &[usize],
        nodes: &mut Nodes,
        depth: u32,
        at: &FxHashMap<InstrId, usize>,
    ) -> Option<usize> {
        let m = self.m;
        let ins = m.instr(i);
        let scalar = m.array(i).is_some_and(|a| a.dims.is_empty());
        let from = ins.operands.first().and_then(|&o| m.array(o)).filter(|a| a.dims.is_empty());
        let same = from.is_some_and(|a| Some(a.dtype) == m.dtype(i));
        match (ins.opcode, &ins.attrs) {
            (Opcode::Parameter, Attrs::Parameter(k)) => {
                return args.get(usize::try_from(*k).ok()?).copied();
            }
            (Opcode::Copy | Opcode::Bitcast | Opcode::Reshape | Opcode::Broadcast, _)
                if scalar && same =>
            {
                return ops.first().copied();
            }
            (Opcode::Bitcast | Opcode::BitcastConvert, _) if scalar && from.is_some() => {
                return Some(nodes.add(format!("{}:bits", m.shape(i)), ops));
            }
            (Opcode::Call | Opcode::Fusion, _) if depth < MAX_CALLS && ins.calls.len() == 1 => {
                if m.comp(ins.calls[0]).params.len() == ops.len() {
                    return self.comp_nodes(ins.calls[0], ops, nodes, depth + 1);
                }
            }
            (Opcode::Compare, Attrs::Compare { direction, kind }) if ops.len() == 2 => {
                let (mut x, mut y, mut d) = (ops[0], ops[1], *direction);
                let dtype = m.dtype(ins.operands[0])?;
                let mut kind = match kind {
                    Some(k) => format!("{k:?}"),
                    None if dtype.is_float() => format!("{:?}", CompareKind::Float),
                    None => String::new(),
                };
                let own =
                    if dtype.is_signed() { CompareKind::Signed } else { CompareKind::Unsigned };
                if dtype.is_int() && (kind.is_empty() || kind == format!("{own:?}")) {
                    // The type says it.
                    kind.clear();
                    let key = |i: InstrId| self.order_key(i).and_then(|p| at.get(&p).copied());
                    let keys = (key(ins.operands[0]), key(ins.operands[1]));
                    if let (Some(p), Some(q)) = keys {
                        (x, y, kind) = (p, q, format!("{:?}", CompareKind::TotalOrder));
                    }
                }
                let flipped = match d {
                    Comparison::Gt => Some(Comparison::Lt),
                    Comparison::Ge => Some(Comparison::Le),
                    _ => None,
                };
                if let Some(f) = flipped {
                    (x, y, d) = (y, x, f);
                }
                return Some(nodes.add(format!("{}:{d:?}{kind}", m.shape(i)), &[x, y]));
            }
            _ => {}
        }
        let k = self.attr_key(i);
        Some(nodes.add(format!("{}:{}{k}", m.shape(i), ins.opcode), ops))
    }

    /// `p` if `v = select(b < 0, b xor 0x7fffffff, b)` with the bits `b` of an
    /// `f32` `p`: integers in the total order of floats.
    pub(super) fn order_key(&self, v: InstrId) -> Option<InstrId> {
        let m = self.m;
        let op = |i: InstrId| m.instr(i).opcode;
        let arg = |i: InstrId, k: usize| {
            let mut x = m.instr(i).operands.get(k).copied()?;
            // A scalar that is handed on.
            while matches!(op(x), Opcode::Copy | Opcode::Reshape | Opcode::Broadcast) {
                let from = m.instr(x).operands.first().copied()?;
                let scalar = |i| m.array(i).is_some_and(|a| a.dims.is_empty());
                if !scalar(x) || !scalar(from) {
                    break;
                }
                x = from;
            }
            Some(x)
        };
        let is_int = |i: Option<InstrId>, x: i32| {
            i.and_then(|i| m.literal(i)).is_some_and(|l| match &l.data {
                LiteralData::Dense(b) => b.as_ref() == x.to_le_bytes().as_slice(),
                _ => false,
            })
        };
        let bits = arg(v, 2).filter(|&b| {
            op(v) == Opcode::Select
                && matches!(op(b), Opcode::Bitcast | Opcode::BitcastConvert)
                && m.dtype(b) == Some(DType::S32)
        })?;
        let p = arg(bits, 0)
            .filter(|&p| m.array(p).is_some_and(|a| a.dims.is_empty() && a.dtype == DType::F32))?;
        let same = |i: Option<InstrId>| {
            i.is_some_and(|i| {
                i == bits
                    || matches!(op(i), Opcode::Bitcast | Opcode::BitcastConvert)
                        && m.dtype(i) == Some(DType::S32)
                        && arg(i, 0) == Some(p)
            })
        };
        let (test, flip) = (arg(v, 0)?, arg(v, 1)?);
        let negative =
            matches!(&m.instr(test).attrs, Attrs::Compare { direction: Comparison::Lt, .. })
                && same(arg(test, 0))
                && is_int(arg(test, 1), 0);
        let flipped = op(flip) == Opcode::Xor
            && ((is_int(arg(flip, 0), i32::MAX) && same(arg(flip, 1)))
                || (is_int(arg(flip, 1), i32::MAX) && same(arg(flip, 0))));
        (negative && flipped).then_some(p)
    }
}

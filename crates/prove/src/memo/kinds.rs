//! When two instructions of a module do the same to their operands.

use rustc_hash::{FxHashMap, FxHasher};
use scalify_ir::{Attrs, CompId, Extra, InstrId, LiteralData, Module, Opcode};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// Instructions with one hash that are told apart; further ones count as new.
const MAX_ALIKE: usize = 64;
/// Deepest nesting of computations that are looked into.
const MAX_DEPTH: u32 = 32;

/// Numbers of what instructions do: equal numbers, equal opcode, shape,
/// attributes and called computations. Channel ids and names do not count.
pub(super) struct Kinds<'m> {
    m: &'m Module,
    /// By hash: an instruction of each kind, its callees, the kind.
    alike: FxHashMap<u64, Vec<(InstrId, SmallVec<[u32; 2]>, u32)>>,
    count: u32,
    /// Number of each computation's content.
    comps: FxHashMap<CompId, u32>,
    contents: FxHashMap<Vec<u32>, u32>,
}

impl<'m> Kinds<'m> {
    pub(super) fn new(m: &'m Module) -> Self {
        Kinds {
            m,
            alike: FxHashMap::default(),
            count: 0,
            comps: FxHashMap::default(),
            contents: FxHashMap::default(),
        }
    }

    /// A kind of its own.
    pub(super) fn fresh(&mut self) -> u32 {
        self.count += 1;
        self.count - 1
    }

    /// The kind of an instruction.
    pub(super) fn of(&mut self, i: InstrId) -> u32 {
        self.at_depth(i, 0)
    }

    fn at_depth(&mut self, i: InstrId, depth: u32) -> u32 {
        let m = self.m;
        let x = m.instr(i);
        if depth > MAX_DEPTH || hidden(&x.attrs) {
            return self.fresh();
        }
        let calls: SmallVec<[u32; 2]> = x.calls.iter().map(|&c| self.comp(c, depth)).collect();
        let mut h = FxHasher::default();
        (x.opcode as u32, x.shape, x.operands.len(), &calls).hash(&mut h);
        match &x.attrs {
            Attrs::Constant(l) => {
                if let LiteralData::Dense(b) = &l.data {
                    b[..b.len().min(64)].hash(&mut h);
                }
            }
            Attrs::Dims(d) => d.hash(&mut h),
            Attrs::TupleIndex(k) => k.hash(&mut h),
            Attrs::Slice(s) => (&s.start, &s.limit).hash(&mut h),
            _ => {}
        }
        let key = h.finish();
        let known = self.alike.entry(key).or_default();
        let same = |&&(j, ref c, _): &&(InstrId, SmallVec<[u32; 2]>, u32)| {
            let y = m.instr(j);
            (x.opcode, x.shape, x.operands.len()) == (y.opcode, y.shape, y.operands.len())
                && *c == calls
                && same_attrs(&x.attrs, &y.attrs)
                && same_extra(x.extra.as_deref(), y.extra.as_deref())
        };
        if let Some(k) = known.iter().find(same) {
            return k.2;
        }
        let k = self.count;
        self.count += 1;
        if known.len() < MAX_ALIKE {
            known.push((i, calls, k));
        }
        k
    }

    fn comp(&mut self, c: CompId, depth: u32) -> u32 {
        if let Some(&k) = self.comps.get(&c) {
            return k;
        }
        let m = self.m;
        let comp = m.comp(c);
        let mut at: FxHashMap<InstrId, u32> = FxHashMap::default();
        let mut content: Vec<u32> = Vec::new();
        for (n, &i) in comp.instrs.iter().enumerate() {
            content.push(self.at_depth(i, depth + 1));
            let operands = &m.instr(i).operands;
            content.extend(operands.iter().map(|o| at.get(o).copied().unwrap_or(u32::MAX)));
            at.insert(i, n as u32);
        }
        content.push(at.get(&comp.root).copied().unwrap_or(u32::MAX));
        content.extend(comp.params.iter().map(|p| at.get(p).copied().unwrap_or(u32::MAX)));
        let next = self.contents.len() as u32;
        let k = *self.contents.entry(content).or_insert(next);
        self.comps.insert(c, k);
        k
    }
}

/// True of a constant whose value is not known, or not wholly.
fn hidden(a: &Attrs) -> bool {
    fn unknown(d: &LiteralData) -> bool {
        match d {
            LiteralData::Dense(_) => false,
            LiteralData::Elided => true,
            LiteralData::Tuple(t) => t.iter().any(|l| unknown(&l.data)),
        }
    }
    matches!(a, Attrs::Constant(l) if unknown(&l.data))
}

fn same_attrs(a: &Attrs, b: &Attrs) -> bool {
    match (a, b) {
        (Attrs::Collective(x), Attrs::Collective(y)) => {
            x.channel_id.is_some() == y.channel_id.is_some()
                && x.groups == y.groups
                && x.pairs == y.pairs
                && (x.use_global_device_ids, x.dimension, x.constrain_layout, x.rest)
                    == (y.use_global_device_ids, y.dimension, y.constrain_layout, y.rest)
        }
        _ => a == b,
    }
}

fn same_extra(a: Option<&Extra>, b: Option<&Extra>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(x), Some(y)) => x == y,
        (Some(x), None) | (None, Some(x)) => *x == Extra::default(),
    }
}

/// True of custom calls that mark borders and layouts. Some are printed as
/// having side effects, so that they are kept.
fn annotates(target: &str) -> bool {
    target.starts_with("xla.sdy.")
        || matches!(
            target,
            "Sharding" | "SPMDFullToShardShape" | "SPMDShardToFullShape" | "LayoutConstraint"
        )
}

/// True of instructions whose value is not a function of their operands, or
/// that do more than give a value.
pub(super) fn impure(m: &Module, i: InstrId) -> bool {
    use Opcode::*;
    let x = m.instr(i);
    let side = match &x.attrs {
        Attrs::CustomCall(c) => c.has_side_effect && !annotates(m.str(c.target)),
        _ => false,
    };
    side || matches!(
        x.opcode,
        Rng | RngGetAndUpdateState
            | Infeed
            | Outfeed
            | Send
            | SendDone
            | Recv
            | RecvDone
            | AfterAll
            | AddDependency
            | Domain
            | StochasticConvert
    )
}

/// True of instructions whose value surely is a function of their operands:
/// two of a kind on the same operands are one value. Nothing is known of custom
/// calls, and they may stand in called computations.
pub(super) fn function(m: &Module, i: InstrId) -> bool {
    use Opcode::*;
    !matches!(
        m.instr(i).opcode,
        CustomCall
            | Call
            | Fusion
            | While
            | Conditional
            | Scan
            | AsyncStart
            | AsyncUpdate
            | AsyncDone
    )
}

//! The hierarchy of a module: computations, then `op_name` scopes, then
//! repeated blocks, then sections. Every group is an interval of a
//! topological order, so the graph between the items of a group has no cycle.

use crate::layout::{self, Layout};
use crate::order::{Ordered, order};
use crate::repeat;
use rustc_hash::FxHasher;
use scalify_ir::{CompId, InstrId, Module, Opcode};
use std::hash::{Hash, Hasher};

/// Boxes of a group above which it is cut into sections.
pub const MAX_ITEMS: usize = 150;
/// Least and most boxes of a section.
const SECTION: (usize, usize) = (50, 110);
/// Least instructions of a scope that becomes a group.
const MIN_SCOPE: usize = 3;
/// Rounds of looking for repeats in one list.
const ROUNDS: usize = 4;

/// What a group stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A computation.
    Computation,
    /// An `op_name` scope.
    Scope,
    /// Consecutive isomorphic blocks; its items are the blocks.
    Repeat,
    /// One of them.
    Block,
    /// A part of a long list.
    Section,
}

/// An item of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An instruction.
    Node(u32),
    /// Index into [`Tree::groups`].
    Group(u32),
}

/// A group, laid out.
#[derive(Clone, Debug)]
pub struct Group {
    /// Kind.
    pub kind: Kind,
    /// Its computation.
    pub comp: u32,
    /// What people read.
    pub label: String,
    /// Blocks of a repeat, else 1.
    pub count: u32,
    /// Instructions in it, without folded ones and called computations.
    pub size: u32,
    /// Items in topological order.
    pub items: Vec<Item>,
    /// Edges between items: (from, to, values).
    pub edges: Vec<(u32, u32, u32)>,
    /// Per item: 1 if it reads from outside the group, 2 if it is read there.
    pub ports: Vec<u8>,
    /// Where the items are when all are collapsed.
    pub layout: Layout,
    /// Most frequent opcodes that say what happens here.
    pub summary: String,
}

/// The hierarchy.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// All groups.
    pub groups: Vec<Group>,
    /// Group of each computation.
    pub comps: Vec<u32>,
}

/// A list entry while the tree is built: an interval of the order.
#[derive(Clone, Copy)]
struct Entry {
    item: Item,
    from: u32,
    to: u32,
    key: u64,
}

struct Builder<'a> {
    m: &'a Module,
    comp: u32,
    o: &'a Ordered,
    /// Position of each instruction in the order.
    position: &'a [u32],
    chains: Vec<Vec<u32>>,
    groups: &'a mut Vec<Group>,
}

impl Tree {
    /// Builds and lays out the hierarchy.
    pub fn new(m: &Module, folded: &[bool]) -> Tree {
        let mut groups = Vec::new();
        let mut comps = Vec::with_capacity(m.comps.len());
        let mut position = vec![u32::MAX; m.instrs.len()];
        for k in 0..m.comps.len() as u32 {
            let o = order(m, CompId(k), folded);
            for (p, &n) in o.nodes.iter().enumerate() {
                position[n as usize] = p as u32;
            }
            let chains = (0..o.paths.len() as u32).map(|p| o.chain(p)).collect();
            let mut b =
                Builder { m, comp: k, o: &o, position: &position, chains, groups: &mut groups };
            let items = b.scopes(0, o.nodes.len() as u32, 0);
            let name = m.comps.get(k as usize).map_or("", |c| m.str(c.name));
            let root = b.group(Kind::Computation, name.chars().take(120).collect(), 1, &items);
            comps.push(match root.item {
                Item::Group(g) => g,
                Item::Node(_) => 0,
            });
        }
        let mut t = Tree { groups, comps };
        t.connect(m, folded);
        for g in &mut t.groups {
            let widths: Vec<f32> = g
                .items
                .iter()
                .map(|i| match i {
                    Item::Node(n) => layout::node_width(m, *n),
                    Item::Group(_) => layout::GROUP_WIDTH,
                })
                .collect();
            g.layout = layout::lay_out(&widths, &g.edges);
        }
        t
    }

    /// Edges and ports: each operand belongs to the innermost group that
    /// holds both ends.
    fn connect(&mut self, m: &Module, folded: &[bool]) {
        let none = (u32::MAX, 0u32);
        let mut node_at = vec![none; m.instrs.len()];
        let mut group_at = vec![none; self.groups.len()];
        for (g, group) in self.groups.iter().enumerate() {
            for (k, item) in group.items.iter().enumerate() {
                let at = (g as u32, k as u32);
                match *item {
                    Item::Node(n) => node_at[n as usize] = at,
                    Item::Group(h) => group_at[h as usize] = at,
                }
            }
        }
        // Groups come after their items' groups: parents have higher indices.
        let mut depth = vec![0u32; self.groups.len()];
        for g in (0..self.groups.len()).rev() {
            let p = group_at[g].0;
            depth[g] = if p == u32::MAX { 0 } else { depth[p as usize] + 1 };
        }
        for (k, i) in m.instrs.iter().enumerate() {
            if folded.get(k) != Some(&false) {
                continue;
            }
            for o in &i.operands {
                let (mut a, mut b) =
                    (node_at.get(o.0 as usize).copied().unwrap_or(none), node_at[k]);
                if a.0 == u32::MAX || b.0 == u32::MAX {
                    continue;
                }
                while a.0 != b.0 {
                    let (da, db) = (depth[a.0 as usize], depth[b.0 as usize]);
                    if da >= db {
                        self.groups[a.0 as usize].ports[a.1 as usize] |= 2;
                        a = group_at[a.0 as usize];
                    }
                    if db >= da {
                        self.groups[b.0 as usize].ports[b.1 as usize] |= 1;
                        b = group_at[b.0 as usize];
                    }
                    if a.0 == u32::MAX || b.0 == u32::MAX {
                        break;
                    }
                }
                if a.0 == b.0 && a.0 != u32::MAX && a.1 != b.1 {
                    self.groups[a.0 as usize].edges.push((a.1, b.1, 1));
                }
            }
        }
        for g in &mut self.groups {
            g.edges.sort_unstable();
            g.edges.dedup_by(|x, first| {
                let same = (x.0, x.1) == (first.0, first.1);
                if same {
                    first.2 += x.2;
                }
                same
            });
        }
    }
}

impl Builder<'_> {
    /// Key of an instruction: what it does, on what shapes.
    fn key(&self, n: u32) -> u64 {
        let mut h = FxHasher::default();
        if let Some(i) = self.m.instrs.get(n as usize) {
            (i.opcode.name().as_ptr() as usize, i.shape.0, i.operands.len()).hash(&mut h);
            for o in &i.operands {
                if let Some(x) = self.m.instrs.get(o.0 as usize) {
                    (x.opcode.name().as_ptr() as usize, x.shape.0).hash(&mut h);
                }
            }
        }
        h.finish()
    }

    fn leaf(&self, p: u32) -> Entry {
        let n = self.o.nodes[p as usize];
        Entry { item: Item::Node(n), from: p, to: p + 1, key: self.key(n) }
    }

    /// Runs of equal scopes at a depth become groups.
    fn scopes(&mut self, from: u32, to: u32, depth: usize) -> Vec<Entry> {
        let at = |b: &Self, p: u32| -> u32 {
            let s = b.o.scopes[p as usize] as usize;
            b.chains[s].get(depth).copied().unwrap_or(0)
        };
        let mut out = Vec::new();
        let mut p = from;
        while p < to {
            let s = at(self, p);
            let mut e = p + 1;
            while e < to && at(self, e) == s {
                e += 1;
            }
            if s == 0 {
                for k in p..e {
                    out.push(self.leaf(k));
                }
            } else if e - p < MIN_SCOPE as u32 || e - p == to - from {
                out.extend(self.scopes(p, e, depth + 1));
            } else {
                let inner = self.scopes(p, e, depth + 1);
                let label = self.o.paths[s as usize].1.clone();
                if let [only] = inner[..]
                    && let Item::Group(g) = only.item
                    && self.groups[g as usize].kind == Kind::Scope
                {
                    let l = &mut self.groups[g as usize].label;
                    *l = format!("{label}/{l}");
                    out.push(only);
                } else {
                    out.push(self.group(Kind::Scope, label, 1, &inner));
                }
            }
            p = e;
        }
        self.finish(out, 0)
    }

    fn group(&mut self, kind: Kind, label: String, count: u32, items: &[Entry]) -> Entry {
        let from = items.first().map_or(0, |e| e.from);
        let to = items.last().map_or(from, |e| e.to);
        let mut h = FxHasher::default();
        (kind as u8).hash(&mut h);
        for e in items {
            e.key.hash(&mut h);
        }
        let nodes = self.o.nodes.get(from as usize..to as usize).unwrap_or(&[]);
        let group = Group {
            kind,
            comp: self.comp,
            label,
            count,
            size: to - from,
            items: items.iter().map(|e| e.item).collect(),
            edges: Vec::new(),
            ports: vec![0; items.len()],
            layout: Layout::default(),
            summary: summary(self.m, nodes),
        };
        self.groups.push(group);
        let item = Item::Group(self.groups.len() as u32 - 1);
        Entry { item, from, to, key: h.finish() }
    }

    /// Positions that each entry reads, and values that cross before each.
    fn wiring(&self, list: &[Entry]) -> (Vec<Vec<u32>>, Vec<u32>) {
        let (Some(first), Some(last)) = (list.first(), list.last()) else {
            return (Vec::new(), Vec::new());
        };
        let base = first.from;
        let mut owner = vec![0u32; (last.to - base) as usize];
        for (k, e) in list.iter().enumerate() {
            owner[(e.from - base) as usize..(e.to - base) as usize].fill(k as u32);
        }
        let mut preds: Vec<Vec<u32>> = vec![Vec::new(); list.len()];
        let mut cross = vec![0i64; list.len() + 1];
        for (k, e) in list.iter().enumerate() {
            for p in e.from..e.to {
                let n = self.o.nodes[p as usize];
                for o in &self.m.instrs[n as usize].operands {
                    let q = self.position.get(o.0 as usize).copied().unwrap_or(u32::MAX);
                    if q == u32::MAX || q < base || q >= e.from {
                        continue;
                    }
                    let j = owner[(q - base) as usize];
                    preds[k].push(j);
                    cross[j as usize + 1] += 1;
                    cross[k + 1] -= 1;
                }
            }
            preds[k].sort_unstable();
            preds[k].dedup();
        }
        let mut sum = 0i64;
        let cross = cross
            .iter()
            .take(list.len())
            .map(|c| {
                sum += c;
                u32::try_from(sum).unwrap_or(0)
            })
            .collect();
        (preds, cross)
    }

    /// Repeats, then sections.
    fn finish(&mut self, mut list: Vec<Entry>, depth: usize) -> Vec<Entry> {
        for _ in 0..ROUNDS {
            if list.len() < 6 || depth > 3 {
                break;
            }
            let keys: Vec<u64> = list.iter().map(|e| e.key).collect();
            let (preds, cross) = self.wiring(&list);
            let runs = repeat::runs(&keys, &preds, &cross);
            // Short blocks stay as they are in a short list.
            let worth = |r: &repeat::Run| r.period * r.count >= 8 || list.len() > MAX_ITEMS;
            let runs: Vec<repeat::Run> = runs.into_iter().filter(worth).collect();
            if runs.is_empty()
                || runs.iter().any(|r| {
                    r.period * r.count == list.len() && r.period == 1 && list.len() <= MAX_ITEMS
                })
            {
                break;
            }
            let mut next = Vec::new();
            let mut at = 0;
            for r in runs {
                next.extend_from_slice(&list[at..r.start]);
                let mut blocks = Vec::with_capacity(r.count);
                for t in 0..r.count {
                    let from = r.start + t * r.period;
                    let part = list[from..from + r.period].to_vec();
                    if let [one] = part[..] {
                        blocks.push(one);
                        continue;
                    }
                    let inner = self.finish(part, depth + 1);
                    let label = format!("block {} of {}", t + 1, r.count);
                    blocks.push(self.group(Kind::Block, label, 1, &inner));
                }
                let count = r.count as u32;
                let blocks = self.sections(blocks);
                next.push(self.group(
                    Kind::Repeat,
                    format!("{count} equal blocks"),
                    count,
                    &blocks,
                ));
                at = r.start + r.period * r.count;
            }
            next.extend_from_slice(&list[at..]);
            list = next;
        }
        self.sections(list)
    }

    /// Cuts a long list where few values cross. Large repeats stay in sight:
    /// only the stretches between them are cut.
    fn sections(&mut self, list: Vec<Entry>) -> Vec<Entry> {
        if list.len() <= MAX_ITEMS {
            return list;
        }
        let big = |b: &Self, e: &Entry| match e.item {
            Item::Group(g) => {
                let g = &b.groups[g as usize];
                g.kind == Kind::Repeat && g.size as usize >= MAX_ITEMS
            }
            Item::Node(_) => false,
        };
        let cuts = list.iter().filter(|e| big(self, e)).count();
        if cuts == 0 || cuts > MAX_ITEMS / 3 {
            return self.cut(list);
        }
        let mut out: Vec<Entry> = Vec::new();
        let mut stretch: Vec<Entry> = Vec::new();
        let mut part = 0;
        for e in list {
            if !big(self, &e) {
                stretch.push(e);
                continue;
            }
            self.stretch(&mut out, &mut stretch, &mut part);
            out.push(e);
        }
        self.stretch(&mut out, &mut stretch, &mut part);
        if out.len() > MAX_ITEMS { self.cut(out) } else { out }
    }

    /// A stretch between large repeats, as one part if it is long.
    fn stretch(&mut self, out: &mut Vec<Entry>, stretch: &mut Vec<Entry>, part: &mut u32) {
        let list = std::mem::take(stretch);
        if list.len() <= 12 {
            out.extend(list);
            return;
        }
        *part += 1;
        let list = self.cut(list);
        out.push(self.group(Kind::Section, format!("part {part}"), 1, &list));
    }

    /// Cuts a long list where few values cross.
    fn cut(&mut self, mut list: Vec<Entry>) -> Vec<Entry> {
        while list.len() > MAX_ITEMS {
            let (_, cross) = self.wiring(&list);
            let mut next = Vec::new();
            let mut at = 0;
            while at < list.len() {
                let rest = list.len() - at;
                let len = if rest <= SECTION.1 {
                    rest
                } else {
                    let most = SECTION.1.min(rest - SECTION.0.min(rest));
                    (SECTION.0..=most.max(SECTION.0))
                        .min_by_key(|&l| (cross.get(at + l).copied().unwrap_or(0), usize::MAX - l))
                        .unwrap_or(SECTION.0)
                };
                let part = list[at..at + len].to_vec();
                let label = format!("part {}", next.len() + 1);
                next.push(self.group(Kind::Section, label, 1, &part));
                at += len;
            }
            list = next;
        }
        list
    }
}

/// Opcodes that say what a group does, most telling first.
fn summary(m: &Module, nodes: &[u32]) -> String {
    let mut counts: Vec<(&'static str, u32, u8)> = Vec::new();
    for &n in nodes {
        let Some(i) = m.instrs.get(n as usize) else { continue };
        let rank = rank(i.opcode);
        let name = i.opcode.name();
        match counts.iter_mut().find(|c| c.0 == name) {
            Some(c) => c.1 += 1,
            None => counts.push((name, 1, rank)),
        }
    }
    counts.sort_by_key(|c| (c.2, std::cmp::Reverse(c.1)));
    let t: Vec<String> = counts
        .iter()
        .take(3)
        .map(|(n, c, _)| if *c == 1 { (*n).to_owned() } else { format!("{c} {n}") })
        .collect();
    t.join(", ")
}

fn rank(op: Opcode) -> u8 {
    use Opcode::*;
    match op {
        _ if op.is_collective() => 0,
        While | Conditional | Call | CustomCall | Fusion => 1,
        Dot | Convolution => 1,
        Scatter | Gather | Sort | Fft | Cholesky | TriangularSolve => 2,
        Reduce | ReduceWindow | Exponential | DynamicUpdateSlice | DynamicSlice => 3,
        Broadcast | Reshape | GetTupleElement | Tuple | Bitcast | Copy | Convert => 5,
        _ => 4,
    }
}

/// The computations an instruction can be opened into: all but reducers of
/// a single operation, whose name is returned instead.
pub fn opens(m: &Module, id: InstrId) -> (Vec<u32>, Option<&'static str>) {
    let Some(i) = m.instrs.get(id.0 as usize) else { return (Vec::new(), None) };
    let trivial = |c: &CompId| {
        let c = m.comps.get(c.0 as usize)?;
        let root = m.instrs.get(c.root.0 as usize)?;
        (c.instrs.len() == c.params.len() + 1 && root.operands.len() == 2)
            .then(|| root.opcode.name())
    };
    let calls =
        matches!(i.opcode, Opcode::Call | Opcode::While | Opcode::Conditional | Opcode::Fusion);
    match i.calls.first().and_then(trivial) {
        Some(name) if !calls && i.calls.len() == 1 => (Vec::new(), Some(name)),
        _ => (i.calls.iter().map(|c| c.0).collect(), None),
    }
}

//! What is to be proved, in groups, and which groups say the same of values
//! of other names: those are instances of one lemma.

use super::cuts::Pairs;
use super::flow::{Flow, What};
use super::runs::Split;
use super::{Places, Task};
use rustc_hash::FxHashMap;
use scalify_ir::Shape;
use scalify_terms::Nature;

/// Something to be proved: that a distributed value is, on each device, the
/// block of a baseline value.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) base: u32,
    pub(super) dist: u32,
    pub(super) how: How,
}

/// Which block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// By the placement of this number.
    Block(u32),
    /// Output `.0`, by one of the layouts of list `.1`.
    Output(u32, u32),
}

/// Targets of one part of the distributed program.
pub(super) struct Group {
    pub(super) targets: Vec<Target>,
    /// Distributed nodes between targets and cuts, in the order of the key.
    pub(super) nodes: Vec<u32>,
    /// The group whose proof is this one's too; itself if it is the first.
    pub(super) like: usize,
}

/// First words of what a key says, each of a length that its words tell.
const BASE_LEAF: u32 = u32::MAX;
const BASE_NODE: u32 = u32::MAX - 1;
const DIST_LEAF: u32 = u32::MAX - 2;
const DIST_NODE: u32 = u32::MAX - 3;
const BLOCK: u32 = u32::MAX - 4;
const OUTPUT: u32 = u32::MAX - 5;

/// Words of all keys per node of both programs, at most.
const MAX_WORDS: usize = 64;

struct Keys<'a, 'f, 'm> {
    task: &'a Task<'a, 'm>,
    bf: &'f Flow<'m>,
    df: &'f Flow<'m>,
    pairs: &'a Pairs,
    cut: &'a FxHashMap<u32, Nature>,
    places: &'a mut Places,
    shapes: FxHashMap<Shape, u32>,
    ranges: FxHashMap<(i64, i64), u32>,
}

/// Groups the targets by part; `None` if the parts hang together too much.
pub(super) fn group(
    task: &Task<'_, '_>,
    bf: &Flow<'_>,
    df: &Flow<'_>,
    ds: &Split,
    pairs: &Pairs,
    cut: &FxHashMap<u32, Nature>,
    outputs: &[Target],
    places: &mut Places,
) -> Option<Vec<Group>> {
    let mut lists: Vec<Vec<Target>> = vec![Vec::new(); ds.parts.len() + 1];
    for &n in &ds.order {
        if let Some(p) = pairs.get(&n) {
            let t = Target { base: p.base, dist: n, how: How::Block(p.place) };
            lists[ds.part[n as usize] as usize].push(t);
        }
    }
    for t in outputs {
        let k = (ds.part[t.dist as usize] as usize).min(ds.parts.len());
        lists[k].push(t.clone());
    }
    let mut keys = Keys {
        task,
        bf,
        df,
        pairs,
        cut,
        places,
        shapes: FxHashMap::default(),
        ranges: FxHashMap::default(),
    };
    let mut left = MAX_WORDS * (bf.nodes.len() + df.nodes.len());
    let mut first: FxHashMap<Vec<u32>, usize> = FxHashMap::default();
    let mut out: Vec<Group> = Vec::new();
    for targets in lists.into_iter().filter(|l| !l.is_empty()) {
        let (key, nodes) = keys.of(&targets, left)?;
        left = left.checked_sub(key.len())?;
        let like = *first.entry(key).or_insert(out.len());
        out.push(Group { targets, nodes, like });
    }
    Some(out)
}

/// Numbers of one group's values.
#[derive(Default)]
struct Numbers {
    computed: FxHashMap<u32, u32>,
    given: FxHashMap<u32, u32>,
}

impl Keys<'_, '_, '_> {
    /// The graph from targets to cuts and inputs on both sides, values
    /// numbered as they are met: equal words, equal claims.
    fn of(&mut self, targets: &[Target], most: usize) -> Option<(Vec<u32>, Vec<u32>)> {
        let mut words = Vec::new();
        let (mut b, mut d) = (Numbers::default(), Numbers::default());
        let mut order = Vec::new();
        for t in targets {
            let x = self.base(t.base, &mut b, &mut words);
            let y = self.dist(t.dist, &mut d, &mut b, &mut words, &mut order)?;
            match t.how {
                How::Block(p) => words.extend([BLOCK, x, y, p, self.nature(t.base)]),
                How::Output(_, list) => words.extend([OUTPUT, x, y, list]),
            }
            if words.len() > most {
                return None;
            }
        }
        Some((words, order))
    }

    /// What laws may ask of a given baseline value, as a number.
    fn nature(&self, n: u32) -> u32 {
        let x = self.cut.get(&n).copied().unwrap_or_default();
        u32::from(x.infinite) + 2 * u32::from(x.masked)
    }

    fn base_leaf(&mut self, n: u32, b: &mut Numbers, words: &mut Vec<u32>) -> u32 {
        if let Some(&k) = b.given.get(&n) {
            return k;
        }
        let k = b.given.len() as u32;
        b.given.insert(n, k);
        let next = self.shapes.len() as u32;
        let shape = *self.shapes.entry(self.bf.shape(n).clone()).or_insert(next);
        let range = match &self.bf.nodes[n as usize].what {
            What::Input { leaf, .. } => self.task.range(*leaf),
            What::Instr(_) => None,
        };
        let range = range.map_or(u32::MAX, |r| {
            let next = self.ranges.len() as u32;
            *self.ranges.entry(r).or_insert(next)
        });
        words.extend([BASE_LEAF, shape, range, self.nature(n)]);
        k
    }

    /// The number of a computed baseline value, twice that of a given one and
    /// one more of a computed one.
    fn base(&mut self, n: u32, b: &mut Numbers, words: &mut Vec<u32>) -> u32 {
        let f = self.bf;
        let leaf =
            |n: u32, cut: &FxHashMap<u32, Nature>| f.instr(n).is_none() || cut.contains_key(&n);
        if f.instr(n).is_none() {
            return 2 * self.base_leaf(n, b, words);
        }
        let mut todo = vec![n];
        while let Some(&x) = todo.last() {
            if b.computed.contains_key(&x) {
                todo.pop();
                continue;
            }
            let node = &f.nodes[x as usize];
            let missing =
                node.operands.iter().find(|&&o| !leaf(o, self.cut) && !b.computed.contains_key(&o));
            if let Some(&o) = missing {
                todo.push(o);
                continue;
            }
            todo.pop();
            let mut own = vec![BASE_NODE, node.kind, node.operands.len() as u32];
            for &o in &node.operands {
                let k = if leaf(o, self.cut) {
                    2 * self.base_leaf(o, b, words)
                } else {
                    2 * b.computed[&o] + 1
                };
                own.push(k);
            }
            words.extend(own);
            b.computed.insert(x, b.computed.len() as u32);
        }
        2 * b.computed[&n] + 1
    }

    fn dist_leaf(
        &mut self,
        n: u32,
        d: &mut Numbers,
        b: &mut Numbers,
        words: &mut Vec<u32>,
    ) -> Option<u32> {
        if let Some(&k) = d.given.get(&n) {
            return Some(k);
        }
        let k = d.given.len() as u32;
        d.given.insert(n, k);
        let next = self.shapes.len() as u32;
        let shape = *self.shapes.entry(self.df.shape(n).clone()).or_insert(next);
        let (base, place) = match self.pairs.get(&n) {
            Some(p) => (p.base, p.place),
            None => self.task.input(self.df, n, self.places)?,
        };
        let base = self.base_leaf(base, b, words);
        words.extend([DIST_LEAF, shape, base, place]);
        Some(k)
    }

    fn dist(
        &mut self,
        n: u32,
        d: &mut Numbers,
        b: &mut Numbers,
        words: &mut Vec<u32>,
        order: &mut Vec<u32>,
    ) -> Option<u32> {
        let f = self.df;
        let leaf = |n: u32, pairs: &Pairs| f.instr(n).is_none() || pairs.contains_key(&n);
        if f.instr(n).is_none() {
            return Some(2 * self.dist_leaf(n, d, b, words)?);
        }
        let mut todo = vec![n];
        while let Some(&x) = todo.last() {
            if d.computed.contains_key(&x) {
                todo.pop();
                continue;
            }
            let node = &f.nodes[x as usize];
            let missing = node
                .operands
                .iter()
                .find(|&&o| !leaf(o, self.pairs) && !d.computed.contains_key(&o));
            if let Some(&o) = missing {
                todo.push(o);
                continue;
            }
            todo.pop();
            let mut own = vec![DIST_NODE, node.kind, node.operands.len() as u32];
            for &o in &node.operands {
                let k = if leaf(o, self.pairs) {
                    2 * self.dist_leaf(o, d, b, words)?
                } else {
                    2 * d.computed[&o] + 1
                };
                own.push(k);
            }
            words.extend(own);
            d.computed.insert(x, d.computed.len() as u32);
            order.push(x);
        }
        Some(2 * d.computed[&n] + 1)
    }
}

//! A topological order of a computation that keeps scopes together, so that
//! groups of consecutive instructions never form a cycle.

use scalify_ir::{CompId, Module};
use std::collections::BTreeSet;

/// Deepest scope that is told apart.
const MAX_DEPTH: usize = 8;

/// Instructions of a computation in drawing order.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    /// Instruction ids, operands first, without folded ones.
    pub nodes: Vec<u32>,
    /// Scope of each, as a path from the outermost; empty if there is none.
    pub scopes: Vec<u32>,
    /// Paths: (parent, component); entry 0 is the empty path.
    pub paths: Vec<(u32, String)>,
    /// Depth of each path.
    pub depth: Vec<u32>,
}

impl Ordered {
    /// The ancestors of a path from depth 1 down to itself.
    pub fn chain(&self, mut path: u32) -> Vec<u32> {
        let mut out = Vec::new();
        while path != 0 {
            out.push(path);
            path = self.paths.get(path as usize).map_or(0, |p| p.0);
        }
        out.reverse();
        out
    }
}

/// Orders a computation by `op_name` scopes if most of it has any.
pub fn order(m: &Module, comp: CompId, folded: &[bool]) -> Ordered {
    let Some(c) = m.comps.get(comp.0 as usize) else { return Ordered::default() };
    let nodes: Vec<u32> =
        c.instrs.iter().map(|i| i.0).filter(|&i| folded.get(i as usize) == Some(&false)).collect();
    let plain = |nodes: Vec<u32>| Ordered {
        scopes: vec![0; nodes.len()],
        nodes,
        paths: vec![(0, String::new())],
        depth: vec![0],
    };
    if nodes.len() < 8 {
        return plain(nodes);
    }
    let mut split: Vec<Vec<&str>> = Vec::with_capacity(nodes.len());
    let mut named = 0;
    for &n in &nodes {
        let mut parts = m.op_name(scalify_ir::InstrId(n)).map(components).unwrap_or_default();
        parts.pop();
        named += usize::from(!parts.is_empty());
        split.push(parts);
    }
    if named * 2 < nodes.len() {
        return plain(nodes);
    }
    let common = split.iter().filter(|p| !p.is_empty()).fold(None::<usize>, |a, p| {
        let first = split.iter().find(|p| !p.is_empty()).map_or(&[][..], |p| p);
        let same = p.iter().zip(first).take_while(|(x, y)| x == y).count();
        Some(a.map_or(same, |a| a.min(same)))
    });
    let common = common.unwrap_or(0);
    // Interned paths.
    let mut paths = vec![(0u32, String::new())];
    let mut depth = vec![0u32];
    let mut ids = rustc_hash::FxHashMap::<(u32, &str), u32>::default();
    let mut scope_of = Vec::with_capacity(nodes.len());
    for p in &split {
        let mut at = 0;
        for part in p.iter().skip(common).take(MAX_DEPTH) {
            at = *ids.entry((at, part)).or_insert_with(|| {
                paths.push((at, part.chars().take(120).collect()));
                depth.push(depth[at as usize] + 1);
                paths.len() as u32 - 1
            });
        }
        scope_of.push(at);
    }
    if paths.len() < 3 {
        return plain(nodes);
    }
    // List scheduling: the next ready instruction of the same scope, else of
    // the nearest enclosing one.
    let mut at = vec![u32::MAX; m.instrs.len()];
    for (k, &n) in nodes.iter().enumerate() {
        at[n as usize] = k as u32;
    }
    let mut users: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0u32; nodes.len()];
    for (k, &n) in nodes.iter().enumerate() {
        for o in &m.instrs[n as usize].operands {
            let p = at.get(o.0 as usize).copied().unwrap_or(u32::MAX);
            if p != u32::MAX {
                users[p as usize].push(k as u32);
                missing[k] += 1;
            }
        }
    }
    let mut ready: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); paths.len()];
    let each = |mut s: u32, f: &mut dyn FnMut(u32)| loop {
        f(s);
        if s == 0 {
            break;
        }
        s = paths[s as usize].0;
    };
    for k in 0..nodes.len() {
        if missing[k] == 0 {
            each(scope_of[k], &mut |s| {
                ready[s as usize].insert(k as u32);
            });
        }
    }
    let (mut out, mut scopes) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
    let mut here = 0u32;
    loop {
        while here != 0 && ready[here as usize].is_empty() {
            here = paths[here as usize].0;
        }
        let Some(&k) = ready[here as usize].first() else { break };
        each(scope_of[k as usize], &mut |s| {
            ready[s as usize].remove(&k);
        });
        here = scope_of[k as usize];
        out.push(nodes[k as usize]);
        scopes.push(here);
        for &u in &users[k as usize] {
            missing[u as usize] -= 1;
            if missing[u as usize] == 0 {
                each(scope_of[u as usize], &mut |s| {
                    ready[s as usize].insert(u);
                });
            }
        }
    }
    if out.len() != nodes.len() {
        return plain(nodes);
    }
    Ordered { nodes: out, scopes, paths, depth }
}

/// Splits at slashes outside parentheses; an outer `;`-joined name counts
/// once.
fn components(name: &str) -> Vec<&str> {
    let name = name.split(';').next().unwrap_or(name);
    let (mut out, mut from, mut level) = (Vec::new(), 0, 0i32);
    for (i, b) in name.bytes().enumerate() {
        match b {
            b'(' | b'[' => level += 1,
            b')' | b']' => level -= 1,
            b'/' if level <= 0 => {
                if i > from {
                    out.push(&name[from..i]);
                }
                from = i + 1;
            }
            _ => {}
        }
    }
    if from < name.len() {
        out.push(&name[from..]);
    }
    out
}

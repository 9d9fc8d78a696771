//! Layered layout of one group in a fixed number of passes.
//!
//! Layers hold at most [`MAX_WIDTH`] boxes. An edge over a few layers gets a
//! place in each of them; a longer one runs in a lane beside the boxes, one
//! lane per source, so that no edge costs more than a constant.

use scalify_ir::{InstrId, Module};

/// Boxes of a layer.
pub const MAX_WIDTH: usize = 14;
/// Longest edge, in layers, that is routed between boxes.
pub const MAX_SPAN: u32 = 4;
/// Width of a collapsed group.
pub const GROUP_WIDTH: f32 = 190.0;
/// Space between neighbours of a layer.
const GAP: f32 = 18.0;
/// Width of an edge that passes a layer.
const PASS: f32 = 8.0;
/// Sweeps over the layers for order and for coordinates.
const SWEEPS: usize = 4;

/// How an edge runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// Through these places, from top to bottom.
    Through(Vec<u32>),
    /// In this lane right of the boxes.
    Lane(u32),
}

/// Places of a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Layout {
    /// First place of each layer, then the number of places.
    pub layers: Vec<u32>,
    /// Item at each place; -1: an edge passes.
    pub items: Vec<i32>,
    /// Centre of each place.
    pub x: Vec<f32>,
    /// Per edge: the places of its ends and how it runs.
    pub routes: Vec<(u32, u32, Route)>,
    /// Number of lanes.
    pub lanes: u32,
}

/// Width of an instruction's box.
pub fn node_width(m: &Module, n: u32) -> f32 {
    let Some(i) = m.instrs.get(n as usize) else { return 90.0 };
    let dims = m.shape(InstrId(n)).dims();
    let digits: usize = dims.iter().map(|d| if *d > 999 { 5 } else { 3 }).sum();
    let chars = i.opcode.name().len().max(digits + 5) as f32;
    (chars * 7.0 + 20.0).clamp(84.0, 210.0)
}

/// Lays out items `0..widths.len()`; edges (from, to, values) point to later
/// items.
pub fn lay_out(widths: &[f32], edges: &[(u32, u32, u32)]) -> Layout {
    let n = widths.len();
    let layer = layers(n, edges);
    let depth = layer.iter().max().map_or(0, |d| d + 1) as usize;
    // Places: the items, then one per layer that a short edge passes.
    let mut place_layer: Vec<u32> = layer.clone();
    let mut via: Vec<Vec<u32>> = Vec::with_capacity(edges.len());
    let mut links: Vec<(u32, u32)> = Vec::with_capacity(edges.len());
    for &(a, b, _) in edges {
        let (la, lb) = (layer[a as usize], layer[b as usize]);
        let mut passed = Vec::new();
        if lb - la <= MAX_SPAN {
            let mut at = a;
            for l in la + 1..lb {
                let p = place_layer.len() as u32;
                place_layer.push(l);
                passed.push(p);
                links.push((at, p));
                at = p;
            }
            links.push((at, b));
        }
        via.push(passed);
    }
    let total = place_layer.len();
    let width = |p: u32| widths.get(p as usize).copied().unwrap_or(PASS);
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); depth];
    for (p, &l) in place_layer.iter().enumerate() {
        rows[l as usize].push(p as u32);
    }
    let (up, down) = (adjacent(total, &links, true), adjacent(total, &links, false));
    let mut rank = vec![0f32; total];
    let number = |row: &[u32], rank: &mut [f32]| {
        let mid = (row.len() as f32 - 1.0) / 2.0;
        for (k, &p) in row.iter().enumerate() {
            rank[p as usize] = k as f32 - mid;
        }
    };
    for row in &rows {
        number(row, &mut rank);
    }
    for sweep in 0..SWEEPS {
        let towards = if sweep % 2 == 0 { &up } else { &down };
        let mut step = |row: &mut Vec<u32>| {
            let mut keyed: Vec<(f32, u32)> = row
                .iter()
                .map(|&p| (mean(towards.of(p), &rank).unwrap_or(rank[p as usize]), p))
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            row.clear();
            row.extend(keyed.iter().map(|k| k.1));
            number(row, &mut rank);
        };
        if sweep % 2 == 0 {
            rows.iter_mut().for_each(&mut step);
        } else {
            rows.iter_mut().rev().for_each(&mut step);
        }
    }
    // Coordinates.
    let mut x = vec![0f32; total];
    for row in &rows {
        let all: f32 = row.iter().map(|&p| width(p) + GAP).sum();
        let mut at = -all / 2.0;
        for &p in row {
            x[p as usize] = at + (width(p) + GAP) / 2.0;
            at += width(p) + GAP;
        }
    }
    for sweep in 0..SWEEPS {
        let mut step = |row: &Vec<u32>| {
            let want: Vec<f32> = row
                .iter()
                .map(|&p| {
                    let (a, b) = (mean(up.of(p), &x), mean(down.of(p), &x));
                    match (a, b) {
                        (Some(a), Some(b)) if sweep + 1 == SWEEPS => (a + b) / 2.0,
                        (Some(a), _) if sweep % 2 == 0 => a,
                        (_, Some(b)) if sweep % 2 == 1 => b,
                        (a, b) => a.or(b).unwrap_or(x[p as usize]),
                    }
                })
                .collect();
            let sizes: Vec<f32> = row.iter().map(|&p| width(p)).collect();
            for (&p, v) in row.iter().zip(spread(&want, &sizes)) {
                x[p as usize] = v;
            }
        };
        if sweep % 2 == 0 {
            rows.iter().for_each(&mut step);
        } else {
            rows.iter().rev().for_each(&mut step);
        }
    }
    // Places in reading order.
    let mut new = vec![0u32; total];
    let mut out = Layout { layers: vec![0], ..Layout::default() };
    for row in &rows {
        for &p in row {
            new[p as usize] = out.items.len() as u32;
            out.items.push(if (p as usize) < n { p as i32 } else { -1 });
            out.x.push(x[p as usize]);
        }
        out.layers.push(out.items.len() as u32);
    }
    let (lane, lanes) = lanes(n, edges, &layer);
    out.lanes = lanes;
    for (k, &(a, b, _)) in edges.iter().enumerate() {
        let long = layer[b as usize] - layer[a as usize] > MAX_SPAN;
        let route = if long {
            Route::Lane(lane[a as usize])
        } else {
            Route::Through(via[k].iter().map(|&p| new[p as usize]).collect())
        };
        out.routes.push((new[a as usize], new[b as usize], route));
    }
    out
}

/// Longest-path layers of bounded width; items that read nothing stand just
/// above their first user.
fn layers(n: usize, edges: &[(u32, u32, u32)]) -> Vec<u32> {
    let mut first_in = vec![0u32; n + 1];
    for &(_, b, _) in edges {
        first_in[b as usize + 1] += 1;
    }
    for k in 0..n {
        first_in[k + 1] += first_in[k];
    }
    let mut from = vec![0u32; edges.len()];
    let mut fill = first_in.clone();
    for &(a, b, _) in edges {
        let at = &mut fill[b as usize];
        from[*at as usize] = a;
        *at += 1;
    }
    let mut layer = vec![0u32; n];
    let mut count: Vec<u32> = Vec::new();
    // Next layer with room, with path halving.
    let mut next: Vec<u32> = Vec::new();
    fn find(next: &mut Vec<u32>, mut l: u32) -> u32 {
        loop {
            while next.len() <= l as usize + 1 {
                next.push(next.len() as u32);
            }
            let up = next[l as usize];
            if up == l {
                return l;
            }
            if let Some(&further) = next.get(up as usize) {
                next[l as usize] = further;
            }
            l = up;
        }
    }
    for k in 0..n {
        let ins = &from[first_in[k] as usize..first_in[k + 1] as usize];
        let least = ins.iter().map(|&a| layer[a as usize] + 1).max().unwrap_or(0);
        let l = find(&mut next, least);
        layer[k] = l;
        if count.len() <= l as usize {
            count.resize(l as usize + 1, 0);
        }
        count[l as usize] += 1;
        if count[l as usize] as usize >= MAX_WIDTH {
            next[l as usize] = l + 1;
        }
    }
    // Items without operands come down to their users where there is room.
    let mut user = vec![u32::MAX; n];
    for &(a, b, _) in edges {
        user[a as usize] = user[a as usize].min(layer[b as usize]);
    }
    for k in 0..n {
        let source = first_in[k] == first_in[k + 1];
        let to = user[k];
        if source
            && to != u32::MAX
            && to > layer[k] + 1
            && (count[to as usize - 1] as usize) < MAX_WIDTH
        {
            count[layer[k] as usize] -= 1;
            layer[k] = to - 1;
            count[to as usize - 1] += 1;
        }
    }
    // No empty layers.
    let mut compact = vec![0u32; count.len() + 1];
    for l in 0..count.len() {
        compact[l + 1] = compact[l] + u32::from(count[l] > 0);
    }
    layer.iter().map(|&l| compact[l as usize]).collect()
}

/// Lane of each source of long edges: intervals of layers that overlap get
/// different lanes.
fn lanes(n: usize, edges: &[(u32, u32, u32)], layer: &[u32]) -> (Vec<u32>, u32) {
    let mut last = vec![0u32; n];
    for &(a, b, _) in edges {
        let (la, lb) = (layer[a as usize], layer[b as usize]);
        if lb - la > MAX_SPAN {
            last[a as usize] = last[a as usize].max(lb);
        }
    }
    let mut sources: Vec<u32> = (0..n as u32).filter(|&k| last[k as usize] > 0).collect();
    sources.sort_unstable_by_key(|&k| (layer[k as usize], last[k as usize]));
    let mut busy = std::collections::BinaryHeap::new();
    let mut free = std::collections::BinaryHeap::new();
    let mut lane = vec![0u32; n];
    let mut lanes = 0;
    for k in sources {
        use std::cmp::Reverse;
        while let Some(&Reverse((end, l))) = busy.peek() {
            if end >= layer[k as usize] {
                break;
            }
            busy.pop();
            free.push(Reverse(l));
        }
        let l = free.pop().map_or_else(
            || {
                lanes += 1;
                lanes - 1
            },
            |Reverse(l)| l,
        );
        lane[k as usize] = l;
        busy.push(Reverse((last[k as usize], l)));
    }
    (lane, lanes)
}

/// Neighbours in one direction, as offsets into one array.
struct Adjacent {
    first: Vec<u32>,
    to: Vec<u32>,
}

impl Adjacent {
    fn of(&self, p: u32) -> &[u32] {
        let p = p as usize;
        &self.to[self.first[p] as usize..self.first[p + 1] as usize]
    }
}

fn adjacent(n: usize, links: &[(u32, u32)], up: bool) -> Adjacent {
    let mut first = vec![0u32; n + 1];
    let ends = |l: &(u32, u32)| if up { (l.1, l.0) } else { *l };
    for l in links {
        first[ends(l).0 as usize + 1] += 1;
    }
    for k in 0..n {
        first[k + 1] += first[k];
    }
    let mut at = first.clone();
    let mut to = vec![0u32; links.len()];
    for l in links {
        let (a, b) = ends(l);
        to[at[a as usize] as usize] = b;
        at[a as usize] += 1;
    }
    Adjacent { first, to }
}

fn mean(of: &[u32], v: &[f32]) -> Option<f32> {
    let sum: f32 = of.iter().map(|&p| v[p as usize]).sum();
    (!of.is_empty()).then(|| sum / of.len() as f32)
}

/// Centres nearest to `want` (least squares) at which boxes of these widths
/// do not overlap, in order.
pub fn spread(want: &[f32], widths: &[f32]) -> Vec<f32> {
    let mut offset = Vec::with_capacity(want.len());
    let mut at = 0f32;
    for (k, w) in widths.iter().enumerate() {
        if k > 0 {
            at += (widths[k - 1] + w) / 2.0 + GAP;
        }
        offset.push(at);
    }
    // Pool adjacent violators: (sum, count) of each block.
    let mut blocks: Vec<(f32, u32)> = Vec::with_capacity(want.len());
    for (w, o) in want.iter().zip(&offset) {
        let mut b = (w - o, 1);
        while let Some(&(s, c)) = blocks.last() {
            if s / (c as f32) <= b.0 / (b.1 as f32) {
                break;
            }
            b = (b.0 + s, b.1 + c);
            blocks.pop();
        }
        blocks.push(b);
    }
    let mut out = Vec::with_capacity(want.len());
    for (s, c) in blocks {
        for _ in 0..c {
            out.push(s / c as f32 + offset[out.len()]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_layer_do_not_overlap() {
        let w = [100.0, 40.0, 80.0, 60.0];
        let x = spread(&[0.0, 0.0, 500.0, -500.0], &w);
        for k in 1..4 {
            assert!(x[k] - x[k - 1] >= (w[k] + w[k - 1]) / 2.0 + GAP - 1e-3, "{x:?}");
        }
        assert_eq!(spread(&[0.0, 300.0], &[10.0, 10.0]), [0.0, 300.0]);
    }

    #[test]
    fn edges_point_down_and_long_ones_take_lanes() {
        // A chain of 10 with a residual edge 0 -> 9 and one 1 -> 8.
        let mut edges: Vec<(u32, u32, u32)> = (0..9).map(|k| (k, k + 1, 1)).collect();
        edges.extend([(0, 9, 1), (1, 8, 1)]);
        edges.sort_unstable();
        let l = lay_out(&[90.0; 10], &edges);
        assert_eq!(l.layers.len(), 11);
        let row = |p: u32| l.layers.iter().filter(|&&s| s <= p).count();
        for (a, b, _) in &l.routes {
            assert!(row(*a) < row(*b));
        }
        let lanes: Vec<&Route> =
            l.routes.iter().map(|r| &r.2).filter(|r| matches!(r, Route::Lane(_))).collect();
        assert_eq!(lanes.len(), 2);
        assert_ne!(lanes[0], lanes[1]);
    }

    #[test]
    fn layers_are_narrow() {
        let edges: Vec<(u32, u32, u32)> = (0..500).map(|k| (k, 500, 1)).collect();
        let l = lay_out(&[90.0; 501], &edges);
        for w in l.layers.windows(2) {
            let boxes = (w[0]..w[1]).filter(|&p| l.items[p as usize] >= 0).count();
            assert!(boxes <= MAX_WIDTH);
        }
        assert_eq!(l.items.iter().filter(|i| **i >= 0).count(), 501);
    }
}

//! Edits made at several places at once: a loop that was unrolled, or a helper
//! that is called often, has its fault many times.

use crate::candidates::{Candidate, Context, Edit};
use scalify_ir::{Attrs, InstrId, Opcode};

impl Context<'_> {
    /// Users of a value, each with how many users
    /// of the same opcode and source line come before.
    pub(crate) fn later_uses(&self, at: InstrId) -> Vec<(InstrId, usize)> {
        let line = |u: InstrId| self.m.frames(u).first().map(|f| (f.file.to_owned(), f.line));
        let mut seen: Vec<((Opcode, Option<(String, u32)>), usize)> = Vec::new();
        let mut out = Vec::new();
        for &u in self.users(at) {
            let key = (self.m.instr(u).opcode, line(u));
            let k = seen.iter().position(|s| s.0 == key).unwrap_or_else(|| {
                seen.push((key, 0));
                seen.len() - 1
            });
            out.push((u, seen[k].1));
            seen[k].1 += 1;
        }
        out
    }

    /// Sums of one source line, as of an unrolled loop, whose operand lacks a
    /// factor each: the exponentials of another line, one after the other.
    pub(crate) fn rescales(
        &self,
        list: &[InstrId],
        dist: &[f64],
        reach: f64,
        out: &mut Vec<Candidate>,
    ) {
        let m = self.m;
        let mut lines: std::collections::BTreeMap<(bool, u32, Vec<i64>), Vec<InstrId>> =
            Default::default();
        for &x in list {
            let exp = m.instr(x).opcode == Opcode::Exponential;
            let line = m.frames(x).first().map_or(0, |f| f.line);
            if let (true, Some(a)) = (exp || m.instr(x).opcode == Opcode::Add, m.array(x)) {
                if line > 0 && a.dtype.is_float() {
                    lines.entry((exp, line, a.dims.to_vec())).or_default().push(x);
                }
            }
        }
        let fits = |l: &[InstrId]| (2..=64).contains(&l.len());
        let sums = lines.iter().filter(|(k, l)| !k.0 && fits(l));
        for ((_, _, to), sites) in sums {
            let d = sites.iter().map(|x| dist[x.0 as usize]).fold(f64::INFINITY, f64::min);
            if d > reach || !d.is_finite() {
                continue;
            }
            let factors = lines.iter().filter(|(k, l)| k.0 && l.len() >= sites.len() && fits(l));
            for ((_, _, from), exps) in factors.take(4) {
                for dims in placings(from, to, 2) {
                    for operand in 0..2 {
                        // The first exponential may belong to the first term,
                        // which there is nothing before to add to.
                        let last = &exps[exps.len() - sites.len()..];
                        let edit = |y: InstrId| {
                            let dims = dims.clone();
                            Edit::TimesOperand { operand, with: y, dims }
                        };
                        let mut all = sites.iter().zip(last).map(|(&x, &y)| (x, edit(y)));
                        let Some((at, first)) = all.next() else { continue };
                        let also = all.collect();
                        out.push(Candidate { at, edit: first, cost: 1.2 + d.min(1.5), also });
                    }
                }
            }
        }
    }

    /// Values of one source line, as of the steps of an unrolled ring: each
    /// is to travel one step more than the one before, or they are to be taken
    /// in another order.
    pub(crate) fn turns(
        &self,
        list: &[InstrId],
        dist: &[f64],
        reach: f64,
        out: &mut Vec<Candidate>,
    ) {
        let m = self.m;
        let mut likes: Vec<(InstrId, &[(i64, i64)])> = Vec::new();
        for &x in list.iter().filter(|&&x| m.instr(x).opcode == Opcode::CollectivePermute) {
            if let Attrs::Collective(a) = &m.instr(x).attrs {
                if likes.len() < 2 && likes.iter().all(|l| l.1 != &a.pairs[..]) {
                    likes.push((x, &a.pairs));
                }
            }
        }
        if likes.is_empty() {
            return;
        }
        let mut lines: std::collections::BTreeMap<(u32, Opcode, Vec<i64>), Vec<InstrId>> =
            Default::default();
        for &x in list {
            let i = m.instr(x);
            let line = m.frames(x).first().map_or(0, |f| f.line);
            let made = !matches!(i.opcode, Opcode::Constant | Opcode::Iota | Opcode::Compare);
            if let (true, true, Some(a)) = (line > 0, made, m.array(x)) {
                lines.entry((line, i.opcode, a.dims.to_vec())).or_default().push(x);
            }
        }
        for sites in lines.values().filter(|l| (2..=16).contains(&l.len())) {
            let d = sites.iter().map(|x| dist[x.0 as usize]).fold(f64::INFINITY, f64::min);
            if d > reach || !d.is_finite() {
                continue;
            }
            for reverse in [true, false] {
                let edit = Edit::Reorder { of: sites.clone(), reverse };
                // Of an index, where it is computed first.
                let int = m.dtype(sites[0]).is_some_and(|d| d.is_int());
                let cost = if int { 1.6 } else { 1.9 + d.min(2.5) };
                out.push(Candidate { at: sites[0], edit, cost, also: Vec::new() });
            }
            for &(like, _) in &likes {
                let edit = |times: usize| Edit::Permute { like, times };
                let mut all = sites.iter().enumerate().skip(1).map(|(k, &x)| (x, edit(k)));
                let Some((at, first)) = all.next() else { continue };
                let also = all.collect();
                out.push(Candidate { at, edit: first, cost: 1.6 + d.min(1.5), also });
            }
        }
    }

    /// Joins equal edits at instructions of one source line, and at all
    /// collectives of one kind: a loop that was unrolled, or a helper that is
    /// called often, has its fault many times.
    pub(crate) fn join(&self, out: &mut Vec<Candidate>) {
        type Key = (u32, Opcode, String);
        let mut groups: rustc_hash::FxHashMap<Key, Vec<usize>> = Default::default();
        let mut lines: rustc_hash::FxHashMap<InstrId, u32> = Default::default();
        for (k, c) in out.iter().enumerate() {
            let i = self.m.instr(c.at);
            let line = *lines
                .entry(c.at)
                .or_insert_with(|| self.m.frames(c.at).first().map_or(0, |f| f.line));
            let what = match &c.edit {
                Edit::Operand { .. }
                | Edit::Add { .. }
                | Edit::Exchange { .. }
                | Edit::Times { .. }
                | Edit::AddSpread { .. }
                | Edit::Graft { .. } => continue,
                Edit::Permute { .. } => "permute".to_owned(),
                Edit::Rotate { .. } => "rotate".to_owned(),
                Edit::TimesOperand { operand, dims, .. } => format!("times {operand} {dims:?}"),
                Edit::AllReduce { drop: Some(_), .. } => continue,
                Edit::Redo { dim, .. } => format!("redo {dim}"),
                Edit::Gather { mask, dim, .. } => format!("gather {mask} {dim}"),
                e => format!("{e:?}"),
            };
            if i.opcode.is_collective() {
                groups.entry((u32::MAX, i.opcode, what.clone())).or_default().push(k);
                if self.is_reversal(c) {
                    // Neighbours exchanged: each sends the other way round.
                    let what = "reversed".to_owned();
                    groups.entry((u32::MAX, i.opcode, what)).or_default().push(k);
                }
            }
            if line > 0 {
                groups.entry((line, i.opcode, what)).or_default().push(k);
            }
        }
        let mut keys: Vec<(Key, Vec<usize>)> = groups.into_iter().collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for (_, list) in keys {
            let mut sites: Vec<usize> = Vec::new();
            let mut taken: rustc_hash::FxHashSet<InstrId> = Default::default();
            for k in list {
                if taken.insert(out[k].at) {
                    sites.push(k);
                }
            }
            if !(2..=64).contains(&sites.len()) {
                continue;
            }
            if self.m.instr(out[sites[0]].at).opcode.is_collective() {
                if seen.contains(&sites) {
                    continue;
                }
                seen.push(sites.clone());
            }
            sites.sort_by(|&a, &b| out[a].cost.total_cmp(&out[b].cost));
            let mut c = out[sites[0]].clone();
            c.cost += 0.3;
            c.also = sites[1..].iter().map(|&j| (out[j].at, out[j].edit.clone())).collect();
            out.push(c);
        }
    }

    /// Does the edit send what a permute sends back to where it comes from?
    pub(crate) fn is_reversal(&self, c: &Candidate) -> bool {
        let (Edit::Pairs { pairs }, Attrs::Collective(a)) = (&c.edit, &self.m.instr(c.at).attrs)
        else {
            return false;
        };
        pairs.len() == a.pairs.len() && pairs.iter().zip(&a.pairs).all(|(x, y)| *x == (y.1, y.0))
    }
}

/// Dimensions of `to`, at most `most` ways, to which those of `from` may go:
/// in order where that is possible.
pub(crate) fn placings(from: &[i64], to: &[i64], most: usize) -> Vec<Vec<i64>> {
    fn go(from: &[i64], to: &[i64], cur: &mut Vec<i64>, out: &mut Vec<Vec<i64>>, most: usize) {
        let Some(s) = from.get(cur.len()) else {
            out.push(cur.clone());
            return;
        };
        let start = cur.last().map_or(0, |&l| l + 1);
        for k in (start..to.len() as i64).chain(0..start) {
            if out.len() < most && to[k as usize] == *s && !cur.contains(&k) {
                cur.push(k);
                go(from, to, cur, out, most);
                cur.pop();
            }
        }
    }
    let mut out = Vec::new();
    if from.len() <= to.len() && to.len() <= 6 {
        go(from, to, &mut Vec::new(), &mut out, most);
    }
    out
}

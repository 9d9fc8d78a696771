//! Bound axes that index forms read through lookup tables.
//!
//! A node can bind an axis only where forms read it linearly. An axis that is
//! read through tables is re-indexed by the tables' values if those are a
//! one-to-one numbering of it, else small axes are enumerated.

use crate::lin::{AtomKind, Ax, FIRST_ATOM, LinId, Lins, Subst};
use crate::store::{Arg, Store};
use smallvec::SmallVec;

/// Largest axis that is enumerated.
const MAX_ENUM: i64 = 32;

/// What to do about the tables over one bound axis.
pub(crate) enum Untabled {
    /// Nothing: no table reads a bound axis.
    Fine,
    /// Replace atoms as given, and bind these axes instead.
    Reindex(Subst, SmallVec<[Ax; 4]>),
    /// Take the reduction of one value per entry (axis := constant), over
    /// the remaining axes.
    Enumerate(Ax, i64, SmallVec<[Ax; 4]>),
}

impl Store {
    /// Table atoms in `args` that mention atom `b`, and whether `b` is read
    /// directly too.
    fn tables_over(&self, args: &[Arg], b: Ax) -> (SmallVec<[Ax; 4]>, bool) {
        let mut tables: SmallVec<[Ax; 4]> = SmallVec::new();
        let mut direct = false;
        for a in args {
            for &l in &a.r.m {
                self.lins.for_terms(l, |_, t| {
                    if t == b {
                        direct = true;
                    } else if t >= FIRST_ATOM
                        && self.lins.mentions(Lins::plain(t), b)
                        && !tables.contains(&t)
                    {
                        tables.push(t);
                    }
                });
            }
        }
        (tables, direct)
    }

    /// True if a form reads one of the atoms through a table.
    pub(crate) fn reads_by_table(&self, args: &[Arg], bound: &[Ax]) -> bool {
        bound.iter().any(|&b| !self.tables_over(args, b).0.is_empty())
    }

    /// Finds a bound axis that is read through tables and what to do.
    /// `None`: nothing can be done.
    pub(crate) fn untable(&mut self, args: &[Arg], bound: &[Ax]) -> Option<Untabled> {
        for &b in bound {
            let (tables, direct) = self.tables_over(args, b);
            if tables.is_empty() {
                continue;
            }
            let n = self.lins.size(b);
            let rest: SmallVec<[Ax; 4]> = bound.iter().copied().filter(|&x| x != b).collect();
            if let Some((map, fresh)) = self.renumber(&tables, b, direct) {
                let mut bound = rest;
                bound.extend(fresh);
                return Some(Untabled::Reindex(map, bound));
            }
            if n <= MAX_ENUM {
                return Some(Untabled::Enumerate(b, n, rest));
            }
            return None;
        }
        Some(Untabled::Fine)
    }

    /// New axes for the values of `tables`, if those number `b` one to one.
    fn renumber(
        &mut self,
        tables: &[Ax],
        b: Ax,
        direct: bool,
    ) -> Option<(Subst, SmallVec<[Ax; 4]>)> {
        let n = self.lins.size(b);
        let mut size = 1i64;
        let mut columns: Vec<Vec<i64>> = Vec::new();
        for &t in tables {
            let AtomKind::Table { axes, .. } = &self.lins.atom(t).kind else { return None };
            if axes.as_slice() != [b] {
                return None;
            }
            size = size.checked_mul(self.lins.size(t))?;
            let mut col = Vec::with_capacity(n as usize);
            for k in 0..n {
                col.push(self.lins.eval(Lins::plain(t), &[b], &[k])?);
            }
            columns.push(col);
        }
        if size != n {
            return None;
        }
        // inverse[row-major of table values] = b
        let mut inverse = vec![-1i64; n as usize];
        for k in 0..n as usize {
            let mut at = 0;
            for (c, &t) in columns.iter().zip(tables) {
                at = at * self.lins.size(t) + c[k];
            }
            let slot = inverse.get_mut(at as usize)?;
            if *slot != -1 {
                return None;
            }
            *slot = k as i64;
        }
        let mut map = Subst::new();
        let mut fresh: SmallVec<[Ax; 4]> = SmallVec::new();
        let mut sizes: SmallVec<[i64; 4]> = SmallVec::new();
        for &t in tables {
            let s = self.lins.size(t);
            let u = self.lins.local(s);
            map.set(t, Lins::plain(u));
            fresh.push(u);
            sizes.push(s);
        }
        if direct {
            let l: LinId = self.lins.from_table(&fresh, &sizes, &inverse);
            let mut linear = true;
            self.lins.for_terms(l, |_, a| linear &= fresh.contains(&a));
            if !linear {
                return None;
            }
            map.set(b, l);
        }
        Some((map, fresh))
    }
}

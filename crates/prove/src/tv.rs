//! Tensor values: a term, and for each local dimension the atoms whose mixed
//! radix number is the dimension's index.

use scalify_terms::{Ax, Lin, LinId, Lins, Store, Subst, Val};
use smallvec::SmallVec;

/// Atoms of one dimension, major first; empty for size 1.
pub type Atoms = SmallVec<[Ax; 2]>;

/// A tensor-valued term.
#[derive(Clone, PartialEq, Debug)]
pub struct Tv {
    /// The term.
    pub val: Val,
    /// Atoms per dimension.
    pub dims: SmallVec<[Atoms; 4]>,
}

impl Tv {
    /// A value without dimensions.
    pub fn scalar(val: Val) -> Self {
        Tv { val, dims: SmallVec::new() }
    }

    /// All atoms of all dimensions in order.
    pub fn atoms(&self) -> SmallVec<[Ax; 8]> {
        self.dims.iter().flatten().copied().collect()
    }
}

/// Operations on tensor values; all exact data movement.
pub trait TvOps {
    /// Fresh atoms for a shape: one per dimension larger than 1.
    fn fresh_dims(&mut self, sizes: &[i64]) -> SmallVec<[Atoms; 4]>;
    /// The index of a dimension as a form over its atoms.
    fn dim_index(&mut self, atoms: &[Ax]) -> LinId;
    /// Size of a dimension.
    fn dim_size(&self, atoms: &[Ax]) -> i64;
    /// Splits atom `a` of `t` into a major part and a minor part of size `lo`.
    fn split_atom(&mut self, t: &mut Tv, a: Ax, lo: i64) -> Option<()>;
    /// Gives both values the same atoms, dimension by dimension.
    fn align(&mut self, a: &mut Tv, b: &mut Tv) -> Option<()>;
    /// Refines dimension `i` of `a` and `j` of `b` to the same atom sizes.
    fn refine(&mut self, a: &mut Tv, i: usize, b: &mut Tv, j: usize) -> Option<()>;
    /// Renames atoms of the dims (and the term).
    fn rename(&mut self, t: &mut Tv, map: &[(Ax, Ax)]) -> Option<()>;
    /// Fresh atoms throughout.
    fn freshen(&mut self, t: &Tv) -> Option<Tv>;
    /// Reads dimension `i` at `index` (in range): its atoms are replaced.
    /// The dimension keeps no atoms; the caller sets them.
    fn index_dim(&mut self, t: &mut Tv, i: usize, index: LinId) -> Option<()>;
    /// The elements `start..start + len` of dimension `k`.
    fn cut(&mut self, t: &mut Tv, k: usize, start: LinId, len: i64) -> Option<()>;
    /// Replacement of `atoms` by the digits of `index`.
    fn digits_of(&mut self, atoms: &[Ax], index: LinId, map: &mut Subst) -> Option<()>;
    /// Joins atoms of dimension `i` where the term only reads their joint index.
    fn fuse_dim(&mut self, t: &mut Tv, i: usize) -> Option<()>;
    /// [`TvOps::fuse_dim`] of every dimension.
    fn fuse_dims(&mut self, t: &mut Tv) -> Option<()>;
    /// Adds the renaming of `from` to `to`; `None` unless they are as many
    /// atoms of the same sizes.
    fn pair_atoms(&self, from: &[Ax], to: &[Ax], map: &mut SmallVec<[(Ax, Ax); 8]>) -> Option<()>;
    /// Row-major reshape.
    fn reshape(&mut self, t: &Tv, sizes: &[i64]) -> Option<Tv>;
}

impl TvOps for Store {
    fn fresh_dims(&mut self, sizes: &[i64]) -> SmallVec<[Atoms; 4]> {
        sizes
            .iter()
            .map(|&n| {
                let mut a = Atoms::new();
                if n != 1 {
                    a.push(self.lins.local(n));
                }
                a
            })
            .collect()
    }

    fn dim_index(&mut self, atoms: &[Ax]) -> LinId {
        if atoms.len() == 1 {
            return Lins::plain(atoms[0]);
        }
        let mut l = Lin::constant(0);
        let mut stride = 1;
        for &a in atoms.iter().rev() {
            l.push(stride, a);
            stride *= self.lins.size(a);
        }
        self.lins.make(l)
    }

    fn dim_size(&self, atoms: &[Ax]) -> i64 {
        atoms.iter().map(|&a| self.lins.size(a)).product()
    }

    fn split_atom(&mut self, t: &mut Tv, a: Ax, lo: i64) -> Option<()> {
        let n = self.lins.size(a);
        if lo <= 1 || lo >= n || n % lo != 0 {
            return None;
        }
        let (h, l) = (self.lins.local(n / lo), self.lins.local(lo));
        if self.ref_mentions(&t.val.r, a) {
            let form = self.lins.combine(&[(lo, Lins::plain(h)), (1, Lins::plain(l))])?;
            let mut m = Subst::new();
            m.set(a, form);
            t.val = self.subst(&t.val, &m)?;
        }
        for d in t.dims.iter_mut() {
            if let Some(p) = d.iter().position(|&x| x == a) {
                d[p] = h;
                d.insert(p + 1, l);
            }
        }
        Some(())
    }

    fn refine(&mut self, a: &mut Tv, i: usize, b: &mut Tv, j: usize) -> Option<()> {
        if self.dim_size(&a.dims[i]) != self.dim_size(&b.dims[j]) {
            return None;
        }
        // From the minor end.
        let (mut p, mut q) = (a.dims[i].len(), b.dims[j].len());
        while p > 0 && q > 0 {
            let (x, y) = (a.dims[i][p - 1], b.dims[j][q - 1]);
            let (m, n) = (self.lins.size(x), self.lins.size(y));
            if m == n {
                q -= 1;
            } else if m % n == 0 {
                self.split_atom(a, x, n)?;
                q -= 1;
            } else if n % m == 0 {
                self.split_atom(b, y, m)?;
            } else {
                // No common radix: one joint atom on both sides.
                self.join_dim(a, i)?;
                self.join_dim(b, j)?;
                return Some(());
            }
            // After a split the minor part is matched; recompute the ends.
            let matched = b.dims[j].len() - q;
            p = a.dims[i].len() - matched;
        }
        Some(())
    }

    fn align(&mut self, a: &mut Tv, b: &mut Tv) -> Option<()> {
        if a.dims == b.dims {
            return Some(());
        }
        if a.dims.len() != b.dims.len() {
            return None;
        }
        for i in 0..a.dims.len() {
            if a.dims[i] != b.dims[i] {
                let same = a.dims[i].len() == b.dims[i].len()
                    && a.dims[i]
                        .iter()
                        .zip(&b.dims[i])
                        .all(|(&x, &y)| self.lins.size(x) == self.lins.size(y));
                if !same {
                    self.refine(a, i, b, i)?;
                }
            }
        }
        let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
        for (x, y) in b.dims.iter().zip(&a.dims) {
            self.pair_atoms(x, y, &mut map)?;
        }
        self.rename(b, &map)
    }

    fn rename(&mut self, t: &mut Tv, map: &[(Ax, Ax)]) -> Option<()> {
        let mut m = Subst::new();
        for &(x, y) in map {
            m.set(x, Lins::plain(y));
        }
        t.val = self.subst(&t.val, &m)?;
        for d in t.dims.iter_mut() {
            for a in d.iter_mut() {
                if let Some(&(_, y)) = map.iter().find(|p| p.0 == *a) {
                    *a = y;
                }
            }
        }
        Some(())
    }

    fn freshen(&mut self, t: &Tv) -> Option<Tv> {
        let mut out = t.clone();
        let map: SmallVec<[(Ax, Ax); 8]> = t
            .atoms()
            .into_iter()
            .map(|a| {
                let n = self.lins.size(a);
                (a, self.lins.local(n))
            })
            .collect();
        self.rename(&mut out, &map)?;
        Some(out)
    }

    fn pair_atoms(&self, from: &[Ax], to: &[Ax], map: &mut SmallVec<[(Ax, Ax); 8]>) -> Option<()> {
        if from.len() != to.len() {
            return None;
        }
        for (&x, &y) in from.iter().zip(to) {
            if self.lins.size(x) != self.lins.size(y) {
                return None;
            }
            map.push((x, y));
        }
        Some(())
    }

    fn digits_of(&mut self, atoms: &[Ax], index: LinId, map: &mut Subst) -> Option<()> {
        let mut rest = index;
        for (k, &a) in atoms.iter().enumerate().rev() {
            if k == 0 {
                map.set(a, rest);
                break;
            }
            let n = self.lins.size(a);
            match self.lins.divide(rest, n) {
                Some((hi, lo)) => {
                    map.set(a, lo);
                    rest = hi;
                }
                None => {
                    let lo = self.lins.tabulate(&[rest], |v| Some(v[0].rem_euclid(n)))?;
                    let hi = self.lins.tabulate(&[rest], |v| Some(v[0].div_euclid(n)))?;
                    map.set(a, lo);
                    rest = hi;
                }
            }
        }
        Some(())
    }

    fn index_dim(&mut self, t: &mut Tv, i: usize, index: LinId) -> Option<()> {
        if t.dims[i].is_empty() {
            return Some(());
        }
        self.fuse_dim(t, i)?;
        let mut m = Subst::new();
        let atoms = t.dims[i].clone();
        self.digits_of(&atoms, index, &mut m)?;
        t.val = self.subst(&t.val, &m)?;
        t.dims[i].clear();
        Some(())
    }

    fn cut(&mut self, t: &mut Tv, k: usize, start: LinId, len: i64) -> Option<()> {
        if t.dims[k].len() > 1 {
            // Whole minor blocks keep their atoms.
            let minor: i64 = t.dims[k][1..].iter().map(|&a| self.lins.size(a)).product();
            if len % minor == 0 {
                if let Some((hi, lo)) = self.lins.divide(start, minor) {
                    if self.lins.as_constant(lo) == Some(0) {
                        let major = t.dims[k][0];
                        let l = len / minor;
                        let mut map = Subst::new();
                        if l == 1 {
                            map.set(major, hi);
                            t.dims[k].remove(0);
                        } else {
                            let j = self.lins.local(l);
                            let form = self.lins.combine(&[(1, hi), (1, Lins::plain(j))])?;
                            map.set(major, form);
                            t.dims[k][0] = j;
                        }
                        t.val = self.subst(&t.val, &map)?;
                        return Some(());
                    }
                }
            }
        }
        let mut dim = Atoms::new();
        let index = if len == 1 {
            start
        } else {
            let j = self.lins.local(len);
            dim.push(j);
            self.lins.combine(&[(1, start), (1, Lins::plain(j))])?
        };
        self.index_dim(t, k, index)?;
        t.dims[k] = dim;
        Some(())
    }

    fn fuse_dims(&mut self, t: &mut Tv) -> Option<()> {
        (0..t.dims.len()).try_for_each(|i| self.fuse_dim(t, i))
    }

    fn fuse_dim(&mut self, t: &mut Tv, i: usize) -> Option<()> {
        {
            'again: loop {
                for p in 0..t.dims[i].len().saturating_sub(1) {
                    let (x, y) = (t.dims[i][p], t.dims[i][p + 1]);
                    let n = self.lins.size(y);
                    let fits = t.val.r.m.iter().all(|&l| {
                        let (mut cx, mut cy, mut deep) = (0, 0, false);
                        self.lins.for_terms(l, |c, a| {
                            if a == x {
                                cx = c;
                            } else if a == y {
                                cy = c;
                            } else {
                                let p = Lins::plain(a);
                                deep |= self.lins.mentions(p, x) || self.lins.mentions(p, y);
                            }
                        });
                        !deep && cx == cy * n
                    });
                    if !fits {
                        continue;
                    }
                    let size = self.lins.size(x).checked_mul(n)?;
                    let f = self.lins.local(size);
                    // n*x + y = f: put y := f and x := 0 in every form.
                    let mut m = Subst::new();
                    let zero = self.lins.constant(0);
                    m.set(x, zero);
                    m.set(y, Lins::plain(f));
                    t.val = self.subst(&t.val, &m)?;
                    t.dims[i][p] = f;
                    t.dims[i].remove(p + 1);
                    continue 'again;
                }
                break;
            }
        }
        Some(())
    }

    fn reshape(&mut self, t: &Tv, sizes: &[i64]) -> Option<Tv> {
        let mut t = t.clone();
        let rank_one = Tv {
            val: t.val.clone(),
            dims: SmallVec::from_elem(t.atoms().into_iter().collect(), 1),
        };
        let total: i64 = sizes.iter().product();
        if self.dim_size(&rank_one.dims[0]) != total {
            return None;
        }
        t = rank_one;
        let mut out: SmallVec<[Atoms; 4]> = SmallVec::new();
        let mut used = 0;
        for (k, &n) in sizes.iter().enumerate() {
            let mut need = n;
            let mut dim = Atoms::new();
            while need > 1 {
                let a = *t.dims[0].get(used)?;
                let s = self.lins.size(a);
                if need % s == 0 {
                    dim.push(a);
                    used += 1;
                    need /= s;
                } else if s % need == 0 {
                    self.split_atom(&mut t, a, s / need)?;
                    dim.push(t.dims[0][used]);
                    used += 1;
                    need = 1;
                } else {
                    // Radices clash: from here on to the end of this group of
                    // dims, index the old atoms by the new flat index.
                    let _ = k;
                    return self.reshape_by_table(&t, sizes);
                }
            }
            out.push(dim);
        }
        t.dims = out;
        self.fuse_dims(&mut t)?;
        Some(t)
    }
}

/// Helpers that need no trait.
trait Joins {
    fn join_dim(&mut self, t: &mut Tv, i: usize) -> Option<()>;
    fn reshape_by_table(&mut self, t: &Tv, sizes: &[i64]) -> Option<Tv>;
}

impl Joins for Store {
    /// One atom for a whole dimension, by tables if need be.
    fn join_dim(&mut self, t: &mut Tv, i: usize) -> Option<()> {
        if t.dims[i].len() < 2 {
            return Some(());
        }
        self.fuse_dim(t, i)?;
        if t.dims[i].len() < 2 {
            return Some(());
        }
        let n = self.dim_size(&t.dims[i]);
        let f = self.lins.local(n);
        let mut m = Subst::new();
        let atoms = t.dims[i].clone();
        self.digits_of(&atoms, Lins::plain(f), &mut m)?;
        t.val = self.subst(&t.val, &m)?;
        t.dims[i] = SmallVec::from_elem(f, 1);
        Some(())
    }

    fn reshape_by_table(&mut self, t: &Tv, sizes: &[i64]) -> Option<Tv> {
        let mut t = t.clone();
        self.fuse_dims(&mut t)?;
        let dims = self.fresh_dims(sizes);
        let flat: Atoms = dims.iter().flatten().copied().collect();
        let index = self.dim_index(&flat);
        let mut m = Subst::new();
        let atoms = t.dims[0].clone();
        self.digits_of(&atoms, index, &mut m)?;
        let val = self.subst(&t.val, &m)?;
        Some(Tv { val, dims })
    }
}

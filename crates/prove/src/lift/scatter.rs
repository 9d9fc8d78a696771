//! Scatter: `operand + sum_b [b lands here] update_b`, likewise for maxima;
//! other combiners fold the updates that land on an element in order.

use super::{Lifter, Lv, dt_of};
use crate::lift::reduce::Monoid;
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, CompId, DType, InstrId};
use scalify_terms::{Ax, Coef, Dt, Lins, Val};
use smallvec::SmallVec;

/// Updates, where they land, and the operand.
struct Landing {
    x: Tv,
    /// Over `dims` (those that are windows) and `bound`.
    update: Val,
    /// Over `dims` (those that are indexed) and `bound`.
    hit: Val,
    /// Atoms that count the updates, major first.
    bound: SmallVec<[Ax; 8]>,
    /// Dimensions of the result.
    dims: SmallVec<[Atoms; 4]>,
}

const REACH: &str = "index arithmetic is out of reach";

impl Lifter<'_> {
    pub(super) fn lift_scatter(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let body = *ins.calls.first().ok_or("scatter without combiner")?;
        if v.len() != 3 || self.depends_on_device(body, 32) {
            return self.lift_opaque(i, v);
        }
        match self.scattered(i, body, v) {
            Ok(t) => Ok(Lv::T(t)),
            Err(_) => self.lift_opaque(i, v),
        }
    }

    fn scattered(&mut self, i: InstrId, body: CompId, v: &[Lv]) -> Result<Tv, String> {
        let (_, d) = self.array(i)?;
        let dt = dt_of(d);
        let Landing { mut x, update, hit, bound, dims } = self.landing(i, v)?;
        let op = self.monoid(body).filter(|_| d.is_float() || dt == Dt::INT);
        let mut landed = match op {
            Some(Monoid::Add) if self.st.rules.reals => {
                let val = self.select_sum(dt, &hit, &update, &bound)?;
                // Updates of integers add up in any order unless they wrap.
                if dt == Dt::INT && !self.fits(&val, &x.val, d) {
                    return self.folded(body, d, Landing { x, update, hit, bound, dims });
                }
                Tv { val, dims }
            }
            Some(Monoid::Max | Monoid::Min) => {
                let max = op == Some(Monoid::Max);
                let away = self.neutral(max, d).ok_or(REACH)?;
                let u = self.st.select(dt, &hit, &update, &away).ok_or(REACH)?;
                let r = if max {
                    self.st.max_over(dt, &u, &bound)
                } else {
                    self.st.min_over(dt, &u, &bound)
                };
                Tv { val: r.ok_or(REACH)?, dims }
            }
            _ => return self.folded(body, d, Landing { x, update, hit, bound, dims }),
        };
        for _ in 0..2 {
            self.st.align(&mut landed, &mut x).ok_or("dimension splits clash")?;
        }
        let both = [x.val, landed.val];
        let val = match op {
            Some(Monoid::Max) => self.st.max(dt, &both),
            Some(Monoid::Min) => self.st.min(dt, &both),
            _ => self.st.add(dt, &both),
        };
        Ok(Tv { val: val.ok_or(REACH)?, dims: landed.dims })
    }

    /// True if the sum of two integers, each in its own range, stays in the
    /// type's.
    fn fits(&mut self, a: &Val, b: &Val, d: DType) -> bool {
        match (self.st.int_range(a), self.st.int_range(b), d.int_range()) {
            (Some(a), Some(b), Some((lo, hi))) => {
                i128::from(a.0) + i128::from(b.0) >= lo && i128::from(a.1) + i128::from(b.1) <= hi
            }
            _ => false,
        }
    }

    /// What changes no maximum (or minimum) of the type.
    fn neutral(&mut self, max: bool, d: DType) -> Option<Val> {
        if let Some((lo, hi)) = d.int_range() {
            return Some(self.st.int(i64::try_from(if max { lo } else { hi }).ok()?));
        }
        let low = self.st.special(dt_of(d), scalify_terms::arith::NEG_INF);
        if max { Some(low) } else { self.st.scale(&low, Coef::NEG) }
    }

    /// An element as a function of itself and of all updates, in order, with
    /// whether they land on it.
    fn folded(&mut self, body: CompId, d: DType, l: Landing) -> Result<Tv, String> {
        let Landing { mut x, update, hit, bound, dims } = l;
        let dt = dt_of(d);
        // The predicate gives the place its atoms.
        let mut place = Tv { val: hit, dims: dims.clone() };
        let mut landed = Tv { val: update, dims };
        for _ in 0..2 {
            self.st.align(&mut place, &mut landed).ok_or("dimension splits clash")?;
            self.st.align(&mut place, &mut x).ok_or("dimension splits clash")?;
        }
        self.st.align(&mut place, &mut landed).ok_or("dimension splits clash")?;
        let comp = self.m.comp(body);
        let sets = match self.m.instr(comp.root).attrs {
            Attrs::Parameter(k) => k == 1,
            _ => false,
        };
        if sets && bound.is_empty() {
            let val = self.st.select(dt, &place.val, &landed.val, &x.val).ok_or(REACH)?;
            return Ok(Tv { val, dims: place.dims });
        }
        let key = if sets { "set".into() } else { self.comp_key(body) };
        let f = self.st.sym(&format!("scatter-fold|{key}|{d}"));
        let args = [x.val, place.val, landed.val];
        let val = self.st.opaque(f, dt, &args, &bound, &[]);
        Ok(Tv { val, dims: place.dims })
    }

    /// What is scattered where. `Err`: windows wider than one index on a
    /// dimension that is indexed.
    fn landing(&mut self, i: InstrId, v: &[Lv]) -> Result<Landing, String> {
        let (sizes, _) = self.array(i)?;
        let Attrs::Scatter(s) = &self.m.instr(i).attrs else {
            return Err("scatter without dimensions".to_owned());
        };
        let x = v[0].tensor().ok_or("no array")?.clone();
        let mut idx = v[1].tensor().ok_or("no array")?.clone();
        let mut u = self.st.freshen(v[2].tensor().ok_or("no array")?).ok_or(REACH)?;
        let ivd = s.index_vector_dim as usize;
        let batch: Vec<usize> = (0..idx.dims.len()).filter(|&k| k != ivd).collect();
        let u_batch: Vec<usize> =
            (0..u.dims.len()).filter(|&k| !s.update_window_dims.contains(&(k as i64))).collect();
        if batch.len() != u_batch.len() {
            return Err("scatter dimensions do not add up".to_owned());
        }
        idx = self.st.freshen(&idx).ok_or(REACH)?;
        for (&a, &b) in batch.iter().zip(&u_batch) {
            self.st.refine(&mut idx, a, &mut u, b).ok_or("dimension splits clash")?;
        }
        let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
        for (&a, &b) in batch.iter().zip(&u_batch) {
            self.st.pair_atoms(&u.dims[b], &idx.dims[a], &mut map).ok_or(REACH)?;
        }
        self.st.rename(&mut u, &map).ok_or(REACH)?;
        // Result dims: window dims that cover the operand take the update's
        // atoms; indexed dims get fresh atoms and a predicate.
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
        let mut preds: SmallVec<[Val; 4]> = SmallVec::new();
        let mut windows = s.update_window_dims.iter();
        let mut not_bound: SmallVec<[Ax; 8]> = SmallVec::new();
        for k in 0..sizes.len() {
            let kk = k as i64;
            let at = s.scatter_dims_to_operand_dims.iter().position(|&d| d == kk);
            let inserted = s.inserted_window_dims.contains(&kk);
            let batching = s.input_batching_dims.iter().position(|&d| d == kk);
            if let Some(p) = batching {
                let b = s.scatter_indices_batching_dims[p] as usize;
                dims.push(idx.dims[b].clone());
                not_bound.extend(idx.dims[b].iter().copied());
                continue;
            }
            let window = if inserted { None } else { windows.next().map(|&w| w as usize) };
            let w = window.map_or(1, |w| self.st.dim_size(&u.dims[w]));
            match at {
                None => {
                    let wd = window.ok_or("scatter dimensions do not add up")?;
                    if w != sizes[k] {
                        return Err("partial window without an index".to_owned());
                    }
                    dims.push(u.dims[wd].clone());
                    not_bound.extend(u.dims[wd].iter().copied());
                }
                Some(c) => {
                    if w != 1 {
                        return Err("window wider than one on an indexed dimension".to_owned());
                    }
                    let mut t = idx.clone();
                    if ivd < t.dims.len() && !t.dims[ivd].is_empty() {
                        let l = self.st.lins.constant(c as i64);
                        self.st.index_dim(&mut t, ivd, l).ok_or(REACH)?;
                    }
                    let a = self.st.fresh_dims(&[sizes[k]]).remove(0);
                    let here = match a.first() {
                        Some(&a) => Lins::plain(a),
                        None => self.st.lins.constant(0),
                    };
                    let minus = self.st.lins.combine(&[(-1, here)]).ok_or(REACH)?;
                    let minus = self.st.iota(minus);
                    let diff = self.st.add(Dt::INT, &[t.val, minus]).ok_or(REACH)?;
                    preds.push(self.st.eq0(&diff).ok_or(REACH)?);
                    dims.push(a);
                }
            }
        }
        let bound: SmallVec<[Ax; 8]> = batch
            .iter()
            .flat_map(|&k| idx.dims[k].iter().copied())
            .filter(|a| !not_bound.contains(a))
            .collect();
        let hit = self.st.and(&preds);
        Ok(Landing { x, update: u.val, hit, bound, dims })
    }
}

//! Reductions of (value, index) pairs to the largest or smallest value and
//! its least index.

use super::{Lifter, Lv, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_ir::{Attrs, CompId, CompareKind, Comparison, InstrId, Opcode};
use scalify_terms::arith::NEG_INF;
use scalify_terms::{Coef, Dt, Op, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";
/// Why a reduction is not one of these.
const OTHER: &str = "the reducer is no known monoid";
/// The law that is used.
const NO_NAN: &str = "an argmax is taken of values that are neither NaN nor infinite";

impl Lifter<'_> {
    /// Whether a reducer of two (value, index) pairs keeps the largest value
    /// (`true`) or the smallest (`false`) with the least of its indices.
    ///
    /// The reducer may only compare values with values, indices with indices,
    /// and select: then it depends on their order alone, and all orders are
    /// tried (NaN excepted).
    fn arg_reducer(&self, c: CompId) -> Option<bool> {
        let m = self.m;
        let comp = m.comp(c);
        if comp.params.len() != 4 || !m.dtype(comp.params[0])?.is_float() {
            return None;
        }
        if !m.dtype(comp.params[1])?.is_int() {
            return None;
        }
        let mut largest = [true, true];
        for (a, b) in [(0, 1), (1, 0), (0, 0)] {
            for (i, j) in [(2, 3), (3, 2), (2, 2)] {
                let got = self.reduce_pair(c, [a, i, b, j])?;
                for (k, greater) in [a > b, a < b].into_iter().enumerate() {
                    let want = if a == b {
                        (a, i.min(j))
                    } else if greater {
                        (a, i)
                    } else {
                        (b, j)
                    };
                    largest[k] &= got == want;
                }
            }
        }
        match largest {
            [true, false] => Some(true),
            [false, true] => Some(false),
            _ => None,
        }
    }

    /// The reducer on numbers that stand for an order.
    fn reduce_pair(&self, c: CompId, args: [i64; 4]) -> Option<(i64, i64)> {
        let m = self.m;
        let comp = m.comp(c);
        // (value, 0: value, 1: index, 2: predicate)
        let mut env: Vec<(InstrId, i64, u8)> = Vec::new();
        for &i in &comp.instrs {
            let ins = m.instr(i);
            let get = |o: InstrId| env.iter().find(|e| e.0 == o).map(|e| (e.1, e.2));
            let arg = |k: usize| ins.operands.get(k).and_then(|&o| get(o));
            let v = match ins.opcode {
                Opcode::Parameter => {
                    let Attrs::Parameter(k) = ins.attrs else { return None };
                    (*args.get(k as usize)?, (k % 2) as u8)
                }
                Opcode::Compare => {
                    let Attrs::Compare { direction, kind } = &ins.attrs else { return None };
                    let ((x, s), (y, t)) = (arg(0)?, arg(1)?);
                    if s != t || s > 1 || (s == 0 && *kind == Some(CompareKind::TotalOrder)) {
                        return None;
                    }
                    let p = match direction {
                        Comparison::Eq => x == y,
                        Comparison::Ne => x != y,
                        Comparison::Ge => x >= y,
                        Comparison::Gt => x > y,
                        Comparison::Le => x <= y,
                        Comparison::Lt => x < y,
                    };
                    (i64::from(p), 2)
                }
                Opcode::And | Opcode::Or => {
                    let ((x, 2), (y, 2)) = (arg(0)?, arg(1)?) else { return None };
                    (if ins.opcode == Opcode::And { x & y } else { x | y }, 2)
                }
                Opcode::Not => {
                    let (x, 2) = arg(0)? else { return None };
                    (1 - x, 2)
                }
                Opcode::Select => {
                    let ((p, 2), (x, s), (y, t)) = (arg(0)?, arg(1)?, arg(2)?) else { return None };
                    if s != t {
                        return None;
                    }
                    (if p != 0 { x } else { y }, s)
                }
                Opcode::Maximum | Opcode::Minimum => {
                    let ((x, s), (y, t)) = (arg(0)?, arg(1)?);
                    if s != t || s > 1 {
                        return None;
                    }
                    (if ins.opcode == Opcode::Maximum { x.max(y) } else { x.min(y) }, s)
                }
                Opcode::Tuple if i == comp.root => {
                    let ((x, 0), (y, 1)) = (arg(0)?, arg(1)?) else { return None };
                    return (ins.operands.len() == 2).then_some((x, y));
                }
                _ => return None,
            };
            env.push((i, v.0, v.1));
        }
        None
    }

    /// A reduction of (value, index) pairs along one dimension. `Err`: it is
    /// none, or none that the terms know.
    pub(super) fn lift_arg_reduce(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let (Attrs::Dims(ds), [x, idx, x0, i0]) = (&ins.attrs, v) else {
            return Err(OTHER.to_owned());
        };
        if !self.st.rules.finite || ds.len() != 1 {
            return Err(OTHER.to_owned());
        }
        let body = *ins.calls.first().ok_or(OTHER)?;
        let largest = self.arg_reducer(body).ok_or(OTHER)?;
        let array = |v: &Lv| v.tensor().cloned().ok_or_else(|| OTHER.to_owned());
        let (mut x, mut idx, x0, _) = (array(x)?, array(idx)?, array(x0)?, array(i0)?);
        let d = m.dtype(ins.operands[0]).ok_or(OTHER)?;
        // The initial value must never win.
        let sign = self.st.coefs.sign(x0.val.coef) > 0;
        if self.st.class(x0.val.r.class).op != Op::Const(NEG_INF) || sign != largest {
            return Err(OTHER.to_owned());
        }
        let k = ds[0] as usize;
        for t in [&mut x, &mut idx] {
            self.st.fuse_dims(t).ok_or(REACH)?;
        }
        for _ in 0..2 {
            self.st.align(&mut x, &mut idx).ok_or(REACH)?;
        }
        if self.st.dim_size(x.dims.get(k).ok_or(OTHER)?) == 0 {
            return Err(OTHER.to_owned());
        }
        let j = match x.dims[k][..] {
            [] => None,
            [j] => Some(j),
            _ => return Err(REACH.to_owned()),
        };
        let mut dims = x.dims.clone();
        dims.remove(k);
        if let Some(j) = j {
            if let Some(v) = self.without_padding(&x.val, &idx.val, &x0.val, j) {
                idx.val = v;
            }
        }
        let Some(j) = j else {
            let (a, b) = (Tv { val: x.val, dims: dims.clone() }, Tv { val: idx.val, dims });
            return Ok(Lv::Tuple([Lv::T(a), Lv::T(b)].into_iter().collect()));
        };
        let dt = dt_of(d);
        let up =
            if largest { x.val.clone() } else { self.st.scale(&x.val, Coef::NEG).ok_or(REACH)? };
        let val = if largest {
            self.st.max_over(dt, &x.val, &[j])
        } else {
            self.st.min_over(dt, &x.val, &[j])
        };
        let val = val.ok_or(REACH)?;
        let at = self.st.argmax(&up, j).ok_or(REACH)?;
        let index = self.index_at(&idx.val, j, &at)?;
        self.st.assume(NO_NAN);
        let (a, b) = (Tv { val, dims: dims.clone() }, Tv { val: index, dims });
        Ok(Lv::Tuple([Lv::T(a), Lv::T(b)].into_iter().collect()))
    }

    /// For an index `p ? i : 0` of values that are the initial value wherever
    /// `p` fails: `i`. Such places never win, for `p` holds at index 0 and
    /// values are not infinite.
    fn without_padding(
        &mut self,
        x: &Val,
        idx: &Val,
        x0: &Val,
        j: scalify_terms::Ax,
    ) -> Option<Val> {
        let ind = Op::Ew(self.st.sym("indicator"));
        if self.st.class(idx.r.class).op != Op::Prod {
            return None;
        }
        let (args, _) = self.st.open(&idx.r)?;
        let at = args.iter().position(|a| self.st.class(a.r.class).op == ind)?;
        let (p, _) = self.st.open(&args[at].r)?;
        let p = self.st.val_of(&p[0]);
        let rest: SmallVec<[(Val, i32); 4]> = args
            .iter()
            .enumerate()
            .filter(|a| a.0 != at)
            .map(|a| (self.st.val_of(a.1), a.1.pow))
            .collect();
        let i = self.st.prod(Dt::INT, &rest)?;
        let i = self.st.scale(&i, idx.coef)?;
        // Holds at j = 0.
        let mut map = scalify_terms::Subst::new();
        let zero = self.st.lins.constant(0);
        map.set(j, zero);
        let first = self.st.subst(&p, &map)?;
        let (q, want) = {
            let not = Op::Ew(self.st.sym("not"));
            if self.st.class(first.r.class).op == not {
                (self.st.not(&first), false)
            } else {
                (first, true)
            }
        };
        let ge0 = Op::Ew(self.st.sym("ge0"));
        if self.st.class(q.r.class).op != ge0 {
            return None;
        }
        let (a, _) = self.st.open(&q.r)?;
        let g = self.st.val_of(&a[0]);
        let (lo, hi) = self.st.int_range(&g)?;
        if !(if want { lo >= 0 } else { hi < 0 }) {
            return None;
        }
        // The value is the initial one wherever p fails.
        let s = Op::Ew(self.st.sym("select"));
        if self.st.class(x.r.class).op == s && x.coef == Coef::ONE {
            let (a, _) = self.st.open(&x.r)?;
            let (c, y, z) = (self.st.val_of(&a[0]), self.st.val_of(&a[1]), self.st.val_of(&a[2]));
            let n = self.st.not(&c);
            return ((c == p && z == *x0) || (n == p && y == *x0)).then_some(i);
        }
        let again = self.st.select(x.dt, &p, x, x0)?;
        (again == *x).then_some(i)
    }

    /// The index operand, which must grow along `j`, read at `j = at`.
    fn index_at(&mut self, idx: &Val, j: scalify_terms::Ax, at: &Val) -> Result<Val, String> {
        let (g, rest) = self.slope(idx, j).ok_or(OTHER)?;
        let (lo, hi) = if self.st.ref_mentions(&rest.r, j) {
            self.st.int_range(&rest).ok_or(OTHER)?
        } else {
            (0, 0)
        };
        // Strictly increasing: the least position has the least index.
        if g <= 0 || hi - lo >= g {
            return Err(OTHER.to_owned());
        }
        let mut t = Tv { val: idx.clone(), dims: SmallVec::new() };
        t.dims.push(SmallVec::from_elem(j, 1));
        let v = self.read_at(&mut t, 0, at, Dt::INT)?;
        Ok(v)
    }
}

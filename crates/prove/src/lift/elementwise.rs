//! Elementwise instructions.
//!
//! Floats obey the laws of the reals (converts that round are functions of
//! their own). Integers are mathematical: an operation whose interval may
//! leave its type's range becomes a typed function without laws.

use super::{Lifter, Lv, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_ir::{Attrs, Comparison, DType, InstrId, Opcode};
use scalify_terms::{Coef, Dt, Val};
use smallvec::SmallVec;

/// Most index values at which a function of them is tabulated.
const MAX_INDEX_POINTS: i64 = 256;

/// Why a division is not lifted.
pub(super) const ZERO_DIVISOR: &str = "division by the constant zero";

impl Lifter<'_> {
    /// Any elementwise instruction, operands broadcast-free.
    pub(super) fn lift_elementwise(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let op = ins.opcode;
        let (dims, dtype) = self.array(i)?;
        let mut ts: SmallVec<[Tv; 3]> = SmallVec::new();
        for (k, x) in v.iter().enumerate() {
            let t = x.tensor().ok_or_else(|| format!("operand {k} is no array"))?;
            ts.push(t.clone());
        }
        // clamp and select take scalars beside arrays.
        for t in ts.iter_mut() {
            if t.dims.len() != dims.len() {
                if !t.dims.is_empty() {
                    return Err(format!("operands of {op} differ in rank"));
                }
                t.dims = self.st.fresh_dims(dims);
            }
        }
        if op == Opcode::BitcastConvert {
            let from = self.array(ins.operands[0])?.1;
            if from.bits() != dtype.bits() {
                return self.lift_opaque(i, v);
            }
        }
        // All operands on the atoms of the first.
        let (first, rest) = ts.split_first_mut().ok_or("no operands")?;
        for _ in 0..2 {
            for t in rest.iter_mut() {
                self.st.align(first, t).ok_or("dimension splits of the operands clash")?;
            }
        }
        let vals: SmallVec<[Val; 3]> = ts.iter().map(|t| t.val.clone()).collect();
        let from: SmallVec<[DType; 3]> = ins.operands.iter().filter_map(|&o| m.dtype(o)).collect();
        let val = self.pointwise(i, op, dtype, &from, &vals)?;
        let val = self.canon_device(val);
        let val = self.canon_index(val);
        Ok(Lv::T(Tv { val, dims: ts[0].dims.clone() }))
    }

    /// A predicate or integer that is a function of few index values: folded
    /// if it is constant or linear.
    fn canon_index(&mut self, v: Val) -> Val {
        use scalify_terms::Op;
        let worth = match self.st.class(v.r.class).op {
            Op::And | Op::Max | Op::Add => true,
            Op::Ew(_) => v.dt == Dt::INT || self.st.as_bool(&v).is_none(),
            _ => false,
        };
        if !worth || (v.dt != Dt::INT && v.dt != Dt::BOOL) || self.st.as_iota(&v).is_some() {
            return v;
        }
        let mut axes: SmallVec<[_; 3]> = SmallVec::new();
        for &l in &v.r.m {
            self.st.lins.base_axes(l, &mut axes);
        }
        axes.sort_unstable();
        let sizes: SmallVec<[i64; 4]> = axes.iter().map(|&a| self.st.lins.size(a)).collect();
        let Some(n) = sizes.iter().try_fold(1i64, |p, &s| p.checked_mul(s)) else { return v };
        if n > MAX_INDEX_POINTS || n == 0 {
            return v;
        }
        let mut point: SmallVec<[i64; 4]> = SmallVec::from_elem(0, axes.len());
        let mut tab = Vec::with_capacity(n as usize);
        for k in 0..n {
            let mut r = k;
            for i in (0..axes.len()).rev() {
                point[i] = r % sizes[i];
                r /= sizes[i];
            }
            let x = if v.dt == Dt::INT {
                self.st.eval_int(&v, &axes, &point, 12)
            } else if v.coef == Coef::ZERO {
                Some(0)
            } else {
                self.st.eval_bool(&v.r, &axes, &point, 12).map(i64::from)
            };
            match x {
                Some(x) if v.dt == Dt::INT || tab.first().is_none_or(|&f| f == x) => tab.push(x),
                _ => return v,
            }
        }
        if v.dt == Dt::BOOL {
            return self.st.bool(tab[0] != 0);
        }
        let l = self.st.lins.from_table(&axes, &sizes, &tab);
        let mut table = false;
        self.st.lins.for_terms(l, |_, a| table |= !axes.contains(&a));
        if table { v } else { self.st.iota(l) }
    }

    /// Integers and predicates of device digits only are tabulated, so that
    /// all ways of computing them coincide.
    pub(super) fn canon_device(&mut self, v: Val) -> Val {
        if (v.dt != Dt::INT && v.dt != Dt::BOOL)
            || v.r.m.is_empty()
            || self.st.as_iota(&v).is_some()
            || self.dev.count == 1
            || !self.device_only(&v)
        {
            return v;
        }
        let axes: SmallVec<[_; 8]> = self.dev.digits.iter().map(|d| d.0).collect();
        let sizes: SmallVec<[i64; 8]> = self.dev.digits.iter().map(|d| d.1).collect();
        let mut point: SmallVec<[i64; 8]> = SmallVec::from_elem(0, axes.len());
        let mut tab = Vec::with_capacity(self.dev.count as usize);
        for d in 0..self.dev.count {
            let mut r = d;
            for k in (0..axes.len()).rev() {
                point[k] = r % sizes[k];
                r /= sizes[k];
            }
            let x = if v.dt == Dt::INT {
                self.st.eval_int(&v, &axes, &point, 16)
            } else if v.coef == Coef::ZERO {
                Some(0)
            } else {
                self.st.eval_bool(&v.r, &axes, &point, 16).map(i64::from)
            };
            match x {
                Some(x) => tab.push(x),
                None => return v,
            }
        }
        let l = self.st.lins.from_table(&axes, &sizes, &tab);
        if v.dt == Dt::INT {
            return self.st.iota(l);
        }
        match self.st.lins.as_constant(l) {
            Some(c) => self.st.bool(c != 0),
            None if let Some(p) = self.digit_box(&tab, &axes, &sizes) => p,
            None => {
                let x = self.st.lins.shift(l, -1);
                let x = self.st.iota(x);
                self.st.eq0(&x).unwrap_or(v)
            }
        }
    }

    /// A truth table that holds exactly where some digits have given values
    /// (or fails exactly there), as a conjunction of equations.
    fn digit_box(&mut self, tab: &[i64], axes: &[u32], sizes: &[i64]) -> Option<Val> {
        for want in [1, 0] {
            let hits: Vec<i64> =
                (0..tab.len() as i64).filter(|&d| tab[d as usize] == want).collect();
            let mut eqs: SmallVec<[Val; 4]> = SmallVec::new();
            let mut count = 1;
            let mut stride = tab.len() as i64;
            for (k, &n) in sizes.iter().enumerate() {
                stride /= n;
                let first = hits.first()? / stride % n;
                if hits.iter().all(|d| d / stride % n == first) {
                    let l = self.st.lins.shift(scalify_terms::Lins::plain(axes[k]), -first);
                    let v = self.st.iota(l);
                    eqs.push(self.st.eq0(&v)?);
                } else {
                    count *= n;
                }
            }
            if count == hits.len() as i64 && !eqs.is_empty() {
                let p = self.st.and(&eqs);
                return Some(if want == 1 { p } else { self.st.not(&p) });
            }
        }
        None
    }

    /// Keeps an integer result if it fits its type, else a typed function.
    pub(super) fn fit(&mut self, v: Option<Val>, op: Opcode, d: DType, args: &[Val]) -> Val {
        if let Some(v) = v {
            if d == DType::Pred {
                return v;
            }
            if let (Some((lo, hi)), Some((a, b))) = (self.st.int_range_wide(&v), d.int_range()) {
                if lo >= a && hi <= b {
                    return v;
                }
            }
        }
        if let Some(v) = self.wrapped(op, d, args) {
            return v;
        }
        let comm =
            matches!(op, Opcode::Add | Opcode::Multiply | Opcode::And | Opcode::Or | Opcode::Xor);
        self.typed(op.name(), d, comm, args)
    }

    /// Arithmetic of index values modulo the size of the type, as an index
    /// value: computed at every point, so it needs few of them.
    fn wrapped(&mut self, op: Opcode, d: DType, args: &[Val]) -> Option<Val> {
        let (lo, hi) = d.int_range()?;
        let size = (hi - lo).checked_add(1)?;
        // Index arithmetic on such values stays far from the ends of `i64`.
        if d == DType::Pred || d.bits() > 32 {
            return None;
        }
        self.tabulate(args, |x| {
            let wide = |k: usize| x.get(k).map(|&v| i128::from(v));
            let v = match op {
                Opcode::Add => wide(0)?.checked_add(wide(1)?)?,
                Opcode::Subtract => wide(0)?.checked_sub(wide(1)?)?,
                Opcode::Multiply => wide(0)?.checked_mul(wide(1)?)?,
                Opcode::Negate => wide(0)?.checked_neg()?,
                _ => return None,
            };
            i64::try_from((v - lo).rem_euclid(size) + lo).ok()
        })
    }

    /// A function of this operand type without laws.
    pub(super) fn typed(&mut self, name: &str, d: DType, comm: bool, args: &[Val]) -> Val {
        let s = self.st.sym(&format!("{name}:{d}"));
        if let Some((lo, hi)) = d.int_range() {
            if let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi)) {
                self.st.set_sym_range(s, lo, hi);
                if matches!(name, "add" | "subtract") {
                    self.st.set_wrapping(s, name == "subtract");
                }
            }
        }
        self.st.ew(s, dt_of(d), comm, args)
    }

    fn pointwise(
        &mut self,
        i: InstrId,
        op: Opcode,
        d: DType,
        from: &[DType],
        v: &[Val],
    ) -> Result<Val, String> {
        use Opcode::*;
        let dt = dt_of(d);
        let long = || "numbers grow too long".to_owned();
        let src = from.first().copied().unwrap_or(d);
        let name = op.name();
        // Types without laws here.
        if d.is_complex() || src.is_complex() {
            return Ok(match op {
                Add => self.st.add(dt, v).ok_or_else(long)?,
                Multiply => self.st.mul(dt, &v[0], &v[1]).ok_or_else(long)?,
                _ => {
                    let key = self.typed_key(i, name);
                    let s = self.st.sym(&key);
                    self.st.ew(s, dt, false, v)
                }
            });
        }
        match op {
            Compare => return self.compare(i, src, v),
            Convert => return self.convert(src, d, &v[0]),
            Select if dt == Dt::INT => {
                let not = self.st.not(&v[0]);
                let a = self.unwrapped(&v[1], &v[0], d).unwrap_or_else(|| v[1].clone());
                let b = self.unwrapped(&v[2], &not, d).unwrap_or_else(|| v[2].clone());
                return self.st.select(dt, &v[0], &a, &b).ok_or_else(long);
            }
            Select => return self.st.select(dt, &v[0], &v[1], &v[2]).ok_or_else(long),
            _ => {}
        }
        if dt == Dt::BOOL {
            return Ok(match op {
                And | Multiply | Minimum => self.st.and(v),
                Or | Maximum => self.st.or(v),
                Add => self.st.or(v),
                Not => self.st.not(&v[0]),
                Xor => {
                    let s = self.st.sym("pred-eq");
                    let e = self.pred_eq(s, &v[0], &v[1]);
                    self.st.not(&e)
                }
                IsFinite => {
                    if self.st.rules.finite && !self.st.is_not_finite(&v[0].r) {
                        self.st.assume("is-finite(x) = true");
                        self.st.bool(true)
                    } else {
                        self.typed("is-finite", src, false, v)
                    }
                }
                _ => self.typed(name, src, false, v),
            });
        }
        if dt == Dt::INT {
            return self.integer(i, op, d, v);
        }
        if op == Divide && d == DType::F32 {
            if let Some(r) = self.by_reciprocal(&v[0], &v[1]) {
                return Ok(r);
            }
        }
        let power = if op == Power { self.typed_key(i, name) } else { String::new() };
        // NaN with anything is NaN.
        if matches!(op, Add | Subtract | Multiply | Divide) {
            let nan = scalify_terms::Op::Const(scalify_terms::arith::NAN);
            if v.iter().any(|x| self.st.class(x.r.class).op == nan && x.coef != Coef::ZERO) {
                return Ok(self.st.special(dt, scalify_terms::arith::NAN));
            }
        }
        let st = &mut *self.st;
        let r = match op {
            Add => st.add(dt, v),
            Subtract => st.scale(&v[1], Coef::NEG).and_then(|n| st.add(dt, &[v[0].clone(), n])),
            Negate => st.scale(&v[0], Coef::NEG),
            Multiply => st.multiply(dt, &v[0], &v[1]),
            // The sign of a zero is not kept by the laws of the reals.
            Divide if st.rules.reals && st.is_zero(&v[1]) => {
                return Err(ZERO_DIVISOR.to_owned());
            }
            Divide => st.prod(dt, &[(v[0].clone(), 1), (v[1].clone(), -1)]),
            Maximum => st.max(dt, v),
            Minimum => st.min(dt, v),
            Clamp => {
                let lo = st.max(dt, &[v[0].clone(), v[1].clone()]);
                lo.and_then(|x| st.min(dt, &[x, v[2].clone()]))
            }
            Exponential => st.exp(dt, &v[0]),
            Log => st.log(dt, &v[0]),
            Sqrt if st.rules.reals => st.sqrt(dt, &v[0]),
            // 1 / (1 + exp(-x)), as compilers expand it.
            Logistic if st.rules.reals => {
                let one = st.one(dt);
                st.scale(&v[0], Coef::NEG)
                    .and_then(|n| st.exp(dt, &n))
                    .and_then(|e| st.add(dt, &[one, e]))
                    .and_then(|d| st.prod(dt, &[(d, -1)]))
            }
            Rsqrt if st.rules.reals => st.sqrt(dt, &v[0]).and_then(|r| st.prod(dt, &[(r, -1)])),
            Abs => {
                let k = st.coefs.abs(v[0].coef);
                let one = Val { coef: Coef::ONE, ..v[0].clone() };
                if st.rules.reals && st.rules.finite && st.is_nonnegative(&one, 8) {
                    st.scale(&one, k)
                } else {
                    let s = st.sym("abs");
                    let a = st.ew(s, dt, false, &[one]);
                    st.scale(&a, k)
                }
            }
            Power if st.rules.reals => {
                let k = st.as_const(&v[1]).and_then(|c| st.coefs.to_int(c));
                match k {
                    Some(k) if (-8..=8).contains(&k) && k != 0 => {
                        st.prod(dt, &[(v[0].clone(), k as i32)])
                    }
                    Some(_) => None,
                    // b^-x = 1 / b^x for b > 0.
                    None => {
                        let positive = st.as_const(&v[0]).is_some_and(|b| st.coefs.sign(b) > 0);
                        if positive && st.coefs.sign(v[1].coef) < 0 {
                            let s = st.sym(&power);
                            st.scale(&v[1], Coef::NEG).and_then(|n| {
                                let p = st.ew(s, dt, false, &[v[0].clone(), n]);
                                st.prod(dt, &[(p, -1)])
                            })
                        } else {
                            None
                        }
                    }
                }
            }
            _ => None,
        };
        if let Some(r) = r {
            return Ok(r);
        }
        let key = self.typed_key(i, name);
        let s = self.st.sym(&key);
        let comm = matches!(op, Add | Multiply | Maximum | Minimum);
        Ok(self.st.ew(s, dt, comm, v))
    }

    /// Compilers multiply by the reciprocal of a constant, rounded to its type:
    /// the quotient by a constant as the product with the number met before
    /// that is the rounded reciprocal; logged. The reciprocal counts as met.
    fn by_reciprocal(&mut self, x: &Val, y: &Val) -> Option<Val> {
        if !self.st.rules.finite {
            return None;
        }
        let c = self.st.as_const(y)?;
        let inv = self.st.coefs.inv(c)?;
        let k = self.st.coefs.literal(inv);
        if k == inv {
            return None;
        }
        self.st.assume("a constant stands for the number it is rounded from");
        self.st.scale(x, k)
    }

    /// The mathematical sum in place of one that may wrap, if it does not where
    /// the predicate holds (negative indices counted from the end).
    fn unwrapped(&mut self, v: &Val, p: &Val, d: DType) -> Option<Val> {
        let scalify_terms::Op::Ew(s) = self.st.class(v.r.class).op else { return None };
        if v.coef != Coef::ONE || self.st.sym_text(s) != format!("add:{d}") {
            return None;
        }
        let (args, _) = self.st.open(&v.r)?;
        let parts: SmallVec<[Val; 2]> = args.iter().map(|a| self.st.val_of(a)).collect();
        let sum = self.st.add(Dt::INT, &parts)?;
        let (lo, hi) = self.st.int_range_where(&sum, p)?;
        let (min, max) = d.int_range()?;
        (lo >= min && hi <= max).then_some(sum)
    }

    /// Name of an elementwise function with what distinguishes it.
    fn typed_key(&self, i: InstrId, name: &str) -> String {
        match &self.m.instr(i).attrs {
            Attrs::ReducePrecision { exponent, mantissa } => {
                format!("{name}:{exponent},{mantissa}")
            }
            Attrs::Compare { direction, kind } => format!("{name}:{direction:?}:{kind:?}"),
            _ => {
                let from = self.m.instr(i).operands.first().and_then(|&o| self.m.dtype(o));
                match from {
                    Some(f) => format!("{name}:{f}"),
                    None => name.to_owned(),
                }
            }
        }
    }

    fn integer(&mut self, i: InstrId, op: Opcode, d: DType, v: &[Val]) -> Result<Val, String> {
        use Opcode::*;
        let dt = Dt::INT;
        let st = &mut *self.st;
        let r = match op {
            Add => st.add(dt, v),
            Subtract => st.scale(&v[1], Coef::NEG).and_then(|n| st.add(dt, &[v[0].clone(), n])),
            Negate => st.scale(&v[0], Coef::NEG),
            Multiply => st.mul(dt, &v[0], &v[1]),
            Maximum => st.max(dt, v),
            Minimum => st.min(dt, v),
            Clamp => {
                let lo = st.max(dt, &[v[0].clone(), v[1].clone()]);
                lo.and_then(|x| st.min(dt, &[x, v[2].clone()]))
            }
            Divide | Remainder => self.int_division(op, &v[0], &v[1]),
            Abs => match st.int_range(&v[0]) {
                Some((lo, _)) if lo >= 0 => Some(v[0].clone()),
                Some((_, hi)) if hi <= 0 => st.scale(&v[0], Coef::NEG),
                _ => None,
            },
            Sign => match st.int_range(&v[0]) {
                Some((lo, _)) if lo > 0 => Some(st.int(1)),
                Some((_, hi)) if hi < 0 => Some(st.int(-1)),
                Some((0, 0)) => Some(st.int(0)),
                _ => self.tabulate(&v[..1], |x| Some(x[0].signum())),
            },
            ShiftLeft | ShiftRightLogical | And => self.bits(op, d, v),
            _ => None,
        };
        let _ = i;
        Ok(self.fit(r, op, d, v))
    }

    /// Shifts and masks of nonnegative index values.
    fn bits(&mut self, op: Opcode, d: DType, v: &[Val]) -> Option<Val> {
        let k = self.st.as_int(&v[1]);
        let k = match (op, k) {
            (Opcode::And, None) => {
                // Constants may stand on either side.
                let c = self.st.as_int(&v[0])?;
                let c = self.st.int(c);
                return self.bits(op, d, &[v[1].clone(), c]);
            }
            (_, k) => k?,
        };
        let (lo, _) = self.st.int_range(&v[0])?;
        if lo < 0 || k < 0 {
            return None;
        }
        match op {
            Opcode::ShiftLeft if k < i64::from(d.bits()) && k < 62 => {
                let c = self.st.coefs.int(1 << k);
                self.st.scale(&v[0], c)
            }
            Opcode::ShiftRightLogical if k < i64::from(d.bits()) && k < 62 => {
                let c = self.st.int(1 << k);
                self.int_division(Opcode::Divide, &v[0], &c)
            }
            Opcode::And if (k + 1).count_ones() == 1 => {
                let c = self.st.int(k + 1);
                self.int_division(Opcode::Remainder, &v[0], &c)
            }
            _ => None,
        }
    }

    /// Division truncating toward zero, and its remainder.
    fn int_division(&mut self, op: Opcode, a: &Val, b: &Val) -> Option<Val> {
        let div = op == Opcode::Divide;
        if let Some(n) = self.st.as_int(b) {
            let (lo, hi) = self.st.int_range(a)?;
            if n > 0 && lo >= 0 {
                if n == 1 {
                    return Some(if div { a.clone() } else { self.st.int(0) });
                }
                if hi < n {
                    return Some(if div { self.st.int(0) } else { a.clone() });
                }
                if let Some(l) = self.st.as_iota(a) {
                    if let Some((h, r)) = self.st.lins.divide(l, n) {
                        return Some(self.st.iota(if div { h } else { r }));
                    }
                }
            }
        }
        self.tabulate(&[a.clone(), b.clone()], |x| {
            if x[1] == 0 {
                return None;
            }
            Some(if div { x[0].checked_div(x[1])? } else { x[0].checked_rem(x[1])? })
        })
    }

    /// A function of index values over few points, as an index value.
    fn tabulate(&mut self, v: &[Val], f: impl Fn(&[i64]) -> Option<i64>) -> Option<Val> {
        let mut ls: SmallVec<[_; 3]> = SmallVec::new();
        for x in v {
            ls.push(self.st.as_iota(x)?);
        }
        // Tables over large local axes would not be canonical for the user.
        let mut axes = SmallVec::new();
        for &l in &ls {
            self.st.lins.base_axes(l, &mut axes);
        }
        let n = axes.iter().try_fold(1i64, |p, &a| p.checked_mul(self.st.lins.size(a)))?;
        if n > 1 << 14 {
            return None;
        }
        let l = self.st.lins.tabulate(&ls, f)?;
        Some(self.st.iota(l))
    }

    fn pred_eq(&mut self, s: scalify_terms::Sym, a: &Val, b: &Val) -> Val {
        match (self.st.as_bool(a), self.st.as_bool(b)) {
            (Some(true), _) => b.clone(),
            (_, Some(true)) => a.clone(),
            (Some(false), _) => self.st.not(b),
            (_, Some(false)) => self.st.not(a),
            _ if a == b => self.st.bool(true),
            _ => self.st.ew(s, Dt::BOOL, true, &[a.clone(), b.clone()]),
        }
    }

    fn compare(&mut self, i: InstrId, src: DType, v: &[Val]) -> Result<Val, String> {
        let Attrs::Compare { direction, kind } = &self.m.instr(i).attrs else {
            return Err("compare without direction".to_owned());
        };
        let dir = *direction;
        use Comparison::*;
        if src == DType::Pred {
            let s = self.st.sym("pred-eq");
            return Ok(match dir {
                Eq => self.pred_eq(s, &v[0], &v[1]),
                Ne => {
                    let e = self.pred_eq(s, &v[0], &v[1]);
                    self.st.not(&e)
                }
                // p >= q is (p or not q) and so on.
                Ge => {
                    let n = self.st.not(&v[1]);
                    self.st.or(&[v[0].clone(), n])
                }
                Le => {
                    let n = self.st.not(&v[0]);
                    self.st.or(&[v[1].clone(), n])
                }
                Gt => {
                    let n = self.st.not(&v[1]);
                    self.st.and(&[v[0].clone(), n])
                }
                Lt => {
                    let n = self.st.not(&v[0]);
                    self.st.and(&[v[1].clone(), n])
                }
            });
        }
        let long = || "numbers grow too long".to_owned();
        if src.is_int() {
            let st = &mut *self.st;
            let mut diff = |a: &Val, b: &Val| -> Option<Val> {
                let n = st.scale(b, Coef::NEG)?;
                st.add(Dt::INT, &[a.clone(), n])
            };
            let (ab, ba) = (diff(&v[0], &v[1]), diff(&v[1], &v[0]));
            let (ab, ba) = (ab.ok_or_else(long)?, ba.ok_or_else(long)?);
            let p = match dir {
                Eq => st.eq0(&ab),
                Ne => st.eq0(&ab).map(|p| st.not(&p)),
                Ge => st.ge0(&ab),
                Le => st.ge0(&ba),
                Lt => st.ge0(&ab).map(|p| st.not(&p)),
                Gt => st.ge0(&ba).map(|p| st.not(&p)),
            };
            return p.ok_or_else(long);
        }
        // Floats: constants fold, order is oriented.
        let total = matches!(kind, Some(scalify_ir::CompareKind::TotalOrder));
        if !src.is_complex() {
            if let (Some(a), Some(b)) = (self.st.as_const(&v[0]), self.st.as_const(&v[1])) {
                let (a, b) = (self.st.coefs.get(a), self.st.coefs.get(b));
                let r = match dir {
                    Eq => a == b,
                    Ne => a != b,
                    Ge => a >= b,
                    Gt => a > b,
                    Le => a <= b,
                    Lt => a < b,
                };
                return Ok(self.st.bool(r));
            }
        }
        let finite = self.st.rules.finite && !self.st.is_not_finite(&v[0].r);
        if finite && v[0] == v[1] && !total {
            self.st.assume("x == x");
            return Ok(self.st.bool(matches!(dir, Eq | Ge | Le)));
        }
        let t = if total { "total-" } else { "" };
        let pair = [v[0].clone(), v[1].clone()];
        let swap = [v[1].clone(), v[0].clone()];
        Ok(match dir {
            Eq => self.cmp(&format!("{t}eq:{src}"), true, &pair),
            Ne => {
                let e = self.cmp(&format!("{t}eq:{src}"), true, &pair);
                self.st.not(&e)
            }
            Gt => self.cmp(&format!("{t}gt:{src}"), false, &pair),
            Lt => self.cmp(&format!("{t}gt:{src}"), false, &swap),
            Ge => self.cmp(&format!("{t}ge:{src}"), false, &pair),
            Le => self.cmp(&format!("{t}ge:{src}"), false, &swap),
        })
    }

    fn cmp(&mut self, name: &str, comm: bool, v: &[Val]) -> Val {
        let s = self.st.sym(name);
        self.st.ew(s, Dt::BOOL, comm, v)
    }

    /// convert between element types.
    pub(super) fn convert(&mut self, from: DType, to: DType, v: &Val) -> Result<Val, String> {
        self.convert_within(from, to, v, 6)
    }

    /// The same; what is selected is converted before, `depth` times.
    fn convert_within(
        &mut self,
        from: DType,
        to: DType,
        v: &Val,
        depth: u32,
    ) -> Result<Val, String> {
        if from == to {
            return Ok(v.clone());
        }
        // These types have zero, infinities and NaN: converted to themselves.
        let plain = |d: DType| matches!(d, DType::Bf16 | DType::F16 | DType::F32 | DType::F64);
        if plain(from) && plain(to) {
            use scalify_terms::arith::{NAN, NEG_INF};
            if let scalify_terms::Op::Const(id @ (NAN | NEG_INF)) = self.st.class(v.r.class).op {
                let x = self.st.special(dt_of(to), id);
                return Ok(Val { coef: v.coef, ..x });
            }
        }
        if plain(from) && plain(to) && depth > 0 && self.st.rules.reals {
            let long = || "numbers grow too long".to_owned();
            if let Some((p, x, axis)) = self.st.one_hot(v) {
                // One term at most is not 0.
                let x = self.convert_within(from, to, &x, depth - 1)?;
                let dt = dt_of(to);
                let g = self.st.indicator(dt, &p);
                let x = self.st.mul(dt, &g, &x).ok_or_else(long)?;
                return self.st.sum(dt, &x, &[axis]).ok_or_else(long);
            }
            if let Some((p, a, b)) = self.st.selection(v) {
                let a = self.convert_within(from, to, &a, depth - 1)?;
                let b = match b {
                    Some(b) => self.convert_within(from, to, &b, depth - 1)?,
                    None => self.st.zero(dt_of(to)),
                };
                return self.st.select(dt_of(to), &p, &a, &b).ok_or_else(long);
            }
        }
        let dt = dt_of(to);
        if from == DType::Pred {
            return Ok(self.st.convert_pred(dt, v));
        }
        if from.is_int() && to.is_int() {
            return Ok(self.fit(Some(v.clone()), Opcode::Convert, to, std::slice::from_ref(v)));
        }
        if to == DType::Pred {
            if from.is_int() {
                if let Some(p) = self.st.eq0(v) {
                    return Ok(self.st.not(&p));
                }
            }
            let s = self.st.sym(&format!("convert-to-pred:{from}"));
            return Ok(self.st.ew(s, dt, false, std::slice::from_ref(v)));
        }
        if let Some(c) = self.st.as_const(v) {
            if !to.is_int() && !from.is_complex() && !to.is_complex() {
                // A constant that the new type holds exactly stays a number.
                let x = self.st.coefs.to_f64(c);
                let exact = self.st.coefs.float(x) == Some(c);
                if exact && literal_exact(x, to) {
                    return Ok(self.st.constant(dt, c));
                }
            }
        }
        if from.is_int() && !to.is_int() {
            let s = self.st.sym("convert-int");
            return Ok(self.st.ew(s, dt, false, std::slice::from_ref(v)));
        }
        let s = self.st.sym("convert");
        // Narrow after widening is the identity.
        let wider = |a: DType, b: DType| -> bool {
            matches!(
                (a, b),
                (DType::Bf16 | DType::F16, DType::F32 | DType::F64) | (DType::F32, DType::F64)
            )
        };
        if wider(to, from) && v.coef == Coef::ONE {
            let c = self.st.class(v.r.class);
            if c.op == scalify_terms::Op::Ew(s) {
                if let Some((a, _)) = self.st.open(&v.r) {
                    let x = self.st.val_of(&a[0]);
                    if x.dt == dt {
                        return Ok(x);
                    }
                }
            }
        }
        if to.is_int() {
            return Ok(self.typed("convert", to, false, std::slice::from_ref(v)));
        }
        Ok(self.st.ew(s, dt, false, std::slice::from_ref(v)))
    }

    /// map: the body applied pointwise; bodies of one elementwise instruction
    /// or compositions of such.
    pub(super) fn lift_map(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let (dims, _) = self.array(i)?;
        let mut ts: SmallVec<[Tv; 3]> = v.iter().filter_map(|x| x.tensor().cloned()).collect();
        if ts.len() != v.len() || ts.iter().any(|t| t.dims.len() != dims.len()) {
            return Err("map over values of different rank".to_owned());
        }
        let (first, rest) = ts.split_first_mut().ok_or("map without operands")?;
        for _ in 0..2 {
            for t in rest.iter_mut() {
                self.st.align(first, t).ok_or("dimension splits clash")?;
            }
        }
        let args: Vec<Val> = ts.iter().map(|t| t.val.clone()).collect();
        let body = *self.m.instr(i).calls.first().ok_or("map without body")?;
        let val = self.pointwise_body(body, &args)?;
        Ok(Lv::T(Tv { val, dims: ts[0].dims.clone() }))
    }

    /// Value of a scalar computation applied pointwise.
    pub(super) fn pointwise_body(
        &mut self,
        body: scalify_ir::CompId,
        args: &[Val],
    ) -> Result<Val, String> {
        let m = self.m;
        let c = m.comp(body);
        let mut env: Vec<(InstrId, Val)> = Vec::new();
        for &i in &c.instrs {
            let ins = m.instr(i);
            let get = |o: InstrId| env.iter().find(|e| e.0 == o).map(|e| e.1.clone());
            let v = match (ins.opcode, &ins.attrs) {
                (Opcode::Parameter, Attrs::Parameter(k)) => {
                    args.get(*k as usize).cloned().ok_or("body has too many parameters")?
                }
                (Opcode::Constant, _) => match self.lift_constant(i)? {
                    Lv::T(t) => t.val,
                    _ => return Err("tuple constant in a scalar body".to_owned()),
                },
                (op, _)
                    if op.is_unary_elementwise()
                        || op.is_binary_elementwise()
                        || matches!(op, Opcode::Select | Opcode::Clamp) =>
                {
                    let mut a: SmallVec<[Val; 3]> = SmallVec::new();
                    for &o in &ins.operands {
                        a.push(get(o).ok_or("operand missing")?);
                    }
                    if op == Opcode::Copy {
                        a[0].clone()
                    } else {
                        let from: SmallVec<[DType; 3]> =
                            ins.operands.iter().filter_map(|&o| m.dtype(o)).collect();
                        let d = m.dtype(i).ok_or("no array")?;
                        self.pointwise(i, op, d, &from, &a)?
                    }
                }
                (op, _) => return Err(format!("{op} in a scalar body")),
            };
            env.push((i, v));
        }
        env.iter().find(|e| e.0 == c.root).map(|e| e.1.clone()).ok_or_else(|| "no root".to_owned())
    }
}

/// True if a float type holds the value exactly.
fn literal_exact(x: f64, d: DType) -> bool {
    match d {
        DType::F64 => true,
        DType::F32 => f64::from(x as f32) == x,
        DType::Bf16 | DType::F16 => {
            let Some(m) = d.mantissa_bits() else { return false };
            if x == 0.0 {
                return true;
            }
            let (lo, hi) = if d == DType::F16 { (6.2e-5, 65504.0) } else { (1.2e-38, 3.3e38) };
            let bits = x.to_bits() & ((1 << 52) - 1);
            bits.trailing_zeros() >= 53 - m && x.abs() >= lo && x.abs() <= hi
        }
        _ => false,
    }
}

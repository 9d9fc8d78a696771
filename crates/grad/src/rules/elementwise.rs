//! Operations element by element.

use crate::Ties;
use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, Comparison, DType, InstrId, Opcode};

impl Work<'_> {
    pub(super) fn elementwise(
        &mut self,
        out: InstrId,
        op: Opcode,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        use Opcode::*;
        match (op, xs) {
            (Add, &[x, y]) => {
                self.accumulate(cts, x, ct)?;
                self.accumulate(cts, y, ct)
            }
            (Subtract, &[x, y]) => {
                self.accumulate(cts, x, ct)?;
                if self.is_active(y) {
                    let g = self.e.neg(ct)?;
                    self.accumulate(cts, y, g)?;
                }
                Ok(())
            }
            (Multiply, &[x, y]) => {
                if self.is_active(x) {
                    let g = self.e.mul(ct, y)?;
                    self.accumulate(cts, x, g)?;
                }
                if self.is_active(y) {
                    let g = self.e.mul(x, ct)?;
                    self.accumulate(cts, y, g)?;
                }
                Ok(())
            }
            (Divide, &[x, y]) => {
                if let Some(v) = self.logistic(x, y) {
                    // Written out; y (1 - y) does not overflow where exp does.
                    let a = self.e.array(out)?;
                    let one = self.e.full(&a, 1.0)?;
                    let r = self.e.sub(one, out)?;
                    let d = self.e.mul(out, r)?;
                    let g = self.e.mul(ct, d)?;
                    let g = self.e.neg(g)?;
                    return self.accumulate(cts, v, g);
                }
                let g = self.e.div(ct, y)?;
                self.accumulate(cts, x, g)?;
                if self.is_active(y) {
                    let g = self.e.mul(g, out)?;
                    let g = self.e.neg(g)?;
                    self.accumulate(cts, y, g)?;
                }
                Ok(())
            }
            (Power, &[x, y]) => self.power(out, x, y, ct, cts),
            (Maximum | Minimum, &[x, y]) => self.extremum(out, op, x, y, ct, cts),
            (Atan2, &[x, y]) => {
                let (xx, yy) = (self.e.mul(x, x)?, self.e.mul(y, y)?);
                let r = self.e.add(xx, yy)?;
                let c = self.e.div(ct, r)?;
                let g = self.e.mul(c, y)?;
                self.accumulate(cts, x, g)?;
                let g = self.e.mul(c, x)?;
                let g = self.e.neg(g)?;
                self.accumulate(cts, y, g)
            }
            (Remainder, &[x, y]) => {
                self.accumulate(cts, x, ct)?;
                if self.is_active(y) {
                    let q = self.e.div(x, y)?;
                    let (s, a) = (self.e.un(Sign, q)?, self.e.un(Abs, q)?);
                    let f = self.e.un(Floor, a)?;
                    let q = self.e.mul(s, f)?;
                    let g = self.e.mul(ct, q)?;
                    let g = self.e.neg(g)?;
                    self.accumulate(cts, y, g)?;
                }
                Ok(())
            }
            (Select, &[p, x, y]) => {
                let a = self.e.array(ct)?;
                let zero = self.e.full(&a, 0.0)?;
                if self.is_active(x) {
                    let g = self.e.select(p, ct, zero)?;
                    self.accumulate(cts, x, g)?;
                }
                if self.is_active(y) {
                    let g = self.e.select(p, zero, ct)?;
                    self.accumulate(cts, y, g)?;
                }
                Ok(())
            }
            (Clamp, &[lo, x, hi]) => self.clamp(lo, x, hi, ct, cts),
            (Convert, &[x]) => {
                let t = self.e.array(x)?.dtype;
                let g = self.e.convert(ct, t)?;
                self.accumulate(cts, x, g)
            }
            (BitcastConvert | StochasticConvert, _) => {
                Err(internal(format!("a derivative of {op}"), "an operation on real numbers"))
            }
            (_, &[x]) => {
                let g = self.unary(out, op, x, ct)?;
                self.accumulate(cts, x, g)
            }
            _ => Err(internal(
                format!("no derivative of {op} is known"),
                "an operation with a rule (docs/NUMBERS.md lists them)",
            )),
        }
    }

    fn unary(&mut self, out: InstrId, op: Opcode, x: InstrId, ct: InstrId) -> Res<InstrId> {
        use Opcode::*;
        let e = &mut self.e;
        match op {
            Copy => Ok(ct),
            ReducePrecision => {
                let attrs: Attrs = e.m.instr(out).attrs.clone();
                e.op(ReducePrecision, attrs, &[ct], &[], None)
            }
            Negate => e.neg(ct),
            Exponential => e.mul(ct, out),
            ExponentialMinusOne => {
                let d = e.plus(out, 1.0)?;
                e.mul(ct, d)
            }
            Log => e.div(ct, x),
            LogPlusOne => {
                let d = e.plus(x, 1.0)?;
                e.div(ct, d)
            }
            Tanh => {
                // (1 - y)(1 + y), without cancellation.
                let a = e.array(out)?;
                let one = e.full(&a, 1.0)?;
                let d = e.sub(one, out)?;
                let g = e.mul(ct, d)?;
                let h = e.mul(g, out)?;
                e.add(g, h)
            }
            Logistic => {
                let a = e.array(out)?;
                let one = e.full(&a, 1.0)?;
                let r = e.sub(one, out)?;
                let d = e.mul(out, r)?;
                e.mul(ct, d)
            }
            Sqrt => {
                let h = e.scaled(ct, 0.5)?;
                e.div(h, out)
            }
            Rsqrt => {
                let d = e.div(out, x)?;
                let d = e.scaled(d, -0.5)?;
                e.mul(ct, d)
            }
            Cbrt => {
                let yy = e.mul(out, out)?;
                let d = e.scaled(yy, 3.0)?;
                e.div(ct, d)
            }
            Sine => {
                let d = e.un(Cosine, x)?;
                e.mul(ct, d)
            }
            Cosine => {
                let d = e.un(Sine, x)?;
                let g = e.mul(ct, d)?;
                e.neg(g)
            }
            Tan => {
                let yy = e.mul(out, out)?;
                let d = e.plus(yy, 1.0)?;
                e.mul(ct, d)
            }
            Sinh => {
                let d = e.un(Cosh, x)?;
                e.mul(ct, d)
            }
            Cosh => {
                let d = e.un(Sinh, x)?;
                e.mul(ct, d)
            }
            Asin | Acos => {
                let a = e.array(x)?;
                let (one, xx) = (e.full(&a, 1.0)?, e.mul(x, x)?);
                let r = e.sub(one, xx)?;
                let d = e.un(Rsqrt, r)?;
                let g = e.mul(ct, d)?;
                if op == Asin { Ok(g) } else { e.neg(g) }
            }
            Asinh => {
                let xx = e.mul(x, x)?;
                let r = e.plus(xx, 1.0)?;
                let d = e.un(Rsqrt, r)?;
                e.mul(ct, d)
            }
            Acosh => {
                let (lo, hi) = (e.plus(x, -1.0)?, e.plus(x, 1.0)?);
                let (lo, hi) = (e.un(Rsqrt, lo)?, e.un(Rsqrt, hi)?);
                let d = e.mul(lo, hi)?;
                e.mul(ct, d)
            }
            Atanh => {
                let a = e.array(x)?;
                let (one, xx) = (e.full(&a, 1.0)?, e.mul(x, x)?);
                let r = e.sub(one, xx)?;
                e.div(ct, r)
            }
            Erf => {
                let xx = e.mul(x, x)?;
                let n = e.neg(xx)?;
                let d = e.un(Exponential, n)?;
                let d = e.scaled(d, std::f64::consts::FRAC_2_SQRT_PI)?;
                e.mul(ct, d)
            }
            Abs => {
                let d = e.un(Sign, x)?;
                e.mul(ct, d)
            }
            _ => Err(internal(
                format!("no derivative of {op} is known"),
                "an operation with a rule (docs/NUMBERS.md lists them)",
            )),
        }
    }

    /// The `v` of `1 / (1 + exp(v))`.
    fn logistic(&self, x: InstrId, y: InstrId) -> Option<InstrId> {
        let m = &self.e.m;
        let one = |mut i: InstrId| {
            while matches!(m.instr(i).opcode, Opcode::Broadcast | Opcode::Reshape) {
                i = *m.instr(i).operands.first()?;
            }
            let l = m.literal(i)?;
            let a = l.shape.as_array()?;
            let b = l.bytes()?;
            let is = match a.dtype {
                DType::F32 => b == 1f32.to_le_bytes(),
                DType::F64 => b == 1f64.to_le_bytes(),
                DType::Bf16 => b == [0x80, 0x3f],
                DType::F16 => b == [0x00, 0x3c],
                _ => false,
            };
            is.then_some(())
        };
        one(x)?;
        let sum = m.instr(y);
        let &[a, b] = &sum.operands[..] else { return None };
        let e = match (sum.opcode, one(a), one(b)) {
            (Opcode::Add, Some(()), _) => b,
            (Opcode::Add, _, Some(())) => a,
            _ => return None,
        };
        let e = m.instr(e);
        (e.opcode == Opcode::Exponential).then(|| e.operands.first().copied())?
    }

    fn power(
        &mut self,
        out: InstrId,
        x: InstrId,
        y: InstrId,
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let a = self.e.array(out)?;
        let (zero, one) = (self.e.full(&a, 0.0)?, self.e.full(&a, 1.0)?);
        if self.is_active(x) {
            // y x^(y-1), and 0 for y = 0 wherever x is.
            let none = self.e.compare(Comparison::Eq, y, zero)?;
            let less = self.e.sub(y, one)?;
            let less = self.e.select(none, one, less)?;
            let p = self.e.bin(Opcode::Power, x, less)?;
            let d = self.e.mul(y, p)?;
            let g = self.e.mul(ct, d)?;
            self.accumulate(cts, x, g)?;
        }
        if self.is_active(y) {
            let none = self.e.compare(Comparison::Eq, x, zero)?;
            let safe = self.e.select(none, one, x)?;
            let l = self.e.un(Opcode::Log, safe)?;
            let d = self.e.mul(l, out)?;
            let g = self.e.mul(ct, d)?;
            self.accumulate(cts, y, g)?;
        }
        Ok(())
    }

    fn extremum(
        &mut self,
        out: InstrId,
        op: Opcode,
        x: InstrId,
        y: InstrId,
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let a = self.e.array(out)?;
        for (mine, other) in [(x, y), (y, x)] {
            if !self.is_active(mine) {
                continue;
            }
            let g = match self.o.ties {
                Ties::Zero => {
                    let d = if op == Opcode::Maximum { Comparison::Gt } else { Comparison::Lt };
                    let p = self.e.compare(d, mine, other)?;
                    let zero = self.e.full(&a, 0.0)?;
                    self.e.select(p, ct, zero)?
                }
                Ties::Split => {
                    let (zero, one) = (self.e.full(&a, 0.0)?, self.e.full(&a, 1.0)?);
                    let two = self.e.full(&a, 2.0)?;
                    let p = self.e.compare(Comparison::Eq, mine, out)?;
                    let q = self.e.compare(Comparison::Eq, other, out)?;
                    let p = self.e.select(p, one, zero)?;
                    let q = self.e.select(q, two, one)?;
                    let share = self.e.div(p, q)?;
                    self.e.mul(ct, share)?
                }
            };
            self.accumulate(cts, mine, g)?;
        }
        Ok(())
    }

    fn clamp(
        &mut self,
        lo: InstrId,
        x: InstrId,
        hi: InstrId,
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let a = self.e.array(ct)?;
        let dims = a.dims.to_vec();
        let zero = self.e.full(&a, 0.0)?;
        let (l, h) = (self.e.broadcast(lo, &dims, &[])?, self.e.broadcast(hi, &dims, &[])?);
        let all: Vec<i64> = (0..dims.len() as i64).collect();
        let p = self.e.compare(Comparison::Gt, x, l)?;
        let q = self.e.compare(Comparison::Lt, x, h)?;
        let both = self.e.bin(Opcode::And, p, q)?;
        let g = self.e.select(both, ct, zero)?;
        self.accumulate(cts, x, g)?;
        // min(max(x, lo), hi)
        let raised = self.e.bin(Opcode::Maximum, x, l)?;
        let p = self.e.compare(Comparison::Gt, l, x)?;
        let q = self.e.compare(Comparison::Lt, l, h)?;
        let below = self.e.bin(Opcode::And, p, q)?;
        let above = self.e.compare(Comparison::Gt, raised, h)?;
        for (bound, p) in [(lo, below), (hi, above)] {
            if self.is_active(bound) {
                let mut g = self.e.select(p, ct, zero)?;
                if self.e.dims(bound).len() != dims.len() {
                    g = self.e.sum(g, &all)?;
                }
                self.accumulate(cts, bound, g)?;
            }
        }
        Ok(())
    }
}

//! Sorting and the largest elements.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, Comparison, DType, InstrId, Opcode, Shape};

impl Work<'_> {
    pub(super) fn ordered(
        &mut self,
        out: InstrId,
        op: Opcode,
        xs: &[InstrId],
        leaves: &[InstrId],
        given: &[Option<InstrId>],
        cts: &mut Cotangents,
    ) -> Res<()> {
        if op == Opcode::TopK {
            return self.top(xs, leaves, given, cts);
        }
        let i = self.e.m.instr(out);
        let (Attrs::Sort { dim, .. }, Some(&f)) = (i.attrs.clone(), i.calls.first()) else {
            return Err(internal("attributes of sort", "those of the opcode"));
        };
        // Sort positions along, then put the cotangents back to them.
        let first = *xs.first().ok_or_else(|| internal("a sort of nothing", "operands"))?;
        let d = self.e.dims(first);
        let iota = self.e.iota(DType::S32, &d, dim)?;
        let types = xs.iter().map(|&x| Ok(self.e.array(x)?.dtype)).collect::<Res<Vec<_>>>()?;
        self.e.begin("compares");
        let mut p = Vec::new();
        for &t in types.iter().chain([&DType::S32]) {
            p.push(self.e.parameter(Shape::array(t, []))?);
            p.push(self.e.parameter(Shape::array(t, []))?);
        }
        let r = self.e.op(Opcode::Call, Attrs::None, &p[..2 * xs.len()], &[f], None)?;
        let compares = self.e.end(r)?;
        let all: Vec<InstrId> = xs.iter().chain([&iota]).copied().collect();
        let attrs = Attrs::Sort { dim, stable: true };
        let s = self.e.op(Opcode::Sort, attrs.clone(), &all, &[compares], None)?;
        let perm = self.e.element(s, xs.len())?;
        let wanted: Vec<usize> =
            (0..xs.len()).filter(|&k| given[k].is_some() && self.is_active(xs[k])).collect();
        self.e.begin("less");
        let mut p = Vec::new();
        for t in [DType::S32].into_iter().chain(wanted.iter().map(|&k| types[k])) {
            p.push(self.e.parameter(Shape::array(t, []))?);
            p.push(self.e.parameter(Shape::array(t, []))?);
        }
        let r = self.e.compare(Comparison::Lt, p[0], p[1])?;
        let less = self.e.end(r)?;
        if wanted.is_empty() {
            return Ok(());
        }
        let all: Vec<InstrId> =
            [perm].into_iter().chain(wanted.iter().filter_map(|&k| given[k])).collect();
        let s = self.e.op(Opcode::Sort, attrs, &all, &[less], None)?;
        for (j, &k) in wanted.iter().enumerate() {
            let g = self.e.element(s, 1 + j)?;
            self.accumulate(cts, xs[k], g)?;
        }
        Ok(())
    }

    /// Values and their indices along the last dimension.
    fn top(
        &mut self,
        xs: &[InstrId],
        leaves: &[InstrId],
        given: &[Option<InstrId>],
        cts: &mut Cotangents,
    ) -> Res<()> {
        let (&[x, ..], &[_, idx], &[Some(ct), _]) = (xs, leaves, given) else {
            return Err(internal("results of topk", "values and indices"));
        };
        let d = self.e.dims(x);
        let c = self.e.dims(ct);
        let r = d.len() as i64;
        let wide: Vec<i64> = c.iter().copied().chain(d.last().copied()).collect();
        let map: Vec<i64> = (0..r).collect();
        let index = self.e.array(idx)?.dtype;
        let all = self.e.iota(index, &wide, r)?;
        let at = self.e.broadcast(idx, &wide, &map)?;
        let here = self.e.compare(Comparison::Eq, at, all)?;
        let t = self.e.array(ct)?.dtype;
        let here = self.e.convert(here, t)?;
        let g = self.e.broadcast(ct, &wide, &map)?;
        let g = self.e.mul(g, here)?;
        let g = self.e.sum(g, &[r - 1])?;
        self.accumulate(cts, x, g)
    }

    pub(super) fn custom(
        &mut self,
        out: InstrId,
        xs: &[InstrId],
        leaves: &[InstrId],
        given: &[Option<InstrId>],
        cts: &mut Cotangents,
    ) -> Res<()> {
        let i = self.e.m.instr(out);
        let target = match &i.attrs {
            Attrs::CustomCall(c) => self.e.m.str(c.target).to_owned(),
            _ => String::new(),
        };
        match target.as_str() {
            "TopK" => self.top(xs, leaves, given, cts),
            _ => Err(internal(
                format!("a derivative of custom-call \"{target}\""),
                "TopK, Sharding, or no custom-call on the way of the gradient",
            )),
        }
    }
}

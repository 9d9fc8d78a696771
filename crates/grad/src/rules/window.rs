//! Reductions over windows.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, CompareKind, Comparison, DType, InstrId, Opcode, Shape, WindowDim};

impl Work<'_> {
    pub(super) fn reduce_window(
        &mut self,
        out: InstrId,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let i = self.e.m.instr(out);
        let (Attrs::Window(w), &[x, init], Some(&f)) = (i.attrs.clone(), xs, i.calls.first())
        else {
            return Err(internal("a derivative of a reduction of several operands", "one operand"));
        };
        self.constant_init(init)?;
        match self.monoid(f) {
            Some(Opcode::Add) => {
                let g = self.window_sum(x, &w, ct)?;
                self.accumulate(cts, x, g)
            }
            Some(op @ (Opcode::Maximum | Opcode::Minimum)) => {
                let dilated = w.iter().any(|w| w.base_dilation != 1 || w.window_dilation != 1);
                if dilated {
                    return Err(internal(
                        "a derivative of a dilated maximum over windows",
                        "windows without dilation",
                    ));
                }
                let t = self.e.array(x)?.dtype;
                let select = self.comparator(op, t)?;
                let add = self.e.reducer(Opcode::Add, t)?;
                let zero = self.e.scalar(t, 0.0)?;
                // Padding must never be chosen: it is put on beforehand.
                let d = self.e.dims(x);
                let low = if op == Opcode::Maximum { f64::NEG_INFINITY } else { f64::INFINITY };
                let fill = self.e.scalar(t, low)?;
                let p: Vec<_> = w.iter().map(|w| (w.pad_low, w.pad_high)).collect();
                let padded = self.pad_with(x, fill, &p)?;
                let bare: Vec<WindowDim> =
                    w.iter().map(|w| WindowDim { pad_low: 0, pad_high: 0, ..*w }).collect();
                let g = self.e.op(
                    Opcode::SelectAndScatter,
                    Attrs::Window(bare),
                    &[padded, ct, zero],
                    &[select, add],
                    None,
                )?;
                let back: Vec<_> = p.iter().map(|p| (-p.0, -p.1, 0)).collect();
                let g = self.e.pad(g, &back)?;
                debug_assert_eq!(self.e.dims(g), d);
                self.accumulate(cts, x, g)
            }
            _ => Err(internal(
                "a derivative of a reduction over windows by another computation",
                "a sum, maximum or minimum",
            )),
        }
    }

    fn pad_with(&mut self, x: InstrId, v: InstrId, p: &[(i64, i64)]) -> Res<InstrId> {
        if p.iter().all(|&p| p == (0, 0)) {
            return Ok(x);
        }
        let p = p.iter().map(|p| scalify_ir::PadDim { low: p.0, high: p.1, interior: 0 });
        self.e.op(Opcode::Pad, Attrs::Pad(p.collect()), &[x, v], &[], None)
    }

    /// `(x, y) -> x >= y` or `x <= y`.
    fn comparator(&mut self, op: Opcode, t: DType) -> Res<scalify_ir::CompId> {
        self.e.begin("chooses");
        let x = self.e.parameter(Shape::array(t, []))?;
        let y = self.e.parameter(Shape::array(t, []))?;
        let direction = if op == Opcode::Maximum { Comparison::Ge } else { Comparison::Le };
        let kind: Option<CompareKind> = None;
        let attrs = Attrs::Compare { direction, kind };
        let r = self.e.op(Opcode::Compare, attrs, &[x, y], &[], None)?;
        self.e.end(r)
    }

    /// Each element gets the sum over the windows that it is in.
    fn window_sum(&mut self, x: InstrId, w: &[WindowDim], ct: InstrId) -> Res<InstrId> {
        let (d, n) = (self.e.dims(x), self.e.dims(ct));
        if n.contains(&0) || d.contains(&0) {
            let a = self.e.array(x)?;
            return self.e.full(&a, 0.0);
        }
        let mut pads = Vec::new();
        let mut dims = Vec::new();
        for k in 0..d.len() {
            let w = w.get(k).copied().unwrap_or_default();
            let spread = (n[k] - 1) * w.stride + 1;
            let reach = (w.size - 1) * w.window_dilation;
            let low = reach - w.pad_low;
            let high = (d[k] - 1) * w.base_dilation + reach + 1 - spread - low;
            pads.push((low, high, w.stride - 1));
            dims.push(WindowDim {
                size: w.size,
                stride: w.base_dilation,
                window_dilation: w.window_dilation,
                ..WindowDim::default()
            });
        }
        let p = self.e.pad(ct, &pads)?;
        let t = self.e.array(x)?.dtype;
        let zero = self.e.scalar(t, 0.0)?;
        let f = self.e.reducer(Opcode::Add, t)?;
        self.e.op(Opcode::ReduceWindow, Attrs::Window(dims), &[p, zero], &[f], None)
    }
}

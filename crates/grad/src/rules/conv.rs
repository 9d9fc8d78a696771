//! Convolutions.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, ConvAttrs, InstrId, Opcode, Shape, WindowDim};

/// `lhs` [batch, feature, spatial..], `rhs` [out, in, spatial..].
fn canonical(window: Vec<WindowDim>, features: i64, batches: i64) -> Attrs {
    let s: Vec<i64> = (2..2 + window.len() as i64).collect();
    Attrs::Conv(Box::new(ConvAttrs {
        window,
        input_batch: 0,
        input_feature: 1,
        input_spatial: s.iter().copied().collect(),
        kernel_output_feature: 0,
        kernel_input_feature: 1,
        kernel_spatial: s.iter().copied().collect(),
        output_batch: 0,
        output_feature: 1,
        output_spatial: s.iter().copied().collect(),
        feature_group_count: features,
        batch_group_count: batches,
        precision: Vec::new(),
    }))
}

impl Work<'_> {
    pub(super) fn convolution(
        &mut self,
        out: InstrId,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let (Attrs::Conv(c), &[x, y]) = (self.e.m.instr(out).attrs.clone(), xs) else {
            return Err(internal("attributes of convolution", "those of the opcode"));
        };
        let order = |a: i64, b: i64, s: &[i64]| -> Vec<i64> {
            [a, b].into_iter().chain(s.iter().copied()).collect()
        };
        let px = order(c.input_batch, c.input_feature, &c.input_spatial);
        let py = order(c.kernel_output_feature, c.kernel_input_feature, &c.kernel_spatial);
        let po = order(c.output_batch, c.output_feature, &c.output_spatial);
        let (tx, ty) = (self.e.array(x)?.dtype, self.e.array(y)?.dtype);
        let wide = self.e.array(ct)?.dtype;
        // Reversed windows are kernels read backwards.
        let reversed: Vec<i64> = (0..c.window.len())
            .filter(|&k| c.window[k].reversal)
            .map(|k| c.kernel_spatial.get(k).copied().unwrap_or(0))
            .collect();
        let flip = |w: &mut Self, v: InstrId| -> Res<InstrId> {
            if reversed.is_empty() {
                return Ok(v);
            }
            let attrs = Attrs::Dims(reversed.iter().copied().collect());
            w.e.op(Opcode::Reverse, attrs, &[v], &[], None)
        };
        let lhs = self.e.convert(x, wide)?;
        let lhs = self.e.transpose(lhs, &px)?;
        let rhs = self.e.convert(y, wide)?;
        let rhs = flip(self, rhs)?;
        let rhs = self.e.transpose(rhs, &py)?;
        let g = self.e.transpose(ct, &po)?;
        let (dl, dr, dg) = (self.e.dims(lhs), self.e.dims(rhs), self.e.dims(g));
        if dl.iter().chain(&dr).chain(&dg).any(|&d| d == 0) {
            for v in [x, y] {
                let a = self.e.array(v)?;
                let z = self.e.full(&a, 0.0)?;
                self.accumulate(cts, v, z)?;
            }
            return Ok(());
        }
        let back = |p: &[i64]| -> Vec<i64> {
            let mut b = vec![0i64; p.len()];
            for (k, &q) in p.iter().enumerate() {
                if let Some(x) = b.get_mut(q as usize) {
                    *x = k as i64;
                }
            }
            b
        };
        let (groups, batches) = (c.feature_group_count.max(1), c.batch_group_count.max(1));
        let declared = |dims: &[i64]| Some(Shape::array(wide, dims.iter().copied()));
        if self.is_active(x) {
            let window: Vec<WindowDim> = c
                .window
                .iter()
                .enumerate()
                .map(|(k, w)| {
                    let reach = (w.size - 1) * w.window_dilation;
                    let low = reach - w.pad_low;
                    let spread = (dg[2 + k] - 1) * w.stride + 1;
                    let high = (dl[2 + k] - 1) * w.base_dilation + reach + 1 - spread - low;
                    WindowDim {
                        size: w.size,
                        stride: w.base_dilation,
                        pad_low: low,
                        pad_high: high,
                        window_dilation: w.window_dilation,
                        base_dilation: w.stride,
                        reversal: true,
                    }
                })
                .collect();
            // [blocks, out per block, in, ..] -> [blocks * in, out per block, ..]
            let blocks = groups.max(batches);
            let (o, i) = (dr[0] / blocks, dr[1]);
            let split: Vec<i64> =
                [blocks, o, i].into_iter().chain(dr[2..].iter().copied()).collect();
            let swap: Vec<i64> = [0, 2, 1].into_iter().chain(3..split.len() as i64).collect();
            let joined: Vec<i64> =
                [blocks * i, o].into_iter().chain(dr[2..].iter().copied()).collect();
            let k = self.e.reshape(rhs, &split)?;
            let k = self.e.transpose(k, &swap)?;
            let k = self.e.reshape(k, &joined)?;
            let mut shape = dl.clone();
            (shape[0], shape[1]) = (dg[0], blocks * i);
            let attrs = canonical(window, blocks, 1);
            let mut r = self.e.op(Opcode::Convolution, attrs, &[g, k], &[], declared(&shape))?;
            if batches > 1 {
                // [n, batches * c, ..] -> [batches * n, c, ..]
                let s: Vec<i64> =
                    [dg[0], batches, i].into_iter().chain(dl[2..].iter().copied()).collect();
                r = self.e.reshape(r, &s)?;
                let p: Vec<i64> = [1, 0, 2].into_iter().chain(3..s.len() as i64).collect();
                r = self.e.transpose(r, &p)?;
                r = self.e.reshape(r, &dl)?;
            }
            let r = self.e.transpose(r, &back(&px))?;
            let r = self.e.convert(r, tx)?;
            self.accumulate(cts, x, r)?;
        }
        if self.is_active(y) {
            let window: Vec<WindowDim> = c
                .window
                .iter()
                .enumerate()
                .map(|(k, w)| {
                    let len = (dl[2 + k] - 1) * w.base_dilation + 1;
                    let reach = (dg[2 + k] - 1) * w.stride;
                    let high = (w.size - 1) * w.window_dilation + reach + 1 - len - w.pad_low;
                    WindowDim {
                        size: dg[2 + k],
                        stride: w.window_dilation,
                        pad_low: w.pad_low,
                        pad_high: high,
                        window_dilation: w.stride,
                        base_dilation: w.base_dilation,
                        reversal: false,
                    }
                })
                .collect();
            // Batch and feature change roles.
            let swap: Vec<i64> = [1, 0].into_iter().chain(2..dl.len() as i64).collect();
            let a = self.e.transpose(lhs, &swap)?;
            let b = self.e.transpose(g, &swap)?;
            let mut shape = dr.clone();
            (shape[0], shape[1]) = (dr[1], dr[0]);
            let attrs = canonical(window, batches, groups);
            let r = self.e.op(Opcode::Convolution, attrs, &[a, b], &[], declared(&shape))?;
            let r = self.e.transpose(r, &swap)?;
            let r = self.e.transpose(r, &back(&py))?;
            let r = flip(self, r)?;
            let r = self.e.convert(r, ty)?;
            self.accumulate(cts, y, r)?;
        }
        Ok(())
    }
}

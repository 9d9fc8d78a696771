//! Convolutions: sums over windows and features.

use super::{Lifter, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, ConvAttrs, DType, InstrId, WindowDim};
use scalify_terms::{Ax, Dt, Lins};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";
/// Largest dilation of an input of which each phase is a convolution.
const MAX_PHASES: i64 = 8;

impl Lifter<'_> {
    pub(super) fn lift_convolution(&mut self, i: InstrId, x: &Tv, k: &Tv) -> Result<Tv, String> {
        let ins = self.m.instr(i);
        let Attrs::Conv(c) = &ins.attrs else { return Err("convolution without window".into()) };
        let (acc, out) = self.accumulate_type(i, [ins.operands[0], ins.operands[1]])?;
        let mut x = self.st.freshen(x).ok_or(REACH)?;
        let mut k = self.st.freshen(k).ok_or(REACH)?;
        x.val = self.convert(self.array(ins.operands[0])?.1, acc, &x.val)?;
        k.val = self.convert(self.array(ins.operands[1])?.1, acc, &k.val)?;
        if !self.st.rules.reals {
            for (n, t) in [(0, &mut x), (1, &mut k)] {
                let p = c.precision.get(n).map_or("default", |&p| self.m.str(p));
                if !p.eq_ignore_ascii_case("default") {
                    t.val = self.rounded(p, acc, &t.val.clone());
                }
            }
        }
        let (out_sizes, _) = self.array(i)?;
        let outs: SmallVec<[i64; 6]> = SmallVec::from_slice(out_sizes);
        self.convolve(c, x, k, &c.window, &outs, (acc, out))
    }

    /// A convolution with these windows and sizes of the result.
    fn convolve(
        &mut self,
        c: &ConvAttrs,
        mut x: Tv,
        mut k: Tv,
        windows: &[WindowDim],
        out_sizes: &[i64],
        (acc, out): (DType, DType),
    ) -> Result<Tv, String> {
        let dt = dt_of(acc);
        if self.st.rules.finite {
            let phases = |s: &usize| {
                let (w, n) = (&windows[*s], out_sizes[c.output_spatial[*s] as usize]);
                (2..=MAX_PHASES).contains(&w.base_dilation)
                    && w.stride == 1
                    && w.window_dilation == 1
                    && w.size > 0
                    && n > 0
                    && n % w.base_dilation == 0
            };
            if let Some(s) = (0..windows.len()).find(phases) {
                return self.by_phase(c, s, &x, &k, windows, out_sizes, (acc, out));
            }
        }
        let zero = Tv::scalar(if dt == Dt::INT { self.st.int(0) } else { self.st.zero(dt) });
        let (fg, bg) = (c.feature_group_count.max(1), c.batch_group_count.max(1));
        // Split grouped dimensions into (group, rest) so that atoms match.
        let group = |s: &mut Self, t: &mut Tv, dim: i64, g: i64| -> Result<(), String> {
            let d = dim as usize;
            if g > 1 {
                let mut sizes: SmallVec<[i64; 6]> =
                    t.dims.iter().map(|a| s.st.dim_size(a)).collect();
                let n = sizes[d];
                sizes[d] = g;
                sizes.insert(d + 1, n / g);
                let r = s.st.reshape(t, &sizes).ok_or(REACH)?;
                let mut dims = r.dims;
                let minor = dims.remove(d + 1);
                dims[d].extend(minor);
                *t = Tv { val: r.val, dims };
            }
            Ok(())
        };
        let spatial = windows.len();
        let mut bound: SmallVec<[Ax; 8]> = SmallVec::new();
        let mut y_dims: Vec<Atoms> = Vec::new();
        for s in 0..spatial {
            let w = &windows[s];
            let (xd, kd) = (c.input_spatial[s] as usize, c.kernel_spatial[s] as usize);
            // Base dilation and padding of the input.
            let rank = x.dims.len();
            let mut conf = vec![scalify_ir::PadDim::default(); rank];
            conf[xd] = scalify_ir::PadDim {
                low: w.pad_low,
                high: w.pad_high,
                interior: w.base_dilation - 1,
            };
            x = self.pad_with(&x, &zero, &conf, acc)?;
            let padded = self.st.dim_size(&x.dims[xd]);
            let n_out = out_sizes[c.output_spatial[s] as usize];
            let y = self.st.fresh_dims(&[n_out]).remove(0);
            let v = self.st.fresh_dims(&[w.size]).remove(0);
            let mut parts: SmallVec<[(i64, scalify_terms::LinId); 2]> = SmallVec::new();
            if let Some(&a) = y.first() {
                parts.push((w.stride, Lins::plain(a)));
            }
            if let Some(&a) = v.first() {
                parts.push((w.window_dilation, Lins::plain(a)));
            }
            let at = self.st.lins.combine(&parts).ok_or(REACH)?;
            let (lo, hi) = self.st.lins.range(at);
            if n_out > 0 && (lo < 0 || hi >= padded.max(1)) {
                return Err("window leaves the padded input".to_owned());
            }
            self.st.index_dim(&mut x, xd, at).ok_or(REACH)?;
            let mut kat = match v.first() {
                Some(&a) => Lins::plain(a),
                None => self.st.lins.constant(0),
            };
            if w.reversal {
                let top = self.st.lins.constant(w.size - 1);
                kat = self.st.lins.combine(&[(1, top), (-1, kat)]).ok_or(REACH)?;
            }
            self.st.index_dim(&mut k, kd, kat).ok_or(REACH)?;
            bound.extend(v.iter().copied());
            y_dims.push(y);
        }
        let (xb, xf) = (c.input_batch as usize, c.input_feature as usize);
        let (ki, ko) = (c.kernel_input_feature as usize, c.kernel_output_feature as usize);
        group(self, &mut x, xf as i64, fg)?;
        group(self, &mut x, xb as i64, bg)?;
        group(self, &mut k, ko as i64, fg.max(bg))?;
        if fg > 1 && bg > 1 {
            return Err("feature and batch groups together".to_owned());
        }
        // Group atoms of the input are those of the kernel's output features.
        let g = fg.max(bg);
        let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
        let take_group = |st: &scalify_terms::Store, d: &Atoms, g: i64| -> Option<usize> {
            let mut p = 1;
            for (n, &a) in d.iter().enumerate() {
                if p == g {
                    return Some(n);
                }
                p *= st.lins.size(a);
            }
            (p == g).then_some(d.len())
        };
        let mut k_out: Atoms = k.dims[ko].clone();
        let mut x_batch: Atoms = x.dims[xb].clone();
        let mut x_feat: Atoms = x.dims[xf].clone();
        if g > 1 {
            let side = if fg > 1 { &mut x_feat } else { &mut x_batch };
            let (p, q) = (
                take_group(self.st, side, g).ok_or("group splits clash")?,
                take_group(self.st, &k_out, g).ok_or("group splits clash")?,
            );
            let (xs, ks): (Atoms, Atoms) = (side[..p].into(), k_out[..q].into());
            if xs.len() != ks.len()
                || xs.iter().zip(&ks).any(|(&a, &b)| self.st.lins.size(a) != self.st.lins.size(b))
            {
                return Err("group splits clash".to_owned());
            }
            map.extend(ks.iter().copied().zip(xs.iter().copied()));
            side.drain(..p);
        }
        // Contract features.
        x.dims[xf] = x_feat.clone();
        self.st.refine(&mut x, xf, &mut k, ki).ok_or("dimension splits clash")?;
        self.st.pair_atoms(&k.dims[ki], &x.dims[xf], &mut map).ok_or(REACH)?;
        bound.extend(x.dims[xf].iter().copied());
        self.st.rename(&mut k, &map).ok_or(REACH)?;
        k_out = k.dims[ko].clone();
        let val = self.st.dot(dt, &x.val, &k.val, &bound).ok_or(REACH)?;
        let val = if acc.is_int() { self.checked(val, acc)? } else { val };
        let val = self.convert(acc, out, &val)?;
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::from_elem(Atoms::new(), out_sizes.len());
        dims[c.output_batch as usize] = x_batch;
        dims[c.output_feature as usize] = k_out;
        for (s, y) in y_dims.into_iter().enumerate() {
            dims[c.output_spatial[s] as usize] = y;
        }
        Ok(Tv { val, dims })
    }

    /// A convolution of an input dilated along spatial dimension `s`: the
    /// results at `f*i + r`, `f` the dilation, are a convolution of the input
    /// itself with every `f`-th element of the kernel. Products of the kernel
    /// with the zeros in between are left out.
    fn by_phase(
        &mut self,
        c: &ConvAttrs,
        s: usize,
        x: &Tv,
        k: &Tv,
        windows: &[WindowDim],
        out_sizes: &[i64],
        (acc, out): (DType, DType),
    ) -> Result<Tv, String> {
        let w = &windows[s];
        let (xd, kd) = (c.input_spatial[s] as usize, c.kernel_spatial[s] as usize);
        let od = c.output_spatial[s] as usize;
        let (f, n) = (w.base_dilation, self.st.dim_size(&x.dims[xd]));
        let mut sizes: SmallVec<[i64; 6]> = SmallVec::from_slice(out_sizes);
        sizes[od] /= f;
        let mut parts = Vec::new();
        for r in 0..f {
            // The first element of the kernel that meets the input.
            let first = (w.pad_low - r).rem_euclid(f);
            let taps = if first < w.size { (w.size - first + f - 1) / f } else { 0 };
            let mut y = if taps == 0 {
                let dt = dt_of(out);
                let zero = if dt == Dt::INT { self.st.int(0) } else { self.st.zero(dt) };
                Tv { val: zero, dims: self.st.fresh_dims(&sizes) }
            } else {
                let shift = (r + first - w.pad_low) / f;
                let mut ws = windows.to_vec();
                ws[s] = WindowDim {
                    size: taps,
                    pad_low: -shift,
                    pad_high: sizes[od] + taps + shift - 1 - n,
                    base_dilation: 1,
                    ..*w
                };
                let start = if w.reversal { w.size - 1 - first - f * (taps - 1) } else { first };
                let mut part = k.clone();
                self.cut_dim(&mut part, kd, start, taps, f).ok_or(REACH)?;
                self.convolve(c, x.clone(), part, &ws, &sizes, (acc, out))?
            };
            y = self.st.freshen(&y).ok_or(REACH)?;
            let mut one = sizes.clone();
            one.insert(od + 1, 1);
            parts.push((1, self.st.reshape(&y, &one).ok_or(REACH)?));
        }
        self.st.assume("0 * x = 0");
        sizes.insert(od + 1, f);
        let t = self.join(dt_of(out), &parts, od + 1, &sizes)?;
        self.st.reshape(&t, out_sizes).ok_or_else(|| REACH.to_owned())
    }
}

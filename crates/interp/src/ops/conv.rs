//! `convolution`: patches gathered into a matrix, then a matrix product per
//! feature and batch group. Accumulates as `dot` does.

use super::dot::{
    Acc, accumulate, accumulator, as_c64, as_c128, as_f32, as_f64, as_i32, as_i64, finish,
};
use super::matmul::{Field, Steps, matmul};
use super::movement::transpose;
use super::par::update;
use super::window::{Hits, hits};
use crate::error::{Fail, Res, invalid};
use crate::tensor::{Tensor, count};
use scalify_ir::{ConvAttrs, DType};

/// Elements of one patch matrix.
const PATCH: usize = 1 << 21;

struct Plan {
    /// Output spatial position x window position to input position.
    hits: Vec<Hits>,
    /// Spatial sizes.
    input: Vec<usize>,
    output: Vec<usize>,
    window: Vec<usize>,
    /// Batch, input features, output features, features per kernel.
    batch: usize,
    ci: usize,
    co: usize,
    ck: usize,
    groups: usize,
    batch_groups: usize,
}

fn order(lead: i64, spatial: &[i64], tail: i64) -> Vec<i64> {
    std::iter::once(lead).chain(spatial.iter().copied()).chain([tail]).collect()
}

/// `convolution` with result dimensions `dims`.
pub(crate) fn convolution(
    x: &Tensor,
    w: &Tensor,
    at: &ConvAttrs,
    out: (DType, &[i64]),
    wide: bool,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Tensor> {
    let (out_type, dims) = out;
    let rank = at.window.len() + 2;
    if x.rank() != rank || w.rank() != rank || dims.len() != rank {
        return invalid(format!(
            "ranks {}, {} for {} spatial dimensions",
            x.rank(),
            w.rank(),
            rank - 2
        ));
    }
    if at.input_spatial.len() + 2 != rank
        || at.kernel_spatial.len() + 2 != rank
        || at.output_spatial.len() + 2 != rank
    {
        return invalid("dimension labels");
    }
    // [batch, spatial.., feature] and [spatial.., in, out].
    let xt = transpose(x.clone(), &order(at.input_batch, &at.input_spatial, at.input_feature))?;
    let mut korder: Vec<i64> = at.kernel_spatial.to_vec();
    korder.extend([at.kernel_input_feature, at.kernel_output_feature]);
    let wt = transpose(w.clone(), &korder)?;
    let oorder = order(at.output_batch, &at.output_spatial, at.output_feature);
    let mut inverse = vec![0i64; rank];
    let mut canon = Vec::new();
    for (i, &o) in oorder.iter().enumerate() {
        let Some(d) = usize::try_from(o).ok().filter(|&d| d < rank) else {
            return invalid("output dimension labels");
        };
        inverse[d] = i as i64;
        canon.push(dims[d]);
    }
    let s = rank - 2;
    let p = Plan {
        hits: (0..s)
            .map(|i| hits(&at.window[i], xt.dims[1 + i], canon[1 + i]))
            .collect::<Res<_>>()?,
        input: xt.dims[1..=s].iter().map(|&d| d as usize).collect(),
        output: canon[1..=s].iter().map(|&d| d as usize).collect(),
        window: wt.dims[..s].iter().map(|&d| d as usize).collect(),
        batch: xt.dims[0] as usize,
        ci: xt.dims[s + 1] as usize,
        ck: wt.dims[s] as usize,
        co: wt.dims[s + 1] as usize,
        groups: at.feature_group_count.max(1) as usize,
        batch_groups: at.batch_group_count.max(1) as usize,
    };
    let fits = p.ck.checked_mul(p.groups) == Some(p.ci)
        && p.co.is_multiple_of(p.groups)
        && p.co.is_multiple_of(p.batch_groups)
        && p.batch.is_multiple_of(p.batch_groups)
        && canon[0] as usize == p.batch / p.batch_groups
        && canon[s + 1] as usize == p.co
        && (p.groups == 1 || p.batch_groups == 1)
        && (0..s).all(|i| p.window[i] as i64 == at.window[i].size)
        && count(&canon).is_some();
    if !fits {
        return invalid(format!("{:?} and {:?} do not give {:?}", x.dims, w.dims, dims));
    }
    let t = accumulate!(accumulator(x.dtype, w.dtype, out_type, wide), &xt, &wt, |a, b| {
        finish(run(&a, &b, &p, tick)?, out_type, &canon, wide)?
    });
    transpose(t, &inverse)
}

fn run<T: Field>(x: &[T], w: &[T], p: &Plan, tick: &mut dyn FnMut() -> Res<()>) -> Res<Vec<T>> {
    let out_spatial: usize = p.output.iter().product();
    let win: usize = p.window.iter().product();
    let in_spatial: usize = p.input.iter().product();
    let bsize = p.batch / p.batch_groups;
    let mut out = vec![T::default(); bsize * out_spatial * p.co];
    if out.is_empty() || x.is_empty() || w.is_empty() {
        return Ok(out);
    }
    let parts = p.groups * p.batch_groups;
    let n = p.co / parts;
    let k = win * p.ck;
    let rows = bsize * out_spatial;
    let table = Table::new(p, out_spatial, win);
    let plain = table.is_identity(in_spatial) && parts == 1;
    let per = (PATCH / k.max(1)).clamp(1, rows);
    let mut patch = vec![T::default(); if plain { 0 } else { per * k }];
    for part in 0..parts {
        let (g, bg) = if p.groups > 1 { (part, 0) } else { (0, part) };
        for r0 in (0..rows).step_by(per) {
            tick()?;
            let r1 = (r0 + per).min(rows);
            let m = r1 - r0;
            let fill = |at: usize, c: &mut [T]| {
                for (i, row) in c.chunks_exact_mut(k).enumerate() {
                    let r = r0 + at / k + i;
                    let (b, o) = (r / out_spatial, r % out_spatial);
                    let base = (bg * bsize + b) * in_spatial;
                    let copy = |cell: &mut [T], pixel: usize| {
                        let at = (base + pixel) * p.ci + g * p.ck;
                        let from = &x[at..at + cell.len()];
                        if cell.len() < 8 {
                            cell.iter_mut().zip(from).for_each(|(c, &x)| *c = x);
                        } else {
                            cell.copy_from_slice(from);
                        }
                    };
                    row.fill(T::default());
                    table.runs(p, o, |q, len, pixel| {
                        let cells = &mut row[q * p.ck..(q + len) * p.ck];
                        if p.ck == p.ci {
                            return copy(cells, pixel);
                        }
                        for (j, cell) in cells.chunks_exact_mut(p.ck).enumerate() {
                            copy(cell, pixel + j);
                        }
                    });
                }
            };
            let left = if plain {
                &x[r0 * k..r1 * k]
            } else {
                update(&mut patch[..m * k], k, 1, &fill);
                &patch[..m * k]
            };
            let prod = matmul((m, k, n), (left, Steps(k, 1)), (&w[part * n..], Steps(p.co, 1)));
            let Some(prod) = prod else { return Err(Fail::Invalid("matrix sizes".into())) };
            for (r, line) in prod.chunks_exact(n).enumerate() {
                let at = (r0 + r) * p.co + part * n;
                out[at..at + n].copy_from_slice(line);
            }
        }
    }
    Ok(out)
}

/// Which input pixels each output position meets: runs of window positions
/// over adjacent pixels. Computed anew where a table would be too big.
struct Table {
    win: usize,
    /// Window position, length, input pixel.
    runs: Vec<(u32, u32, u32)>,
    /// Where each output position's runs begin; none without a table.
    starts: Vec<u32>,
}

impl Table {
    fn new(p: &Plan, out: usize, win: usize) -> Table {
        let mut t = Table { win, runs: Vec::new(), starts: Vec::new() };
        let pixels = p.input.iter().fold(1usize, |a, &d| a.saturating_mul(d));
        if out.saturating_mul(win) > 1 << 22 || pixels >= 1 << 31 {
            return t;
        }
        let mut starts = vec![0];
        for o in 0..out {
            let runs = &mut t.runs;
            scan(p, o, win, |q, len, pixel| runs.push((q as u32, len as u32, pixel as u32)));
            starts.push(t.runs.len() as u32);
        }
        t.starts = starts;
        t
    }

    /// Calls `f(window position, length, input pixel)` for each run of `o`.
    #[inline]
    fn runs(&self, p: &Plan, o: usize, mut f: impl FnMut(usize, usize, usize)) {
        let (Some(&lo), Some(&hi)) = (self.starts.get(o), self.starts.get(o + 1)) else {
            return scan(p, o, self.win, f);
        };
        for &(q, len, pixel) in &self.runs[lo as usize..hi as usize] {
            f(q as usize, len as usize, pixel as usize);
        }
    }

    /// A window of one that meets every input pixel in order?
    fn is_identity(&self, input: usize) -> bool {
        let own = |(i, r): (usize, &(u32, u32, u32))| *r == (0, 1, i as u32);
        let all = self.win == 1 && self.starts.len() == input + 1 && self.runs.len() == input;
        all && self.runs.iter().enumerate().all(own)
    }
}

/// Calls `f` for each run of output position `o`.
fn scan(p: &Plan, o: usize, win: usize, mut f: impl FnMut(usize, usize, usize)) {
    let mut run: Option<(usize, usize, usize)> = None;
    for q in 0..win {
        let at = pixel(p, o, q);
        run = match (run, at) {
            (Some((q0, n, i)), Some(j)) if i + n == j => Some((q0, n + 1, i)),
            (before, _) => {
                if let Some((q0, n, i)) = before {
                    f(q0, n, i);
                }
                at.map(|i| (q, 1, i))
            }
        };
    }
    if let Some((q0, n, i)) = run {
        f(q0, n, i);
    }
}

/// Input pixel of output position `o` under window position `q`.
fn pixel(p: &Plan, mut o: usize, mut q: usize) -> Option<usize> {
    let (mut at, mut stride) = (0, 1);
    for d in (0..p.output.len()).rev() {
        let (oi, qi) = (o % p.output[d], q % p.window[d]);
        o /= p.output[d];
        q /= p.window[d];
        at += p.hits[d].get(oi, qi)? * stride;
        stride *= p.input[d];
    }
    Some(at)
}

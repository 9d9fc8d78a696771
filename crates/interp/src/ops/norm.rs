//! `batch-norm-training`, `-inference`, `-grad`, built from the elementwise
//! kernels in `f64`, rounded once.

use super::dot::{as_f64, finish};
use super::gather::dim;
use crate::error::{Res, invalid};
use crate::tensor::Tensor;
use scalify_ir::DType;

/// The operand as rows of (before, feature, after) with per-feature sums.
struct View {
    x: std::sync::Arc<Vec<f64>>,
    f: usize,
    inner: usize,
    /// Elements per feature.
    n: f64,
}

impl View {
    fn new(t: &Tensor, feature: i64) -> Res<View> {
        let d = dim(feature, t.rank())?;
        let f = t.dims[d] as usize;
        let inner = t.dims[d + 1..].iter().product::<i64>() as usize;
        let n = t.len().checked_div(f).unwrap_or(0);
        Ok(View { x: as_f64(t)?, f, inner, n: n as f64 })
    }

    fn feature(&self, i: usize) -> usize {
        i / self.inner % self.f
    }

    fn mean(&self, g: impl Fn(usize, f64) -> f64) -> Vec<f64> {
        let mut s = vec![0.0; self.f];
        for (i, &x) in self.x.iter().enumerate() {
            s[self.feature(i)] += g(i, x);
        }
        s.iter().map(|v| v / self.n).collect()
    }
}

fn per_feature(t: &Tensor, v: &View) -> Res<std::sync::Arc<Vec<f64>>> {
    if t.len() != v.f {
        return invalid(format!("{:?} for {} features", t.dims, v.f));
    }
    as_f64(t)
}

/// `x * rsqrt(mean(x^2) + epsilon) * weight`, the mean over dimension `d`,
/// which the weight has: what `AwsNeuronRmsNorm` of transformers-neuronx
/// stands for (`hlo.rms_norm_legacy` there).
pub(crate) fn rms(ops: &[Tensor], d: i64, to: DType, wide: bool) -> Res<Tensor> {
    let [x, weight, epsilon] = ops else { return invalid("expects three operands") };
    let v = View::new(x, d)?;
    let w = per_feature(weight, &v)?;
    let [eps] = as_f64(epsilon)?[..] else { return invalid("expects a scalar epsilon") };
    let row = |i: usize| i / (v.inner * v.f) * v.inner + i % v.inner;
    let mut squares = vec![0.0; v.x.len().checked_div(v.f).unwrap_or(0)];
    v.x.iter().enumerate().for_each(|(i, x)| squares[row(i)] += x * x);
    let one = |(i, x): (usize, &f64)| {
        let mean = squares[row(i)] / v.f as f64;
        x / (mean + eps).sqrt() * w[v.feature(i)]
    };
    finish(v.x.iter().enumerate().map(one).collect(), to, &x.dims, wide)
}

/// Result, batch mean, batch variance.
pub(crate) fn training(ops: &[Tensor], eps: f32, feature: i64, wide: bool) -> Res<[Tensor; 3]> {
    let [x, scale, offset] = ops else { return invalid("expects three operands") };
    let v = View::new(x, feature)?;
    let (sc, of) = (per_feature(scale, &v)?, per_feature(offset, &v)?);
    let mean = v.mean(|_, x| x);
    let var = v.mean(|i, x| (x - mean[v.feature(i)]).powi(2));
    let y = normalise(&v, &mean, &var, &sc, &of, eps);
    let d = [v.f as i64];
    Ok([
        finish(y, x.dtype, &x.dims, wide)?,
        finish(mean, x.dtype, &d, wide)?,
        finish(var, x.dtype, &d, wide)?,
    ])
}

fn normalise(v: &View, mean: &[f64], var: &[f64], sc: &[f64], of: &[f64], eps: f32) -> Vec<f64> {
    let one = |(i, &x): (usize, &f64)| {
        let f = v.feature(i);
        (x - mean[f]) / (var[f] + eps as f64).sqrt() * sc[f] + of[f]
    };
    v.x.iter().enumerate().map(one).collect()
}

/// Normalisation with a given mean and variance.
pub(crate) fn inference(ops: &[Tensor], eps: f32, feature: i64, wide: bool) -> Res<Tensor> {
    let [x, scale, offset, mean, var] = ops else { return invalid("expects five operands") };
    let v = View::new(x, feature)?;
    let p: Vec<_> =
        [scale, offset, mean, var].iter().map(|t| per_feature(t, &v)).collect::<Res<_>>()?;
    finish(normalise(&v, &p[2], &p[3], &p[0], &p[1], eps), x.dtype, &x.dims, wide)
}

/// Gradients of operand, scale, offset.
pub(crate) fn grad(ops: &[Tensor], eps: f32, feature: i64, wide: bool) -> Res<[Tensor; 3]> {
    let [x, scale, mean, var, g] = ops else { return invalid("expects five operands") };
    let v = View::new(x, feature)?;
    let p: Vec<_> = [scale, mean, var].iter().map(|t| per_feature(t, &v)).collect::<Res<_>>()?;
    let gv = as_f64(g)?;
    if g.dims != x.dims {
        return invalid(format!("gradient {:?} of {:?}", g.dims, x.dims));
    }
    let inv: Vec<f64> = p[2].iter().map(|s| 1.0 / (s + eps as f64).sqrt()).collect();
    let centred = |i: usize, x: f64| x - p[1][v.feature(i)];
    let mg = v.mean(|i, _| gv[i]);
    let mgx = v.mean(|i, x| gv[i] * centred(i, x));
    let dx = |(i, &x): (usize, &f64)| {
        let f = v.feature(i);
        p[0][f] * inv[f] * (gv[i] - mg[f] - centred(i, x) * mgx[f] * inv[f] * inv[f])
    };
    let d = [v.f as i64];
    let dscale: Vec<f64> = (0..v.f).map(|f| mgx[f] * v.n * inv[f]).collect();
    let doffset: Vec<f64> = mg.iter().map(|m| m * v.n).collect();
    let dx: Vec<f64> = v.x.iter().enumerate().map(dx).collect();
    Ok([
        finish(dx, x.dtype, &x.dims, wide)?,
        finish(dscale, x.dtype, &d, wide)?,
        finish(doffset, x.dtype, &d, wide)?,
    ])
}

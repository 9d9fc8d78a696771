//! Comparison of the outputs of one evaluation.

use super::{Difference, Refuter, Verdict};
use crate::compare::{self, differs, numbers};
use crate::evaluate::Results;
use crate::place;
use scalify_claim::Placement;
use scalify_ir::ArrayShape;

impl Refuter<'_> {
    /// Compares all outputs of one evaluation. Every device counts.
    pub(super) fn compare(
        &self,
        b: &Results,
        bound: &dyn Fn(usize, usize) -> Vec<f64>,
        d: &Results,
        plain: Option<(&Results, &Results)>,
    ) -> Option<Verdict> {
        let mut found = Vec::new();
        let mut top = 0f64;
        let mut undefined = false;
        for (k, (shape, placements)) in self.outputs.iter().enumerate() {
            // A difference only if no admissible layout explains the values.
            let mut best: Option<Difference> = None;
            let mut explained = false;
            for q in placements {
                match self.compare_output(k, shape, q, b, bound, d, plain)? {
                    Ok((worst, nan)) => {
                        top = top.max(worst);
                        undefined |= nan;
                        explained = true;
                        break;
                    }
                    Err(x) => {
                        if best.as_ref().is_none_or(|y| x.count.0 < y.count.0) {
                            best = Some(x);
                        }
                    }
                }
            }
            if !explained {
                found.extend(best);
            }
        }
        Some(if found.is_empty() {
            Verdict::Same { worst: top, undefined }
        } else {
            Verdict::Differ(found)
        })
    }

    fn compare_output(
        &self,
        k: usize,
        shape: &ArrayShape,
        q: &Placement,
        b: &Results,
        bound: &dyn Fn(usize, usize) -> Vec<f64>,
        d: &Results,
        plain: Option<(&Results, &Results)>,
    ) -> Option<Result<(f64, bool), Difference>> {
        let q = Some(q).filter(|q| !q.is_replicated());
        let w = compare::width(shape.dtype);
        let mut worst: Option<(f64, Difference)> = None;
        let (mut bad, mut all, mut devices, mut top) = (0, 0, Vec::new(), 0f64);
        let mut undefined = false;
        let mut cached: Option<(Vec<f64>, Vec<f64>)> = None;
        for dev in 0..self.p.devices as usize {
            if cached.is_none() || self.p.local_inputs {
                let e = self.expected(b, dev, k)?;
                if e.dims != shape.dims {
                    return None;
                }
                cached = Some((numbers(e), bound(k, dev)));
            }
            let (e, limit) = cached.as_ref()?;
            let got_t = d.get(dev)?.get(k)?;
            let got = numbers(got_t);
            let mut here = false;
            for (l, g) in place::positions(&shape.dims, q, dev as u32)? {
                for c in 0..w {
                    let (want, is) = (*e.get(g * w + c)?, *got.get(l * w + c)?);
                    let lim = *limit.get(g * w + c)?;
                    all += 1;
                    undefined |= want.is_nan() && is.is_finite();
                    let size = if want == is { 0.0 } else { (want - is).abs() / lim };
                    if !differs(want, is, lim) {
                        if size.is_finite() {
                            top = top.max(size);
                        }
                        continue;
                    }
                    bad += 1;
                    here = true;
                    // Finite differences are the clearer ones.
                    let size = if size.is_finite() { size } else { 1.0 };
                    if worst.as_ref().is_none_or(|x| size > x.0) {
                        let native = |r: &Results, dev: usize, at: usize| {
                            r.get(dev)
                                .and_then(|v| v.get(k))
                                .map(numbers)
                                .and_then(|v| v.get(at).copied())
                        };
                        let base_dev = if self.p.local_inputs { dev } else { 0 };
                        let pair = plain.and_then(|(x, y)| {
                            Some((native(x, base_dev, g * w + c)?, native(y, dev, l * w + c)?))
                        });
                        worst = Some((
                            size,
                            Difference {
                                output: k,
                                device: dev as u32,
                                index: unflatten(g, &shape.dims),
                                local: unflatten(l, &got_t.dims),
                                expected: want,
                                actual: is,
                                plain: pair.unwrap_or((want, is)),
                                bound: lim,
                                count: (0, 0),
                                devices: Vec::new(),
                                placement: q.cloned(),
                            },
                        ));
                    }
                }
            }
            if here {
                devices.push(dev as u32);
            }
        }
        Some(match worst {
            Some((_, mut x)) => {
                x.count = (bad, all);
                x.devices = devices;
                Err(x)
            }
            None => Ok((top, undefined)),
        })
    }
}

fn unflatten(mut k: usize, dims: &[i64]) -> Vec<i64> {
    let mut out = vec![0; dims.len()];
    for d in (0..dims.len()).rev() {
        let n = dims[d].max(1) as usize;
        out[d] = (k % n) as i64;
        k /= n;
    }
    out
}

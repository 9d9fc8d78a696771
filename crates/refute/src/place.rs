//! Blocks of arrays on devices, as a [`Placement`] says.

use scalify_claim::Placement;
use scalify_interp::{Data, Tensor};
use scalify_ir::ArrayShape;

/// Pairs (position in the local array, position in the global array) of what
/// `device` holds, in row-major order; padding of uneven blocks is left out.
/// `None` if the ranks do not fit.
pub fn positions(
    global: &[i64],
    q: Option<&Placement>,
    device: u32,
) -> Option<Vec<(usize, usize)>> {
    let n = usize::try_from(global.iter().product::<i64>()).ok()?;
    let Some(q) = q.filter(|q| !q.is_replicated()) else {
        return Some((0..n).map(|k| (k, k)).collect());
    };
    if q.dims.len() != global.len() {
        return None;
    }
    let local = q.local_shape(global)?;
    let mut out = vec![(0usize, 0usize)];
    for (d, p) in q.dims.iter().enumerate() {
        let (g, l) = (global[d], local[d]);
        let spans = if p.tiles > 1 { p.spans(g, device) } else { vec![(0, l)] };
        if !p.sections.is_empty() && p.sections.iter().sum::<i64>() != g {
            return None;
        }
        let mut next = Vec::with_capacity(out.len() * l.max(0) as usize);
        for &(a, b) in &out {
            let mut held = 0;
            for &(start, len) in &spans {
                for i in 0..(g - start).clamp(0, len) {
                    let (x, y) = ((held + i) as usize, (start + i) as usize);
                    next.push((a * l as usize + x, b * g as usize + y));
                }
                held += len;
            }
        }
        out = next;
    }
    Some(out)
}

/// The block of `t` that `device` holds. Padding of uneven blocks repeats the
/// array's first element, so that a program that reads it is found out. Values
/// stored wider than their type stay so.
pub fn block(t: &Tensor, q: Option<&Placement>, device: u32) -> Option<Tensor> {
    let Some(q) = q.filter(|q| !q.is_replicated()) else { return Some(t.clone()) };
    let local = q.local_shape(&t.dims)?;
    if let Data::F64(v) = &t.data {
        let n = usize::try_from(local.iter().product::<i64>()).ok()?;
        let mut out = vec![v.first().copied().unwrap_or(0.0); n];
        for (a, b) in positions(&t.dims, Some(q), device)? {
            *out.get_mut(a)? = *v.get(b)?;
        }
        return Tensor::from_vec(t.dtype, local, out);
    }
    let width = t.dtype.literal_bytes();
    let bytes = t.to_bytes();
    let n = usize::try_from(local.iter().product::<i64>()).ok()?;
    let mut out = Vec::with_capacity(n * width);
    for _ in 0..n {
        out.extend_from_slice(bytes.get(..width).unwrap_or(&vec![0; width]));
    }
    for (a, b) in positions(&t.dims, Some(q), device)? {
        let src = bytes.get(b * width..(b + 1) * width)?;
        out.get_mut(a * width..(a + 1) * width)?.copy_from_slice(src);
    }
    Tensor::from_bytes(&ArrayShape::new(t.dtype, local), &out)
}

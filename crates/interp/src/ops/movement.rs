//! Data movement: nothing here looks at the value of an element, except
//! start indices.

use super::strided::{self, strides};
use crate::error::{Res, invalid};
use crate::tensor::{Data, Store, Tensor, each};
use scalify_ir::shape::Dims;
use scalify_ir::{DType, PadDim, SliceAttrs};
use std::sync::Arc;

fn out_of_range<T>() -> Res<T> {
    invalid("reads outside its operand")
}

fn view(t: &Tensor, off: i64, str: &[i64], dims: &[i64]) -> Res<Tensor> {
    let data = each!(&t.data, v => strided::read(v, off, str, dims).map(Data::from_vec));
    match data {
        Some(d) => Ok(Tensor::raw(t.dtype, dims, d)),
        None => out_of_range(),
    }
}

/// `reshape`, `bitcast` of equal element types.
pub(crate) fn reshape(t: Tensor, dims: &[i64]) -> Res<Tensor> {
    if crate::tensor::count(dims) != Some(t.len()) {
        return invalid(format!("{:?} has not the elements of {:?}", dims, t.dims));
    }
    Ok(Tensor { dims: dims.iter().copied().collect(), sizes: None, ..t })
}

/// Strides of `broadcast`.
pub(crate) fn broadcast_strides(t: &Tensor, map: &[i64], dims: &[i64]) -> Res<Vec<i64>> {
    if map.len() != t.rank() {
        return invalid(format!("{} dimensions for an operand of rank {}", map.len(), t.rank()));
    }
    let own = strides(&t.dims);
    let mut str = vec![0i64; dims.len()];
    for (i, &m) in map.iter().enumerate() {
        match usize::try_from(m).ok().and_then(|m| str.get_mut(m).zip(dims.get(m))) {
            Some((s, &d)) if t.dims[i] == d => *s = own[i],
            Some((_, _)) if t.dims[i] == 1 => {}
            _ => return invalid(format!("operand {:?} into {:?} by {:?}", t.dims, dims, map)),
        }
    }
    Ok(str)
}

/// `broadcast`: operand dimension `i` becomes result dimension `map[i]`.
pub(crate) fn broadcast(t: &Tensor, map: &[i64], dims: &[i64]) -> Res<Tensor> {
    view(t, 0, &broadcast_strides(t, map, dims)?, dims)
}

/// `transpose`: result dimension `i` is operand dimension `perm[i]`.
pub(crate) fn transpose(t: Tensor, perm: &[i64]) -> Res<Tensor> {
    let own = strides(&t.dims);
    let mut seen = vec![false; t.rank()];
    let (mut str, mut dims) = (Vec::new(), Vec::new());
    for &p in perm {
        match usize::try_from(p).ok().filter(|&p| p < t.rank() && !seen[p]) {
            Some(p) => {
                seen[p] = true;
                str.push(own[p]);
                dims.push(t.dims[p]);
            }
            None => return invalid(format!("permutation {perm:?} of rank {}", t.rank())),
        }
    }
    if perm.len() != t.rank() {
        return invalid(format!("permutation {perm:?} of rank {}", t.rank()));
    }
    if perm.iter().enumerate().all(|(i, &p)| i as i64 == p) {
        return Ok(Tensor { sizes: None, ..t });
    }
    view(&t, 0, &str, &dims)
}

/// `slice`.
pub(crate) fn slice(t: &Tensor, a: &SliceAttrs) -> Res<Tensor> {
    let r = t.rank();
    if a.start.len() != r || a.limit.len() != r || a.stride.len() != r {
        return invalid(format!("slice bounds for rank {r}"));
    }
    let own = strides(&t.dims);
    let (mut off, mut str, mut dims) = (0i64, Vec::new(), Vec::new());
    for (i, &own) in own.iter().enumerate() {
        let (lo, hi, step) = (a.start[i], a.limit[i], a.stride[i]);
        if lo < 0 || hi > t.dims[i] || lo > hi || step <= 0 {
            return invalid(format!("[{lo}:{hi}:{step}] of size {}", t.dims[i]));
        }
        off += lo * own;
        str.push(own.saturating_mul(step));
        dims.push(if hi == lo { 0 } else { (hi - lo - 1) / step + 1 });
    }
    view(t, off, &str, &dims)
}

/// `reverse`.
pub(crate) fn reverse(t: &Tensor, which: &[i64]) -> Res<Tensor> {
    let mut str = strides(&t.dims);
    let mut off = 0;
    for &d in which {
        match usize::try_from(d).ok().filter(|&d| d < t.rank() && str[d] >= 0) {
            Some(d) => {
                off += str[d] * (t.dims[d] - 1).max(0);
                str[d] = -str[d];
            }
            None => return invalid(format!("dimensions {which:?} of rank {}", t.rank())),
        }
    }
    view(t, off, &str, &t.dims.clone())
}

/// Start indices of dynamic-slice and -update-slice, clamped so that `sizes`
/// fits into `dims`.
fn clamped(start: &[i64], dims: &[i64], sizes: &[i64]) -> Res<Vec<i64>> {
    if start.len() != dims.len() || sizes.len() != dims.len() {
        return invalid(format!("{} start indices for rank {}", start.len(), dims.len()));
    }
    let one = |i: usize| {
        if sizes[i] < 0 || sizes[i] > dims[i] {
            return invalid(format!("slice of {} out of {}", sizes[i], dims[i]));
        }
        Ok(start[i].clamp(0, dims[i] - sizes[i]))
    };
    (0..dims.len()).map(one).collect()
}

/// Start indices given as scalars, or as one vector.
pub(crate) fn starts(t: &[Tensor]) -> Res<Vec<i64>> {
    let mut out = Vec::new();
    for s in t {
        match s.to_i64() {
            Some(v) => out.extend(v),
            None => return invalid("start index is no integer"),
        }
    }
    Ok(out)
}

/// `dynamic-slice`.
pub(crate) fn dynamic_slice(t: &Tensor, start: &[i64], sizes: &[i64]) -> Res<Tensor> {
    let at = clamped(start, &t.dims, sizes)?;
    let own = strides(&t.dims);
    view(t, at.iter().zip(&own).map(|(a, s)| a * s).sum(), &own, sizes)
}

fn write_into(mut t: Tensor, u: &Tensor, off: i64, str: &[i64]) -> Res<Tensor> {
    fn go<T: Store>(v: &mut Arc<Vec<T>>, u: &Tensor, off: i64, str: &[i64]) -> Res<()> {
        let Some(w) = T::get(&u.data) else { return invalid("element types differ") };
        match strided::write(w, &u.dims, Arc::make_mut(v).as_mut_slice(), off, str) {
            Some(()) => Ok(()),
            None => invalid("writes outside its operand"),
        }
    }
    each!(&mut t.data, v => go(v, u, off, str))?;
    Ok(t)
}

/// `dynamic-update-slice`.
pub(crate) fn dynamic_update_slice(t: Tensor, u: &Tensor, start: &[i64]) -> Res<Tensor> {
    let at = clamped(start, &t.dims, &u.dims)?;
    let own = strides(&t.dims);
    let off = at.iter().zip(&own).map(|(a, s)| a * s).sum();
    write_into(t, u, off, &own)
}

/// `concatenate`.
pub(crate) fn concatenate(parts: &[Tensor], dim: i64) -> Res<Tensor> {
    let Some(first) = parts.first() else { return invalid("no operands") };
    let Some(d) = usize::try_from(dim).ok().filter(|&d| d < first.rank()) else {
        return invalid(format!("dimension {dim} of rank {}", first.rank()));
    };
    let mut dims = first.dims.clone();
    dims[d] = 0;
    for p in parts {
        let same = p.rank() == dims.len()
            && (0..dims.len()).all(|i| i == d || p.dims[i] == dims[i])
            && p.dtype == first.dtype;
        if !same {
            return invalid(format!(
                "{}{:?} beside {}{:?}",
                p.dtype, p.dims, first.dtype, first.dims
            ));
        }
        dims[d] += p.dims[d];
    }
    let Some(n) = crate::tensor::count(&dims) else { return invalid("result too big") };
    let inner: usize = dims[d + 1..].iter().product::<i64>() as usize;
    fn go<T: Store>(first: &[T], parts: &[Tensor], d: usize, inner: usize, n: usize) -> Res<Data> {
        let mut out = Vec::with_capacity(n);
        let mut rows = Vec::new();
        for p in parts {
            let Some(v) = T::get(&p.data) else { return invalid("element types differ") };
            rows.push((v.as_slice(), p.dims[d] as usize * inner));
        }
        if rows.len() == 1 {
            return Ok(Data::from_vec(first.to_vec()));
        }
        let Some(&(v, k)) = rows.iter().find(|r| r.1 > 0) else {
            return Ok(Data::from_vec(out));
        };
        for o in 0..v.len() / k {
            for (v, k) in &rows {
                out.extend_from_slice(&v[o * k..(o + 1) * k]);
            }
        }
        Ok(Data::from_vec(out))
    }
    let data = each!(&first.data, v => go(v, parts, d, inner, n))?;
    Ok(Tensor::raw(first.dtype, &dims, data))
}

/// `pad`.
pub(crate) fn pad(t: &Tensor, value: &Tensor, pads: &[PadDim], dims: &[i64]) -> Res<Tensor> {
    if pads.len() != t.rank() || dims.len() != t.rank() {
        return invalid(format!("{} paddings for rank {}", pads.len(), t.rank()));
    }
    let out_str = strides(dims);
    let own = strides(&t.dims);
    // The elements that survive negative padding, per dimension.
    let (mut off, mut soff, mut kept) = (0i64, 0i64, Vec::new());
    let mut str = Vec::new();
    for (i, p) in pads.iter().enumerate() {
        let n = t.dims[i];
        let spread = if n > 0 { p.interior.checked_mul(n - 1) } else { Some(0) };
        let size = (|| n.checked_add(p.low)?.checked_add(p.high)?.checked_add(spread?))();
        let big = |x: i64| x.unsigned_abs() > 1 << 48;
        if p.interior < 0 || big(p.low) || big(p.high) || size.map(|s| s.max(0)) != Some(dims[i]) {
            return invalid(format!("size {n} padded by {p:?} is not {}", dims[i]));
        }
        let step = p.interior + 1;
        let first = if p.low >= 0 { 0 } else { (-p.low + step - 1) / step };
        // low + k*step <= dims-1
        let last = (dims[i] - 1 - p.low).div_euclid(step).min(n - 1);
        kept.push((last - first + 1).max(0));
        soff += first * own[i];
        off += (p.low + first * step).saturating_mul(out_str[i]);
        str.push(step.saturating_mul(out_str[i]));
    }
    let Some(n) = crate::tensor::count(dims) else { return invalid("result too big") };
    fn go<T: Store>(
        v: &[T],
        value: &Tensor,
        n: usize,
        run: impl Fn(&[T], &mut [T]) -> Option<()>,
    ) -> Res<Data> {
        let Some(&x) = T::get(&value.data).and_then(|w| w.first()) else {
            return invalid("padding value of another element type");
        };
        let mut out = vec![x; n];
        match run(v, &mut out) {
            Some(()) => Ok(Data::from_vec(out)),
            None => invalid("padding out of range"),
        }
    }
    let data = each!(&t.data, v => go(v, value, n, |v, out| {
        strided::copy(v, soff, &own, out, off, &str, &kept)
    }))?;
    Ok(Tensor::raw(t.dtype, dims, data))
}

/// `iota`.
pub(crate) fn iota(dtype: DType, dims: &[i64], dim: i64, wide: bool) -> Res<Tensor> {
    let Some(d) = usize::try_from(dim).ok().filter(|&d| d < dims.len()) else {
        return invalid(format!("iota dimension {dim} of rank {}", dims.len()));
    };
    let line: Vec<i64> = (0..dims[d]).collect();
    let line = Tensor::raw(DType::S64, &[dims[d]], Data::from_vec(line));
    let line = super::convert::convert(line, dtype, wide)?;
    broadcast(&line, &[dim], dims)
}

/// All elements as a tensor of one dimension.
pub(crate) fn flat(t: &Tensor) -> Tensor {
    let dims: Dims = [t.len() as i64].into_iter().collect();
    Tensor { dims, sizes: None, ..t.clone() }
}

/// Elements at `index`, as a vector; indices are in range.
pub(crate) fn take(t: &Tensor, index: &[usize]) -> Tensor {
    let data = each!(&t.data, v => Data::from_vec(index.iter().map(|&i| v[i]).collect::<Vec<_>>()));
    Tensor::raw(t.dtype, &[index.len() as i64], data)
}

/// Sets the elements at `index` of `t` to those of `u`; indices are in range.
pub(crate) fn put(t: &mut Tensor, index: &[usize], u: &Tensor) -> Res<()> {
    fn go<T: Store>(v: &mut Arc<Vec<T>>, index: &[usize], u: &Tensor) -> Res<()> {
        let Some(w) = T::get(&u.data) else { return invalid("element types differ") };
        let v = Arc::make_mut(v);
        for (&i, &x) in index.iter().zip(w.iter()) {
            v[i] = x;
        }
        Ok(())
    }
    each!(&mut t.data, v => go(v, index, u))
}

//! `gather`: start indices are clamped so that every slice is in range.

use super::strided::{self, odometer, strides};
use crate::error::{Res, invalid};
use crate::tensor::{Data, Store, Tensor, count, each};
use scalify_ir::GatherAttrs;

/// Index vectors laid out as rows.
pub(crate) struct Indices {
    /// One row of `width` numbers per batch position.
    pub(crate) rows: Vec<i64>,
    pub(crate) width: usize,
    /// Dimensions of the batch (index array without the vector dimension).
    pub(crate) batch: Vec<i64>,
}

/// Reads index vectors along `vector_dim` (may equal the rank: scalars).
pub(crate) fn indices(t: &Tensor, vector_dim: i64) -> Res<Indices> {
    let Some(v) = usize::try_from(vector_dim).ok().filter(|&d| d <= t.rank()) else {
        return invalid(format!("index vector dimension {vector_dim} of {:?}", t.dims));
    };
    let width = t.dims.get(v).map_or(1, |&d| d as usize);
    let perm: Vec<i64> = (0..t.rank())
        .filter(|&d| d != v)
        .chain((v < t.rank()).then_some(v))
        .map(|d| d as i64)
        .collect();
    let moved = super::movement::transpose(t.clone(), &perm)?;
    let batch = perm.iter().filter(|&&d| d != v as i64).map(|&d| t.dims[d as usize]).collect();
    match moved.to_i64() {
        Some(rows) => Ok(Indices { rows, width, batch }),
        None => invalid("indices are no integers"),
    }
}

/// Valid dimension number?
pub(crate) fn dim(d: i64, rank: usize) -> Res<usize> {
    match usize::try_from(d).ok().filter(|&d| d < rank) {
        Some(d) => Ok(d),
        None => invalid(format!("dimension {d} of rank {rank}")),
    }
}

/// Positions among the batch dimensions of dimensions of the index array.
pub(crate) fn batch_positions(dims: &[i64], vector_dim: i64, rank: usize) -> Res<Vec<usize>> {
    let one = |&d: &i64| {
        if d == vector_dim {
            return invalid("batching dimension is the index vector dimension");
        }
        dim(if d > vector_dim { d - 1 } else { d }, rank)
    };
    dims.iter().map(one).collect()
}

/// `gather` with result dimensions `dims`.
pub(crate) fn gather(x: &Tensor, idx: &Tensor, at: &GatherAttrs, dims: &[i64]) -> Res<Tensor> {
    let ix = indices(idx, at.index_vector_dim)?;
    let rank = x.rank();
    if at.slice_sizes.len() != rank || at.start_index_map.len() != ix.width {
        return invalid("slice sizes or start index map");
    }
    for (i, &s) in at.slice_sizes.iter().enumerate() {
        if s < 0 || s > x.dims[i] {
            return invalid(format!("slice of {s} out of {}", x.dims[i]));
        }
    }
    // Dimensions of the slice that stay, in order.
    let gone = |d: usize| {
        let d = d as i64;
        at.collapsed_slice_dims.contains(&d) || at.operand_batching_dims.contains(&d)
    };
    let window: Vec<usize> = (0..rank).filter(|&d| !gone(d)).collect();
    let map: Vec<usize> = at.start_index_map.iter().map(|&d| dim(d, rank)).collect::<Res<_>>()?;
    let opb: Vec<usize> =
        at.operand_batching_dims.iter().map(|&d| dim(d, rank)).collect::<Res<_>>()?;
    let idb =
        batch_positions(&at.start_indices_batching_dims, at.index_vector_dim, ix.batch.len())?;
    let off: Vec<usize> = at.offset_dims.iter().map(|&d| dim(d, dims.len())).collect::<Res<_>>()?;
    let bdims: Vec<usize> = (0..dims.len()).filter(|d| !off.contains(d)).collect();
    let fits = off.len() == window.len()
        && bdims.len() == ix.batch.len()
        && idb.len() == opb.len()
        && off.iter().zip(&window).all(|(&o, &w)| dims[o] == at.slice_sizes[w])
        && bdims.iter().zip(&ix.batch).all(|(&b, &n)| dims[b] == n)
        && (0..rank).all(|d| !gone(d) || at.slice_sizes[d] <= 1);
    if !fits {
        return invalid(format!("{:?} by {:?} does not give {:?}", x.dims, idx.dims, dims));
    }
    let Some(n) = count(dims) else { return invalid("result too big") };
    let (xs, os) = (strides(&x.dims), strides(dims));
    let sizes: Vec<i64> = window.iter().map(|&w| at.slice_sizes[w]).collect();
    let src: Vec<i64> = window.iter().map(|&w| xs[w]).collect();
    let dst: Vec<i64> = off.iter().map(|&o| os[o]).collect();
    let mut starts: Vec<(i64, i64)> = Vec::new();
    let mut row = 0;
    odometer(&ix.batch, |b| {
        let mut from = 0;
        for (k, &d) in map.iter().enumerate() {
            let i = ix.rows[row * ix.width + k];
            from += i.clamp(0, x.dims[d] - at.slice_sizes[d]) * xs[d];
        }
        for (&d, &p) in opb.iter().zip(&idb) {
            from += b[p] * xs[d];
        }
        let to = b.iter().zip(&bdims).map(|(i, &d)| i * os[d]).sum();
        starts.push((from, to));
        row += 1;
        Ok::<(), crate::error::Fail>(())
    })?;
    fn go<T: Store>(
        v: &[T],
        n: usize,
        starts: &[(i64, i64)],
        src: &[i64],
        dst: &[i64],
        sizes: &[i64],
    ) -> Option<Data> {
        let mut out = vec![T::default(); n];
        if n == 0 {
            return Some(Data::from_vec(out));
        }
        // Contiguous slices are the common case (embedding rows).
        let run = count(sizes)?;
        let solid = strides(sizes);
        let flat = |s: &[i64]| s.iter().zip(&solid).zip(sizes).all(|((a, b), &n)| n == 1 || a == b);
        let contiguous = flat(src) && flat(dst);
        for &(from, to) in starts {
            if contiguous {
                let part = v.get(from as usize..from as usize + run)?;
                out.get_mut(to as usize..to as usize + run)?.copy_from_slice(part);
            } else {
                strided::copy(v, from, src, &mut out, to, dst, sizes)?;
            }
        }
        Some(Data::from_vec(out))
    }
    let data = each!(&x.data, v => go(v, n, &starts, &src, &dst, &sizes));
    match data {
        Some(d) => Ok(Tensor::raw(x.dtype, dims, d)),
        None => invalid("index out of range"),
    }
}

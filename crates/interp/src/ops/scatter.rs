//! `scatter`: updates are applied in index order; an update whose window is
//! not wholly inside the operand is dropped.

use super::gather::{batch_positions, dim, indices};
use super::movement::{flat, put, take};
use super::reduce::{Apply, combine_fn};
use super::strided::{odometer, strides};
use crate::error::{Fail, Res, invalid};
use crate::tensor::{Store, Tensor, each};
use scalify_ir::{Opcode, ScatterAttrs};
use std::sync::Arc;

/// How an update meets the old value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Combiner {
    /// The update wins.
    Replace,
    /// A binary operation.
    Op(Opcode),
    /// Anything else.
    Other,
}

/// `scatter` of several operands at once.
pub(crate) fn scatter(
    x: Vec<Tensor>,
    idx: &Tensor,
    updates: &[Tensor],
    at: &ScatterAttrs,
    how: Combiner,
    f: &mut Apply<'_>,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Vec<Tensor>> {
    let (Some(first), Some(u), true) = (x.first(), updates.first(), x.len() == updates.len())
    else {
        return invalid("expects as many updates as operands");
    };
    let same = x.iter().all(|t| t.dims == first.dims) && updates.iter().all(|t| t.dims == u.dims);
    if !same || x.iter().zip(updates).any(|(a, b)| a.dtype != b.dtype) {
        return invalid("operand shapes");
    }
    let ix = indices(idx, at.index_vector_dim)?;
    let rank = first.rank();
    let inserted = |d: usize| {
        let d = d as i64;
        at.inserted_window_dims.contains(&d) || at.input_batching_dims.contains(&d)
    };
    let window: Vec<usize> = (0..rank).filter(|&d| !inserted(d)).collect();
    let uw: Vec<usize> =
        at.update_window_dims.iter().map(|&d| dim(d, u.rank())).collect::<Res<_>>()?;
    let ub: Vec<usize> = (0..u.rank()).filter(|d| !uw.contains(d)).collect();
    let map: Vec<usize> =
        at.scatter_dims_to_operand_dims.iter().map(|&d| dim(d, rank)).collect::<Res<_>>()?;
    let opb: Vec<usize> =
        at.input_batching_dims.iter().map(|&d| dim(d, rank)).collect::<Res<_>>()?;
    let idb =
        batch_positions(&at.scatter_indices_batching_dims, at.index_vector_dim, ix.batch.len())?;
    let fits = uw.len() == window.len()
        && map.len() == ix.width
        && idb.len() == opb.len()
        && ub.len() == ix.batch.len()
        && ub.iter().zip(&ix.batch).all(|(&d, &n)| u.dims[d] == n)
        && uw.iter().zip(&window).all(|(&d, &w)| u.dims[d] <= first.dims[w]);
    if !fits {
        return invalid(format!("{:?} by {:?} with {:?}", first.dims, idx.dims, u.dims));
    }
    let (xs, us) = (strides(&first.dims), strides(&u.dims));
    // Offsets of one window in the operand and in the updates.
    let sizes: Vec<i64> = uw.iter().map(|&d| u.dims[d]).collect();
    let mut cells = Vec::new();
    odometer(&sizes, |w| {
        let to: i64 = w.iter().zip(&window).map(|(i, &d)| i * xs[d]).sum();
        let from: i64 = w.iter().zip(&uw).map(|(i, &d)| i * us[d]).sum();
        cells.push((from as usize, to as usize));
        Ok::<(), Fail>(())
    })?;
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut row = 0;
    odometer(&ix.batch, |b| {
        let mut to = Some(0i64);
        for (k, &d) in map.iter().enumerate() {
            let i = ix.rows[row * ix.width + k];
            let w = window.iter().position(|&x| x == d).map_or(1, |p| sizes[p]);
            let ok = i >= 0 && i <= first.dims[d] - w;
            to = to.filter(|_| ok).map(|t| t + i * xs[d]);
        }
        for (&d, &p) in opb.iter().zip(&idb) {
            to = to.filter(|_| b[p] < first.dims[d]).map(|t| t + b[p] * xs[d]);
        }
        row += 1;
        let Some(to) = to else { return Ok(()) };
        let from: i64 = b.iter().zip(&ub).map(|(i, &d)| i * us[d]).sum();
        places.extend(cells.iter().map(|&(f, t)| (from as usize + f, to as usize + t)));
        Ok::<(), Fail>(())
    })?;
    if let ([t], Combiner::Replace | Combiner::Op(_)) = (&x[..], how) {
        let op = match how {
            Combiner::Op(o) => Some(o),
            _ => None,
        };
        let mut t = t.clone();
        drop(x);
        if typed_at(&mut t, u, &places, op)? {
            return Ok(vec![t]);
        }
        return general(vec![t], updates, &places, f, tick);
    }
    general(x, updates, &places, f, tick)
}

/// Applies (update index, operand index) pairs in order with a typed loop;
/// false if there is none for this type.
fn typed_at(
    t: &mut Tensor,
    u: &Tensor,
    places: &[(usize, usize)],
    op: Option<Opcode>,
) -> Res<bool> {
    fn go<T: Store>(
        v: &mut Arc<Vec<T>>,
        u: &Tensor,
        places: &[(usize, usize)],
        op: Option<Opcode>,
    ) -> Res<bool> {
        let f: fn(T, T) -> T = match op {
            None => |_, y| y,
            Some(op) => match combine_fn::<T>(op) {
                Some(f) => f,
                None => return Ok(false),
            },
        };
        let Some(w) = T::get(&u.data) else { return invalid("element types differ") };
        let v = Arc::make_mut(v);
        for &(from, to) in places {
            match (w.get(from), v.get_mut(to)) {
                (Some(&y), Some(x)) => *x = f(*x, y),
                _ => return invalid("index out of range"),
            }
        }
        Ok(true)
    }
    if op.is_some() && t.dtype.bits() < 8 {
        return Ok(false);
    }
    each!(&mut t.data, v => go(v, u, places, op))
}

/// Applies pairs in order, in batches without a repeated target.
fn general(
    mut x: Vec<Tensor>,
    updates: &[Tensor],
    places: &[(usize, usize)],
    f: &mut Apply<'_>,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Vec<Tensor>> {
    let n = x.first().map_or(0, Tensor::len);
    if places.iter().any(|p| p.1 >= n || updates.iter().any(|u| p.0 >= u.len())) {
        return invalid("index out of range");
    }
    let mut stamp = vec![0u32; n];
    let (mut batch, mut at) = (0u32, 0);
    while at < places.len() {
        tick()?;
        batch += 1;
        let mut end = at;
        while end < places.len() && stamp[places[end].1] != batch {
            stamp[places[end].1] = batch;
            end += 1;
        }
        let from: Vec<usize> = places[at..end].iter().map(|p| p.0).collect();
        let to: Vec<usize> = places[at..end].iter().map(|p| p.1).collect();
        let args = x.iter().map(|t| take(t, &to)).chain(updates.iter().map(|u| take(u, &from)));
        let r = f(args.collect())?;
        if r.len() != x.len() {
            return invalid("combiner returns another number of values");
        }
        for (t, r) in x.iter_mut().zip(&r) {
            put(t, &to, &flat(r))?;
        }
        at = end;
    }
    Ok(x)
}

/// Applies pairs to one operand with `op` if it is known, else with `f`.
pub(crate) fn accumulate_at(
    t: &mut Tensor,
    u: &Tensor,
    places: &[(usize, usize)],
    (op, f): (Option<Opcode>, &mut Apply<'_>),
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<()> {
    if t.dtype != u.dtype {
        return invalid("element types differ");
    }
    if op.is_some() && typed_at(t, u, places, op)? {
        return Ok(());
    }
    let mut r = general(vec![t.clone()], std::slice::from_ref(u), places, f, tick)?;
    if let Some(r) = r.pop() {
        *t = r;
    }
    Ok(())
}

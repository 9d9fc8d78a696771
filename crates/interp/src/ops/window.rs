//! `reduce-window` and `select-and-scatter`. Window positions in the padding
//! or between the elements of a dilated base do not take part.

use super::movement::{put, take};
use super::reduce::{Apply, combine_fn};
use super::strided::{odometer, strides};
use crate::error::{Res, invalid, unsupported};
use crate::tensor::{Data, Store, Tensor, count, each};
use scalify_ir::{Opcode, WindowDim};

/// For one dimension: input index of each (output, window) position.
pub(crate) struct Hits {
    window: usize,
    at: Vec<Option<u32>>,
}

impl Hits {
    pub(crate) fn get(&self, out: usize, window: usize) -> Option<usize> {
        self.at.get(out * self.window + window).copied().flatten().map(|i| i as usize)
    }
}

/// Positions of a window dimension over `input` elements giving `output`.
pub(crate) fn hits(w: &WindowDim, input: i64, output: i64) -> Res<Hits> {
    let all = [w.size, w.stride, w.pad_low, w.pad_high, w.window_dilation, w.base_dilation];
    if all.iter().any(|x| x.unsigned_abs() > 1 << 31) {
        return unsupported(format!("window {w:?}"));
    }
    if w.size < 0 || w.stride <= 0 || w.window_dilation <= 0 || w.base_dilation <= 0 {
        return invalid(format!("window {w:?}"));
    }
    let spread =
        |n: i64, d: i64| if n == 0 { Some(0) } else { (n - 1).checked_mul(d)?.checked_add(1) };
    let expect = (|| {
        let base =
            spread(input, w.base_dilation)?.checked_add(w.pad_low)?.checked_add(w.pad_high)?;
        let win = spread(w.size, w.window_dilation)?;
        Some(if win > base || base <= 0 { 0 } else { (base - win) / w.stride + 1 })
    })();
    if expect != Some(output) || input > u32::MAX as i64 {
        return invalid(format!("window {w:?} over {input} does not give {output}"));
    }
    let total = output.checked_mul(w.size).filter(|&n| n < 1 << 26);
    if total.is_none() {
        return invalid("window table too big");
    }
    let mut at = Vec::new();
    for o in 0..output {
        for q in 0..w.size {
            let q = if w.reversal { w.size - 1 - q } else { q };
            let p = o * w.stride + q * w.window_dilation - w.pad_low;
            let i = p.div_euclid(w.base_dilation);
            let hit = p >= 0 && p % w.base_dilation == 0 && i < input;
            at.push(hit.then_some(i as u32));
        }
    }
    Ok(Hits { window: w.size as usize, at })
}

fn tables(win: &[WindowDim], input: &[i64], output: &[i64]) -> Res<Vec<Hits>> {
    if win.len() != input.len() || output.len() != input.len() {
        return invalid(format!("{} window dimensions for rank {}", win.len(), input.len()));
    }
    (0..win.len()).map(|i| hits(&win[i], input[i], output[i])).collect()
}

/// Calls `f` with (output index, input index) of every pair that window
/// position `q` joins.
fn pairs(h: &[Hits], q: &[i64], input: &[i64], output: &[i64], mut f: impl FnMut(usize, usize)) {
    // Per dimension: (output offset, input offset) pairs.
    let (so, si) = (strides(output), strides(input));
    let lists: Vec<Vec<(usize, usize)>> = (0..h.len())
        .map(|d| {
            (0..output[d] as usize)
                .filter_map(|o| {
                    let i = h[d].get(o, q[d] as usize)?;
                    Some((o * so[d] as usize, i * si[d] as usize))
                })
                .collect()
        })
        .collect();
    let sizes: Vec<i64> = lists.iter().map(|l| l.len() as i64).collect();
    let Some((inner, outer)) = lists.split_last() else { return f(0, 0) };
    if inner.is_empty() {
        return;
    }
    let _: Result<(), ()> = odometer(&sizes[..outer.len()], |at| {
        let (mut o, mut i) = (0, 0);
        for (l, &k) in outer.iter().zip(at) {
            o += l[k as usize].0;
            i += l[k as usize].1;
        }
        for &(p, q) in inner {
            f(o + p, i + q);
        }
        Ok(())
    });
}

/// `reduce-window` of several operands at once.
pub(crate) fn reduce_window(
    x: &[Tensor],
    init: &[Tensor],
    win: &[WindowDim],
    dims: &[i64],
    known: Option<Opcode>,
    f: &mut Apply<'_>,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Vec<Tensor>> {
    let (Some(first), true) = (x.first(), x.len() == init.len()) else {
        return invalid("expects as many initial values as operands");
    };
    if x.iter().any(|t| t.dims != first.dims) || init.iter().any(|t| t.len() != 1) {
        return invalid("operand shapes");
    }
    let h = tables(win, &first.dims, dims)?;
    let Some(n) = count(dims) else { return invalid("result too big") };
    let sizes: Vec<i64> = win.iter().map(|w| w.size).collect();
    if let (Some(op), [t], [i]) = (known, x, init) {
        let fast = each!(&t.data, v => typed(v, i, &h, (&sizes, &t.dims, dims, n), op, t.dtype.bits() < 8, tick)?);
        if let Some(data) = fast {
            return Ok(vec![Tensor::raw(t.dtype, dims, data)]);
        }
    }
    let start = |t: &Tensor| Tensor::raw(t.dtype, &[n as i64], super::elementwise::splat(t, n));
    let mut acc: Vec<Tensor> = init.iter().map(start).collect();
    odometer(&sizes, |q| {
        tick()?;
        let (mut out, mut src) = (Vec::new(), Vec::new());
        pairs(&h, q, &first.dims, dims, |o, i| {
            out.push(o);
            src.push(i);
        });
        if out.is_empty() {
            return Ok(());
        }
        let args = acc.iter().map(|a| take(a, &out)).chain(x.iter().map(|t| take(t, &src)));
        let r = f(args.collect())?;
        for (a, r) in acc.iter_mut().zip(&r) {
            put(a, &out, r)?;
        }
        Ok(())
    })?;
    Ok(acc.into_iter().map(|t| Tensor { dims: dims.iter().copied().collect(), ..t }).collect())
}

type Sizes<'a> = (&'a [i64], &'a [i64], &'a [i64], usize);

fn typed<T: Store>(
    v: &[T],
    init: &Tensor,
    h: &[Hits],
    (sizes, input, dims, n): Sizes<'_>,
    op: Opcode,
    sub_byte: bool,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Option<Data>> {
    let Some(f) = combine_fn::<T>(op).filter(|_| !sub_byte) else { return Ok(None) };
    let Some(&i0) = T::get(&init.data).and_then(|i| i.first()) else {
        return invalid("initial value of another element type");
    };
    let mut acc = vec![i0; n];
    odometer(sizes, |q| {
        tick()?;
        pairs(h, q, input, dims, |o, i| acc[o] = f(acc[o], v[i]));
        Ok(())
    })?;
    Ok(Some(Data::from_vec(acc)))
}

/// `select-and-scatter`: `select` keeps its first argument where true.
pub(crate) fn select_and_scatter(
    x: &Tensor,
    source: &Tensor,
    init: &Tensor,
    win: &[WindowDim],
    select: &mut Apply<'_>,
    scatter: (Option<Opcode>, &mut Apply<'_>),
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Tensor> {
    if init.len() != 1 {
        return invalid("initial value is no scalar");
    }
    let h = tables(win, &x.dims, &source.dims)?;
    let n = source.len();
    let sizes: Vec<i64> = win.iter().map(|w| w.size).collect();
    let mut chosen: Vec<Option<usize>> = vec![None; n];
    odometer(&sizes, |q| {
        tick()?;
        let (mut out, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
        pairs(&h, q, &x.dims, &source.dims, |o, i| match chosen[o] {
            None => chosen[o] = Some(i),
            Some(c) => {
                out.push(o);
                old.push(c);
                new.push(i);
            }
        });
        if out.is_empty() {
            return Ok(());
        }
        let keep = select(vec![take(x, &old), take(x, &new)])?;
        let Some(Data::Bool(keep)) = keep.first().map(|t| &t.data) else {
            return invalid("select does not return pred");
        };
        for ((&o, &i), &k) in out.iter().zip(&new).zip(keep.iter()) {
            if !k {
                chosen[o] = Some(i);
            }
        }
        Ok(())
    })?;
    let data = super::elementwise::splat(init, x.len());
    let mut out = Tensor { data, dims: x.dims.clone(), dtype: x.dtype, sizes: None };
    let places: Vec<(usize, usize)> =
        chosen.iter().enumerate().filter_map(|(s, c)| Some((s, (*c)?))).collect();
    super::scatter::accumulate_at(&mut out, source, &places, scatter, tick)?;
    Ok(out)
}

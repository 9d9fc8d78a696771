//! Reductions, windows, sorting.

use super::*;
use crate::attrs::WindowDim;

/// Checks `f: (acc.., x..) -> acc..` with `n` accumulators. `types(i)` gives
/// the element types of initial value and input `i`.
pub(super) fn reducer(
    f: &Sig<'_>,
    n: usize,
    types: impl Fn(usize) -> Res<(DType, DType)>,
) -> Res<()> {
    need!(
        f.params() == 2 * n,
        format!("a reducer with {} parameters", 2 * n),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    let result = f.result()?;
    let parts = match result {
        Shape::Tuple(t) => &t[..],
        s => std::slice::from_ref(s),
    };
    need!(
        parts.len() == n && (n == 1 || result.as_tuple().is_some()),
        if n == 1 {
            "a scalar result".to_string()
        } else {
            format!("a tuple of {n} scalars as result")
        },
        "computation {} returns {result}",
        f.name()
    );
    for (i, r) in parts.iter().enumerate() {
        let acc = match r {
            Shape::Array(a) if a.dims.is_empty() => a,
            _ => return err!("scalar results", "computation {} returns {result}", f.name()),
        };
        let (init, input) = types(i)?;
        let p = f.param(i)?;
        need!(
            compatible(p, r, false),
            format!("parameter {i} of shape {r}"),
            "computation {} has {p}",
            f.name()
        );
        need!(
            same_type(acc.dtype, init, true),
            format!("an initial value of type {}", acc.dtype),
            "initial value {i} has type {init}"
        );
        let q = f.param(n + i)?;
        need!(
            q.as_array().is_some_and(|q| q.dims.is_empty()
                && same_type(q.dtype, input, true)
                && same_type(q.dtype, acc.dtype, true)),
            format!("parameter {} of shape {input}[]", n + i),
            "computation {} has {q}",
            f.name()
        );
    }
    Ok(())
}

/// `n` inputs of equal dimensions, then `n` scalars.
fn inputs_and_inits<'a>(c: &Ctx<'a>) -> Res<(&'a ArrayShape, usize)> {
    need!(c.len().is_multiple_of(2), "n inputs and n initial values", "{} operands", c.len());
    let n = c.len() / 2;
    let first = c.array(0)?;
    for i in 1..n {
        let a = c.array(i)?;
        need!(
            same_dims(&a.dims, &first.dims),
            "inputs of the same dimensions",
            "inputs {first} and {a}"
        );
    }
    for i in n..c.len() {
        c.scalar(i)?;
    }
    let types = |i: usize| Ok((c.array(n + i)?.dtype, c.array(i)?.dtype));
    reducer(&c.call(0)?, n, types)?;
    Ok((first, n))
}

/// One array per reducer result.
fn results<'a>(f: &Sig<'a>, n: usize, dims: DimsOut) -> Res<Out<'a>> {
    let r = f.result()?;
    match r {
        Shape::Array(a) if n == 1 => Ok(Out::Array(dims.array(a.dtype))),
        Shape::Tuple(t) => {
            let proto = dims.array(DType::Pred);
            let arrays = t.iter().map(|s| {
                let dtype = s.dtype().unwrap_or(DType::Pred);
                Out::Array(ArrayShape { dtype, ..proto.clone() })
            });
            Ok(Out::Tuple(arrays.collect()))
        }
        _ => err!("scalar results", "computation {} returns {r}", f.name()),
    }
}

pub(super) fn reduce<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dims(dims) = c.attrs else { return c.bad_attrs() };
    let (a, n) = inputs_and_inits(c)?;
    need!(
        distinct(dims, a.rank()),
        format!("distinct dimension numbers below {}", a.rank()),
        "dimensions={dims:?} of {a}"
    );
    let mut out = DimsOut::default();
    for i in 0..a.rank() {
        if !dims.contains(&(i as i64)) {
            out.copy(a, i);
        }
    }
    results(&c.call(0)?, n, out)
}

/// Result size of a window over a dimension of size `d` (not unbounded).
fn window_size(w: &WindowDim, d: i64) -> Option<i64> {
    let dilated =
        |n: i64, by: i64| if n == 0 { 0 } else { (i128::from(n) - 1) * i128::from(by) + 1 };
    let base = i128::from(w.pad_low) + dilated(d, w.base_dilation) + i128::from(w.pad_high);
    let window = dilated(w.size, w.window_dilation);
    if base < window || base <= 0 {
        return Some(0);
    }
    i64::try_from((base - window) / i128::from(w.stride) + 1).ok()
}

pub(super) fn window_dim(out: &mut DimsOut, w: &WindowDim, a: &ArrayShape, i: usize) -> Res<()> {
    push_window(out, w, a.dims[i], a.is_dynamic(i))
}

/// Appends the result dimension of one window dimension.
pub(super) fn push_window(out: &mut DimsOut, w: &WindowDim, d: i64, dynamic: bool) -> Res<()> {
    need!(
        w.size >= 1 && w.stride >= 1 && w.window_dilation >= 1 && w.base_dilation >= 1,
        "window size, stride and dilations of at least 1",
        "size={} stride={} rhs_dilate={} lhs_dilate={}",
        w.size,
        w.stride,
        w.window_dilation,
        w.base_dilation
    );
    let size = if d == Shape::UNBOUNDED { Some(d) } else { window_size(w, d) };
    let Some(size) = size else { return err!("a size below 2^63", "a window that overflows") };
    out.push(size, dynamic);
    Ok(())
}

fn window_output(window: &[WindowDim], a: &ArrayShape) -> Res<DimsOut> {
    need!(
        window.len() == a.rank(),
        format!("a window of {} dimensions", a.rank()),
        "a window of {} for {a}",
        window.len()
    );
    let mut out = DimsOut::default();
    for (i, w) in window.iter().enumerate() {
        window_dim(&mut out, w, a, i)?;
    }
    Ok(out)
}

pub(super) fn reduce_window<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Window(w) = c.attrs else { return c.bad_attrs() };
    let (a, n) = inputs_and_inits(c)?;
    let proto = window_output(w, a)?.array(DType::Pred);
    // Element types are those of the initial values.
    let array = |i: usize| -> Res<Out<'a>> {
        Ok(Out::Array(ArrayShape { dtype: c.array(n + i)?.dtype, ..proto.clone() }))
    };
    if n == 1 && c.call(0)?.result()?.as_tuple().is_none() {
        return array(0);
    }
    Ok(Out::Tuple((0..n).map(array).collect::<Res<_>>()?))
}

pub(super) fn select_and_scatter<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Window(w) = c.attrs else { return c.bad_attrs() };
    let (a, source, init) = (c.array(0)?, c.array(1)?, c.scalar(2)?);
    let select = c.call(0)?;
    need!(
        select.params() == 2,
        "a select computation with 2 parameters",
        "computation {} has {}",
        select.name(),
        select.params()
    );
    for i in 0..2 {
        let p = select.param(i)?;
        need!(
            p.as_array().is_some_and(|p| p.dims.is_empty() && same_type(p.dtype, a.dtype, true)),
            format!("{}[]", a.dtype),
            "parameter {i} of computation {} is {p}",
            select.name()
        );
    }
    predicate(&select)?;
    reducer(&c.call(1)?, 1, |_| Ok((init.dtype, source.dtype)))?;
    let want = window_output(w, a)?.array(a.dtype);
    need!(
        compatible_arrays(&want, source, true),
        format!("a source of shape {want}"),
        "source {source}"
    );
    Ok(Out::Ref(c.shape(0)?))
}

/// The computation returns `pred[]`.
pub(super) fn predicate(f: &Sig<'_>) -> Res<()> {
    let r = f.result()?;
    need!(
        r.as_array().is_some_and(|r| r.dims.is_empty() && r.dtype == DType::Pred),
        "pred[]",
        "computation {} returns {r}",
        f.name()
    );
    Ok(())
}

pub(super) fn sort<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Sort { dim, .. } = c.attrs else { return c.bad_attrs() };
    let first = c.array(0)?;
    let f = c.call(0)?;
    predicate(&f)?;
    need!(
        f.params() == 2 * c.len(),
        format!("a comparator with {} parameters", 2 * c.len()),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    for i in 0..c.len() {
        let a = c.array(i)?;
        need!(
            same_dims(&a.dims, &first.dims),
            "operands of the same dimensions",
            "operands {first} and {a}"
        );
        for k in [2 * i, 2 * i + 1] {
            let p = f.param(k)?;
            need!(
                p.as_array()
                    .is_some_and(|p| p.dims.is_empty() && same_type(p.dtype, a.dtype, true)),
                format!("{}[]", a.dtype),
                "parameter {k} of computation {} is {p}",
                f.name()
            );
        }
    }
    need!(
        in_rank(*dim, first.rank()),
        format!("a dimension below {}", first.rank()),
        "dimension {dim} of {first}"
    );
    if c.len() == 1 { Ok(Out::Ref(c.shape(0)?)) } else { Ok(Out::Of(c.operands)) }
}

pub(super) fn topk<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::TopK { k, .. } = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    let Some((&last, lead)) = a.dims.split_last() else {
        return err!("an array of rank 1 or more", "operand {a}");
    };
    need!(
        *k >= 0 && (last == Shape::UNBOUNDED || *k <= last),
        format!("k from 0 to {last}"),
        "k={k} of {a}"
    );
    let mut out = DimsOut::default();
    (0..lead.len()).for_each(|i| out.copy(a, i));
    out.push(*k, false);
    let values = out.array(a.dtype);
    let indices = ArrayShape { dtype: DType::S32, ..values.clone() };
    Ok(Out::Tuple(vec![Out::Array(values), Out::Array(indices)]))
}

/// `(inputs.., carries..) -> (outputs.., carries..)`; the callee sees one
/// element of each input along the scanned dimension.
pub(super) fn scan<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Scan(s) = c.attrs else { return c.bad_attrs() };
    let f = c.call(0)?;
    need!(
        (0..=c.len() as i64).contains(&s.num_carries),
        format!("num_carries from 0 to {}", c.len()),
        "num_carries={}",
        s.num_carries
    );
    let carries = s.num_carries as usize;
    let inputs = c.len() - carries;
    need!(
        f.params() == c.len(),
        format!("a computation with {} parameters", c.len()),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    let mut steps = None;
    for i in 0..inputs {
        let a = c.array(i)?;
        need!(
            in_rank(s.dim, a.rank()),
            format!("a dimension below {}", a.rank()),
            "dimension {} of input {a}",
            s.dim
        );
        let size = a.dims[s.dim as usize];
        let steps = *steps.get_or_insert(size);
        need!(
            same_size(size, steps),
            format!("size {steps} in dimension {}", s.dim),
            "input {i} is {a}"
        );
        let mut want = a.clone();
        want.dims.remove(s.dim as usize);
        let p = f.param(i)?;
        need!(
            p.as_array().is_some_and(|p| compatible_arrays(p, &want, true)),
            format!("{}{:?}", want.dtype, want.dims),
            "parameter {i} of computation {} is {p}",
            f.name()
        );
    }
    let result = f.result()?;
    let parts = match result {
        Shape::Tuple(t) => &t[..],
        s => std::slice::from_ref(s),
    };
    need!(
        parts.len() >= carries,
        format!("at least {carries} results"),
        "computation {} returns {result}",
        f.name()
    );
    let (outputs, last) = parts.split_at(parts.len() - carries);
    for (k, r) in last.iter().enumerate() {
        let (p, init) = (f.param(inputs + k)?, c.shape(inputs + k)?);
        need!(
            compatible(r, p, true) && compatible(r, init, true),
            format!("carry {k} of one shape throughout"),
            "initial {init}, parameter {p}, result {r}"
        );
    }
    let steps = match (steps, c.declared) {
        (Some(n), _) => n,
        (None, Some(d)) => {
            let first = d.as_tuple().and_then(|t| t.first()).unwrap_or(d);
            match usize::try_from(s.dim).ok().and_then(|k| first.dims().get(k)) {
                Some(&n) => n,
                None => return err!("a scanned input or output", "none"),
            }
        }
        _ => return err!("a scanned input or a result shape", "neither"),
    };
    let mut all = Vec::with_capacity(parts.len());
    for r in outputs {
        let Shape::Array(r) = r else {
            return err!("array results", "computation {} returns {result}", f.name());
        };
        need!(
            in_rank(s.dim, r.rank() + 1),
            format!("a dimension of at most {}", r.rank()),
            "dimension {} of output {r}",
            s.dim
        );
        let mut out = DimsOut::default();
        for i in 0..=r.rank() {
            match i.cmp(&(s.dim as usize)) {
                std::cmp::Ordering::Less => out.copy(r, i),
                std::cmp::Ordering::Equal => out.push(steps, false),
                std::cmp::Ordering::Greater => out.copy(r, i - 1),
            }
        }
        all.push(Out::Array(out.array(r.dtype)));
    }
    all.extend(last.iter().map(Out::Ref));
    if all.len() == 1 && result.as_tuple().is_none() {
        return all.pop().map_or_else(|| c.bad_attrs(), Ok);
    }
    Ok(Out::Tuple(all))
}

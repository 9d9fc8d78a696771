//! `reduce`.
//!
//! Order: elements are combined along a tree whose leaves stand in index
//! order, blocks of up to 256 being folded in eight interleaved strands. The
//! initial value comes first. Each combination rounds to the element type.

use super::elementwise::to_bf16;
use super::int::Int;
use super::movement::transpose;
use super::par::update;
use super::real::Flt;
use crate::complex::{C64, C128};
use crate::error::{Res, invalid};
use crate::tensor::{Data, Store, Tensor, each};
use half::{bf16, f16};
use scalify_ir::Opcode;
use scalify_ir::shape::Dims;

/// A computation on scalars applied lane by lane to vectors of equal length.
pub(crate) type Apply<'a> = dyn FnMut(Vec<Tensor>) -> Res<Vec<Tensor>> + 'a;

/// Binary operations that reducers are recognised as.
pub(crate) fn combine_fn<T: Store>(op: Opcode) -> Option<fn(T, T) -> T> {
    use std::any::Any;
    macro_rules! table {
        ($($t:ty: $($o:ident => $f:expr),*;)*) => {$(
            if std::any::TypeId::of::<T>() == std::any::TypeId::of::<$t>() {
                let f: fn($t, $t) -> $t = match op {
                    $(Opcode::$o => $f,)*
                    _ => return None,
                };
                return (&f as &dyn Any).downcast_ref::<fn(T, T) -> T>().copied();
            }
        )*};
    }
    macro_rules! ints {
        ($($t:ty),*) => {
            table!($($t: Add => Int::add, Multiply => Int::mul, Maximum => Ord::max,
                Minimum => Ord::min, And => |x, y| x & y, Or => |x, y| x | y,
                Xor => |x, y| x ^ y;)*)
        };
    }
    ints!(i8, i16, i32, i64, u8, u16, u32, u64);
    table!(
        f32: Add => |x, y| x + y, Multiply => |x, y| x * y, Maximum => Flt::rmax, Minimum => Flt::rmin;
        f64: Add => |x, y| x + y, Multiply => |x, y| x * y, Maximum => Flt::rmax, Minimum => Flt::rmin;
        bf16: Add => |x, y| to_bf16(x.to_f32() + y.to_f32()),
            Multiply => |x, y| to_bf16(x.to_f32() * y.to_f32()),
            Maximum => |x, y| to_bf16(x.to_f32().rmax(y.to_f32())),
            Minimum => |x, y| to_bf16(x.to_f32().rmin(y.to_f32()));
        f16: Add => |x, y| f16::from_f32(x.to_f32() + y.to_f32()),
            Multiply => |x, y| f16::from_f32(x.to_f32() * y.to_f32()),
            Maximum => |x, y| f16::from_f32(x.to_f32().rmax(y.to_f32())),
            Minimum => |x, y| f16::from_f32(x.to_f32().rmin(y.to_f32()));
        bool: Add => |x, y| x | y, Or => |x, y| x | y, Maximum => |x, y| x | y,
            Multiply => |x, y| x & y, And => |x, y| x & y, Minimum => |x, y| x & y,
            Xor => |x, y| x ^ y;
        C64: Add => |x, y| C64 { re: x.re + y.re, im: x.im + y.im },
            Multiply => C64::mul;
        C128: Add => C128::add, Multiply => C128::mul;
    );
    None
}

/// The reduced array as outer x reduced x inner.
struct Split {
    outer: usize,
    red: usize,
    inner: usize,
}

/// Permutes `t` if its reduced dimensions are not adjacent.
fn split(t: &Tensor, reduced: &[bool]) -> Res<(Tensor, Split)> {
    let size = |d: std::ops::Range<usize>, t: &Tensor| t.dims[d].iter().product::<i64>() as usize;
    let lo = reduced.iter().position(|&r| r).unwrap_or(t.rank());
    let hi = reduced.iter().rposition(|&r| r).map_or(lo, |i| i + 1);
    if reduced[lo..hi].iter().all(|&r| r) {
        let s = Split { outer: size(0..lo, t), red: size(lo..hi, t), inner: size(hi..t.rank(), t) };
        return Ok((t.clone(), s));
    }
    let part = |want: bool| (0..t.rank()).filter(move |&d| reduced[d] == want).map(|d| d as i64);
    let perm: Vec<i64> = part(false).chain(part(true)).collect();
    let kept = part(false).count();
    let t = transpose(t.clone(), &perm)?;
    let s = Split { outer: size(0..kept, &t), red: size(kept..t.rank(), &t), inner: 1 };
    Ok((t, s))
}

fn strands<T: Copy>(v: &[T], f: &impl Fn(T, T) -> T) -> T {
    // At least one element.
    if v.len() < 16 {
        return v[1..].iter().fold(v[0], |a, &x| f(a, x));
    }
    if v.len() > 256 {
        let (l, r) = v.split_at((v.len() / 2).next_multiple_of(128));
        return f(strands(l, f), strands(r, f));
    }
    let mut acc: [T; 8] = std::array::from_fn(|i| v[i]);
    let mut it = v[8..].chunks_exact(8);
    for c in &mut it {
        for (a, &x) in acc.iter_mut().zip(c) {
            *a = f(*a, x);
        }
    }
    let (p, q) = (f(acc[0], acc[4]), f(acc[1], acc[5]));
    let (r, s) = (f(acc[2], acc[6]), f(acc[3], acc[7]));
    let sum = f(f(p, r), f(q, s));
    it.remainder().iter().fold(sum, |a, &x| f(a, x))
}

fn columns<T: Copy>(v: &[T], inner: usize, f: &impl Fn(T, T) -> T) -> Vec<T> {
    let rows = v.len() / inner;
    let merge = |a: &mut [T], b: &[T]| {
        for (a, &x) in a.iter_mut().zip(b) {
            *a = f(*a, x);
        }
    };
    if rows > 64 {
        let (l, r) = v.split_at((rows / 2).next_multiple_of(32) * inner);
        let mut a = columns(l, inner, f);
        merge(&mut a, &columns(r, inner, f));
        return a;
    }
    let mut acc = v[..inner].to_vec();
    for row in v[inner..].chunks_exact(inner) {
        merge(&mut acc, row);
    }
    acc
}

fn fold<T: Store>(v: &[T], s: &Split, init: T, f: impl Fn(T, T) -> T + Sync) -> Vec<T> {
    let n = s.outer * s.inner;
    if s.red == 0 || n == 0 {
        return vec![init; n];
    }
    let mut out = vec![init; n];
    if s.inner == 1 {
        update(&mut out, 1, s.red, &|at, out| {
            for (o, row) in out.iter_mut().zip(v[at * s.red..].chunks_exact(s.red)) {
                *o = if s.red < 16 {
                    row.iter().fold(init, |a, &x| f(a, x))
                } else {
                    f(init, strands(row, &f))
                };
            }
        });
        return out;
    }
    let block = s.red * s.inner;
    update(&mut out, s.inner, s.red, &|at, out| {
        let blocks = v[at / s.inner * block..].chunks_exact(block);
        for (o, block) in out.chunks_mut(s.inner).zip(blocks) {
            for (a, x) in o.iter_mut().zip(columns(block, s.inner, &f)) {
                *a = f(*a, x);
            }
        }
    });
    out
}

fn typed<T: Store>(v: &[T], s: &Split, init: &Tensor, op: Opcode) -> Res<Option<Data>> {
    let Some(f) = combine_fn::<T>(op) else { return Ok(None) };
    let Some(&i) = T::get(&init.data).and_then(|i| i.first()) else {
        return invalid("initial value of another element type");
    };
    Ok(Some(Data::from_vec(fold(v, s, i, f))))
}

fn first<T: Copy + Default>(v: &[T]) -> T {
    v.first().copied().unwrap_or_default()
}

/// The common reductions as loops the compiler can vectorise.
fn hot(t: &Tensor, s: &Split, init: &Tensor, op: Opcode) -> Option<Data> {
    macro_rules! go {
        ($v:expr, $i:expr, $add:expr, $max:expr, $min:expr) => {{
            let i = first($i);
            Data::from_vec(match op {
                Opcode::Add => fold($v, s, i, $add),
                Opcode::Maximum => fold($v, s, i, $max),
                Opcode::Minimum => fold($v, s, i, $min),
                _ => return None,
            })
        }};
    }
    Some(match (&t.data, &init.data) {
        (Data::F32(v), Data::F32(i)) => go!(v, i, |x, y| x + y, fmax, fmin),
        (Data::F64(v), Data::F64(i)) => go!(v, i, |x, y| x + y, Flt::rmax, Flt::rmin),
        (Data::I32(v), Data::I32(i)) => go!(v, i, Int::add, Ord::max, Ord::min),
        _ => return None,
    })
}

/// NaN-propagating maximum in a form that vectorises; zeros of either sign
/// are equal.
fn fmax(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

fn fmin(x: f32, y: f32) -> f32 {
    if x < y || x.is_nan() { x } else { y }
}

/// `reduce` of several operands at once over `dims`.
pub(crate) fn reduce(
    x: &[Tensor],
    init: &[Tensor],
    dims: &[i64],
    known: Option<Opcode>,
    f: &mut Apply<'_>,
) -> Res<Vec<Tensor>> {
    let (Some(t), true) = (x.first(), x.len() == init.len()) else {
        return invalid("expects as many initial values as operands");
    };
    if x.iter().any(|u| u.dims != t.dims) || init.iter().any(|i| i.len() != 1) {
        return invalid("operand shapes");
    }
    let mut reduced = vec![false; t.rank()];
    for &d in dims {
        match usize::try_from(d).ok().and_then(|d| reduced.get_mut(d)) {
            Some(r) => *r = true,
            None => return invalid(format!("dimension {d} of {:?}", t.dims)),
        }
    }
    let out: Dims = (0..t.rank()).filter(|&d| !reduced[d]).map(|d| t.dims[d]).collect();
    if let (Some(op), [t], [i]) = (known, x, init)
        && t.dtype.bits() >= 8
    {
        let (p, s) = split(t, &reduced)?;
        let data = match hot(&p, &s, i, op) {
            Some(d) => Some(d),
            None => each!(&p.data, v => typed(v, &s, i, op)?),
        };
        if let Some(data) = data {
            return Ok(vec![Tensor { dtype: t.dtype, dims: out, data, sizes: None }]);
        }
    }
    let mask = &reduced;
    let part = |want: bool| (0..t.rank()).filter(move |&d| mask[d] == want);
    let red: usize = part(true).map(|d| t.dims[d] as usize).product();
    let n = crate::tensor::count(&out).unwrap_or(0);
    let lanes = |i: &Tensor| Tensor::raw(i.dtype, &[n as i64], super::elementwise::splat(i, n));
    let mut acc: Vec<Tensor> = init.iter().map(lanes).collect();
    if red > 0 && n > 0 {
        // Rows of the permuted operand are the steps of the reduction.
        let perm: Vec<i64> = part(true).chain(part(false)).map(|d| d as i64).collect();
        let mut rows = Vec::new();
        for t in x {
            rows.push(super::movement::flat(&transpose(t.clone(), &perm)?));
        }
        let tree = tree(rows, red, n, f)?;
        acc.extend(tree);
        acc = f(acc)?;
    }
    let shape = |a: Tensor| Tensor { dims: out.clone(), sizes: None, ..a };
    Ok(acc.into_iter().map(shape).collect())
}

/// Combines `red` rows of `n` lanes to one, neighbours first, in order.
fn tree(mut x: Vec<Tensor>, mut red: usize, n: usize, f: &mut Apply<'_>) -> Res<Vec<Tensor>> {
    while red > 1 {
        let half = red / 2;
        // Even rows against odd rows.
        let pick = |t: &Tensor, odd: i64| -> Res<Tensor> {
            let v = Tensor { dims: [red as i64, n as i64].into_iter().collect(), ..t.clone() };
            let s = scalify_ir::SliceAttrs {
                start: [odd, 0].into_iter().collect(),
                limit: [2 * half as i64, n as i64].into_iter().collect(),
                stride: [2, 1].into_iter().collect(),
            };
            Ok(super::movement::flat(&super::movement::slice(&v, &s)?))
        };
        let mut args = Vec::new();
        for odd in [0, 1] {
            for t in &x {
                args.push(pick(t, odd)?);
            }
        }
        let mut next = f(args)?;
        if next.len() != x.len() {
            return invalid("reducer returns another number of values");
        }
        if red % 2 == 1 {
            for (r, t) in next.iter_mut().zip(&x) {
                let last = scalify_ir::SliceAttrs {
                    start: [(2 * half * n) as i64].into_iter().collect(),
                    limit: [(red * n) as i64].into_iter().collect(),
                    stride: [1].into_iter().collect(),
                };
                let tail = super::movement::slice(t, &last)?;
                *r = super::movement::concatenate(&[r.clone(), tail], 0)?;
            }
        }
        x = next;
        red = half + red % 2;
    }
    Ok(x)
}

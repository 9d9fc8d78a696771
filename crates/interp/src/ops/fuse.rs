//! Elementwise instructions evaluated together, block by block: values in
//! between never leave the cache.
//!
//! Every element is computed by the kernels of single instructions, so the
//! results are the same bits.

use super::strided::View;
use crate::error::{Fail, Limit, Res, invalid};
use crate::tensor::{Data, Store, Tensor, each};
use rayon::prelude::*;
use scalify_ir::DType;
use std::sync::Arc;
use std::time::Instant;

/// Elements per block.
const BLOCK: usize = 4096;
/// Elements times steps below which one thread does all.
const SPLIT: usize = 1 << 17;

/// One step of a region. Operands are earlier steps.
pub(crate) enum Step {
    /// The external value, element by element.
    Load(usize),
    /// The external value whole: a scalar operand.
    Whole(usize),
    /// The external value broadcast into these dimensions by this map.
    Broadcast(usize, Vec<i64>, Vec<i64>),
    /// The instruction of this number applied to steps; which of them are used
    /// here for the last time.
    Apply(usize, Vec<(usize, bool)>),
}

/// Steps over equally many elements.
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    /// Steps whose values are results, with their element types.
    pub(crate) results: Vec<(usize, DType)>,
    /// Number of elements.
    pub(crate) len: usize,
}

macro_rules! chunk {
    ($($v:ident $t:ty),*) => {
        /// Part of a result.
        enum Chunk<'a> {
            $($v(&'a mut [$t]),)*
        }

        /// Parts of `size` elements.
        fn chunks(d: &mut Data, size: usize) -> Vec<Chunk<'_>> {
            match d {
                $(Data::$v(v) => Arc::make_mut(v).chunks_mut(size).map(Chunk::$v).collect(),)*
            }
        }

        impl Chunk<'_> {
            /// Writes at `at`; false if types or sizes do not fit.
            fn set(&mut self, at: usize, d: &Data) -> bool {
                match (self, d) {
                    $((Chunk::$v(c), Data::$v(v)) => match c.get_mut(at..at + v.len()) {
                        Some(c) => {
                            c.copy_from_slice(v);
                            true
                        }
                        None => false,
                    },)*
                    _ => false,
                }
            }
        }
    };
}
chunk!(Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64,
    F8 crate::tensor::F8, F16 half::f16, Bf16 half::bf16, F32 f32, F64 f64,
    C64 crate::complex::C64, C128 crate::complex::C128);

/// What a step reads, resolved.
enum Source<'a> {
    Load(&'a Tensor),
    Whole(Tensor),
    View(&'a Tensor, View),
    /// One element everywhere: a block of it, shared by all blocks.
    Splat(Tensor),
    Apply(usize, &'a [(usize, bool)]),
}

fn load<T: Store>(v: &[T], lo: usize, n: usize) -> Option<Data> {
    Some(Data::from_vec(v.get(lo..lo + n)?.to_vec()))
}

fn line(t: &Tensor, n: usize, data: Data) -> Tensor {
    Tensor::raw(t.dtype, &[n as i64], data)
}

/// Runs the steps; `apply(i, operands)` evaluates instruction `i` on blocks.
/// `zero` gives result `i` zeros to be written to.
pub(crate) fn run(
    p: &Steps,
    ext: &[Tensor],
    apply: &(dyn Fn(usize, Vec<Tensor>) -> Res<Tensor> + Sync),
    zero: &dyn Fn(DType, usize) -> Data,
    deadline: Option<Instant>,
) -> Res<Vec<Data>> {
    let size = BLOCK.min(p.len.max(1));
    let get = |e: usize| ext.get(e).map_or_else(|| invalid("operand"), Ok);
    let mut sources = Vec::with_capacity(p.steps.len());
    for s in &p.steps {
        sources.push(match s {
            Step::Load(e) => {
                let t = get(*e)?;
                if t.len() != p.len {
                    return invalid("operand dimensions differ");
                }
                Source::Load(t)
            }
            Step::Whole(e) => Source::Whole(get(*e)?.clone()),
            Step::Broadcast(e, map, dims) => {
                let t = get(*e)?;
                let str = super::movement::broadcast_strides(t, map, dims)?;
                if t.len() == 1 {
                    Source::Splat(line(t, size, super::elementwise::splat(t, size)))
                } else {
                    match View::new(0, &str, dims, t.len()) {
                        Some(v) => Source::View(t, v),
                        None => return invalid("reads outside its operand"),
                    }
                }
            }
            Step::Apply(i, o) => Source::Apply(*i, o),
        });
    }
    let mut out: Vec<Data> = p.results.iter().map(|&(_, t)| zero(t, p.len)).collect();
    let serial = p.len.saturating_mul(p.steps.len()) < SPLIT;
    let per = if serial { p.len.max(1) } else { 4 * size };
    // Per task, its part of every result.
    let mut tasks: Vec<Vec<Chunk<'_>>> = Vec::new();
    tasks.resize_with(p.len.div_ceil(per), Vec::new);
    for d in &mut out {
        for (t, c) in tasks.iter_mut().zip(chunks(d, per)) {
            t.push(c);
        }
    }
    let task = |(k, mut parts): (usize, Vec<Chunk<'_>>)| -> Res<()> {
        if deadline.is_some_and(|d| Instant::now() > d) {
            return Err(Fail::Limit(Limit::Time));
        }
        let end = p.len.min((k + 1) * per);
        let mut at = k * per;
        while at < end {
            let n = size.min(end - at);
            block(p, &sources, apply, at, n, at - k * per, &mut parts)?;
            at += n;
        }
        Ok(())
    };
    if serial {
        tasks.into_iter().enumerate().try_for_each(task)?;
    } else {
        // The first failure in order, whatever thread meets one first.
        let all: Vec<Res<()>> = tasks.into_par_iter().enumerate().map(task).collect();
        all.into_iter().collect::<Res<()>>()?;
    }
    Ok(out)
}

fn block(
    p: &Steps,
    sources: &[Source<'_>],
    apply: &(dyn Fn(usize, Vec<Tensor>) -> Res<Tensor> + Sync),
    lo: usize,
    n: usize,
    at: usize,
    parts: &mut [Chunk<'_>],
) -> Res<()> {
    let mut values: Vec<Option<Tensor>> = Vec::with_capacity(sources.len());
    for s in sources {
        let v = match s {
            Source::Load(t) => {
                let data = each!(&t.data, v => load(v, lo, n));
                data.map_or_else(|| invalid("operand dimensions differ"), |d| Ok(line(t, n, d)))?
            }
            Source::Whole(t) => t.clone(),
            Source::View(t, w) => {
                line(t, n, each!(&t.data, v => Data::from_vec(w.block(v, lo, n))))
            }
            Source::Splat(t) if t.len() == n => t.clone(),
            Source::Splat(t) => line(t, n, super::elementwise::splat(t, n)),
            Source::Apply(i, operands) => {
                let mut ops = Vec::with_capacity(operands.len());
                for &(o, last) in *operands {
                    let v = values.get_mut(o).and_then(|v| if last { v.take() } else { v.clone() });
                    ops.push(v.map_or_else(|| invalid("operand is not computed before it"), Ok)?);
                }
                apply(*i, ops)?
            }
        };
        values.push(Some(v));
    }
    for (&(r, t), part) in p.results.iter().zip(parts) {
        let fits = match values.get(r) {
            Some(Some(v)) => v.dtype == t && v.len() == n && part.set(at, &v.data),
            _ => false,
        };
        if !fits {
            return invalid("value of another shape than declared");
        }
    }
    Ok(())
}

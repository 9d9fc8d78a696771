//! The blocks that devices cut out of a value that all of them hold: do they
//! make up the whole?

use crate::candidates::Context;
use scalify_ir::attrs::Comparison;
use scalify_ir::{Attrs, InstrId, Opcode};

/// Devices for which starts are worked out.
const MAX_DEVICES: i64 = 512;
/// Elements of a dimension that are counted.
const MAX_SIZE: i64 = 1 << 16;
/// Operations of an index that are followed.
pub(crate) const DEPTH: u32 = 12;
/// Instructions looked at.
const FAR: usize = 64;

/// A scalar computed from the device id and constants alone, on one device.
pub(crate) fn on_device(ctx: &Context<'_>, x: InstrId, device: i64, depth: u32) -> Option<i64> {
    let i = ctx.m.instr(x);
    let a = ctx.m.array(x)?;
    if !a.dims.is_empty() || a.dtype.is_float() {
        return None;
    }
    let of = |k: usize| on_device(ctx, *i.operands.get(k)?, device, depth.checked_sub(1)?);
    match i.opcode {
        Opcode::PartitionId | Opcode::ReplicaId => Some(device),
        Opcode::Constant => Some(crate::edit::number(ctx.m.literal(x)?)? as i64),
        Opcode::Convert | Opcode::Reshape | Opcode::Copy | Opcode::Bitcast => of(0),
        Opcode::Add => of(0)?.checked_add(of(1)?),
        Opcode::Subtract => of(0)?.checked_sub(of(1)?),
        Opcode::Multiply => of(0)?.checked_mul(of(1)?),
        Opcode::Divide => of(0)?.checked_div(of(1)?),
        Opcode::Remainder => of(0)?.checked_rem(of(1)?),
        Opcode::Minimum => Some(of(0)?.min(of(1)?)),
        Opcode::Maximum => Some(of(0)?.max(of(1)?)),
        Opcode::Select => of(if of(0)? != 0 { 1 } else { 2 }),
        Opcode::Compare => {
            let Attrs::Compare { direction, .. } = &i.attrs else { return None };
            let (x, y) = (of(0)?, of(1)?);
            Some(i64::from(match direction {
                Comparison::Eq => x == y,
                Comparison::Ne => x != y,
                Comparison::Lt => x < y,
                Comparison::Le => x <= y,
                Comparison::Gt => x > y,
                Comparison::Ge => x >= y,
            }))
        }
        _ => None,
    }
}

/// Blocks of a dimension of a value.
struct Blocks {
    of: InstrId,
    dim: usize,
    /// The lowest start.
    first: i64,
    /// How often each element is in one.
    held: Vec<u32>,
}

/// How often each element of the dimension is in a block, if `x` is a slice
/// of which the start along one dimension depends on the device alone.
fn coverage(ctx: &Context<'_>, x: InstrId) -> Option<Blocks> {
    let i = ctx.m.instr(x);
    let Attrs::DynamicSlice(size) = &i.attrs else { return None };
    let devices: i64 = ctx.mesh.iter().map(|a| a.1).product();
    let o = *i.operands.first()?;
    // What differs from device to device has no common whole.
    if !(2..=MAX_DEVICES).contains(&devices) || ctx.varies[o.0 as usize] != 0 {
        return None;
    }
    let from = ctx.m.array(o)?;
    for (k, (&n, &w)) in from.dims.iter().zip(size.iter()).enumerate() {
        let at = *i.operands.get(k + 1)?;
        if w >= n || n > MAX_SIZE || ctx.varies[at.0 as usize] == 0 {
            continue;
        }
        let mut held = vec![0u32; n as usize];
        let mut first = i64::MAX;
        let starts: Vec<i64> =
            (0..devices).map(|d| on_device(ctx, at, d, DEPTH)).collect::<Option<_>>()?;
        for s in starts {
            first = first.min(s);
            let s = s.clamp(0, n - w);
            held.get_mut(s as usize..(s + w) as usize)?.iter_mut().for_each(|h| *h += 1);
        }
        return Some(Blocks { of: o, dim: k, first, held });
    }
    None
}

/// Is `at` computed from blocks that leave elements out or hold some more
/// often than others; with `dropped`, also from blocks of which a select by
/// device drops some?
pub(crate) fn uneven(ctx: &Context<'_>, at: InstrId, dropped: bool) -> bool {
    let mut list = vec![at];
    // Several blocks of one value may make it up together.
    let mut all: Vec<Blocks> = Vec::new();
    for k in 0..FAR {
        let Some(&x) = list.get(k) else { break };
        let i = ctx.m.instr(x);
        if let Some(b) = coverage(ctx, x) {
            match all.iter_mut().find(|a| (a.of, a.dim) == (b.of, b.dim)) {
                Some(a) => {
                    a.first = a.first.min(b.first);
                    a.held.iter_mut().zip(b.held).for_each(|(a, h)| *a += h);
                }
                None => all.push(b),
            }
        }
        list.extend(i.operands.iter().filter(|o| !list.contains(o)).copied().collect::<Vec<_>>());
    }
    // Where none starts at 0 all are moved: an offset, not a split.
    all.iter().filter(|b| b.first == 0).any(|b| {
        let same = b.held.windows(2).all(|w| w[0] == w[1]);
        !same || dropped && b.held.iter().all(|&h| h == 1)
    })
}

//! How often a loop runs, where a counter says it: an element of the state
//! that starts at a constant, moves by a constant and is compared with one.

use crate::{Attrs, CompId, Comparison, InstrId, Module, Opcode, Shape};
use rustc_hash::FxHashMap;

/// What is known of a value inside a loop.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    Number(i64),
    /// Leaf `k` of the state plus a number.
    State(usize, i64),
    State0,
    Compare(Comparison, Box<Known>, Box<Known>),
    No,
}

/// Integer of a scalar constant.
pub fn integer(m: &Module, i: InstrId) -> Option<i64> {
    let l = m.literal(i)?;
    let a = l.shape.as_array().filter(|a| a.dims.is_empty())?;
    let b = l.bytes()?;
    if !a.dtype.is_int() || b.is_empty() || b.len() > 8 {
        return None;
    }
    let mut raw = [0u8; 8];
    raw[..b.len()].copy_from_slice(b);
    let v = u64::from_le_bytes(raw);
    let unused = 64 - 8 * b.len() as u32;
    if a.dtype.is_signed() { Some((v << unused) as i64 >> unused) } else { i64::try_from(v).ok() }
}

struct Look<'a> {
    m: &'a Module,
    budget: u32,
}

impl Look<'_> {
    /// Values of a computation as far as its root needs them.
    fn at(
        &mut self,
        args: &[Known],
        id: InstrId,
        memo: &mut FxHashMap<InstrId, Known>,
        depth: u32,
    ) -> Known {
        if let Some(k) = memo.get(&id) {
            return k.clone();
        }
        if depth == 0 || self.budget == 0 {
            return Known::No;
        }
        self.budget -= 1;
        let m = self.m;
        let i = m.instr(id);
        let op = |s: &mut Self, memo: &mut FxHashMap<InstrId, Known>, k: usize| {
            i.operands.get(k).map_or(Known::No, |&o| s.at(args, o, memo, depth - 1))
        };
        let v = match (i.opcode, &i.attrs) {
            (_, Attrs::Parameter(n)) => args.get(*n as usize).cloned().unwrap_or(Known::No),
            (Opcode::Constant, _) => integer(m, id).map_or(Known::No, Known::Number),
            (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => {
                let o = i.operands.first().copied();
                match o.map(|o| (m.instr(o).opcode, o)) {
                    Some((Opcode::Tuple, o)) => match m.instr(o).operands.get(*k as usize) {
                        Some(&e) => self.at(args, e, memo, depth - 1),
                        None => Known::No,
                    },
                    _ => match op(self, memo, 0) {
                        Known::State0 => Known::State(*k as usize, 0),
                        _ => Known::No,
                    },
                }
            }
            (Opcode::Copy | Opcode::Bitcast | Opcode::Reshape | Opcode::OptimizationBarrier, _) => {
                op(self, memo, 0)
            }
            // The counter's own type is what it is compared in.
            (Opcode::Call | Opcode::Fusion, _) if i.calls.len() == 1 => {
                let a: Vec<Known> = (0..i.operands.len()).map(|k| op(self, memo, k)).collect();
                let mut own = FxHashMap::default();
                self.at(&a, m.comp(i.calls[0]).root, &mut own, depth - 1)
            }
            (Opcode::Add | Opcode::Subtract, _) => {
                let (a, b) = (op(self, memo, 0), op(self, memo, 1));
                let plus = i.opcode == Opcode::Add;
                match (a, b) {
                    (Known::State(k, x), Known::Number(n)) => {
                        let y = if plus { x.checked_add(n) } else { x.checked_sub(n) };
                        y.map_or(Known::No, |y| Known::State(k, y))
                    }
                    (Known::Number(n), Known::State(k, x)) if plus => {
                        x.checked_add(n).map_or(Known::No, |y| Known::State(k, y))
                    }
                    _ => Known::No,
                }
            }
            (Opcode::Compare, Attrs::Compare { direction, .. }) => {
                let (a, b) = (op(self, memo, 0), op(self, memo, 1));
                Known::Compare(*direction, Box::new(a), Box::new(b))
            }
            _ => Known::No,
        };
        memo.insert(id, v.clone());
        v
    }
}

/// A loop's condition and state, as far as they are known.
pub struct Trips {
    /// Number of iterations.
    pub count: Option<i64>,
    /// Per element of the state tuple: it stays as it is.
    pub stays: Vec<bool>,
}

/// Iterations of the `while` at `id`, from the constants that it begins with.
pub fn of_while(m: &Module, id: InstrId) -> Option<i64> {
    let i = m.instrs.get(id.0 as usize).filter(|i| i.opcode == Opcode::While)?;
    let &[cond, body] = i.calls.as_slice() else { return None };
    let Shape::Tuple(elements) = m.shape(id) else { return None };
    let mut begin = *i.operands.first()?;
    for _ in 0..64 {
        match m.instr(begin).opcode {
            Opcode::Copy | Opcode::OptimizationBarrier => {
                begin = *m.instr(begin).operands.first()?;
            }
            _ => break,
        }
    }
    let tuple = m.instr(begin).opcode == Opcode::Tuple;
    let init = |k: usize| {
        let e = m.instr(begin).operands.get(k).filter(|_| tuple)?;
        let mut l = Look { m, budget: 10_000 };
        match l.at(&[], *e, &mut FxHashMap::default(), 64) {
            Known::Number(n) => Some(n),
            _ => None,
        }
    };
    look(m, cond, body, elements.len(), &init).count
}

/// Looks at `while` with condition `cond` and body `body` over a state of `n`
/// elements; `init` gives the integers that elements begin with.
pub fn look(
    m: &Module,
    cond: CompId,
    body: CompId,
    n: usize,
    init: &dyn Fn(usize) -> Option<i64>,
) -> Trips {
    let mut l = Look { m, budget: 200_000 };
    let root = m.comp(body).root;
    let mut memo = FxHashMap::default();
    let next: Vec<Known> = (0..n)
        .map(|k| match m.instr(root).opcode {
            Opcode::Tuple => match m.instr(root).operands.get(k) {
                Some(&o) => l.at(&[Known::State0], o, &mut memo, 64),
                None => Known::No,
            },
            _ => Known::No,
        })
        .collect();
    let stays: Vec<bool> = next.iter().enumerate().map(|(k, v)| *v == Known::State(k, 0)).collect();
    let mut memo = FxHashMap::default();
    let test = l.at(&[Known::State0], m.comp(cond).root, &mut memo, 64);
    let number = |k: &Known| match k {
        Known::Number(x) => Some(*x),
        Known::State(k, x) if stays.get(*k) == Some(&true) => init(*k)?.checked_add(*x),
        _ => None,
    };
    let count = (|| {
        let Known::Compare(d, a, b) = &test else { return None };
        use Comparison::*;
        let (d, counter, limit) = match (number(a), number(b)) {
            (None, Some(n)) => (*d, a, n),
            (Some(n), None) => {
                let flipped = match d {
                    Lt => Gt,
                    Gt => Lt,
                    Le => Ge,
                    Ge => Le,
                    other => *other,
                };
                (flipped, b, n)
            }
            _ => return None,
        };
        let Known::State(k, off) = **counter else { return None };
        let first = init(k)?.checked_add(off)?;
        let Known::State(k2, step) = next.get(k)? else { return None };
        if *k2 != k || *step == 0 {
            return None;
        }
        let (first, limit, step) = (i128::from(first), i128::from(limit), i128::from(*step));
        let holds = match d {
            Lt => first < limit,
            Le => first <= limit,
            Gt => first > limit,
            Ge => first >= limit,
            Eq => first == limit,
            Ne => first != limit,
        };
        if !holds {
            return Some(0);
        }
        let up = |gap: i128, s: i128| if gap <= 0 { 0 } else { (gap + s - 1) / s };
        let n = match d {
            Lt if step > 0 => up(limit - first, step),
            Le if step > 0 => up(limit - first + 1, step),
            Gt if step < 0 => up(first - limit, -step),
            Ge if step < 0 => up(first - limit + 1, -step),
            Ne if (limit - first) % step == 0 && (limit - first) / step >= 0 => {
                (limit - first) / step
            }
            _ => return None,
        };
        // A counter that leaves its type on the way begins again elsewhere.
        let (lo, hi) = m.dtype(*m.instr(root).operands.get(k)?)?.int_range()?;
        let last = n.checked_mul(step)?.checked_add(first)?;
        let state = last - i128::from(off);
        (lo <= last.min(state) && last.max(state) <= hi).then(|| i64::try_from(n).ok()).flatten()
    })();
    Trips { count, stays }
}

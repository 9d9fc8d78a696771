//! Which leaves of a result depend, through floats, on which leaves of the
//! arguments.

use crate::emit::{Res, internal};
use rustc_hash::FxHashMap;
use scalify_ir::{Attrs, CompId, DType, InstrId, Module, Opcode, Shape};

/// A value per array leaf of a shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tree<T> {
    Leaf(T),
    Tuple(Vec<Tree<T>>),
}

impl<T: Clone> Tree<T> {
    pub(crate) fn leaves(&self, out: &mut Vec<T>) {
        match self {
            Tree::Leaf(x) => out.push(x.clone()),
            Tree::Tuple(t) => t.iter().for_each(|t| t.leaves(out)),
        }
    }

    pub(crate) fn flat(&self) -> Vec<T> {
        let mut v = Vec::new();
        self.leaves(&mut v);
        v
    }

    /// The same tree with other leaves, in order.
    pub(crate) fn rebuilt<U>(&self, it: &mut dyn Iterator<Item = U>) -> Option<Tree<U>> {
        Some(match self {
            Tree::Leaf(_) => Tree::Leaf(it.next()?),
            Tree::Tuple(t) => {
                Tree::Tuple(t.iter().map(|t| t.rebuilt(it)).collect::<Option<Vec<_>>>()?)
            }
        })
    }
}

/// A leaf that may carry a derivative.
pub(crate) fn smooth(t: DType) -> bool {
    t.is_float() || t.is_complex()
}

/// Constant almost everywhere, or with no derivative by definition.
pub(crate) fn flat_op(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Sign | Floor
            | Ceil
            | RoundNearestAfz
            | RoundNearestEven
            | Compare
            | IsFinite
            | Iota
            | Constant
            | PartitionId
            | ReplicaId
            | Rng
            | RngBitGenerator
            | RngGetAndUpdateState
            | GetDimensionSize
    )
}

fn shaped(s: &Shape, v: bool) -> Tree<bool> {
    match s {
        Shape::Array(a) => Tree::Leaf(v && smooth(a.dtype)),
        Shape::Tuple(t) => Tree::Tuple(t.iter().map(|s| shaped(s, v)).collect()),
        Shape::Buffer(b) => shaped(b, v),
        Shape::Token | Shape::Opaque => Tree::Leaf(false),
    }
}

fn join(a: &Tree<bool>, b: &Tree<bool>) -> Tree<bool> {
    match (a, b) {
        (Tree::Leaf(x), Tree::Leaf(y)) => Tree::Leaf(*x || *y),
        (Tree::Tuple(x), Tree::Tuple(y)) => {
            Tree::Tuple(x.iter().zip(y).map(|(x, y)| join(x, y)).collect())
        }
        (x, _) => x.clone(),
    }
}

/// Activity of the result of `c` on arguments of this activity.
pub(crate) fn result(
    m: &Module,
    c: CompId,
    args: &[Tree<bool>],
    budget: &mut u64,
    depth: usize,
) -> Res<Tree<bool>> {
    if depth > crate::forward::MAX_DEPTH {
        return Err(internal("calls are nested too deeply", "fewer levels"));
    }
    let comp = m.comp(c);
    let mut env: FxHashMap<InstrId, Tree<bool>> = FxHashMap::default();
    for &id in &comp.instrs {
        *budget = budget.checked_sub(1).ok_or_else(|| {
            internal("loops are nested too deeply to analyse", "fewer nested loops")
        })?;
        let i = m.instr(id);
        let shape = m.shape(id);
        let get = |o: InstrId| env.get(&o).cloned().unwrap_or(Tree::Leaf(false));
        let any = |env: &FxHashMap<InstrId, Tree<bool>>| {
            i.operands.iter().any(|o| env.get(o).is_some_and(|t| t.flat().contains(&true)))
        };
        let v = match (i.opcode, &i.attrs) {
            (_, Attrs::Parameter(n)) => {
                args.get(*n as usize).cloned().unwrap_or_else(|| shaped(shape, false))
            }
            (Opcode::Tuple, _) => Tree::Tuple(i.operands.iter().map(|&o| get(o)).collect()),
            (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => {
                match i.operands.first().map(|&o| get(o)) {
                    Some(Tree::Tuple(t)) => {
                        t.get(*k as usize).cloned().unwrap_or_else(|| shaped(shape, false))
                    }
                    _ => shaped(shape, any(&env)),
                }
            }
            (Opcode::Call | Opcode::Fusion | Opcode::AsyncStart, _) if !i.calls.is_empty() => {
                let a: Vec<_> = i.operands.iter().map(|&o| get(o)).collect();
                result(m, i.calls[0], &a, budget, depth + 1)?
            }
            (
                Opcode::OptimizationBarrier
                | Opcode::AsyncUpdate
                | Opcode::AsyncDone
                | Opcode::Domain
                | Opcode::AddDependency
                | Opcode::CopyStart
                | Opcode::CopyDone
                | Opcode::AllReduceDone
                | Opcode::AllGatherDone
                | Opcode::CollectivePermuteDone,
                _,
            ) => i.operands.first().map_or(Tree::Leaf(false), |&o| get(o)),
            (
                Opcode::AllReduceStart | Opcode::AllGatherStart | Opcode::CollectivePermuteStart,
                _,
            ) => {
                if i.operands.len() == 1 {
                    Tree::Leaf(any(&env))
                } else {
                    let f = |o: &InstrId| Tree::Leaf(get(*o).flat().contains(&true));
                    Tree::Tuple(i.operands.iter().map(f).collect())
                }
            }
            (Opcode::While, _) if i.calls.len() == 2 && i.operands.len() == 1 => {
                let mut state = get(i.operands[0]);
                loop {
                    let next = result(m, i.calls[1], &[state.clone()], budget, depth + 1)?;
                    let both = join(&state, &next);
                    if both == state {
                        break state;
                    }
                    state = both;
                }
            }
            (Opcode::Conditional, _) => {
                let mut all = shaped(shape, false);
                for (k, &f) in i.calls.iter().enumerate() {
                    let a = i.operands.get(k + 1).map(|&o| get(o)).into_iter().collect::<Vec<_>>();
                    all = join(&all, &result(m, f, &a, budget, depth + 1)?);
                }
                all
            }
            (op, _) => shaped(shape, any(&env) && !flat_op(op)),
        };
        env.insert(id, v);
    }
    env.remove(&comp.root).ok_or_else(|| internal("a root that is not in its computation", "one"))
}

//! Which inputs of stages are outputs of other stages.

use crate::error::StageError;
use scalify_claim::{Port, Selector};
use scalify_ir::{InstrId, Module, Opcode, Shape};

/// An array or token of the entry's result.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Positions in nested tuples.
    pub path: Vec<i64>,
    /// Its shape.
    pub shape: Shape,
}

/// Leaves of the result.
pub(crate) fn outputs(m: &Module) -> Vec<Output> {
    fn walk(s: &Shape, path: &mut Vec<i64>, out: &mut Vec<Output>) {
        match s {
            Shape::Tuple(t) => {
                for (k, s) in t.iter().enumerate() {
                    path.push(k as i64);
                    walk(s, path, out);
                    path.pop();
                }
            }
            s => out.push(Output { path: path.clone(), shape: s.clone() }),
        }
    }
    let mut out = Vec::new();
    walk(m.shape(m.entry_comp().root), &mut Vec::new(), &mut out);
    out
}

/// A parameter that takes an output of another stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wire {
    /// Stage and parameter.
    pub to: (usize, InstrId),
    /// Stage and output.
    pub from: (usize, usize),
}

/// Names of a parameter: its path, its name with and without number.
pub(crate) fn names(m: &Module, i: InstrId) -> Vec<&str> {
    let name = m.name_of(i);
    let stem = match name.rsplit_once('.') {
        Some((a, b)) if !b.is_empty() && b.bytes().all(|c| c.is_ascii_digit()) => a,
        _ => name,
    };
    let path = m.op_name(i).filter(|n| !n.is_empty() && !n.contains('/'));
    path.into_iter().chain([stem, name]).collect()
}

fn stage_of(p: &Port, stages: &[&Module]) -> Result<usize, StageError> {
    if p.stage < stages.len() {
        return Ok(p.stage);
    }
    let last = stages.len().saturating_sub(1);
    Err(StageError::new(
        last,
        format!("{p}: there is no stage {}", p.stage),
        format!("0 to {last}"),
    ))
}

/// The output that a port names.
pub(crate) fn output_of(p: &Port, stages: &[&Module]) -> Result<(usize, usize), StageError> {
    let k = stage_of(p, stages)?;
    let n = outputs(stages[k]).len();
    match p.selector {
        Selector::Index(i) if i < n => Ok((k, i)),
        _ => {
            let expected = format!("#0 to #{}", n.saturating_sub(1));
            Err(StageError::new(k, format!("{p}: there is no such output"), expected))
        }
    }
}

/// Wires that are declared.
pub(crate) fn declared(
    links: &[(Port, Port)],
    stages: &[&Module],
) -> Result<Vec<Wire>, StageError> {
    let mut out: Vec<Wire> = Vec::new();
    for (to, from) in links {
        let k = stage_of(to, stages)?;
        let m = stages[k];
        let params = &m.entry_comp().params;
        let mut hits =
            params.iter().enumerate().filter(|(n, p)| to.selector.matches(*n, &names(m, **p)));
        let (Some((_, &param)), None) = (hits.next(), hits.next()) else {
            let list: Vec<&str> = params.iter().map(|&p| names(m, p)[0]).take(12).collect();
            let text = format!("{to}: there is no such input, or there are several");
            return Err(StageError::new(k, text, format!("one of {}", list.join(", "))));
        };
        let from = output_of(from, stages)?;
        if out.iter().any(|w| w.to == (k, param)) {
            let text = format!("{to} is linked twice");
            return Err(StageError::at(k, m, param, text, "one link"));
        }
        out.push(Wire { to: (k, param), from });
        fits(out[out.len() - 1], stages)?;
    }
    Ok(out)
}

fn fits(w: Wire, stages: &[&Module]) -> Result<(), StageError> {
    let (k, param) = w.to;
    let m = stages[k];
    let from = outputs(stages[w.from.0]);
    let Some(o) = from.get(w.from.1) else {
        return Err(StageError::new(w.from.0, "there is no such output", "another"));
    };
    if !matches!(m.shape(param), Shape::Array(_)) {
        let text = "a parameter that is no array cannot take an output of another stage";
        return Err(StageError::at(k, m, param, text, "an array"));
    }
    if !m.shape(param).same(&o.shape) {
        let text = format!(
            "is {}, but output #{} of stage {} is {}",
            m.shape(param),
            w.from.1,
            w.from.0,
            o.shape
        );
        return Err(StageError::at(k, m, param, text, o.shape.to_string()));
    }
    Ok(())
}

/// Wires by position: all outputs of a stage are the leading inputs of the
/// next, else the only inputs in order that their shapes fit. The flag: other
/// inputs would fit as well.
pub(crate) fn positional(stages: &[&Module]) -> Result<(Vec<Wire>, bool), StageError> {
    let mut out = Vec::new();
    let mut several = false;
    for k in 1..stages.len() {
        let (a, b) = (stages[k - 1], stages[k]);
        let (from, params) = (outputs(a), &b.entry_comp().params);
        let fits = |o: &Output, p: InstrId| {
            matches!(o.shape, Shape::Array(_)) && b.shape(p).same(&o.shape)
        };
        let forward: Vec<InstrId> = params.clone();
        let backward: Vec<InstrId> = params.iter().rev().copied().collect();
        let greedy = |params: Vec<InstrId>, outs: Vec<usize>| -> Option<Vec<InstrId>> {
            let mut left = params.into_iter();
            outs.into_iter().map(|o| left.find(|&p| fits(&from[o], p))).collect()
        };
        let first = greedy(forward, (0..from.len()).collect());
        let last = greedy(backward, (0..from.len()).rev().collect()).map(|mut v| {
            v.reverse();
            v
        });
        let leading =
            from.len() <= params.len() && from.iter().zip(params).all(|(o, &p)| fits(o, p));
        let unique = first.is_some() && first == last;
        let picked = match first {
            Some(_) if leading => params[..from.len()].to_vec(),
            Some(f) if unique => f,
            _ => {
                let shapes: Vec<String> = from.iter().map(|o| o.shape.to_string()).collect();
                let text = format!(
                    "its outputs ({}) are not the leading inputs of stage {k}, and no other inputs \
                     are the only ones that fit",
                    shapes.join(", ")
                );
                let expected = "links (`--link '1:x=0:#0'`, or `[link]` in a spec file)";
                return Err(StageError::new(k - 1, text, expected));
            }
        };
        several |= !unique;
        let wires = picked.iter().enumerate();
        out.extend(wires.map(|(n, &p)| Wire { to: (k, p), from: (k - 1, n) }));
    }
    Ok((out, several))
}

/// The value of an output if the root is the tuple that holds it.
pub(crate) fn direct(m: &Module, o: &Output) -> Option<InstrId> {
    let mut at = m.entry_comp().root;
    for &k in &o.path {
        let i = m.instr(at);
        if i.opcode != Opcode::Tuple {
            return None;
        }
        at = *i.operands.get(usize::try_from(k).ok()?)?;
    }
    Some(at)
}

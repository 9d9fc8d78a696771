//! Calls, control flow, tuples, transfers.

use super::*;

fn declared<'a>(c: &Ctx<'a>) -> Out<'a> {
    c.declared.map_or(Out::Free, Out::Ref)
}

pub(super) fn parameter<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Parameter(_) = c.attrs else { return c.bad_attrs() };
    Ok(declared(c))
}

pub(super) fn constant<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Constant(l) = c.attrs else { return c.bad_attrs() };
    Ok(Out::Ref(&l.shape))
}

/// Operand `i` fits parameter `p` of callee `f`.
fn argument(c: &Ctx<'_>, i: usize, f: &Sig<'_>, p: usize) -> Res<()> {
    let (a, p_shape) = (c.shape(i)?, f.param(p)?);
    need!(
        std::ptr::eq(a, p_shape) || compatible(a, p_shape, false),
        format!("shape {p_shape} of parameter {p} of computation {}", f.name()),
        "operand {i} is {a}"
    );
    Ok(())
}

pub(super) fn call<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let f = c.call(0)?;
    need!(
        f.params() == c.len(),
        format!("{} operands, as computation {} has parameters", f.params(), f.name()),
        "{} operands",
        c.len()
    );
    for i in 0..c.len() {
        argument(c, i, &f, i)?;
    }
    Ok(Out::Ref(f.result()?))
}

pub(super) fn fusion<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Fusion { .. } = c.attrs else { return c.bad_attrs() };
    let f = c.call(0)?;
    need!(
        f.params() <= c.len(),
        format!("at most {} parameters", c.len()),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    for i in 0..f.params() {
        argument(c, i, &f, i)?;
    }
    Ok(Out::Ref(f.result()?))
}

fn parameters(f: &Sig<'_>, n: usize) -> Res<()> {
    need!(
        f.params() == n,
        format!("{n} parameters"),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    Ok(())
}

pub(super) fn while_loop<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (cond, body) = (c.call(0)?, c.call(1)?);
    for f in [&cond, &body] {
        parameters(f, 1)?;
        argument(c, 0, f, 0)?;
    }
    reduction::predicate(&cond)?;
    let (init, r) = (c.shape(0)?, body.result()?);
    need!(
        std::ptr::eq(init, r) || compatible(init, r, false),
        format!("a body that returns {init}"),
        "computation {} returns {r}",
        body.name()
    );
    Ok(Out::Ref(r))
}

pub(super) fn conditional<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let i = c.scalar(0)?;
    let n = c.calls.len();
    let ok = match i.dtype {
        DType::Pred => n == 2,
        DType::S32 => n >= 1,
        _ => false,
    };
    need!(
        ok,
        "a pred scalar with 2 branches or an s32 scalar with at least 1",
        "{i} with {n} branches"
    );
    need!(c.len() == n + 1, format!("{} operands", n + 1), "{} operands", c.len());
    let first = c.call(0)?.result()?;
    let mut merged: Option<Shape> = None;
    for k in 0..n {
        let f = c.call(k)?;
        parameters(&f, 1)?;
        argument(c, k + 1, &f, 0)?;
        let r = f.result()?;
        need!(
            std::ptr::eq(first, r) || compatible(first, r, false),
            format!("branches that all return {first}"),
            "computation {} returns {r}",
            f.name()
        );
        if !std::ptr::eq(first, r) && !first.same(r) {
            or_dynamic(merged.get_or_insert_with(|| first.clone()), r);
        }
    }
    Ok(merged.map_or(Out::Ref(first), Out::Shape))
}

/// Makes dynamic in `a` what is dynamic in the compatible `b`.
fn or_dynamic(a: &mut Shape, b: &Shape) {
    match (a, b) {
        (Shape::Array(a), Shape::Array(b)) => a.dynamic |= b.dynamic,
        (Shape::Tuple(a), Shape::Tuple(b)) => {
            a.iter_mut().zip(b).for_each(|(a, b)| or_dynamic(a, b));
        }
        _ => {}
    }
}

pub(super) fn get_tuple_element<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::TupleIndex(k) = *c.attrs else { return c.bad_attrs() };
    let t = c.tuple(0)?;
    match usize::try_from(k).ok().and_then(|k| t.get(k)) {
        Some(s) => Ok(Out::Ref(s)),
        None => err!(format!("an index below {}", t.len()), "index={k}"),
    }
}

/// Operands may be tied to layouts, and results to operands; shapes are free.
pub(super) fn custom_call<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::CustomCall(a) = c.attrs else { return c.bad_attrs() };
    let layouts = &a.operand_layouts;
    if !layouts.is_empty() {
        need!(
            layouts.len() == c.len(),
            format!("{} operand layout constraints", c.len()),
            "{}",
            layouts.len()
        );
        for (i, l) in layouts.iter().enumerate() {
            let s = c.shape(i)?;
            need!(
                compatible(s, l, false),
                format!("a layout constraint of shape {s}"),
                "constraint {i} is {l}"
            );
        }
    }
    Ok(Out::Free)
}

/// `((parameters..), result, context..)` around a called computation.
pub(super) fn asynchronous<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Async { .. } = c.attrs else { return c.bad_attrs() };
    let state = if c.op == Opcode::AsyncStart { c.declared } else { Some(c.shape(0)?) };
    if c.op == Opcode::AsyncStart && state.is_none() {
        // Without a recorded state: no context.
        let r = c.call(0)?.result()?;
        return Ok(Out::Tuple(vec![Out::Of(c.operands), Out::Ref(r)]));
    }
    let Some(Shape::Tuple(t)) = state else {
        return err!("((operands..), result, context..)", "a state that is no tuple");
    };
    let [Shape::Tuple(args), result, ..] = &t[..] else {
        return err!("((operands..), result, context..)", "state {}", Shape::Tuple(t.clone()));
    };
    // Updates and dones may omit the computation their start names.
    if c.op == Opcode::AsyncStart || !c.calls.is_empty() {
        let f = c.call(0)?;
        parameters(&f, args.len())?;
        for (i, a) in args.iter().enumerate() {
            let p = f.param(i)?;
            need!(
                compatible(a, p, false),
                format!("shape {p} of parameter {i} of computation {}", f.name()),
                "state argument {i} is {a}"
            );
        }
        let r = f.result()?;
        need!(
            compatible(result, r, false),
            format!("shape {r} that computation {} returns", f.name()),
            "state result {result}"
        );
    }
    match c.op {
        Opcode::AsyncStart => {
            need!(
                args.len() == c.len(),
                format!("{} operands, as the state", args.len()),
                "{} operands",
                c.len()
            );
            for (i, a) in args.iter().enumerate() {
                let s = c.shape(i)?;
                need!(compatible(a, s, false), format!("{a}, as the state"), "operand {i} is {s}");
            }
            Ok(declared(c))
        }
        Opcode::AsyncUpdate => Ok(Out::Ref(c.shape(0)?)),
        _ => Ok(Out::Ref(result)),
    }
}

pub(super) fn copy_start<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let s = c.shape(0)?;
    let context = Out::Array(ArrayShape::new(DType::U32, []));
    Ok(Out::Tuple(vec![Out::Ref(s), Out::Ref(s), context]))
}

pub(super) fn copy_done<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    match c.tuple(0)? {
        [dst, src, ..] if compatible(dst, src, false) => Ok(Out::Ref(dst)),
        t => err!("(destination, source, context)", "operand {}", Shape::Tuple(t.to_vec())),
    }
}

fn context<'a>() -> Out<'a> {
    Out::Array(ArrayShape::new(DType::U32, []))
}

pub(super) fn send<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    c.token(1)?;
    Ok(Out::Tuple(vec![Out::Ref(c.shape(0)?), context(), Out::Ref(&Shape::Token)]))
}

pub(super) fn recv<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    c.token(0)?;
    match c.declared {
        Some(Shape::Tuple(t)) if !t.is_empty() => {
            Ok(Out::Tuple(vec![Out::Ref(&t[0]), context(), Out::Ref(&Shape::Token)]))
        }
        Some(s) => err!("(data, u32[], token[])", "result {s}"),
        None => err!("a result shape", "recv needs its result shape given"),
    }
}

pub(super) fn recv_done<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    match c.tuple(0)? {
        [data, ..] => Ok(Out::Tuple(vec![Out::Ref(data), Out::Ref(&Shape::Token)])),
        [] => err!("(data, u32[], token[])", "operand ()"),
    }
}

pub(super) fn infeed<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    c.token(0)?;
    match c.declared {
        Some(Shape::Tuple(t)) if t.len() == 2 => {
            Ok(Out::Tuple(vec![Out::Ref(&t[0]), Out::Ref(&Shape::Token)]))
        }
        Some(s) => err!("(data, token[])", "result {s}"),
        None => err!("a result shape", "infeed needs its result shape given"),
    }
}

pub(super) fn outfeed<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    c.token(1)?;
    Ok(Out::Ref(&Shape::Token))
}

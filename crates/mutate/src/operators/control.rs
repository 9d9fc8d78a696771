//! Loops, branches, calls, reducers, device ids.

use super::collective::reducer_of;
use super::{Operator, Site};
use crate::edit::{Edit, decode, encode};
use crate::random::Random;
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Literal, Module, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "loop-trips",
        about: "a loop runs once more or once less",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::While),
        edit: trips,
    },
    Operator {
        name: "loop-stale",
        about: "a loop carries a value on unchanged",
        equal: false,
        ways: |m, _, i| {
            let here = m.instr(i).opcode == Opcode::While;
            if here { m.shape(i).as_tuple().map_or(0, <[_]>::len) as u32 } else { 0 }
        },
        edit: stale,
    },
    Operator {
        name: "branch-exchange",
        about: "two branches of a conditional change places",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Conditional),
        edit: |e, s, _| {
            let i = e.instr_mut(s.instr);
            if i.calls.len() < 2 || i.calls[0] == i.calls[1] {
                return None;
            }
            i.calls.swap(0, 1);
            if i.operands.len() > 2 {
                i.operands.swap(1, 2);
            }
            e.text = "branches 0 and 1 exchanged".into();
            Some(())
        },
    },
    Operator {
        name: "call-other",
        about: "another computation of the same signature is called",
        equal: false,
        ways: |m, _, i| u32::from(matches!(m.instr(i).opcode, Opcode::Call | Opcode::Fusion)),
        edit: call_other,
    },
    Operator {
        name: "reducer",
        about: "a reduction or scatter combines by another operation",
        equal: false,
        ways: |m, _, i| {
            use Opcode::*;
            let here = matches!(m.instr(i).opcode, Reduce | ReduceWindow | Scatter);
            u32::from(here && reducer_of(m, i).is_some())
        },
        edit: |e, s, r| {
            let old = reducer_of(&e.m, s.instr)?;
            let t = e.m.dtype(*e.m.instr(s.instr).operands.first()?)?;
            let all: &[Opcode] = match t {
                DType::Pred => &[Opcode::And, Opcode::Or],
                _ => &[Opcode::Add, Opcode::Maximum, Opcode::Minimum, Opcode::Multiply],
            };
            let new = *r.pick(all)?;
            if new == old {
                return None;
            }
            let c = e.reducer(new, t)?;
            e.text = format!("by {new}, was {old}");
            e.instr_mut(s.instr).calls[0] = c;
            Some(())
        },
    },
    Operator {
        name: "device-shift",
        about: "a device takes itself for the next one",
        equal: false,
        ways: device,
        edit: |e, s, _| table(e, s, "the next device", |d, n| (d + 1) % n),
    },
    Operator {
        name: "device-zero",
        about: "every device takes itself for the first",
        equal: false,
        ways: device,
        edit: |e, s, _| table(e, s, "device 0", |_, _| 0),
    },
    Operator {
        name: "device-reverse",
        about: "devices count themselves from the end",
        equal: false,
        ways: device,
        edit: |e, s, _| table(e, s, "counted from the end", |d, n| n - 1 - d),
    },
];

fn device(m: &Module, _: CompId, i: InstrId) -> u32 {
    u32::from(matches!(m.instr(i).opcode, Opcode::PartitionId | Opcode::ReplicaId))
}

/// The device id is looked up in a table.
fn table(e: &mut Edit, s: Site, text: &str, f: impl Fn(i64, i64) -> i64) -> Option<()> {
    let n = e.devices;
    let bytes: Vec<u8> = (0..n).flat_map(|d| (f(d, n) as u32).to_le_bytes()).collect();
    let shape = e.m.shape(s.instr).clone();
    e.text = format!("reads {text}");
    e.behind(s.instr, |e, at| {
        let t = e.constant(at, Literal::dense(ArrayShape::new(DType::U32, [n]), bytes))?;
        let one = Attrs::DynamicSlice([1].into_iter().collect());
        let v = e.add(at, Opcode::DynamicSlice, one, &[t, s.instr], &[])?;
        e.put(at, Opcode::Reshape, Attrs::None, &[v], &[], shape)
    })?;
    Some(())
}

fn trips(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let cond = *e.m.instr(s.instr).calls.first()?;
    let root = e.m.comp(cond).root;
    if e.m.instr(root).opcode != Opcode::Compare {
        return None;
    }
    let c = e.operands(root).into_iter().find(|&o| e.m.literal(o).is_some())?;
    let t = e.m.dtype(c)?;
    let a = e.m.array(c)?.clone();
    let old = decode(t, e.m.literal(c)?.bytes()?)?;
    let new = if r.coin() { old + 1.0 } else { old - 1.0 };
    e.text = format!("bound {new}, was {old}");
    let l = Literal::dense(a, encode(t, new)?);
    e.instr_mut(c).attrs = Attrs::Constant(Box::new(l));
    Some(())
}

fn stale(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let body = *e.m.instr(s.instr).calls.get(1)?;
    let (root, p) = (e.m.comp(body).root, *e.m.comp(body).params.first()?);
    let k = s.way as usize;
    let before = *e.m.instr(root).operands.get(k)?;
    if e.m.instr(root).opcode != Opcode::Tuple || e.m.dtype(before).is_none_or(DType::is_int) {
        return None;
    }
    e.comp = body;
    let shape = e.m.shape(before).clone();
    let old =
        e.put(root, Opcode::GetTupleElement, Attrs::TupleIndex(k as i64), &[p], &[], shape)?;
    e.text = format!("element {k} is carried on unchanged");
    e.instr_mut(root).operands[k] = old;
    Some(())
}

fn signature(m: &Module, c: CompId) -> Vec<&scalify_ir::Shape> {
    let k = m.comp(c);
    k.params.iter().chain([&k.root]).map(|&i: &InstrId| m.shape(i)).collect()
}

fn call_other(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let old = *e.m.instr(s.instr).calls.first()?;
    let want = signature(&e.m, old);
    let fit: Vec<CompId> = (0..s.comp.0)
        .map(CompId)
        .filter(|&c| c != old)
        .filter(|&c| {
            let have = signature(&e.m, c);
            have.len() == want.len() && have.iter().zip(&want).all(|(a, b)| a.same(b))
        })
        .collect();
    let new = *r.pick(&fit)?;
    e.text = format!("calls %{}", e.m.str(e.m.comp(new).name));
    e.instr_mut(s.instr).calls[0] = new;
    Some(())
}

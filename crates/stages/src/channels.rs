//! Pairs of send and recv between stages.

use crate::error::StageError;
use rustc_hash::FxHashMap;
use scalify_ir::{Attrs, InstrId, Module, Opcode};

/// A value that a channel carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// Stage and `send`.
    pub from: (usize, InstrId),
    /// Stage and `recv`.
    pub to: (usize, InstrId),
}

/// Transfers by the `recv` at which they arrive.
pub(crate) type Transfers = FxHashMap<(usize, InstrId), Transfer>;

/// One `send` or `recv` per channel.
fn ends(stages: &[&Module], op: Opcode) -> Result<Vec<(i64, (usize, InstrId))>, StageError> {
    let mut out: Vec<(i64, (usize, InstrId))> = Vec::new();
    let mut seen: FxHashMap<i64, usize> = FxHashMap::default();
    for (k, m) in stages.iter().enumerate() {
        for (c, comp) in m.comps.iter().enumerate() {
            for &i in comp.instrs.iter().filter(|&&i| m.instr(i).opcode == op) {
                let Attrs::Channel { channel_id, is_host_transfer } = m.instr(i).attrs else {
                    return Err(StageError::at(k, m, i, "names no channel", "channel_id"));
                };
                if m.frontend_attr(i, "_xla_send_recv_source_target_pairs").is_some() {
                    let text = "transfers between devices of other numbers are not supported";
                    return Err(StageError::at(k, m, i, text, "a transfer without pairs"));
                }
                if is_host_transfer {
                    let text = "transfers to and from the host are not supported";
                    return Err(StageError::at(k, m, i, text, "a transfer between stages"));
                }
                if c != m.entry.0 as usize {
                    let text = format!("{op} inside of %{} is not supported", m.str(comp.name));
                    return Err(StageError::at(k, m, i, text, "it in the entry computation"));
                }
                let Some(id) = channel_id else {
                    return Err(StageError::at(k, m, i, "names no channel", "channel_id"));
                };
                if let Some(other) = seen.insert(id, k) {
                    let text = format!("channel {id} has another {op}, in stage {other}");
                    return Err(StageError::at(k, m, i, text, "one per channel"));
                }
                out.push((id, (k, i)));
            }
        }
    }
    Ok(out)
}

/// Pairs of `send` and `recv` by channel.
pub(crate) fn transfers(stages: &[&Module]) -> Result<Transfers, StageError> {
    let (sends, recvs) = (ends(stages, Opcode::Send)?, ends(stages, Opcode::Recv)?);
    let from: FxHashMap<i64, (usize, InstrId)> = sends.iter().copied().collect();
    let into: FxHashMap<i64, (usize, InstrId)> = recvs.iter().copied().collect();
    for &(id, (k, i)) in &sends {
        if !into.contains_key(&id) {
            let text = format!("nothing receives from channel {id}");
            return Err(StageError::at(k, stages[k], i, text, "a recv in another stage"));
        }
    }
    let mut out = Transfers::default();
    for &(id, (k, i)) in &recvs {
        let m = stages[k];
        let Some(&(s, j)) = from.get(&id) else {
            let text = format!("nothing is sent on channel {id}");
            return Err(StageError::at(k, m, i, text, "a send in another stage"));
        };
        if s == k {
            let text = format!("channel {id} is sent on and received from in one stage");
            let expected = "a transfer between stages";
            return Err(StageError::at(k, m, i, text, expected));
        }
        let sent = stages[s].instr(j).operands.first().map(|&o| stages[s].shape(o));
        let got = m.shape(i).as_tuple().and_then(|t| t.first());
        let (Some(sent), Some(got)) = (sent, got) else {
            return Err(StageError::at(
                k,
                m,
                i,
                "is no tuple of a value",
                "(value, u32[], token[])",
            ));
        };
        if !sent.same(got) {
            let name = stages[s].name_of(j);
            let text =
                format!("receives {got}, but %{name} of stage {s} sends {sent} on channel {id}");
            return Err(StageError::at(k, m, i, text, sent.to_string()));
        }
        out.insert((k, i), Transfer { from: (s, j), to: (k, i) });
    }
    Ok(out)
}

/// True if `i` is `op` of which the operand is `of`.
pub(crate) fn ends_with(m: &Module, i: InstrId, op: Opcode) -> Option<InstrId> {
    (m.instr(i).opcode == op).then(|| m.instr(i).operands.first().copied()).flatten()
}

//! Which message a file holds.

use crate::wire::{Value, fields};

/// A message that holds an HLO module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// `xla.HloModuleProto`.
    Module,
    /// `xla.HloProto`, or any message with the module in field 1 (such as
    /// `HloUnoptimizedSnapshot`).
    Proto,
    /// `xla.HloSnapshot`: the module in field 1 of field 1.
    Snapshot,
}

/// The message kind and the bytes of its `HloModuleProto`; `None` if the
/// bytes hold no module with at least one computation.
pub fn recognise(bytes: &[u8]) -> Option<(MessageKind, &[u8])> {
    if let Some(first) = first_message(bytes) {
        if is_module(first) {
            return Some((MessageKind::Proto, first));
        }
        if let Some(inner) = first_message(first)
            && is_module(inner)
        {
            return Some((MessageKind::Snapshot, inner));
        }
    }
    is_module(bytes).then_some((MessageKind::Module, bytes))
}

/// Field 1, if the leading fields have the form of a message and it is
/// length-delimited.
fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    for f in fields(bytes) {
        let f = f.ok()?;
        if f.number == 1 {
            return f.value.bytes("").ok();
        }
    }
    None
}

/// True if field 3 holds a computation: a message with an instruction in
/// field 2 whose opcode (field 2) has the form of one.
fn is_module(bytes: &[u8]) -> bool {
    for f in fields(bytes) {
        let Ok(f) = f else { return false };
        if let (3, Value::Len(comp)) = (f.number, f.value) {
            return fields(comp).map_while(Result::ok).any(|f| match (f.number, f.value) {
                (2, Value::Len(instr)) => has_opcode(instr),
                _ => false,
            });
        }
    }
    false
}

fn has_opcode(instr: &[u8]) -> bool {
    fields(instr).map_while(Result::ok).any(|f| match (f.number, f.value) {
        (2, Value::Len(op)) => {
            !op.is_empty()
                && op.len() < 64
                && op.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        }
        _ => false,
    })
}

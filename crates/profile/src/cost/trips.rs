//! How often loops run: what the compiler recorded, else what counting loops
//! show.

use scalify_ir::{InstrId, Module, Opcode};
use serde::Serialize;

/// Iterations of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Trips {
    /// How many.
    pub count: u64,
    /// Recorded as `known_trip_count`; else derived from the counter.
    pub recorded: bool,
}

/// Iterations of the `while` at `id`; `None` if neither recorded nor a counter
/// that starts at a constant, moves by a constant and is compared with one.
pub fn trips(m: &Module, id: InstrId) -> Option<Trips> {
    let i = m.instrs.get(id.0 as usize)?;
    if i.opcode != Opcode::While {
        return None;
    }
    if let Some(count) = recorded(m, id) {
        return Some(Trips { count, recorded: true });
    }
    let count = u64::try_from(scalify_ir::trips::of_while(m, id)?).ok()?;
    Some(Trips { count, recorded: false })
}

fn recorded(m: &Module, id: InstrId) -> Option<u64> {
    let config = m.instr(id).extra.as_ref()?.backend_config.as_ref()?;
    let v: serde_json::Value = serde_json::from_str(m.str(config.text)).ok()?;
    let n = v.get("known_trip_count")?.get("n")?;
    n.as_u64().or_else(|| n.as_str()?.parse().ok())
}

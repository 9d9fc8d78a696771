//! What an operation's cotangent adds to those of its operands, by opcode.

mod collective;
mod conv;
mod dot;
mod elementwise;
mod indexed;
mod moving;
mod order;
mod reduce;
mod window;

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{CompId, InstrId, Opcode};

impl Work<'_> {
    /// Adds the cotangents of the operands of `out`, an operation with one
    /// result per leaf; `given` are the leaves' cotangents.
    pub(crate) fn rule(
        &mut self,
        out: InstrId,
        leaves: &[InstrId],
        given: &[Option<InstrId>],
        cts: &mut Cotangents,
    ) -> Res<()> {
        use Opcode::*;
        let op = self.e.m.instr(out).opcode;
        let xs: Vec<InstrId> = self.e.m.instr(out).operands.to_vec();
        let complex = leaves.iter().chain(&xs).any(|&l| {
            self.e.m.shape(l).leaves().iter().any(|s| s.dtype().is_some_and(|t| t.is_complex()))
        });
        if complex {
            return Err(internal("a derivative of complex numbers", "real floats"));
        }
        match op {
            AllReduce | AllGather | ReduceScatter | CollectivePermute | AllToAll => {
                return self.collective(out, op, &xs, leaves, given, cts);
            }
            Sort | TopK => return self.ordered(out, op, &xs, leaves, given, cts),
            CustomCall => return self.custom(out, &xs, leaves, given, cts),
            _ => {}
        }
        let (&[_], &[Some(ct)]) = (leaves, given) else {
            return Err(internal(
                format!("a derivative of {op} with {} results", leaves.len()),
                "an operation with one result",
            ));
        };
        match op {
            Dot => self.dot(out, &xs, ct, cts),
            Convolution => self.convolution(out, &xs, ct, cts),
            Reduce => self.reduce(out, &xs, ct, cts),
            ReduceWindow => self.reduce_window(out, &xs, ct, cts),
            DynamicSlice | DynamicUpdateSlice | Gather | Scatter => {
                self.indexed(out, op, &xs, ct, cts)
            }
            Reshape | Bitcast | Transpose | Broadcast | Slice | Pad | Concatenate | Reverse => {
                self.moving(out, op, &xs, ct, cts)
            }

            _ => self.elementwise(out, op, &xs, ct, cts),
        }
    }

    /// The operation that a computation `(x, y) -> op(x, y)` is.
    pub(crate) fn monoid(&self, c: CompId) -> Option<Opcode> {
        let comp = self.e.m.comp(c);
        let &[a, b] = &comp.params[..] else { return None };
        let mut root = comp.root;
        // A lone call or conversion to and fro is looked through.
        for _ in 0..4 {
            let i = self.e.m.instr(root);
            match i.opcode {
                Opcode::Convert | Opcode::Copy => root = *i.operands.first()?,
                Opcode::Call if i.operands[..] == [a, b] => return self.monoid(*i.calls.first()?),
                _ => break,
            }
        }
        let i = self.e.m.instr(root);
        let source = |mut x: InstrId| {
            while matches!(self.e.m.instr(x).opcode, Opcode::Convert | Opcode::Copy) {
                x = *self.e.m.instr(x).operands.first()?;
            }
            Some(x)
        };
        let &[x, y] = &i.operands[..] else { return None };
        let (x, y) = (source(x)?, source(y)?);
        ((x, y) == (a, b) || (x, y) == (b, a)).then_some(i.opcode)
    }
}

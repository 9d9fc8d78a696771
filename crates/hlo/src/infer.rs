//! Result shapes that a text may leave out.

use scalify_ir::{ArrayShape, Attrs, DType, InstrId, Module, Opcode, Shape};

/// Shape of `op` on these operands, or `None` if it must be written.
/// `results` holds the result shapes of the called computations.
pub(crate) fn result(
    m: &Module,
    op: Opcode,
    operands: &[InstrId],
    attrs: &Attrs,
    results: &[Option<Shape>],
) -> Option<Shape> {
    let shapes: Vec<&Shape> = operands
        .iter()
        .map(|&o| m.instrs.get(o.0 as usize).map(|i| &m.shapes[i.shape.0 as usize]))
        .collect::<Option<_>>()?;
    let array = |i: usize| shapes.get(i)?.as_array();
    use Opcode as O;
    match (op, attrs) {
        (O::Tuple, _) => Some(Shape::Tuple(shapes.into_iter().cloned().collect())),
        (O::GetTupleElement, Attrs::TupleIndex(i)) => {
            shapes.first()?.as_tuple()?.get(usize::try_from(*i).ok()?).cloned()
        }
        (O::Call, _) => results.first()?.clone(),
        (O::While, _) => shapes.first().map(|s| (*s).clone()),
        (O::Conditional, _) => results.first()?.clone(),
        (O::AfterAll, _) => Some(Shape::Token),
        (O::AddDependency | O::Domain | O::OptimizationBarrier | O::Copy, _) => {
            shapes.first().map(|s| (*s).clone())
        }
        (O::ReplicaId | O::PartitionId, _) => Some(Shape::array(DType::U32, [])),
        (O::Convert | O::BitcastConvert, _) => None,
        (O::Compare | O::IsFinite, _) => {
            Some(Shape::Array(ArrayShape { dtype: DType::Pred, ..array(0)?.clone() }))
        }
        (O::Complex, _) => {
            let a = array(0)?;
            let dtype = if a.dtype == DType::F64 { DType::C128 } else { DType::C64 };
            Some(Shape::Array(ArrayShape { dtype, ..a.clone() }))
        }
        (O::Real | O::Imag | O::Abs, _) => {
            let a = array(0)?;
            let dtype = a.dtype.complex_part().unwrap_or(a.dtype);
            Some(Shape::Array(ArrayShape { dtype, ..a.clone() }))
        }
        (O::Select, _) => shapes.get(1).map(|s| (*s).clone()),
        (O::Clamp, _) => shapes.get(1).map(|s| (*s).clone()),
        (O::StochasticConvert, _) => None,
        (O::Sort, _) if shapes.len() == 1 => shapes.first().map(|s| (*s).clone()),
        (O::Sort, _) => Some(Shape::Tuple(shapes.into_iter().cloned().collect())),
        (O::Reverse | O::Cholesky, _) => shapes.first().map(|s| (*s).clone()),
        (O::TriangularSolve, _) => shapes.get(1).map(|s| (*s).clone()),
        (O::Transpose, Attrs::Dims(p)) => {
            let a = array(0)?;
            let dims: Option<Vec<i64>> =
                p.iter().map(|&d| a.dims.get(usize::try_from(d).ok()?).copied()).collect();
            (a.dynamic == 0).then(|| Some(Shape::array(a.dtype, dims?)))?
        }
        (O::Concatenate, Attrs::Dims(d)) => {
            let d = usize::try_from(*d.first()?).ok()?;
            let mut out = ArrayShape { layout: None, ..array(0)?.clone() };
            let mut sum = 0i64;
            for i in 0..shapes.len() {
                sum = sum.checked_add(*array(i)?.dims.get(d)?)?;
            }
            *out.dims.get_mut(d)? = sum;
            (out.dynamic == 0).then_some(Shape::Array(out))
        }
        (O::Pad, Attrs::Pad(p)) => {
            let a = array(0)?;
            let dims: Option<Vec<i64>> = (a.dims.iter().zip(p))
                .map(|(&n, p)| {
                    let gaps = n.checked_sub(1)?.max(0).checked_mul(p.interior)?;
                    n.checked_add(p.low)?.checked_add(p.high)?.checked_add(gaps)
                })
                .collect();
            (a.dynamic == 0 && a.rank() == p.len()).then(|| Some(Shape::array(a.dtype, dims?)))?
        }
        (O::Dot, Attrs::Dot(d)) => {
            let (l, r) = (array(0)?, array(1)?);
            let free = |a: &ArrayShape, batch: &[i64], con: &[i64]| -> Vec<i64> {
                (a.dims.iter().enumerate())
                    .filter(|(i, _)| !batch.contains(&(*i as i64)) && !con.contains(&(*i as i64)))
                    .map(|(_, d)| *d)
                    .collect()
            };
            let mut dims: Vec<i64> = (d.lhs_batch.iter())
                .map(|&b| l.dims.get(usize::try_from(b).ok()?).copied())
                .collect::<Option<_>>()?;
            dims.extend(free(l, &d.lhs_batch, &d.lhs_contracting));
            dims.extend(free(r, &d.rhs_batch, &d.rhs_contracting));
            let plain = l.dynamic == 0 && r.dynamic == 0 && l.dtype == r.dtype;
            plain.then(|| Shape::array(l.dtype, dims))
        }
        (O::Reduce, Attrs::Dims(d)) => {
            let a = array(0)?;
            if a.dynamic != 0 {
                return None;
            }
            let dims: Vec<i64> = (a.dims.iter().enumerate())
                .filter(|(i, _)| !d.contains(&(*i as i64)))
                .map(|(_, d)| *d)
                .collect();
            match results.first()?.as_ref()? {
                Shape::Tuple(parts) => {
                    let of = |p: &Shape| Some(Shape::array(p.dtype()?, dims.iter().copied()));
                    Some(Shape::Tuple(parts.iter().map(of).collect::<Option<_>>()?))
                }
                s => Some(Shape::array(s.dtype()?, dims)),
            }
        }
        (O::Map, _) => {
            let dtype = results.first()?.as_ref()?.dtype()?;
            Some(Shape::Array(ArrayShape { dtype, ..array(0)?.clone() }))
        }
        (O::GetDimensionSize, _) => Some(Shape::array(DType::S32, [])),
        _ if op.is_unary_elementwise() => shapes.first().map(|s| (*s).clone()),
        _ if op.is_binary_elementwise() => {
            let (a, b) = (array(0)?, array(1)?);
            a.same(b).then(|| shapes[0].clone())
        }
        _ => None,
    }
}

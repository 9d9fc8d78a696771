//! Values: arrays with typed storage, tuples, tokens.
//!
//! Storage is shared by reference count; kernels write in place when they
//! hold the only reference.

use crate::complex::{C64, C128, Complex};
use crate::narrow;
use half::{bf16, f16};
use scalify_ir::dtype::DTypeClass;
use scalify_ir::shape::Dims;
use scalify_ir::{ArrayShape, DType, Literal, LiteralData, Shape};
use std::sync::Arc;

/// One element of a float format of eight bits or less: its code. Which
/// format it is stands in [`Tensor::dtype`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct F8(pub u8);

/// Row-major elements of a [`Tensor`].
///
/// | element type | storage |
/// |---|---|
/// | `pred` | `Bool` |
/// | `s1`..`s64`, `u1`..`u64` | the integer of the next width of 8, 16, 32, 64 |
/// | `f16`, `bf16`, `f32`, `f64` | itself |
/// | `f8*`, `f6*`, `f4*` | `F8` |
/// | `c64`, `c128` | itself |
///
/// In the accumulation mode `F64` all floats are stored as `F64` and all
/// complex numbers as `C128`, whatever the element type says.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Data {
    Bool(Arc<Vec<bool>>),
    I8(Arc<Vec<i8>>),
    I16(Arc<Vec<i16>>),
    I32(Arc<Vec<i32>>),
    I64(Arc<Vec<i64>>),
    U8(Arc<Vec<u8>>),
    U16(Arc<Vec<u16>>),
    U32(Arc<Vec<u32>>),
    U64(Arc<Vec<u64>>),
    F8(Arc<Vec<F8>>),
    F16(Arc<Vec<f16>>),
    Bf16(Arc<Vec<bf16>>),
    F32(Arc<Vec<f32>>),
    F64(Arc<Vec<f64>>),
    C64(Arc<Vec<C64>>),
    C128(Arc<Vec<C128>>),
}

/// Runs `$e` with `$v` bound to the `Arc<Vec<_>>` of any storage.
macro_rules! each {
    ($d:expr, $v:ident => $e:expr) => {
        match $d {
            $crate::tensor::Data::Bool($v) => $e,
            $crate::tensor::Data::I8($v) => $e,
            $crate::tensor::Data::I16($v) => $e,
            $crate::tensor::Data::I32($v) => $e,
            $crate::tensor::Data::I64($v) => $e,
            $crate::tensor::Data::U8($v) => $e,
            $crate::tensor::Data::U16($v) => $e,
            $crate::tensor::Data::U32($v) => $e,
            $crate::tensor::Data::U64($v) => $e,
            $crate::tensor::Data::F8($v) => $e,
            $crate::tensor::Data::F16($v) => $e,
            $crate::tensor::Data::Bf16($v) => $e,
            $crate::tensor::Data::F32($v) => $e,
            $crate::tensor::Data::F64($v) => $e,
            $crate::tensor::Data::C64($v) => $e,
            $crate::tensor::Data::C128($v) => $e,
        }
    };
}
pub(crate) use each;

/// A Rust type that stores elements.
pub trait Store: Copy + Default + PartialEq + Send + Sync + 'static {
    /// Wraps elements.
    fn wrap(v: Arc<Vec<Self>>) -> Data;
    /// The elements if the storage is of this type.
    fn get(d: &Data) -> Option<&Arc<Vec<Self>>>;
    /// The elements, by value, if the storage is of this type.
    fn take(d: Data) -> Option<Arc<Vec<Self>>>;
}

macro_rules! stores {
    ($($t:ty => $v:ident),*) => {$(
        impl Store for $t {
            fn wrap(v: Arc<Vec<Self>>) -> Data {
                Data::$v(v)
            }
            fn get(d: &Data) -> Option<&Arc<Vec<Self>>> {
                match d {
                    Data::$v(v) => Some(v),
                    _ => None,
                }
            }
            fn take(d: Data) -> Option<Arc<Vec<Self>>> {
                match d {
                    Data::$v(v) => Some(v),
                    _ => None,
                }
            }
        }
    )*};
}
stores!(bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16,
        u32 => U32, u64 => U64, F8 => F8, f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64,
        C64 => C64, C128 => C128);

/// An array.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: Dims,
    /// Elements.
    pub data: Data,
    /// Run-time sizes set by `set-dimension-size`; `None` if all dimensions
    /// are full.
    pub sizes: Option<Arc<[i64]>>,
}

/// The value of an instruction.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array.
    Tensor(Tensor),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A token.
    Token,
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Same allocation?
    pub fn same(&self, o: &Data) -> bool {
        let p = each!(self, v => Arc::as_ptr(v) as *const u8);
        let q = each!(o, v => Arc::as_ptr(v) as *const u8);
        std::ptr::eq(p, q)
    }

    pub(crate) fn from_vec<T: Store>(v: Vec<T>) -> Data {
        T::wrap(Arc::new(v))
    }
}

/// Number of elements; `None` on a negative size, or if the product of the
/// sizes (zeros left out, so that products over some dimensions are safe too)
/// is too big to address.
pub(crate) fn count(dims: &[i64]) -> Option<usize> {
    let all = dims.iter().try_fold(1i64, |a, &d| {
        if d < 0 {
            return None;
        }
        a.checked_mul(d.max(1)).filter(|&n| n < 1 << 48)
    })?;
    Some(if dims.contains(&0) { 0 } else { all as usize })
}

impl Tensor {
    /// An array of `data`; `None` if the number of elements is not that of
    /// `dims` or the storage does not fit `dtype`.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = i64>, data: Data) -> Option<Tensor> {
        let dims: Dims = dims.into_iter().collect();
        let fits = storage_of(dtype) == kind(&data)
            || dtype.is_float() && matches!(data, Data::F64(_))
            || dtype.is_complex() && matches!(data, Data::C128(_));
        (fits && count(&dims) == Some(data.len())).then_some(Tensor {
            dtype,
            dims,
            data,
            sizes: None,
        })
    }

    pub(crate) fn raw(dtype: DType, dims: &[i64], data: Data) -> Tensor {
        Tensor { dtype, dims: dims.iter().copied().collect(), data, sizes: None }
    }

    /// An array from typed elements; `None` as for [`Tensor::new`].
    pub fn from_vec<T: Store>(
        dtype: DType,
        dims: impl IntoIterator<Item = i64>,
        v: Vec<T>,
    ) -> Option<Tensor> {
        Tensor::new(dtype, dims, Data::from_vec(v))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// All elements as `f64` (real part of complex numbers; integers of more
    /// than 53 bits are rounded).
    pub fn to_f64(&self) -> Vec<f64> {
        macro_rules! cast {
            ($v:expr) => {
                $v.iter().map(|&x| x as f64).collect()
            };
        }
        match &self.data {
            Data::Bool(v) => v.iter().map(|&x| x as u8 as f64).collect(),
            Data::I8(v) => cast!(v),
            Data::I16(v) => cast!(v),
            Data::I32(v) => cast!(v),
            Data::I64(v) => cast!(v),
            Data::U8(v) => cast!(v),
            Data::U16(v) => cast!(v),
            Data::U32(v) => cast!(v),
            Data::U64(v) => cast!(v),
            Data::F8(v) => {
                let t = narrow::table(self.dtype);
                v.iter().map(|x| t[x.0 as usize] as f64).collect()
            }
            Data::F16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Data::Bf16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Data::F32(v) => cast!(v),
            Data::F64(v) => v.to_vec(),
            Data::C64(v) => v.iter().map(|x| x.re as f64).collect(),
            Data::C128(v) => v.iter().map(|x| x.re).collect(),
        }
    }

    /// All elements as integers; `None` for floats and complex numbers.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        macro_rules! cast {
            ($v:expr) => {
                Some($v.iter().map(|&x| x as i64).collect())
            };
        }
        match &self.data {
            Data::Bool(v) => cast!(v),
            Data::I8(v) => cast!(v),
            Data::I16(v) => cast!(v),
            Data::I32(v) => cast!(v),
            Data::I64(v) => Some(v.to_vec()),
            Data::U8(v) => cast!(v),
            Data::U16(v) => cast!(v),
            Data::U32(v) => cast!(v),
            Data::U64(v) => Some(v.iter().map(|&x| i64::try_from(x).unwrap_or(i64::MAX)).collect()),
            _ => None,
        }
    }

    /// From a literal's array; `None` if it is elided, no array, or its bytes
    /// do not fit its shape.
    pub fn from_literal(l: &Literal) -> Option<Tensor> {
        let (Shape::Array(s), LiteralData::Dense(b)) = (&l.shape, &l.data) else { return None };
        Tensor::from_bytes(s, b)
    }

    /// From row-major little-endian elements as in a [`Literal`].
    pub fn from_bytes(s: &ArrayShape, b: &[u8]) -> Option<Tensor> {
        let n = count(&s.dims)?;
        if b.len() != n.checked_mul(s.dtype.literal_bytes())? {
            return None;
        }
        macro_rules! read {
            ($t:ty, $n:literal) => {
                Data::from_vec(
                    b.chunks_exact($n)
                        .map(|c| <$t>::from_le_bytes(c.try_into().unwrap_or_default()))
                        .collect::<Vec<$t>>(),
                )
            };
        }
        let data = match storage_of(s.dtype) {
            Kind::Bool => Data::from_vec(b.iter().map(|&x| x != 0).collect::<Vec<_>>()),
            // Sub-byte elements may come without sign extension.
            Kind::I8 => {
                let up = 8 - s.dtype.bits().min(8);
                Data::from_vec(b.iter().map(|&x| (x as i8) << up >> up).collect::<Vec<_>>())
            }
            Kind::U8 => {
                let up = 8 - s.dtype.bits().min(8);
                Data::from_vec(b.iter().map(|&x| x << up >> up).collect::<Vec<_>>())
            }
            Kind::F8 => Data::from_vec(b.iter().map(|&x| F8(x)).collect::<Vec<_>>()),
            Kind::I16 => read!(i16, 2),
            Kind::I32 => read!(i32, 4),
            Kind::I64 => read!(i64, 8),
            Kind::U16 => read!(u16, 2),
            Kind::U32 => read!(u32, 4),
            Kind::U64 => read!(u64, 8),
            Kind::F16 => read!(f16, 2),
            Kind::Bf16 => read!(bf16, 2),
            Kind::F32 => read!(f32, 4),
            Kind::F64 => read!(f64, 8),
            Kind::C64 => {
                let f = |c: &[u8]| f32::from_le_bytes(c.try_into().unwrap_or_default());
                let v: Vec<C64> =
                    b.chunks_exact(8).map(|c| Complex { re: f(&c[..4]), im: f(&c[4..]) }).collect();
                Data::from_vec(v)
            }
            Kind::C128 => {
                let f = |c: &[u8]| f64::from_le_bytes(c.try_into().unwrap_or_default());
                let v: Vec<C128> = b
                    .chunks_exact(16)
                    .map(|c| Complex { re: f(&c[..8]), im: f(&c[8..]) })
                    .collect();
                Data::from_vec(v)
            }
        };
        Some(Tensor::raw(s.dtype, &s.dims, data))
    }

    /// Row-major little-endian elements as in a [`Literal`]; floats stored
    /// wider than the element type are rounded to it.
    pub fn to_bytes(&self) -> Vec<u8> {
        macro_rules! write {
            ($v:expr) => {
                $v.iter().flat_map(|x| x.to_le_bytes()).collect()
            };
        }
        match &self.narrowed().data {
            Data::Bool(v) => v.iter().map(|&x| x as u8).collect(),
            Data::I8(v) => write!(v),
            Data::I16(v) => write!(v),
            Data::I32(v) => write!(v),
            Data::I64(v) => write!(v),
            Data::U8(v) => v.to_vec(),
            Data::U16(v) => write!(v),
            Data::U32(v) => write!(v),
            Data::U64(v) => write!(v),
            Data::F8(v) => v.iter().map(|x| x.0).collect(),
            Data::F16(v) => write!(v),
            Data::Bf16(v) => write!(v),
            Data::F32(v) => write!(v),
            Data::F64(v) => write!(v),
            Data::C64(v) => {
                let one = |x: &C64| [x.re.to_le_bytes(), x.im.to_le_bytes()].concat();
                v.iter().flat_map(one).collect()
            }
            Data::C128(v) => {
                let one = |x: &C128| [x.re.to_le_bytes(), x.im.to_le_bytes()].concat();
                v.iter().flat_map(one).collect()
            }
        }
    }

    /// As a literal of the element type.
    pub fn to_literal(&self) -> Literal {
        Literal::dense(ArrayShape::new(self.dtype, self.dims.iter().copied()), self.to_bytes())
    }

    /// Storage of the element type itself: rounds wide storage.
    pub fn narrowed(&self) -> Tensor {
        if storage_of(self.dtype) == kind(&self.data) {
            return self.clone();
        }
        let data = match &self.data {
            Data::F64(v) => match storage_of(self.dtype) {
                Kind::F32 => Data::from_vec(v.iter().map(|&x| x as f32).collect::<Vec<_>>()),
                Kind::F16 => Data::from_vec(v.iter().map(|&x| f16::from_f64(x)).collect()),
                Kind::Bf16 => Data::from_vec(v.iter().map(|&x| bf16::from_f64(x)).collect()),
                Kind::F8 => {
                    let f = |&x: &f64| F8(narrow::encode(self.dtype, x));
                    Data::from_vec(v.iter().map(f).collect())
                }
                _ => self.data.clone(),
            },
            Data::C128(v) => Data::from_vec(v.iter().map(|x| x.narrow()).collect::<Vec<_>>()),
            d => d.clone(),
        };
        Tensor { data, ..self.clone() }
    }

    /// Storage of the accumulation mode `F64`.
    pub fn widened(&self) -> Tensor {
        let data = match &self.data {
            Data::F8(_) | Data::F16(_) | Data::Bf16(_) | Data::F32(_) => {
                Data::from_vec(self.to_f64())
            }
            Data::C64(v) => Data::from_vec(v.iter().map(|x| x.wide()).collect::<Vec<_>>()),
            d => d.clone(),
        };
        Tensor { data, ..self.clone() }
    }
}

impl Value {
    /// From a literal, tuples included; `None` as for [`Tensor::from_literal`].
    pub fn from_literal(l: &Literal) -> Option<Value> {
        match &l.data {
            LiteralData::Tuple(t) => {
                t.iter().map(Value::from_literal).collect::<Option<_>>().map(Value::Tuple)
            }
            _ if l.shape == Shape::Token => Some(Value::Token),
            _ => Tensor::from_literal(l).map(Value::Tensor),
        }
    }

    /// As a literal.
    pub fn to_literal(&self) -> Literal {
        match self {
            Value::Tensor(t) => t.to_literal(),
            Value::Token => Literal { shape: Shape::Token, data: LiteralData::Tuple(Vec::new()) },
            Value::Tuple(v) => {
                let parts: Vec<Literal> = v.iter().map(Value::to_literal).collect();
                Literal {
                    shape: Shape::Tuple(parts.iter().map(|p| p.shape.clone()).collect()),
                    data: LiteralData::Tuple(parts),
                }
            }
        }
    }

    /// The array, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The elements of a tuple, if it is one.
    pub fn as_tuple(&self) -> Option<&[Value]> {
        match self {
            Value::Tuple(t) => Some(t),
            _ => None,
        }
    }

    /// Same shape and same allocations?
    pub(crate) fn same(&self, o: &Value) -> bool {
        match (self, o) {
            (Value::Tensor(a), Value::Tensor(b)) => {
                a.data.same(&b.data) && a.dims == b.dims && a.dtype == b.dtype && a.sizes == b.sizes
            }
            (Value::Tuple(a), Value::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.same(y))
            }
            (Value::Token, Value::Token) => true,
            _ => false,
        }
    }

    pub(crate) fn map_tensors(&self, f: &impl Fn(&Tensor) -> Tensor) -> Value {
        match self {
            Value::Tensor(t) => Value::Tensor(f(t)),
            Value::Tuple(v) => Value::Tuple(v.iter().map(|x| x.map_tensors(f)).collect()),
            Value::Token => Value::Token,
        }
    }
}

/// Names the variants of [`Data`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F8,
    F16,
    Bf16,
    F32,
    F64,
    C64,
    C128,
}

/// Storage of an element type.
pub(crate) fn storage_of(t: DType) -> Kind {
    match (t.class(), t.bits()) {
        (DTypeClass::Bool, _) => Kind::Bool,
        (DTypeClass::Signed, 0..=8) => Kind::I8,
        (DTypeClass::Signed, 16) => Kind::I16,
        (DTypeClass::Signed, 32) => Kind::I32,
        (DTypeClass::Signed, _) => Kind::I64,
        (DTypeClass::Unsigned, 0..=8) => Kind::U8,
        (DTypeClass::Unsigned, 16) => Kind::U16,
        (DTypeClass::Unsigned, 32) => Kind::U32,
        (DTypeClass::Unsigned, _) => Kind::U64,
        (DTypeClass::Float, 0..=8) => Kind::F8,
        (DTypeClass::Float, 16) if t == DType::F16 => Kind::F16,
        (DTypeClass::Float, 16) => Kind::Bf16,
        (DTypeClass::Float, 32) => Kind::F32,
        (DTypeClass::Float, _) => Kind::F64,
        (DTypeClass::Complex, 64) => Kind::C64,
        (DTypeClass::Complex, _) => Kind::C128,
    }
}

/// Storage in use.
pub(crate) fn kind(d: &Data) -> Kind {
    match d {
        Data::Bool(_) => Kind::Bool,
        Data::I8(_) => Kind::I8,
        Data::I16(_) => Kind::I16,
        Data::I32(_) => Kind::I32,
        Data::I64(_) => Kind::I64,
        Data::U8(_) => Kind::U8,
        Data::U16(_) => Kind::U16,
        Data::U32(_) => Kind::U32,
        Data::U64(_) => Kind::U64,
        Data::F8(_) => Kind::F8,
        Data::F16(_) => Kind::F16,
        Data::Bf16(_) => Kind::Bf16,
        Data::F32(_) => Kind::F32,
        Data::F64(_) => Kind::F64,
        Data::C64(_) => Kind::C64,
        Data::C128(_) => Kind::C128,
    }
}

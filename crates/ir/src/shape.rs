//! Shapes: arrays with optional layout, tuples, tokens, opaque values.

use crate::DType;
use smallvec::SmallVec;

/// Dimension sizes, small inline.
pub type Dims = SmallVec<[i64; 6]>;

/// One tile of a tiled layout, e.g. `T(8,128)`; `-1` stands for `*` (combine).
pub type Tile = SmallVec<[i64; 2]>;

/// Physical layout. Has no effect on what a program computes; kept for the
/// writer and for translation validation of layout assignment.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Layout {
    /// Dimensions from minor to major.
    pub minor_to_major: Dims,
    /// `T(..)` tiles.
    pub tiles: Vec<Tile>,
    /// `E(n)`: bits an element takes in memory, 0 if unstated.
    pub element_size_in_bits: i64,
    /// `S(n)`: memory space, 0 is the default.
    pub memory_space: i64,
    /// Any further parts (dim level types `D(..)`, `#(..)`, `*(..)`, `L(..)`,
    /// `M(..)`, `P(..)`, `SC(..)`) as printed, or empty.
    pub rest: String,
}

/// Shape of an array.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArrayShape {
    /// Element type.
    pub dtype: DType,
    /// Sizes (upper bounds where dynamic). [`Shape::UNBOUNDED`] for `?`.
    pub dims: Dims,
    /// Bit `i` is set if dimension `i` is dynamic (`<=n`).
    pub dynamic: u64,
    /// Layout if printed. Boxed: most code never looks at it.
    pub layout: Option<Box<Layout>>,
}

/// Shape of any HLO value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// An array.
    Array(ArrayShape),
    /// A tuple; may be empty.
    Tuple(Vec<Shape>),
    /// `token[]`.
    Token,
    /// `opaque[]`.
    Opaque,
    /// `b(f32[8])`: a buffer holding an array.
    Buffer(Box<Shape>),
}

impl ArrayShape {
    /// Static array shape without layout.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = i64>) -> Self {
        ArrayShape { dtype, dims: dims.into_iter().collect(), dynamic: 0, layout: None }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements; `None` on overflow or an unbounded dimension.
    pub fn elements(&self) -> Option<i64> {
        self.dims.iter().try_fold(1i64, |a, &d| if d < 0 { None } else { a.checked_mul(d) })
    }

    /// Equal up to layout.
    pub fn same(&self, o: &ArrayShape) -> bool {
        self.dtype == o.dtype && self.dims == o.dims && self.dynamic == o.dynamic
    }

    /// True if dimension `i` is dynamic.
    pub fn is_dynamic(&self, i: usize) -> bool {
        i < 64 && self.dynamic >> i & 1 == 1
    }
}

impl Shape {
    /// Size of an unbounded dynamic dimension.
    pub const UNBOUNDED: i64 = i64::MIN;

    /// Static array shape without layout.
    pub fn array(dtype: DType, dims: impl IntoIterator<Item = i64>) -> Self {
        Shape::Array(ArrayShape::new(dtype, dims))
    }

    /// The array shape, if it is one.
    pub fn as_array(&self) -> Option<&ArrayShape> {
        match self {
            Shape::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The tuple elements, if it is one.
    pub fn as_tuple(&self) -> Option<&[Shape]> {
        match self {
            Shape::Tuple(t) => Some(t),
            _ => None,
        }
    }

    /// Dimensions of an array, empty for anything else.
    pub fn dims(&self) -> &[i64] {
        match self {
            Shape::Array(a) => &a.dims,
            _ => &[],
        }
    }

    /// Element type of an array.
    pub fn dtype(&self) -> Option<DType> {
        self.as_array().map(|a| a.dtype)
    }

    /// Equal up to layouts.
    pub fn same(&self, o: &Shape) -> bool {
        match (self, o) {
            (Shape::Array(a), Shape::Array(b)) => a.same(b),
            (Shape::Tuple(a), Shape::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.same(y))
            }
            (Shape::Buffer(a), Shape::Buffer(b)) => a.same(b),
            (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
            _ => false,
        }
    }

    /// Array leaves of a (nested) tuple, left to right; the shape itself if
    /// it is no tuple.
    pub fn leaves(&self) -> Vec<&Shape> {
        let mut out = Vec::new();
        let mut stack = vec![self];
        while let Some(s) = stack.pop() {
            match s {
                Shape::Tuple(t) => stack.extend(t.iter().rev()),
                other => out.push(other),
            }
        }
        out
    }
}

impl std::fmt::Display for ArrayShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.dims.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            if *d == Shape::UNBOUNDED {
                f.write_str("?")?;
            } else {
                write!(f, "{}{d}", if self.is_dynamic(i) { "<=" } else { "" })?;
            }
        }
        f.write_str("]")
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shape::Array(a) => a.fmt(f),
            Shape::Token => f.write_str("token[]"),
            Shape::Opaque => f.write_str("opaque[]"),
            Shape::Buffer(b) => write!(f, "b({b})"),
            Shape::Tuple(t) => {
                f.write_str("(")?;
                for (i, s) in t.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    s.fmt(f)?;
                }
                f.write_str(")")
            }
        }
    }
}

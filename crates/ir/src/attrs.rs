//! Attributes of instructions, by family of opcode.

use crate::InstrId;
use crate::groups::ReplicaGroups;
use crate::literal::Literal;
use crate::shape::{Dims, Shape};
use crate::sharding::OpSharding;
use crate::symbol::Symbol;

/// Attributes that give an opcode its meaning. Called computations are not
/// here but in [`crate::Instruction::calls`].
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Attrs {
    /// The opcode has none.
    #[default]
    None,
    /// `parameter(n)`.
    Parameter(u32),
    /// `constant(..)`.
    Constant(Box<Literal>),
    /// `iota_dimension`.
    Iota(i64),
    /// `index` of get-tuple-element.
    TupleIndex(i64),
    /// `dimensions={..}`: broadcast, transpose, reduce, reverse, concatenate, map.
    Dims(Dims),
    /// `dimensions={d}` of get/set-dimension-size and of sort with its flags.
    Dim(i64),
    /// Sort.
    Sort {
        /// Sorted dimension.
        dim: i64,
        /// Equal keys keep their order.
        stable: bool,
    },
    /// Slice: (start, limit, stride) per dimension.
    Slice(Box<SliceAttrs>),
    /// Pad: (low, high, interior) per dimension.
    Pad(Vec<PadDim>),
    /// `dynamic_slice_sizes`.
    DynamicSlice(Dims),
    /// dot, ragged-dot, scaled-dot.
    Dot(Box<DotAttrs>),
    /// convolution.
    Conv(Box<ConvAttrs>),
    /// gather.
    Gather(Box<GatherAttrs>),
    /// scatter.
    Scatter(Box<ScatterAttrs>),
    /// compare.
    Compare {
        /// `direction`.
        direction: Comparison,
        /// `type` if printed.
        kind: Option<CompareKind>,
    },
    /// reduce-window, select-and-scatter: one entry per dimension.
    Window(Vec<WindowDim>),
    /// batch-norm-*.
    BatchNorm {
        /// Added to the variance.
        epsilon: f32,
        /// Feature dimension.
        feature: i64,
    },
    /// fft.
    Fft {
        /// `FFT`, `IFFT`, `RFFT`, `IRFFT`.
        kind: FftKind,
        /// Transform lengths, minor dimensions last.
        length: Dims,
    },
    /// triangular-solve.
    TriangularSolve {
        /// `left_side`.
        left_side: bool,
        /// `lower`.
        lower: bool,
        /// `unit_diagonal`.
        unit_diagonal: bool,
        /// `transpose_a`.
        transpose_a: TransposeKind,
    },
    /// `lower` of cholesky.
    Cholesky {
        /// Reads the lower triangle.
        lower: bool,
    },
    /// topk.
    TopK {
        /// How many.
        k: i64,
        /// Largest or smallest first.
        largest: bool,
    },
    /// reduce-precision.
    ReducePrecision {
        /// Exponent bits.
        exponent: u32,
        /// Mantissa bits.
        mantissa: u32,
    },
    /// rng.
    Rng(RngDistribution),
    /// rng-bit-generator.
    RngBits(RngAlgorithm),
    /// `delta` of rng-get-and-update-state.
    RngDelta(i64),
    /// All collectives, collective-broadcast and -permute.
    Collective(Box<CollectiveAttrs>),
    /// send, recv and their done forms.
    Channel {
        /// `channel_id`.
        channel_id: Option<i64>,
        /// `is_host_transfer`.
        is_host_transfer: bool,
    },
    /// fusion.
    Fusion {
        /// `kLoop`, `kInput`, `kOutput`, `kCustom`, as printed.
        kind: Symbol,
    },
    /// custom-call.
    CustomCall(Box<CustomCallAttrs>),
    /// async-start, -update, -done.
    Async {
        /// Opcode in the `xxx-start` sugar, else `None`.
        sugar: Option<crate::Opcode>,
        /// `async_execution_thread`.
        thread: Option<Symbol>,
    },
    /// scan: `dimensions`, `is_reverse`, `is_associative`, number of carries.
    Scan(Box<ScanAttrs>),
    /// `infeed_config` / `outfeed_config`.
    FeedConfig(Symbol),
    /// domain: entry and exit metadata as printed.
    Domain(Symbol),
}

/// Attributes of `scan`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScanAttrs {
    /// Scanned dimension.
    pub dim: i64,
    /// Runs from the last index to the first.
    pub is_reverse: bool,
    /// `is_associative` if printed.
    pub is_associative: Option<bool>,
    /// Number of carries, from the end of the operands.
    pub num_carries: i64,
}

/// Attributes of `slice`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SliceAttrs {
    /// First index.
    pub start: Dims,
    /// One past the last index.
    pub limit: Dims,
    /// Step.
    pub stride: Dims,
}

/// Padding of one dimension; `low` and `high` may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PadDim {
    /// Before the first element.
    pub low: i64,
    /// After the last element.
    pub high: i64,
    /// Between elements.
    pub interior: i64,
}

/// Dimension numbers of `dot`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DotAttrs {
    /// `lhs_batch_dims`.
    pub lhs_batch: Dims,
    /// `rhs_batch_dims`.
    pub rhs_batch: Dims,
    /// `lhs_contracting_dims`.
    pub lhs_contracting: Dims,
    /// `rhs_contracting_dims`.
    pub rhs_contracting: Dims,
    /// `operand_precision`, as printed, in operand order.
    pub precision: Vec<Symbol>,
    /// `algorithm`, as printed.
    pub algorithm: Option<Symbol>,
    /// ragged-dot: `lhs_ragged_dims`.
    pub lhs_ragged: Dims,
    /// ragged-dot: `rhs_group_dims`.
    pub rhs_group: Dims,
    /// `sparsity`, as printed.
    pub sparsity: Option<Symbol>,
}

/// Dimension numbers of `convolution`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConvAttrs {
    /// `window`: one entry per spatial dimension.
    pub window: Vec<WindowDim>,
    /// Input batch, feature, spatial dimensions.
    pub input_batch: i64,
    /// Input feature dimension.
    pub input_feature: i64,
    /// Input spatial dimensions.
    pub input_spatial: Dims,
    /// Kernel input-feature dimension.
    pub kernel_input_feature: i64,
    /// Kernel output-feature dimension.
    pub kernel_output_feature: i64,
    /// Kernel spatial dimensions.
    pub kernel_spatial: Dims,
    /// Output batch dimension.
    pub output_batch: i64,
    /// Output feature dimension.
    pub output_feature: i64,
    /// Output spatial dimensions.
    pub output_spatial: Dims,
    /// `feature_group_count`.
    pub feature_group_count: i64,
    /// `batch_group_count`.
    pub batch_group_count: i64,
    /// `operand_precision`, as printed.
    pub precision: Vec<Symbol>,
}

/// One dimension of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowDim {
    /// Extent.
    pub size: i64,
    /// Step.
    pub stride: i64,
    /// Padding before; may be negative.
    pub pad_low: i64,
    /// Padding after; may be negative.
    pub pad_high: i64,
    /// Dilation of the window (rhs).
    pub window_dilation: i64,
    /// Dilation of the base (lhs).
    pub base_dilation: i64,
    /// Reversed window.
    pub reversal: bool,
}

impl Default for WindowDim {
    fn default() -> Self {
        WindowDim {
            size: 1,
            stride: 1,
            pad_low: 0,
            pad_high: 0,
            window_dilation: 1,
            base_dilation: 1,
            reversal: false,
        }
    }
}

/// Dimension numbers of `gather`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatherAttrs {
    /// `offset_dims`.
    pub offset_dims: Dims,
    /// `collapsed_slice_dims`.
    pub collapsed_slice_dims: Dims,
    /// `start_index_map`.
    pub start_index_map: Dims,
    /// `operand_batching_dims`.
    pub operand_batching_dims: Dims,
    /// `start_indices_batching_dims`.
    pub start_indices_batching_dims: Dims,
    /// `index_vector_dim`.
    pub index_vector_dim: i64,
    /// `slice_sizes`.
    pub slice_sizes: Dims,
    /// `indices_are_sorted`.
    pub indices_are_sorted: bool,
}

/// Dimension numbers of `scatter`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScatterAttrs {
    /// `update_window_dims`.
    pub update_window_dims: Dims,
    /// `inserted_window_dims`.
    pub inserted_window_dims: Dims,
    /// `scatter_dims_to_operand_dims`.
    pub scatter_dims_to_operand_dims: Dims,
    /// `input_batching_dims`.
    pub input_batching_dims: Dims,
    /// `scatter_indices_batching_dims`.
    pub scatter_indices_batching_dims: Dims,
    /// `index_vector_dim`.
    pub index_vector_dim: i64,
    /// `indices_are_sorted`.
    pub indices_are_sorted: bool,
    /// `unique_indices`.
    pub unique_indices: bool,
}

/// Attributes of every collective.
#[derive(Clone, PartialEq, Debug)]
pub struct CollectiveAttrs {
    /// `replica_groups`; empty list if not printed.
    pub groups: ReplicaGroups,
    /// `channel_id`.
    pub channel_id: Option<i64>,
    /// `use_global_device_ids`.
    pub use_global_device_ids: bool,
    /// The one dimension of all-gather, reduce-scatter and array all-to-all.
    pub dimension: Option<i64>,
    /// `source_target_pairs` of collective-permute.
    pub pairs: Vec<(i64, i64)>,
    /// `constrain_layout`.
    pub constrain_layout: bool,
    /// `collective_mode` or like, as printed.
    pub rest: Option<Symbol>,
}

impl Default for CollectiveAttrs {
    fn default() -> Self {
        CollectiveAttrs {
            groups: ReplicaGroups::all(),
            channel_id: None,
            use_global_device_ids: false,
            dimension: None,
            pairs: Vec::new(),
            constrain_layout: false,
            rest: None,
        }
    }
}

/// Attributes of `custom-call`.
#[derive(Clone, PartialEq, Debug)]
pub struct CustomCallAttrs {
    /// `custom_call_target`.
    pub target: Symbol,
    /// `opaque` in old dumps; newer ones use `backend_config`.
    pub opaque: Option<Symbol>,
    /// `api_version`, as printed.
    pub api_version: Option<Symbol>,
    /// `schedule`, as printed.
    pub schedule: Option<Symbol>,
    /// `custom_call_has_side_effect`.
    pub has_side_effect: bool,
    /// `operand_layout_constraints`.
    pub operand_layouts: Vec<Shape>,
    /// `output_to_operand_aliasing`, as printed.
    pub aliasing: Option<Symbol>,
    /// `window`, `dim_labels`, `padding_type`, feature groups, literal or
    /// other attributes, as printed.
    pub rest: Option<Symbol>,
}

/// `direction` of compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Comparison {
    Eq,
    Ne,
    Ge,
    Gt,
    Le,
    Lt,
}

impl Comparison {
    /// Name in HLO text.
    pub fn name(self) -> &'static str {
        ["EQ", "NE", "GE", "GT", "LE", "LT"][self as usize]
    }

    /// From its HLO name.
    pub fn from_name(s: &str) -> Option<Self> {
        use Comparison::*;
        [Eq, Ne, Ge, Gt, Le, Lt].into_iter().find(|c| c.name() == s)
    }
}

/// `type` of compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum CompareKind {
    Float,
    TotalOrder,
    Signed,
    Unsigned,
}

impl CompareKind {
    /// Name in HLO text.
    pub fn name(self) -> &'static str {
        ["FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"][self as usize]
    }

    /// From its HLO name.
    pub fn from_name(s: &str) -> Option<Self> {
        use CompareKind::*;
        [Float, TotalOrder, Signed, Unsigned].into_iter().find(|c| c.name() == s)
    }
}

/// Kind of fft.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum FftKind {
    Fft,
    Ifft,
    Rfft,
    Irfft,
}

/// `transpose_a` of triangular-solve.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum TransposeKind {
    NoTranspose,
    Transpose,
    Adjoint,
}

/// Distribution of rng.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum RngDistribution {
    Uniform,
    Normal,
}

/// Algorithm of rng-bit-generator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum RngAlgorithm {
    Default,
    ThreeFry,
    Philox,
}

/// Attributes that any instruction may carry and few do.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Extra {
    /// `sharding`.
    pub sharding: Option<OpSharding>,
    /// `frontend_attributes`, in printed order.
    pub frontend: Vec<(Symbol, Symbol)>,
    /// `backend_config`, raw text (a quoted string is unescaped).
    pub backend_config: Option<BackendConfig>,
    /// `control-predecessors`.
    pub control_predecessors: Vec<InstrId>,
    /// `parameter_replication`, one flag per leaf.
    pub parameter_replication: Vec<bool>,
    /// `execution_threads`, `statistics`, `origin`, `result_accuracy` and
    /// further attributes without meaning to the prover: (name, raw text).
    pub other: Vec<(Symbol, Symbol)>,
}

/// `backend_config` with how it was written.
#[derive(Clone, PartialEq, Debug)]
pub struct BackendConfig {
    /// The text, unescaped if it was quoted.
    pub text: Symbol,
    /// It was a quoted string (else a brace form).
    pub quoted: bool,
}

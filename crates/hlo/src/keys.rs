//! Table of attribute names: how their values look and which opcodes have
//! them.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_ir::Opcode;
use std::sync::LazyLock;

/// Form of an attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Stands on any instruction; read apart.
    Common,
    Int,
    Bool,
    Float,
    Ints,
    Comp,
    Comps,
    Window,
    Padding,
    Slice,
    DimLabels,
    Groups,
    Pairs,
    Str,
    Word,
    Words,
    Shapes,
    /// Kept as text.
    Raw,
    RawInt,
    RawBool,
    RawShape,
    RawLiteral,
}

macro_rules! keys {
    ($($variant:ident = $name:literal $form:ident),* $(,)?) => {
        /// An attribute XLA knows.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum Key { $($variant),* }

        const ALL: &[Key] = &[$(Key::$variant),*];

        impl Key {
            pub(crate) fn name(self) -> &'static str {
                match self { $(Key::$variant => $name),* }
            }

            pub(crate) fn form(self) -> Form {
                match self { $(Key::$variant => Form::$form),* }
            }
        }
    };
}

keys! {
    Metadata = "metadata" Common,
    Sharding = "sharding" Common,
    FrontendAttributes = "frontend_attributes" Common,
    BackendConfig = "backend_config" Common,
    ControlPredecessors = "control-predecessors" Common,
    ParameterReplication = "parameter_replication" Common,
    Statistics = "statistics" Common,
    Origin = "origin" Common,
    Dimensions = "dimensions" Ints,
    ToApply = "to_apply" Comp,
    Calls = "calls" Comp,
    Condition = "condition" Comp,
    Body = "body" Comp,
    Select = "select" Comp,
    Scatter = "scatter" Comp,
    TrueComputation = "true_computation" Comp,
    FalseComputation = "false_computation" Comp,
    BranchComputations = "branch_computations" Comps,
    CalledComputations = "called_computations" Comps,
    IotaDimension = "iota_dimension" Int,
    K = "k" Int,
    Largest = "largest" Bool,
    ReplicaGroups = "replica_groups" Groups,
    ChannelId = "channel_id" Int,
    ConstrainLayout = "constrain_layout" Bool,
    UseGlobalDeviceIds = "use_global_device_ids" Bool,
    Mode = "mode" Raw,
    SourceTargetPairs = "source_target_pairs" Pairs,
    AsyncExecutionThread = "async_execution_thread" Str,
    OutputToOperandAliasing = "output_to_operand_aliasing" Raw,
    CrossProgramPrefetchIndex = "cross_program_prefetch_index" RawInt,
    InferredDimension = "inferred_dimension" RawInt,
    IsStable = "is_stable" Bool,
    IsHostTransfer = "is_host_transfer" Bool,
    Index = "index" Int,
    IsComposite = "is_composite" RawBool,
    Window = "window" Window,
    DimLabels = "dim_labels" DimLabels,
    FeatureGroupCount = "feature_group_count" Int,
    BatchGroupCount = "batch_group_count" Int,
    ConvKind = "conv_kind" Raw,
    OperandPrecision = "operand_precision" Words,
    FftType = "fft_type" Word,
    FftLength = "fft_length" Ints,
    LeftSide = "left_side" Bool,
    Lower = "lower" Bool,
    UnitDiagonal = "unit_diagonal" Bool,
    TransposeA = "transpose_a" Word,
    Direction = "direction" Word,
    Type = "type" Word,
    NumCarries = "num_carries" Int,
    IsReverse = "is_reverse" Bool,
    IsAssociative = "is_associative" Bool,
    Slice = "slice" Slice,
    DynamicSliceSizes = "dynamic_slice_sizes" Ints,
    Epsilon = "epsilon" Float,
    FeatureIndex = "feature_index" Int,
    Padding = "padding" Padding,
    Kind = "kind" Word,
    InfeedConfig = "infeed_config" Str,
    OutfeedConfig = "outfeed_config" Str,
    OutfeedShape = "outfeed_shape" RawShape,
    Distribution = "distribution" Word,
    Delta = "delta" Int,
    Algorithm = "algorithm" Word,
    ExponentBits = "exponent_bits" Int,
    MantissaBits = "mantissa_bits" Int,
    CustomCallTarget = "custom_call_target" Str,
    OperandLayoutConstraints = "operand_layout_constraints" Shapes,
    HasSideEffect = "custom_call_has_side_effect" Bool,
    PaddingType = "padding_type" Raw,
    Literal = "literal" RawLiteral,
    Schedule = "schedule" Word,
    ApiVersion = "api_version" Word,
    Opaque = "opaque" Str,
    LhsContracting = "lhs_contracting_dims" Ints,
    RhsContracting = "rhs_contracting_dims" Ints,
    LhsBatch = "lhs_batch_dims" Ints,
    RhsBatch = "rhs_batch_dims" Ints,
    LhsRagged = "lhs_ragged_dims" Ints,
    RhsGroup = "rhs_group_dims" Ints,
    Sparsity = "sparsity" Raw,
    OffsetDims = "offset_dims" Ints,
    CollapsedSliceDims = "collapsed_slice_dims" Ints,
    StartIndexMap = "start_index_map" Ints,
    IndexVectorDim = "index_vector_dim" Int,
    SliceSizes = "slice_sizes" Ints,
    IndicesAreSorted = "indices_are_sorted" Bool,
    OperandBatchingDims = "operand_batching_dims" Ints,
    StartIndicesBatchingDims = "start_indices_batching_dims" Ints,
    UpdateWindowDims = "update_window_dims" Ints,
    InsertedWindowDims = "inserted_window_dims" Ints,
    ScatterDimsToOperandDims = "scatter_dims_to_operand_dims" Ints,
    UniqueIndices = "unique_indices" Bool,
    InputBatchingDims = "input_batching_dims" Ints,
    ScatterIndicesBatchingDims = "scatter_indices_batching_dims" Ints,
    Domain = "domain" Raw,
    ResultAccuracy = "result_accuracy" Raw,
}

impl Key {
    pub(crate) fn is_common(self) -> bool {
        self.form() == Form::Common
    }

    /// Number of a common key, below 8.
    pub(crate) fn common_index(self) -> u32 {
        self as u32
    }
}

static BY_NAME: LazyLock<HashMap<&'static str, Key, FxBuildHasher>> =
    LazyLock::new(|| ALL.iter().map(|&k| (k.name(), k)).collect());

/// The attribute of this name.
#[inline]
pub(crate) fn key(name: &str) -> Option<Key> {
    match name {
        "metadata" => Some(Key::Metadata),
        "dimensions" => Some(Key::Dimensions),
        _ => BY_NAME.get(name).copied(),
    }
}

/// An opcode and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) op: Opcode,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// Required keys, then optional ones.
fn spec(op: Opcode) -> (&'static [Key], &'static [Key]) {
    use Key::*;
    use Opcode as O;
    match op {
        O::Iota => (&[IotaDimension], &[]),
        O::TopK => (&[K], &[Largest, IsStable]),
        O::Acos | O::Acosh | O::Asin | O::Asinh | O::Atanh | O::ExponentialMinusOne => {
            (&[], &[ResultAccuracy])
        }
        O::Log | O::LogPlusOne | O::Logistic | O::Sqrt | O::Cbrt | O::Rsqrt | O::Tanh => {
            (&[], &[ResultAccuracy])
        }
        O::Erf | O::Sine | O::Sinh | O::Cosine | O::Cosh | O::Tan | O::Exponential => {
            (&[], &[ResultAccuracy])
        }
        O::AllGather | O::AllGatherStart => {
            (&[Dimensions], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds])
        }
        O::AllReduce | O::AllReduceStart => {
            (&[ToApply], &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds, Mode])
        }
        O::ReduceScatter => (
            &[ToApply, Dimensions],
            &[ReplicaGroups, ChannelId, ConstrainLayout, UseGlobalDeviceIds, Mode],
        ),
        O::AllToAll => (&[], &[ReplicaGroups, ChannelId, Dimensions, ConstrainLayout]),
        O::RaggedAllToAll => (&[], &[ReplicaGroups, ChannelId, Dimensions]),
        O::CollectiveBroadcast => (&[], &[ReplicaGroups, ChannelId]),
        O::CollectivePermute | O::CollectivePermuteStart => {
            (&[SourceTargetPairs], &[ChannelId, SliceSizes])
        }
        O::AsyncStart => (&[Calls], &[AsyncExecutionThread, OutputToOperandAliasing]),
        O::AsyncUpdate | O::AsyncDone => (&[], &[Calls, AsyncExecutionThread]),
        O::CopyStart => (&[], &[CrossProgramPrefetchIndex]),
        O::Reshape => (&[], &[InferredDimension]),
        O::Sort => (&[Dimensions, ToApply], &[IsStable]),
        O::While => (&[Condition, Body], &[]),
        O::Send | O::SendDone | O::Recv | O::RecvDone => (&[], &[ChannelId, IsHostTransfer]),
        O::GetTupleElement => (&[Index], &[]),
        O::Call => (&[ToApply], &[IsComposite]),
        O::ReduceWindow => (&[ToApply], &[Window]),
        O::SelectAndScatter => (&[Select, Scatter], &[Window]),
        O::Convolution => (
            &[DimLabels],
            &[Window, FeatureGroupCount, BatchGroupCount, ConvKind, OperandPrecision],
        ),
        O::Fft => (&[FftType, FftLength], &[]),
        O::TriangularSolve => (&[], &[LeftSide, Lower, UnitDiagonal, TransposeA]),
        O::Cholesky => (&[], &[Lower]),
        O::Compare => (&[Direction], &[Type]),
        O::Broadcast => (&[], &[Dimensions]),
        O::Map => (&[ToApply], &[Dimensions]),
        O::Concatenate | O::Reverse | O::Transpose => (&[Dimensions], &[]),
        O::GetDimensionSize | O::SetDimensionSize => (&[Dimensions], &[]),
        O::Scan => (&[ToApply, Dimensions, NumCarries], &[IsReverse, IsAssociative]),
        O::Reduce => (&[ToApply, Dimensions], &[]),
        O::Slice => (&[Slice], &[]),
        O::DynamicSlice => (&[DynamicSliceSizes], &[]),
        O::BatchNormTraining | O::BatchNormInference | O::BatchNormGrad => {
            (&[Epsilon, FeatureIndex], &[])
        }
        O::Pad => (&[Padding], &[]),
        O::Fusion => (&[Calls, Kind], &[OutputToOperandAliasing]),
        O::Infeed => (&[], &[InfeedConfig]),
        O::Outfeed => (&[], &[OutfeedConfig, OutfeedShape]),
        O::Rng => (&[Distribution], &[]),
        O::RngGetAndUpdateState => (&[Delta], &[]),
        O::RngBitGenerator => (&[Algorithm], &[]),
        O::ReducePrecision => (&[ExponentBits, MantissaBits], &[]),
        O::Conditional => (&[], &[TrueComputation, FalseComputation, BranchComputations]),
        O::CustomCall => (
            &[CustomCallTarget],
            &[
                Window,
                DimLabels,
                FeatureGroupCount,
                BatchGroupCount,
                OperandLayoutConstraints,
                HasSideEffect,
                ToApply,
                CalledComputations,
                OutputToOperandAliasing,
                PaddingType,
                Literal,
                OperandPrecision,
                Schedule,
                ApiVersion,
                Opaque,
            ],
        ),
        O::Dot | O::ScaledDot => (
            &[],
            &[
                LhsBatch,
                LhsContracting,
                RhsBatch,
                RhsContracting,
                OperandPrecision,
                Algorithm,
                Sparsity,
            ],
        ),
        O::RaggedDot => (
            &[],
            &[
                LhsBatch,
                LhsContracting,
                RhsBatch,
                RhsContracting,
                LhsRagged,
                RhsGroup,
                OperandPrecision,
            ],
        ),
        O::Gather => (
            &[OffsetDims, CollapsedSliceDims, StartIndexMap, IndexVectorDim, SliceSizes],
            &[IndicesAreSorted, OperandBatchingDims, StartIndicesBatchingDims],
        ),
        O::Scatter => (
            &[
                UpdateWindowDims,
                InsertedWindowDims,
                ScatterDimsToOperandDims,
                IndexVectorDim,
                ToApply,
            ],
            &[IndicesAreSorted, UniqueIndices, InputBatchingDims, ScatterIndicesBatchingDims],
        ),
        O::Domain => (&[Domain], &[]),
        _ => (&[], &[]),
    }
}

/// Keys an instruction of `op` must have; the sugar's come from `wraps`.
pub(crate) fn required(op: Opcode, wraps: Option<Opcode>) -> &'static [Key] {
    if wraps.is_some() { &[] } else { spec(op).0 }
}

/// True if an instruction of `op` (wrapping `wraps`) may have `key`.
pub(crate) fn allows(op: Opcode, wraps: Option<Opcode>, key: Key) -> bool {
    let has = |o| {
        let (r, opt) = spec(o);
        r.contains(&key) || opt.contains(&key)
    };
    match wraps {
        None => has(op),
        Some(_) if key == Key::Calls => false,
        Some(w) => has(op) || op == Opcode::AsyncStart && has(w),
    }
}

/// Names that [`allows`] accepts, sorted; without those of any instruction.
pub(crate) fn allowed_names(op: Opcode, wraps: Option<Opcode>) -> Vec<&'static str> {
    let mut v: Vec<_> = ALL.iter().filter(|k| allows(op, wraps, **k)).map(|k| k.name()).collect();
    v.sort_unstable();
    v
}

/// Number of operands of opcodes that have a fixed one.
pub(crate) fn arity(op: Opcode) -> Option<usize> {
    use Opcode as O;
    if matches!(op, O::Convert | O::BitcastConvert) || op.is_unary_elementwise() {
        return Some(1);
    }
    if op.is_binary_elementwise() {
        return Some(2);
    }
    Some(match op {
        O::Iota | O::ReplicaId | O::PartitionId | O::RngGetAndUpdateState => 0,
        O::Bitcast | O::Reshape | O::Broadcast | O::Transpose | O::Reverse | O::Slice => 1,
        O::TopK | O::AllGatherDone | O::AllReduceDone | O::CollectivePermuteDone => 1,
        O::CopyStart | O::CopyDone | O::OptimizationBarrier | O::GetTupleElement => 1,
        O::While | O::Fft | O::Cholesky | O::Infeed | O::Recv | O::RecvDone | O::SendDone => 1,
        O::AsyncUpdate | O::AsyncDone | O::Domain | O::GetDimensionSize => 1,
        O::AddDependency | O::Send | O::Convolution | O::TriangularSolve | O::Pad => 2,
        O::Gather | O::SetDimensionSize | O::Outfeed | O::Dot => 2,
        O::Clamp | O::Select | O::SelectAndScatter | O::BatchNormTraining | O::RaggedDot => 3,
        O::BatchNormInference | O::BatchNormGrad => 5,
        O::ScaledDot => 4,
        _ => return None,
    })
}

//! HLO opcodes.

macro_rules! opcodes {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// An HLO opcode.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Opcode { $($variant),* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant),*];

            /// Name in HLO text, e.g. `all-reduce`.
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$variant => $name),* }
            }

            /// The opcode with this name.
            pub fn from_name(s: &str) -> Option<Opcode> {
                match s { $($name => Some(Opcode::$variant),)* _ => None }
            }
        }
    };
}

opcodes! {
    Abs = "abs", Acos = "acos", Acosh = "acosh", Add = "add",
    AddDependency = "add-dependency", AfterAll = "after-all",
    AllGather = "all-gather", AllGatherDone = "all-gather-done",
    AllGatherStart = "all-gather-start",
    AllReduce = "all-reduce", AllReduceDone = "all-reduce-done",
    AllReduceStart = "all-reduce-start", AllToAll = "all-to-all",
    And = "and", Asin = "asin", Asinh = "asinh",
    AsyncDone = "async-done", AsyncStart = "async-start", AsyncUpdate = "async-update",
    Atan2 = "atan2", Atanh = "atanh",
    BatchNormGrad = "batch-norm-grad", BatchNormInference = "batch-norm-inference",
    BatchNormTraining = "batch-norm-training",
    Bitcast = "bitcast", BitcastConvert = "bitcast-convert", Broadcast = "broadcast",
    Call = "call", Cbrt = "cbrt", Ceil = "ceil", Cholesky = "cholesky", Clamp = "clamp",
    CollectiveBroadcast = "collective-broadcast",
    CollectivePermute = "collective-permute",
    CollectivePermuteDone = "collective-permute-done",
    CollectivePermuteStart = "collective-permute-start",
    Clz = "count-leading-zeros",
    Compare = "compare", Complex = "complex", Concatenate = "concatenate",
    Conditional = "conditional", Constant = "constant", Convert = "convert",
    Convolution = "convolution", Copy = "copy", CopyDone = "copy-done", CopyStart = "copy-start",
    Cosh = "cosh", Cosine = "cosine", CustomCall = "custom-call",
    Divide = "divide", Domain = "domain", Dot = "dot",
    DynamicReshape = "dynamic-reshape", DynamicSlice = "dynamic-slice",
    DynamicUpdateSlice = "dynamic-update-slice",
    Erf = "erf", Exponential = "exponential", ExponentialMinusOne = "exponential-minus-one",
    Fft = "fft", Floor = "floor", Fusion = "fusion", Gather = "gather",
    GetDimensionSize = "get-dimension-size", GetTupleElement = "get-tuple-element",
    Imag = "imag", Infeed = "infeed", Iota = "iota", IsFinite = "is-finite",
    Log = "log", LogPlusOne = "log-plus-one", Logistic = "logistic",
    Map = "map", Maximum = "maximum", Minimum = "minimum", Multiply = "multiply",
    Negate = "negate", Not = "not", OptimizationBarrier = "opt-barrier", Or = "or",
    Outfeed = "outfeed", Pad = "pad", Parameter = "parameter", PartitionId = "partition-id",
    PopulationCount = "popcnt", Power = "power",
    RaggedAllToAll = "ragged-all-to-all", RaggedDot = "ragged-dot",
    Real = "real", Recv = "recv", RecvDone = "recv-done",
    Reduce = "reduce", ReducePrecision = "reduce-precision",
    ReduceScatter = "reduce-scatter", ReduceWindow = "reduce-window",
    Remainder = "remainder", ReplicaId = "replica-id", Reshape = "reshape", Reverse = "reverse",
    Rng = "rng", RngBitGenerator = "rng-bit-generator",
    RngGetAndUpdateState = "rng-get-and-update-state",
    RoundNearestAfz = "round-nearest-afz", RoundNearestEven = "round-nearest-even",
    Rsqrt = "rsqrt", Scan = "scan", ScaledDot = "scaled-dot", Scatter = "scatter", Select = "select",
    SelectAndScatter = "select-and-scatter", Send = "send", SendDone = "send-done",
    SetDimensionSize = "set-dimension-size",
    ShiftLeft = "shift-left", ShiftRightArithmetic = "shift-right-arithmetic",
    ShiftRightLogical = "shift-right-logical",
    Sign = "sign", Sine = "sine", Sinh = "sinh", Slice = "slice", Sort = "sort", Sqrt = "sqrt",
    StochasticConvert = "stochastic-convert", Subtract = "subtract",
    Tan = "tan", Tanh = "tanh", TopK = "topk", Transpose = "transpose",
    TriangularSolve = "triangular-solve", Tuple = "tuple", While = "while", Xor = "xor",
}

impl Opcode {
    /// Elementwise with one operand of the result's shape.
    pub fn is_unary_elementwise(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            Abs | Acos
                | Acosh
                | Asin
                | Asinh
                | Atanh
                | BitcastConvert
                | Cbrt
                | Ceil
                | Clz
                | Convert
                | Copy
                | Cosh
                | Cosine
                | Erf
                | Exponential
                | ExponentialMinusOne
                | Floor
                | Imag
                | IsFinite
                | Log
                | LogPlusOne
                | Logistic
                | Negate
                | Not
                | PopulationCount
                | Real
                | ReducePrecision
                | RoundNearestAfz
                | RoundNearestEven
                | Rsqrt
                | Sign
                | Sine
                | Sinh
                | Sqrt
                | Tan
                | Tanh
        )
    }

    /// Elementwise with two operands of the result's shape.
    pub fn is_binary_elementwise(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            Add | And
                | Atan2
                | Compare
                | Complex
                | Divide
                | Maximum
                | Minimum
                | Multiply
                | Or
                | Power
                | Remainder
                | ShiftLeft
                | ShiftRightArithmetic
                | ShiftRightLogical
                | StochasticConvert
                | Subtract
                | Xor
        )
    }

    /// Exchanges data between devices (start forms included, done forms not).
    pub fn is_collective(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            AllGather
                | AllGatherStart
                | AllReduce
                | AllReduceStart
                | AllToAll
                | CollectiveBroadcast
                | CollectivePermute
                | CollectivePermuteStart
                | RaggedAllToAll
                | ReduceScatter
        )
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &o in Opcode::ALL {
            assert_eq!(Opcode::from_name(o.name()), Some(o));
        }
    }
}

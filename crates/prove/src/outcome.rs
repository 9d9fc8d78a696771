//! What a verification found, as plain data. Renderers (text, JSON) live in
//! `scalify-report`; nothing here knows a file format.

use scalify_ir::InstrId;

/// Answer to "does the distributed program compute the baseline's function?".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every output equals its baseline output in the declared layout.
    Proved,
    /// Inputs are known on which the outputs differ by more than rounding.
    Refuted,
    /// Neither a proof nor a counterexample.
    Unknown,
}

/// How strong a proof is, weakest part first in the order of the enum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grade {
    /// Same operations on the same values up to data movement.
    Exact,
    /// Equal over the reals; float sums regrouped.
    Reassociated,
    /// Equal given the listed assumptions.
    UnderAssumptions,
}

/// Kind of assumption a proof rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AssumptionKind {
    /// A value is finite (no NaN, no infinity).
    Finite,
    /// A value is not zero or is positive.
    NonZero,
    /// An integer input lies in a declared range.
    IntRange,
    /// Integer arithmetic does not overflow.
    NoOverflow,
    /// A layout or pairing that nothing declared.
    Layout,
    /// A mesh, input sharding or pairing found by inference.
    Inferred,
}

/// One assumption, with the instruction that needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assumption {
    /// What kind.
    pub kind: AssumptionKind,
    /// One sentence.
    pub text: String,
    /// Which program and instruction needs it.
    pub at: Option<(Side, InstrId)>,
}

/// One of the two programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The single-device program.
    Base,
    /// The distributed program.
    Dist,
}

/// How a distributed value relates to a baseline value.
#[derive(Clone, PartialEq, Debug)]
pub struct Relation {
    /// The baseline instruction it equals.
    pub base: InstrId,
    /// Per baseline dimension: how it is laid out over the mesh.
    pub dims: Vec<DimRelation>,
    /// Mesh axes over which the distributed value is a partial value, with
    /// the monoid (`add`, `max`, ...) that completes it.
    pub partial: Vec<(String, &'static str)>,
    /// The layout bijection that turns the distributed (local) value into the
    /// matching block of the baseline value, if it is not the identity.
    pub bijection: Vec<LayoutStep>,
    /// One line for people, e.g. `f32[8,64] = dot.4 sharded dim 1 over tp`.
    pub text: String,
}

/// Placement of one baseline dimension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DimRelation {
    /// Whole on every device.
    Replicated,
    /// Split over these mesh axes, major first.
    Sharded(Vec<String>),
    /// Another map from device and local index to global index, as text.
    Other(String),
}

/// A step of the reshape-transpose-reshape sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutStep {
    /// To these sizes.
    Reshape(Vec<i64>),
    /// By this permutation.
    Transpose(Vec<usize>),
}

/// How a distributed instruction stands to the baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It holds baseline values.
    Related,
    /// It needs no counterpart: constants, device ids, and tuples of related
    /// values.
    Free,
    /// It holds a value that the baseline does not have.
    Unrelated,
}

/// One distributed instruction and the baseline instructions it equals.
#[derive(Clone, PartialEq, Debug)]
pub struct Related {
    /// The distributed instruction.
    pub dist: InstrId,
    /// How it stands.
    pub standing: Standing,
    /// What it equals, each baseline instruction once; several where a called
    /// computation is entered more than once.
    pub to: Vec<Relation>,
}

/// Result for one output.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputResult {
    /// Position in the flattened result tuple.
    pub index: usize,
    /// Name or argument path if known.
    pub name: String,
    /// Baseline and distributed instructions that produce it.
    pub base: InstrId,
    /// See `base`.
    pub dist: InstrId,
    /// Proved or not.
    pub verdict: Verdict,
    /// Relation if proved.
    pub relation: Option<Relation>,
    /// Why not, if not proved.
    pub reason: Option<String>,
}

/// A source position of an instruction; `file` as the compiler recorded it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// File.
    pub file: String,
    /// Function, may be empty.
    pub function: String,
    /// Line, 0 if unknown.
    pub line: u32,
    /// Column, 0 if unknown.
    pub column: u32,
    /// End column, 0 if unknown.
    pub end_column: u32,
}

/// A distributed instruction that could not be related although its operands
/// are.
#[derive(Clone, PartialEq, Debug)]
pub struct FrontierItem {
    /// The instruction to blame.
    pub instr: InstrId,
    /// Stable id of the kind of fault, e.g. `missing-all-reduce`; `unrelated`
    /// if unknown.
    pub code: &'static str,
    /// One sentence: what is wrong or could not be shown.
    pub reason: String,
    /// What would have been needed, if known.
    pub expected: Option<String>,
    /// Frames of the instruction (inherited from the call site if it has
    /// none), innermost first, call-site frames after.
    pub frames: Vec<Frame>,
    /// Per operand: the instruction, and its relation if related.
    pub operands: Vec<(InstrId, Option<Relation>)>,
    /// Baseline instruction it was compared with, if any.
    pub counterpart: Option<InstrId>,
    /// Indices of the outputs it reaches.
    pub reaches: Vec<usize>,
}

/// A float reduction whose order differs between the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Regrouped {
    /// The distributed instruction.
    pub instr: InstrId,
    /// Element type the sum is carried in.
    pub dtype: scalify_ir::DType,
    /// One sentence.
    pub text: String,
}

/// Counters of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Lifted baseline and distributed instructions (loops unrolled); of a
    /// proof by lemmas the values of both programs, equal ones once.
    pub base_instructions: usize,
    /// See `base_instructions`.
    pub dist_instructions: usize,
    /// Terms in the store.
    pub classes: usize,
    /// Values that only the distributed program has.
    pub frontier_events: usize,
    /// Seconds of lifting and proving.
    pub seconds: f64,
    /// Devices of the distributed program.
    pub devices: u32,
    /// Parts that the distributed program was cut into, and the lemmas that
    /// they are instances of; 0 where the programs were lifted whole.
    pub parts: usize,
    /// See `parts`.
    pub lemmas: usize,
}

/// Everything a verification found.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The answer.
    pub verdict: Verdict,
    /// Strength of the proof, if proved.
    pub grade: Option<Grade>,
    /// What the answer rests on.
    pub assumptions: Vec<Assumption>,
    /// Where float sums are regrouped.
    pub regrouped: Vec<Regrouped>,
    /// Per output.
    pub outputs: Vec<OutputResult>,
    /// Frontier, the likely fault first.
    pub frontier: Vec<FrontierItem>,
    /// The mesh in use: axis name and size, major first.
    pub mesh: Vec<(String, i64)>,
    /// Facts for the reader: which program was taken, how parameters were
    /// paired, which shardings came from where.
    pub notes: Vec<String>,
    /// A budget that ran out (`time`, `memory`, `nodes`), if any.
    pub exhausted: Option<&'static str>,
    /// Counters.
    pub stats: Stats,
}

/// One step behind a relation, for `--explain`.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainStep {
    /// Instruction of the step.
    pub at: Option<(Side, InstrId)>,
    /// Rule or merge, e.g. `all-reduce over tp: Sum_k' then Sum_d = Sum_k`.
    pub rule: String,
    /// The term before and after in index notation, may be empty.
    pub detail: String,
}

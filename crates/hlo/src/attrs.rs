//! Values of attributes, and what an opcode makes of them.

use crate::cursor::{Cursor, R};
use crate::groups;
use crate::keys::{self, Form, Key, Site};
use crate::literal;
use crate::reader::Reader;
use crate::shape;
use scalify_ir::attrs::*;
use scalify_ir::shape::Dims;
use scalify_ir::{Attrs, CompId, DType, InstrId, Opcode, ReplicaGroups, Shape, Symbol};
use smallvec::SmallVec;

/// An attribute as read.
pub(crate) struct Found {
    pub(crate) key: Key,
    val: Val,
    start: u32,
    end: u32,
}

enum Val {
    Int(i64),
    Bool(bool),
    Float(f32),
    Ints(Dims),
    Comp(Symbol),
    Comps(Vec<(Symbol, u32)>),
    Window(Vec<WindowDim>),
    Padding(Vec<PadDim>),
    Slice(Box<SliceAttrs>),
    Labels(Box<ConvAttrs>),
    Groups(Box<ReplicaGroups>),
    Pairs(Vec<(i64, i64)>),
    Sym(Symbol),
    Syms(Vec<Symbol>),
    Shapes(Vec<Shape>),
}

impl Reader<'_> {
    /// Reads the value of `key` and remembers it.
    pub(crate) fn attribute_value(&mut self, key: Key, word: &str) -> R<()> {
        self.c.ws();
        let start = self.c.pos;
        let mut form = key.form();
        if key == Key::SliceSizes && self.c.peek_at(1) == b'{' {
            form = Form::Raw;
        }
        let val = match form {
            Form::Int => Val::Int(self.c.int("an integer")?),
            Form::Bool => Val::Bool(self.c.bool()?),
            Form::Float => Val::Float(float(&mut self.c)?),
            Form::Ints => {
                let mut v = Dims::new();
                self.c.ints(b'{', b'}', &mut v)?;
                Val::Ints(v)
            }
            Form::Comp => Val::Comp(self.called()?),
            Form::Comps => {
                let mut v = Vec::new();
                self.c.expect(b'{', "`{` and names of computations")?;
                if !self.c.eat(b'}') {
                    loop {
                        self.c.ws();
                        let at = self.c.pos;
                        let s = self.called()?;
                        v.push((s, self.use_position(at)));
                        if !self.c.eat(b',') {
                            break;
                        }
                    }
                    self.c.expect(b'}', "`,` or `}`")?;
                }
                Val::Comps(v)
            }
            Form::Window => Val::Window(window(&mut self.c)?),
            Form::Padding => Val::Padding(padding(&mut self.c)?),
            Form::Slice => Val::Slice(Box::new(slice(&mut self.c)?)),
            Form::DimLabels => Val::Labels(Box::new(dim_labels(&mut self.c)?)),
            Form::Groups => {
                let g = groups::replica_groups(&mut self.c, &mut self.m.strings)?;
                Val::Groups(Box::new(g))
            }
            Form::Pairs => Val::Pairs(pairs(&mut self.c)?),
            Form::Str => Val::Sym(self.text_symbol()?),
            Form::Word => {
                let w = self.c.ident("a word")?;
                Val::Sym(self.m.strings.intern(w))
            }
            Form::Words => {
                let mut v = Vec::new();
                let strings = &mut self.m.strings;
                self.c.list(b'{', b'}', "`{` and a list of words", |c| {
                    v.push(strings.intern(c.ident("a word")?));
                    Ok(())
                })?;
                Val::Syms(v)
            }
            Form::Shapes => {
                let mut v = Vec::new();
                self.c.list(b'{', b'}', "`{` and a list of shapes", |c| {
                    v.push(shape::shape(c)?);
                    Ok(())
                })?;
                Val::Shapes(v)
            }
            Form::RawInt => {
                self.c.int("an integer")?;
                self.raw(start)
            }
            Form::RawBool => {
                self.c.bool()?;
                self.raw(start)
            }
            Form::RawShape => {
                shape::shape(&mut self.c)?;
                self.raw(start)
            }
            Form::RawLiteral => {
                self.free_literal()?;
                self.raw(start)
            }
            Form::Raw => {
                self.c.raw_value()?;
                self.raw(start)
            }
            // Read by the caller.
            Form::Common => return self.c.expected(format!("another attribute than {word}")),
        };
        let end = self.c.pos as u32;
        let start = match key.form() {
            Form::Comp => self.use_position(start),
            _ => start as u32,
        };
        self.found.push(Found { key, val, start, end });
        Ok(())
    }

    fn raw(&mut self, start: usize) -> Val {
        let text = self.c.slice(start, self.c.pos);
        Val::Sym(self.m.strings.intern(text))
    }

    /// Position to blame for a computation named at `at`; past its body if
    /// it was written inline.
    fn use_position(&self, at: usize) -> u32 {
        if self.c.at(at) == Some(b'{') { self.c.pos as u32 } else { at as u32 }
    }

    fn called(&mut self) -> R<Symbol> {
        self.c.ws();
        if self.c.peek() == b'{' {
            return self.inline_computation();
        }
        let name = self.c.name("the name of a computation or `{`")?;
        Ok(self.m.strings.intern(name))
    }

    /// A literal with its shape written before it; tuples have neither.
    fn free_literal(&mut self) -> R<()> {
        self.c.ws();
        if self.c.peek() == b'(' {
            self.c.enter(1)?;
            self.c.pos += 1;
            while !self.c.eat(b')') {
                self.free_literal()?;
                self.c.ws();
                if self.c.peek() != b')' {
                    self.c.expect(b',', "`,` or `)` in a tuple literal")?;
                }
            }
            self.c.leave(1);
            return Ok(());
        }
        let s = shape::shape(&mut self.c)?;
        literal::literal(&mut self.c, &s)?;
        Ok(())
    }

    fn take(&mut self, key: Key) -> Option<Found> {
        let i = self.found.iter().position(|f| f.key == key)?;
        Some(self.found.swap_remove(i))
    }

    fn int(&mut self, key: Key) -> Option<i64> {
        match self.take(key)?.val {
            Val::Int(v) => Some(v),
            _ => None,
        }
    }

    fn flag(&mut self, key: Key) -> Option<bool> {
        match self.take(key)?.val {
            Val::Bool(v) => Some(v),
            _ => None,
        }
    }

    fn ints(&mut self, key: Key) -> Option<Dims> {
        match self.take(key)?.val {
            Val::Ints(v) => Some(v),
            _ => None,
        }
    }

    fn sym(&mut self, key: Key) -> Option<Symbol> {
        match self.take(key)?.val {
            Val::Sym(v) => Some(v),
            _ => None,
        }
    }

    fn syms(&mut self, key: Key) -> Vec<Symbol> {
        match self.take(key).map(|f| f.val) {
            Some(Val::Syms(v)) => v,
            _ => Vec::new(),
        }
    }

    /// A word attribute turned into a value by a table of names.
    fn word<T: Copy>(&mut self, key: Key, table: &[(&str, T)]) -> R<Option<T>> {
        let Some(f) = self.take(key) else { return Ok(None) };
        let Val::Sym(s) = f.val else { return Ok(None) };
        let text = self.m.str(s);
        if let Some(hit) = table.iter().find(|t| t.0 == text) {
            return Ok(Some(hit.1));
        }
        let what = format!("unknown value `{text}` of `{}`", key.name());
        let mut e = self.c.fail::<Option<T>>(f.start as usize, f.end as usize, what);
        if let Err(e) = &mut e {
            let names: Vec<_> = table.iter().map(|t| t.0).collect();
            e.expected = Some(format!("one of {}", names.join(", ")));
        }
        e
    }

    /// Exactly one dimension.
    fn dim(&mut self, key: Key) -> R<Option<i64>> {
        let Some(f) = self.take(key) else { return Ok(None) };
        match f.val {
            Val::Ints(v) if v.len() == 1 => Ok(Some(v[0])),
            _ => {
                let what = format!("`{}` must name one dimension", key.name());
                self.c.fail(f.start as usize, f.end as usize, what)
            }
        }
    }

    /// Makes the attributes of an opcode from those read, which it uses up.
    /// Names of called computations go to `calls`, their places to `uses`.
    pub(crate) fn build(
        &mut self,
        site: &Site,
        wraps: Option<Opcode>,
        operands: &[InstrId],
        calls: &mut SmallVec<[CompId; 1]>,
        uses: &mut SmallVec<[u32; 2]>,
        extra: &mut Option<Box<Extra>>,
    ) -> R<Attrs> {
        use Opcode as O;
        let op = site.op;
        if op.is_binary_elementwise() && op != O::Compare || self.found.is_empty() && op == O::Tuple
        {
            return Ok(Attrs::None);
        }
        for &key in keys::required(op, wraps) {
            if !self.found.iter().any(|f| f.key == key) {
                let what = format!("{op} needs the attribute `{}`", key.name());
                return self.c.fail(site.at, site.end, what);
            }
        }
        self.calls(site, operands, calls, uses)?;
        let attrs = match op {
            O::Iota => Attrs::Iota(self.int(Key::IotaDimension).unwrap_or(0)),
            O::TopK => Attrs::TopK {
                k: self.int(Key::K).unwrap_or(0),
                largest: self.flag(Key::Largest).unwrap_or(true),
            },
            O::GetTupleElement => Attrs::TupleIndex(self.int(Key::Index).unwrap_or(0)),
            O::Broadcast => match self.ints(Key::Dimensions) {
                Some(d) => Attrs::Dims(d),
                None => {
                    let scalar = operands.first().and_then(|&o| self.m.instrs.get(o.0 as usize));
                    let scalar = scalar.map(|i| &self.m.shapes[i.shape.0 as usize]);
                    if scalar.is_some_and(|s| !s.dims().is_empty()) {
                        let what = "broadcast of an array needs the attribute `dimensions`";
                        return self.c.fail(site.at, site.end, what);
                    }
                    Attrs::Dims(Dims::new())
                }
            },
            O::Map => Attrs::Dims(self.ints(Key::Dimensions).unwrap_or_else(|| {
                let first = operands.first().and_then(|&o| self.m.instrs.get(o.0 as usize));
                let rank = first.map_or(0, |i| self.m.shapes[i.shape.0 as usize].dims().len());
                (0..rank as i64).collect()
            })),
            O::Transpose | O::Reverse | O::Reduce => {
                Attrs::Dims(self.ints(Key::Dimensions).unwrap_or_default())
            }
            O::Concatenate => {
                let d = self.dim(Key::Dimensions)?.unwrap_or(0);
                Attrs::Dims(std::iter::once(d).collect())
            }
            O::GetDimensionSize | O::SetDimensionSize => {
                Attrs::Dim(self.dim(Key::Dimensions)?.unwrap_or(0))
            }
            O::Sort => Attrs::Sort {
                dim: self.dim(Key::Dimensions)?.unwrap_or(0),
                stable: self.flag(Key::IsStable).unwrap_or(false),
            },
            O::Slice => match self.take(Key::Slice).map(|f| f.val) {
                Some(Val::Slice(s)) => Attrs::Slice(s),
                _ => Attrs::None,
            },
            O::Pad => match self.take(Key::Padding).map(|f| f.val) {
                Some(Val::Padding(p)) => Attrs::Pad(p),
                _ => Attrs::None,
            },
            O::DynamicSlice => {
                Attrs::DynamicSlice(self.ints(Key::DynamicSliceSizes).unwrap_or_default())
            }
            O::Dot | O::RaggedDot | O::ScaledDot => Attrs::Dot(Box::new(DotAttrs {
                lhs_batch: self.ints(Key::LhsBatch).unwrap_or_default(),
                rhs_batch: self.ints(Key::RhsBatch).unwrap_or_default(),
                lhs_contracting: self.ints(Key::LhsContracting).unwrap_or_default(),
                rhs_contracting: self.ints(Key::RhsContracting).unwrap_or_default(),
                precision: self.syms(Key::OperandPrecision),
                algorithm: self.sym(Key::Algorithm),
                lhs_ragged: self.ints(Key::LhsRagged).unwrap_or_default(),
                rhs_group: self.ints(Key::RhsGroup).unwrap_or_default(),
                sparsity: self.sym(Key::Sparsity),
            })),
            O::Convolution => self.convolution(site)?,
            O::Gather => Attrs::Gather(Box::new(GatherAttrs {
                offset_dims: self.ints(Key::OffsetDims).unwrap_or_default(),
                collapsed_slice_dims: self.ints(Key::CollapsedSliceDims).unwrap_or_default(),
                start_index_map: self.ints(Key::StartIndexMap).unwrap_or_default(),
                operand_batching_dims: self.ints(Key::OperandBatchingDims).unwrap_or_default(),
                start_indices_batching_dims: (self.ints(Key::StartIndicesBatchingDims))
                    .unwrap_or_default(),
                index_vector_dim: self.int(Key::IndexVectorDim).unwrap_or(0),
                slice_sizes: self.ints(Key::SliceSizes).unwrap_or_default(),
                indices_are_sorted: self.flag(Key::IndicesAreSorted).unwrap_or(false),
            })),
            O::Scatter => {
                if operands.len() % 2 == 0 {
                    let what = format!(
                        "scatter takes an odd number of operands, {} are given",
                        operands.len()
                    );
                    return self.c.fail(site.at, site.end, what);
                }
                Attrs::Scatter(Box::new(ScatterAttrs {
                    update_window_dims: self.ints(Key::UpdateWindowDims).unwrap_or_default(),
                    inserted_window_dims: self.ints(Key::InsertedWindowDims).unwrap_or_default(),
                    scatter_dims_to_operand_dims: (self.ints(Key::ScatterDimsToOperandDims))
                        .unwrap_or_default(),
                    input_batching_dims: self.ints(Key::InputBatchingDims).unwrap_or_default(),
                    scatter_indices_batching_dims: (self.ints(Key::ScatterIndicesBatchingDims))
                        .unwrap_or_default(),
                    index_vector_dim: self.int(Key::IndexVectorDim).unwrap_or(0),
                    indices_are_sorted: self.flag(Key::IndicesAreSorted).unwrap_or(false),
                    unique_indices: self.flag(Key::UniqueIndices).unwrap_or(false),
                }))
            }
            O::Compare => {
                use Comparison::*;
                let dirs = [Eq, Ne, Ge, Gt, Le, Lt].map(|d| (d.name(), d));
                let kinds = [
                    CompareKind::Float,
                    CompareKind::TotalOrder,
                    CompareKind::Signed,
                    CompareKind::Unsigned,
                ]
                .map(|k| (k.name(), k));
                Attrs::Compare {
                    direction: self.word(Key::Direction, &dirs)?.unwrap_or(Eq),
                    kind: self.word(Key::Type, &kinds)?,
                }
            }
            O::ReduceWindow | O::SelectAndScatter => {
                if op == O::ReduceWindow {
                    self.even(site, operands)?;
                }
                Attrs::Window(self.window_value())
            }
            O::BatchNormTraining | O::BatchNormInference | O::BatchNormGrad => {
                let epsilon = match self.take(Key::Epsilon).map(|f| f.val) {
                    Some(Val::Float(v)) => v,
                    _ => 0.0,
                };
                Attrs::BatchNorm { epsilon, feature: self.int(Key::FeatureIndex).unwrap_or(0) }
            }
            O::Fft => {
                const KINDS: [(&str, FftKind); 4] = [
                    ("FFT", FftKind::Fft),
                    ("IFFT", FftKind::Ifft),
                    ("RFFT", FftKind::Rfft),
                    ("IRFFT", FftKind::Irfft),
                ];
                Attrs::Fft {
                    kind: self.word(Key::FftType, &KINDS)?.unwrap_or(FftKind::Fft),
                    length: self.ints(Key::FftLength).unwrap_or_default(),
                }
            }
            O::TriangularSolve => {
                const KINDS: [(&str, TransposeKind); 3] = [
                    ("NO_TRANSPOSE", TransposeKind::NoTranspose),
                    ("TRANSPOSE", TransposeKind::Transpose),
                    ("ADJOINT", TransposeKind::Adjoint),
                ];
                Attrs::TriangularSolve {
                    left_side: self.flag(Key::LeftSide).unwrap_or(false),
                    lower: self.flag(Key::Lower).unwrap_or(false),
                    unit_diagonal: self.flag(Key::UnitDiagonal).unwrap_or(false),
                    transpose_a: self
                        .word(Key::TransposeA, &KINDS)?
                        .unwrap_or(TransposeKind::NoTranspose),
                }
            }
            O::Cholesky => Attrs::Cholesky { lower: self.flag(Key::Lower).unwrap_or(false) },
            O::ReducePrecision => Attrs::ReducePrecision {
                exponent: self.bits(site, Key::ExponentBits)?,
                mantissa: self.bits(site, Key::MantissaBits)?,
            },
            O::Rng => {
                const KINDS: [(&str, RngDistribution); 2] = [
                    ("rng_uniform", RngDistribution::Uniform),
                    ("rng_normal", RngDistribution::Normal),
                ];
                let d = self.word(Key::Distribution, &KINDS)?;
                Attrs::Rng(d.unwrap_or(RngDistribution::Uniform))
            }
            O::RngBitGenerator => {
                const KINDS: [(&str, RngAlgorithm); 3] = [
                    ("rng_default", RngAlgorithm::Default),
                    ("rng_three_fry", RngAlgorithm::ThreeFry),
                    ("rng_philox", RngAlgorithm::Philox),
                ];
                let a = self.word(Key::Algorithm, &KINDS)?;
                Attrs::RngBits(a.unwrap_or(RngAlgorithm::Default))
            }
            O::RngGetAndUpdateState => Attrs::RngDelta(self.int(Key::Delta).unwrap_or(0)),
            O::Send | O::SendDone | O::Recv | O::RecvDone => Attrs::Channel {
                channel_id: self.int(Key::ChannelId),
                is_host_transfer: self.flag(Key::IsHostTransfer).unwrap_or(false),
            },
            O::Fusion => {
                let kinds = ["kLoop", "kInput", "kOutput", "kCustom"].map(|k| (k, k));
                let k = self.word(Key::Kind, &kinds)?.unwrap_or("kLoop");
                Attrs::Fusion { kind: self.m.strings.intern(k) }
            }
            O::CustomCall => self.custom_call(),
            O::AsyncStart | O::AsyncUpdate | O::AsyncDone => {
                Attrs::Async { sugar: wraps, thread: self.sym(Key::AsyncExecutionThread) }
            }
            O::Scan => Attrs::Scan(Box::new(ScanAttrs {
                dim: self.dim(Key::Dimensions)?.unwrap_or(0),
                is_reverse: self.flag(Key::IsReverse).unwrap_or(false),
                is_associative: self.flag(Key::IsAssociative),
                num_carries: self.int(Key::NumCarries).unwrap_or(0),
            })),
            O::Infeed => match self.sym(Key::InfeedConfig) {
                Some(s) => Attrs::FeedConfig(s),
                None => Attrs::None,
            },
            O::Outfeed => match self.sym(Key::OutfeedConfig) {
                Some(s) => Attrs::FeedConfig(s),
                None => Attrs::None,
            },
            O::Domain => match self.sym(Key::Domain) {
                Some(s) => Attrs::Domain(s),
                None => Attrs::None,
            },
            _ if op.is_collective() => self.collective()?,
            _ => Attrs::None,
        };
        if op == O::Reduce {
            self.even(site, operands)?;
        }
        if wraps.is_none() || op == O::AsyncStart && calls.len() == 1 {
            self.rest(extra);
        }
        Ok(attrs)
    }

    /// What no field holds goes to [`Extra::other`], in printed order.
    fn rest(&mut self, extra: &mut Option<Box<Extra>>) {
        if self.found.is_empty() {
            return;
        }
        let mut left = std::mem::take(&mut self.found);
        left.sort_by_key(|f| f.start);
        for f in left.drain(..) {
            if let Val::Sym(v) = f.val {
                let name = self.m.strings.intern(f.key.name());
                extra.get_or_insert_default().other.push((name, v));
            }
        }
        self.found = left;
    }

    fn even(&self, site: &Site, operands: &[InstrId]) -> R<()> {
        if operands.len() % 2 == 1 || operands.is_empty() {
            let n = operands.len();
            let what = format!("{} takes an even number of operands, {n} are given", site.op);
            return self.c.fail(site.at, site.end, what);
        }
        Ok(())
    }

    fn bits(&mut self, site: &Site, key: Key) -> R<u32> {
        let v = self.int(key).unwrap_or(0);
        match u32::try_from(v) {
            Ok(v) => Ok(v),
            Err(_) => self.c.fail(site.at, site.end, format!("`{}` is out of range", key.name())),
        }
    }

    fn window_value(&mut self) -> Vec<WindowDim> {
        match self.take(Key::Window).map(|f| f.val) {
            Some(Val::Window(w)) => w,
            _ => Vec::new(),
        }
    }

    fn calls(
        &mut self,
        site: &Site,
        operands: &[InstrId],
        calls: &mut SmallVec<[CompId; 1]>,
        uses: &mut SmallVec<[u32; 2]>,
    ) -> R<()> {
        const ORDER: [Key; 8] = [
            Key::ToApply,
            Key::Calls,
            Key::Condition,
            Key::Body,
            Key::Select,
            Key::Scatter,
            Key::TrueComputation,
            Key::FalseComputation,
        ];
        let is_call = |f: &Found| matches!(f.val, Val::Comp(_) | Val::Comps(_));
        if self.found.iter().any(is_call) {
            for key in ORDER {
                let Some(f) = self.take(key) else { continue };
                if let Val::Comp(s) = f.val {
                    calls.push(CompId(s.0));
                    uses.push(f.start);
                }
            }
            for key in [Key::BranchComputations, Key::CalledComputations] {
                if let Some(Val::Comps(v)) = self.take(key).map(|f| f.val) {
                    for (s, at) in v {
                        calls.push(CompId(s.0));
                        uses.push(at);
                    }
                }
            }
        }
        if site.op == Opcode::Conditional && (calls.is_empty() || operands.len() != calls.len() + 1)
        {
            let what = format!(
                "conditional has {} branches and {} operands; it takes one operand more than branches",
                calls.len(),
                operands.len()
            );
            return self.c.fail(site.at, site.end, what);
        }
        Ok(())
    }

    fn convolution(&mut self, site: &Site) -> R<Attrs> {
        let mut a = match self.take(Key::DimLabels).map(|f| f.val) {
            Some(Val::Labels(l)) => l,
            _ => Box::default(),
        };
        a.window = self.window_value();
        let spatial = a.input_spatial.len();
        if a.window.len() != spatial {
            let what = format!(
                "the window has {} dimensions, `dim_labels` has {spatial} spatial ones",
                a.window.len()
            );
            return self.c.fail(site.at, site.end, what);
        }
        a.feature_group_count = self.int(Key::FeatureGroupCount).unwrap_or(1);
        a.batch_group_count = self.int(Key::BatchGroupCount).unwrap_or(1);
        a.precision = self.syms(Key::OperandPrecision);
        Ok(Attrs::Conv(a))
    }

    fn collective(&mut self) -> R<Attrs> {
        let mut a = CollectiveAttrs::default();
        if let Some(Val::Groups(g)) = self.take(Key::ReplicaGroups).map(|f| f.val) {
            a.groups = *g;
        }
        a.channel_id = self.int(Key::ChannelId);
        a.use_global_device_ids = self.flag(Key::UseGlobalDeviceIds).unwrap_or(false);
        a.dimension = self.dim(Key::Dimensions)?;
        a.constrain_layout = self.flag(Key::ConstrainLayout).unwrap_or(false);
        if let Some(Val::Pairs(p)) = self.take(Key::SourceTargetPairs).map(|f| f.val) {
            a.pairs = p;
        }
        for key in [Key::Mode, Key::SliceSizes] {
            if let Some(v) = self.sym(key) {
                let text = format!("{}={}", key.name(), self.m.str(v));
                a.rest = Some(self.m.strings.intern(&text));
            }
        }
        Ok(Attrs::Collective(Box::new(a)))
    }

    fn custom_call(&mut self) -> Attrs {
        const REST: [Key; 7] = [
            Key::Window,
            Key::DimLabels,
            Key::FeatureGroupCount,
            Key::BatchGroupCount,
            Key::PaddingType,
            Key::Literal,
            Key::OperandPrecision,
        ];
        let mut rest = String::new();
        self.found.sort_by_key(|f| f.start);
        for f in self.found.iter().filter(|f| REST.contains(&f.key)) {
            if !rest.is_empty() {
                rest.push_str(", ");
            }
            rest.push_str(f.key.name());
            rest.push('=');
            rest.push_str(self.c.slice(f.start as usize, f.end as usize));
        }
        self.found.retain(|f| !REST.contains(&f.key));
        let operand_layouts = match self.take(Key::OperandLayoutConstraints).map(|f| f.val) {
            Some(Val::Shapes(s)) => s,
            _ => Vec::new(),
        };
        Attrs::CustomCall(Box::new(CustomCallAttrs {
            target: self.sym(Key::CustomCallTarget).unwrap_or(self.m.name),
            opaque: self.sym(Key::Opaque),
            api_version: self.sym(Key::ApiVersion),
            schedule: self.sym(Key::Schedule),
            has_side_effect: self.flag(Key::HasSideEffect).unwrap_or(false),
            operand_layouts,
            aliasing: self.sym(Key::OutputToOperandAliasing),
            rest: (!rest.is_empty()).then(|| self.m.strings.intern(&rest)),
        }))
    }
}

fn float(c: &mut Cursor<'_>) -> R<f32> {
    let l = literal::literal(c, &Shape::array(DType::F64, []))?;
    let b: [u8; 8] = l.bytes().and_then(|b| b.try_into().ok()).unwrap_or_default();
    Ok(f64::from_le_bytes(b) as f32)
}

fn pairs(c: &mut Cursor<'_>) -> R<Vec<(i64, i64)>> {
    let mut out = Vec::new();
    c.list(b'{', b'}', "`{` and pairs of devices", |c| {
        c.ws();
        let at = c.pos;
        let mut p = Dims::new();
        c.ints(b'{', b'}', &mut p)?;
        match p.as_slice() {
            [s, t] => out.push((*s, *t)),
            _ => return c.fail(at, c.pos, "a pair has two devices, source and target"),
        }
        Ok(())
    })?;
    Ok(out)
}

fn slice(c: &mut Cursor<'_>) -> R<SliceAttrs> {
    let mut s = SliceAttrs::default();
    c.list(b'{', b'}', "`{` and ranges", |c| {
        c.expect(b'[', "`[` and a range")?;
        s.start.push(c.int("the first index")?);
        c.expect(b':', "`:` and the limit")?;
        s.limit.push(c.int("the limit")?);
        let stride = if c.eat(b':') { c.int("the stride")? } else { 1 };
        s.stride.push(stride);
        c.expect(b']', "`:` or `]`")
    })?;
    Ok(s)
}

/// `1_2x0_0_1`: low, high and optional interior padding per dimension.
fn padding(c: &mut Cursor<'_>) -> R<Vec<PadDim>> {
    let mut out = Vec::new();
    loop {
        let low = c.int("a padding such as `0_0x1_1`")?;
        if !c.eat_str("_") {
            return c.expected("`_` and the padding after");
        }
        let high = c.int("the padding after")?;
        let interior = if c.eat_str("_") { c.int("the padding between")? } else { 0 };
        out.push(PadDim { low, high, interior });
        if !c.eat_str("x") {
            return Ok(out);
        }
    }
}

fn window(c: &mut Cursor<'_>) -> R<Vec<WindowDim>> {
    c.ws();
    let start = c.pos;
    c.expect(b'{', "`{` and a window")?;
    let mut w: Vec<WindowDim> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    while !c.eat(b'}') {
        let at = c.pos;
        let word = c.ident("a field of the window or `}`")?;
        let end = c.pos;
        c.expect(b'=', "`=`")?;
        if seen.contains(&word) {
            return c.fail(at, end, format!("window field `{word}` is given twice"));
        }
        let mut values: SmallVec<[(i64, i64); 4]> = SmallVec::new();
        match word {
            "pad" => values.extend(padding(c)?.iter().map(|p| (p.low, p.high))),
            "size" | "stride" | "lhs_dilate" | "rhs_dilate" | "rhs_reversal" => loop {
                values.push((c.int("an integer")?, 0));
                if !c.eat_str("x") {
                    break;
                }
            },
            _ => {
                let what = format!("unknown window field `{word}`");
                return c.fail(at, end, what);
            }
        }
        if word == "size" || seen.is_empty() {
            if w.is_empty() {
                w.resize(values.len(), WindowDim::default());
            }
        }
        if w.len() != values.len() {
            let what = format!("`{word}` has {} dimensions, the window {}", values.len(), w.len());
            return c.fail(at, c.pos, what);
        }
        for (d, (v, v2)) in w.iter_mut().zip(values) {
            match word {
                "size" => d.size = v,
                "stride" => d.stride = v,
                "lhs_dilate" => d.base_dilation = v,
                "rhs_dilate" => d.window_dilation = v,
                "rhs_reversal" => d.reversal = v == 1,
                _ => (d.pad_low, d.pad_high) = (v, v2),
            }
        }
        seen.push(word);
    }
    if !seen.contains(&"size") && !seen.is_empty() {
        return c.fail(start, c.pos, "the window has no `size`");
    }
    Ok(w)
}

/// `b01f_01io->b01f`.
fn dim_labels(c: &mut Cursor<'_>) -> R<ConvAttrs> {
    c.ws();
    let start = c.pos;
    let is_label =
        |c: &Cursor<'_>| matches!(c.peek(), b'0'..=b'9' | b'b' | b'f' | b'i' | b'o' | b'?');
    let mut parts: [(usize, &str); 3] = [(0, ""); 3];
    for (i, sep) in ["_", "->", ""].iter().enumerate() {
        let at = c.pos;
        while is_label(c) {
            c.pos += 1;
        }
        parts[i] = (at, c.slice(at, c.pos));
        if c.pos == at || !c.eat_str(sep) {
            c.pos = at.max(start);
            return c.expected("dimension labels such as `b01f_01io->b01f`");
        }
    }
    let mut a = ConvAttrs::default();
    let mut spatial = [Dims::new(), Dims::new(), Dims::new()];
    for (i, (at, text)) in parts.iter().enumerate() {
        let (x, y) = if i == 1 { (b'i', b'o') } else { (b'b', b'f') };
        let n = text.bytes().filter(u8::is_ascii_digit).count();
        spatial[i] = std::iter::repeat_n(-1, n).collect();
        let mut ends = [-1i64; 2];
        for (d, l) in text.bytes().enumerate() {
            let slot = match l {
                b'?' => continue,
                l if l == x => Some(&mut ends[0]),
                l if l == y => Some(&mut ends[1]),
                b'0'..=b'9' => spatial[i].get_mut((l - b'0') as usize),
                _ => None,
            };
            match slot {
                Some(s) if *s < 0 => *s = d as i64,
                _ => {
                    let what = format!("label `{}` does not fit here", l as char);
                    return c.fail(at + d, at + d + 1, what);
                }
            }
        }
        if ends.contains(&-1) && i != 1 && !text.contains('?') {
            let what = format!("`{}` and `{}` must be among the labels", x as char, y as char);
            return c.fail(*at, at + text.len(), what);
        }
        let ends = ends.map(|e| e.max(0));
        match i {
            0 => (a.input_batch, a.input_feature) = (ends[0], ends[1]),
            1 => (a.kernel_input_feature, a.kernel_output_feature) = (ends[0], ends[1]),
            _ => (a.output_batch, a.output_feature) = (ends[0], ends[1]),
        }
    }
    if spatial[0].len() != spatial[1].len() || spatial[0].len() != spatial[2].len() {
        return c.fail(start, c.pos, "input, kernel and output differ in spatial dimensions");
    }
    let [i, k, o] = spatial;
    (a.input_spatial, a.kernel_spatial, a.output_spatial) = (i, k, o);
    Ok(a)
}

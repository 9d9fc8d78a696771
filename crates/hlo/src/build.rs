//! What an opcode makes of the attributes that were read.

use crate::attrs::{Found, Val};
use crate::cursor::R;
use crate::keys::{self, Key, Site};
use crate::reader::Reader;
use scalify_ir::attrs::*;
use scalify_ir::shape::Dims;
use scalify_ir::{Attrs, CompId, InstrId, Opcode, Symbol};
use smallvec::SmallVec;

impl Reader<'_> {
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
                if operands.len().is_multiple_of(2) {
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
        Ok(attrs)
    }

    /// What no field holds goes to [`Extra::other`], in printed order.
    pub(crate) fn rest(&mut self, extra: &mut Option<Box<Extra>>) {
        if self.found.is_empty() {
            return;
        }
        let mut left = std::mem::take(&mut self.found);
        left.sort_by_key(|f| f.start);
        for f in left.drain(..) {
            // Of topk, whose ties are in order of position anyway.
            if let (Key::IsStable, Val::Bool(b)) = (f.key, &f.val) {
                let name = self.m.strings.intern(f.key.name());
                let value = self.m.strings.intern(if *b { "true" } else { "false" });
                extra.get_or_insert_default().other.push((name, value));
            }
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

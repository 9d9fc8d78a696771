//! Instructions and their attributes.

use super::{Writer, comp_id, instr_id, literal, shape};
use crate::{forms, names, raw, xla};
use scalify_ir::{
    Attrs, CollectiveAttrs, ConvAttrs, CustomCallAttrs, DotAttrs, InstrId, Instruction, Opcode,
    RngDistribution, Symbol, WindowDim,
};

type P = xla::HloInstructionProto;

fn window(w: &[WindowDim]) -> xla::Window {
    let one = |d: &WindowDim| xla::WindowDimension {
        size: d.size,
        stride: d.stride,
        padding_low: d.pad_low,
        padding_high: d.pad_high,
        window_dilation: d.window_dilation,
        base_dilation: d.base_dilation,
        window_reversal: d.reversal,
    };
    xla::Window { dimensions: w.iter().map(one).collect() }
}

impl Writer<'_> {
    /// Translates an instruction, without its name, shape and metadata.
    pub(super) fn instr(&self, id: InstrId) -> P {
        let i = self.m.instr(id);
        let mut called: Vec<i64> = i.calls.iter().map(|&c| comp_id(c)).collect();
        if i.opcode == Opcode::While && called.len() == 2 {
            called.swap(0, 1);
        }
        let mut p = P {
            opcode: i.opcode.name().to_owned(),
            id: instr_id(id),
            operand_ids: i.operands.iter().map(|&o| instr_id(o)).collect(),
            called_computation_ids: called,
            ..Default::default()
        };
        self.attrs(i, &mut p);
        if let Some(e) = &i.extra {
            self.extra(e, &mut p);
        }
        p
    }

    fn attrs(&self, i: &Instruction, p: &mut P) {
        match &i.attrs {
            Attrs::None => {}
            Attrs::Parameter(n) => p.parameter_number = i64::from(*n),
            Attrs::Constant(l) => p.literal = literal::literal(l),
            Attrs::Iota(d) | Attrs::Dim(d) => p.dimensions = vec![*d],
            Attrs::TupleIndex(n) => p.tuple_index = *n,
            Attrs::Dims(d) => p.dimensions = d.to_vec(),
            Attrs::Sort { dim, stable } => {
                p.dimensions = vec![*dim];
                p.is_stable = *stable;
            }
            Attrs::Slice(s) => {
                let rows = s.start.iter().zip(&s.limit).zip(&s.stride);
                p.slice_dimensions = rows
                    .map(|((&start, &limit), &stride)| {
                        xla::hlo_instruction_proto::SliceDimensions { start, limit, stride }
                    })
                    .collect();
            }
            Attrs::Pad(dims) => {
                let one = |d: &scalify_ir::PadDim| xla::padding_config::PaddingConfigDimension {
                    edge_padding_low: d.low,
                    edge_padding_high: d.high,
                    interior_padding: d.interior,
                };
                p.padding_config =
                    Some(xla::PaddingConfig { dimensions: dims.iter().map(one).collect() });
            }
            Attrs::DynamicSlice(d) => p.dynamic_slice_sizes = d.to_vec(),
            Attrs::Dot(d) => self.dot(i, d, p),
            Attrs::Conv(c) => self.conv(c, p),
            Attrs::Gather(g) => {
                p.gather_dimension_numbers = Some(xla::GatherDimensionNumbers {
                    offset_dims: g.offset_dims.to_vec(),
                    collapsed_slice_dims: g.collapsed_slice_dims.to_vec(),
                    start_index_map: g.start_index_map.to_vec(),
                    index_vector_dim: g.index_vector_dim,
                    operand_batching_dims: g.operand_batching_dims.to_vec(),
                    start_indices_batching_dims: g.start_indices_batching_dims.to_vec(),
                });
                p.gather_slice_sizes = g.slice_sizes.to_vec();
                p.indices_are_sorted = g.indices_are_sorted;
            }
            Attrs::Scatter(s) => {
                p.scatter_dimension_numbers = Some(xla::ScatterDimensionNumbers {
                    update_window_dims: s.update_window_dims.to_vec(),
                    inserted_window_dims: s.inserted_window_dims.to_vec(),
                    scatter_dims_to_operand_dims: s.scatter_dims_to_operand_dims.to_vec(),
                    index_vector_dim: s.index_vector_dim,
                    input_batching_dims: s.input_batching_dims.to_vec(),
                    scatter_indices_batching_dims: s.scatter_indices_batching_dims.to_vec(),
                });
                p.indices_are_sorted = s.indices_are_sorted;
                p.unique_indices = s.unique_indices;
            }
            Attrs::Compare { direction, kind } => {
                let default = || {
                    let t = i.operands.first().and_then(|&o| self.m.dtype(o));
                    t.map(names::default_compare)
                };
                p.comparison_direction = direction.name().to_owned();
                p.comparison_type = match kind.or_else(default) {
                    Some(k) => k.name().to_owned(),
                    None => String::new(),
                };
            }
            Attrs::Window(w) => p.window = Some(window(w)),
            Attrs::BatchNorm { epsilon, feature } => {
                p.epsilon = *epsilon;
                p.feature_index = *feature;
            }
            Attrs::Fft { kind, length } => {
                p.fft_type = names::fft_type(*kind).into();
                p.fft_length = length.to_vec();
            }
            Attrs::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                p.triangular_solve_options = Some(xla::TriangularSolveOptions {
                    left_side: *left_side,
                    lower: *lower,
                    unit_diagonal: *unit_diagonal,
                    transpose_a: names::transpose_a(*transpose_a).into(),
                });
            }
            Attrs::Cholesky { lower } => {
                p.cholesky_options = Some(xla::CholeskyOptions { lower: *lower });
            }
            Attrs::TopK { k, largest } => {
                p.k = *k;
                p.largest = *largest;
            }
            Attrs::ReducePrecision { exponent, mantissa } => {
                p.exponent_bits = super::count(*exponent);
                p.mantissa_bits = super::count(*mantissa);
            }
            Attrs::Rng(d) => {
                p.distribution = match d {
                    RngDistribution::Uniform => xla::RandomDistribution::RngUniform,
                    RngDistribution::Normal => xla::RandomDistribution::RngNormal,
                }
                .into();
            }
            Attrs::RngBits(a) => p.rng_algorithm = names::random_algorithm(*a).into(),
            Attrs::RngDelta(d) => p.delta = *d,
            Attrs::Collective(c) => self.collective(c, p),
            Attrs::Channel { channel_id, is_host_transfer } => {
                p.channel_id = channel_id.unwrap_or(0);
                p.is_host_transfer = *is_host_transfer;
            }
            Attrs::Fusion { kind } => p.fusion_kind = self.text(*kind),
            Attrs::CustomCall(c) => self.custom_call(i, c, p),
            Attrs::Async { thread, .. } => p.async_execution_thread = self.opt_text(*thread),
            Attrs::Scan(s) => {
                p.dimensions = vec![s.dim];
                p.is_reverse = s.is_reverse;
                p.num_carries = s.num_carries;
                p.is_associative = match s.is_associative {
                    None => xla::TriState::Unspecified,
                    Some(true) => xla::TriState::True,
                    Some(false) => xla::TriState::False,
                }
                .into();
            }
            Attrs::FeedConfig(s) if i.opcode == Opcode::Outfeed => {
                p.outfeed_config = raw::to_bytes(self.m.str(*s));
                p.outfeed_shape = i.operands.first().map(|&o| shape::shape(self.m.shape(o)));
            }
            Attrs::FeedConfig(s) => p.infeed_config = raw::to_bytes(self.m.str(*s)),
            // Its shardings are kept as text that is not parsed back.
            Attrs::Domain(_) => {}
        }
    }

    fn precision(
        &self,
        operands: usize,
        precision: &[Symbol],
        algorithm: Option<Symbol>,
    ) -> xla::PrecisionConfig {
        use xla::precision_config::{Algorithm, Precision};
        let one = |s: &Symbol| {
            let name = self.m.str(*s).to_ascii_uppercase();
            Precision::from_str_name(&name).unwrap_or_default().into()
        };
        let mut operand_precision: Vec<i32> = precision.iter().map(one).collect();
        if precision.is_empty() {
            operand_precision = vec![Precision::Default.into(); operands];
        }
        let algorithm = algorithm.and_then(|s| {
            Algorithm::from_str_name(&format!("ALG_{}", self.m.str(s).to_ascii_uppercase()))
        });
        xla::PrecisionConfig { operand_precision, algorithm: algorithm.unwrap_or_default().into() }
    }

    fn dot(&self, i: &Instruction, d: &DotAttrs, p: &mut P) {
        let dims = xla::DotDimensionNumbers {
            lhs_contracting_dimensions: d.lhs_contracting.to_vec(),
            rhs_contracting_dimensions: d.rhs_contracting.to_vec(),
            lhs_batch_dimensions: d.lhs_batch.to_vec(),
            rhs_batch_dimensions: d.rhs_batch.to_vec(),
        };
        if i.opcode == Opcode::RaggedDot {
            p.ragged_dot_dimension_numbers = Some(xla::RaggedDotDimensionNumbers {
                dot_dimension_numbers: Some(dims),
                lhs_ragged_dimensions: d.lhs_ragged.to_vec(),
                rhs_group_dimensions: d.rhs_group.to_vec(),
            });
        } else {
            p.dot_dimension_numbers = Some(dims);
        }
        let n = i.operands.len().min(2);
        p.precision_config = Some(self.precision(n, &d.precision, d.algorithm));
        p.sparsity_config = d.sparsity.and_then(|s| forms::parse_sparsity(self.m.str(s)));
    }

    fn conv(&self, c: &ConvAttrs, p: &mut P) {
        p.window = Some(window(&c.window));
        p.convolution_dimension_numbers = Some(xla::ConvolutionDimensionNumbers {
            kernel_input_feature_dimension: c.kernel_input_feature,
            kernel_output_feature_dimension: c.kernel_output_feature,
            kernel_spatial_dimensions: c.kernel_spatial.to_vec(),
            input_batch_dimension: c.input_batch,
            input_feature_dimension: c.input_feature,
            output_batch_dimension: c.output_batch,
            output_feature_dimension: c.output_feature,
            input_spatial_dimensions: c.input_spatial.to_vec(),
            output_spatial_dimensions: c.output_spatial.to_vec(),
        });
        p.feature_group_count = c.feature_group_count;
        p.batch_group_count = c.batch_group_count;
        p.precision_config = Some(self.precision(2, &c.precision, None));
    }

    fn collective(&self, c: &CollectiveAttrs, p: &mut P) {
        p.replica_group_list = Some(self.groups(&c.groups));
        p.channel_id = c.channel_id.unwrap_or(0);
        p.use_global_device_ids = c.use_global_device_ids;
        p.dimensions = c.dimension.into_iter().collect();
        let pair = |&(source, target): &(i64, i64)| xla::SourceTarget { source, target };
        p.source_target_pairs = c.pairs.iter().map(pair).collect();
        p.constrain_layout = c.constrain_layout;
    }

    fn custom_call(&self, i: &Instruction, c: &CustomCallAttrs, p: &mut P) {
        p.custom_call_target = self.text(c.target);
        p.custom_call_opaque = c.opaque.map(|s| raw::to_bytes(self.m.str(s))).unwrap_or_default();
        let api =
            c.api_version.and_then(|s| xla::CustomCallApiVersion::from_str_name(self.m.str(s)));
        p.custom_call_api_version =
            api.unwrap_or(xla::CustomCallApiVersion::ApiVersionOriginal).into();
        let when = c.schedule.and_then(|s| xla::CustomCallSchedule::from_str_name(self.m.str(s)));
        p.custom_call_schedule = when.unwrap_or_default().into();
        p.custom_call_has_side_effect = c.has_side_effect;
        p.constrain_layout = !c.operand_layouts.is_empty();
        p.operand_shapes_with_layout = c.operand_layouts.iter().map(shape::shape).collect();
        p.output_operand_aliasing =
            c.aliasing.and_then(|s| forms::parse_aliasing(self.m.str(s))).unwrap_or_default();
        let rest = c.rest.map(|s| forms::parse_call_rest(self.m.str(s))).unwrap_or_default();
        p.window = rest.window;
        p.convolution_dimension_numbers = rest.dims;
        p.feature_group_count = rest.feature_group_count.max(1);
        p.batch_group_count = rest.batch_group_count.max(1);
        p.padding_type = rest.padding.into();
        p.literal = rest.literal.and_then(|b| prost::Message::decode(b.as_slice()).ok());
        p.precision_config = Some(self.precision(i.operands.len(), &[], None));
    }
}

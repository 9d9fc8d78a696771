//! Attributes by opcode.

use super::{Reader, literal, shape};
use crate::error::{Part, bad};
use crate::{forms, names, raw, xla};
use scalify_ir::shape::Dims;
use scalify_ir::{
    Attrs, CollectiveAttrs, CompareKind, ConvAttrs, CustomCallAttrs, DotAttrs, GatherAttrs,
    InstrId, Literal, LiteralData, Opcode, PadDim, RngDistribution, ScanAttrs, ScatterAttrs,
    SliceAttrs, Symbol, WindowDim,
};

type P = xla::HloInstructionProto;

fn dims(v: &[i64]) -> Dims {
    v.iter().copied().collect()
}

/// The only element of `dimensions`.
fn one(p: &P) -> Part<i64> {
    match p.dimensions.as_slice() {
        [d] => Ok(*d),
        v => bad("dimensions", format!("{} dimensions, expected one", v.len())),
    }
}

/// At most one element of `dimensions`.
fn at_most_one(p: &P) -> Part<Option<i64>> {
    if p.dimensions.is_empty() { Ok(None) } else { one(p).map(Some) }
}

fn nonneg(v: i32, field: &'static str) -> Part<u32> {
    u32::try_from(v).or_else(|_| bad(field, format!("{v} is negative")))
}

fn window(p: &P) -> Vec<WindowDim> {
    let one = |d: &xla::WindowDimension| WindowDim {
        size: d.size,
        stride: d.stride,
        pad_low: d.padding_low,
        pad_high: d.padding_high,
        window_dilation: d.window_dilation,
        base_dilation: d.base_dilation,
        reversal: d.window_reversal,
    };
    p.window.iter().flat_map(|w| &w.dimensions).map(one).collect()
}

impl Reader<'_> {
    /// Attributes of an instruction; its operands are read.
    pub(super) fn attrs(
        &mut self,
        opcode: Opcode,
        shape: scalify_ir::ShapeId,
        operands: &[InstrId],
        p: &P,
    ) -> Part<Attrs> {
        use Opcode as O;
        Ok(match opcode {
            O::Parameter => match u32::try_from(p.parameter_number) {
                Ok(n) => Attrs::Parameter(n),
                Err(_) => return bad("parameter_number", format!("{}", p.parameter_number)),
            },
            O::Constant => Attrs::Constant(Box::new(match &p.literal {
                Some(l) => literal::literal(l)?,
                // Dumps without large constants leave the literal out.
                None => Literal {
                    shape: self.m.shapes[shape.0 as usize].clone(),
                    data: LiteralData::Elided,
                },
            })),
            O::Iota => Attrs::Iota(one(p)?),
            O::GetTupleElement => Attrs::TupleIndex(p.tuple_index),
            O::Broadcast | O::Transpose | O::Reduce | O::Reverse | O::Concatenate | O::Map => {
                Attrs::Dims(dims(&p.dimensions))
            }
            O::GetDimensionSize | O::SetDimensionSize => Attrs::Dim(one(p)?),
            O::Sort => Attrs::Sort { dim: one(p)?, stable: p.is_stable },
            O::Slice => {
                let of = |f: fn(&xla::hlo_instruction_proto::SliceDimensions) -> i64| {
                    p.slice_dimensions.iter().map(f).collect()
                };
                Attrs::Slice(Box::new(SliceAttrs {
                    start: of(|d| d.start),
                    limit: of(|d| d.limit),
                    stride: of(|d| d.stride),
                }))
            }
            O::Pad => {
                let one = |d: &xla::padding_config::PaddingConfigDimension| PadDim {
                    low: d.edge_padding_low,
                    high: d.edge_padding_high,
                    interior: d.interior_padding,
                };
                Attrs::Pad(p.padding_config.iter().flat_map(|c| &c.dimensions).map(one).collect())
            }
            O::DynamicSlice => Attrs::DynamicSlice(dims(&p.dynamic_slice_sizes)),
            O::Dot | O::RaggedDot | O::ScaledDot => Attrs::Dot(Box::new(self.dot(p)?)),
            O::Convolution => Attrs::Conv(Box::new(self.conv(p)?)),
            O::Gather => Attrs::Gather(Box::new(gather(p)?)),
            O::Scatter => Attrs::Scatter(Box::new(scatter(p)?)),
            O::Compare => self.compare(operands, p)?,
            O::ReduceWindow | O::SelectAndScatter => Attrs::Window(window(p)),
            O::BatchNormGrad | O::BatchNormInference | O::BatchNormTraining => {
                Attrs::BatchNorm { epsilon: p.epsilon, feature: p.feature_index }
            }
            O::Fft => match xla::FftType::try_from(p.fft_type) {
                Ok(t) => Attrs::Fft { kind: names::fft(t), length: dims(&p.fft_length) },
                Err(_) => return bad("fft_type", format!("unknown value {}", p.fft_type)),
            },
            O::TriangularSolve => {
                let o = p.triangular_solve_options.unwrap_or_default();
                match names::transpose(o.transpose_a()) {
                    Some(transpose_a) => Attrs::TriangularSolve {
                        left_side: o.left_side,
                        lower: o.lower,
                        unit_diagonal: o.unit_diagonal,
                        transpose_a,
                    },
                    None => {
                        let what = format!("bad transpose_a {}", o.transpose_a);
                        return bad("triangular_solve_options", what);
                    }
                }
            }
            O::Cholesky => Attrs::Cholesky { lower: p.cholesky_options.is_some_and(|o| o.lower) },
            O::TopK => Attrs::TopK { k: p.k, largest: p.largest },
            O::ReducePrecision => Attrs::ReducePrecision {
                exponent: nonneg(p.exponent_bits, "exponent_bits")?,
                mantissa: nonneg(p.mantissa_bits, "mantissa_bits")?,
            },
            O::Rng => match xla::RandomDistribution::try_from(p.distribution) {
                Ok(xla::RandomDistribution::RngUniform) => Attrs::Rng(RngDistribution::Uniform),
                Ok(xla::RandomDistribution::RngNormal) => Attrs::Rng(RngDistribution::Normal),
                _ => return bad("distribution", format!("unknown value {}", p.distribution)),
            },
            O::RngBitGenerator => match xla::RandomAlgorithm::try_from(p.rng_algorithm) {
                Ok(a) => Attrs::RngBits(names::algorithm(a)),
                Err(_) => {
                    return bad("rng_algorithm", format!("unknown value {}", p.rng_algorithm));
                }
            },
            O::RngGetAndUpdateState => Attrs::RngDelta(p.delta),
            O::AllGather
            | O::AllGatherStart
            | O::AllReduce
            | O::AllReduceStart
            | O::AllToAll
            | O::CollectiveBroadcast
            | O::CollectivePermute
            | O::CollectivePermuteStart
            | O::RaggedAllToAll
            | O::ReduceScatter => Attrs::Collective(Box::new(self.collective(p)?)),
            O::Send | O::SendDone | O::Recv | O::RecvDone => Attrs::Channel {
                channel_id: (p.channel_id > 0).then_some(p.channel_id),
                is_host_transfer: p.is_host_transfer,
            },
            O::Fusion => Attrs::Fusion { kind: self.sym(&p.fusion_kind) },
            O::CustomCall => Attrs::CustomCall(Box::new(self.custom_call(p)?)),
            O::AsyncStart | O::AsyncUpdate | O::AsyncDone => {
                let thread = match p.async_execution_thread.as_str() {
                    "main" => "",
                    t => t,
                };
                Attrs::Async { sugar: None, thread: self.opt_sym(thread) }
            }
            O::Scan => Attrs::Scan(Box::new(ScanAttrs {
                dim: at_most_one(p)?.unwrap_or(0),
                is_reverse: p.is_reverse,
                is_associative: match p.is_associative() {
                    xla::TriState::Unspecified => None,
                    xla::TriState::True => Some(true),
                    xla::TriState::False => Some(false),
                },
                num_carries: p.num_carries,
            })),
            O::Infeed => Attrs::FeedConfig(self.bytes(&p.infeed_config)),
            O::Outfeed => Attrs::FeedConfig(self.bytes(&p.outfeed_config)),
            O::Domain => self.domain(p)?,
            _ => Attrs::None,
        })
    }

    fn bytes(&mut self, b: &[u8]) -> Symbol {
        let s = raw::to_text(b);
        self.sym(&s)
    }

    fn precision(&mut self, p: &P) -> Part<(Vec<Symbol>, Option<Symbol>)> {
        let Some(c) = &p.precision_config else { return Ok((Vec::new(), None)) };
        let mut out = Vec::new();
        let mut plain = true;
        for &v in &c.operand_precision {
            let Ok(v) = xla::precision_config::Precision::try_from(v) else {
                return bad("precision_config", format!("unknown precision {v}"));
            };
            plain &= v == xla::precision_config::Precision::Default;
            out.push(self.sym(&v.as_str_name().to_ascii_lowercase()));
        }
        if plain {
            out.clear();
        }
        let algorithm = match xla::precision_config::Algorithm::try_from(c.algorithm) {
            Ok(xla::precision_config::Algorithm::AlgUnset) => None,
            Ok(a) => {
                let name = a.as_str_name().trim_start_matches("ALG_").to_ascii_lowercase();
                Some(self.sym(&name))
            }
            Err(_) => return bad("precision_config", format!("unknown algorithm {}", c.algorithm)),
        };
        Ok((out, algorithm))
    }

    fn dot(&mut self, p: &P) -> Part<DotAttrs> {
        let ragged = p.ragged_dot_dimension_numbers.as_ref();
        let d = ragged.and_then(|r| r.dot_dimension_numbers.as_ref());
        let none = xla::DotDimensionNumbers::default();
        let d = d.or(p.dot_dimension_numbers.as_ref()).unwrap_or(&none);
        let (precision, algorithm) = self.precision(p)?;
        let sparsity = p.sparsity_config.as_ref().and_then(forms::sparsity);
        Ok(DotAttrs {
            lhs_batch: dims(&d.lhs_batch_dimensions),
            rhs_batch: dims(&d.rhs_batch_dimensions),
            lhs_contracting: dims(&d.lhs_contracting_dimensions),
            rhs_contracting: dims(&d.rhs_contracting_dimensions),
            precision,
            algorithm,
            lhs_ragged: ragged.map(|r| dims(&r.lhs_ragged_dimensions)).unwrap_or_default(),
            rhs_group: ragged.map(|r| dims(&r.rhs_group_dimensions)).unwrap_or_default(),
            sparsity: sparsity.map(|s| self.sym(&s)),
        })
    }

    fn conv(&mut self, p: &P) -> Part<ConvAttrs> {
        let Some(d) = &p.convolution_dimension_numbers else {
            return bad("convolution_dimension_numbers", "missing");
        };
        if p.sparsity_config.as_ref().and_then(forms::sparsity).is_some() {
            return bad("sparsity_config", "sparse convolutions are not supported");
        }
        Ok(ConvAttrs {
            window: window(p),
            input_batch: d.input_batch_dimension,
            input_feature: d.input_feature_dimension,
            input_spatial: dims(&d.input_spatial_dimensions),
            kernel_input_feature: d.kernel_input_feature_dimension,
            kernel_output_feature: d.kernel_output_feature_dimension,
            kernel_spatial: dims(&d.kernel_spatial_dimensions),
            output_batch: d.output_batch_dimension,
            output_feature: d.output_feature_dimension,
            output_spatial: dims(&d.output_spatial_dimensions),
            feature_group_count: p.feature_group_count.max(1),
            batch_group_count: p.batch_group_count.max(1),
            precision: self.precision(p)?.0,
        })
    }

    fn compare(&mut self, operands: &[InstrId], p: &P) -> Part<Attrs> {
        let Some(direction) = names::comparison(&p.comparison_direction) else {
            return bad("comparison_direction", format!("unknown `{}`", p.comparison_direction));
        };
        let kind = match p.comparison_type.as_str() {
            "" => None,
            s => match CompareKind::from_name(s) {
                Some(k) => Some(k),
                None => return bad("comparison_type", format!("unknown `{s}`")),
            },
        };
        let default = operands.first().and_then(|&o| self.m.dtype(o)).map(names::default_compare);
        Ok(Attrs::Compare { direction, kind: kind.filter(|k| Some(*k) != default) })
    }

    fn collective(&mut self, p: &P) -> Part<CollectiveAttrs> {
        let channel = if p.channel_id > 0 { p.channel_id } else { p.all_reduce_id };
        Ok(CollectiveAttrs {
            groups: self.groups(p)?,
            channel_id: (channel > 0).then_some(channel),
            use_global_device_ids: p.use_global_device_ids,
            dimension: at_most_one(p)?,
            pairs: p.source_target_pairs.iter().map(|s| (s.source, s.target)).collect(),
            constrain_layout: p.constrain_layout,
            rest: None,
        })
    }

    fn custom_call(&mut self, p: &P) -> Part<CustomCallAttrs> {
        use xla::{CustomCallApiVersion as Api, CustomCallSchedule as When};
        let api_version = match Api::try_from(p.custom_call_api_version) {
            Ok(Api::ApiVersionOriginal) => None,
            Ok(v) => Some(self.sym(v.as_str_name())),
            Err(_) => return bad("custom_call_api_version", "unknown value"),
        };
        let schedule = match When::try_from(p.custom_call_schedule) {
            Ok(When::ScheduleNone) => None,
            Ok(v) => Some(self.sym(v.as_str_name())),
            Err(_) => return bad("custom_call_schedule", "unknown value"),
        };
        let mut operand_layouts = Vec::new();
        if p.constrain_layout {
            for s in &p.operand_shapes_with_layout {
                operand_layouts
                    .push(shape::shape(s).map_err(|e| e.of("operand_shapes_with_layout"))?);
            }
        }
        let rest = forms::call_rest(&forms::CallRest {
            window: p.window.clone(),
            dims: p.convolution_dimension_numbers.clone(),
            feature_group_count: p.feature_group_count,
            batch_group_count: p.batch_group_count,
            padding: p.padding_type(),
            literal: p.literal.as_ref().map(prost::Message::encode_to_vec),
        });
        let opaque = raw::to_text(&p.custom_call_opaque);
        Ok(CustomCallAttrs {
            target: self.sym(&p.custom_call_target),
            opaque: self.opt_sym(&opaque),
            api_version,
            schedule,
            has_side_effect: p.custom_call_has_side_effect,
            operand_layouts,
            aliasing: forms::aliasing(&p.output_operand_aliasing).map(|s| self.sym(&s)),
            rest: rest.map(|s| self.sym(&s)),
        })
    }

    /// Text swaps the two shardings.
    fn domain(&mut self, p: &P) -> Part<Attrs> {
        let mut side = |s: &Option<xla::OpSharding>| -> Part<String> {
            match s {
                None => Ok("{}".to_owned()),
                Some(s) => Ok(forms::sharding_text(&self.sharding(s)?)),
            }
        };
        let entry = side(&p.domain_exit_sharding)?;
        let exit = side(&p.domain_entry_sharding)?;
        let s = format!("{{kind=\"sharding\", entry={entry}, exit={exit}}}");
        Ok(Attrs::Domain(self.sym(&s)))
    }
}

fn gather(p: &P) -> Part<GatherAttrs> {
    let Some(d) = &p.gather_dimension_numbers else {
        return bad("gather_dimension_numbers", "missing");
    };
    Ok(GatherAttrs {
        offset_dims: dims(&d.offset_dims),
        collapsed_slice_dims: dims(&d.collapsed_slice_dims),
        start_index_map: dims(&d.start_index_map),
        operand_batching_dims: dims(&d.operand_batching_dims),
        start_indices_batching_dims: dims(&d.start_indices_batching_dims),
        index_vector_dim: d.index_vector_dim,
        slice_sizes: dims(&p.gather_slice_sizes),
        indices_are_sorted: p.indices_are_sorted,
    })
}

fn scatter(p: &P) -> Part<ScatterAttrs> {
    let Some(d) = &p.scatter_dimension_numbers else {
        return bad("scatter_dimension_numbers", "missing");
    };
    Ok(ScatterAttrs {
        update_window_dims: dims(&d.update_window_dims),
        inserted_window_dims: dims(&d.inserted_window_dims),
        scatter_dims_to_operand_dims: dims(&d.scatter_dims_to_operand_dims),
        input_batching_dims: dims(&d.input_batching_dims),
        scatter_indices_batching_dims: dims(&d.scatter_indices_batching_dims),
        index_vector_dim: d.index_vector_dim,
        indices_are_sorted: p.indices_are_sorted,
        unique_indices: p.unique_indices,
    })
}

//! Text of the attributes that belong to an opcode.

use super::Writer;
use super::sharding::ints;
use scalify_ir::attrs::*;
use scalify_ir::{Attrs, DType, Instruction, Opcode, Symbol};
use std::fmt::Write;

impl Writer<'_> {
    fn key(&mut self, name: &str) {
        let _ = write!(self.out, ", {name}=");
    }

    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.out, ", {name}={value}");
    }

    /// A flag that is only printed when set.
    fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.put(name, true);
        }
    }

    fn dims(&mut self, name: &str, d: &[i64]) {
        self.key(name);
        self.out.push('{');
        ints(&mut self.out, d);
        self.out.push('}');
    }

    /// A list that is only printed when not empty.
    fn some_dims(&mut self, name: &str, d: &[i64]) {
        if !d.is_empty() {
            self.dims(name, d);
        }
    }

    fn text(&mut self, name: &str, s: Option<Symbol>) {
        if let Some(s) = s {
            self.put(name, self.m.str(s));
        }
    }

    fn string(&mut self, name: &str, s: Option<Symbol>) {
        if let Some(s) = s {
            self.key(name);
            self.quoted(s);
        }
    }

    fn words(&mut self, name: &str, words: &[Symbol]) {
        if !words.is_empty() {
            self.key(name);
            self.out.push('{');
            let m = self.m;
            ints(&mut self.out, words.iter().map(|&w| m.str(w)));
            self.out.push('}');
        }
    }

    fn called(&mut self, i: &Instruction) {
        use Opcode as O;
        let by_pred = || {
            let first = i.operands.first().and_then(|&o| self.m.dtype(o));
            first == Some(DType::Pred) && i.calls.len() == 2
        };
        let names: &[&str] = match i.opcode {
            O::While => &["condition", "body"],
            O::SelectAndScatter => &["select", "scatter"],
            O::Conditional if by_pred() => &["true_computation", "false_computation"],
            O::Conditional => &["branch_computations"],
            O::CustomCall => &["called_computations"],
            O::Fusion => &["calls"],
            O::AsyncStart if self.sugar(i).is_some() => return,
            O::AsyncStart => &["calls"],
            O::AsyncUpdate | O::AsyncDone => return,
            _ => &["to_apply"],
        };
        if matches!(i.opcode, O::CustomCall | O::Conditional) && names.len() == 1 {
            if i.calls.is_empty() {
                return;
            }
            self.key(names[0]);
            self.out.push('{');
            for (k, &c) in i.calls.iter().enumerate() {
                if k > 0 {
                    self.out.push_str(", ");
                }
                self.comp_name(c);
            }
            self.out.push('}');
            return;
        }
        for (name, &c) in names.iter().zip(&i.calls) {
            self.key(name);
            self.comp_name(c);
        }
    }

    pub(super) fn attributes(&mut self, i: &Instruction) {
        match &i.attrs {
            Attrs::None | Attrs::Parameter(_) | Attrs::Constant(_) => {}
            Attrs::Iota(d) => self.put("iota_dimension", d),
            Attrs::TupleIndex(n) => self.put("index", n),
            Attrs::Dims(d) => self.dims("dimensions", d),
            Attrs::Dim(d) => self.dims("dimensions", &[*d]),
            Attrs::Sort { dim, stable } => {
                self.dims("dimensions", &[*dim]);
                self.flag("is_stable", *stable);
            }
            Attrs::Slice(s) => self.slice(s),
            Attrs::Pad(p) => {
                self.key("padding");
                for (k, d) in p.iter().enumerate() {
                    let x = if k > 0 { "x" } else { "" };
                    let _ = write!(self.out, "{x}{}_{}", d.low, d.high);
                    if d.interior != 0 {
                        let _ = write!(self.out, "_{}", d.interior);
                    }
                }
            }
            Attrs::DynamicSlice(d) => self.dims("dynamic_slice_sizes", d),
            Attrs::Dot(d) => {
                self.some_dims("lhs_batch_dims", &d.lhs_batch);
                self.dims("lhs_contracting_dims", &d.lhs_contracting);
                self.some_dims("rhs_batch_dims", &d.rhs_batch);
                self.dims("rhs_contracting_dims", &d.rhs_contracting);
                self.some_dims("lhs_ragged_dims", &d.lhs_ragged);
                self.some_dims("rhs_group_dims", &d.rhs_group);
                self.words("operand_precision", &d.precision);
                self.text("algorithm", d.algorithm);
                self.text("sparsity", d.sparsity);
            }
            Attrs::Conv(c) => self.convolution(c),
            Attrs::Gather(g) => {
                self.dims("offset_dims", &g.offset_dims);
                self.dims("collapsed_slice_dims", &g.collapsed_slice_dims);
                self.dims("start_index_map", &g.start_index_map);
                self.some_dims("operand_batching_dims", &g.operand_batching_dims);
                self.some_dims("start_indices_batching_dims", &g.start_indices_batching_dims);
                self.put("index_vector_dim", g.index_vector_dim);
                self.dims("slice_sizes", &g.slice_sizes);
                self.flag("indices_are_sorted", g.indices_are_sorted);
            }
            Attrs::Scatter(s) => {
                self.dims("update_window_dims", &s.update_window_dims);
                self.dims("inserted_window_dims", &s.inserted_window_dims);
                self.dims("scatter_dims_to_operand_dims", &s.scatter_dims_to_operand_dims);
                self.some_dims("input_batching_dims", &s.input_batching_dims);
                self.some_dims("scatter_indices_batching_dims", &s.scatter_indices_batching_dims);
                self.put("index_vector_dim", s.index_vector_dim);
                self.flag("indices_are_sorted", s.indices_are_sorted);
                self.flag("unique_indices", s.unique_indices);
            }
            Attrs::Compare { direction, kind } => {
                self.put("direction", direction.name());
                if let Some(k) = kind {
                    self.put("type", k.name());
                }
            }
            Attrs::Window(w) => self.window(w),
            Attrs::BatchNorm { epsilon, feature } => {
                self.put("epsilon", format_args!("{epsilon:e}"));
                self.put("feature_index", feature);
            }
            Attrs::Fft { kind, length } => {
                self.put(
                    "fft_type",
                    match kind {
                        FftKind::Fft => "FFT",
                        FftKind::Ifft => "IFFT",
                        FftKind::Rfft => "RFFT",
                        FftKind::Irfft => "IRFFT",
                    },
                );
                self.dims("fft_length", length);
            }
            Attrs::TriangularSolve { left_side, lower, unit_diagonal, transpose_a } => {
                self.flag("left_side", *left_side);
                self.flag("lower", *lower);
                self.flag("unit_diagonal", *unit_diagonal);
                self.put(
                    "transpose_a",
                    match transpose_a {
                        TransposeKind::NoTranspose => "NO_TRANSPOSE",
                        TransposeKind::Transpose => "TRANSPOSE",
                        TransposeKind::Adjoint => "ADJOINT",
                    },
                );
            }
            Attrs::Cholesky { lower } => self.flag("lower", *lower),
            Attrs::TopK { k, largest } => {
                self.put("k", k);
                self.put("largest", largest);
            }
            Attrs::ReducePrecision { exponent, mantissa } => {
                self.put("exponent_bits", exponent);
                self.put("mantissa_bits", mantissa);
            }
            Attrs::Rng(d) => self.put(
                "distribution",
                match d {
                    RngDistribution::Uniform => "rng_uniform",
                    RngDistribution::Normal => "rng_normal",
                },
            ),
            Attrs::RngBits(a) => self.put(
                "algorithm",
                match a {
                    RngAlgorithm::Default => "rng_default",
                    RngAlgorithm::ThreeFry => "rng_three_fry",
                    RngAlgorithm::Philox => "rng_philox",
                },
            ),
            Attrs::RngDelta(d) => self.put("delta", d),
            Attrs::Collective(c) => self.collective(i.opcode, c),
            Attrs::Channel { channel_id, is_host_transfer } => {
                if let Some(id) = channel_id {
                    self.put("channel_id", id);
                }
                self.flag("is_host_transfer", *is_host_transfer);
            }
            Attrs::Fusion { kind } => self.text("kind", Some(*kind)),
            Attrs::CustomCall(c) => {
                let config = i.extra.as_ref().is_some_and(|e| e.backend_config.is_some());
                self.custom_call(c, config);
            }
            Attrs::Async { thread, .. } => self.string("async_execution_thread", *thread),
            Attrs::Scan(s) => {
                self.dims("dimensions", &[s.dim]);
                self.flag("is_reverse", s.is_reverse);
                if let Some(a) = s.is_associative {
                    self.put("is_associative", a);
                }
                self.put("num_carries", s.num_carries);
            }
            Attrs::FeedConfig(c) => {
                let name =
                    if i.opcode == Opcode::Infeed { "infeed_config" } else { "outfeed_config" };
                self.string(name, Some(*c));
            }
            Attrs::Domain(d) => self.text("domain", Some(*d)),
        }
        if !i.calls.is_empty() {
            self.called(i);
        }
    }

    fn slice(&mut self, s: &SliceAttrs) {
        self.key("slice");
        self.out.push('{');
        for (k, (a, b)) in s.start.iter().zip(&s.limit).enumerate() {
            let comma = if k > 0 { ", " } else { "" };
            let _ = write!(self.out, "{comma}[{a}:{b}");
            match s.stride.get(k) {
                Some(&n) if n != 1 => {
                    let _ = write!(self.out, ":{n}]");
                }
                _ => self.out.push(']'),
            }
        }
        self.out.push('}');
    }

    fn window(&mut self, w: &[WindowDim]) {
        if w.is_empty() {
            return;
        }
        self.key("window");
        self.out.push('{');
        let mut first = true;
        let mut field = |name: &str, show: bool, item: &dyn Fn(&WindowDim) -> String| {
            if !show {
                return;
            }
            if !first {
                self.out.push(' ');
            }
            first = false;
            let items: Vec<String> = w.iter().map(item).collect();
            let _ = write!(self.out, "{name}={}", items.join("x"));
        };
        let any = |f: &dyn Fn(&WindowDim) -> bool| w.iter().any(f);
        field("size", true, &|d| d.size.to_string());
        field("stride", any(&|d| d.stride != 1), &|d| d.stride.to_string());
        field("pad", any(&|d| d.pad_low != 0 || d.pad_high != 0), &|d| {
            format!("{}_{}", d.pad_low, d.pad_high)
        });
        field("lhs_dilate", any(&|d| d.base_dilation != 1), &|d| d.base_dilation.to_string());
        field("rhs_dilate", any(&|d| d.window_dilation != 1), &|d| d.window_dilation.to_string());
        field("rhs_reversal", any(&|d| d.reversal), &|d| (d.reversal as u8).to_string());
        self.out.push('}');
    }

    fn convolution(&mut self, c: &ConvAttrs) {
        self.window(&c.window);
        self.key("dim_labels");
        let sides = [
            (c.input_batch, c.input_feature, &c.input_spatial, ['b', 'f'], "_"),
            (c.kernel_input_feature, c.kernel_output_feature, &c.kernel_spatial, ['i', 'o'], "->"),
            (c.output_batch, c.output_feature, &c.output_spatial, ['b', 'f'], ""),
        ];
        for (x, y, spatial, names, end) in sides {
            let rank = spatial.len() + 2;
            let top = spatial.iter().chain([&x, &y]).copied().max().unwrap_or(0);
            let mut labels = vec!['?'; rank.max((top.clamp(0, 64) + 1) as usize)];
            let named = [(x, names[0]), (y, names[1])].into_iter();
            let digits = spatial.iter().zip('0'..='9').map(|(&d, n)| (d, n));
            for (d, n) in named.chain(digits) {
                if let Some(l) = usize::try_from(d).ok().and_then(|d| labels.get_mut(d)) {
                    *l = n;
                }
            }
            self.out.extend(labels);
            self.out.push_str(end);
        }
        if c.feature_group_count != 1 {
            self.put("feature_group_count", c.feature_group_count);
        }
        if c.batch_group_count != 1 {
            self.put("batch_group_count", c.batch_group_count);
        }
        self.words("operand_precision", &c.precision);
    }

    fn collective(&mut self, op: Opcode, c: &CollectiveAttrs) {
        if let Some(id) = c.channel_id {
            self.put("channel_id", id);
        }
        if matches!(op, Opcode::CollectivePermute | Opcode::CollectivePermuteStart) {
            self.key("source_target_pairs");
            self.out.push('{');
            let pairs = c.pairs.iter().map(|(s, t)| format!("{{{s},{t}}}"));
            ints(&mut self.out, pairs);
            self.out.push('}');
        } else {
            self.key("replica_groups");
            self.groups(&c.groups);
        }
        self.flag("constrain_layout", c.constrain_layout);
        self.flag("use_global_device_ids", c.use_global_device_ids);
        if let Some(d) = c.dimension {
            self.dims("dimensions", &[d]);
        }
        if let Some(r) = c.rest {
            let _ = write!(self.out, ", {}", self.m.str(r));
        }
    }

    fn custom_call(&mut self, c: &CustomCallAttrs, has_config: bool) {
        if let Some(r) = c.rest {
            let _ = write!(self.out, ", {}", self.m.str(r));
        }
        self.string("custom_call_target", Some(c.target));
        if !c.operand_layouts.is_empty() {
            self.key("operand_layout_constraints");
            self.out.push('{');
            for (i, s) in c.operand_layouts.iter().enumerate() {
                super::comma(&mut self.out, i);
                super::shape::write_shape(&mut self.out, s, true);
            }
            self.out.push('}');
        }
        self.flag("custom_call_has_side_effect", c.has_side_effect);
        self.text("output_to_operand_aliasing", c.aliasing);
        self.text("schedule", c.schedule);
        // XLA prints the unspecified version but does not read it.
        let api = c.api_version.filter(|&a| self.m.str(a) != "API_VERSION_UNSPECIFIED");
        self.text("api_version", api);
        // The older name of backend_config, which XLA no longer reads.
        self.string("backend_config", c.opaque.filter(|_| !has_config));
    }
}

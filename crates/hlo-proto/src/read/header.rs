//! Tables and attributes of the module.

use super::{Reader, frontend, shape};
use crate::error::{Part, bad};
use crate::forms;
use scalify_ir::{FileLocation, Shape, StackFrame};

fn index(v: i32, field: &'static str) -> Part<u32> {
    match u32::try_from(v) {
        Ok(v) => Ok(v),
        Err(_) => bad(field, format!("{v} is negative")),
    }
}

impl Reader<'_> {
    /// Source tables.
    pub(super) fn tables(&mut self) -> Part<()> {
        let Some(t) = &self.head.stack_frame_index else { return Ok(()) };
        self.text_bytes +=
            t.file_names.iter().chain(&t.function_names).map(|s| s.len() as u64).sum::<u64>();
        self.check_text()?;
        for s in &t.file_names {
            let s = self.sym(s);
            self.m.source.files.push(s);
        }
        for s in &t.function_names {
            let s = self.sym(s);
            self.m.source.functions.push(s);
        }
        for l in &t.file_locations {
            const F: &str = "stack_frame_index.file_locations";
            self.m.source.locations.push(FileLocation {
                file: index(l.file_name_id, F)?,
                function: index(l.function_name_id, F)?,
                line: index(l.line, F)?,
                end_line: index(l.end_line, F)?,
                column: index(l.column, F)?,
                end_column: index(l.end_column, F)?,
            });
        }
        for f in &t.stack_frames {
            const F: &str = "stack_frame_index.stack_frames";
            self.m.source.frames.push(StackFrame {
                location: index(f.file_location_id, F)?,
                parent: index(f.parent_frame_id, F)?,
            });
        }
        Ok(())
    }

    /// The interner counts bytes in 32 bits.
    pub(super) fn check_text(&self) -> Part<()> {
        if self.text_bytes > u64::from(u32::MAX) {
            return bad("computations", "more than 4 GiB of names and attributes");
        }
        Ok(())
    }

    /// Entry and header attributes; computations are read.
    pub(super) fn header(&mut self) -> Part<()> {
        let p = self.head;
        self.m.entry = self.entry()?;
        let h = &mut self.m.header;
        h.is_scheduled = p.schedule.is_some();
        if let Some(a) = &p.device_assignment {
            h.replica_count = i64::from(a.replica_count.max(1));
            h.num_partitions = Some(i64::from(a.computation_count.max(1)));
        }
        if let Some(s) = &p.host_program_shape {
            let parameters = s.parameters.iter().map(shape::shape).collect::<Part<Vec<Shape>>>();
            let parameters = parameters.map_err(|e| e.of("host_program_shape"))?;
            let result = match &s.result {
                Some(r) => shape::shape(r).map_err(|e| e.of("host_program_shape"))?,
                None => return bad("host_program_shape", "no result"),
            };
            h.entry_layout = Some((parameters, result));
        }
        if let Some(f) = &p.frontend_attributes {
            self.m.header.frontend = frontend(&mut self.m, f);
        }
        if let Some(s) = &p.spmd_output_sharding {
            self.m.header.spmd_output_sharding = Some(self.sharding(s)?);
        }
        for s in &p.spmd_parameters_shardings {
            let s = self.sharding(s)?;
            self.m.header.spmd_parameter_shardings.push(s);
        }
        let mut other = Vec::new();
        if let Some(s) = p.input_output_alias.as_ref().and_then(forms::alias) {
            other.push(("input_output_alias", s));
        }
        if let Some(s) = p.buffer_donor.as_ref().and_then(forms::donor) {
            other.push(("buffer_donor", s));
        }
        if p.is_dynamic {
            other.push(("is_dynamic", "true".to_owned()));
        }
        if p.use_auto_spmd_partitioning {
            other.push(("use_auto_spmd_partitioning", "true".to_owned()));
        }
        for (k, v) in other {
            let pair = (self.sym(k), self.sym(&v));
            self.m.header.other.push(pair);
        }
        Ok(())
    }

    fn entry(&self) -> Part<scalify_ir::CompId> {
        let p = self.head;
        let by_id = self.comp_ids.get(&p.entry_computation_id).copied();
        // Id 0 is also what an old file without the field says.
        let by_name = || {
            let name = self.m.strings.lookup(&p.entry_computation_name)?;
            let at = self.m.comps.iter().position(|c| c.name == name)?;
            Some(scalify_ir::CompId(at as u32))
        };
        match by_id {
            Some(id) if p.entry_computation_id != 0 || p.entry_computation_name.is_empty() => {
                Ok(id)
            }
            _ => match by_name().or(by_id) {
                Some(id) => Ok(id),
                None => bad(
                    "entry_computation_id",
                    format!(
                        "no computation has id {} or name `{}`",
                        p.entry_computation_id, p.entry_computation_name
                    ),
                ),
            },
        }
    }
}

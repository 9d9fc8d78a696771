//! The `HloModule` line, the source tables and `metadata={..}`.

use crate::cursor::R;
use crate::reader::Reader;
use crate::shape;
use scalify_ir::{FileLocation, MetaId, OpMetadata, StackFrame, Symbol};

impl Reader<'_> {
    /// `, name=value` pairs after the module name.
    pub(crate) fn header(&mut self) -> R<()> {
        while self.c.eat(b',') {
            self.c.ws();
            let at = self.c.pos;
            let name = self.c.ident("the name of a module attribute")?;
            if self.c.peek() != b'=' {
                return self.c.expected("`=` and the value of the attribute");
            }
            self.c.pos += 1;
            let name_end = self.c.pos - 1;
            let sym = self.m.strings.intern(name);
            if self.header_seen.contains(&sym) {
                let what = format!("module attribute `{name}` is given twice");
                return self.c.fail(at, name_end, what);
            }
            self.header_seen.push(sym);
            match name {
                "is_scheduled" => self.m.header.is_scheduled = self.c.bool()?,
                "replica_count" => {
                    self.m.header.replica_count = self.device_count("a number of replicas")?;
                }
                "num_partitions" => {
                    let n = self.device_count("a number of partitions")?;
                    self.m.header.num_partitions = Some(n);
                }
                "frontend_attributes" => {
                    let mut v = std::mem::take(&mut self.m.header.frontend);
                    self.frontend(&mut v)?;
                    self.m.header.frontend = v;
                }
                "entry_computation_layout" => self.entry_layout()?,
                _ => {
                    let text = self.c.raw_value()?;
                    let v = self.m.strings.intern(text);
                    self.m.header.other.push((sym, v));
                }
            }
        }
        Ok(())
    }

    fn device_count(&mut self, what: &str) -> R<i64> {
        self.c.ws();
        let at = self.c.pos;
        let n = self.c.int(what)?;
        if n < 1 {
            return self.c.fail(at, self.c.pos, format!("{what} must be positive"));
        }
        Ok(n)
    }

    fn entry_layout(&mut self) -> R<()> {
        self.c.expect(b'{', "`{`")?;
        let mut params = Vec::new();
        self.c.list(b'(', b')', "`(` and the shapes of the parameters", |c| {
            params.push(shape::shape(c)?);
            Ok(())
        })?;
        self.c.ws();
        if !self.c.eat_str("->") {
            return self.c.expected("`->` and the shape of the result");
        }
        let result = shape::shape(&mut self.c)?;
        self.c.expect(b'}', "`}`")?;
        self.m.header.entry_layout = Some((params, result));
        Ok(())
    }

    /// `{name="text", name={dict}}`.
    pub(crate) fn frontend(&mut self, out: &mut Vec<(Symbol, Symbol)>) -> R<()> {
        self.c.expect(b'{', "`{` and frontend attributes")?;
        if self.c.eat(b'}') {
            return Ok(());
        }
        loop {
            let name = self.c.ident("the name of a frontend attribute")?;
            if self.c.peek() != b'=' {
                return self.c.expected("`=` and the value of the attribute");
            }
            self.c.pos += 1;
            let name = self.m.strings.intern(name);
            self.c.ws();
            let value = if self.c.peek() == b'{' {
                let text = self.c.braces("a dictionary")?;
                self.m.strings.intern(text)
            } else {
                let text = self.c.string("a string or a dictionary in braces")?;
                self.m.strings.intern(&text)
            };
            match out.iter_mut().find(|e| e.0 == name) {
                Some(e) => e.1 = value,
                None => out.push((name, value)),
            }
            if !self.c.eat(b',') {
                break;
            }
        }
        self.c.expect(b'}', "`,` or `}` after a frontend attribute")
    }

    /// The tables `FileNames`, `FunctionNames`, `FileLocations` and
    /// `StackFrames`, if they are there.
    pub(crate) fn source_tables(&mut self) -> R<()> {
        if !self.c.eat_word("FileNames") {
            return Ok(());
        }
        let mut files = Vec::new();
        self.string_table(&mut files)?;
        self.m.source.files = files;
        if !self.c.eat_word("FunctionNames") {
            return self.c.expected("a row of the table or `FunctionNames`");
        }
        let mut functions = Vec::new();
        self.string_table(&mut functions)?;
        self.m.source.functions = functions;
        if !self.c.eat_word("FileLocations") {
            return self.c.expected("a row of the table or `FileLocations`");
        }
        const PLACE: [&str; 6] =
            ["file_name_id", "function_name_id", "line", "end_line", "column", "end_column"];
        while self.row()? {
            let [file, function, line, end_line, column, end_column] = self.fields(&PLACE)?;
            self.m.source.locations.push(FileLocation {
                file,
                function,
                line,
                end_line,
                column,
                end_column,
            });
        }
        if !self.c.eat_word("StackFrames") {
            return self.c.expected("a row of the table or `StackFrames`");
        }
        while self.row()? {
            let [location, parent] = self.fields(&["file_location_id", "parent_frame_id"])?;
            // Text counts parents from 1 for "none".
            let parent = parent.saturating_sub(1);
            self.m.source.frames.push(StackFrame { location, parent });
        }
        Ok(())
    }

    fn row(&mut self) -> R<bool> {
        self.c.ws();
        if !self.c.peek().is_ascii_digit() {
            return Ok(false);
        }
        self.c.int("the number of the row")?;
        Ok(true)
    }

    fn string_table(&mut self, out: &mut Vec<Symbol>) -> R<()> {
        while self.row()? {
            let s = self.c.string("a string")?;
            out.push(self.m.strings.intern(&s));
        }
        Ok(())
    }

    /// `{a=1 b=2}`, each of `names` once.
    fn fields<const N: usize>(&mut self, names: &[&str; N]) -> R<[u32; N]> {
        self.c.ws();
        let start = self.c.pos;
        self.c.expect(b'{', "`{`")?;
        let mut out = [None; N];
        while !self.c.eat(b'}') {
            self.c.eat(b',');
            self.c.ws();
            let at = self.c.pos;
            let name = self.c.ident("a field or `}`")?;
            let Some(i) = names.iter().position(|n| *n == name) else {
                let mut e = self.c.fail::<()>(at, self.c.pos, format!("unknown field `{name}`"));
                if let Err(e) = &mut e {
                    e.expected = Some(format!("one of {}", names.join(", ")));
                }
                return e.map(|()| [0; N]);
            };
            self.c.expect(b'=', "`=`")?;
            out[i] = Some(self.unsigned()?);
        }
        for (v, n) in out.iter().zip(names) {
            if v.is_none() {
                return self.c.fail(start, self.c.pos, format!("field `{n}` is missing"));
            }
        }
        Ok(out.map(|v| v.unwrap_or(0)))
    }

    /// A number for a table; negative ones (unset) become 0.
    fn unsigned(&mut self) -> R<u32> {
        self.c.ws();
        let at = self.c.pos;
        let v = self.c.int("an integer")?;
        match u32::try_from(v.max(0)) {
            Ok(v) => Ok(v),
            Err(_) => self.c.fail(at, self.c.pos, "integer does not fit in 32 bits"),
        }
    }

    /// `{op_name="..." stack_frame_id=1}`. Equal texts share an id.
    pub(crate) fn metadata(&mut self) -> R<MetaId> {
        self.c.ws();
        let start = self.c.pos;
        let text = self.c.braces("`{` and metadata")?;
        let end = self.c.pos;
        let h = shape::hash(text.as_bytes());
        let source = self.c.text;
        let same = |e: &(u64, u32, u32, MetaId)| {
            e.0 == h && source.get(e.1 as usize..e.2 as usize) == Some(text)
        };
        if let Some(e) = self.meta_cache.find(h, same) {
            return Ok(e.3);
        }
        self.c.pos = start + 1;
        let meta = self.metadata_fields()?;
        let id = MetaId(self.m.metadata.len() as u32);
        self.m.metadata.push(meta);
        self.meta_cache.insert_unique(h, (h, start as u32, end as u32, id), |e| e.0);
        self.c.pos = end;
        Ok(id)
    }

    fn metadata_fields(&mut self) -> R<OpMetadata> {
        let mut m = OpMetadata::default();
        let mut rest = String::new();
        loop {
            self.c.eat(b',');
            if self.c.eat(b'}') {
                break;
            }
            let at = self.c.pos;
            let name = self.c.ident("a field of the metadata or `}`")?;
            if self.c.peek() != b'=' {
                return self.c.expected("`=`");
            }
            self.c.pos += 1;
            match name {
                "op_type" => m.op_type = Some(self.text_symbol()?),
                "op_name" => m.op_name = Some(self.text_symbol()?),
                "source_file" => m.source_file = Some(self.text_symbol()?),
                "source_line" => m.source_line = self.unsigned()?,
                "source_end_line" => m.source_end_line = self.unsigned()?,
                "source_column" => m.source_column = self.unsigned()?,
                "source_end_column" => m.source_end_column = self.unsigned()?,
                "stack_frame_id" => m.stack_frame_id = self.unsigned()?,
                "profile_type"
                | "size_of_generated_code_in_bytes"
                | "size_of_memory_working_set_in_bytes"
                | "profile_info"
                | "deduplicated_name"
                | "preserve_layout"
                | "scheduling_name" => {
                    self.c.raw_value()?;
                    if !rest.is_empty() {
                        rest.push(' ');
                    }
                    rest.push_str(self.c.slice(at, self.c.pos));
                }
                _ => {
                    let end = at + name.len();
                    return self.c.fail(at, end, format!("unknown metadata field `{name}`"));
                }
            }
        }
        m.rest = (!rest.is_empty()).then(|| self.m.strings.intern(&rest));
        Ok(m)
    }

    pub(crate) fn text_symbol(&mut self) -> R<Symbol> {
        let s = self.c.string("a string")?;
        Ok(self.m.strings.intern(&s))
    }
}

//! `sharding={..}`.

use crate::cursor::R;
use crate::groups;
use crate::reader::Reader;
use scalify_ir::sharding::SubgroupKind;
use scalify_ir::{MetaId, OpSharding, ShardingKind, TileAssignment};

impl Reader<'_> {
    /// A sharding, single or one per tuple leaf.
    pub(crate) fn sharding(&mut self) -> R<OpSharding> {
        self.c.ws();
        let start = self.c.pos;
        self.c.expect(b'{', "`{` and a sharding")?;
        self.c.ws();
        if !matches!(self.c.peek(), b'{' | b'}') {
            self.c.pos = start;
            return self.single_sharding();
        }
        let mut parts = Vec::new();
        if !self.c.eat(b'}') {
            loop {
                parts.push(self.single_sharding()?);
                if !self.c.eat(b',') {
                    break;
                }
            }
            self.c.expect(b'}', "`,` or `}` after the sharding of a tuple element")?;
        }
        let kind = ShardingKind::Tuple(parts);
        Ok(OpSharding { kind, metadata: Vec::new(), shard_group: String::new() })
    }

    fn single_sharding(&mut self) -> R<OpSharding> {
        self.c.ws();
        let start = self.c.pos;
        self.c.expect(b'{', "`{` and a sharding")?;
        self.c.ws();
        let body = self.c.pos;
        if self.c.peek() == b'@' || matches!(self.c.ident_opt(), "mesh" | "maximal_mesh") {
            self.c.pos = start;
            let text = self.c.braces("a sharding")?;
            let kind = ShardingKind::Named(text[1..text.len() - 1].to_owned());
            return Ok(OpSharding { kind, metadata: Vec::new(), shard_group: String::new() });
        }
        self.c.pos = body;
        let mut kind = None;
        let mut device = None;
        let mut tile = None;
        let mut replicate_last = false;
        let mut last_dims = None;
        let mut metadata = Vec::new();
        let mut shard_group = String::new();
        while !self.c.eat(b'}') {
            let at = self.c.pos;
            let word = self.c.ident("a kind of sharding or `}`")?;
            match word {
                "replicated" => kind = Some(ShardingKind::Replicated),
                "manual" => kind = Some(ShardingKind::Manual),
                "unknown" => kind = Some(ShardingKind::Unknown),
                "unreduced" => kind = Some(ShardingKind::Unreduced),
                "maximal" => kind = Some(ShardingKind::Maximal(0)),
                "last_tile_dim_replicate" => replicate_last = true,
                "shard_as" | "shard_like" => {
                    let n = self.c.int("the number of a shard group")?;
                    shard_group = format!("{word} {n}");
                }
                "device" if self.c.eat(b'=') => {
                    device = Some(self.c.int("a device number")?);
                }
                "devices" if self.c.eat(b'=') => tile = Some(groups::tile(&mut self.c)?),
                "metadata" if self.c.eat(b'=') => metadata = self.sharding_metadata()?,
                "last_tile_dims" if self.c.eat(b'=') => last_dims = Some(self.subgroups()?),
                _ => {
                    self.c.pos = at;
                    return self.c.expected("a kind of sharding or `}`");
                }
            }
        }
        let end = self.c.pos;
        let kind = match kind {
            Some(ShardingKind::Maximal(_)) => match device {
                Some(d) => ShardingKind::Maximal(d),
                None => return self.c.fail(start, end, "a maximal sharding needs `device=`"),
            },
            Some(k) => {
                if device.is_some() || tile.is_some() {
                    return self.c.fail(start, end, "this kind of sharding has no devices");
                }
                k
            }
            None => {
                let Some((dims, devices)) = tile else {
                    return self.c.fail(start, end, "a tiled sharding needs `devices=`");
                };
                let last_tile_dim_replicate = replicate_last && last_dims.is_none();
                let mut subgroups = last_dims.unwrap_or_default();
                if last_tile_dim_replicate {
                    subgroups.push(SubgroupKind::Replicated);
                }
                if subgroups.len() > dims.len() {
                    let what = "more subgroup dimensions than dimensions of the tile grid";
                    return self.c.fail(start, end, what);
                }
                let t = TileAssignment { dims, devices, subgroups, last_tile_dim_replicate };
                ShardingKind::Tiled(t)
            }
        };
        Ok(OpSharding { kind, metadata, shard_group })
    }

    fn subgroups(&mut self) -> R<Vec<SubgroupKind>> {
        let mut out = Vec::new();
        self.c.list(b'{', b'}', "`{` and kinds of subgroups", |c| {
            c.ws();
            let at = c.pos;
            out.push(match c.ident_opt() {
                "replicated" => SubgroupKind::Replicated,
                "manual" => SubgroupKind::Manual,
                "unreduced" => SubgroupKind::Unreduced,
                _ => {
                    c.pos = at;
                    return c.expected("`replicated`, `manual` or `unreduced`");
                }
            });
            Ok(())
        })?;
        Ok(out)
    }

    fn sharding_metadata(&mut self) -> R<Vec<MetaId>> {
        let start = self.c.pos;
        self.c.expect(b'{', "`{`")?;
        self.c.ws();
        let list = self.c.peek() == b'{';
        if !list {
            self.c.pos = start;
            return Ok(vec![self.metadata()?]);
        }
        let mut out = Vec::new();
        loop {
            out.push(self.metadata()?);
            if !self.c.eat(b',') {
                break;
            }
        }
        self.c.expect(b'}', "`,` or `}`")?;
        Ok(out)
    }
}

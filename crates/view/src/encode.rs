//! Graphs as compact JSON: columns of integers and string tables. The front
//! end reads them in `web/data.js`.

use crate::graph::Graph;
use crate::layout::Route;
use crate::tree::{Item, Kind, opens};
use rustc_hash::FxHashMap;
use scalify_hlo::InstructionText;
use scalify_ir::{InstrId, Module, Opcode};
use serde::Serialize;
use std::io::Write;

/// Longest name and attribute text, in characters.
const MAX_NAME: usize = 160;
const MAX_ATTRIBUTES: usize = 600;
/// Elements of a constant shown.
const PREVIEW: usize = 12;
/// Frames of one instruction.
const MAX_FRAMES: usize = 24;
/// Lines around a source line.
const CONTEXT: u32 = 2;
/// Source lines of a page.
const MAX_LINES: usize = 20_000;

/// Looks up a line of a source file.
pub(crate) type Lines<'a> = &'a mut dyn FnMut(&str, u32) -> Option<String>;

#[derive(Default)]
struct Strings {
    list: Vec<String>,
    ids: FxHashMap<String, u32>,
}

impl Strings {
    fn id(&mut self, s: &str, max: usize) -> u32 {
        let cut = match s.char_indices().nth(max) {
            Some((i, _)) => format!("{}…", &s[..i]),
            None => s.to_owned(),
        };
        if let Some(&k) = self.ids.get(&cut) {
            return k;
        }
        let k = self.list.len() as u32;
        self.list.push(cut.clone());
        self.ids.insert(cut, k);
        k
    }
}

/// Columns of one graph.
#[derive(Serialize)]
struct Columns<'a> {
    name: &'a str,
    module: &'a str,
    entry: u32,
    mesh: Vec<(&'a str, i64)>,
    strings: Vec<String>,
    opcodes: Vec<&'static str>,
    collective: Vec<u32>,
    names: String,
    op: Vec<u32>,
    shape: Vec<u32>,
    comp: Vec<u32>,
    operands: Vec<u32>,
    deltas: Vec<i64>,
    folded: Vec<u32>,
    attributes: Vec<u32>,
    meta: Vec<i64>,
    metas: Vec<(i64, Vec<u32>)>,
    frames: Vec<(u32, u32, u32)>,
    calls: Vec<Vec<u32>>,
    reducers: Vec<(u32, u32)>,
    literals: Vec<(u32, u32)>,
    shardings: Vec<(u32, u32)>,
    badges: Vec<(&'static str, Vec<String>)>,
    groups: Vec<(u32, u32)>,
    grouping: Vec<(bool, Vec<Vec<i64>>)>,
    roots: Vec<u32>,
    tree: Vec<serde_json::Value>,
    comps: &'a [u32],
    sources: FxHashMap<String, Vec<(u32, String)>>,
}

/// The JSON of a graph.
pub(crate) fn graph(g: &Graph<'_>, lines: Lines<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let m = g.module;
    let n = m.instrs.len();
    let mut s = Strings::default();
    s.id("", 1);
    let mut c = Columns {
        name: &g.name,
        module: m.str(m.name),
        entry: m.entry.0,
        mesh: g.meshes.mesh.iter().flat_map(|m| &m.axes).map(|a| (a.0.as_str(), a.1)).collect(),
        strings: Vec::new(),
        opcodes: Vec::new(),
        collective: Vec::new(),
        names: String::with_capacity(n * 16),
        op: Vec::with_capacity(n),
        shape: Vec::with_capacity(n),
        comp: vec![0; n],
        operands: Vec::with_capacity(n),
        deltas: Vec::with_capacity(n * 2),
        folded: Vec::new(),
        attributes: Vec::with_capacity(n),
        meta: Vec::with_capacity(n),
        metas: Vec::new(),
        frames: Vec::new(),
        calls: Vec::new(),
        reducers: Vec::new(),
        literals: Vec::new(),
        shardings: Vec::new(),
        badges: Vec::new(),
        groups: Vec::new(),
        grouping: Vec::new(),
        roots: m.comps.iter().map(|c| c.root.0).collect(),
        tree: Vec::new(),
        comps: &g.tree.comps,
        sources: FxHashMap::default(),
    };
    for (k, comp) in m.comps.iter().enumerate() {
        for i in &comp.instrs {
            if let Some(x) = c.comp.get_mut(i.0 as usize) {
                *x = k as u32;
            }
        }
    }
    let mut opcode_ids: FxHashMap<Opcode, u32> = FxHashMap::default();
    let mut badge_ids = FxHashMap::default();
    let mut group_ids: FxHashMap<(bool, Vec<Vec<i64>>), u32> = FxHashMap::default();
    let mut meta_ids: FxHashMap<u32, i64> = FxHashMap::default();
    let mut frame_ids: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
    let shape_ids: Vec<u32> =
        m.shapes.iter().map(|x| s.id(&x.to_string(), MAX_ATTRIBUTES)).collect();
    let mut text = InstructionText::new(m);
    for (k, i) in m.instrs.iter().enumerate() {
        let (id, k) = (InstrId(k as u32), k as u32);
        if k > 0 {
            c.names.push('\n');
        }
        c.names.extend(m.str(i.name).chars().filter(|c| *c != '\n').take(MAX_NAME));
        let op = *opcode_ids.entry(i.opcode).or_insert_with(|| {
            c.opcodes.push(i.opcode.name());
            if i.opcode.is_collective() {
                c.collective.push(c.opcodes.len() as u32 - 1);
            }
            c.opcodes.len() as u32 - 1
        });
        c.op.push(op);
        c.shape.push(shape_ids.get(i.shape.0 as usize).copied().unwrap_or(0));
        c.operands.push(i.operands.len() as u32);
        c.deltas.extend(i.operands.iter().map(|o| i64::from(k) - i64::from(o.0)));
        if g.folded.get(k as usize) == Some(&true) {
            c.folded.push(k);
        }
        c.attributes.push(match &i.attrs {
            scalify_ir::Attrs::Parameter(p) => s.id(&format!("parameter {p}"), MAX_ATTRIBUTES),
            _ => s.id(text.attributes(id), MAX_ATTRIBUTES),
        });
        c.meta.push(match i.metadata {
            None => -1,
            Some(mid) => *meta_ids.entry(mid.0).or_insert_with(|| {
                let name = m.op_name(id).filter(|t| !t.is_empty());
                let name = name.map_or(-1, |t| i64::from(s.id(t, MAX_ATTRIBUTES)));
                let frames = m.frames(id);
                let mut list = Vec::new();
                for f in frames.iter().take(MAX_FRAMES) {
                    let key = (s.id(f.file, MAX_ATTRIBUTES), f.line, s.id(f.function, MAX_NAME));
                    list.push(*frame_ids.entry(key).or_insert_with(|| {
                        c.frames.push(key);
                        c.frames.len() as u32 - 1
                    }));
                }
                c.metas.push((name, list));
                c.metas.len() as i64 - 1
            }),
        });
        if !i.calls.is_empty() {
            let (open, reducer) = opens(m, id);
            if !open.is_empty() {
                c.calls.push(std::iter::once(k).chain(open).collect());
            }
            if let Some(r) = reducer {
                c.reducers.push((k, s.id(r, MAX_NAME)));
            }
        }
        if let Some(l) = m.literal(id)
            && let Some((t, more)) = text.elements(l, PREVIEW)
        {
            let t = if more { format!("{t}, …") } else { t.to_owned() };
            c.literals.push((k, s.id(&t, MAX_ATTRIBUTES)));
        }
        if i.extra.is_some()
            && let Some(b) = g.meshes.badge(m, id)
        {
            let at = *badge_ids.entry(b.clone()).or_insert_with(|| {
                c.badges.push((b.kind, b.dims));
                c.badges.len() as u32 - 1
            });
            c.shardings.push((k, at));
        }
        if i.opcode.is_collective()
            && let Some(groups) = g.meshes.groups(m, id)
        {
            let at = *group_ids.entry(groups.clone()).or_insert_with(|| {
                c.grouping.push(groups);
                c.grouping.len() as u32 - 1
            });
            c.groups.push((k, at));
        }
    }
    for group in &g.tree.groups {
        c.tree.push(tree_row(m, group, &mut s));
    }
    sources(&mut c, &s, lines);
    c.strings = s.list;
    let mut out = Vec::with_capacity(n * 64);
    serde_json::to_writer(&mut out, &c)?;
    Ok(out)
}

/// `[kind, comp, label, summary, count, size, items, ports, layers, places, x,
/// routes, lanes]`. Items are instruction ids, or `-1 - group`. Places are
/// item positions or -1. Routes are flat: `from, to, values, n, place..`, or
/// `-1 - lane` for `n`.
fn tree_row(_: &Module, g: &crate::tree::Group, s: &mut Strings) -> serde_json::Value {
    let items: Vec<i64> = g
        .items
        .iter()
        .map(|i| match i {
            Item::Node(n) => i64::from(*n),
            Item::Group(h) => -1 - i64::from(*h),
        })
        .collect();
    let mut routes: Vec<i64> = Vec::new();
    for ((a, b, r), e) in g.layout.routes.iter().zip(&g.edges) {
        routes.extend([i64::from(*a), i64::from(*b), i64::from(e.2)]);
        match r {
            Route::Lane(l) => routes.push(-1 - i64::from(*l)),
            Route::Through(p) => {
                routes.push(p.len() as i64);
                routes.extend(p.iter().map(|p| i64::from(*p)));
            }
        }
    }
    let kind = match g.kind {
        Kind::Computation => 0,
        Kind::Scope => 1,
        Kind::Repeat => 2,
        Kind::Block => 3,
        Kind::Section => 4,
    };
    let ports: String = g.ports.iter().map(|p| char::from(b'0' + (p & 3))).collect();
    let x: Vec<i32> = g.layout.x.iter().map(|x| x.round() as i32).collect();
    serde_json::json!([
        kind,
        g.comp,
        s.id(&g.label, MAX_NAME),
        s.id(&g.summary, MAX_NAME),
        g.count,
        g.size,
        items,
        ports,
        g.layout.layers,
        g.layout.items,
        x,
        routes,
        g.layout.lanes
    ])
}

/// Lines around every recorded line, as far as the files are there.
fn sources(c: &mut Columns<'_>, s: &Strings, lines: Lines<'_>) {
    let mut wanted: Vec<(u32, u32)> = c
        .frames
        .iter()
        .filter(|f| f.1 > 0)
        .flat_map(|f| {
            let (lo, hi) = (f.1.saturating_sub(CONTEXT).max(1), f.1.saturating_add(CONTEXT));
            (lo..=hi).map(move |l| (f.0, l))
        })
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    for (file, line) in wanted.into_iter().take(MAX_LINES) {
        let Some(name) = s.list.get(file as usize) else { continue };
        if let Some(t) = lines(name, line) {
            let t: String = t.chars().take(200).collect();
            c.sources.entry(name.clone()).or_default().push((line, t));
        }
    }
}

/// Deflates and encodes for a script element; the front end undoes it.
///
/// # Errors
/// None in practice; errors of the compressor are passed on.
pub(crate) fn pack(bytes: &[u8]) -> std::io::Result<String> {
    let mut z = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(6));
    z.write_all(bytes)?;
    Ok(base64(&z.finish()?))
}

fn base64(bytes: &[u8]) -> String {
    const SET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |k: usize| u32::from(chunk.get(k).copied().unwrap_or(0));
        let v = at(0) << 16 | at(1) << 8 | at(2);
        for k in 0..4 {
            let sextet = (v >> (18 - 6 * k)) as usize & 63;
            out.push(if k <= chunk.len() { char::from(SET[sextet]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_rfc_4648() {
        // Test vectors of RFC 4648, section 10.
        for (a, b) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(a.as_bytes()), b);
        }
    }
}

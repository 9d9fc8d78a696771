//! Hierarchy and layout of real modules: nothing lost, nothing twice, edges
//! point down, groups are small.

use scalify_ir::{InstrId, Module, Opcode};
use scalify_view::layout::Route;
use scalify_view::tree::{Item, Kind, MAX_ITEMS};
use scalify_view::{Graph, Page, dot, explorer, render, svg};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn parse(path: &Path) -> Module {
    scalify_hlo::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn modules() -> Vec<(String, Module)> {
    let mut files: Vec<PathBuf> = Vec::new();
    for dir in ["examples/llama_layer", "tests/bugs", "tests/pairs"] {
        let mut stack = vec![root().join(dir)];
        while let Some(d) = stack.pop() {
            for e in std::fs::read_dir(d).unwrap() {
                let p = e.unwrap().path();
                if p.is_dir() {
                    stack.push(p);
                } else if p.to_string_lossy().ends_with(".hlo.txt") {
                    files.push(p);
                }
            }
        }
    }
    files.sort();
    assert!(files.len() > 20, "{} modules", files.len());
    files.iter().map(|p| (p.display().to_string(), parse(p))).collect()
}

#[test]
fn hierarchies_are_whole() {
    for (name, m) in modules() {
        let g = Graph::new(&m, &name, None).unwrap();
        let mut seen = vec![0; m.instrs.len()];
        for (k, group) in g.tree.groups.iter().enumerate() {
            assert!(group.items.len() <= MAX_ITEMS, "{name}: {} items", group.items.len());
            for item in &group.items {
                match *item {
                    Item::Node(n) => seen[n as usize] += 1,
                    Item::Group(h) => assert!((h as usize) < k, "{name}: parents come last"),
                }
            }
            if group.kind == Kind::Repeat {
                assert!(group.count >= 2 && group.size % group.count == 0, "{name}");
            }
            // Places hold every item once, edges point to later layers.
            let l = &group.layout;
            let mut places = vec![0; group.items.len()];
            l.items.iter().filter(|i| **i >= 0).for_each(|&i| places[i as usize] += 1);
            assert!(places.iter().all(|p| *p == 1), "{name}");
            let layer = |p: u32| l.layers.partition_point(|&s| s <= p);
            for (a, b, route) in &l.routes {
                let mut at = layer(*a);
                if let Route::Through(via) = route {
                    for &p in via {
                        assert_eq!(layer(p), at + 1, "{name}");
                        at += 1;
                    }
                    assert_eq!(layer(*b), at + 1, "{name}");
                }
                assert!(layer(*a) < layer(*b), "{name}");
            }
        }
        for (k, s) in seen.iter().enumerate() {
            let expected = i32::from(!g.folded[k]);
            assert_eq!(*s, expected, "{name}: %{}", m.name_of(InstrId(k as u32)));
        }
        // Folded: nothing but parameters, constants, iotas and their moves.
        for (k, i) in m.instrs.iter().enumerate().filter(|(k, _)| g.folded[*k]) {
            assert!(!i.opcode.is_collective() && i.opcode != Opcode::Dot);
            assert!(m.comps.iter().all(|c| c.root.0 as usize != k), "{name}: a root is folded");
        }
    }
}

/// A chain of equal layers, none of which has an `op_name`.
fn layers(n: usize) -> Module {
    let mut t = String::from("HloModule chain\n\nENTRY main {\n  x0 = f32[8,8] parameter(0)\n");
    for k in 0..n {
        t.push_str(&format!(
            "  a{k} = f32[8,8] dot(x{k}, x{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
             b{k} = f32[8,8] exponential(a{k})\n  c{k} = f32[8,8] add(b{k}, a{k})\n  \
             d{k} = f32[8,8] tanh(c{k})\n  {}x{} = f32[8,8] add(d{k}, x{k})\n",
            if k + 1 == n { "ROOT " } else { "" },
            k + 1
        ));
    }
    t.push_str("}\n");
    scalify_hlo::parse(&t).unwrap()
}

#[test]
fn layers_without_names_are_found() {
    let m = layers(126);
    let g = Graph::new(&m, "chain", None).unwrap();
    let repeat = g.tree.groups.iter().filter(|g| g.kind == Kind::Repeat).max_by_key(|g| g.size);
    let repeat = repeat.unwrap();
    // The first layer reads a parameter; where blocks begin is free.
    assert!((124..=126).contains(&repeat.count), "× {}", repeat.count);
    assert_eq!(repeat.size / repeat.count, 5);
    let entry = &g.tree.groups[g.tree.comps[m.entry.0 as usize] as usize];
    assert!(entry.items.len() < 12, "{} boxes at the top", entry.items.len());
}

#[test]
fn pages_hold_no_addresses() {
    let m = parse(&root().join("examples/llama_layer/shard_map.hlo.txt"));
    let g = Graph::new(&m, "<b>\"&", None).unwrap();
    let page = Page { title: "</title><script>".into(), ..Page::default() };
    let html = render(&page, &[g], &mut |_, _| Some("</script>".into())).unwrap();
    assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"));
    let opened = html.matches("<script").count();
    assert_eq!(opened, html.matches("</script>").count());
    for scheme in ["https://", "src=\"", "@import", "url("] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(scheme), "{scheme}");
    }
}

#[test]
fn neighbourhoods() {
    let m = layers(4);
    let g = Graph::new(&m, "chain", None).unwrap();
    let at = g.find("%c1").unwrap();
    // c1 reads b1 and a1 and is read by d1.
    let names = |v: &[InstrId]| -> Vec<String> {
        let mut n: Vec<String> = v.iter().map(|i| m.name_of(*i).to_owned()).collect();
        n.sort();
        n
    };
    let one = g.around(at, 1, 100);
    assert_eq!((one[0], names(&one)), (at, ["a1", "b1", "c1", "d1"].map(String::from).to_vec()));
    assert_eq!(g.around(at, 9, 5).len(), 5);
    assert!(g.find("nothing").is_none());
    let text = dot::render(&g, &one);
    assert_eq!(text.matches(" -> ").count(), 4, "{text}");
    let picture = svg::render(&g, &one);
    assert_eq!(picture.matches("<path").count(), 4);
    assert_eq!(picture.matches("<rect").count(), 1 + 4);
    let json = explorer::render(&[g]);
    let nodes = json[0]["graphs"][0]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), m.instrs.len());
    let edges: usize = nodes.iter().map(|n| n["incomingEdges"].as_array().unwrap().len()).sum();
    assert_eq!(edges, m.instrs.iter().map(|i| i.operands.len()).sum::<usize>());
}

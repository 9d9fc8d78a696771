//! JSON in the format of Model Explorer (graph collections).

use crate::graph::Graph;
use crate::tree::Item;
use scalify_hlo::InstructionText;
use serde_json::{Value, json};

/// The collection of these modules: one graph per computation, namespaces
/// from the hierarchy.
pub fn render(graphs: &[Graph<'_>]) -> Value {
    let mut all = Vec::new();
    for g in graphs {
        let m = g.module;
        let mut text = InstructionText::new(m);
        // Namespace of each instruction, parents first.
        let mut space = vec![String::new(); g.tree.groups.len()];
        let mut of = vec![0usize; m.instrs.len()];
        for k in (0..g.tree.groups.len()).rev() {
            for item in &g.tree.groups[k].items {
                match *item {
                    Item::Node(n) => of[n as usize] = k,
                    Item::Group(h) => {
                        let label = g.tree.groups[h as usize].label.replace('/', "·");
                        let up = &space[k];
                        let path = if up.is_empty() { label } else { format!("{up}/{label}") };
                        space[h as usize] = path;
                    }
                }
            }
        }
        let entry = std::iter::once(m.entry.0 as usize);
        let others = (0..m.comps.len()).filter(|&c| c != m.entry.0 as usize);
        let mut list = Vec::new();
        for c in entry.chain(others) {
            let Some(comp) = m.comps.get(c) else { continue };
            let mut nodes = Vec::new();
            for &id in &comp.instrs {
                let i = m.instr(id);
                let folded = g.folded.get(id.0 as usize) == Some(&true);
                let mut attrs = vec![json!({"key": "name", "value": m.name_of(id)})];
                let a = text.attributes(id);
                if !a.is_empty() {
                    attrs.push(json!({"key": "attributes", "value": a.chars().take(600).collect::<String>()}));
                }
                if let Some(f) = m.frames(id).first() {
                    attrs.push(json!({"key": "source", "value": format!("{}:{}", f.file, f.line)}));
                }
                let edges: Vec<Value> = (i.operands.iter().enumerate())
                    .map(|(k, o)| {
                        json!({
                            "sourceNodeId": o.0.to_string(),
                            "sourceNodeOutputId": "0",
                            "targetNodeInputId": k.to_string(),
                        })
                    })
                    .collect();
                let called: Vec<String> = (i.calls.iter())
                    .filter_map(|c| m.comps.get(c.0 as usize).map(|c| m.str(c.name).to_owned()))
                    .collect();
                let shape = m.shape(id).to_string();
                let mut node = json!({
                    "id": id.0.to_string(),
                    "label": i.opcode.name(),
                    "namespace": if folded { "" } else { space[of[id.0 as usize]].as_str() },
                    "attrs": attrs,
                    "incomingEdges": edges,
                    "outputsMetadata": [{"id": "0", "attrs": [{"key": "tensor_shape", "value": shape}]}],
                });
                if !called.is_empty() {
                    node["subgraphIds"] = json!(called);
                }
                nodes.push(node);
            }
            list.push(json!({"id": m.str(comp.name), "nodes": nodes}));
        }
        all.push(json!({"label": g.name, "graphs": list}));
    }
    Value::Array(all)
}

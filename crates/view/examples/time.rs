//! Times hierarchy with layout, and the page, of one module: one line of
//! JSON with seconds and bytes. `time FILE`

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: time FILE")?;
    let text = std::fs::read_to_string(&path)?;
    let module = scalify_hlo::parse(&text).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let graph = scalify_view::Graph::new(&module, &path, None)?;
    let layout = start.elapsed().as_secs_f64();
    let page = scalify_view::Page { title: path, ..Default::default() };
    let boxes: usize = graph.tree.groups.iter().map(|g| g.items.len()).sum();
    let html = scalify_view::render(&page, &[graph], &mut |_, _| None)?;
    let all = start.elapsed().as_secs_f64();
    #[allow(clippy::print_stdout)]
    {
        println!(
            "{{\"instructions\": {}, \"boxes\": {boxes}, \"layout\": {layout:.3}, \"page\": {all:.3}, \"bytes\": {}}}",
            module.instrs.len(),
            html.len()
        );
    }
    Ok(())
}

//! `scalify run`: a module on the reference interpreter.

pub(crate) mod inputs;
mod outputs;
mod trace;

use crate::args::RunArgs;
use crate::{Exit, input, output};
use anyhow::Context as _;
use scalify_claim::{Claim, Mesh};
use scalify_interp::{Accumulate, RunOptions, Tensor, Value};
use scalify_refute::evaluate;
use std::time::Instant;

pub(crate) fn run(a: &RunArgs) -> anyhow::Result<Exit> {
    let claim = claim(a)?;
    let m = input::load_valid(&a.module)?;
    let p = crate::numeric::single(&m, &claim)?;
    let placements = inputs::placements(&m, &p, &claim)?;
    let values = inputs::values(&a.inputs, a.random, &m, &p, &claim, &placements)?;
    let args = evaluate::dist_arguments(&m, &p, &placements, &values)
        .context("the inputs do not fit the parameters of the program")?;
    let n = usize::try_from(p.devices)?;
    let (replicas, partitions) = evaluate::topology(&m, &p, n);
    let mut trace = a.trace.as_ref().map(|path| trace::Sink::new(path, &m, a)).transpose()?;
    let start = Instant::now();
    let out = {
        let mut see = trace.as_mut().map(|t| |d, id, v: &Value| t.add(d, id, v));
        let mut options = RunOptions {
            replicas,
            partitions,
            accumulate: if a.f64 { Accumulate::F64 } else { Accumulate::Plain },
            ..RunOptions::default()
        };
        options.memory_limit = a.memory_limit.unwrap_or(options.memory_limit);
        options.time_limit = a.time_limit.or(options.time_limit);
        if let Some(see) = &mut see {
            options.trace = Some(see);
        }
        scalify_interp::run(&m, None, &args, options)
    };
    let seconds = start.elapsed().as_secs_f64();
    // What was seen before an error is kept.
    if let Some(t) = trace {
        t.finish()?;
    }
    let per_device: Vec<Vec<Tensor>> = out
        .map_err(|e| anyhow::anyhow!("{}: {e}", a.module.display()))?
        .iter()
        .map(evaluate::leaves)
        .collect();
    let results = outputs::Results::new(&m, &p, &claim, per_device)?;
    if let Some(path) = &a.outputs {
        results.save(path, a.f64)?;
    }
    let mesh: Vec<String> = p.mesh.iter().map(|(a, n)| format!("{a}={n}")).collect();
    let on = match (n, mesh.is_empty()) {
        (1, _) => "1 device".to_owned(),
        (n, true) => format!("{n} devices"),
        (n, false) => format!("{n} devices, mesh {}", mesh.join(",")),
    };
    let kind = if a.f64 { ", floats in f64" } else { "" };
    let head = format!("{} on {on}{kind}, {seconds:.2} s\n", a.module.display());
    output::stdout(&(head + &results.table()))?;
    Ok(Exit::Success)
}

fn claim(a: &RunArgs) -> anyhow::Result<Claim> {
    let mut c = Claim::default();
    let bad = |option: &'static str| {
        move |e: scalify_claim::ParseError| anyhow::anyhow!("--{option}: {e}")
    };
    match (&a.mesh, a.devices) {
        (Some(m), n) => {
            let mesh = Mesh::parse(m).map_err(bad("mesh"))?;
            let have = mesh.devices();
            if let Some(n) = n.filter(|&n| i64::from(n) != have) {
                anyhow::bail!("--devices {n}: the mesh {mesh} has {have} devices");
            }
            c.mesh = Some(mesh);
        }
        (None, Some(n)) => {
            let mesh = Mesh::new(vec![("devices".to_owned(), i64::from(n))]);
            c.mesh = Some(mesh.map_err(|e| anyhow::anyhow!("--devices {n}: expected {e}"))?);
        }
        (None, None) => {}
    }
    for t in &a.inputs_specs {
        c.add_input(t).map_err(bad("in"))?;
    }
    for t in &a.output_specs {
        c.add_output(t).map_err(bad("out"))?;
    }
    for t in &a.assume {
        c.add_assume(t).map_err(bad("assume"))?;
    }
    Ok(c)
}

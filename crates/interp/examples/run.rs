//! Runs HLO text files: `run DIR [--f64] [--time N]` takes every `X.hlo` of DIR with
//! `X.in` (the parameters' elements of device 0, 1, .. one after another, row-major, little
//! endian) and writes `X.out` (the same for the result's leaves) or `X.err`.
//! `--time N` prints the median of N runs in milliseconds.
//! A first line `// replicas=R partitions=P` of the text sets the devices.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use scalify_interp::{Accumulate, RunOptions, Tensor, Value, run};
use scalify_ir::{Module, Shape};
use std::path::Path;
use std::time::{Duration, Instant};

/// The allocator of the `scalify` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn read(s: &Shape, bytes: &mut &[u8]) -> Result<Value, String> {
    match s {
        Shape::Array(a) => {
            let n = a.elements().unwrap_or(0) as usize * a.dtype.literal_bytes();
            let b = bytes.get(..n).ok_or("input file too short")?;
            *bytes = &bytes[n..];
            Tensor::from_bytes(a, b).map(Value::Tensor).ok_or("input shape".into())
        }
        Shape::Tuple(t) => {
            Ok(Value::Tuple(t.iter().map(|s| read(s, bytes)).collect::<Result<_, _>>()?))
        }
        _ => Ok(Value::Token),
    }
}

fn write(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Tensor(t) => out.extend(t.to_bytes()),
        Value::Tuple(t) => t.iter().for_each(|v| write(v, out)),
        Value::Token => {}
    }
}

fn number(text: &str, key: &str) -> usize {
    let line = text.lines().next().unwrap_or("");
    let at = line.find(key).map(|i| &line[i + key.len()..]).unwrap_or("1");
    at.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn one(path: &Path, accumulate: Accumulate, runs: usize) -> Result<Vec<u8>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let module: Module = scalify_hlo::parse(&text).map_err(|e| e.to_string())?;
    let input = std::fs::read(path.with_extension("in")).unwrap_or_default();
    let mut rest = &input[..];
    let (replicas, partitions) = (number(&text, "replicas="), number(&text, "partitions="));
    let mut inputs = Vec::new();
    for _ in 0..replicas * partitions {
        let params = &module.entry_comp().params;
        let args = params.iter().map(|&p| read(module.shape(p), &mut rest));
        inputs.push(args.collect::<Result<Vec<_>, String>>()?);
    }
    let options = || RunOptions {
        replicas,
        partitions,
        accumulate,
        time_limit: Some(Duration::from_secs(60)),
        ..Default::default()
    };
    if runs > 0 {
        let mut times = Vec::new();
        for _ in 0..runs {
            let t = Instant::now();
            let out = run(&module, None, &inputs, options()).map_err(|e| e.to_string())?;
            times.push(t.elapsed().as_secs_f64() * 1e3);
            drop(out);
        }
        times.sort_by(f64::total_cmp);
        let median = times[runs / 2];
        println!("{} {median:.4}", path.file_stem().map_or("".into(), |s| s.to_string_lossy()));
    }
    let result = run(&module, None, &inputs, options()).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    result.iter().for_each(|v| write(v, &mut out));
    Ok(out)
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wide = args.iter().any(|a| a == "--f64");
    let at = args.iter().position(|a| a == "--time");
    let runs = at.and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(0);
    let accumulate = if wide { Accumulate::F64 } else { Accumulate::Plain };
    let Some(dir) = args.first() else {
        eprintln!("usage: run DIR [--f64] [--time N]");
        return Ok(());
    };
    let mut files: Vec<_> = std::fs::read_dir(dir)?.filter_map(|e| e.ok()).collect();
    files.sort_by_key(|f| f.path());
    for f in files.iter().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "hlo")) {
        match one(&f, accumulate, runs) {
            Ok(b) => std::fs::write(f.with_extension("out"), b)?,
            Err(e) => std::fs::write(f.with_extension("err"), e)?,
        }
    }
    Ok(())
}

//! Reads a file of tensors and writes it again in the format of the second
//! path's ending, so that others' readers can be tried on what is written.
//!
//! usage: `rewrite IN OUT [TYPE]`; TYPE is that of tensors whose file names
//! none. `OUT.npz` with `--deflate` as a last argument is compressed.

use scalify_ir::DType;
use scalify_tensors::{TensorRef, read_archive_with, write_archive, write_npz_deflated};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rest @ ..] = args.as_slice() else {
        return Err("usage: rewrite IN OUT [TYPE] [--deflate]".into());
    };
    let hint = rest.iter().find_map(|t| DType::from_name(t));
    let all = read_archive_with(from, &|_, _| hint)?;
    let bytes = all.iter().map(|t| t.1.bytes()).collect::<Result<Vec<_>, _>>()?;
    let tensors = all
        .iter()
        .zip(&bytes)
        .map(|((name, t), bytes)| (name, TensorRef { dtype: t.dtype(), dims: t.dims(), bytes }));
    if rest.iter().any(|r| r == "--deflate") {
        write_npz_deflated(to, tensors)?;
    } else {
        write_archive(to, tensors)?;
    }
    Ok(())
}

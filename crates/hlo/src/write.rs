//! placeholder
use scalify_ir::Module;
/// Options.
#[derive(Default)]
pub struct WriteOptions {}
/// Writes.
pub fn write(_m: &Module, _o: &WriteOptions) -> String {
    String::new()
}

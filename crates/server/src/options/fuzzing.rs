//! The file of options, as an entrance for fuzzers.
use super::{layers, options_file, table};

/// Reads a file of options with this text, and applies its options in their order, up to the first that is refused.
pub fn file(text: &str) {
    let Ok(found) = options_file::parse("options.toml", text) else { return };
    let mut typed = table::defaults();
    let _ = found.iter().try_for_each(|given| layers::set(&mut typed, given.option, &given.value));
}

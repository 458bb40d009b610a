//! What is known of the memory that a model holds.
//!
//! The library does not tell it. Measured with release 2026.4: the graph that was read holds the weights as the files have
//! them, and each compiled model has a copy in the layout of its operators, in FP32, from its first run on at the latest.
//! Intermediate results of runs come on top.
use std::{fs, path::Path};

use crate::ir_file;

/// Estimated bytes of the weights of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WeightBytes {
    /// Those of the graph that was read.
    graph: u64,
    /// Those of each compiled model.
    compiled: u64,
}

/// A SavedModel has its weights in a folder of its folder.
const MOST_DEPTH: usize = 3;

impl WeightBytes {
    /// The weights of the model in `file`. All files of its version count, because weights may be in other files than the
    /// graph. Blocks.
    pub(crate) fn of(file: &Path) -> Self {
        let graph = file.parent().map_or(0, |version| files_bytes(version, MOST_DEPTH));
        let is_ir = file.extension().is_some_and(|extension| extension == "xml");
        // A file without a graph has been refused before.
        let halves = is_ir.then(|| ir_file::read(file).ok()).flatten().map_or(0, |ir| ir.half_bytes);
        Self { graph, compiled: graph.saturating_add(halves) }
    }

    /// The bytes of the graph and that many compiled models.
    pub(crate) fn with_compiled(self, count: usize) -> u64 {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.graph.saturating_add(self.compiled.saturating_mul(count))
    }
}

fn files_bytes(directory: &Path, depth: usize) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match fs::metadata(entry.path()) {
        Ok(file) if file.is_file() => file.len(),
        Ok(folder) if folder.is_dir() && depth > 1 => files_bytes(&entry.path(), depth - 1),
        Ok(_) | Err(_) => 0,
    });
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_version_count_once_for_the_graph_and_once_for_each_compiled_model() {
        let version = tempfile::tempdir().unwrap();
        let folder = version.path().join("model.saved_model");
        fs::create_dir_all(folder.join("variables/deeper")).unwrap();
        for (name, size) in [("saved_model.pb", 10), ("variables/data", 1000), ("variables/deeper/data", 7)] {
            fs::write(folder.join(name), vec![0; size]).unwrap();
        }
        let weights = WeightBytes::of(&folder);
        assert_eq!([0, 1, 3].map(|count| weights.with_compiled(count)), [1010, 2020, 4040]);
    }

    #[test]
    fn halves_are_computed_as_floats() {
        let version = tempfile::tempdir().unwrap();
        let file = version.path().join("model.xml");
        let text = r#"<net><layers><layer id="0" type="Const"><data element_type="f16" size="30"/></layer>
            <layer id="1" type="Const"><data element_type="f32" size="8"/></layer></layers></net>"#;
        fs::write(&file, text).unwrap();
        fs::write(version.path().join("model.bin"), [0; 38]).unwrap();
        let graph = u64::try_from(text.len()).unwrap() + 38;
        assert_eq!(WeightBytes::of(&file).with_compiled(1), 2 * graph + 30);
    }
}

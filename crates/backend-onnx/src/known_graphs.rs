//! What was learnt of graphs when their configurations were completed.
//!
//! A session that is made only for this costs about as much as one of an instance. A model that is opened again, such as
//! one that is loaded on demand, needs none if its file is the same. Files from object stores, and those that came with a
//! load, are other files at each load.
use std::{
    collections::HashMap,
    mem,
    path::{Path, PathBuf},
};

use inference::lock::Mutex;
use native_backend::{GraphValue, Rows, Signature, ValueKind};
use vocabulary::FileIdentity;

/// At most so many graphs that were asked for lately are kept, and as many older ones.
const MOST_YOUNG: usize = 512;

/// What is known of a graph is not kept if it takes more. So all graphs together have 16 MiB at most.
const MOST_BYTES: usize = 16 << 10;

/// What a session has told of a graph.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownGraph {
    pub(crate) signature: Signature,
    /// Whether its rows are independent. `None` if that was not tried.
    pub(crate) rows: Option<Rows>,
}

impl KnownGraph {
    /// About how much memory this takes.
    fn bytes(&self) -> usize {
        let bytes_of = |slot: &GraphValue| {
            let dims = if let ValueKind::Tensor(_, dims) = &slot.kind { dims.len() } else { 0 };
            slot.name.len() + mem::size_of::<GraphValue>() + dims * mem::size_of::<i64>()
        };
        let Signature { inputs, overridable, outputs } = &self.signature;
        let why = if let Some(Rows::Mixed(why)) = &self.rows { why.len() } else { 0 };
        why + inputs.iter().chain(overridable).chain(outputs).map(bytes_of).sum::<usize>()
    }
}

type GraphsByPath = HashMap<PathBuf, (FileIdentity, KnownGraph)>;

/// Graphs by their files. When there are many, those that were not asked for are forgotten.
#[derive(Default)]
pub(crate) struct KnownGraphs {
    /// Those that were asked for since the last change of generations, and those that were so before.
    generations: Mutex<[GraphsByPath; 2]>,
}

impl KnownGraphs {
    /// The graph in this file, if it was kept and the file is still the same.
    pub(crate) fn get(&self, path: &Path, file: &FileIdentity) -> Option<KnownGraph> {
        let mut generations = self.generations.lock();
        let (path, found) = generations.iter_mut().find_map(|graphs| graphs.remove_entry(path))?;
        let graph = (found.0 == *file).then(|| found.1.clone());
        if graph.is_some() {
            enter(&mut generations, path, found);
        }
        graph
    }

    /// Keeps what is known of a graph. `file` was its file before it was read.
    pub(crate) fn put(&self, path: &Path, file: FileIdentity, graph: KnownGraph) {
        // A probe that could not run may run another time.
        let graph = KnownGraph { rows: graph.rows.filter(|rows| !matches!(rows, Rows::Unknown(_))), ..graph };
        if graph.bytes() <= MOST_BYTES {
            enter(&mut self.generations.lock(), path.to_owned(), (file, graph));
        }
    }
}

fn enter(generations: &mut [GraphsByPath; 2], path: PathBuf, graph: (FileIdentity, KnownGraph)) {
    let [young, old] = generations;
    if young.len() >= MOST_YOUNG && !young.contains_key(&path) {
        *old = mem::take(young);
    }
    young.insert(path, graph);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vocabulary::DataType;

    use super::*;
    use crate::ort::Element;

    fn identity(path: impl AsRef<Path>) -> FileIdentity {
        fs::metadata(path).unwrap().into()
    }

    fn graph(name: &str, rows: Option<Rows>) -> KnownGraph {
        let inputs = vec![GraphValue::tensor(name, Element::of(DataType::Fp32).into(), &[-1, 16])];
        KnownGraph { signature: Signature { inputs, ..Signature::default() }, rows }
    }

    #[test]
    fn a_graph_is_known_until_its_file_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.onnx");
        fs::write(&path, "one").unwrap();
        let (known, one) = (KnownGraphs::default(), identity(&path));
        assert_eq!(known.get(&path, &one), None);
        known.put(&path, one, graph("X", Some(Rows::Independent)));
        assert_eq!(known.get(&path, &one), Some(graph("X", Some(Rows::Independent))));
        fs::write(&path, "other").unwrap();
        assert_eq!(known.get(&path, &identity(&path)), None);
        assert_eq!(known.get(&path, &one), None, "the other file has replaced it");
    }

    #[test]
    fn what_could_not_be_tried_is_tried_again() {
        let (known, file) = (KnownGraphs::default(), identity("."));
        known.put(Path::new("a"), file, graph("X", Some(Rows::Unknown("no memory".into()))));
        assert_eq!(known.get(Path::new("a"), &file), Some(graph("X", None)));
    }

    #[test]
    fn memory_is_bounded_and_those_that_are_asked_for_stay() {
        let (known, file) = (KnownGraphs::default(), identity("."));
        known.put(Path::new("large"), file, graph(&"x".repeat(MOST_BYTES), None));
        assert_eq!(known.get(Path::new("large"), &file), None);
        let (wanted, unwanted) = (Path::new("wanted"), Path::new("unwanted"));
        [wanted, unwanted].into_iter().for_each(|path| known.put(path, file, graph("X", None)));
        for number in 0..3 * MOST_YOUNG {
            known.put(Path::new(&number.to_string()), file, graph("X", None));
            assert!(known.get(wanted, &file).is_some());
            assert!(known.generations.lock().iter().all(|graphs| graphs.len() <= MOST_YOUNG));
        }
        assert_eq!(known.get(unwanted, &file), None);
    }
}

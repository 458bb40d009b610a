//! The files that a graph's tensors are in, besides the graph's own file ("external data").
//!
//! ONNX Runtime maps such files into memory while a session lives: a program that writes to one would change the model
//! that is being served, or end the process. So the server reads them, once for all instances of a version.
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::{Component, Path},
    sync::Arc,
};

use vocabulary::Error;

use crate::{
    ort::{FileContent, FilesInMemory},
    wire::{WireContent, next_field, skip_to, varint},
};

/// Reads the files that the graph in `model` refers to. Files that are missing, or outside of the graph's directory, are
/// left to the runtime, which refuses them.
///
/// # Errors
/// INTERNAL for a file that cannot be read or has no room in memory, INVALID_ARG for one that is not a regular file.
pub(crate) fn read(model: &Path) -> Result<Arc<FilesInMemory>, Error> {
    let Some(directory) = model.parent() else { return Ok(Arc::default()) };
    let unreadable = |path: &Path, error: io::Error| {
        Error::internal(format!("unable to read '{}': {error}", path.display()))
    };
    let graph = File::open(model).map_err(|error| unreadable(model, error))?;
    let locations = locations(BufReader::new(graph)).map_err(|error| unreadable(model, error))?;
    let mut files = FilesInMemory::default();
    for location in locations {
        let path = directory.join(&location);
        if path.exists() && !path.is_file() && !path.is_dir() {
            return Err(Error::invalid(format!("'{}' is not a regular file", path.display())));
        }
        if !is_below(directory, &location) || !path.is_file() {
            continue;
        }
        let content = File::open(&path).and_then(|file| FileContent::read(&file));
        files.add(&location, content.map_err(|error| unreadable(&path, error))?);
    }
    Ok(Arc::new(files))
}

/// Whether the graph in `model` refers to other files. What is not a model refers to none. Blocks.
///
/// # Errors
/// The file cannot be read.
pub fn has_external_data(model: &Path) -> io::Result<bool> {
    locations(BufReader::new(File::open(model)?)).map(|locations| !locations.is_empty())
}

/// The files that the graph in `model` refers to and that are missing, or outside of the graph's directory.
pub(crate) fn missing(model: &Path) -> io::Result<Vec<String>> {
    let Some(directory) = model.parent() else { return Ok(Vec::new()) };
    let locations = locations(BufReader::new(File::open(model)?))?;
    let is_missing =
        |location: &String| !is_below(directory, location) || !directory.join(location).is_file();
    Ok(locations.into_iter().filter(is_missing).collect())
}

/// Whether a location is inside the directory, also if it is a link.
fn is_below(directory: &Path, location: &str) -> bool {
    let is_plain =
        Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let resolved = directory.canonicalize().ok().zip(directory.join(location).canonicalize().ok());
    is_plain && resolved.is_some_and(|(directory, file)| file.starts_with(directory))
}

/// The messages of the ONNX format that lead to tensors.
#[derive(Clone, Copy)]
enum MessageKind {
    Model,
    Graph,
    Node,
    Attribute,
    SparseTensor,
    Function,
    Tensor,
}

/// What a field of a message contains.
enum Content {
    Inner(MessageKind),
    /// A part of the description of where a tensor's data is.
    ExternalData,
    /// Nothing that leads to a tensor.
    Other,
}

impl MessageKind {
    /// What the field of this number contains.
    fn content(self, field: u64) -> Content {
        let message = match (self, field) {
            (Self::Model, 7) => Self::Graph,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::SparseTensor, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::SparseTensor,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Tensor, 13) => return Content::ExternalData,
            _ => return Content::Other,
        };
        Content::Inner(message)
    }
}

/// Messages inside each other that are read.
const MOST_LEVELS: usize = 100;

/// The longest entry of a description that is read.
const LONGEST_ENTRY: u64 = 64 * 1024;

/// The locations of the external data of a model, as its tensors name them. What is not a model has none; the runtime
/// refuses it. Reads little of a large file.
fn locations(mut model: BufReader<impl Read + Seek>) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    // The ends of the messages that are open, the innermost last.
    let mut open = vec![(MessageKind::Model, u64::MAX)];
    while let Some(&(message, end)) = open.last() {
        if model.stream_position()? >= end {
            open.pop();
            continue;
        }
        let Some(field) = next_field(&mut model, end)? else { break };
        let WireContent::Bytes { end: field_end } = field.content else { continue };
        match message.content(field.number) {
            Content::Inner(inner) if open.len() < MOST_LEVELS => open.push((inner, field_end)),
            Content::ExternalData if field_end - model.stream_position()? <= LONGEST_ENTRY => {
                let mut entry = Vec::new();
                let length = field_end - model.stream_position()?;
                Read::take(&mut model, length).read_to_end(&mut entry)?;
                found.extend(location(&entry));
            }
            Content::Inner(_) | Content::ExternalData | Content::Other => skip_to(&mut model, field_end)?,
        }
    }
    Ok(found)
}

/// The value of an entry whose key is `location`.
fn location(entry: &[u8]) -> Option<String> {
    let mut reader = BufReader::new(io::Cursor::new(entry));
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while let Some(field) = varint(&mut reader).ok()? {
        let length = varint(&mut reader).ok()??;
        let mut content = Vec::new();
        Read::take(&mut reader, length).read_to_end(&mut content).ok()?;
        match field {
            0x0a => key = content,
            0x12 => value = content,
            _ => return None,
        }
    }
    (key == b"location").then(|| String::from_utf8(value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        assert!(number < 16 && length < 1 << 14);
        let [low, high] = ((length & 0x7f) | 0x80 | (length >> 7) << 8).to_le_bytes();
        [&[number << 3 | 2, low, high], content].concat()
    }

    fn tensor(location: &str) -> Vec<u8> {
        let entry = |key: &str, value: &str| {
            field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
        };
        [field(9, b"raw data"), entry("location", location), entry("offset", "0")].concat()
    }

    fn found(model: &[u8]) -> Vec<String> {
        locations(BufReader::new(io::Cursor::new(model))).unwrap().into_iter().collect()
    }

    #[test]
    fn tensors_of_graphs_inside_each_other_are_found() {
        let inner = field(5, &tensor("inner"));
        let node = field(1, &field(5, &field(6, &inner)));
        let graph = [field(5, &tensor("b")), field(5, &tensor("a")), field(5, &tensor("b")), node].concat();
        let model = [vec![8, 9], field(2, b"producer"), field(7, &graph)].concat();
        assert_eq!(found(&model), ["a", "b", "inner"]);
    }

    #[test]
    fn what_is_no_model_ends_the_search() {
        for bytes in [&b""[..], b"not a model", &[0xff; 40], &[7 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]] {
            assert_eq!(found(bytes), [""; 0]);
        }
        let whole = field(7, &field(5, &tensor("a")));
        for length in 0..whole.len() {
            found(&whole[..length]);
        }
    }

    #[test]
    fn only_files_in_the_directory_of_the_graph_are_read() {
        let root = tempfile::tempdir().unwrap();
        let (secret, directory) = (root.path().join("secret"), root.path().join("1"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&secret, "x").unwrap();
        std::fs::write(directory.join("w"), "x").unwrap();
        std::os::unix::fs::symlink(&secret, directory.join("link")).unwrap();
        assert!(is_below(&directory, "w") && is_below(&directory, "./w"));
        for outside in ["link", "../secret", "missing", secret.to_str().unwrap()] {
            assert!(!is_below(&directory, outside), "{outside}");
        }
    }
}

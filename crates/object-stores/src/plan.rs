//! Which objects of a model are copied, to which paths, from which names. Pure: it reads no store and no file.

use std::collections::BTreeSet;
use std::sync::Arc;

use inference::repository::{ObjectKind, StoredObject};
use object_store::path::Path;
use vocabulary::Error;

use crate::cache::contents::ContentId;
use crate::url::{ObjectUrl, is_segment};

/// What a copy of a model consists of.
pub(crate) struct CopyPlan {
    /// Equal for equal models with equal contents.
    pub(crate) key: String,
    /// Relative paths, parents before children.
    pub(crate) directories: BTreeSet<String>,
    pub(crate) files: Vec<PlannedFile>,
}

/// One file of a copy.
#[derive(Clone)]
pub(crate) struct PlannedFile {
    pub(crate) object: Arc<StoredObject>,
    pub(crate) location: Path,
    pub(crate) content: ContentId,
}

impl CopyPlan {
    /// # Errors
    /// INVALID_ARGUMENT: the name of the model or of an object cannot be a path, or a path is a file and a directory.
    pub(crate) fn new(
        url: &ObjectUrl,
        model: &str,
        objects: &[StoredObject],
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let text = &url.text;
        if !is_segment(model) {
            return Err(Error::invalid(format!("'{text}': '{model}' is not the name of a directory")));
        }
        let mut directories = BTreeSet::new();
        let mut files = Vec::new();
        let mut hasher = blake3::Hasher::new();
        // Each text is preceded by its length, so that different lists are different bytes.
        let mut hash = |part: &str| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        };
        hash(text);
        hash(model);
        for object in objects.iter().filter(|object| wanted(&object.path)) {
            let path = object.path.as_str();
            if !path.split('/').all(is_segment) {
                return Err(Error::invalid(format!("'{text}/{model}': '{path}' is not the path of a file")));
            }
            directories.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
            hash(path);
            match object.kind {
                ObjectKind::Directory => {
                    directories.insert(path.to_owned());
                    hash("directory");
                }
                ObjectKind::File => {
                    let name = if url.prefix.is_empty() { String::new() } else { format!("{}/", url.prefix) };
                    let location = Path::parse(format!("{name}{model}/{path}")).map_err(|error| {
                        Error::invalid(format!(
                            "'{text}/{model}': '{path}' is not the path of a file: {error}"
                        ))
                    })?;
                    let content = ContentId::new(&format!("{text}/{model}/{path}"), object);
                    hash(content.as_str());
                    files.push(PlannedFile { object: Arc::new(object.clone()), location, content });
                }
            }
        }
        if let Some(file) = files.iter().find(|file| directories.contains(&file.object.path)) {
            return Err(Error::invalid(format!(
                "'{text}/{model}': '{}' is a file and a directory",
                file.object.path
            )));
        }
        Ok(Self { key: hasher.finalize().to_hex().to_string(), directories, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::{objects, tests::meta};

    fn plan(url: &str, listed: &[(&str, u64)], wanted: impl Fn(&str) -> bool) -> Result<CopyPlan, Error> {
        let metas: Vec<_> = listed.iter().map(|(path, size)| meta(path, *size)).collect();
        CopyPlan::new(&ObjectUrl::parse(url).unwrap(), "m", &objects("m", &metas), wanted)
    }

    const MODEL: &[(&str, u64)] =
        &[("m/config.pbtxt", 1), ("m/1/a/model.onnx", 2), ("m/2/model.onnx", 3), ("m/3", 0)];

    #[test]
    fn only_wanted_objects_are_planned_with_their_directories() {
        let plan = plan("s3://bucket/models", MODEL, |path| !path.starts_with("2/")).unwrap();
        let files: Vec<_> = plan.files.iter().map(|file| file.location.as_ref()).collect();
        assert_eq!(files, ["models/m/1/a/model.onnx", "models/m/config.pbtxt"]);
        assert_eq!(plan.directories.iter().collect::<Vec<_>>(), ["1", "1/a", "3"]);
    }

    #[test]
    fn equal_contents_have_one_key_and_others_have_another() {
        let key = |url, listed| plan(url, listed, |_| true).unwrap().key;
        assert_eq!(key("s3://bucket", MODEL), key("s3://bucket/", MODEL));
        assert_ne!(key("s3://bucket", MODEL), key("s3://bucket2", MODEL));
        assert_ne!(key("s3://bucket", MODEL), key("s3://bucket", &MODEL[..3]));
        assert_ne!(key("s3://bucket", &[("m/a", 1)]), key("s3://bucket", &[("m/a", 2)]));
    }

    #[test]
    fn a_path_that_is_a_file_and_a_directory_is_refused() {
        let error = plan("s3://b", &[("m/1", 5), ("m/1/model.onnx", 3)], |_| true).err().unwrap();
        assert_eq!(error, Error::invalid("'s3://b/m': '1' is a file and a directory"));
    }

    #[test]
    fn paths_that_leave_the_copy_are_refused() {
        let url = ObjectUrl::parse("s3://b").unwrap();
        let mut object = objects("m", &[meta("m/a", 1)]).remove(0);
        for path in ["../a", "a/../b", "/a", "a//b", "", "a/\0"] {
            object.path = path.into();
            let error = CopyPlan::new(&url, "m", std::slice::from_ref(&object), |_| true).err().unwrap();
            assert!(error.message.contains("is not the path of a file"), "{error}");
        }
        for model in ["..", "a/b", ""] {
            assert!(CopyPlan::new(&url, model, &[], |_| true).is_err(), "{model}");
        }
    }
}

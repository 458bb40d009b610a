//! What a listing of a store means: which models there are, and which objects each one has. Pure: it reads no store.

use std::collections::{BTreeMap, BTreeSet};

use inference::repository::{ObjectKind, StoredObject};
use object_store::ObjectMeta;

/// The objects of each model below the prefix, sorted by path. Objects directly below the prefix belong to no model. A
/// directory is a model if there is an object below it.
pub(crate) fn models(prefix: &str, listed: Vec<ObjectMeta>) -> BTreeMap<String, Vec<StoredObject>> {
    let mut models = BTreeMap::<String, Vec<StoredObject>>::new();
    for meta in listed {
        let Some(path) = below(prefix, meta.location.as_ref()) else { continue };
        if let Some((model, path)) = path.split_once('/') {
            let object = object(path, &meta);
            models.entry(model.to_owned()).or_default().push(object);
        }
    }
    for objects in models.values_mut() {
        finish(objects);
    }
    models
}

/// The objects below the prefix, which is a model.
pub(crate) fn objects(prefix: &str, listed: &[ObjectMeta]) -> Vec<StoredObject> {
    let below = listed.iter().filter_map(|meta| Some(object(below(prefix, meta.location.as_ref())?, meta)));
    let mut objects = below.collect();
    finish(&mut objects);
    objects
}

/// The etag without the quotes that some stores write, and only in some answers.
pub(crate) fn bare_etag(etag: &str) -> &str {
    let weak = etag.strip_prefix("W/").unwrap_or(etag);
    match weak.strip_prefix('"').and_then(|bare| bare.strip_suffix('"')) {
        Some(bare) if weak.len() == etag.len() => bare,
        // A weak tag keeps its mark: it does not promise the same bytes.
        _ => etag,
    }
}

fn below<'a>(prefix: &str, path: &'a str) -> Option<&'a str> {
    let path = if prefix.is_empty() { path } else { path.strip_prefix(prefix)?.strip_prefix('/')? };
    Some(path).filter(|path| !path.is_empty())
}

fn object(path: &str, meta: &ObjectMeta) -> StoredObject {
    StoredObject {
        path: path.to_owned(),
        kind: ObjectKind::File,
        byte_size: meta.size,
        etag: meta.e_tag.as_deref().map(|etag| bare_etag(etag).to_owned()),
        modified: meta.last_modified.into(),
    }
}

/// Sorts the objects and finds those that stand for directories.
fn finish(objects: &mut Vec<StoredObject>) {
    objects.sort_by(|left, right| left.path.cmp(&right.path));
    objects.dedup_by(|later, earlier| later.path == earlier.path);
    let mut directories = BTreeSet::new();
    for object in objects.iter() {
        let slashes = object.path.match_indices('/');
        directories.extend(slashes.map(|(end, _)| object.path[..end].to_owned()));
    }
    for object in objects {
        let is_number = object.path.bytes().all(|byte| byte.is_ascii_digit());
        if object.byte_size == 0 && (is_number || directories.contains(&object.path)) {
            object.kind = ObjectKind::Directory;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    pub(crate) fn meta(path: &str, size: u64) -> ObjectMeta {
        ObjectMeta {
            location: object_store::path::Path::parse(path).unwrap(),
            last_modified: (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).into(),
            size,
            e_tag: Some(format!("\"{size}\"")),
            version: None,
        }
    }

    fn paths(objects: &[StoredObject]) -> Vec<(&str, ObjectKind)> {
        objects.iter().map(|object| (object.path.as_str(), object.kind)).collect()
    }

    #[test]
    fn each_directory_below_the_prefix_is_a_model() {
        let listed = vec![
            meta("models/b/1/model.onnx", 7),
            meta("models/a/config.pbtxt", 3),
            meta("models/readme.md", 5),
            meta("models/a/1/model.onnx", 4),
        ];
        let models = models("models", listed);
        assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            paths(&models["a"]),
            [("1/model.onnx", ObjectKind::File), ("config.pbtxt", ObjectKind::File)]
        );
        assert_eq!(models["a"][1].byte_size, 3);
        assert_eq!(models["a"][1].etag.as_deref(), Some("3"));
    }

    #[test]
    fn a_whole_bucket_can_be_a_repository() {
        assert_eq!(models("", vec![meta("a/config.pbtxt", 1)]).keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_model_with_a_longer_name_is_another_model() {
        let listed = [meta("models/m/config.pbtxt", 1), meta("models/m2/config.pbtxt", 1)];
        assert_eq!(objects("models/m", &listed).len(), 1);
    }

    #[test]
    fn empty_objects_that_stand_for_directories_are_recognized() {
        let listed = vec![
            meta("m", 0),
            meta("m/1", 0),
            meta("m/2", 0),
            meta("m/2/model.onnx", 9),
            meta("m/2/folder", 0),
            meta("m/2/folder/x", 1),
            meta("m/__init__.py", 0),
        ];
        let models = models("", listed);
        assert_eq!(
            paths(&models["m"]),
            [
                ("1", ObjectKind::Directory),
                ("2", ObjectKind::Directory),
                ("2/folder", ObjectKind::Directory),
                ("2/folder/x", ObjectKind::File),
                ("2/model.onnx", ObjectKind::File),
                ("__init__.py", ObjectKind::File),
            ]
        );
    }

    #[test]
    fn an_object_that_stands_for_a_directory_is_no_model_by_itself() {
        assert!(models("models", vec![meta("models", 0), meta("models/m", 0)]).is_empty());
    }

    #[test]
    fn etags_are_compared_without_quotes_and_weak_ones_keep_their_mark() {
        assert_eq!(bare_etag("\"abc\""), "abc");
        assert_eq!(bare_etag("abc"), "abc");
        assert_eq!(bare_etag("W/\"abc\""), "W/\"abc\"");
        assert_eq!(bare_etag("\""), "\"");
    }
}

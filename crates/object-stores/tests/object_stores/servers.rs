//! Repositories in real servers: moto for S3, azurite for Azure Blob Storage. `cargo xtask integrations` installs both,
//! and runs these tests, which are ignored otherwise.
//!
//! `NEREID_TEST_MOTO` and `NEREID_TEST_AZURITE` are the paths of their programs.

mod azurite;
mod http_client;
mod moto;
mod process;

use std::fs;
use std::path::Path;

use object_stores::{CacheOptions, ObjectKind, ObjectStores, RemoteRepository};
use vocabulary::ErrorCode;

/// Writes and deletes objects in the bucket or container of a test.
trait Writer {
    fn put(&self, key: &str, content: &[u8]);
    fn delete(&self, key: &str);
}

/// Blanks, signs with a meaning in URLs, and letters beyond ASCII.
const ODD_NAME: &str = "labels & 100% größe+#1.txt";

fn stores(cache: &Path, variables: &[(&str, &str)]) -> ObjectStores {
    let options = CacheOptions { directory: cache.to_owned(), max_unused_bytes: 1 << 30 };
    let find = |name: &str| {
        let pair = variables.iter().find(|(key, _)| *key == name);
        pair.map(|(_, value)| (*value).to_owned())
    };
    ObjectStores::from_environment(&find, options).unwrap()
}

fn fill(writer: &dyn Writer) {
    writer.put("models/a/config.pbtxt", b"name: 'a'");
    writer.put("models/a/1/model.onnx", b"first");
    writer.put("models/a/2/model.onnx", b"second");
    writer.put(&format!("models/a/{ODD_NAME}"), b"odd");
    writer.put("models/a2/config.pbtxt", b"name: 'a2'");
    writer.put("models/empty/config.pbtxt", b"");
    writer.put("models/readme.md", b"not a model");
    writer.put("models2/c/config.pbtxt", b"another repository");
}

/// What each store must do, with objects from `fill` below the repository's URL, which ends with `models`.
async fn check_repository(repository: &RemoteRepository, writer: &dyn Writer) {
    repository.check().await.unwrap();
    let models = repository.list().await.unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "a2", "empty"]);
    let objects = &models["a"];
    let paths: Vec<_> = objects.iter().map(|object| object.path.as_str()).collect();
    assert_eq!(paths, ["1/model.onnx", "2/model.onnx", "config.pbtxt", ODD_NAME]);
    assert!(objects.iter().all(|object| object.kind == ObjectKind::File && object.etag.is_some()));
    assert_eq!(&repository.objects("a").await.unwrap(), objects);
    assert!(repository.objects("missing").await.unwrap().is_empty());

    let copy = repository.fetch("a", objects, |path| !path.starts_with("1/")).await.unwrap();
    assert_eq!(fs::read(copy.path().join("2/model.onnx")).unwrap(), b"second");
    assert_eq!(fs::read(copy.path().join(ODD_NAME)).unwrap(), b"odd");
    assert!(!copy.path().join("1").exists());

    writer.put("models/a/2/model.onnx", b"SECOND");
    writer.delete(&format!("models/a/{ODD_NAME}"));
    let error = repository.fetch("a", objects, |path| path == ODD_NAME || path.starts_with("1/")).await;
    assert!(error.is_ok(), "the content is in the cache: {error:?}");
    let newer = repository.objects("a").await.unwrap();
    assert_eq!(newer[0], objects[0], "an object that was not written is equal in both listings");
    assert_ne!(newer[1], objects[1], "an object of the same size with another content is not");
    assert_eq!(newer.len(), 3);
    let second = repository.fetch("a", &newer, |_| true).await.unwrap();
    assert_eq!(fs::read(second.path().join("2/model.onnx")).unwrap(), b"SECOND");
    assert_eq!(
        fs::read(copy.path().join("2/model.onnx")).unwrap(),
        b"second",
        "an older copy does not change"
    );

    writer.put("models/a/1/model.onnx", b"third");
    writer.put("models/a/3/model.onnx", b"gone");
    let listed = repository.objects("a").await.unwrap();
    writer.put("models/a/1/model.onnx", b"fourth");
    writer.delete("models/a/3/model.onnx");
    let error = repository.fetch("a", &listed, |path| path.starts_with("1/")).await.unwrap_err();
    assert!(
        error.message.ends_with("models/a/1/model.onnx' changed or was deleted while it was copied"),
        "{error}"
    );
    let error = repository.fetch("a", &listed, |path| path.starts_with("3/")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert!(
        error.message.ends_with("models/a/3/model.onnx' changed or was deleted while it was copied"),
        "{error}"
    );

    let empty = repository.fetch("empty", &models["empty"], |_| true).await.unwrap();
    assert_eq!(fs::read(empty.path().join("config.pbtxt")).unwrap(), b"");

    // More than two parts, the last one shorter.
    let long: Vec<u8> = (0..70_000_000_u32).map(|index| (index % 253) as u8).collect();
    writer.put("models/long/1/model.onnx", &long);
    let objects = repository.objects("long").await.unwrap();
    let copy = repository.fetch("long", &objects, |_| true).await.unwrap();
    assert!(fs::read(copy.path().join("1/model.onnx")).unwrap() == long);
}

/// A path of objects that does not exist, and the beginning of the name of one that does.
async fn check_missing(stores: &ObjectStores, url_of_bucket: &str) {
    for path in ["missing", "model"] {
        let url = format!("{url_of_bucket}/{path}");
        let repository = stores.repository(&url).await.unwrap();
        assert!(repository.list().await.unwrap().is_empty());
        let error = repository.check().await.unwrap_err();
        assert_eq!(error.message, format!("directory or file does not exist at {url}"));
    }
}

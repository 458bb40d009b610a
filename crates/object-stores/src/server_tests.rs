//! Repositories against a server of the tests: what is requested, and what happens if the server or the credential fails.

use std::fs;
use std::path::Path;
use std::time::Duration;

use inference::repository::StoredObject;
use object_store::{BackoffConfig, RetryConfig};
use vocabulary::ErrorCode;

use super::*;
use crate::failure;
use crate::test_server::{ServerFault, TestServer};

const MODELS: &[(&str, &[u8])] = &[
    ("models/a/config.pbtxt", b"name: 'a'"),
    ("models/a/1/model.onnx", b"first"),
    ("models/a/2/model.onnx", b"second"),
    ("models/b/1/model.onnx", b"other"),
    ("models/readme.md", b"text"),
];

fn stores(folder: &Path, variables: &[(&str, &str)]) -> ObjectStores {
    stores_with(folder, variables, RequestTimeouts::default())
}

/// Requests are repeated twice, and at once.
fn stores_with(folder: &Path, variables: &[(&str, &str)], timeouts: RequestTimeouts) -> ObjectStores {
    let millisecond = Duration::from_millis(1);
    let backoff = BackoffConfig { init_backoff: millisecond, max_backoff: millisecond, base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(60) };
    let cache = CacheOptions { directory: folder.join("cache"), max_unused_bytes: 1 << 20 };
    let find = |name: &str| {
        let pair = variables.iter().find(|(key, _)| *key == name);
        pair.map(|(_, value)| (*value).to_owned())
    };
    ObjectStores::new(&find, cache, timeouts, retry).unwrap()
}

const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "key-id"), ("AWS_SECRET_ACCESS_KEY", "secret-key")];

async fn s3(folder: &Path, server: &TestServer) -> RemoteRepository {
    let url = format!("s3://127.0.0.1:{}/bucket/models", server.port);
    stores(folder, &KEY).repository(&url).await.unwrap()
}

fn names(objects: &[StoredObject]) -> Vec<&str> {
    objects.iter().map(|object| object.path.as_str()).collect()
}

#[tokio::test]
async fn google_cloud_storage_is_listed_in_pages_and_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let key = folder.path().join("key.json");
    let content = format!(
        r#"{{"gcs_base_url": "http://127.0.0.1:{}", "disable_oauth": true, "client_email": "", "private_key": "",
            "private_key_id": ""}}"#,
        server.port
    );
    fs::write(&key, content).unwrap();
    let stores = stores(folder.path(), &[("GOOGLE_APPLICATION_CREDENTIALS", key.to_str().unwrap())]);
    let repository = stores.repository("gs://bucket/models").await.unwrap();
    repository.check().await.unwrap();
    let models = repository.list().await.unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(names(&models["a"]), ["1/model.onnx", "2/model.onnx", "config.pbtxt"]);
    assert_eq!(repository.objects("a").await.unwrap(), models["a"]);

    let copy = repository.fetch("a", &models["a"], |path| !path.starts_with("1/")).await.unwrap();
    assert_eq!(fs::read(copy.path().join("2/model.onnx")).unwrap(), b"second");
    assert_eq!(fs::read(copy.path().join("config.pbtxt")).unwrap(), b"name: 'a'");
    assert!(!copy.path().join("1").exists() && copy.path().ends_with("a"));
    assert!(server.requests("/bucket/models/a/1/").is_empty());
}

#[tokio::test]
async fn a_path_without_objects_and_a_missing_bucket_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let stores = stores(folder.path(), &KEY);
    // "model" is the beginning of "models", but not its directory.
    let url = format!("s3://127.0.0.1:{}/bucket/model", server.port);
    let repository = stores.repository(&url).await.unwrap();
    assert!(repository.list().await.unwrap().is_empty());
    let expected = Error::not_found(format!("directory or file does not exist at {url}"));
    assert_eq!(repository.check().await.unwrap_err(), expected);
    let url = format!("s3://127.0.0.1:{}/nobucket/model", server.port);
    let error = stores.repository(&url).await.unwrap().list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    assert!(error.message.contains(&url) && error.message.contains("NoSuchBucket"), "{error}");
}

#[tokio::test]
async fn equal_content_is_fetched_once_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let repository = s3(folder.path(), &server).await;
    let objects = repository.objects("a").await.unwrap();
    let (first, second) =
        tokio::join!(repository.fetch("a", &objects, |_| true), repository.fetch("a", &objects, |_| true),);
    let path = first.as_ref().unwrap().path().to_owned();
    assert_eq!(path, second.as_ref().unwrap().path());
    let part = repository.fetch("a", &objects, |path| path.starts_with("1/")).await.unwrap();
    assert_ne!(part.path(), path);
    assert_eq!(server.requests("/bucket/models").len(), 3);
    drop((repository, first, second, part));

    let repository = s3(folder.path(), &server).await;
    let copy = repository.fetch("a", &objects, |_| true).await.unwrap();
    assert_eq!(fs::read(copy.path().join("1/model.onnx")).unwrap(), b"first");
    assert_eq!(server.requests("/bucket/models").len(), 3);

    server.put("models/a/1/model.onnx", b"third");
    let changed = repository.objects("a").await.unwrap();
    assert_ne!(changed, objects);
    let newer = repository.fetch("a", &changed, |_| true).await.unwrap();
    assert_eq!(fs::read(newer.path().join("1/model.onnx")).unwrap(), b"third");
    assert_eq!(fs::read(copy.path().join("1/model.onnx")).unwrap(), b"first");
    assert_eq!(server.requests("/bucket/models").len(), 4);
}

#[tokio::test]
async fn a_long_object_is_fetched_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..(70 << 20_u32)).map(|index| (index % 251) as u8).collect();
    let server = TestServer::start(&[("models/a/1/model.onnx", &content)]).await;
    let repository = s3(folder.path(), &server).await;
    let objects = repository.objects("a").await.unwrap();
    let copy = repository.fetch("a", &objects, |_| true).await.unwrap();
    assert!(fs::read(copy.path().join("1/model.onnx")).unwrap() == content);
    assert_eq!(server.requests("bytes=").len(), 3);
}

#[tokio::test]
async fn a_connection_that_breaks_is_continued_where_it_broke() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let repository = s3(folder.path(), &server).await;
    let objects = repository.objects("a").await.unwrap();
    server.fail_with("/2/model.onnx", ServerFault::CutAfter(4));
    let copy = repository.fetch("a", &objects, |path| path.starts_with("2/")).await.unwrap();
    assert_eq!(fs::read(copy.path().join("2/model.onnx")).unwrap(), b"second");
    assert_eq!(server.requests("bytes=4-5").len(), 1);
}

#[tokio::test]
async fn a_server_that_fails_is_asked_a_limited_number_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let repository = s3(folder.path(), &server).await;
    server.fail_with("list-type=2", ServerFault::Status(503, "busy"));
    assert!(repository.list().await.is_ok(), "one failure is repeated");
    for _ in 0..3 {
        server.fail_with("list-type=2", ServerFault::Status(503, "busy"));
    }
    let error = repository.list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains(repository.url()) && error.message.contains("503"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_silent_or_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    // The server never answers, so any time-out will do.
    let response = Duration::from_millis(200);
    let timeouts = RequestTimeouts { response, ..RequestTimeouts::default() };
    let url = format!("s3://127.0.0.1:{}/bucket/models", server.port);
    let repository = stores_with(folder.path(), &KEY, timeouts).repository(&url).await.unwrap();
    for _ in 0..3 {
        server.fail_with("list-type=2", ServerFault::Silence);
    }
    let error = repository.list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("did not answer within 0.2 s"), "{error}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("s3://127.0.0.1:{free}/bucket");
    let error = stores(folder.path(), &KEY).repository(&url).await.unwrap().list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains(&url) && error.message.contains("cannot connect"), "{error}");
}

#[tokio::test]
async fn an_object_that_changes_while_it_is_copied_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let repository = s3(folder.path(), &server).await;
    let objects = repository.objects("a").await.unwrap();
    let name = format!("{}/a/1/model.onnx", repository.url());
    let fetch = || repository.fetch("a", &objects, |path| path.starts_with("1/"));
    for how in [ServerFault::OtherContent, ServerFault::LongerContent] {
        server.fail_with("/1/model.onnx", how);
        assert_eq!(fetch().await.unwrap_err(), failure::changed(&name));
    }
    server.put("models/a/1/model.onnx", b"third");
    assert_eq!(fetch().await.unwrap_err(), failure::changed(&name));
    assert_eq!(fs::read_dir(folder.path().join("cache/contents")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_refused_credential_is_read_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let file = folder.path().join("credentials.json");
    let write = |id: &str| {
        let content = format!(r#"{{"s3": {{"": {{"key_id": "{id}", "secret_key": "secret-key"}}}}}}"#);
        fs::write(&file, content).unwrap();
    };
    write("old-id");
    let stores = stores(folder.path(), &[("TRITON_CLOUD_CREDENTIAL_PATH", file.to_str().unwrap())]);
    let url = format!("s3://127.0.0.1:{}/bucket/models", server.port);
    let repository = stores.repository(&url).await.unwrap();
    write("new-id");
    let refusal =
        "<Error><Code>InvalidAccessKeyId</Code><Message>no key old-id, secret-key</Message></Error>";
    server.fail_with("list-type=2", ServerFault::Status(403, refusal));
    let objects = repository.objects("a").await.unwrap();
    assert_eq!(server.requests("old-id").len(), 1);
    assert!(!server.requests("new-id").is_empty());

    server.fail_with("/1/model.onnx", ServerFault::Status(403, refusal));
    repository.fetch("a", &objects, |path| path.starts_with("1/")).await.unwrap();

    for _ in 0..2 {
        server.fail_with("list-type=2", ServerFault::Status(403, refusal));
    }
    let error = repository.list().await.unwrap_err();
    assert!(
        error.message.starts_with(
            "Unable to create S3 filesystem client. Check account credentials. Exception: 'InvalidAccessKeyId'"
        ),
        "{error}"
    );
    assert!(error.message.contains(&url) && !error.message.contains("secret-key"), "{error}");
}

#[tokio::test]
async fn without_credentials_requests_are_anonymous() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let stores = stores(folder.path(), &[("AWS_EC2_METADATA_DISABLED", "true")]);
    let url = format!("s3://127.0.0.1:{}/bucket/models", server.port);
    let repository = stores.repository(&url).await.unwrap();
    assert_eq!(repository.list().await.unwrap().len(), 2);
    assert!(server.requests("list-type=2").iter().all(|request| request.ends_with("None")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_is_cancelled_leaves_no_session_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(MODELS).await;
    let repository = Arc::new(s3(folder.path(), &server).await);
    let objects = repository.objects("a").await.unwrap();
    server.fail_with("/1/model.onnx", ServerFault::Silence);
    let (task, listed) = (Arc::clone(&repository), objects.clone());
    let fetch = tokio::spawn(async move { task.fetch("a", &listed, |_| true).await.map(drop) });
    while server.requests("/bucket/models").len() < 3 {
        tokio::task::yield_now().await;
    }
    fetch.abort();
    assert!(fetch.await.unwrap_err().is_cancelled());
    let copy = repository.fetch("a", &objects, |_| true).await.unwrap();
    assert_eq!(fs::read(copy.path().join("1/model.onnx")).unwrap(), b"first");
    drop((repository, copy));
    // The end of the cache waits for nobody: background work holds the cache, and removes the session when it is done.
    let sessions = folder.path().join("cache/sessions");
    while fs::read_dir(&sessions).unwrap().next().is_some() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_copy_that_nobody_holds_is_removed_and_its_content_stays() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_repository, copy) = runtime.block_on(async {
        let server = TestServer::start(MODELS).await;
        let repository = s3(folder.path(), &server).await;
        let objects = repository.objects("a").await.unwrap();
        let copy = repository.fetch("a", &objects, |_| true).await.unwrap();
        (repository, copy)
    });
    let path = copy.path().to_owned();
    let clone = copy.clone();
    drop(copy);
    assert!(path.is_dir());
    drop(clone);
    assert!(!path.exists());
    assert_eq!(fs::read_dir(folder.path().join("cache/contents")).unwrap().count(), 3);
}

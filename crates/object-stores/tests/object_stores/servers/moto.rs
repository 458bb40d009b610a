//! S3, as moto's server implements it.

use std::fs;

use object_stores::ObjectKind;
use vocabulary::ErrorCode;

use super::http_client::{encoded, send};
use super::process::{StoreServer, program};
use super::{Writer, check_missing, check_repository, fill, stores};

const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "test-id"), ("AWS_SECRET_ACCESS_KEY", "test-secret")];

/// moto wants a signature, but does not check it.
const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=test-id/20231114/us-east-1/s3/aws4_request, SignedHeaders=host, \
    Signature=0";

/// A server with an empty bucket.
struct Moto(StoreServer);

impl Moto {
    fn start() -> Self {
        let server = StoreServer::start(program("NEREID_TEST_MOTO"), |command, port| {
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            // Pages are short, so that listings have several.
            command.env("MOTO_S3_DEFAULT_MAX_KEYS", "3");
        });
        let moto = Self(server);
        moto.send("PUT", "", b"");
        moto
    }

    fn send(&self, method: &str, key: &str, body: &[u8]) {
        let target = format!("/bucket/{}", encoded(key));
        send(self.0.port, method, &target, &[("Authorization", SIGNATURE.into())], body);
    }

    fn url(&self) -> String {
        format!("s3://http://127.0.0.1:{}/bucket", self.0.port)
    }
}

impl Writer for Moto {
    fn put(&self, key: &str, content: &[u8]) {
        self.send("PUT", key, content);
    }

    fn delete(&self, key: &str) {
        self.send("DELETE", key, b"");
    }
}

#[tokio::test]
#[ignore = "needs moto: `cargo xtask integrations` runs it"]
async fn a_repository_in_s3_is_listed_and_copied() {
    let moto = Moto::start();
    fill(&moto);
    let cache = tempfile::tempdir().unwrap();
    let stores = stores(cache.path(), &KEY);
    let repository = stores.repository(&format!("{}/models", moto.url())).await.unwrap();
    check_repository(&repository, &moto).await;
    check_missing(&stores, &moto.url()).await;
}

#[tokio::test]
#[ignore = "needs moto: `cargo xtask integrations` runs it"]
async fn empty_objects_with_a_slash_at_the_end_are_directories() {
    let moto = Moto::start();
    for key in ["models/", "models/ensemble/", "models/ensemble/1/", "models/empty/"] {
        moto.put(key, b"");
    }
    moto.put("models/ensemble/config.pbtxt", b"platform: 'ensemble'");
    let cache = tempfile::tempdir().unwrap();
    let repository = stores(cache.path(), &KEY).repository(&format!("{}/models", moto.url())).await.unwrap();
    let models = repository.list().await.unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["ensemble"]);
    let kinds: Vec<_> = models["ensemble"].iter().map(|object| (object.path.as_str(), object.kind)).collect();
    assert_eq!(kinds, [("1", ObjectKind::Directory), ("config.pbtxt", ObjectKind::File)]);
    let copy = repository.fetch("ensemble", &models["ensemble"], |_| true).await.unwrap();
    assert!(copy.path().join("1").is_dir());
}

#[tokio::test]
#[ignore = "needs moto: `cargo xtask integrations` runs it"]
async fn a_bucket_that_does_not_exist_is_named() {
    let moto = Moto::start();
    let cache = tempfile::tempdir().unwrap();
    let url = format!("s3://127.0.0.1:{}/missing/models", moto.0.port);
    let repository = stores(cache.path(), &KEY).repository(&url).await.unwrap();
    let error = repository.list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.message.contains(&url) && error.message.contains("NoSuchBucket"), "{error}");
}

#[tokio::test]
#[ignore = "needs moto: `cargo xtask integrations` runs it"]
async fn the_credential_file_and_a_profile_give_the_key() {
    let moto = Moto::start();
    fill(&moto);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".aws")).unwrap();
    let keys = "[models]\naws_access_key_id = test-id\naws_secret_access_key = test-secret\n";
    fs::write(folder.path().join(".aws/credentials"), keys).unwrap();
    let file = folder.path().join("credentials.json");
    let url = moto.url();
    fs::write(&file, format!(r#"{{"s3": {{"{url}/": {{"profile": "models"}}, "s3://other": {{}}}}}}"#))
        .unwrap();
    let variables =
        [("HOME", folder.path().to_str().unwrap()), ("TRITON_CLOUD_CREDENTIAL_PATH", file.to_str().unwrap())];
    let stores = stores(&folder.path().join("cache"), &variables);
    let repository = stores.repository(&format!("{url}/models")).await.unwrap();
    assert_eq!(repository.list().await.unwrap().len(), 3);
    let error = stores.repository("s3://elsewhere/models").await.err().unwrap();
    assert_eq!(error.message, "Cannot match credential for path  s3://elsewhere/models");
}

/// Certificates for `localhost`, and the one that signed them.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../frontend/src/port/tls/test_files");

#[tokio::test]
#[ignore = "needs moto: `cargo xtask integrations` runs it"]
async fn a_server_is_reached_over_https_if_its_certificate_is_trusted() {
    let server = StoreServer::start(program("NEREID_TEST_MOTO"), |command, port| {
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.args(["-s", "-c", &format!("{TLS}/server.pem"), "-k", &format!("{TLS}/server.key")]);
    });
    let cache = tempfile::tempdir().unwrap();
    let url = format!("s3://https://localhost:{}/missing", server.port);
    let bundle = format!("{TLS}/root.pem");
    let trusting = stores(cache.path(), &[KEY[0], KEY[1], ("AWS_CA_BUNDLE", &bundle)]);
    let error = trusting.repository(&url).await.unwrap().list().await.unwrap_err();
    assert!(error.message.contains("NoSuchBucket"), "{error}");
    let error = stores(cache.path(), &KEY).repository(&url).await.unwrap().list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("UnknownIssuer"), "{error}");
}

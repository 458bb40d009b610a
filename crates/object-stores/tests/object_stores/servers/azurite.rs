//! Azure Blob Storage, as azurite implements it. It checks signatures, so the test signs what it writes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use tempfile::TempDir;
use vocabulary::ErrorCode;

use super::http_client::{encoded, send};
use super::process::{StoreServer, program};
use super::{Writer, check_missing, check_repository, fill, stores};

const ACCOUNT: &str = "testaccount";
const KEY: &str = "dGhlIGtleSBvZiB0aGUgdGVzdA==";
const OTHER_KEY: &str = "YW5vdGhlciBrZXksIHdoaWNoIGlzIHdyb25n";

/// A server with an empty container.
struct Azurite {
    server: StoreServer,
    _folder: TempDir,
}

impl Azurite {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = StoreServer::start(program("NEREID_TEST_AZURITE"), |command, port| {
            command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--location"]);
            command.arg(folder.path()).args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
            command.env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}")).current_dir(folder.path());
        });
        let azurite = Self { server, _folder: folder };
        azurite.send("PUT", "container?restype=container", &[], b"");
        azurite
    }

    fn url(&self) -> String {
        format!("as://http://127.0.0.1:{}/{ACCOUNT}/container", self.server.port)
    }

    /// Sends a request with a shared key. `headers` begin with `x-ms-` and are sorted.
    fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = format!("/{ACCOUNT}/{}", encoded(path));
        let mut headers = headers.to_vec();
        headers.extend([("x-ms-date", "Tue, 14 Nov 2023 22:13:20 GMT"), ("x-ms-version", "2021-12-02")]);
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let length = if body.is_empty() { String::new() } else { body.len().to_string() };
        let parameters: String = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .fold(String::new(), |text, (name, value)| text + "\n" + name + ":" + value);
        // Verb, encoding, language, length, MD5, type, date, four conditions, range.
        let signed = format!("{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{lines}/{ACCOUNT}{path}{parameters}");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
        let signature = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
        let mut all: Vec<(&str, String)> =
            headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        all.push(("Authorization", format!("SharedKey {ACCOUNT}:{signature}")));
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        send(self.server.port, method, &target, &all, body);
    }
}

impl Writer for Azurite {
    fn put(&self, key: &str, content: &[u8]) {
        self.send("PUT", &format!("container/{key}"), &[("x-ms-blob-type", "BlockBlob")], content);
    }

    fn delete(&self, key: &str) {
        self.send("DELETE", &format!("container/{key}"), &[], b"");
    }
}

#[tokio::test]
#[ignore = "needs azurite: `cargo xtask integrations` runs it"]
async fn a_repository_in_azure_is_listed_and_copied() {
    let azurite = Azurite::start();
    fill(&azurite);
    let cache = tempfile::tempdir().unwrap();
    let stores = stores(cache.path(), &[("AZURE_STORAGE_KEY", KEY)]);
    let repository = stores.repository(&format!("{}/models", azurite.url())).await.unwrap();
    check_repository(&repository, &azurite).await;
    check_missing(&stores, &azurite.url()).await;
}

#[tokio::test]
#[ignore = "needs azurite: `cargo xtask integrations` runs it"]
async fn a_wrong_key_is_refused_and_not_shown() {
    let azurite = Azurite::start();
    let cache = tempfile::tempdir().unwrap();
    let stores = stores(cache.path(), &[("AZURE_STORAGE_KEY", OTHER_KEY)]);
    let url = azurite.url();
    let error = stores.repository(&url).await.unwrap().list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(
        error.message.starts_with(&format!("cannot read '{url}': check the account's credentials")),
        "{error}"
    );
    assert!(!error.message.contains(OTHER_KEY), "{error}");
}

#[tokio::test]
#[ignore = "needs azurite: `cargo xtask integrations` runs it"]
async fn a_container_that_does_not_exist_is_named() {
    let azurite = Azurite::start();
    let cache = tempfile::tempdir().unwrap();
    // As Triton: the account of the credential is used instead of the account in the URL.
    let stores = stores(cache.path(), &[("AZURE_STORAGE_KEY", KEY), ("AZURE_STORAGE_ACCOUNT", ACCOUNT)]);
    let url = format!("as://http://127.0.0.1:{}/anotheraccount/missing", azurite.server.port);
    let error = stores.repository(&url).await.unwrap().list().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    assert!(error.message.contains(&url) && error.message.contains("ContainerNotFound"), "{error}");
}

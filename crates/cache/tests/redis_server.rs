//! The cache `redis` against a real store: what only the store does. `NEREID_TEST_REDIS_SERVER` is its program; without
//! the variable, it is the `redis-server` of the system. More is in `tests/clients/test_redis_cache.py`.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]
use std::{
    collections::BTreeMap,
    env,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use cache::redis::RedisResponseCache;
use inference::{
    Response,
    cache::{ResponseCache, StorageRules},
};
use tempfile::TempDir;
use testing::{TestProcess, command, eventually};
use tokio::runtime::{Builder, Runtime};
use vocabulary::{DataType, Tensor};

/// A running store and a cache that uses it.
struct StoreProcess {
    _process: TestProcess,
    _folder: TempDir,
    cache: RedisResponseCache,
    runtime: Runtime,
}

/// The program of the store.
fn program() -> PathBuf {
    let named = env::var_os("NEREID_TEST_REDIS_SERVER").map(PathBuf::from);
    let places = env::var_os("PATH").unwrap_or_default();
    let found =
        || env::split_paths(&places).map(|place| place.join("redis-server")).find(|path| path.is_file());
    named.or_else(found).expect(
        "NEREID_TEST_REDIS_SERVER does not name the program of a store, and the system has no 'redis-server': \
         'cargo xtask test' sets the variable",
    )
}

impl StoreProcess {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(program());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]);
        let process = TestProcess::start(command.arg(folder.path()).stdout(Stdio::null())).unwrap();
        eventually("the store to start", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let settings = [("host", "127.0.0.1"), ("port", &port.to_string()), ("socket_timeout", "60000")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let cache = RedisResponseCache::open(&BTreeMap::from(settings)).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        Self { _process: process, _folder: folder, cache, runtime }
    }

    fn insert(&self, key: &str, lifetime: Option<Duration>) {
        let output = Tensor::new("OUT".into(), DataType::Uint8, [1][..].into(), vec![1]);
        let response = Response { outputs: vec![output], parameters: Vec::new() };
        let answer = Arc::new(response.into());
        let terms = StorageRules { lifetime, replaces: false };
        self.runtime.block_on(self.cache.insert(key, answer, terms)).unwrap();
    }

    fn has(&self, key: &str) -> bool {
        self.runtime.block_on(self.cache.look_up(key)).unwrap().is_some()
    }

    fn remove_all(&self, prefix: &str) -> u64 {
        self.runtime.block_on(self.cache.remove_all(prefix)).unwrap()
    }
}

#[test]
fn all_entries_with_a_prefix_are_removed_and_no_others() {
    let store = StoreProcess::start();
    // More than one step of the store.
    for number in 0..3000 {
        store.insert(&format!("model[1]/{number}"), None);
    }
    let others = ["model1/0", "model[2]/0", "other"];
    others.iter().for_each(|key| store.insert(key, None));
    assert_eq!(store.remove_all("model[1]/"), 3000);
    assert!(!store.has("model[1]/0") && !store.has("model[1]/2999"));
    assert!(others.iter().all(|key| store.has(key)));
    assert_eq!(store.remove_all("model[1]/"), 0);
    for (number, special) in ["*", "?", "[a-c]", "\\", "a^b", "ü "].into_iter().enumerate() {
        store.insert(&format!("{special}/key"), None);
        assert_eq!(store.remove_all(&format!("{special}/")), 1, "{number}: {special}");
    }
    assert_eq!(store.remove_all(""), 3);
    let secret = store.cache.secret().unwrap();
    assert_ne!(secret, [0; 32]);
    assert!(!others.iter().any(|key| store.has(key)));
}

#[test]
fn an_entry_is_found_until_its_lifetime_ends() {
    let store = StoreProcess::start();
    store.insert("short", Some(Duration::from_millis(20)));
    store.insert("long", Some(Duration::from_secs(3600)));
    eventually("the end of the entry", || !store.has("short"));
    assert!(store.has("long"));
}

//! The cache `redis` against a real store: what only the store does. `NEREID_TEST_REDIS_SERVER` is its program. Without
//! it, the tests say so and pass. More is in `tests/clients/test_redis_cache.py`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "what supports tests is part of them")]
use std::{
    collections::BTreeMap,
    env,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use inference::{
    DataType, Response, Tensor,
    cache::{ResponseCache, StorageTerms},
};
use nereid_cache::redis::RedisResponseCache;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// A running store and a cache that uses it.
struct StoreProcess {
    process: Child,
    _folder: TempDir,
    cache: RedisResponseCache,
    runtime: Runtime,
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl StoreProcess {
    /// `None` without the program.
    fn start() -> Option<Self> {
        let Some(program) = env::var_os("NEREID_TEST_REDIS_SERVER") else {
            println!("skipped: NEREID_TEST_REDIS_SERVER does not name the program of a store");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]);
        let process = command.arg(folder.path()).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the store does not start");
            sleep(Duration::from_millis(5));
        }
        let settings = [("host", "127.0.0.1"), ("port", &port.to_string()), ("socket_timeout", "20000")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let cache = RedisResponseCache::open(&BTreeMap::from(settings)).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        Some(Self { process, _folder: folder, cache, runtime })
    }

    fn insert(&self, key: &str, lifetime: Option<Duration>) {
        let output = Tensor::new("OUT".into(), DataType::Uint8, [1][..].into(), vec![1]);
        let response = Response { outputs: vec![output], parameters: Vec::new() };
        let answer = Arc::new(response.into());
        let terms = StorageTerms { lifetime, replaces: false };
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
    let Some(store) = StoreProcess::start() else { return };
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
    let Some(store) = StoreProcess::start() else { return };
    store.insert("short", Some(Duration::from_millis(20)));
    store.insert("long", Some(Duration::from_secs(3600)));
    let begun = Instant::now();
    while store.has("short") {
        assert!(begun.elapsed() < Duration::from_secs(60), "the entry does not expire");
        sleep(Duration::from_millis(2));
    }
    assert!(store.has("long"));
}

//! The cache against a store in the test process, which may misbehave. A real store is in `tests/redis_server.rs`.
use std::{
    pin::pin,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use inference::Response;
use testing::eventually;
use vocabulary::{DataType, ErrorCode, Parameter, Tensor};

use super::*;
use crate::redis::{breaker::ConnectionFailure, fake_store::FakeStore};

/// The limits of operations and connections in milliseconds: longer than anything takes that works.
const LONG_LIMIT: &str = "60000";
/// The limit of operations on a store that hangs.
const BRIEF_LIMIT: Duration = Duration::from_millis(100);

fn answer(data: Vec<u8>) -> Arc<CachedAnswer> {
    let shape = [i64::try_from(data.len()).unwrap()];
    let response = Response {
        outputs: vec![Tensor::new("OUT".into(), DataType::Uint8, shape[..].into(), data)],
        parameters: vec![("p".into(), Parameter::Int(7))],
    };
    Arc::new(response.into())
}

const FOREVER: StorageRules = StorageRules { lifetime: None, replaces: false };

fn settings(store: &FakeStore, more: &[(&str, &str)]) -> RedisSettings {
    let port = store.port.to_string();
    let limits = [("socket_timeout", LONG_LIMIT), ("connect_timeout", LONG_LIMIT)];
    let pairs = [[("host", "127.0.0.1"), ("port", &port)], limits].concat();
    let all = pairs.iter().chain(more).map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    RedisSettings::parse(&all, |_| None).unwrap()
}

fn open(store: &FakeStore) -> RedisResponseCache {
    open_with(store, &[], OperationLimits::DEFAULT).unwrap()
}

fn open_with(
    store: &FakeStore,
    more: &[(&str, &str)],
    limits: OperationLimits,
) -> Result<RedisResponseCache, Error> {
    RedisResponseCache::with_limits(settings(store, more), limits)
}

/// For a store that will hang: operations end after [`BRIEF_LIMIT`].
fn open_briefly(store: &FakeStore) -> RedisResponseCache {
    let limit = BRIEF_LIMIT.as_millis().to_string();
    open_with(store, &[("socket_timeout", &limit)], OperationLimits::DEFAULT).unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls on this thread, which has no runtime, as the thread of an instance.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn look_up(cache: &RedisResponseCache, key: &str) -> Option<CachedAnswer> {
    wait(cache.look_up(key)).unwrap()
}

fn insert(cache: &RedisResponseCache, key: &str, data: &[u8]) {
    wait(cache.insert(key, answer(data.to_vec()), FOREVER)).unwrap();
}

fn data(answer: &CachedAnswer) -> Bytes {
    answer.responses[0].outputs[0].host().unwrap().contiguous()
}

fn failures(cache: &RedisResponseCache, operation: CacheOperation, reason: OperationFailureReason) -> u64 {
    cache.store.counts.failures(operation, reason)
}

/// Whether the metrics contain this line.
fn has(cache: &RedisResponseCache, line: &str) -> bool {
    let mut text = MetricsText::default();
    cache.append_to(&mut text);
    let text = text.finish();
    text.lines().any(|found| found == line)
}

/// As if an operation had timed out.
fn time_out(cache: &RedisResponseCache) {
    let (generation, _) = cache.store.connection().unwrap();
    cache.store.failed(generation, ConnectionFailure::TimedOut, None);
}

/// Makes the store hang until the breaker is open.
fn hang(store: &FakeStore, cache: &RedisResponseCache) {
    store.hang(true);
    for _ in 0..3 {
        assert!(look_up(cache, "any").is_none());
    }
    assert!(!cache.store.is_available());
}

#[test]
fn responses_of_all_sizes_are_found_as_they_were_inserted() {
    let store = FakeStore::start();
    let cache = open(&store);
    for len in [0, 1, BRIEF_BYTES - 1000, BRIEF_BYTES + 1, 5 << 20] {
        let bytes: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
        assert!(look_up(&cache, &format!("key {len}")).is_none());
        insert(&cache, &format!("key {len}"), &bytes);
        let found = look_up(&cache, &format!("key {len}")).unwrap();
        assert!(data(&found) == bytes, "{len} bytes");
        assert_eq!(found.responses[0].parameters, answer(bytes).responses[0].parameters);
    }
    assert!(has(&cache, "nv_cache_num_hits 5") && has(&cache, "nv_cache_num_misses 5"));
    assert!(has(&cache, "nv_cache_num_lookups 10") && has(&cache, "nereid_cache_available 1"));
    assert_eq!(cache.name(), "redis");
}

#[test]
fn a_later_insertion_replaces_an_earlier_one() {
    let store = FakeStore::start();
    let cache = open(&store);
    for value in [b"first", b"other"] {
        insert(&cache, "key", value);
        assert_eq!(&data(&look_up(&cache, "key").unwrap())[..], value);
    }
}

#[test]
fn with_a_key_only_responses_of_servers_with_that_key_are_found() {
    let (store, folder) = (FakeStore::start(), tempfile::tempdir().unwrap());
    let keyed = |byte: u8| {
        let path = folder.path().join(byte.to_string());
        std::fs::write(&path, [byte; 32]).unwrap();
        let more = [("checksum_key_file", path.to_str().unwrap())];
        open_with(&store, &more, OperationLimits::DEFAULT).unwrap()
    };
    let (first, same, other, without) = (keyed(1), keyed(1), keyed(2), open(&store));
    // A brief response and one that another thread checks.
    for len in [10, 2 * BRIEF_BYTES] {
        insert(&first, "key", &vec![7; len]);
        assert_eq!(data(&look_up(&same, "key").unwrap()).len(), len);
        assert!(look_up(&other, "key").is_none() && look_up(&without, "key").is_none());
        insert(&without, "key", &vec![7; len]);
        assert!(look_up(&first, "key").is_none() && look_up(&without, "key").is_some());
    }
    assert_eq!(failures(&other, CacheOperation::LookUp, OperationFailureReason::Unreadable), 2);
    let error = open_with(&store, &[("checksum_key_file", "none")], OperationLimits::DEFAULT).err().unwrap();
    assert!(error.message.contains("'checksum_key_file' 'none' cannot be used: "), "{error}");
}

#[test]
fn two_servers_share_responses_and_their_secret_and_a_new_one_finds_both() {
    let store = FakeStore::start();
    let (one, other) = (open(&store), open(&store));
    insert(&one, "key", b"shared");
    assert_eq!(&data(&look_up(&other, "key").unwrap())[..], b"shared");
    assert_eq!(one.store.secret(), other.store.secret());
    assert_ne!(one.store.secret(), [0; 32]);
    let secret = one.store.secret();
    drop((one, other));
    let later = open(&store);
    assert_eq!(later.store.secret(), secret);
    assert_eq!(&data(&look_up(&later, "key").unwrap())[..], b"shared");
    assert_ne!(open(&FakeStore::start()).store.secret(), secret, "another store has another secret");
}

#[test]
fn a_store_that_hangs_costs_each_request_at_most_the_limit_and_later_nothing() {
    let store = FakeStore::start();
    insert(&open(&store), "key", b"kept");
    let cache = open_briefly(&store);
    store.hang(true);
    for number in 0..3 {
        assert!(cache.store.is_available(), "before look-up {number}");
        let begun = Instant::now();
        assert!(look_up(&cache, "key").is_none());
        assert!(begun.elapsed() >= BRIEF_LIMIT);
    }
    assert!(has(&cache, "nereid_cache_available 0"));
    // Without a wait: the first poll is ready.
    assert!(now_or_never(cache.look_up("key")).unwrap().unwrap().is_none());
    now_or_never(cache.insert("key", answer(vec![1]), FOREVER)).unwrap().unwrap();
    let count = |operation, reason| failures(&cache, operation, reason);
    assert_eq!(count(CacheOperation::LookUp, OperationFailureReason::Timeout), 3);
    assert_eq!(count(CacheOperation::LookUp, OperationFailureReason::Away), 1);
    assert_eq!(count(CacheOperation::Insertion, OperationFailureReason::Away), 1);
    store.hang(false);
    eventually("the store to be used again", || {
        look_up(&cache, "key").is_some_and(|found| &data(&found)[..] == b"kept")
    });
}

#[test]
fn replies_between_time_outs_keep_the_store_in_use() {
    let store = FakeStore::start();
    let cache = open(&store);
    insert(&cache, "key", b"kept");
    for _ in 0..2 {
        for _ in 0..2 {
            time_out(&cache);
        }
        assert!(look_up(&cache, "key").is_some());
    }
    assert!(cache.store.is_available());
}

#[test]
fn operations_take_the_connections_in_turn() {
    let store = FakeStore::start();
    let cache = open_with(&store, &[("pool_size", "3")], OperationLimits::DEFAULT).unwrap();
    for _ in 0..3 {
        insert(&cache, "key", b"x");
    }
    assert_eq!(store.count_connections("PING"), 3);
    // One of them has also set the secret.
    assert_eq!((store.count("SET"), store.count_connections("SET")), (4, 3));
}

#[test]
fn operations_that_wait_for_a_lost_connection_end_at_once() {
    let store = FakeStore::start();
    let cache = open(&store);
    store.hang(true);
    let before = store.count("GET");
    let waiting = cache.look_up("key");
    eventually("the look-up to wait", || store.count("GET") > before);
    store.cut();
    assert!(wait(waiting).unwrap().is_none());
    // It is no time-out: the look-up has ended for the lost connection.
    assert_eq!(failures(&cache, CacheOperation::LookUp, OperationFailureReason::Connection), 1);
    store.hang(false);
}

#[test]
fn operations_that_wait_when_the_breaker_opens_end_with_it() {
    let store = FakeStore::start();
    let cache = open(&store);
    store.hang(true);
    let before = store.count("GET");
    let waiting = cache.look_up("key");
    eventually("the look-up to wait", || store.count("GET") > before);
    (0..3).for_each(|_| time_out(&cache));
    assert!(wait(waiting).unwrap().is_none());
    assert!(!cache.store.is_available());
    assert_eq!(failures(&cache, CacheOperation::LookUp, OperationFailureReason::Connection), 1);
    store.hang(false);
}

#[test]
fn lost_connections_are_made_again() {
    let store = FakeStore::start();
    let cache = open_with(&store, &[("pool_size", "3")], OperationLimits::DEFAULT).unwrap();
    assert_eq!(store.open_connections(), 3);
    insert(&cache, "key", b"kept");
    store.close(true);
    store.cut();
    // The first operation finds it out, unless the connection did.
    assert!(look_up(&cache, "key").is_none());
    eventually("a failed probe", || !cache.store.is_available());
    assert!(look_up(&cache, "key").is_none());
    store.close(false);
    eventually("new connections", || cache.store.is_available());
    assert_eq!(&data(&look_up(&cache, "key").unwrap())[..], b"kept");
    eventually("three connections", || store.open_connections() == 3);
}

#[test]
fn a_secret_that_the_store_has_lost_is_set_again() {
    let store = FakeStore::start();
    let cache = open_briefly(&store);
    let secret = cache.store.secret();
    hang(&store, &cache);
    store.put("nereid:secret", None);
    store.hang(false);
    eventually("the store to be back", || cache.store.is_available());
    assert_eq!(store.get("nereid:secret").as_deref(), Some(&secret[..]));
    assert_eq!(cache.store.secret(), secret);
}

#[test]
fn the_secret_of_another_server_is_adopted_if_the_store_has_lost_the_own_one() {
    let store = FakeStore::start();
    let cache = open_briefly(&store);
    hang(&store, &cache);
    store.put("nereid:secret", Some(&[9; 32]));
    store.hang(false);
    eventually("the store to be back", || cache.store.is_available());
    assert_eq!(cache.store.secret(), [9; 32]);
}

#[test]
fn the_secret_is_kept_and_lost_connections_are_found_although_there_are_no_requests() {
    let store = FakeStore::start();
    let cache = open(&store);
    let supervision = cache.store.clone().supervise(Duration::from_millis(20));
    let supervision = cache.runtime.handle().spawn(supervision);
    store.put("nereid:secret", None);
    eventually("the secret", || store.get("nereid:secret").as_deref() == Some(&cache.store.secret()[..]));
    store.cut();
    eventually("a new connection", || store.count("PING") > 1 && cache.store.is_available());
    store.put("nereid:secret", Some(&[9; 32]));
    eventually("the other secret", || cache.store.secret() == [9; 32]);
    supervision.abort();
}

#[test]
fn of_two_servers_that_set_the_secret_at_the_same_time_one_wins() {
    let store = FakeStore::start();
    store.overtake("nereid:secret", &[9; 32]);
    assert_eq!(open(&store).store.secret(), [9; 32]);
    assert_eq!(store.get("nereid:secret"), Some(vec![9; 32]));
}

#[test]
fn insertions_that_the_store_refuses_are_no_errors_and_do_not_make_it_away() {
    let store = FakeStore::start();
    let cache = open(&store);
    store.refuse("SET", Some("OOM command not allowed when used memory > 'maxmemory'."));
    for _ in 0..5 {
        insert(&cache, "key", b"x");
    }
    assert_eq!(failures(&cache, CacheOperation::Insertion, OperationFailureReason::Refused), 5);
    assert!(cache.store.is_available());
    store.refuse("SET", None);
    insert(&cache, "key", b"x");
    assert!(look_up(&cache, "key").is_some());
}

#[test]
fn a_refused_look_up_is_an_error_with_the_reason() {
    let store = FakeStore::start();
    let cache = open(&store);
    store.refuse("GET", Some("NOPERM this user has no permissions"));
    let error = wait(cache.look_up("key")).unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    assert_eq!(error.to_string(), "Failed to retrieve key: key. NOPERM this user has no permissions");
    assert!(cache.store.is_available());
}

#[test]
fn damaged_values_and_those_of_other_keys_and_versions_are_misses() {
    let store = FakeStore::start();
    let cache = open(&store);
    insert(&cache, "key", b"value");
    let value = store.get("nereid:entry:key").unwrap();
    let mut damaged = value.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut other_version = value.clone();
    other_version[8] += 1;
    for (number, wrong) in [&damaged[..], &other_version, &value[..40], b"", b"text"].into_iter().enumerate()
    {
        store.put("nereid:entry:key", Some(wrong));
        assert!(look_up(&cache, "key").is_none(), "{wrong:?}");
        let unreadable = failures(&cache, CacheOperation::LookUp, OperationFailureReason::Unreadable);
        assert_eq!(unreadable, number as u64 + 1);
    }
    store.put("nereid:entry:other", Some(&value));
    assert!(look_up(&cache, "other").is_none());
    insert(&cache, "key", b"value");
    assert!(look_up(&cache, "key").is_some(), "a new value replaces the damaged one");
}

#[test]
fn operations_beyond_the_limit_are_dropped_at_once() {
    let store = FakeStore::start();
    let limits = OperationLimits { operations: 2, insertion_bytes: 1000 };
    let cache = open_with(&store, &[], limits).unwrap();
    store.hang(true);
    let (first, second) = (cache.look_up("a"), cache.insert("b", answer(vec![0; 500]), FOREVER));
    assert!(now_or_never(cache.look_up("c")).unwrap().unwrap().is_none());
    assert_eq!(failures(&cache, CacheOperation::LookUp, OperationFailureReason::Limit), 1);
    store.hang(false);
    assert!(wait(first).unwrap().is_none());
    wait(second).unwrap();
    // The permits are back. Now the bytes are the limit.
    store.hang(true);
    let large = cache.insert("b", answer(vec![0; 500]), FOREVER);
    now_or_never(cache.insert("c", answer(vec![0; 500]), FOREVER)).unwrap().unwrap();
    assert_eq!(failures(&cache, CacheOperation::Insertion, OperationFailureReason::Limit), 1);
    store.hang(false);
    wait(large).unwrap();
    now_or_never(cache.insert("d", answer(vec![0; 1000]), FOREVER)).unwrap().unwrap();
    assert_eq!(failures(&cache, CacheOperation::Insertion, OperationFailureReason::Limit), 2);
    insert(&cache, "e", &[0; 500]);
    assert!(store.get("nereid:entry:e").is_some() && store.get("nereid:entry:d").is_none());
}

#[test]
fn the_shorter_of_lifetime_and_ttl_is_the_expiry() {
    let store = FakeStore::start();
    let without = open(&store);
    let with = open_with(&store, &[("ttl", "60")], OperationLimits::DEFAULT).unwrap();
    let options = |cache: &RedisResponseCache, lifetime: Option<u64>| {
        let lifetime = lifetime.map(Duration::from_millis);
        let terms = StorageRules { lifetime, ..FOREVER };
        wait(cache.insert("key", answer(vec![1]), terms)).unwrap();
        store.options("nereid:entry:key").join(" ")
    };
    assert_eq!(options(&without, None), "");
    assert_eq!(options(&without, Some(1500)), "PX 1500");
    assert_eq!(options(&with, None), "PX 60000");
    assert_eq!(options(&with, Some(1500)), "PX 1500");
    assert_eq!(options(&with, Some(90_000)), "PX 60000");
    let before = store.count("SET");
    options(&with, Some(0));
    assert_eq!(store.count("SET"), before, "what has expired is not stored");
}

#[test]
fn an_insertion_is_done_although_nobody_waits_for_it() {
    let store = FakeStore::start();
    let cache = open(&store);
    drop(cache.insert("key", answer(vec![1]), FOREVER));
    eventually("the insertion", || store.get("nereid:entry:key").is_some());
}

#[test]
fn dropping_the_cache_ends_its_thread_and_its_connections() {
    let store = FakeStore::start();
    let cache = open_with(&store, &[("pool_size", "2")], OperationLimits::DEFAULT).unwrap();
    assert!(cache.runtime.is_own());
    let pending = {
        store.hang(true);
        cache.look_up("key")
    };
    drop(cache);
    assert!(now_or_never(pending).expect("the thread has ended").is_err());
    store.hang(false);
    eventually("the connections to end", || store.open_connections() == 0);
}

/// Opens the cache in a runtime, as the server does.
fn open_in_runtime(store: &FakeStore) -> (tokio::runtime::Runtime, RedisResponseCache) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let settings = settings(store, &[]);
    let cache = runtime.block_on(async move {
        let open = || RedisResponseCache::with_limits(settings, OperationLimits::DEFAULT);
        tokio::task::spawn_blocking(open).await.unwrap().unwrap()
    });
    (runtime, cache)
}

#[test]
fn dropping_the_cache_ends_its_connections_in_the_runtime_of_the_server() {
    let store = FakeStore::start();
    let (runtime, cache) = open_in_runtime(&store);
    insert(&cache, "key", b"x");
    drop(cache);
    eventually("the connections to end", || store.open_connections() == 0);
    drop(runtime);
}

#[test]
fn the_runtime_of_the_server_is_used_if_there_is_one() {
    let store = FakeStore::start();
    let (runtime, cache) = open_in_runtime(&store);
    assert!(!cache.runtime.is_own());
    insert(&cache, "key", b"x");
    assert!(look_up(&cache, "key").is_some());
    drop(runtime);
    assert!(wait(cache.look_up("key")).is_err(), "the runtime has ended before the cache");
}

/// The error of a start. It has the beginning of the reference, and no password.
fn refused(store: &FakeStore, more: &[(&str, &str)]) -> String {
    let more: Vec<_> = more.iter().copied().chain([("password", "hunter2"), ("user", "me")]).collect();
    let Err(error) = open_with(store, &more, OperationLimits::DEFAULT) else {
        panic!("the store is accepted")
    };
    assert_eq!(error.code, ErrorCode::Internal);
    let text = error.to_string();
    assert!(!text.contains("hunter2"), "{text}");
    text.strip_prefix("Failed to initialize RedisCache: ").unwrap().replace(&store.port.to_string(), "PORT")
}

#[test]
fn a_store_that_cannot_be_used_at_the_start_is_an_error_that_says_why() {
    let store = FakeStore::start();
    store.refuse("AUTH", Some("WRONGPASS invalid username-password pair or user is disabled."));
    let text = refused(&store, &[]);
    assert!(text.contains("'127.0.0.1:PORT' cannot be used: WRONGPASS invalid username-password"), "{text}");
    store.refuse("AUTH", None);
    store.refuse("PING", Some("NOAUTH Authentication required."));
    assert!(refused(&store, &[]).contains("cannot be used: NOAUTH Authentication required."));
    store.refuse("PING", Some("LOADING Redis is loading the dataset in memory"));
    assert!(refused(&store, &[]).contains("LOADING Redis is loading"));
    store.refuse("PING", None);
    store.refuse("SELECT", Some("ERR DB index is out of range"));
    assert!(refused(&store, &[("db", "99")]).contains("ERR DB index is out of range"));
    store.refuse("SELECT", None);
    store.put("nereid:secret", Some(b"short"));
    let text = refused(&store, &[]);
    assert_eq!(text, "the secret 'nereid:secret' is not available: it has 5 bytes instead of 32");
    store.put("nereid:secret", None);
    store.close(true);
    assert!(refused(&store, &[]).contains("set 'tls_enabled=true'"));
}

#[test]
fn a_store_that_does_not_answer_at_the_start_is_an_error_within_the_limit() {
    let store = FakeStore::start();
    store.hang(true);
    let text = refused(&store, &[("connect_timeout", "200")]);
    assert!(text.contains("there was no answer within 200 ms"), "{text}");
    let text = refused(&store, &[("connect_timeout", "200"), ("tls_enabled", "true"), ("sni", "name")]);
    assert!(text.contains("Does this port use TLS?") || text.contains("the system trusts"), "{text}");
    store.hang(false);
}

#[test]
fn a_port_that_nobody_listens_on_is_an_error() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let settings =
        [("host", "127.0.0.1"), ("port", &port)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let Err(error) = RedisResponseCache::open(&settings.into()) else { panic!("the port is open") };
    let expected =
        format!("Failed to initialize RedisCache: cannot connect to '127.0.0.1:{port}': Connection refused");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn a_prefix_matches_only_itself() {
    assert_eq!(escaped(r"model/1*?[a-b]^\"), r"model/1\*\?\[a-b\]\^\\");
}

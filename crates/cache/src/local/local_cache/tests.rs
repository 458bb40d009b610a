//! Tests of the cache as a whole. Which entries stay is tested in `shard.rs`.
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
};

use inference::Response;
use vocabulary::{DataType, Parameter, Tensor, TensorData};

use super::*;

fn response(data: impl Into<TensorData>) -> CachedAnswer {
    let data = data.into();
    let shape = [i64::try_from(data.len()).unwrap()];
    let response = Response {
        outputs: vec![Tensor::new("OUT".into(), DataType::Uint8, shape[..].into(), data)],
        parameters: vec![("p".into(), Parameter::Int(7))],
    };
    response.into()
}

fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn insert(cache: &dyn ResponseCache, key: &str, answer: CachedAnswer) -> Result<(), Error> {
    now_or_never(cache.insert(key, Arc::new(answer), StorageRules::default()))
        .expect("small answers are inserted at once")
}

fn look_up(cache: &dyn ResponseCache, key: &str) -> Option<CachedAnswer> {
    cache.look_up_at_once(key).expect("the cache never waits").unwrap()
}

fn data(answer: &CachedAnswer) -> Bytes {
    answer.responses[0].outputs[0].host().unwrap().contiguous()
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_response_is_found_as_it_was_inserted_without_a_copy() {
    let cache = LocalResponseCache::of(1 << 20);
    assert!(look_up(&cache, "key").is_none());
    let pieces = TensorData::from_pieces([Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
    insert(&cache, "key", response(pieces)).unwrap();
    let (one, other) = (look_up(&cache, "key").unwrap(), look_up(&cache, "key").unwrap());
    assert_eq!(
        (&data(&one)[..], &one.responses[0].parameters),
        (&b"abc"[..], &vec![("p".into(), Parameter::Int(7))])
    );
    assert_eq!(
        (one.responses[0].outputs[0].shape(), one.responses[0].outputs[0].datatype()),
        (&[3][..], DataType::Uint8)
    );
    assert_eq!(data(&one).as_ptr(), data(&other).as_ptr());
    let CacheStatistics { entries, hits, misses, evictions, .. } = cache.statistics();
    assert_eq!((entries, hits, misses, evictions), (1, 2, 1, 0));
    let later = now_or_never(ResponseCache::look_up(&cache, "key")).expect("it is ready at once").unwrap();
    assert_eq!(data(&later.unwrap()).as_ptr(), data(&one).as_ptr());
}

#[test]
fn an_answer_may_replace_another() {
    let cache = LocalResponseCache::of(1 << 20);
    let replacing = StorageRules { replaces: true, ..StorageRules::default() };
    let mut used = Vec::new();
    for value in [vec![1], vec![2; 500], vec![3]] {
        now_or_never(cache.insert("key", Arc::new(response(value.clone())), replacing)).unwrap().unwrap();
        assert_eq!(&data(&look_up(&cache, "key").unwrap())[..], value);
        assert_eq!(cache.statistics().entries, 1);
        used.push(cache.statistics().used_bytes);
    }
    assert!(used[0] == used[2] && used[0] < used[1], "{used:?}");
}

#[test]
fn answers_whose_keys_begin_alike_are_removed_together() {
    let cache = LocalResponseCache::of(1 << 20);
    for number in 0..50 {
        insert(&cache, &format!("a/{number}"), response(vec![1])).unwrap();
        insert(&cache, &format!("ab/{number}"), response(vec![1])).unwrap();
    }
    let used = cache.statistics().used_bytes;
    assert_eq!(now_or_never(cache.remove_all("a/")).unwrap().unwrap(), 50);
    assert!(look_up(&cache, "a/7").is_none() && look_up(&cache, "ab/7").is_some());
    assert_eq!(now_or_never(cache.remove_all("a/")).unwrap().unwrap(), 0);
    assert!(cache.statistics().used_bytes < used);
    assert_eq!(now_or_never(cache.remove_all("")).unwrap().unwrap(), 50);
    assert_eq!(cache.statistics().used_bytes, 0);
}

/// Inserts 300 small answers whose keys begin with `name`. Returns the bytes in use after each.
fn fill(cache: &dyn ResponseCache, whole: &LocalResponseCache, name: &str) -> Vec<usize> {
    let inserted = (0..300).map(|number| {
        insert(cache, &format!("{name} {number}"), response(vec![1; 100])).unwrap();
        whole.statistics().used_bytes
    });
    inserted.collect()
}

#[test]
fn a_model_uses_no_more_than_its_quota() {
    let whole = LocalResponseCache::of(1 << 20);
    let own = whole.with_quota(&"m".into(), 10_000).unwrap();
    assert!(fill(&*own, &whole, "key").into_iter().all(|used| used <= 10_000));
    assert!(whole.statistics().used_bytes > 9_000 && whole.statistics().evictions > 0);
    let again = whole.with_quota(&"m".into(), 5_000).unwrap();
    assert!(look_up(&*again, "key 299").is_some(), "the model finds its answers");
    insert(&*again, "new", response(vec![1; 100])).unwrap();
    assert!(whole.statistics().used_bytes <= 5_000);
    let too_much = whole.with_quota(&"m".into(), (1 << 20) + 1).err().unwrap();
    assert_eq!(
        too_much.to_string(),
        "the quota of model 'm' is 1048577 bytes of the response cache, which has only 1048576"
    );
}

#[test]
fn other_models_do_not_displace_the_answers_of_a_model_with_a_quota() {
    let whole = LocalResponseCache::of(40_000);
    fill(&whole, &whole, "first");
    let own = whole.with_quota(&"m".into(), 20_000).unwrap();
    insert(&*own, "kept", response(vec![1; 100])).unwrap();
    for used in fill(&whole, &whole, "second") {
        assert!(used <= 40_000);
    }
    assert!(look_up(&*own, "kept").is_some());
    fill(&*own, &whole, "own");
    let statistics = whole.statistics();
    assert!(statistics.used_bytes <= 40_000, "{statistics:?}");
    let found = |number| look_up(&whole, &format!("second {number}")).is_some();
    assert!((0..300).filter(|number| found(*number)).count() > 30, "the others keep what the quota leaves");
}

#[test]
fn the_space_of_a_model_that_has_gone_is_used_when_room_is_short() {
    let whole = LocalResponseCache::of(20_000);
    drop(whole.with_quota(&"empty".into(), 20_000).unwrap());
    let gone = whole.with_quota(&"gone".into(), 9_000).unwrap();
    assert_eq!(whole.memory.own.lock().len(), 1, "a space without answers goes with its model");
    fill(&*gone, &whole, "gone");
    let there = whole.with_quota(&"there".into(), 9_000).unwrap();
    fill(&*there, &whole, "there");
    drop(gone);
    let mut inserted = 0;
    while whole.memory.own.lock().get("gone").is_some_and(|partition| partition.used() > 0) {
        insert(&whole, &format!("key {inserted}"), response(vec![1; 100])).unwrap();
        assert!(whole.statistics().used_bytes <= 20_000);
        inserted += 1;
    }
    let is_there = |number: &usize| look_up(&whole, &format!("key {number}")).is_some();
    assert_eq!((0..inserted).filter(is_there).count(), inserted, "the answers of others are taken later");
    fill(&whole, &whole, "more");
    assert!(look_up(&*there, "there 299").is_some());
}

#[test]
fn an_entry_keeps_no_more_than_its_own_bytes() {
    let cache = LocalResponseCache::of(1 << 20);
    let batch = Bytes::from(vec![1; 4096]);
    insert(&cache, "key", response(batch.slice(10..20))).unwrap();
    assert!(batch.is_unique(), "the entry holds the batch");
}

#[test]
fn the_first_response_of_a_key_stays() {
    let cache = LocalResponseCache::of(1 << 20);
    insert(&cache, "key", response(vec![1])).unwrap();
    let used = cache.statistics().used_bytes;
    let error = insert(&cache, "key", response(vec![2])).unwrap_err();
    assert_eq!((error.code, &error.message[..]), (ErrorCode::AlreadyExists, "key 'key' already exists"));
    assert_eq!(&data(&look_up(&cache, "key").unwrap())[..], [1]);
    assert_eq!(cache.statistics().used_bytes, used);
}

#[test]
fn a_response_that_is_larger_than_the_cache_is_refused_and_displaces_nothing() {
    let cache = LocalResponseCache::of(2048);
    insert(&cache, "small", response(vec![1])).unwrap();
    let error = insert(&cache, "large", response(vec![0; 4096])).unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    let text = error.to_string();
    assert!(
        text.starts_with("Requested byte_size: ")
            && text.ends_with(" is greater than total cache size: 2048")
    );
    assert!(look_up(&cache, "small").is_some());
}

#[test]
fn a_response_may_need_the_room_of_all_others() {
    let cache = LocalResponseCache::of(64 << 10);
    for number in 0..200 {
        insert(&cache, &number.to_string(), response(vec![0; 100])).unwrap();
    }
    insert(&cache, "large", response(vec![0; 48 << 10])).unwrap();
    let CacheStatistics { used_bytes, .. } = cache.statistics();
    assert!(look_up(&cache, "large").is_some() && used_bytes <= 64 << 10);
}

#[test]
fn a_large_response_is_copied_elsewhere() {
    let cache = LocalResponseCache::of(1 << 20);
    let large = response(vec![3; BRIEF_BYTES + 1]);
    // The thread of an instance polls once; then a task of the runtime goes on.
    let mut insertion = ResponseCache::insert(&cache, "key", Arc::new(large), StorageRules::default());
    let first = insertion.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending() && look_up(&cache, "key").is_none());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(insertion).unwrap();
    assert_eq!(data(&look_up(&cache, "key").unwrap()).len(), BRIEF_BYTES + 1);
}

#[test]
fn the_limit_holds_while_threads_insert_and_look_up() {
    const LIMIT: usize = 256 << 10;
    let cache = LocalResponseCache::of(LIMIT);
    thread::scope(|scope| {
        for part in 0..4_u32 {
            let cache = &cache;
            scope.spawn(move || {
                for number in 0..5_000_u32 {
                    let key = (part * 2_000 + number % 3_000).to_string();
                    if let Some(found) = look_up(cache, &key) {
                        assert_eq!(&data(&found)[..key.len()], key.as_bytes());
                        continue;
                    }
                    let mut value = key.clone().into_bytes();
                    value.resize(200 + number as usize % 500, 0);
                    match insert(cache, &key, response(value)) {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.code, ErrorCode::AlreadyExists),
                    }
                    assert!(cache.statistics().used_bytes <= LIMIT);
                }
            });
        }
    });
    let CacheStatistics { entries, used_bytes, evictions, .. } = cache.statistics();
    assert!(entries > 0 && evictions > 0 && used_bytes > LIMIT / 2);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let refused = |pairs: &[(&str, &str)]| match LocalResponseCache::open(&settings(pairs), Some(1 << 30)) {
        Ok(_) => panic!("{pairs:?} is accepted"),
        Err(error) => {
            assert_eq!(error.code, ErrorCode::InvalidArgument);
            error.to_string().replace("Failed to initialize LocalCache: ", "")
        }
    };
    assert_eq!(refused(&[]), "config didn't contain a valid 'size' field.");
    assert_eq!(refused(&[("size", "many")]), "'size' must be a number of bytes, but is 'many'");
    assert_eq!(refused(&[("size", "-1")]), "'size' must be a number of bytes, but is '-1'");
    assert_eq!(refused(&[("size", "0")]), "'size' must be at least 1024 bytes, but is 0");
    assert_eq!(refused(&[("size", "1023")]), "'size' must be at least 1024 bytes, but is 1023");
    assert_eq!(
        refused(&[("size", "1073741825")]),
        "'size' is 1073741825 bytes, but the server may use only 1073741824 bytes of memory"
    );
    assert_eq!(
        refused(&[("size", "4096"), ("sise", "1")]),
        "there is no setting 'sise'; there are 'size' and 'reserve'"
    );
    assert_eq!(
        refused(&[("size", "4096"), ("reserve", "1")]),
        "'reserve' must be 'true' or 'false', but is '1'"
    );
    assert_eq!(
        LocalResponseCache::open(&settings(&[("size", "1024")]), None).ok().map(|cache| cache.limit()),
        Some(1024)
    );
}

#[test]
fn reserved_memory_is_taken_at_the_start_and_goes_to_entries() {
    const LIMIT: usize = (3 << 20) + 5;
    let open = |reserve: &str| {
        let given = settings(&[("size", &LIMIT.to_string()), ("reserve", reserve)]);
        LocalResponseCache::open(&given, None).unwrap()
    };
    assert!(open("false").memory.reserved.is_none());
    let cache = open("true");
    let reserved = || cache.memory.reserved.as_ref().unwrap().bytes();
    assert_eq!(reserved(), LIMIT);
    for key in ["a", "b", "c", "d"] {
        insert(&cache, key, response(vec![0_u8; 60 << 10])).unwrap();
        let CacheStatistics { used_bytes, .. } = cache.statistics();
        assert!(reserved() + used_bytes <= LIMIT && reserved() + used_bytes > LIMIT - (1 << 20));
    }
    (0..100).for_each(|key| insert(&cache, &key.to_string(), response(vec![0_u8; 60 << 10])).unwrap());
    assert_eq!(reserved(), 0);
}

#[test]
fn the_metrics_are_those_of_tritons_cache() {
    let cache = LocalResponseCache::of(1 << 20);
    look_up(&cache, "key");
    insert(&cache, "key", response(vec![1])).unwrap();
    look_up(&cache, "key");
    let mut text = MetricsText::default();
    cache.append_to(&mut text);
    let text = text.finish();
    for line in
        ["nv_cache_num_entries 1", "nv_cache_num_lookups 2", "nv_cache_num_hits 1", "nv_cache_num_misses 1"]
    {
        assert!(
            text.contains(&format!("# TYPE {} gauge\n{line}\n", line.split(' ').next().unwrap())),
            "{text}"
        );
    }
    assert_eq!(text.matches("# HELP nv_cache_").count(), 8);
}

//! Batching strategies in shared libraries.
use std::{fs, thread};

use testing::plugins::{Kind, Plugin};

use crate::plugins::place::{Place, copying, ints, parameters};

/// A model whose batches are full with four rows. The queue delay is long enough for four requests.
fn batching(pairs: &[(&str, &str)]) -> String {
    let wait = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 200000 }";
    copying("identity", &format!("{wait} {}", parameters(pairs)))
}

/// The number of executions for four simultaneous requests of one row. Each row has this many elements of four bytes.
fn executions(strategy: Option<&str>, pairs: &[(&str, &str)], elements: usize) -> u64 {
    let place = Place::with(&[(Kind::Backend, "identity")]).model("m", &batching(pairs));
    if let Some(source) = strategy {
        Plugin::new(Kind::BatchStrategy, source).build(&place.directory_of("m")).unwrap();
    }
    let running = place.serve(&[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(running.infer("m", &ints("INPUT0", &vec![1; elements])).0, 200));
        }
    });
    let count = running.statistics("m")["execution_count"].as_u64().unwrap();
    running.stop();
    count
}

#[test]
fn a_strategy_may_run_every_request_alone() {
    assert_eq!(executions(Some("single_batch"), &[], 1), 4);
}

#[test]
fn a_strategy_may_bound_the_bytes_of_a_batch() {
    // Two requests of eight bytes fit into a batch.
    let count = executions(Some("volume_batch"), &[("MAX_BATCH_VOLUME_BYTES", "20")], 2);
    assert!((2..=4).contains(&count), "{count} executions");
    // No two requests fit into a batch.
    assert_eq!(executions(Some("volume_batch"), &[("MAX_BATCH_VOLUME_BYTES", "4")], 2), 4);
}

#[test]
fn a_strategy_that_cannot_begin_keeps_its_model_from_loading() {
    let place = Place::with(&[(Kind::Backend, "identity")]).model("m", &batching(&[]));
    Plugin::new(Kind::BatchStrategy, "volume_batch").build(&place.directory_of("m")).unwrap();
    assert!(fs::exists(place.directory_of("m").join("batchstrategy.so")).unwrap());
    let running = place.serve(&["--exit-on-error=false"]);
    let (_, index) = running.post("/v2/repository/index", &serde_json::json!({}));
    let reason = index[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the model has no parameter MAX_BATCH_VOLUME_BYTES"), "{index}");
    running.stop();
}

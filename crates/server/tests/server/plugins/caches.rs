//! A response cache in a shared library.
use std::fs;

use testing::plugins::Kind;

use crate::plugins::place::{Place, copying, ints};

const PLUGINS: [(Kind, &str); 2] = [(Kind::Backend, "identity"), (Kind::Cache, "cache")];

fn place() -> Place {
    Place::with(&PLUGINS).model("m", &copying("identity", "response_cache { enable: true }"))
}

#[test]
fn a_cached_response_is_sent_without_an_execution() {
    let place = place();
    let log = place.path("log");
    let running = place.serve(&[&format!("--cache-config=cache,log={}", log.display())]);
    let first = running.infer("m", &ints("INPUT0", &[1, 2]));
    let others = [(); 2].map(|()| running.infer("m", &ints("INPUT0", &[1, 2])));
    assert_eq!(first.0, 200);
    assert_eq!(first.1["outputs"], others[1].1["outputs"]);
    assert_eq!(running.infer("m", &ints("INPUT0", &[9])).1["outputs"][0]["data"][0], 9);
    let statistics = running.statistics("m");
    let counts =
        ["cache_hit", "cache_miss"].map(|of| statistics["inference_stats"][of]["count"].as_u64().unwrap());
    assert_eq!(counts, [2, 2], "{statistics}");
    // The server waits for the cache before it ends.
    running.stop();
    let calls = fs::read_to_string(log).unwrap();
    let calls: Vec<_> = calls.lines().collect();
    assert_eq!(calls[..2], ["initialize", "lookup"]);
    assert_eq!(calls.iter().filter(|call| **call == "insert").count(), 2);
    // Until the cache has stored an answer, the server itself answers requests like the first.
    assert!((2..=4).contains(&calls.iter().filter(|call| **call == "lookup").count()), "{calls:?}");
}

#[test]
fn a_request_is_executed_if_the_cache_fails() {
    for call in ["insert", "lookup"] {
        let place = place();
        let running = place.serve(&[&format!("--cache-config=cache,fail_at={call}")]);
        for values in [[1, 2], [1, 2]] {
            let (status, answer) = running.infer("m", &ints("INPUT0", &values));
            assert_eq!((status, &answer["outputs"][0]["data"][1]), (200, &2.into()), "{call}: {answer}");
        }
        running.stop();
    }
}

#[test]
fn a_cache_that_cannot_begin_keeps_the_server_from_starting() {
    let status = place().program(&["--cache-config=cache,fail_at=initialize"]).wait().unwrap();
    assert_eq!(status.code(), Some(1));
}

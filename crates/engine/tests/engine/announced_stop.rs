//! A server whose stop is announced: sequences that run go on, and none begins.
use std::num::NonZeroU64;

use engine::Engine;
use inference::{ResponseStream, SequenceId, SequencePosition};
use vocabulary::{Error, ErrorCode};

use crate::{
    ensemble_sequences::{SEQUENCE, result},
    ensembles::chain,
    support::{ECHO, Repository, echo, request, serves},
};

async fn serve(models: &[(&str, &str)]) -> Engine {
    let repository = models
        .iter()
        .fold(Repository::new(), |repository, (name, config)| repository.model(name, config, &["1"]));
    let engine = repository.serve(echo()).await;
    engine.load_models().await.unwrap();
    engine
}

/// A request of the sequence of that number.
fn ask(
    engine: &Engine,
    model: &str,
    sequence: u64,
    (start, end): (bool, bool),
) -> Result<ResponseStream, Error> {
    let id = NonZeroU64::new(sequence).map(SequenceId::Number);
    let sequence = SequencePosition { id, start, end };
    engine.model(model, None)?.infer(inference::Request { sequence, ..request(5) })
}

fn sequences() -> String {
    format!("{ECHO} {SEQUENCE}")
}

#[tokio::test]
async fn sequences_that_run_go_on_and_none_begins() {
    let ensemble = chain(&["m", "sequence"], "");
    let engine = serve(&[("m", ECHO), ("sequence", &sequences()), ("e", &ensemble)]).await;
    for (model, sequence) in [("sequence", 1), ("e", 2)] {
        assert_eq!(result(ask(&engine, model, sequence, (true, false)).unwrap()).await, Ok(5));
    }
    engine.announce_stop();
    for (model, sequence) in [("sequence", 3), ("e", 4), ("sequence", 1)] {
        let refused = ask(&engine, model, sequence, (true, false)).err().unwrap();
        let expected = (ErrorCode::Unavailable, "The server will stop, and begins no sequence any more");
        assert_eq!((refused.code, &refused.message[..]), expected, "{model} {sequence}");
    }
    for (model, sequence) in [("sequence", 1), ("e", 2)] {
        assert_eq!(result(ask(&engine, model, sequence, (false, false)).unwrap()).await, Ok(5));
        assert_eq!(result(ask(&engine, model, sequence, (false, true)).unwrap()).await, Ok(5));
    }
    assert_eq!(engine.live_sequences(), 0);
    // A model without sequences does not look at their flags.
    assert_eq!(result(ask(&engine, "m", 9, (true, false)).unwrap()).await, Ok(5));
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn only_a_server_of_sequences_has_nothing_to_wait_for_when_they_have_ended() {
    let ensemble = chain(&["sequence", "sequence"], "");
    let of_sequences = serve(&[("sequence", &sequences()), ("e", &ensemble)]).await;
    assert!(!of_sequences.serves_only_running_sequences(), "sequences may begin");
    of_sequences.announce_stop();
    assert!(of_sequences.serves_only_running_sequences());
    let mixed = serve(&[("sequence", &sequences()), ("m", ECHO)]).await;
    let iterative = SEQUENCE.replace("sequence_batching {", "sequence_batching { iterative_sequence: true");
    let iterative = serve(&[("iterative", &format!("{ECHO} {iterative}"))]).await;
    let empty = serve(&[]).await;
    for engine in [mixed, iterative, empty] {
        engine.announce_stop();
        assert!(!engine.serves_only_running_sequences());
    }
}

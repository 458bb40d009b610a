//! A bounded run of each target: its corpus, and mutations of it that are the same each time.
//!
//! Each target has a test of its own. A failure prints the input; with it, the test can be repeated.

use std::collections::BTreeSet;

use fuzz::{FuzzTarget, Mutator, SavedInput, TARGETS, corpus, find_target};

/// The mutated inputs of each target. All targets together take about 30 seconds on one processor, without optimisation.
const MUTATIONS: usize = 2000;

/// A mutation of a mutation goes so many steps at most before it begins with a seed again.
const LONGEST_CHAIN: usize = 6;

#[track_caller]
fn check(target: &FuzzTarget, input: &[u8], origin: &str) {
    if let Err(broken) = target.check(input) {
        panic!(
            "{}: {broken}, on {origin}, {} bytes: b\"{}\"",
            target.name,
            input.len(),
            input.escape_ascii()
        );
    }
}

fn run(name: &str) {
    let target = find_target(name).expect("the target exists");
    let inputs = corpus(name).expect("the target has a corpus");
    assert!(!inputs.is_empty(), "the corpus is empty");
    check(target, b"", "nothing");
    for SavedInput { path, bytes } in &inputs {
        check(target, bytes, &path.display().to_string());
    }
    let mut mutator =
        Mutator::new(TARGETS.iter().position(|other| other.name == name).unwrap_or_default() as u64);
    let mut done = 0;
    while done < MUTATIONS {
        let mut bytes = inputs[mutator.below(inputs.len())].bytes.clone();
        for _ in 0..=mutator.below(LONGEST_CHAIN) {
            let other = &inputs[mutator.below(inputs.len())].bytes;
            mutator.mutate(&mut bytes, other);
            check(target, &bytes, &format!("mutation {done}"));
            done += 1;
        }
    }
}

/// Makes a test of each target.
macro_rules! tests {
    ($($test:ident: $target:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            run($target);
        })*

        #[test]
        fn each_target_has_a_test_and_a_corpus() {
            let tested: BTreeSet<_> = [$($target),*].into_iter().collect();
            assert_eq!(tested, TARGETS.iter().map(|target| target.name).collect::<BTreeSet<_>>());
        }
    };
}

tests! {
    http_infer: "http-infer",
    http_generate: "http-generate",
    http_route: "http-route",
    inflate: "inflate",
    certificate: "certificate",
    grpc_infer: "grpc-infer",
    grpc_messages: "grpc-messages",
    http2_frames: "http2-frames",
    config_text: "config-text",
    config_json: "config-json",
    model_config: "model-config",
    cached_answer: "cached-answer",
    python_message: "python-message",
    python_frames: "python-frames",
    python_requirements: "python-requirements",
    forest_xgboost_json: "forest-xgboost-json",
    forest_xgboost_ubjson: "forest-xgboost-ubjson",
    forest_lightgbm: "forest-lightgbm",
    forest_treelite: "forest-treelite",
    pytorch_package: "pytorch-package",
    pytorch_call_spec: "pytorch-call-spec",
    store_url: "store-url",
    store_profile: "store-profile",
    options: "options",
    options_file: "options-file",
}

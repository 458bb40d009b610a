//! Plays the scripts in `tests/scripts`, one behaviour in each paragraph, and compares the results.
//!
//! `UPDATE=1 cargo test -p scheduling --test scheduling scripts` writes the real results into the scripts. Read the
//! difference before you commit it.
use std::{env, fs, path::Path};

use crate::support::{script, sequence_script};

fn play(scene: &str) -> String {
    let sequences = scene.lines().any(|line| line.starts_with("model sequence "));
    if sequences { sequence_script::play(scene) } else { script::play(scene) }
}

fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(file);
    let written = fs::read_to_string(&path).expect("the script can be read");
    let scenes: Vec<_> = written.split("\n\n").map(str::trim).filter(|scene| !scene.is_empty()).collect();
    let played: Vec<_> = scenes.iter().map(|scene| play(scene)).collect();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, played.join("\n")).expect("the script can be written");
        return;
    }
    for (scene, played) in scenes.iter().zip(&played) {
        assert_eq!(*scene, played.trim_end(), "{file}: played, this gives\n\n{played}");
    }
}

macro_rules! scripts {
    ($($test:ident => $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file);
        })*

        #[test]
        fn every_script_is_played() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
            for entry in fs::read_dir(folder).expect("the folder can be read") {
                let name = entry.expect("the entry can be read").file_name();
                assert!([$($file),*].iter().any(|file| name == *file), "{name:?} is not played");
            }
        }
    };
}

scripts! {
    batches_form_as_configured => "batches.txt",
    busy_instances_make_larger_batches => "busy.txt",
    shapes_do_not_mix => "shapes.txt",
    a_rule_may_keep_requests_apart => "company.txt",
    queue_policies_hold => "queue_policies.txt",
    priorities_hold => "priorities.txt",
    cancelled_requests_leave_at_once => "cancellation.txt",
    draining_lets_waiting_requests_run => "draining.txt",
    without_a_delay_no_request_waits_for_others => "delay_ended.txt",
    unbatched_requests_run_alone => "unbatched.txt",
    sequences_share_batches_as_in_the_examples => "sequence_pictures.txt",
    sequences_begin_and_end => "sequence_life.txt",
    the_backlog_moves_up => "sequence_backlog.txt",
    the_direct_strategy_fills_rows => "sequence_direct.txt",
    the_oldest_strategy_forms_batches => "sequence_oldest.txt",
    idle_sequences_are_closed => "sequence_idle.txt",
    cancelling_a_request_ends_its_sequence => "sequence_cancellation.txt",
    iterative_requests_run_again_and_again => "sequence_iterative.txt",
    sequences_stay_when_instances_come_and_go => "sequence_instances.txt",
    draining_lets_sequences_finish => "sequence_draining.txt",
    without_a_delay_no_sequence_waits_for_others => "sequence_delay_ended.txt",
    examples_of_the_documentation_run_as_described => "documentation.txt",
}

//! What the files contain, and when.
use std::{fs, path::Path};

use inference::TraceIdentity;
use serde_json::Value;
use vocabulary::ByteBudget;

use super::*;
use crate::record::{FinishedRequest, ModelSpans, TraceElement};

struct Stage {
    folder: tempfile::TempDir,
    counters: Arc<TraceCounters>,
    thread: FileThread,
}

impl Stage {
    fn new(held_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let counters = Arc::<TraceCounters>::default();
        let thread = FileThread::new(folder.path().join("t.json"), held_bytes, counters.clone());
        Self { folder, counters, thread }
    }

    fn add(&mut self, id: u64, setting: u64, log_frequency: u32, is_last: bool) {
        let request = FinishedRequest {
            identity: TraceIdentity { id, parent_id: 0 },
            spans: ModelSpans::default(),
            about: None,
            elements: vec![TraceElement::Time("T", 1)],
            _reservation: ByteBudget::new(0).reservation(),
        };
        self.thread.add(&FinishedTrace {
            setting,
            log_frequency,
            is_last,
            origin: None,
            requests: vec![request],
        });
    }

    /// The ids of the traces in each file.
    fn files(&self) -> Vec<(String, Vec<u64>)> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let text = fs::read_to_string(entry.path()).unwrap();
                // A file that is not complete lacks its last bracket.
                let text = if text.ends_with(']') { text } else { text + "]" };
                let elements: Vec<Value> = serde_json::from_str(&text).unwrap();
                let ids = elements.iter().map(|element| element["id"].as_u64().unwrap()).collect();
                (entry.file_name().into_string().unwrap(), ids)
            })
            .collect();
        files.sort();
        files
    }

    fn finish(self) -> Vec<(String, Vec<u64>)> {
        let queue = FileQueue::default();
        queue.end();
        let Self { folder, counters, thread } = self;
        thread.run(&queue);
        let rest =
            Self { thread: FileThread::new(Path::new("").into(), 0, counters.clone()), folder, counters };
        rest.files()
    }
}

fn file(name: &str, ids: &[u64]) -> (String, Vec<u64>) {
    (name.to_owned(), ids.to_vec())
}

#[test]
fn without_a_log_frequency_all_traces_go_to_one_file_at_the_end() {
    let mut stage = Stage::new(1 << 20);
    stage.add(1, 0, 0, false);
    stage.add(2, 7, 0, false);
    stage.add(3, 0, 0, false);
    assert_eq!(stage.files(), []);
    stage.thread.end_setting(7);
    assert_eq!(stage.files(), [file("t.json", &[2])]);
    assert_eq!(stage.finish(), [file("t.json", &[2, 1, 3])]);
}

#[test]
fn with_a_log_frequency_each_file_has_so_many_traces() {
    let mut stage = Stage::new(1 << 20);
    (1..=5).for_each(|id| stage.add(id, 0, 2, false));
    assert_eq!(stage.files(), [file("t.json.0", &[1, 2]), file("t.json.1", &[3, 4])]);
    assert_eq!(stage.counters.read(), [4, 0, 0, 0]);
    let all = stage.finish();
    assert_eq!(all, [file("t.json.0", &[1, 2]), file("t.json.1", &[3, 4]), file("t.json.2", &[5])]);
}

#[test]
fn traces_whose_count_is_used_up_go_to_a_file_with_a_number() {
    let mut stage = Stage::new(1 << 20);
    stage.add(1, 0, 0, false);
    stage.add(2, 0, 0, true);
    assert_eq!(stage.files(), [file("t.json.0", &[1, 2])]);
    stage.thread.end_setting(0);
    assert_eq!(stage.finish(), [file("t.json.0", &[1, 2])]);
}

#[test]
fn what_exceeds_the_memory_is_written_early() {
    let mut stage = Stage::new(100);
    (1..=4).for_each(|id| stage.add(id, 0, 0, false));
    assert_eq!(stage.files()[0].0, "t.json");
    assert!(stage.thread.collected.values().all(|collected| collected.text.len() <= 100));
    assert_eq!(stage.finish(), [file("t.json", &[1, 2, 3, 4])]);

    let mut numbered = Stage::new(100);
    (1..=12).for_each(|id| numbered.add(id, 0, 10, false));
    assert_eq!(numbered.files()[0], file("t.json.0", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    let all = numbered.finish();
    assert_eq!(all.iter().flat_map(|(_, ids)| ids).count(), 12);
}

#[test]
fn traces_that_cannot_be_written_are_counted_and_later_ones_are_written() {
    let mut stage = Stage::new(1 << 20);
    let missing = stage.folder.path().join("missing");
    stage.thread.path = missing.join("t.json");
    stage.add(1, 0, 1, false);
    assert_eq!(stage.counters.read(), [0, 0, 0, 1]);
    fs::create_dir(&missing).unwrap();
    stage.add(2, 0, 1, false);
    assert_eq!(stage.counters.read(), [1, 0, 0, 1]);
    assert!(missing.join("t.json.1").exists());
}

#[test]
fn a_full_disk_loses_traces_and_nothing_else() {
    let mut stage = Stage::new(1 << 20);
    stage.thread.path = "/dev/full".into();
    stage.add(1, 0, 0, false);
    stage.thread.end_setting(0);
    assert_eq!(stage.counters.read(), [0, 0, 0, 1]);
}

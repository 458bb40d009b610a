//! Changes to the files of plug-ins while the server runs.
use std::{fs, os::unix::fs::FileExt};

use serde_json::json;
use testing::plugins::Kind;

use crate::place::{Place, copying, ints};

#[test]
fn a_backend_whose_file_is_overwritten_or_deleted_keeps_responding() {
    let place = Place::with(&[(Kind::Backend, "identity")]).model("m", &copying("identity", ""));
    let library = place.path("identity").join("libtriton_identity.so");
    let running = place.serve(&[]);
    let answers = |when: &str| {
        let (status, answer) = running.infer("m", &ints("INPUT0", &[1, 2]));
        assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!([1, 2])), "{when}: {answer}");
    };
    answers("before");
    // The test overwrites the file in place, as some copy programs do. A library that is mapped from this file would
    // execute the new bytes.
    let size = fs::metadata(&library).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&library).unwrap();
    file.write_all_at(&vec![0xCC; usize::try_from(size).unwrap()], 0).unwrap();
    answers("overwritten");
    file.set_len(0).unwrap();
    answers("cut off");
    fs::remove_file(&library).unwrap();
    answers("deleted");
    running.stop();
}

//! Changes to the files of plug-ins while the server runs.
use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use serde_json::{Value, json};
use testing::{
    eventually,
    plugins::{Kind, Plugin},
};

use crate::plugins::place::{Place, Running, copying, ints};

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

const ADDING: &str = "backend: 'holding' max_batch_size: 0
    input [ { name: 'X' data_type: TYPE_FP32 dims: [ 1 ] } ]
    output [ { name: 'Y' data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU } ]";

/// Compiles the library whose models answer with `build`, and moves it to its name in a directory.
fn replace(directory: &Path, build: u32) {
    let elsewhere = tempfile::tempdir().unwrap();
    let flag = format!("-DBUILD={build}");
    let library = Plugin::new(Kind::Backend, "holding").with_flags(&[&flag]).build(elsewhere.path()).unwrap();
    fs::rename(&library, directory.join(library.file_name().unwrap())).unwrap();
}

/// The number of the library that executes a model.
fn build_of(running: &Running, model: &str) -> i64 {
    let request = json!({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [0]}]});
    let (status, answer) = running.infer(model, &request);
    assert_eq!(status, 200, "{model}: {answer}");
    answer["outputs"][0]["data"][0].as_f64().unwrap() as i64
}

fn control(running: &Running, model: &str, command: &str) {
    let (status, answer) = running.post(&format!("/v2/repository/models/{model}/{command}"), &Value::Null);
    assert_eq!(status, 200, "{command} {model}: {answer}");
}

/// A place with models of the holding backend, its journal, and the arguments for the server.
fn holding(models: &[&str]) -> (Place, impl Fn() -> Vec<String>, Vec<String>) {
    let place = Place::with(&[(Kind::Backend, "holding")]);
    let place = models.iter().fold(place, |place, model| place.model(model, ADDING));
    let path = place.path("journal");
    let setting = format!("--backend-config=holding,journal={}", path.display());
    let arguments = vec!["--model-control-mode=explicit".to_owned(), "--load-model=*".to_owned(), setting];
    let journal = move || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    (place, journal, arguments)
}

fn serve(place: &Place, arguments: &[String]) -> Running {
    place.serve(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_library_that_is_replaced_while_no_model_uses_it_serves_the_next_model() {
    let (place, journal, arguments) = holding(&["a", "b"]);
    let running = serve(&place, &arguments);
    assert_eq!((build_of(&running, "a"), build_of(&running, "b")), (1, 1));
    for model in ["a", "b"] {
        control(&running, model, "unload");
    }
    replace(&place.path("holding"), 2);
    for model in ["a", "b"] {
        control(&running, model, "load");
        assert_eq!(build_of(&running, model), 2);
    }
    // The old library ends when the last model has ended, which an unload does not wait for.
    eventually("the end of the old library", || journal().contains(&"finalized 1, 2 models".to_owned()));
    let lines = journal();
    assert!(lines.contains(&"initialized 2, 0 models".to_owned()), "its state is its own: {lines:?}");
    assert_eq!(lines.len(), 3, "{lines:?}");
    running.stop();
    assert_eq!(journal()[3..], ["finalized 2, 2 models"]);
}

#[test]
fn a_library_is_replaced_under_load_and_only_reloaded_models_use_the_new_one() {
    let (place, journal, arguments) = holding(&["a", "b"]);
    let running = serve(&place, &arguments);
    let library = place.path("holding/libtriton_holding.so");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let askers: Vec<_> = ["a", "b"]
            .map(|model| {
                let (running, done) = (&running, &done);
                scope.spawn(move || {
                    let mut builds = Vec::new();
                    while !done.load(SeqCst) {
                        let build = build_of(running, model);
                        if builds.last() != Some(&build) {
                            builds.push(build);
                        }
                    }
                    builds
                })
            })
            .into();
        eventually("requests", || running.statistics("b")["inference_count"].as_u64() > Some(3));
        fs::rename(&library, place.path("holding/old")).unwrap();
        replace(&place.path("holding"), 2);
        control(&running, "a", "load");
        assert_eq!(build_of(&running, "a"), 2);
        assert_eq!(build_of(&running, "b"), 1);
        assert!(!journal().iter().any(|line| line.starts_with("finalized")), "model b uses it");
        control(&running, "b", "load");
        assert_eq!(build_of(&running, "b"), 2);
        eventually("the end of the old library", || journal().contains(&"finalized 1, 2 models".to_owned()));
        let requests = || running.statistics("b")["inference_count"].as_u64();
        let before = requests();
        eventually("more requests", || requests() > before.map(|count| count + 3));
        done.store(true, SeqCst);
        for asker in askers {
            assert_eq!(asker.join().unwrap(), [1, 2]);
        }
    });
    control(&running, "a", "load");
    assert!(running.statistics("a")["inference_count"].as_u64() > Some(0), "it was not loaded again");
    running.stop();
}

#[test]
fn a_library_that_cannot_be_used_leaves_the_old_one_in_service() {
    let (place, journal, arguments) = holding(&["a"]);
    let running = serve(&place, &arguments);
    let library = place.path("holding/libtriton_holding.so");
    let whole = fs::read(&library).unwrap();
    for broken in [&whole[..whole.len() / 4], b"no library"] {
        let next = place.path("holding/next");
        fs::write(&next, broken).unwrap();
        fs::rename(&next, &library).unwrap();
        let (status, answer) = running.post("/v2/repository/models/a/load", &Value::Null);
        assert_eq!(status, 400, "{answer}");
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains("unable to load shared library"), "{text}");
        assert_eq!(build_of(&running, "a"), 1);
    }
    fs::remove_file(&library).unwrap();
    control(&running, "a", "load");
    assert_eq!(build_of(&running, "a"), 1, "nothing else is there");
    replace(&place.path("holding"), 3);
    control(&running, "a", "load");
    assert_eq!(build_of(&running, "a"), 3);
    eventually("the end of the old library", || journal().contains(&"finalized 1, 1 models".to_owned()));
    running.stop();
}

#[test]
fn a_polled_model_with_a_library_of_its_own_follows_the_library() {
    let (place, journal, _) = holding(&["a", "b"]);
    let own = place.directory_of("a").join("1");
    replace(&own, 5);
    let setting = format!("--backend-config=holding,journal={}", place.path("journal").display());
    let polling = ["--model-control-mode=poll", "--repository-poll-secs=1", "--repository-settle-ms=1"];
    let running = place.serve(&[&polling[..], &[&setting]].concat());
    assert_eq!((build_of(&running, "a"), build_of(&running, "b")), (5, 1));
    replace(&own, 6);
    eventually("the new library", || build_of(&running, "a") == 6);
    eventually("the end of the old library", || journal().contains(&"finalized 5, 1 models".to_owned()));
    // A library of all models is no file of a model.
    replace(&place.path("holding"), 2);
    replace(&own, 7);
    eventually("the new library", || build_of(&running, "a") == 7);
    assert_eq!(build_of(&running, "b"), 1);
    running.stop();
}

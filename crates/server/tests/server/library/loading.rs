//! Loads with configurations and files of the program, unloads, and the number of loads at a time.
use std::fs;

use testing::eventually;

use crate::library::shell::{EXPLICIT, JSON, OK, Place, Shell};

const NOT_POLLED: &str = "failed to poll from model repository";

/// A place with the model `m`, which is loaded.
fn loaded() -> (Place, Shell) {
    let place = Place::new();
    place.model("m", "of the repository", "");
    let shell = place.server(&[EXPLICIT, "startup=m"]);
    (place, shell)
}

/// The largest batch of a model, as its configuration says.
fn batch_size(shell: &mut Shell, model: &str) -> i64 {
    let answer = shell.ask(&["config", model]);
    let config: serde_json::Value = serde_json::from_str(answer.strip_prefix("ok ").unwrap()).unwrap();
    config["max_batch_size"].as_i64().unwrap()
}

#[test]
fn a_model_is_loaded_unloaded_and_loaded_again() {
    let (_place, mut shell) = loaded();
    assert_eq!(shell.ask(&["infer", "m", "5"]), "ok 5 of the repository");
    assert_eq!((shell.ready(), shell.ask(&["ready", "m"])), (vec!["m 1".to_owned()], "ok true".to_owned()));
    for unload in ["unload", "unload-dependents"] {
        assert_eq!(shell.ask(&[unload, "m"]), OK);
        assert_eq!(shell.ready(), [""; 0]);
        assert_eq!(
            shell.ask(&["infer", "m", "5"]),
            "Not found: Request for unknown model: 'm' has no available versions"
        );
        assert_eq!(shell.ask(&["load", "m"]), OK);
        assert_eq!(shell.ask(&["infer", "m", "6"]), "ok 6 of the repository");
    }
    // What is not loaded, or not known, is unloaded already.
    assert_eq!((shell.ask(&["unload", "x"]), shell.ask(&["unload-dependents", "x"])), (OK.into(), OK.into()));
    let unknown = shell.ask(&["load", "x"]);
    assert!(unknown.starts_with(&format!("Internal: failed to load 'x', {NOT_POLLED}")), "{unknown}");
}

#[test]
fn names_that_are_no_directory_of_a_repository_are_refused() {
    let (_place, mut shell) = loaded();
    assert_eq!(
        shell.ask(&["load", ""]),
        "Invalid argument: Model name cannot be empty. Please enter a valid name to deploy."
    );
    for name in ["..", "a/b"] {
        assert_eq!(
            shell.ask(&["load", name]),
            format!(
                "Invalid argument: invalid model name '{name}', model name must not contain path traversal characters"
            )
        );
    }
}

#[test]
fn a_failed_reload_leaves_the_old_copy_in_service() {
    let (place, mut shell) = loaded();
    let config = place.path("models/m/config.pbtxt");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "max_batch_size: many").unwrap();
    let failed = shell.ask(&["load", "m"]);
    assert!(failed.starts_with(&format!("Internal: failed to load 'm', {NOT_POLLED}")), "{failed}");
    fs::write(&config, good.replace("'identity'", "'missing'")).unwrap();
    let failed = shell.ask(&["load", "m"]);
    let expected = "Invalid argument: load failed for model 'm': version 1 is at UNAVAILABLE state: ";
    assert!(failed.starts_with(expected) && failed.ends_with(";\\n"), "{failed}");
    assert_eq!(shell.ask(&["infer", "m", "5"]), "ok 5 of the repository");
    assert_eq!((shell.ready(), shell.ask(&["server-ready"])), (vec!["m 1".to_owned()], "ok true".to_owned()));
}

/// The given configuration stays until the files change, or until the model is unloaded.
#[test]
fn a_load_may_bring_a_configuration() {
    let (place, mut shell) = loaded();
    let config = format!("s:config={JSON}");
    assert_eq!(batch_size(&mut shell, "m"), 8);
    assert_eq!(shell.ask(&["load", "m", &config]), OK);
    assert_eq!(batch_size(&mut shell, "m"), 3);
    // The other files are those of the repository.
    assert_eq!(shell.ask(&["infer", "m", "5"]), "ok 5 of the repository");
    assert_eq!(shell.ask(&["load", "m"]), OK);
    assert_eq!(batch_size(&mut shell, "m"), 3);
    place.model("m", "new", "");
    assert_eq!(shell.ask(&["load", "m"]), OK);
    assert_eq!((batch_size(&mut shell, "m"), shell.ask(&["infer", "m", "5"])), (8, "ok 5 new".to_owned()));
    for command in [&["load", "m", &config][..], &["unload", "m"], &["load", "m"]] {
        assert_eq!(shell.ask(command), OK);
    }
    assert_eq!(batch_size(&mut shell, "m"), 8);
    let bad = shell.ask(&["load", "m", r#"s:config={"max_batch_size":"#]);
    assert!(bad.starts_with(&format!("Internal: failed to load 'm', {NOT_POLLED}")), "{bad}");
    assert_eq!(batch_size(&mut shell, "m"), 8);
}

/// The given files take the place of the repository until the next load without parameters.
#[test]
fn a_load_may_bring_all_files() {
    let (place, mut shell) = loaded();
    let (labels, empty) = (place.path("given.txt"), place.path("empty"));
    fs::write(&labels, "given").unwrap();
    fs::write(&empty, "").unwrap();
    let files = [
        format!("s:config={JSON}"),
        format!("f:file:labels.txt={}", labels.display()),
        format!("f:file:1/model={}", empty.display()),
    ];
    let load = |shell: &mut Shell, model: &str, parameters: &[String]| {
        let words: Vec<_> =
            ["load", model].into_iter().chain(parameters.iter().map(String::as_str)).collect();
        shell.ask(&words)
    };
    assert_eq!(load(&mut shell, "m", &files), OK);
    assert_eq!((batch_size(&mut shell, "m"), shell.ask(&["infer", "m", "5"])), (3, "ok 5 given".to_owned()));
    assert_eq!(load(&mut shell, "m", &[]), OK);
    assert_eq!(shell.ask(&["infer", "m", "5"]), "ok 5 of the repository");
    // No repository has this model.
    assert_eq!(load(&mut shell, "new", &files), OK);
    assert_eq!(shell.ask(&["infer", "new", "9"]), "ok 9 given");
    assert_eq!(shell.ready(), ["m 1", "new 1"]);
    let refused = [
        (&files[1..], "Load parameter 'config' must be specified for model file override"),
        (
            &[files[0].clone(), format!("f:file:../x={}", empty.display())],
            "Invalid file parameter 'file:../x' with normalized path",
        ),
    ];
    for (parameters, reason) in refused {
        let answer = load(&mut shell, "m", parameters);
        assert!(
            answer.starts_with("Internal: failed to load 'm', ") && answer.contains(reason),
            "{reason}: {answer}"
        );
    }
    assert_eq!(shell.ask(&["infer", "m", "5"]), "ok 5 of the repository");
}

#[test]
fn parameters_of_a_load_that_mean_nothing_are_refused() {
    let (place, mut shell) = loaded();
    let bytes = format!("f:config={}", place.path("models/m/labels.txt").display());
    let refused = [
        ("s:colour=blue", "colour", "STRING"),
        ("i:config=5", "config", "INT"),
        ("b:config=true", "config", "BOOL"),
        ("d:config=1.5", "config", "DOUBLE"),
        (&bytes, "config", "BYTES"),
        ("s:file:1/model=text", "file:1/model", "STRING"),
    ];
    for (parameter, name, kind) in refused {
        assert_eq!(
            shell.ask(&["load", "m", parameter]),
            format!("Invalid argument: Unrecognized load parameter '{name}' with type '{kind}'")
        );
    }
    assert_eq!(
        shell.ask(&["load-null", "m"]),
        "Invalid argument: load parameters are not provided while parameter count is non-zero"
    );
    assert_eq!(batch_size(&mut shell, "m"), 8);
}

#[test]
fn so_many_models_load_at_a_time_and_no_more() {
    const MODELS: usize = 6;
    for threads in [1, 4] {
        let place = Place::new();
        let names: Vec<_> = (1..=MODELS).map(|hold| format!("m{hold}")).collect();
        for (hold, name) in (1..).zip(&names) {
            place.model(name, "", &place.held(hold));
        }
        let setting = format!("load_threads={threads}");
        let waiting = || (1..=MODELS).filter(|&hold| place.is_waiting(hold)).collect::<Vec<_>>();
        // Loads that end make room for as many others.
        let pass_all = || {
            let mut released = Vec::new();
            while released.len() < MODELS {
                let most = MODELS.min(released.len() + threads);
                eventually("as many loads", || waiting().len() >= most);
                // One load more would be seen at this or at a later step.
                assert_eq!(waiting().len(), most, "{threads} at a time");
                let next = waiting().into_iter().find(|hold| !released.contains(hold)).unwrap();
                place.release(next);
                released.push(next);
            }
        };
        let mut shell = place.shell();
        shell.send(&[
            "new",
            &format!("repository={}", place.path("models").display()),
            &format!("backends={}", place.path("backends").display()),
            EXPLICIT,
            "startup=*",
            &setting,
        ]);
        pass_all();
        assert_eq!(shell.answer(), OK);
        assert_eq!(shell.ready().len(), MODELS);

        // The same when the program loads them.
        for (hold, name) in (1..).zip(&names) {
            assert_eq!(shell.ask(&["unload", name]), OK);
            for file in [hold.to_string(), format!("{hold}.running")] {
                fs::remove_file(place.path("gate").join(file)).unwrap();
            }
        }
        for name in &names {
            assert_eq!(shell.ask(&["begin-load", name]), OK);
        }
        pass_all();
        shell.send(&["end-loads"]);
        names.iter().for_each(|name| assert_eq!(shell.answer(), OK, "{name}"));
        assert_eq!(shell.ready().len(), MODELS);
        assert_eq!(shell.ask(&["delete"]), OK);
    }
}

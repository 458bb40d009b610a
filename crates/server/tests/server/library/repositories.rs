//! Repositories that a program adds and removes, and looks for changes that it asks for.
use std::fs;

use crate::library::shell::{EXPLICIT, OK, POLL, Place};

#[test]
fn repositories_come_and_go_and_may_give_models_other_names() {
    let place = Place::new();
    place.model("m", "first", "");
    place.model_in("more", "m", "second", "name: 'm'");
    place.model_in("more", "n", "third", "");
    let more = place.path("more").display().to_string();
    let mut shell = place.server(&[EXPLICIT, "startup=m"]);

    let missing = format!("{more}/missing");
    assert_eq!(
        shell.ask(&["register", &missing]),
        format!("Invalid argument: failed to register '{missing}', repository not found")
    );
    assert_eq!(
        shell.ask(&["register", &more, "s:m=same", "s:n=same"]),
        format!("Invalid argument: failed to register '{more}', there is a conflicting mapping for 'same'")
    );
    assert_eq!(
        shell.ask(&["register", &more, "i:m=5"]),
        "Invalid argument: Mapped model name must be a string, found another type for m"
    );
    assert_eq!(shell.ask(&["register", &more, "s:m=other", "s:m=another"]), OK);
    assert_eq!(
        shell.ask(&["register", &more]),
        format!("Already exists: model repository '{more}' has already been registered")
    );

    // The mapped model has only its new names.
    for name in ["other", "another", "n", "m"] {
        assert_eq!(shell.ask(&["load", name]), OK, "{name}");
    }
    assert_eq!(shell.ready(), ["another 1", "m 1", "n 1", "other 1"]);
    for (name, label) in [("m", "first"), ("other", "second"), ("another", "second"), ("n", "third")] {
        assert_eq!(shell.ask(&["infer", name, "1"]), format!("ok 1 {label}"));
    }

    assert_eq!(shell.ask(&["unregister", &more]), OK);
    assert_eq!(
        shell.ask(&["unregister", &more]),
        format!("Invalid argument: failed to unregister '{more}', repository not found")
    );
    // Its models stay until they are unloaded, and cannot be loaded any more.
    assert_eq!(shell.ask(&["infer", "other", "2"]), "ok 2 second");
    assert_eq!(shell.ask(&["unload", "other"]), OK);
    let gone = shell.ask(&["load", "other"]);
    assert!(
        gone.starts_with("Internal: failed to load 'other', failed to poll from model repository"),
        "{gone}"
    );

    // Without a mapping, both repositories have the model.
    assert_eq!(shell.ask(&["register", &more]), OK);
    let twice = shell.ask(&["load", "m"]);
    assert!(
        twice.starts_with("Internal: failed to load 'm', failed to poll from model repository"),
        "{twice}"
    );
    assert_eq!(shell.ask(&["infer", "m", "3"]), "ok 3 first");
    assert_eq!(shell.ask(&["delete"]), OK);
}

#[test]
fn only_a_program_that_loads_its_models_may_change_the_repositories() {
    let place = Place::new();
    place.model("m", "first", "");
    let more = place.path("models").display().to_string();
    for mode in ["mode=0", POLL] {
        let mut shell = place.server(&[mode]);
        let suffix = "is not allowed if model control mode is not EXPLICIT";
        assert_eq!(shell.ask(&["register", &more]), format!("Unsupported: repository registration {suffix}"));
        assert_eq!(
            shell.ask(&["unregister", &more]),
            format!("Unsupported: repository unregistration {suffix}")
        );
        for command in ["load", "unload", "unload-dependents"] {
            assert_eq!(
                shell.ask(&[command, "m"]),
                "Unavailable: explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)"
            );
        }
        assert_eq!(shell.ask(&["infer", "m", "4"]), "ok 4 first");
        assert_eq!(shell.ask(&["delete"]), OK);
    }
}

#[test]
fn changes_take_effect_when_the_program_asks_for_a_look() {
    let place = Place::new();
    place.model("m", "first", "");
    let mut shell = place.server(&[POLL]);
    place.model("m", "second", "");
    place.model("n", "third", "");
    // Nothing happens by itself.
    assert_eq!(shell.ask(&["infer", "m", "1"]), "ok 1 first");
    assert_eq!(shell.ask(&["poll"]), OK);
    assert_eq!(shell.ready(), ["m 1", "n 1"]);
    assert_eq!(shell.ask(&["infer", "m", "2"]), "ok 2 second");

    // A broken model goes on as it was.
    let config = place.path("models/m/config.pbtxt");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "max_batch_size: many").unwrap();
    fs::remove_dir_all(place.path("models/n")).unwrap();
    assert_eq!(shell.ask(&["poll"]), OK);
    assert_eq!(shell.ready(), ["m 1"]);
    assert_eq!(shell.ask(&["infer", "m", "3"]), "ok 3 second");
    fs::write(&config, good).unwrap();
    assert_eq!(shell.ask(&["poll"]), OK);
    assert_eq!(shell.ask(&["infer", "m", "3"]), "ok 3 second");
    assert_eq!(shell.ask(&["delete"]), OK);
}

#[test]
fn a_program_that_does_not_poll_cannot_look() {
    let place = Place::new();
    place.model("m", "first", "");
    for mode in ["mode=0", EXPLICIT] {
        let mut shell = place.server(&[mode]);
        assert_eq!(shell.ask(&["poll"]), "Unavailable: polling is disabled");
        assert_eq!(shell.ask(&["delete"]), OK);
    }
}

#[test]
fn models_of_one_name_are_kept_apart_by_namespaces() {
    let place = Place::new();
    place.model("m", "first", "");
    place.model_in("more", "m", "second", "");
    let more = place.path("more").display().to_string();
    let mut shell = place.server(&[EXPLICIT, "namespacing=1"]);
    assert_eq!(shell.ask(&["register", &more]), OK);
    assert_eq!(shell.ask(&["load", "m"]), OK);
    assert_eq!(shell.ready(), ["m 1", "m 1"]);
    assert_eq!(
        shell.ask(&["infer", "m", "1"]),
        "Invalid argument: There are 2 identifiers of model 'm' in global map, model namespace must be provided to \
         resolve ambiguity."
    );
    assert_eq!(shell.ask(&["unload", "m"]), OK);
    assert_eq!(shell.ready(), [""; 0]);
    assert_eq!(shell.ask(&["delete"]), OK);
}

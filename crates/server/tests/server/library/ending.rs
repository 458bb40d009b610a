//! What is left of a server that has been deleted: nothing.
use testing::{command, eventually};

use crate::library::shell::{EXPLICIT, OK, Place, Shell};

/// All threads have been joined, so that no code of the library runs any more. The kernel may show the last of them for
/// a moment.
fn assert_no_threads(shell: &mut Shell) {
    assert_eq!(shell.threads().0, 0, "threads that nobody has waited for");
    eventually("the end of all threads", || shell.threads().1 <= 1);
}

#[test]
fn a_server_that_is_deleted_has_no_thread_left() {
    let place = Place::new();
    let model = |instances: usize| {
        let agent = "model_repository_agents { agents [ { name: 'agent' } ] }";
        let cached = "dynamic_batching {} response_cache { enable: true }";
        let instances = format!("instance_group {{ count: {instances} }}");
        place.model("m", "first", &format!("{instances} {cached} {agent}"));
    };
    model(2);
    place.model("failing", "", "parameters { key: 'fail_at' value { string_value: 'instance_initialize' } }");
    let config = place.path("models/failing/config.pbtxt");
    let failing = std::fs::read_to_string(&config).unwrap().replace("'identity'", "'failing'");
    std::fs::write(config, failing + "instance_group { count: 3 }").unwrap();
    let mut shell = place.shell();
    let caches = format!("caches={}", place.path("caches").display());
    let agents = format!("agents={}", place.path("agents").display());
    for _ in 0..5 {
        assert_eq!(shell.new_server(&place, &[EXPLICIT, "startup=m", &caches, &agents]), OK);
        for _ in 0..2 {
            assert_eq!(shell.ask(&["infer", "m", "7"]), "ok 7 first");
        }
        assert!(
            shell
                .ask(&["load", "failing"])
                .starts_with("Invalid argument: load failed for model 'failing': ")
        );
        for command in ["unload", "load"] {
            assert_eq!(shell.ask(&[command, "m"]), OK);
        }
        for instances in [4, 1, 2] {
            model(instances);
            assert_eq!(shell.ask(&["load", "m"]), OK);
        }
        assert_eq!(shell.ask(&["infer", "m", "8"]), "ok 8 first");
        assert!(shell.threads().0 > 0);
        assert_eq!(shell.ask(&["delete"]), OK);
        assert_no_threads(&mut shell);
    }
}

#[test]
fn a_server_that_cannot_start_has_no_thread_left() {
    let place = Place::new();
    place.model("m", "first", "");
    place.model("bad", "", "max_batch_size: many");
    let mut shell = place.shell();
    for _ in 0..3 {
        assert_eq!(shell.new_server(&place, &["mode=0"]), "Internal: failed to load all models");
        assert_no_threads(&mut shell);
    }
}

#[test]
fn deleting_a_server_waits_for_a_load_whose_caller_is_refused_at_once() {
    let place = Place::new();
    place.model("slow", "", &place.held(1));
    let mut shell = place.server(&[EXPLICIT]);
    assert_eq!(shell.ask(&["begin-load", "slow"]), OK);
    eventually("the load", || place.is_waiting(1));
    shell.send(&["delete"]);
    // The program reads this command when the server has been deleted.
    shell.send(&["end-loads"]);
    eventually("the refusal", || !shell.has_loaders());
    place.release(1);
    assert_eq!(shell.answer(), OK);
    assert_eq!(shell.answer(), "Unavailable: Server exiting");
    assert_no_threads(&mut shell);
}

#[test]
fn a_server_that_cannot_end_is_not_deleted_and_can_be_deleted_later() {
    let place = Place::new();
    place.model("slow", "", &place.held(1));
    let mut shell = place.server(&[EXPLICIT, "exit_timeout=1"]);
    assert_eq!(shell.ask(&["begin-load", "slow"]), OK);
    eventually("the load", || place.is_waiting(1));
    let expired = "Internal: Exit timeout expired. Exiting immediately.";
    assert_eq!(shell.ask(&["delete"]), expired);
    assert_eq!(shell.ask(&["delete"]), expired);
    assert_eq!(
        shell.ask(&["infer", "slow", "1"]),
        "Not found: Request for unknown model: 'slow' has no available versions"
    );
    place.release(1);
    assert_eq!(shell.ask(&["delete"]), OK);
    assert_eq!(shell.ask(&["end-loads"]), "Unavailable: Server exiting");
    assert_no_threads(&mut shell);
}

/// Code of the library that still ran after the close would crash the program.
#[test]
fn a_program_may_close_the_library_after_it_has_deleted_its_server() {
    let place = Place::new();
    place.model("m", "first", "instance_group { count: 2 }");
    let program = place.program("closing", &["-Wl,--as-needed"]);
    let mut command = command(program);
    let output =
        command.args([place.library(), &place.path("models"), &place.path("backends")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ready ")).count(), 5, "{said}");
}

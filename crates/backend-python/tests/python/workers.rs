//! What happens to a worker: it dies, hangs, is stopped, or has too much. Its requests fail soon, and another one starts.
use std::{fs, process::Command};

use vocabulary::{Error, ErrorCode};

use crate::support::{CONFIG, Loaded, TestModel, eventually, request};

/// Does what the value says: 1 exits, 2 loops, 3 takes memory, 4 stops itself; 0 answers with its process number.
const UNRULY: &str = "def execute(self, requests):\n    what = x_of(requests[0])[0]\n    if what == 1:\n        os._exit(7)\n    \
                      while what == 2:\n        pass\n    if what == 3:\n        np.ones(1 << 30)\n    if what == 4:\n        \
                      os.kill(os.getpid(), 19)\n    if what == 5:\n        time.sleep(1000)\n    return [y([os.getpid()]) for _ in requests]";

fn unruly(parameters: &str) -> TestModel {
    TestModel::new(&format!("{CONFIG}{parameters}"), UNRULY)
}

fn parameter(name: &str, value: &str) -> String {
    format!("parameters {{ key: '{name}' value: {{ string_value: '{value}' }} }}\n")
}

fn pid(loaded: &Loaded) -> u32 {
    loaded.ask(&[0.0]).unwrap()[0] as u32
}

fn assert_unhealthy(error: &Error) {
    assert_eq!(error.with_code(), "Internal: Stub process 'm_0' is not healthy.");
}

#[test]
fn a_worker_that_exits_fails_its_request_and_comes_back() {
    let loaded = unruly("").load().unwrap();
    let first = pid(&loaded);
    let error = loaded.failure(&[1.0]);
    assert_unhealthy(&error);
    assert!(pid(&loaded) != first, "requests wait for the next worker");
    assert_eq!(loaded.model.ready(), Ok(()));
}

#[test]
fn a_killed_worker_fails_all_its_requests_and_comes_back() {
    let loaded = unruly("").load().unwrap();
    let first = pid(&loaded);
    let streams = loaded.send(vec![request(&[5.0]), request(&[5.0])]);
    eventually("the model sleeps", || {
        fs::read_to_string(format!("/proc/{first}/wchan")).is_ok_and(|place| place.contains("nanosleep"))
    });
    Command::new("kill").args(["-9", &first.to_string()]).status().unwrap();
    for stream in streams {
        assert_unhealthy(&crate::support::only(stream).unwrap_err());
    }
    assert_ne!(pid(&loaded), first);
}

#[test]
fn a_stopped_worker_is_ended_within_a_second() {
    let loaded = unruly("").load().unwrap();
    let first = pid(&loaded);
    let error = loaded.failure(&[4.0]);
    assert_unhealthy(&error);
    assert_ne!(pid(&loaded), first);
}

#[test]
fn an_endless_loop_ends_at_the_models_limits() {
    for limit in ["MAX_EXECUTE_SECONDS", "MAX_EXECUTE_PROCESSOR_SECONDS"] {
        let loaded = unruly(&parameter(limit, "0.3")).load().unwrap();
        let error = loaded.failure(&[2.0]);
        assert_unhealthy(&error);
        pid(&loaded);
    }
}

#[test]
fn a_worker_has_no_more_memory_than_it_may() {
    let loaded = unruly(&parameter("MAX_MEMORY_BYTES", &(2_u64 << 30).to_string())).load().unwrap();
    let error = loaded.failure(&[3.0]);
    assert!(error.message.contains("MemoryError"), "{error}");
    pid(&loaded);
}

#[test]
fn a_worker_that_dies_again_and_again_is_not_waited_for() {
    let methods = "def initialize(self, args):\n    marker = os.path.dirname(args['model_repository']) + '/started'\n    \
                   if os.path.exists(marker):\n        raise ValueError('never again')\n    open(marker, 'w').close()\n\
                   def execute(self, requests):\n    os._exit(1)";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    assert_unhealthy(&loaded.failure(&[1.0]));
    // The second start fails, the third after a second and the fourth after four more. Then nobody waits any longer.
    loop {
        assert!(loaded.model.ready().is_err());
        let error = loaded.failure(&[1.0]);
        assert_eq!(error.message, "Stub process 'm_0' is not healthy.");
        if error.code == ErrorCode::Unavailable {
            return;
        }
    }
}

#[test]
fn a_model_that_does_not_finalize_is_ended() {
    let methods = "def initialize(self, args):\n    open(os.path.dirname(args['model_repository']) + '/pid', 'w').write(str(os.getpid()))\n\
                   def finalize(self):\n    time.sleep(1000)";
    let model = TestModel::new(CONFIG, methods).with_setting("stub-timeout-seconds", "5");
    drop(model.load().unwrap());
    let pid = fs::read_to_string(model.folder().join("pid")).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn what_a_model_starts_ends_with_it() {
    let methods = "def initialize(self, args):\n    import subprocess\n    child = subprocess.Popen(['sleep', '1000'])\n    \
                   open(os.path.dirname(args['model_repository']) + '/pid', 'w').write(str(child.pid))";
    let model = TestModel::new(CONFIG, methods);
    drop(model.load().unwrap());
    let pid = fs::read_to_string(model.folder().join("pid")).unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    eventually("the child ends", || state().is_empty() || state().contains(") Z "));
}

/// Longer than any test may take.
const NEVER: (&str, &str) = ("stub-timeout-seconds", "3600");

#[test]
fn a_worker_that_is_stopped_while_it_finalizes_is_ended() {
    let methods = "def finalize(self):\n    os.kill(os.getpid(), 19)";
    drop(TestModel::new(CONFIG, methods).with_setting(NEVER.0, NEVER.1).load().unwrap());
}

#[test]
fn a_worker_that_is_stopped_while_it_initializes_again_is_ended_and_another_one_comes() {
    // The first process ends with its request, the second one stops, and the third one serves.
    let methods = "def initialize(self, args):\n    starts = args['model_repository'] + '/starts'\n    \
                   open(starts, 'a').write('x')\n    self.number = len(open(starts).read())\n    \
                   if self.number == 2:\n        os.kill(os.getpid(), 19)\n\
                   def execute(self, requests):\n    if self.number == 1:\n        os._exit(1)\n    \
                   return [y([self.number]) for _ in requests]";
    let loaded = TestModel::new(CONFIG, methods).with_setting(NEVER.0, NEVER.1).load().unwrap();
    assert_eq!(loaded.failure(&[1.0]).message, "Stub process 'm_0' is not healthy.");
    let mut answer = Vec::new();
    eventually("another process serves", || match loaded.ask(&[1.0]) {
        Ok(number) => {
            answer = number;
            true
        }
        Err(_) => false,
    });
    assert_eq!(answer, [3.0]);
}

#[test]
fn what_a_model_starts_in_a_session_of_its_own_ends_with_it() {
    let methods = "def execute(self, requests):\n    import subprocess\n    \
                   child = subprocess.Popen(['sleep', '1000'], start_new_session=True, env={})\n    \
                   if x_of(requests[0])[0] == 1:\n        os._exit(1)\n    return [y([child.pid]) for _ in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    let first = pid(&loaded);
    assert_unhealthy(&loaded.failure(&[1.0]));
    let second = pid(&loaded);
    assert!(!runs(first) && runs(second), "the process that started the first one has ended");
    drop(loaded);
    eventually("the second one ends with the model", || !runs(second));
}

/// Whether a process runs. One that has ended may wait for the init process of the system.
fn runs(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
}

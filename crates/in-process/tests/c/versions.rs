//! Which version answers says so, also if it has been replaced and only ends its sequences.
use engine::{ModelControl, StartupModels};
use in_process::request::*;

use crate::support::{App, MOVABLE, Native, TestRequest, TestServer, pinned, result_of};

const SEQUENCES: &str = "sequence_batching { max_sequence_idle_microseconds: 60000000
    control_input { name: 'START' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } }";

/// The flag of the first request of a sequence.
const START: u32 = 1;

/// The version that answers a request of a sequence.
fn version_of(server: &TestServer, app: &App, sequence: u64, flags: u32) -> i64 {
    let request = TestRequest::new(server, app).input(b"a");
    // SAFETY: a live request.
    unsafe {
        result_of(TRITONSERVER_InferenceRequestSetCorrelationId(request.handle, sequence)).unwrap();
        result_of(TRITONSERVER_InferenceRequestSetFlags(request.handle, flags)).unwrap();
    }
    let answer = request.answer();
    assert_eq!(answer.error, None);
    answer.version
}

#[test]
fn a_retired_version_that_answers_a_sequence_names_itself() {
    for config in [format!("{MOVABLE} {SEQUENCES}"), pinned(SEQUENCES)] {
        let control = ModelControl::Explicit(StartupModels::Named(["m".to_owned()].into()));
        let server = TestServer::controlled(&[("m", &config)], Native::echo(), control);
        let app = App::new();
        assert_eq!(version_of(&server, &app, 1, START), 1);
        server.add_version("m", "2");
        assert_eq!(version_of(&server, &app, 1, 0), 1);
        assert_eq!(version_of(&server, &app, 2, START), 2);
    }
}

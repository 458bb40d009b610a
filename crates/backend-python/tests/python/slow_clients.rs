//! Clients that read slowly where the model waits for them: only the model waits, and not who watches its worker.
use std::{
    num::NonZeroUsize,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{CONFIG, Loaded, TestModel, eventually, floats, next, request};

/// Sends as many responses as the value says, each with the number of the process.
const STREAM: &str = "def execute(self, requests):\n    for request in requests:\n        sender = request.get_response_sender()\n        \
                      for _ in range(int(x_of(request)[0])):\n            sender.send(y([os.getpid()]))\n        \
                      sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)";

fn streamer(parameters: &str) -> Loaded {
    let config = format!("{CONFIG}model_transaction_policy {{ decoupled: true }}\n{parameters}");
    TestModel::new(&config, STREAM).load().unwrap()
}

/// More responses than a socket holds.
const MANY: u16 = 20_000;

#[test]
fn a_worker_whose_client_does_not_read_is_watched() {
    let loaded = streamer("");
    let mut stream = loaded.send_to_reader(vec![request(&[f32::from(MANY)])], NonZeroUsize::new(2)).remove(0);
    let worker = floats(&next(&mut stream).unwrap().result.unwrap())[0] as u32;
    Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap();
    eventually("the server sees the end", || !Path::new(&format!("/proc/{worker}")).exists());
    let error = loop {
        match next(&mut stream).expect("the stream ends with an error").result {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.message, "Stub process 'm_0' is not healthy.");
    assert!(next(&mut stream).is_none());
}

#[test]
fn a_stopped_worker_whose_client_does_not_read_is_ended() {
    let loaded = streamer("");
    let mut stream = loaded.send_to_reader(vec![request(&[f32::from(MANY)])], NonZeroUsize::new(1)).remove(0);
    let worker = floats(&next(&mut stream).unwrap().result.unwrap())[0] as u32;
    Command::new("kill").args(["-STOP", &worker.to_string()]).status().unwrap();
    eventually("the worker is ended", || !Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn the_time_of_a_client_is_no_time_of_the_execution() {
    const LIMIT: Duration = Duration::from_secs(1);
    let limit = LIMIT.as_secs();
    let loaded = streamer(&format!(
        "parameters {{ key: 'MAX_EXECUTE_SECONDS' value: {{ string_value: '{limit}' }} }}\n"
    ));
    let mut stream = loaded.send_to_reader(vec![request(&[f32::from(MANY)])], NonZeroUsize::new(1)).remove(0);
    let first = floats(&next(&mut stream).unwrap().result.unwrap());
    let begin = Instant::now();
    eventually("the client is slower than the limit of the execution", || begin.elapsed() > LIMIT * 3 / 2);
    for _ in 0..100 {
        assert_eq!(floats(&next(&mut stream).unwrap().result.unwrap()), first);
    }
}

#[test]
fn all_responses_come_in_order_whatever_the_client_does() {
    let methods = STREAM.replace("os.getpid()", "number").replace("for _ in", "for number in");
    let config = format!("{CONFIG}model_transaction_policy {{ decoupled: true }}\n");
    let loaded = TestModel::new(&config, &methods).load().unwrap();
    let requests = vec![request(&[300.0]), request(&[500.0])];
    let streams = loaded.send_to_reader(requests, NonZeroUsize::new(3));
    for (mut stream, count) in streams.into_iter().zip([300_u16, 500]) {
        for number in 0..count {
            assert_eq!(floats(&next(&mut stream).unwrap().result.unwrap()), [f32::from(number)]);
        }
        assert!(next(&mut stream).is_none());
    }
}

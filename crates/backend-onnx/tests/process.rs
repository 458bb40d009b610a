//! Test of what exists once for each process: the pool that all sessions may share, and the runtime's messages in the
//! log.
#![expect(clippy::unwrap_used, reason = "what supports tests is part of them")]

use std::sync::Mutex;

use vocabulary::DataType;

use crate::{
    graph::Graph,
    support::{Model, backend, read_floats, request, tensor},
};

#[expect(dead_code, reason = "the tests of the backend need the rest")]
#[path = "onnx/graph.rs"]
mod graph;
#[expect(dead_code, unused_imports, reason = "the tests of the backend need the rest")]
#[path = "onnx/support.rs"]
mod support;

struct LogRecorder(Mutex<Vec<String>>);
static HEARD: LogRecorder = LogRecorder(Mutex::new(Vec::new()));

impl log::Log for LogRecorder {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(format!("{} {} {}", record.level(), record.target(), record.args()));
    }
    fn flush(&self) {}
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// There is only one test, because a process keeps the first environment that it makes.
#[test]
fn sessions_share_a_pool_and_failures_are_logged() {
    log::set_logger(&HEARD).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let table = [1_f32, 2.].map(f32::to_le_bytes).concat();
    let graph = || {
        Graph::default()
            .input("I", DataType::Int64, &[-1, 1])
            .output("Y", DataType::Fp32, &[-1, 1])
            .initializer("TABLE", DataType::Fp32, &[2], &table)
            .node("Gather", &["TABLE", "I"], &["Y"])
    };
    let model = Model::new(graph(), "").setting("enable-global-threadpool", "1");
    let model = model.setting("intra_op_thread_count", "4").setting("inter_op_thread_count", "1");
    let backend = backend();
    let before = threads();
    let mut sessions = vec![model.load(&backend).unwrap()];
    let with_pool = threads();
    assert!(with_pool >= before + 3, "{before} {with_pool}");
    sessions.extend((0..3).map(|_| model.load(&backend).unwrap()));
    assert_eq!(threads(), with_pool);

    let index =
        |index: i64| request(vec![tensor("I", DataType::Int64, &[1, 1], index.to_le_bytes().to_vec())]);
    for session in &mut sessions {
        let answer = session.run(vec![index(1)]).pop().unwrap().unwrap();
        assert_eq!(read_floats(&answer, "Y"), [2.]);
    }
    // A probe at load may fail. Its failure is no message for an operator.
    Model::new(Graph::of_seven_columns(), "").load(&backend).unwrap();
    let heard = || HEARD.0.lock().unwrap().join("\n");
    assert!(heard().contains("no probe could tell: "), "{}", heard());
    assert!(!heard().contains("ERROR"), "{}", heard());
    sessions[0].run(vec![index(9)]).pop().unwrap().unwrap_err();
    let heard = heard();
    assert!(heard.contains("INFO backend_onnx::model using ONNX Runtime 1."), "{heard}");
    let (_, error) = heard.split_once("ERROR onnxruntime ").unwrap();
    assert!(error.contains(" (model 'model', version 1; "), "{error}");
    let details = ["DEBUG onnxruntime ", "TRACE onnxruntime "];
    assert!(
        !details.iter().any(|detail| heard.contains(detail)),
        "verbose level 1 has none of its details: {heard}"
    );
    log::set_max_level(log::LevelFilter::Trace);
    sessions.push(model.load(&backend).unwrap());
    let heard = HEARD.0.lock().unwrap().join("\n");
    assert!(heard.contains("TRACE onnxruntime ") && !heard.contains("DEBUG onnxruntime "), "{heard}");
}

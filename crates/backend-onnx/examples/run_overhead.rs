//! Measures the overhead of the backend: nanoseconds for each run of an addition of 16 numbers, bare and through an
//! instance.
//!
//! `run_overhead [--batch N] [--requests K]`: K requests of N rows each in a run. The library is found as in the tests.
use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    time::Instant,
};

use backend_onnx::{BareLoop, OnnxBackend};
use bytes::Bytes;
use config::{Completion, CompletionContext, ConfigSource, ModelLayout, declare, finish};
use inference::{
    ExecutionTimes, Request, RequestInputs, Response, ResponseStream, Timeline, Timestamp, Unobserved,
    UnreadPolicy,
    backend::{Backend, Batch, BuiltInstance, Execution, InstanceDevice, InstanceSpec, ModelSource},
    response_channel,
};
use native_backend::LibrarySearch;
use vocabulary::{DataType, Error, Shape, Tensor};

#[expect(dead_code, reason = "one graph needs only a part of it")]
#[path = "../tests/onnx/graph.rs"]
mod graph;

const ROUNDS: u32 = 20_000;
const REPETITIONS: usize = 7;
const CONFIG: &str = "backend: 'onnxruntime' max_batch_size: 1024";

fn clock() -> Timestamp {
    static START: OnceLock<Instant> = OnceLock::new();
    let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
    Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut rows, mut requests) = (1_u32, 1_usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--batch" => rows = value.parse()?,
            "--requests" => requests = value.parse()?,
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    let fetched = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/onnxruntime");
    let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map_or(fetched, Into::into);
    let search = LibrarySearch { named: Some(named), ..LibrarySearch::default() };
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("model.onnx");
    std::fs::write(&file, addition())?;

    let total = rows * u32::try_from(requests)?;
    let mut bare = BareLoop::open(&search, &file, total, NonZeroUsize::MIN)?;
    let backend = OnnxBackend::new(search);
    let mut instance = instance(&backend, directory.path())?;
    let mut best = [f64::MAX; 3];
    for _ in 0..REPETITIONS {
        best[0] = best[0].min(per_round(|| bare.run(ROUNDS).map(|_| ())));
        let asked: Vec<Asked> = (0..ROUNDS).map(|_| Asked::new(rows, requests)).collect();
        best[1] = best[1].min(per_round(move || {
            // The cost of a run without the instance: making and answering requests is not work of the backend.
            for Asked { batch, streams } in asked {
                batch
                    .executions
                    .into_iter()
                    .for_each(|execution| execution.responder.complete(Response::default()));
                drop(streams);
            }
            Ok(())
        }));
        let asked: Vec<Asked> = (0..ROUNDS).map(|_| Asked::new(rows, requests)).collect();
        best[2] = best[2].min(per_round(|| {
            for Asked { batch, streams } in asked {
                instance.execute(batch);
                drop(streams);
            }
            Ok(())
        }));
    }
    let [bare, answering, through] = best;
    println!("bare_run_ns={bare:.0} answering_ns={answering:.0} through_instance_ns={through:.0}");
    println!("added_by_backend_ns={:.0} copied_bytes={}", through - answering - bare, backend.copied_bytes());
    Ok(())
}

fn addition() -> Vec<u8> {
    let weights = [0; 64];
    graph::Graph::default()
        .input("X", DataType::Fp32, &[-1, 16])
        .output("Y", DataType::Fp32, &[-1, 16])
        .initializer("W", DataType::Fp32, &[16], &weights)
        .node("Add", &["X", "W"], &["Y"])
        .encode()
}

fn instance(
    backend: &OnnxBackend,
    directory: &std::path::Path,
) -> Result<Box<dyn inference::backend::BackendInstance + Send>, Error> {
    let layout = ModelLayout { name: "addition".to_owned(), ..ModelLayout::default() };
    let path = directory.join("config.pbtxt");
    let declared =
        declare(ConfigSource::Text { path: &path, content: CONFIG.as_bytes() }, &layout, Completion::Auto)?;
    let model = backend.open(&ModelSource {
        name: "addition".into(),
        version: 1,
        model_directory: directory.to_owned(),
        version_directory: directory.to_owned(),
        declared: Arc::new(declared.config.clone()),
        settings: std::collections::BTreeMap::new(),
        inferer: None,
        host_policies: Default::default(),
    })?;
    let mut completed = declared.config.clone();
    let request_rows = model.complete_config(&mut completed)?;
    let environment = CompletionContext { request_rows, ..CompletionContext::default() };
    let config = Arc::new(finish(&declared, completed, &environment)?.typed);
    let spec = InstanceSpec {
        name: "addition_0".into(),
        device: InstanceDevice::Cpu,
        threads: NonZeroUsize::MIN,
        passive: false,
    };
    match model.instance(&config, &spec)? {
        BuiltInstance::Movable(instance) => Ok(instance),
        BuiltInstance::ThreadBound(_) => Err(Error::internal("an instance may change threads")),
    }
}

/// A batch and the streams of its responses.
struct Asked {
    batch: Batch,
    streams: Vec<ResponseStream>,
}

impl Asked {
    fn new(rows: u32, requests: usize) -> Self {
        let len = 64 * rows as usize;
        let ask = |_| {
            let room = Bytes::from(vec![0_u8; len + 8]);
            let start = room.as_ptr().align_offset(4);
            let shape = Shape::from_slice(&[rows.into(), 16]);
            let input = Tensor::new("X".into(), DataType::Fp32, shape, room.slice(start..start + len));
            let request = Request { inputs: RequestInputs::Tensors(vec![input]), ..Request::default() };
            let (responder, stream) = response_channel(
                Timeline::new(clock(), rows),
                Arc::new(Unobserved),
                UnreadPolicy::unlimited(),
            );
            (Execution::new(request, responder), stream)
        };
        let (executions, streams): (Vec<_>, Vec<_>) = (0..requests).map(ask).unzip();
        let total = rows * u32::try_from(requests).unwrap_or(u32::MAX);
        Self {
            batch: Batch { executions, execution_times: Arc::new(ExecutionTimes::start(total, clock)) },
            streams,
        }
    }
}

/// Nanoseconds for each of the rounds that `work` runs.
fn per_round(work: impl FnOnce() -> Result<(), Error>) -> f64 {
    let began = Instant::now();
    work().expect("the runtime adds numbers");
    began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

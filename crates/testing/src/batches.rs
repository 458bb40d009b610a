//! Batches for the instance of a backend, and the answers to their requests.
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use inference::{
    ExecutionTimes, Request, RequestInputs, Response, ResponseObserver, ResponseStream, Timeline, Timestamp,
    Unobserved, UnreadPolicy,
    backend::{BackendInstance, Batch, Execution, SequenceState},
    response_channel,
};
use vocabulary::{DataType, Error, Name, Tensor, TensorMemory};

/// A request with `observer` as its response observer, and the stream of its responses.
pub fn execution(request: Request, observer: Arc<dyn ResponseObserver>) -> (Execution, ResponseStream) {
    let rows = request.tensors().first().and_then(|tensor| tensor.shape().first());
    let rows = rows.and_then(|&rows| u32::try_from(rows).ok()).unwrap_or(1);
    let timeline = Timeline::new(Timestamp::from_nanos(1), rows);
    let (responder, stream) = response_channel(timeline, observer, UnreadPolicy::unlimited());
    (Execution::new(request, responder), stream)
}

/// Runs one batch.
pub fn execute(instance: &mut dyn BackendInstance, executions: Vec<Execution>) {
    let total = executions.iter().map(|execution| execution.responder.timeline().rows).sum();
    let execution_times = Arc::new(ExecutionTimes::start(total, || Timestamp::from_nanos(1)));
    instance.execute(Batch { executions, execution_times });
}

/// Runs requests as one batch, each with the state of its sequence, after a change to their streams.
pub fn run_batch(
    instance: &mut dyn BackendInstance,
    rows: Vec<(Request, Option<SequenceState>)>,
    happening: impl FnOnce(&[ResponseStream]),
) -> Vec<Result<Response, Error>> {
    let (executions, streams): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .map(|(request, state)| {
            let (execution, stream) = execution(request, Arc::new(Unobserved));
            (execution.with_state(state), stream)
        })
        .unzip();
    happening(&streams);
    execute(instance, executions);
    streams.into_iter().map(answer).collect()
}

/// The answer that has come.
///
/// # Panics
/// No answer has come.
fn answer(mut stream: ResponseStream) -> Result<Response, Error> {
    match stream.poll_item(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(item)) => item.result,
        other => panic!("every request is answered when the batch has run: {other:?}"),
    }
}

/// A request with those inputs, for all outputs.
pub fn request(inputs: Vec<Tensor>) -> Request {
    Request { inputs: RequestInputs::Tensors(inputs), ..Request::default() }
}

/// A tensor of any datatype.
pub fn tensor(name: &str, datatype: DataType, shape: &[i64], data: impl Into<TensorMemory>) -> Tensor {
    Tensor::new(Name::new(name), datatype, shape.into(), data)
}

/// A tensor of FP32.
pub fn floats(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    tensor(name, DataType::Fp32, shape, float_bytes(values))
}

/// The bytes of FP32 elements.
pub fn float_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Strings in the form of the protocols.
pub fn strings(values: &[&[u8]]) -> Vec<u8> {
    let length = |value: &[u8]| u32::try_from(value.len()).expect("strings of tests are short").to_le_bytes();
    values.iter().flat_map(|value| [&length(value)[..], value].concat()).collect()
}

/// The values of an FP32 output.
///
/// # Panics
/// The response does not have the output in memory of the server.
pub fn read_floats(response: &Response, output: &str) -> Vec<f32> {
    let bytes = bytes_of(response, output);
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// The bytes of an output.
///
/// # Panics
/// As [`read_floats`].
pub fn bytes_of(response: &Response, output: &str) -> Bytes {
    let tensor = response.output(output).expect("the response has the output");
    tensor.host().expect("its bytes can be read").contiguous()
}

/// The shape of an output.
///
/// # Panics
/// The response does not have the output.
pub fn shape_of(response: &Response, output: &str) -> Vec<i64> {
    response.output(output).expect("the response has the output").shape().to_vec()
}

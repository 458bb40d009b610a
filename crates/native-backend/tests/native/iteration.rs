//! Tests of iterative models: requests that are done leave, the others run again.
use std::{mem::take, sync::Arc};

use inference::{
    ResponseStream, Unobserved,
    backend::{Execution, SequenceState, SlotGuard, SlotOwner, SlotRef},
    lock::Mutex,
};
use testing::batches::{execution, floats, read_floats, request};
use vocabulary::{DataType, Error};

use crate::{
    graph::{MadeOutput, MemoryGraph},
    support::load,
};

/// `NEXT = COUNT + X`; `DONE` when that is 3 or more.
fn counter() -> MemoryGraph {
    let row: &[i64] = &[-1, 1];
    MemoryGraph::new(
        &[("X", DataType::Fp32, row), ("COUNT", DataType::Fp32, row)],
        &[("NEXT", DataType::Fp32, row), ("DONE", DataType::Bool, row)],
        |given| {
            let next: Vec<f32> =
                given[0].floats().iter().zip(given[1].floats()).map(|(one, other)| one + other).collect();
            let done = next.iter().map(|&value| u8::from(value >= 3.)).collect();
            let shape = &given[0].shape;
            Ok(vec![MadeOutput::floats(shape, &next), MadeOutput::numbers(DataType::Bool, shape, done)])
        },
    )
}

const CONFIG: &str = "max_batch_size: 8
    output { name: 'NEXT' data_type: TYPE_FP32 dims: 1 }
    sequence_batching {
        iterative_sequence: true
        state { input_name: 'COUNT' output_name: 'NEXT' data_type: TYPE_FP32 dims: 1 }
    }
    parameters { key: 'ITERATION_DONE_OUTPUT' value { string_value: 'DONE' } }";

/// Keeps the requests that are to run again.
#[derive(Default)]
struct Waiting(Mutex<Vec<Execution>>);

impl SlotOwner for Waiting {
    fn returned(self: Arc<Self>, _: usize, _: u32) {}

    fn reschedule(self: Arc<Self>, slot: SlotRef, execution: Execution) -> Result<(), (Error, Execution)> {
        self.0.lock().push(execution.with_slot_guard(SlotGuard::new(slot)));
        Ok(())
    }
}

impl Waiting {
    /// A request that adds a number in each run.
    fn ask(self: &Arc<Self>, number: f32) -> ResponseStream {
        let (execution, stream) =
            execution(request(vec![floats("X", &[1, 1], &[number])]), Arc::new(Unobserved));
        let state = SequenceState::new([("NEXT".into(), floats("COUNT", &[1, 1], &[0.]))]);
        let slot = SlotRef { slot_owner: self.clone(), instance: 0, slot: 0, attributes: Default::default() };
        let execution = execution.with_state(Some(state)).with_slot_guard(SlotGuard::new(slot));
        self.0.lock().push(execution);
        stream
    }
}

/// The responses that have come.
fn responses_so_far(stream: &mut ResponseStream) -> Vec<Result<f32, String>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut heard = Vec::new();
    while let std::task::Poll::Ready(Some(item)) = stream.poll_item(&mut context) {
        let value = item.result.map(|response| read_floats(&response, "NEXT")[0]);
        heard.push(value.map_err(|error| error.message.into_owned()));
    }
    heard
}

#[test]
fn requests_run_until_they_are_done_and_cancelled_ones_end() {
    for (decoupled, expected) in [(false, vec![Ok(3.)]), (true, vec![Ok(1.), Ok(2.), Ok(3.)])] {
        let config = format!("{CONFIG} model_transaction_policy {{ decoupled: {decoupled} }}");
        let (mut model, waiting) = (load(counter(), &config).unwrap(), Arc::new(Waiting::default()));
        let [mut long, mut short, mut gone] = [1., 3., 1.].map(|number| waiting.ask(number));
        let mut sizes = Vec::new();
        for round in 0..3 {
            let executions = take(&mut *waiting.0.lock());
            sizes.push(executions.len());
            model.execute(executions);
            if round == 0 {
                assert_eq!(responses_so_far(&mut short), [Ok(3.)]);
                gone.cancel();
            }
        }
        assert_eq!(sizes, [3, 2, 1], "the one that is done leaves, then the cancelled one");
        assert_eq!(responses_so_far(&mut long), expected);
        assert_eq!(responses_so_far(&mut gone).pop(), Some(Err("request was cancelled".to_owned())));
        assert_eq!(waiting.0.lock().len(), 0);
    }
}

//! Tests of iterative models: a countdown reports after each run which requests are done, and a small scheduler runs
//! the others again.
use std::{mem::take, sync::Arc};

use inference::{
    Request, Response, ResponseItem, ResponseStream, Unobserved,
    backend::{Execution, SequenceState, SlotGuard, SlotOwner, SlotRef, not_iterative},
};
use parking_lot::Mutex;
use vocabulary::{DataType, Error};

use crate::{
    graph::{Attribute, Graph},
    support::{Loaded, Model, backend, execution, float_bytes, floats, read_floats, request, tensor},
};

/// `OUT` is `X` in the first run and one less in each later run; `DONE` when it has reached 1.
fn countdown() -> Graph {
    Graph::default()
        .input("X", DataType::Fp32, &[-1, 1])
        .input("START", DataType::Bool, &[-1, 1])
        .input("COUNT", DataType::Fp32, &[-1, 1])
        .initializer("ONE", DataType::Fp32, &[1], &float_bytes(&[1.]))
        .output("OUT", DataType::Fp32, &[-1, 1])
        .output("NEXT", DataType::Fp32, &[-1, 1])
        .output("DONE", DataType::Bool, &[-1, 1])
        .node("Where", &["START", "X", "COUNT"], &["OUT"])
        .node("Sub", &["OUT", "ONE"], &["NEXT"])
        .node("LessOrEqual", &["OUT", "ONE"], &["DONE"])
}

const DECOUPLED: &str = "model_transaction_policy { decoupled: true }";
const DONE: &str = "parameters { key: 'ITERATION_DONE_OUTPUT' value { string_value: 'DONE' } }";

fn config(more: &[&str]) -> String {
    format!(
        "max_batch_size: 8
        sequence_batching {{
            iterative_sequence: true
            control_input {{ name: 'START' control {{ kind: CONTROL_SEQUENCE_START bool_false_true: [false, true] }} }}
            state {{ input_name: 'COUNT' output_name: 'NEXT' data_type: TYPE_FP32 dims: 1 }}
        }} {}",
        more.join(" ")
    )
}

fn load(more: &[&str]) -> Loaded {
    Model::new(countdown(), &config(more)).load(&backend()).unwrap()
}

/// Keeps rescheduled requests, or refuses all of them.
#[derive(Default)]
struct Slots {
    waiting: Mutex<Vec<Execution>>,
    returned: Mutex<Vec<u32>>,
    refuses: bool,
}
impl SlotOwner for Slots {
    fn returned(self: Arc<Self>, _: usize, slot: u32) {
        self.returned.lock().push(slot);
    }
    fn reschedule(
        self: Arc<Self>,
        slot_ref: SlotRef,
        mut execution: Execution,
    ) -> Result<(), (Error, Execution)> {
        if self.refuses {
            return Err((not_iterative(), execution.with_slot_guard(SlotGuard::new(slot_ref))));
        }
        let names: Vec<_> = execution.request.tensors().iter().map(|input| input.name().as_str()).collect();
        assert_eq!(names, ["X", "START"], "the state has not stayed among the inputs");
        set_start(&mut execution.request, false);
        let state = execution.state.clone();
        self.waiting.lock().push(execution.with_state(state).with_slot_guard(SlotGuard::new(slot_ref)));
        Ok(())
    }
}

fn set_start(request: &mut Request, start: bool) {
    let x = request.input("X").unwrap().clone();
    let start = tensor("START", DataType::Bool, &[1, 1], vec![u8::from(start)]);
    request.inputs = inference::RequestInputs::Tensors(vec![x, start]);
}

impl Slots {
    /// A request that counts down from that number, in a slot.
    fn ask(self: &Arc<Self>, from: f32, slot: u32) -> ResponseStream {
        let mut request = request(vec![floats("X", &[1, 1], &[from])]);
        set_start(&mut request, true);
        let (execution, stream) = execution(request, Arc::new(Unobserved));
        let state = SequenceState::new([("NEXT".into(), floats("COUNT", &[1, 1], &[0.]))]);
        let slot_ref =
            SlotRef { slot_owner: self.clone(), instance: 0, slot, attributes: Default::default() };
        self.waiting.lock().push(execution.with_state(Some(state)).with_slot_guard(SlotGuard::new(slot_ref)));
        stream
    }

    /// Runs all waiting requests once. Returns the size of the batch.
    fn run(&self, model: &mut Loaded) -> usize {
        let executions = take(&mut *self.waiting.lock());
        let count = executions.len();
        model.execute(executions);
        count
    }
}

/// The responses so far, and whether the last one has come.
fn responses_so_far(stream: &mut ResponseStream) -> (Vec<Result<f32, String>>, bool) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let (mut heard, mut ended) = (Vec::new(), false);
    while let std::task::Poll::Ready(item) = stream.poll_item(&mut context) {
        let Some(ResponseItem { result, last }) = item else {
            ended = true;
            break;
        };
        let value = |response: Response| read_floats(&response, "OUT")[0];
        heard.push(result.map(value).map_err(|error| error.message.into_owned()));
        ended = last;
    }
    (heard, ended)
}

fn counted(values: &[f32], ended: bool) -> (Vec<Result<f32, String>>, bool) {
    (values.iter().copied().map(Ok).collect(), ended)
}

#[test]
fn rows_finish_at_different_runs_and_others_join_in_between() {
    let (mut model, slots) = (load(&[DECOUPLED, DONE]), Arc::new(Slots::default()));
    let (mut long, mut short) = (slots.ask(4., 0), slots.ask(1., 1));
    assert_eq!(slots.run(&mut model), 2);
    assert_eq!(responses_so_far(&mut long), counted(&[4.], false));
    assert_eq!(responses_so_far(&mut short), counted(&[1.], true));
    assert_eq!(*slots.returned.lock(), [1], "who is done leaves at once");

    let mut late = slots.ask(2., 1);
    assert_eq!(slots.run(&mut model), 2);
    assert_eq!(responses_so_far(&mut long), counted(&[3.], false));
    assert_eq!(responses_so_far(&mut late), counted(&[2.], false));
    assert_eq!(slots.run(&mut model), 2);
    assert_eq!(responses_so_far(&mut long), counted(&[2.], false));
    assert_eq!(responses_so_far(&mut late), counted(&[1.], true));
    assert_eq!(slots.run(&mut model), 1);
    assert_eq!(responses_so_far(&mut long), counted(&[1.], true));
    assert_eq!(*slots.returned.lock(), [1, 1, 0]);
}

#[test]
fn only_the_last_run_answers_unless_the_model_is_decoupled() {
    let (mut model, slots) = (load(&[DONE]), Arc::new(Slots::default()));
    let mut stream = slots.ask(3., 0);
    for _ in 0..2 {
        slots.run(&mut model);
        assert_eq!(responses_so_far(&mut stream), counted(&[], false));
    }
    slots.run(&mut model);
    assert_eq!(responses_so_far(&mut stream), counted(&[1.], true));
}

#[test]
fn the_last_response_of_a_decoupled_model_comes_before_the_end() {
    let last = |config: &[&str]| {
        let (mut model, slots) = (load(config), Arc::new(Slots::default()));
        let mut stream = slots.ask(1., 0);
        slots.run(&mut model);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match stream.poll_item(&mut context) {
            std::task::Poll::Ready(Some(ResponseItem { last, .. })) => last,
            other => panic!("the run has answered: {other:?}"),
        }
    };
    assert!(!last(&[DECOUPLED, DONE]));
    assert!(last(&[DONE]));
}

#[test]
fn without_the_parameter_one_run_is_enough() {
    let (mut model, slots) = (load(&[DECOUPLED]), Arc::new(Slots::default()));
    let mut stream = slots.ask(3., 0);
    slots.run(&mut model);
    assert_eq!(responses_so_far(&mut stream), counted(&[3.], true));
}

#[test]
fn clients_see_the_done_output_only_if_the_configuration_lists_it() {
    let seen = |more: &[&str]| {
        let outputs = load(more).opened.config.outputs.clone();
        outputs.iter().map(|output| output.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(seen(&[DONE]), ["OUT"]);
    let both = "output { name: 'OUT' data_type: TYPE_FP32 dims: 1 } output { name: 'DONE' data_type: TYPE_BOOL dims: 1 }";
    assert_eq!(seen(&[DONE, both]), ["OUT", "DONE"]);
}

#[test]
fn a_cancelled_request_neither_runs_nor_is_rescheduled() {
    let (mut model, slots) = (load(&[DECOUPLED, DONE]), Arc::new(Slots::default()));
    let (mut gone, mut stays) = (slots.ask(9., 0), slots.ask(2., 1));
    slots.run(&mut model);
    assert_eq!(responses_so_far(&mut gone), counted(&[9.], false));
    gone.cancel();
    slots.run(&mut model);
    assert_eq!(responses_so_far(&mut gone), (vec![Err("request was cancelled".to_owned())], true));
    assert_eq!(responses_so_far(&mut stays), counted(&[2., 1.], true));
    assert_eq!(slots.run(&mut model), 0);
}

#[test]
fn a_request_that_cannot_be_rescheduled_gets_an_error_with_the_reason() {
    let slots = Arc::new(Slots { refuses: true, ..Slots::default() });
    let mut model = load(&[DECOUPLED, DONE]);
    let mut stream = slots.ask(2., 0);
    slots.run(&mut model);
    assert_eq!(
        responses_so_far(&mut stream),
        (vec![Ok(2.), Err(not_iterative().message.into_owned())], true)
    );
    assert_eq!(*slots.returned.lock(), [0]);
}

#[test]
fn an_output_of_too_few_elements_fails_the_batch() {
    let more = "parameters { key: 'ITERATION_DONE_OUTPUT' value { string_value: 'FIRST' } }";
    let graph = countdown()
        .initializer("KEEP", DataType::Bool, &[1], &[1])
        .output("FIRST", DataType::Bool, &[-1, 1])
        .node_with("Compress", &["DONE", "KEEP"], &["FIRST"], &[Attribute::Int("axis", 0)]);
    let output = "output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }";
    let mut model = Model::new(graph, &config(&[more, output])).load(&backend()).unwrap();
    let slots = Arc::new(Slots::default());
    let mut streams = [slots.ask(3., 0), slots.ask(3., 1)];
    slots.run(&mut model);
    let text = "the output that 'ITERATION_DONE_OUTPUT' names for model 'model' has 1 elements for 2 rows";
    for stream in &mut streams {
        assert_eq!(responses_so_far(stream), (vec![Err(text.to_owned())], true));
    }
}

#[test]
fn a_parameter_that_cannot_be_meant_is_refused() {
    let refusal = |graph: Graph, config: &str| {
        let text = Model::new(graph, config).refusal();
        let start = "Invalid argument: unable to load model 'model', ";
        text.strip_prefix(start).map(str::to_owned).unwrap_or(text)
    };
    let naming = |name: &str| DONE.replace("'DONE'", &format!("'{name}'"));
    let of = |name: &str| refusal(countdown(), &config(&[&naming(name)]));
    assert_eq!(
        of("NONE"),
        "the parameter 'ITERATION_DONE_OUTPUT' names 'NONE', which is no output of the model"
    );
    assert_eq!(
        of("OUT"),
        "the parameter 'ITERATION_DONE_OUTPUT' names 'OUT' of datatype TYPE_FP32, but must name a TYPE_BOOL"
    );
    let wide = countdown().output("WIDE", DataType::Bool, &[-1, 2]).node_with(
        "Concat",
        &["DONE", "DONE"],
        &["WIDE"],
        &[Attribute::Int("axis", 1)],
    );
    assert_eq!(
        refusal(wide, &config(&[&naming("WIDE")])),
        "the parameter 'ITERATION_DONE_OUTPUT' names 'WIDE' of shape [-1, 2], but must name one element per row"
    );
    let plain = config(&[DONE]).replace("iterative_sequence: true", "");
    assert_eq!(
        refusal(countdown(), &plain),
        "it has the parameter 'ITERATION_DONE_OUTPUT', which needs sequence_batching with iterative_sequence"
    );
}

//! Tests of the two example configurations in Triton's documentation of stateful models.
use std::{num::NonZeroU64, sync::mpsc};

use config::{Completion, CompletionContext, ConfigSource, ModelLayout, declare, finish};
use engine::Engine;
use inference::{
    Request, RequestInputs, Response, ResponseStream, SequenceId, SequencePosition, backend::Execution,
};
use vocabulary::{DataType, Tensor};

use crate::support::{Begun, Native, Repository, TIMEOUT, held, index};

/// The example of the direct strategy, without its tensors.
const DIRECT: &str = r#"
name: "direct_stateful_model"
platform: "tensorrt_plan"
max_batch_size: 2
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  direct { }
  control_input [
    {
      name: "START"
      control [
        {
          kind: CONTROL_SEQUENCE_START
          fp32_false_true: [ 0, 1 ]
        }
      ]
    },
    {
      name: "READY"
      control [
        {
          kind: CONTROL_SEQUENCE_READY
          fp32_false_true: [ 0, 1 ]
        }
      ]
    }
  ]
}
instance_group [
  {
    count: 2
  }
]
"#;

/// The example of the oldest strategy, without its tensors.
const OLDEST: &str = r#"
name: "oldest_stateful_model"
platform: "tensorflow_savedmodel"
max_batch_size: 2
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest
    {
      max_candidate_sequences: 4
    }
  control_input [
    {
      name: "START"
      control [
        {
          kind: CONTROL_SEQUENCE_START
          fp32_false_true: [ 0, 1 ]
        }
      ]
    },
    {
      name: "END"
      control [
        {
          kind: CONTROL_SEQUENCE_END
          fp32_false_true: [ 0, 1 ]
        }
      ]
    },
    {
      name: "CORRID"
      control [
        {
          kind: CONTROL_SEQUENCE_CORRID
          data_type: TYPE_UINT64
        }
      ]
    }
  ]
}
"#;

/// The tensors of both examples.
const TENSORS: &str = r#"
input [
  {
    name: "INPUT"
    data_type: TYPE_FP32
    dims: [ 100, 100 ]
  }
]
output [
  {
    name: "OUTPUT"
    data_type: TYPE_FP32
    dims: [ 10 ]
  }
]
"#;

fn direct() -> String {
    [DIRECT, TENSORS].concat()
}

fn oldest() -> String {
    [OLDEST, TENSORS].concat()
}

/// Older editions contain another platform.
fn custom() -> String {
    oldest().replace("tensorflow_savedmodel", "custom")
}

/// Reads and validates a configuration for a model of that name.
fn read(name: &str, config: &str) -> Result<proto::ModelConfig, String> {
    let layout = ModelLayout { name: name.to_owned(), versions: [(1, Vec::new())].into() };
    let source = ConfigSource::Text { path: "config.pbtxt".as_ref(), content: config.as_bytes() };
    let declared = declare(source, &layout, Completion::Strict).map_err(|errors| errors.to_string())?;
    let completed = declared.config.clone();
    let resolved =
        finish(&declared, completed, &CompletionContext::default()).map_err(|errors| errors.to_string())?;
    Ok(resolved.shown)
}

/// The preferred batch size of the oldest strategy, if its configuration sets none.
fn prefer_full_batches(config: &mut proto::ModelConfig) {
    use proto::{model_config::SchedulingChoice, model_sequence_batching::StrategyChoice};
    let size = config.max_batch_size;
    if let Some(SchedulingChoice::SequenceBatching(sequence)) = &mut config.scheduling_choice
        && let Some(StrategyChoice::Oldest(oldest)) = &mut sequence.strategy_choice
    {
        oldest.preferred_batch_size.push(size);
    }
}

#[test]
fn the_stateful_examples_are_read_and_validated() {
    let direct_text = direct();
    let direct = read("direct_stateful_model", &direct_text).unwrap();
    assert_eq!((&direct.backend[..], &direct.default_model_filename[..]), ("tensorrt", "model.plan"));
    assert_eq!((direct.instance_group.len(), direct.instance_group[0].count), (1, 2));
    let oldest_text = oldest();
    let oldest = read("oldest_stateful_model", &oldest_text).unwrap();
    assert_eq!((&oldest.backend[..], &oldest.default_model_filename[..]), ("tensorflow", "model.savedmodel"));
    for (config, written) in [(direct, direct_text), (oldest, oldest_text)] {
        let mut written = proto::text::parse(written.as_bytes()).unwrap().config;
        prefer_full_batches(&mut written);
        assert_eq!(config.scheduling_choice, written.scheduling_choice);
        assert_eq!((config.input, config.output), (written.input, written.output));
    }
}

#[test]
fn the_platform_of_older_editions_is_refused_by_name() {
    let error = read("oldest_stateful_model", &custom()).unwrap_err();
    assert_eq!(error, "unexpected platform type 'custom' for oldest_stateful_model");
}

#[tokio::test]
async fn the_stateful_examples_name_backends_that_are_not_installed() {
    let engine = Repository::new()
        .model("direct_stateful_model", &direct(), &["1"])
        .model("oldest_stateful_model", &oldest(), &["1"])
        .serve(Native::new("stateful"))
        .await;
    let missing = |model: &str, backend: &str| {
        format!(
            "{model} 1 UNAVAILABLE Invalid argument: unable to find backend library for backend '{backend}', try specifying runtime on \
             the model configuration."
        )
    };
    let missing =
        [missing("direct_stateful_model", "tensorrt"), missing("oldest_stateful_model", "tensorflow")];
    assert_eq!(index(&engine), missing);
}

/// A row of a batch, as the model of the direct example receives it.
#[derive(Debug, PartialEq, Clone, Copy)]
enum SeenRow {
    /// READY is 1. The fields are START and the first element of INPUT.
    Ready { start: bool, value: f32 },
    /// READY is 0.
    NotReady,
}

/// A backend for the direct example, and the batches that it has begun.
fn stateful() -> (Native, mpsc::Receiver<Begun<Vec<SeenRow>>>) {
    held(Native::new("stateful"), |executions| executions.iter().map(seen_row).collect(), complete)
}

fn float(request: &Request, input: &str) -> f32 {
    let bytes = request.input(input).unwrap().host().unwrap().contiguous();
    f32::from_le_bytes(*bytes.first_chunk().unwrap())
}

fn seen_row(execution: &Execution) -> SeenRow {
    let request = &execution.request;
    if float(request, "READY") == 0. {
        return SeenRow::NotReady;
    }
    SeenRow::Ready { start: float(request, "START") == 1., value: float(request, "INPUT") }
}

fn complete(execution: Execution) {
    if seen_row(&execution) == SeenRow::NotReady {
        return execution.responder.finish();
    }
    let value = float(&execution.request, "INPUT").to_le_bytes();
    let output = Tensor::new("OUTPUT".into(), DataType::Fp32, [1, 10][..].into(), value.repeat(10));
    execution.responder.complete(Response::of(vec![output]));
}

/// Sends a request of the sequence `id`. All its elements have that value.
fn ask_in_sequence(engine: &Engine, id: u64, (start, end): (bool, bool), value: f32) -> ResponseStream {
    let elements = value.to_le_bytes().repeat(100 * 100);
    let input = Tensor::new("INPUT".into(), DataType::Fp32, [1, 100, 100][..].into(), elements);
    let request = Request {
        inputs: RequestInputs::Tensors(vec![input]),
        sequence: SequencePosition { id: NonZeroU64::new(id).map(SequenceId::Number), start, end },
        ..Request::default()
    };
    engine.model("direct_stateful_model", None).unwrap().infer(request).unwrap()
}

const START: (bool, bool) = (true, false);
const END: (bool, bool) = (false, true);

#[tokio::test]
async fn six_sequences_share_two_instances_of_two_slots_and_two_wait_in_the_backlog() {
    let config = direct().replace("platform: \"tensorrt_plan\"", "backend: \"stateful\"");
    let (backend, begun) = stateful();
    let engine = Repository::new().model("direct_stateful_model", &config, &["1"]).serve(backend).await;
    let next = || begun.recv_timeout(TIMEOUT).unwrap();
    let first = |value| SeenRow::Ready { start: true, value };
    let later = |value| SeenRow::Ready { start: false, value };

    // Two sequences run. Two others occupy the second slots, and the last two wait in the backlog.
    let mut streams = vec![ask_in_sequence(&engine, 1, START, 1.1)];
    let batch_of_one = next();
    streams.push(ask_in_sequence(&engine, 2, START, 2.1));
    let batch_of_two = next();
    assert_eq!([&batch_of_one.seen[..], &batch_of_two.seen[..]], [[first(1.1)], [first(2.1)]]);
    assert_ne!(batch_of_one.thread, batch_of_two.thread);
    streams.extend((3_u8..=6).map(|id| ask_in_sequence(&engine, id.into(), START, f32::from(id) + 0.1)));

    // Two requests that arrived while the instance ran form one execution: START 0 1, READY 1 1.
    streams.push(ask_in_sequence(&engine, 1, END, 1.2));
    let instance = batch_of_one.end();
    let batch = next();
    assert_eq!((&batch.thread, &batch.seen[..]), (&instance, &[later(1.2), first(3.1)][..]));

    // The first sequence has ended. The first sequence of the backlog takes its slot.
    assert_eq!(batch.end(), instance);
    let of_five = next();
    assert_eq!((&of_five.thread, &of_five.seen[..]), (&instance, &[first(5.1)][..]));

    // On the other instance the fourth sequence runs in the second slot, and ends. Then the sixth sequence takes the
    // slot.
    let instance = batch_of_two.end();
    let batch = next();
    assert_eq!((&batch.thread, &batch.seen[..]), (&instance, &[SeenRow::NotReady, first(4.1)][..]));
    streams.push(ask_in_sequence(&engine, 4, END, 4.2));
    batch.end();
    let batch = next();
    assert_eq!((&batch.thread, &batch.seen[..]), (&instance, &[SeenRow::NotReady, later(4.2)][..]));
    batch.end();
    let batch = next();
    assert_eq!((&batch.thread, &batch.seen[..]), (&instance, &[SeenRow::NotReady, first(6.1)][..]));
    batch.end();
    of_five.end();

    for (stream, value) in streams.into_iter().zip([1.1_f32, 2.1, 3.1, 4.1, 5.1, 6.1, 1.2, 4.2]) {
        let response = stream.only().await.unwrap();
        let output = response.output("OUTPUT").unwrap().host().unwrap().contiguous();
        assert_eq!(output[..], value.to_le_bytes().repeat(10));
    }
}

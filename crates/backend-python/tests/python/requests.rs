//! Requests and responses: tensors of all sizes, batches, and what a model hears.
use inference::{Request, RequestInputs, SequenceId, SequencePosition};
use vocabulary::{DataType, Parameter, Tensor};

use crate::support::{CONFIG, TestModel, bytes_of, floats, next, only, request};

const DOUBLE: &str =
    "def execute(self, requests):\n    return [y(2 * x_of(request)) for request in requests]";

#[test]
fn a_model_computes() {
    let loaded = TestModel::new(CONFIG, DOUBLE).load().unwrap();
    assert_eq!(loaded.ask(&[1.0, 2.5]), Ok(vec![2.0, 5.0]));
    assert_eq!(loaded.ask(&[]), Ok(vec![]));
}

#[test]
fn tensors_of_every_size_pass() {
    let loaded = TestModel::new(CONFIG, DOUBLE).load().unwrap();
    for count in [1, 4095, 4096, 4097, 100_000, 1_000_000, 4_000_000, 3] {
        let x: Vec<f32> = (0..count).map(|number| number as f32).collect();
        let y = loaded.ask(&x).unwrap();
        assert!(y.iter().zip(&x).all(|(y, x)| *y == 2.0 * x) && y.len() == x.len(), "{count} elements");
    }
}

#[test]
fn an_input_may_be_the_output_and_changed_in_place() {
    let methods = "def execute(self, requests):\n    for request in requests:\n        x_of(request)[:] += 1\n    \
                   return [y(x_of(request)) for request in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    for count in [10, 100_000] {
        for _ in 0..20 {
            assert_eq!(loaded.ask(&vec![1.0; count]), Ok(vec![2.0; count]));
        }
    }
}

#[test]
fn an_input_that_a_model_keeps_does_not_change() {
    let methods = "def initialize(self, args):\n    self.kept = []\n\
                   def execute(self, requests):\n    self.kept += [x_of(request) for request in requests]\n    \
                   return [y([kept[0] for kept in self.kept]) for _ in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    for last in 0..8_u16 {
        let expected: Vec<f32> = (0..=last).map(f32::from).collect();
        assert_eq!(loaded.ask(&vec![f32::from(last); 50_000]), Ok(expected));
    }
}

#[test]
fn a_batch_is_one_execution() {
    let methods = "def execute(self, requests):\n    return [y([len(requests), x_of(request)[0]]) for request in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    let answers = loaded.run((0..5_u16).map(|number| request(&[f32::from(number)])).collect());
    let answers: Vec<_> = answers.into_iter().map(|answer| floats(&answer.unwrap())).collect();
    assert_eq!(answers, (0..5_u16).map(|number| vec![5.0, f32::from(number)]).collect::<Vec<_>>());
}

#[test]
fn many_batches_are_answered_in_their_order() {
    let loaded = TestModel::new(CONFIG, DOUBLE).load().unwrap();
    let streams: Vec<_> =
        (0..2000_u16).map(|number| loaded.send(vec![request(&[f32::from(number)])])).collect();
    for (number, mut streams) in streams.into_iter().enumerate() {
        let response = only(streams.remove(0)).unwrap();
        assert_eq!(floats(&response), [2.0 * number as f32]);
    }
}

#[test]
fn strings_pass() {
    let config = "input { name: 'X' data_type: TYPE_STRING dims: [ -1 ] }\n\
                  output { name: 'Y' data_type: TYPE_STRING dims: [ -1 ] }\n";
    let methods = "def execute(self, requests):\n    \
                   return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', x_of(request)[::-1])]) for request in requests]";
    let loaded = TestModel::new(config, methods).load().unwrap();
    let encoded = |texts: &[&str]| -> Vec<u8> {
        texts
            .iter()
            .flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat())
            .collect()
    };
    let long = "x".repeat(40_000);
    let texts = ["grün", "", &long];
    let tensor = Tensor::new("X".into(), DataType::Bytes, [3][..].into(), encoded(&texts));
    let request = Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() };
    let response = loaded.run(vec![request]).remove(0).unwrap();
    assert_eq!(bytes_of(&response, "Y"), encoded(&[&long, "", "grün"]));
}

#[test]
fn a_model_hears_what_the_client_says() {
    let config = format!("{CONFIG}output {{ name: 'HEARD' data_type: TYPE_STRING dims: [ 1 ] }}\n");
    let methods = "def execute(self, requests):\n    return [self.heard(request) for request in requests]\n\
                   def heard(self, request):\n    \
                   facts = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),\n        \
                   json.loads(request.parameters()), sorted(request.requested_output_names())]\n    \
                   return pb_utils.InferenceResponse([pb_utils.Tensor('HEARD', np.array([json.dumps(facts)], np.object_)),\n        \
                   pb_utils.Tensor('Y', x_of(request)), pb_utils.Tensor('UNKNOWN', x_of(request))], parameters={'n': 7})";
    let loaded = TestModel::new(&config, methods).load().unwrap();
    let asked = Request {
        id: "the id".into(),
        sequence: SequencePosition { id: Some(SequenceId::Text("seven".into())), start: true, end: true },
        timeout: Some(std::time::Duration::from_millis(5)),
        parameters: vec![("a".into(), Parameter::Int(-1)), ("b".into(), Parameter::Bool(true))],
        outputs: vec!["HEARD".into()].into(),
        ..request(&[1.0])
    };
    let response = loaded.run(vec![asked]).remove(0).unwrap();
    let heard = bytes_of(&response, "HEARD");
    assert_eq!(&heard[4..], br#"["the id", "seven", 3, 5000, {"a": -1, "b": true}, ["HEARD"]]"#);
    assert_eq!(response.outputs.len(), 1);
    assert_eq!(response.parameters, [("n".into(), Parameter::Int(7))]);
}

const DECOUPLED: &str = "model_transaction_policy { decoupled: true }\n";

#[test]
fn a_decoupled_model_sends_from_any_thread() {
    let methods = "def execute(self, requests):\n    for request in requests:\n        \
                   threading.Thread(target=self.count, args=(request.get_response_sender(), int(x_of(request)[0]))).start()\n\
                   def count(self, sender, n):\n    for number in range(n):\n        sender.send(y([number]))\n    \
                   sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)";
    let loaded = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), methods).load().unwrap();
    let mut streams = loaded.send(vec![request(&[3.0]), request(&[0.0]), request(&[200.0])]);
    for (stream, count) in streams.iter_mut().zip([3_u16, 0, 200]) {
        for number in 0..count {
            let item = next(stream).unwrap();
            assert_eq!((floats(&item.result.unwrap()), item.last), (vec![f32::from(number)], false));
        }
        assert!(next(stream).is_none());
    }
}

#[test]
fn a_dropped_request_of_a_decoupled_model_is_an_error() {
    let methods = "def execute(self, requests):\n    requests[0].get_response_sender().send(y([1]))";
    let loaded = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), methods).load().unwrap();
    let mut stream = loaded.send(vec![request(&[1.0])]).remove(0);
    assert!(next(&mut stream).unwrap().result.is_ok());
    let end = next(&mut stream).unwrap();
    assert!(end.last);
    assert_eq!(end.result.unwrap_err().message, "model 'm' dropped the request without a final response");
}

#[test]
fn a_model_sees_a_cancellation() {
    let methods = "def execute(self, requests):\n    while not requests[0].is_cancelled():\n        time.sleep(0.001)\n    \
                   return [pb_utils.InferenceResponse(error=pb_utils.TritonError('cancelled', pb_utils.TritonError.CANCELLED))]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    let stream = loaded.send(vec![request(&[1.0])]).remove(0);
    stream.cancel();
    let error = only(stream).unwrap_err();
    assert!(matches!(&*error.message, "cancelled" | "request was cancelled"), "{error}");
}

#[test]
fn coroutines_execute_at_the_same_time_where_the_model_says_so() {
    let methods = "async def execute(self, requests):\n    self.count = getattr(self, 'count', 0) + 1\n    \
                   while self.count < 4:\n        await asyncio.sleep(0.001)\n    \
                   return [y([self.count]) for _ in requests]";
    let config =
        format!("{CONFIG}parameters {{ key: 'MAX_CONCURRENT_EXECUTIONS' value: {{ string_value: '4' }} }}\n");
    let loaded = TestModel::new(&config, methods).load().unwrap();
    let streams: Vec<_> = (0..4).map(|_| loaded.send(vec![request(&[1.0])]).remove(0)).collect();
    for stream in streams {
        assert_eq!(floats(&only(stream).unwrap()), [4.0]);
    }
}

#[test]
fn a_coroutine_executes_one_batch_at_a_time_otherwise() {
    let methods = "async def execute(self, requests):\n    self.open = getattr(self, 'open', 0) + 1\n    \
                   await asyncio.sleep(0.001)\n    found, self.open = self.open, self.open - 1\n    return [y([found]) for _ in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    let streams: Vec<_> = (0..10).map(|_| loaded.send(vec![request(&[1.0])]).remove(0)).collect();
    for stream in streams {
        assert_eq!(floats(&only(stream).unwrap()), [1.0]);
    }
}

#[test]
fn a_sender_answers_a_request_of_a_model_with_one_response() {
    let methods = "def execute(self, requests):\n    senders = [request.get_response_sender() for request in requests]\n    \
                   for sender in senders:\n        sender.send(y([5]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n    \
                   return [None] * len(requests)";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    assert_eq!(loaded.ask(&[1.0]), Ok(vec![5.0]));
    assert_eq!(loaded.ask(&[1.0]), Ok(vec![5.0]));
}

#[test]
fn a_coroutine_of_a_decoupled_model_goes_on_while_others_begin() {
    let methods = "async def execute(self, requests):\n    self.count = getattr(self, 'count', 0) + 1\n    \
                   while self.count < 3:\n        await asyncio.sleep(0.001)\n    \
                   requests[0].get_response_sender().send(y([self.count]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)";
    let loaded = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), methods).load().unwrap();
    let streams: Vec<_> = (0..3).map(|_| loaded.send(vec![request(&[1.0])]).remove(0)).collect();
    for stream in streams {
        assert_eq!(floats(&only(stream).unwrap()), [3.0]);
    }
}

#[test]
fn a_coroutine_may_ask_to_run_again_only_in_an_iterative_model() {
    let methods = "async def execute(self, requests):\n    \
                   requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)";
    let loaded = TestModel::new(&format!("{CONFIG}{DECOUPLED}"), methods).load().unwrap();
    let error = loaded.failure(&[1.0]);
    assert!(
        error.message.starts_with("Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"),
        "{error}"
    );
}

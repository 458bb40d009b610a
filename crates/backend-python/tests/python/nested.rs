//! Requests of a model to other models: what it sends, and what comes back.
use std::sync::Arc;

use inference::{
    Inferer, ModelCommands, Request, Response, ResponseStream, Timeline, Timestamp, Unobserved, UnreadPolicy,
    response_channel,
};
use vocabulary::Error;

use crate::support::{CONFIG, TestModel, floats_of_input, tensor};

/// Two models: `twice` doubles its input, and `count`, which is decoupled, counts from zero up to its first value.
#[derive(Debug)]
struct OtherModels;

impl Inferer for OtherModels {
    fn infer(&self, model: &str, _: Option<i64>, request: Request) -> Result<ResponseStream, Error> {
        let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
        let (responder, stream) = response_channel(timeline, Arc::new(Unobserved), UnreadPolicy::unlimited());
        let x = floats_of_input(&request, "X");
        let counts = model == "count";
        // The responses come while the model waits for them.
        std::thread::spawn(move || {
            if !counts {
                let twice: Vec<f32> = x.iter().map(|value| value * 2.0).collect();
                return responder.complete(Response::of(vec![tensor("Y", &twice)]));
            }
            for number in 0..x[0] as u16 {
                responder.send(Response::of(vec![tensor("Y", &[f32::from(number)])]));
            }
            responder.finish();
        });
        Ok(stream)
    }

    fn is_decoupled(&self, model: &str, _: Option<i64>) -> Result<bool, Error> {
        match model {
            "twice" => Ok(false),
            "count" => Ok(true),
            other => Err(Error::not_found(format!("there is no model '{other}'"))),
        }
    }

    fn is_ready(&self, model: &str, _: Option<i64>) -> bool {
        model == "twice"
    }

    fn model_loader(&self) -> Option<Arc<dyn ModelCommands>> {
        None
    }
}

/// A model that answers by an expression, beside the other models.
fn model(execute: &str) -> TestModel {
    let methods = format!(
        "def ask(self, name, request, **how):\n    \
         x = pb_utils.get_input_tensor_by_name(request, 'X')\n    \
         return pb_utils.InferenceRequest(model_name=name, requested_output_names=['Y'], inputs=[x]).exec(**how)\n\
         def execute(self, requests):\n    return [self.answer(request) for request in requests]\n\
         def answer(self, request):\n    {execute}"
    );
    TestModel::new(CONFIG, &methods).with_inferer(Arc::new(OtherModels))
}

#[test]
fn a_model_gets_the_response_of_another_one_whatever_its_size() {
    let answer = "return y(self.ask('twice', request).output_tensors()[0].as_numpy())";
    let loaded = model(answer).load().unwrap();
    for count in [1, 5000, 500_000] {
        let x: Vec<f32> = (0..count).map(|number| (number % 1000) as f32).collect();
        let twice: Vec<f32> = x.iter().map(|value| value * 2.0).collect();
        for _ in 0..3 {
            assert_eq!(loaded.ask(&x), Ok(twice.clone()), "{count}");
        }
    }
}

#[test]
fn a_model_gets_more_responses_than_it_has_room_for_in_their_order() {
    let answer = "return y([part for answer in self.ask('count', request, decoupled=True) \
                  for tensor in answer.output_tensors() for part in tensor.as_numpy()])";
    let loaded = model(answer).load().unwrap();
    let counted: Vec<f32> = (0..300_u16).map(f32::from).collect();
    assert_eq!(loaded.ask(&[300.0]), Ok(counted));
    assert_eq!(loaded.ask(&[0.0]), Ok(Vec::new()));
}

#[test]
fn the_responses_of_a_decoupled_model_end_with_its_empty_one() {
    let answer =
        "return y([len(answer.output_tensors()) for answer in self.ask('count', request, decoupled=True)])";
    let loaded = model(answer).load().unwrap();
    assert_eq!(loaded.ask(&[2.0]), Ok(vec![1.0, 1.0, 0.0]));
    assert_eq!(loaded.ask(&[0.0]), Ok(vec![0.0]));
}

#[test]
fn the_error_for_a_request_that_cannot_be_sent_names_the_model() {
    let answer = "return pb_utils.InferenceResponse(error=self.ask(('count', 'nobody')[int(x_of(request)[0])], request).error())";
    let loaded = model(answer).load().unwrap();
    let decoupled =
        "Model count - Error when running inference: Model count is using the decoupled. The current BLS";
    assert!(loaded.failure(&[0.0]).message.starts_with(decoupled), "{}", loaded.failure(&[0.0]));
    let missing = "Model nobody - Error when running inference: there is no model 'nobody'";
    assert_eq!(loaded.failure(&[1.0]).message, missing);
}

#[test]
fn a_model_is_told_whether_another_one_is_ready() {
    let answer = "return y([pb_utils.is_model_ready('twice'), pb_utils.is_model_ready('nobody')])";
    assert_eq!(model(answer).load().unwrap().ask(&[0.0]), Ok(vec![1.0, 0.0]));
}

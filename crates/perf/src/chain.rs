//! The further models of a chain: the client sends the outputs of a response to the next model.
//!
//! This is what a client does where the server has no ensemble. Only binary tensors are passed on.

use anyhow::{Context, Result};
use bytes::Bytes;
use client::endpoint::ServerEndpoint;
use client::grpc::GrpcCall;
use client::http::HttpAnswer;
use prost::Message;
use serde_json::Value;

use crate::model::{ModelInput, TargetModel};
use crate::options::{PerfOptions, Protocol};
use crate::payload::{GrpcTemplate, HttpTemplate};
use crate::tensors::InputTensor;

/// A model that gets the outputs of the model before it.
pub(crate) struct ChainedModel {
    /// Those of the run, with the name of this model.
    options: PerfOptions,
    /// The names of the inputs, which are outputs of the model before.
    inputs: Vec<String>,
    /// A call without a message. `None` over HTTP.
    call: Option<GrpcCall>,
}

impl ChainedModel {
    /// `options` name this model.
    ///
    /// # Errors
    /// The address is none.
    pub(crate) fn new(
        options: PerfOptions,
        endpoint: &ServerEndpoint,
        model: TargetModel,
    ) -> Result<ChainedModel> {
        let call = match options.protocol {
            Protocol::Grpc => Some(GrpcCall::new(endpoint, "ModelInfer", Bytes::new())?),
            Protocol::HttpJson | Protocol::HttpBinary => None,
        };
        let inputs = model.inputs.into_iter().map(|input| input.name).collect();
        Ok(ChainedModel { options, inputs, call })
    }

    /// The request of this model after a response of the model before it.
    ///
    /// # Errors
    /// The response lacks one of the inputs.
    pub(crate) fn http_request(&self, answer: &HttpAnswer) -> Result<Bytes> {
        let tensors = self.inputs_among(&http_outputs(answer)?)?;
        Ok(HttpTemplate::new(&self.options, &tensors, None)?.request(None))
    }

    /// The call of this model after a response of the model before it.
    ///
    /// # Errors
    /// The response lacks one of the inputs.
    pub(crate) fn grpc_call(&self, answer: Bytes) -> Result<GrpcCall> {
        let tensors = self.inputs_among(&grpc_outputs(answer)?)?;
        let call = self.call.as_ref().context("a chain keeps its protocol")?;
        Ok(call.with_message(GrpcTemplate::new(&self.options, &tensors, None).request(None)))
    }

    fn inputs_among(&self, outputs: &[InputTensor]) -> Result<Vec<InputTensor>> {
        let input = |name: &String| {
            let output = outputs.iter().find(|output| output.input.name == *name);
            output.cloned().with_context(|| format!("no output '{name}' for model '{}'", self.options.model))
        };
        self.inputs.iter().map(input).collect()
    }
}

/// The binary outputs of a response over HTTP. They share its memory.
pub(crate) fn http_outputs(answer: &HttpAnswer) -> Result<Vec<InputTensor>> {
    let (json, mut at) = (&answer.body[..answer.json_length], answer.json_length);
    let json: Value = serde_json::from_slice(json).context("the answer is not JSON")?;
    let outputs = json["outputs"].as_array().context("the answer has no outputs")?.iter();
    let tensor = |output: &Value| {
        let text = |key: &str| output[key].as_str().map(str::to_owned);
        let size = output["parameters"]["binary_data_size"].as_u64()?;
        let end = at.checked_add(usize::try_from(size).ok()?).filter(|&end| end <= answer.body.len())?;
        let bytes = answer.body.slice(at..end);
        at = end;
        let shape = output["shape"].as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?;
        let input = ModelInput { name: text("name")?, datatype: text("datatype")?, shape };
        Some(InputTensor { input, bytes })
    };
    outputs.map(tensor).collect::<Option<_>>().context("the answer has an output that is not binary")
}

/// The outputs of a response over gRPC.
pub(crate) fn grpc_outputs(answer: Bytes) -> Result<Vec<InputTensor>> {
    let answer = proto::ModelInferResponse::decode(answer).context("the answer is not a response")?;
    let outputs = answer.outputs.into_iter().zip(answer.raw_output_contents);
    let tensors = outputs.map(|(output, bytes)| {
        let input = ModelInput { name: output.name, datatype: output.datatype, shape: output.shape };
        InputTensor { input, bytes }
    });
    Ok(tensors.collect())
}

#[cfg(test)]
mod tests {
    use client::call_outcome::CallTimes;

    use super::*;
    use crate::endpoint::endpoint;
    use crate::model::ModelTraits;
    use crate::options;

    fn answer(json: &str, tail: &[u8]) -> HttpAnswer {
        let body = [json.as_bytes(), tail].concat().into();
        HttpAnswer { json_length: json.len(), body, times: CallTimes::default() }
    }

    const TWO: &str = r#"{"outputs":[
        {"name":"A","datatype":"UINT8","shape":[1,2],"parameters":{"binary_data_size":2}},
        {"name":"B","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}"#;

    fn next(line: &str, inputs: &[&str]) -> ChainedModel {
        let options = options::parse(["perf"].into_iter().chain(line.split(' ')).map(Into::into)).unwrap();
        let input =
            |name: &&str| ModelInput { name: (*name).into(), datatype: "FP32".into(), shape: vec![-1] };
        let inputs = inputs.iter().map(input).collect();
        let endpoint = endpoint(&options).unwrap();
        let (outputs, traits) = (Vec::new(), ModelTraits::default());
        let model = TargetModel { inputs, outputs, max_batch_size: 8, traits };
        ChainedModel::new(options, &endpoint, model).unwrap()
    }

    #[test]
    fn outputs_follow_each_other_behind_the_json() {
        let outputs = http_outputs(&answer(TWO, &[1, 2, 3, 4, 5, 6])).unwrap();
        let read: Vec<_> = outputs.iter().map(|output| (&output.input.name[..], &output.bytes[..])).collect();
        assert_eq!(read, [("A", &[1, 2][..]), ("B", &[3, 4, 5, 6][..])]);
        assert_eq!((&outputs[0].input.datatype[..], &outputs[0].input.shape[..]), ("UINT8", &[1, 2][..]));
    }

    #[test]
    fn outputs_that_cannot_be_passed_on_are_refused() {
        let short = http_outputs(&answer(TWO, &[1, 2, 3]));
        let json = http_outputs(&answer(r#"{"outputs":[{"name":"A","data":[1]}]}"#, &[]));
        for refused in [short, json] {
            let error = refused.err().unwrap().to_string();
            assert!(error.contains("not binary"), "{error}");
        }
        assert!(http_outputs(&answer("{}", &[])).is_err());
    }

    #[test]
    fn the_next_request_holds_the_inputs_of_the_next_model_and_no_other() {
        let request =
            next("-m second", &["B"]).http_request(&answer(TWO, &[1, 2, 3, 4, 5, 6])).unwrap().to_vec();
        assert!(request.starts_with(b"POST /v2/models/second/infer "));
        assert!(request.ends_with(b"}]}\x03\x04\x05\x06"));
        let error = next("-m second", &["C"]).http_request(&answer(TWO, &[1; 6])).unwrap_err().to_string();
        assert_eq!(error, "no output 'C' for model 'second'");
    }

    #[test]
    fn over_grpc_contents_stay_with_their_outputs() {
        let output = |name: &str| proto::model_infer_response::InferOutputTensor {
            name: name.into(),
            datatype: "UINT8".into(),
            shape: vec![1],
            ..Default::default()
        };
        let answer = proto::ModelInferResponse {
            outputs: vec![output("A"), output("B")],
            raw_output_contents: vec![Bytes::from_static(&[7]), Bytes::from_static(&[9])],
            ..Default::default()
        };
        let outputs = grpc_outputs(answer.encode_to_vec().into()).unwrap();
        let read: Vec<_> = outputs.iter().map(|output| (&output.input.name[..], output.bytes[0])).collect();
        assert_eq!(read, [("A", 7), ("B", 9)]);
        assert!(next("-m second -i grpc", &["B"]).grpc_call(answer.encode_to_vec().into()).is_ok());
    }
}

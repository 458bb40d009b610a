//! The cache keys of requests. Requests whose answers cannot differ have the same key.
//!
//! A key is a cryptographic hash of everything that the answer depends on. A client cannot construct two requests with
//! the same key, so a found entry needs no comparison with the request (S-W32). The key is the same in every server
//! that serves the same model, and after a restart. So servers can share a cache.
use std::fmt::Write as _;

use blake3::Hasher;
use inference::{Error, Name, Parameter, Request, SequenceId, Tensor};
use smallvec::SmallVec;

use crate::fingerprint::Fingerprint;

/// Makes the keys of one model version.
pub(super) struct Keys {
    /// Helps a person who reads the cache's keys. The hash distinguishes the models.
    prefix: String,
    /// The hasher after the values that are the same for all requests.
    model: Hasher,
}

impl Keys {
    pub(super) fn new(model: &Name, version: i64, fingerprint: &Fingerprint) -> Self {
        let mut common = Encoding::default();
        common.text(model);
        common.number(version.cast_unsigned());
        common.bytes(fingerprint);
        let mut hasher = Hasher::new();
        hasher.update(&common.0);
        Self { prefix: format!("{model}/{version}/"), model: hasher }
    }

    /// The key of a request that has been checked against the configuration. The request's id, priority and timeout do
    /// not change the answer, so the key leaves them out.
    ///
    /// # Errors
    /// UNSUPPORTED if the host cannot read an input.
    pub(super) fn of(&self, request: &Request) -> Result<String, Error> {
        let mut inputs: SmallVec<[&Tensor; 8]> = request.tensors().iter().collect();
        inputs.sort_unstable_by_key(|tensor| tensor.name());
        let mut hasher = self.model.clone();
        hasher.update(&description(request, &inputs).0);
        // The description contains the length of each input.
        for tensor in &inputs {
            for piece in tensor.host()?.pieces() {
                hasher.update(piece);
            }
        }
        let mut key = String::with_capacity(self.prefix.len() + 2 * blake3::OUT_LEN);
        let _ = write!(key, "{}{}", self.prefix, hasher.finalize().to_hex());
        Ok(key)
    }
}

/// Everything but the bytes of the inputs.
fn description(request: &Request, inputs: &[&Tensor]) -> Encoding {
    let mut encoding = Encoding::default();
    encoding.count(inputs.len());
    for tensor in inputs {
        encoding.text(tensor.name());
        encoding.text(tensor.datatype().protocol_name());
        encoding.count(tensor.shape().len());
        tensor.shape().iter().for_each(|dim| encoding.number(dim.cast_unsigned()));
        encoding.count(tensor.byte_size());
    }
    let mut outputs: SmallVec<[&Name; 8]> = request.outputs.names().iter().collect();
    outputs.sort_unstable();
    encoding.count(outputs.len());
    outputs.iter().for_each(|name| encoding.text(name));
    // If two parameters have the same name, their order may matter.
    let mut parameters: SmallVec<[&(Name, Parameter); 8]> = request.parameters.iter().collect();
    parameters.sort_by_key(|(name, _)| name);
    encoding.count(parameters.len());
    for (name, value) in parameters {
        encoding.text(name);
        encoding.parameter(value);
    }
    // Without a sequence batcher the sequence id has no effect on the server, but the model may read it.
    let sequence = &request.sequence;
    match &sequence.id {
        None => encoding.number(0),
        Some(SequenceId::Number(number)) => {
            encoding.number(1);
            encoding.number(number.get());
        }
        Some(SequenceId::Text(text)) => {
            encoding.number(2);
            encoding.text(text);
        }
        Some(SequenceId::ServerGenerated(number)) => {
            encoding.number(3);
            encoding.number(*number);
        }
    }
    encoding.number(u64::from(sequence.start));
    encoding.number(u64::from(sequence.end));
    encoding
}

/// An unambiguous encoding: numbers have a fixed size, and a length precedes values of variable size.
#[derive(Default)]
struct Encoding(Vec<u8>);

impl Encoding {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn parameter(&mut self, value: &Parameter) {
        match value {
            Parameter::String(text) => {
                self.number(0);
                self.text(text);
            }
            Parameter::Int(number) => {
                self.number(1);
                self.number(number.cast_unsigned());
            }
            Parameter::Bool(truth) => {
                self.number(2);
                self.number(u64::from(*truth));
            }
            Parameter::Double(number) => {
                self.number(3);
                self.number(number.to_bits());
            }
            Parameter::Bytes(bytes) => {
                self.number(4);
                self.bytes(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, num::NonZeroU64, time::Duration};

    use bytes::Bytes;
    use inference::{DataType, RequestInputs, SequenceStep, TensorData};

    use super::*;

    fn keys(model: &str, version: i64, fingerprint: u8) -> Keys {
        Keys::new(&model.into(), version, &[fingerprint; 32])
    }

    fn key(request: &Request) -> String {
        keys("m", 1, 0).of(request).unwrap()
    }

    fn tensor(name: &str, shape: &[i64], data: impl Into<TensorData>) -> Tensor {
        Tensor::new(name.into(), DataType::Uint8, shape.into(), data)
    }

    fn with_inputs(inputs: Vec<Tensor>) -> Request {
        Request { inputs: RequestInputs::Tensors(inputs), ..Request::default() }
    }

    fn usual() -> Request {
        with_inputs(vec![tensor("A", &[2], vec![1, 2]), tensor("B", &[1], vec![3])])
    }

    fn with_parameters(parameters: &[(&str, Parameter)]) -> Request {
        let own = |(name, value): &(&str, Parameter)| ((*name).into(), value.clone());
        Request { parameters: parameters.iter().map(own).collect(), ..usual() }
    }

    fn with_sequence(id: Option<SequenceId>, start: bool, end: bool) -> Request {
        Request { sequence: SequenceStep { id, start, end }, ..usual() }
    }

    #[test]
    fn everything_that_a_response_depends_on_changes_the_key() {
        let other_type = Tensor::new("B".into(), DataType::Int8, [1][..].into(), vec![3]);
        let one = NonZeroU64::MIN;
        let requests = [
            usual(),
            with_inputs(vec![tensor("A", &[2], vec![1, 2])]),
            with_inputs(vec![tensor("A", &[2], vec![1, 2]), tensor("C", &[1], vec![3])]),
            with_inputs(vec![tensor("A", &[2], vec![1, 2]), tensor("B", &[1], vec![4])]),
            with_inputs(vec![tensor("A", &[1, 2], vec![1, 2]), tensor("B", &[1], vec![3])]),
            with_inputs(vec![tensor("A", &[2, 1], vec![1, 2]), tensor("B", &[1], vec![3])]),
            // The same bytes, split at another position.
            with_inputs(vec![tensor("A", &[1], vec![1]), tensor("B", &[2], vec![2, 3])]),
            with_inputs(vec![tensor("A", &[2], vec![1, 2]), other_type]),
            Request { outputs: vec!["X".into()].into(), ..usual() },
            Request { outputs: vec!["Y".into()].into(), ..usual() },
            Request { outputs: vec!["X".into(), "Y".into()].into(), ..usual() },
            Request { outputs: vec!["XY".into()].into(), ..usual() },
            with_parameters(&[("p", Parameter::Int(1))]),
            with_parameters(&[("q", Parameter::Int(1))]),
            with_parameters(&[("p", Parameter::Int(2))]),
            with_parameters(&[("p", Parameter::Bool(true))]),
            with_parameters(&[("p", Parameter::Double(f64::from_bits(1)))]),
            with_parameters(&[("p", Parameter::String("1".into()))]),
            with_parameters(&[("p", Parameter::Bytes(Bytes::from_static(b"1")))]),
            with_parameters(&[("p", Parameter::Int(1)), ("p", Parameter::Int(2))]),
            with_parameters(&[("p", Parameter::Int(2)), ("p", Parameter::Int(1))]),
            with_sequence(Some(SequenceId::Number(one)), false, false),
            with_sequence(Some(SequenceId::Text("1".into())), false, false),
            with_sequence(None, true, false),
            with_sequence(None, false, true),
        ];
        let mut all: BTreeSet<_> = requests.iter().map(key).collect();
        assert_eq!(all.len(), requests.len());
        let others = [keys("n", 1, 0), keys("m", 2, 0), keys("m", 1, 1)];
        assert!(others.iter().all(|other| all.insert(other.of(&usual()).unwrap())));
    }

    #[test]
    fn what_does_not_affect_the_response_does_not_change_the_key() {
        let same = key(&usual());
        let pieces = TensorData::from_pieces([Bytes::from_static(&[1]), Bytes::from_static(&[2])]);
        let turned = with_inputs(vec![tensor("B", &[1], vec![3]), tensor("A", &[2], pieces)]);
        assert_eq!(key(&turned), same);
        let named = Request { id: "7".into(), ..usual() };
        assert_eq!(key(&named), same);
        let urgent = Request { priority: 1, timeout: Some(Duration::from_secs(1)), ..usual() };
        assert_eq!(key(&urgent), same);

        let outputs =
            |names: [&str; 2]| Request { outputs: names.into_iter().map(Name::from).collect(), ..usual() };
        assert_eq!(key(&outputs(["X", "Y"])), key(&outputs(["Y", "X"])));
        let [p, q] = ["p", "q"].map(|name| (name, Parameter::Bool(true)));
        assert_eq!(key(&with_parameters(&[p.clone(), q.clone()])), key(&with_parameters(&[q, p])));
    }

    #[test]
    fn a_key_names_its_model_and_is_the_same_in_every_process() {
        let key = key(&usual());
        let hash = key.strip_prefix("m/1/").unwrap();
        assert_eq!(hash, "112bc9e7344a672893d5c50d25b2f56845ef5f9531e6efe87df86a3bc7b74a44");
    }
}

//! The cache keys of requests. Requests whose answers cannot differ have the same key.
//!
//! A key is a hash of everything that the answer depends on. A client cannot construct two requests with the same key, so a
//! found entry needs no comparison with the request (S-W32). If only the servers that share a cache can read it, the hash is
//! AEGIS-128X4 as a message authentication code (RFC 10032) with a secret of these servers: it reads large tensors at the
//! speed of memory. Otherwise it is BLAKE3, which needs no secret. The key is the same in every server that serves the same
//! model and shares the cache.
use std::sync::Arc;

use aegis::aegis128x4::Aegis128X4Mac;
use blake3::Hasher;
use inference::{Request, SequenceId};
use parking_lot::RwLock;
use smallvec::SmallVec;
use vocabulary::{Error, Name, Parameter, Tensor};

use crate::fingerprint::Fingerprint;

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Makes the keys of one model version.
pub(super) struct CacheKeys {
    /// Helps a person who reads the cache's keys, and finds the entries of a model version. The hash distinguishes the
    /// models, too.
    prefix: String,
    /// The encoding of what is the same for all requests.
    common: Vec<u8>,
    /// The latest secret, and the hasher after `common`.
    model: RwLock<(Option<[u8; 32]>, KeyHasher)>,
}

/// See the module documentation.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "each request clones it: in place, that takes no memory")]
enum KeyHasher {
    Keyed(Aegis128X4Mac<HASH_BYTES>),
    Unkeyed(Hasher),
}

impl KeyHasher {
    /// A hasher that has read `common`.
    fn after(common: &[u8], secret: Option<[u8; 32]>) -> Self {
        let mut hasher = match secret {
            Some(secret) => {
                let derived = blake3::derive_key("Nereid, keys of the response cache, 1", &secret);
                let (key, _) = derived.split_first_chunk().expect("the derived key is longer");
                Self::Keyed(Aegis128X4Mac::new(key))
            }
            None => Self::Unkeyed(Hasher::new()),
        };
        hasher.update(common);
        hasher
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Keyed(mac) => mac.update(bytes),
            Self::Unkeyed(hasher) => _ = hasher.update(bytes),
        }
    }

    fn finish(self) -> [u8; HASH_BYTES] {
        match self {
            Self::Keyed(mac) => mac.finalize(),
            Self::Unkeyed(hasher) => *hasher.finalize().as_bytes(),
        }
    }
}

impl CacheKeys {
    pub(super) fn new(model: &Name, version: i64, fingerprint: &Fingerprint) -> Self {
        let mut common = Encoding::default();
        common.text(model);
        common.number(version.cast_unsigned());
        common.bytes(fingerprint);
        let unkeyed = KeyHasher::after(&common.0, None);
        Self {
            prefix: format!("{model}/{version}/"),
            common: common.0.into_vec(),
            model: RwLock::new((None, unkeyed)),
        }
    }

    /// Servers may agree on another secret while they run.
    fn hasher(&self, secret: Option<[u8; 32]>) -> KeyHasher {
        {
            let model = self.model.read();
            if model.0 == secret {
                return model.1.clone();
            }
        }
        let hasher = KeyHasher::after(&self.common, secret);
        *self.model.write() = (secret, hasher.clone());
        hasher
    }

    /// The beginning of all keys of the model version, in all its generations.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of a request that has been checked against the configuration, with the secret of the cache. The request's id,
    /// priority and timeout do not change the answer, so the key leaves them out.
    ///
    /// # Errors
    /// UNSUPPORTED if the host cannot read an input.
    pub(super) fn of(&self, request: &Request, secret: Option<[u8; 32]>) -> Result<Arc<str>, Error> {
        let mut inputs: SmallVec<[&Tensor; 8]> = request.tensors().iter().collect();
        inputs.sort_unstable_by_key(|tensor| tensor.name());
        let mut hasher = self.hasher(secret);
        hasher.update(&description(request, &inputs).0);
        // The description contains the length of each input.
        for tensor in &inputs {
            for piece in tensor.host()?.pieces() {
                hasher.update(piece);
            }
        }
        let hash = blake3::Hash::from_bytes(hasher.finish()).to_hex();
        let mut key: SmallVec<[u8; 256]> = SmallVec::from_slice(self.prefix.as_bytes());
        key.extend_from_slice(hash.as_bytes());
        Ok(std::str::from_utf8(&key).expect("a name and digits are text").into())
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

/// An unambiguous encoding: numbers have a fixed size, and a length precedes values of variable size. That of most requests
/// needs no memory of the heap.
#[derive(Default)]
struct Encoding(SmallVec<[u8; 256]>);

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
    use inference::{RequestInputs, SequencePosition};
    use vocabulary::{DataType, TensorData};

    use super::*;

    const SECRET: Option<[u8; 32]> = Some([7; 32]);

    fn keys(model: &str, version: i64, fingerprint: u8) -> CacheKeys {
        CacheKeys::new(&model.into(), version, &[fingerprint; 32])
    }

    fn key(request: &Request) -> Arc<str> {
        keys("m", 1, 0).of(request, SECRET).unwrap()
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
        Request { sequence: SequencePosition { id, start, end }, ..usual() }
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
        assert!(others.iter().all(|other| all.insert(other.of(&usual(), SECRET).unwrap())));
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
        assert_eq!(hash, "79b9503e3891e69afdb9c2199b3900d542c2904a6785f70a7efd754ee3463032");
        let keys = keys("m", 1, 0);
        let unkeyed = "m/1/112bc9e7344a672893d5c50d25b2f56845ef5f9531e6efe87df86a3bc7b74a44";
        assert_eq!(&*keys.of(&usual(), None).unwrap(), unkeyed);
        let other = keys.of(&usual(), Some([8; 32])).unwrap();
        assert_ne!(other, key, "who does not know the secret does not know the keys");
        assert_eq!(keys.of(&usual(), SECRET).unwrap(), key);
        assert_eq!(&*keys.of(&usual(), None).unwrap(), unkeyed);
    }
}

#[cfg(test)]
mod pair_tests;

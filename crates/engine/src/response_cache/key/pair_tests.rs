//! Pairs of random requests that differ in one thing have different keys.
//!
//! `CACHE_KEY_PAIRS=10000000 cargo test --release -p engine --lib pairs_of_requests` tries as many pairs.
//! `CACHE_KEY_SEED` repeats a failure.
use std::{collections::BTreeMap, env, num::NonZeroU64};

use bytes::Bytes;
use inference::{RequestInputs, SequencePosition};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use vocabulary::DataType;

use super::*;

const NAMES: [&str; 8] = ["", "A", "B", "AA", "AB", "BA", "a very long name of a tensor or parameter", "ü"];
const DATATYPES: [DataType; 5] =
    [DataType::Uint8, DataType::Int8, DataType::Fp32, DataType::Bytes, DataType::Bool];

/// What a key depends on, in the order in which it does not matter how the client wrote it.
#[derive(Debug, Clone, PartialEq, Default)]
struct Parts {
    inputs: BTreeMap<&'static str, (DataType, Vec<i64>, Vec<u8>)>,
    outputs: Vec<&'static str>,
    parameters: Vec<(&'static str, Parameter)>,
    sequence: SequencePosition,
}

impl Parts {
    fn random(random: &mut StdRng) -> Self {
        let mut parts = Self::default();
        for _ in 0..random.random_range(0..4) {
            parts.add_input(random);
        }
        for _ in 0..random.random_range(0..3) {
            parts.add_output(random);
        }
        for _ in 0..random.random_range(0..3) {
            parts.parameters.push((name(random), parameter(random)));
        }
        if random.random_ratio(1, 4) {
            parts.sequence = sequence(random);
        }
        parts.sort();
        parts
    }

    fn add_input(&mut self, random: &mut StdRng) {
        let shape = (0..random.random_range(0..4)).map(|_| random.random_range(0..4)).collect();
        let data = (0..random.random_range(0..40)).map(|_| random.random_range(0..4)).collect();
        let datatype = *DATATYPES.choose(random).unwrap();
        self.inputs.insert(name(random), (datatype, shape, data));
    }

    fn add_output(&mut self, random: &mut StdRng) {
        let name = name(random);
        if !self.outputs.contains(&name) {
            self.outputs.push(name);
        }
    }

    /// Parameters of the same name keep their order, which may matter.
    fn sort(&mut self) {
        self.outputs.sort_unstable();
        self.parameters.sort_by_key(|(name, _)| *name);
    }

    /// Changes one thing. Nothing changes if the request does not have what was chosen.
    fn change(&mut self, random: &mut StdRng) {
        match random.random_range(0..12) {
            0 => self.add_input(random),
            1 => drop(self.inputs.pop_last()),
            2 => {
                if let Some((_, tensor)) = self.inputs.pop_first() {
                    self.inputs.entry(name(random)).or_insert(tensor);
                }
            }
            3 => {
                if let Some((_, (datatype, ..))) = self.inputs.iter_mut().next() {
                    *datatype = *DATATYPES.choose(random).unwrap();
                }
            }
            4 => {
                if let Some((_, (_, shape, _))) = self.inputs.iter_mut().next_back() {
                    match random.random_range(0..3) {
                        0 => shape.push(random.random_range(0..3)),
                        1 => drop(shape.pop()),
                        _ => shape.iter_mut().take(1).for_each(|dim| *dim += 1),
                    }
                }
            }
            5 => {
                if let Some((_, (.., data))) = self.inputs.iter_mut().next_back() {
                    match random.random_range(0..3) {
                        0 => data.push(0),
                        1 => drop(data.pop()),
                        _ if data.is_empty() => {}
                        _ => {
                            let place = random.random_range(0..data.len());
                            data[place] ^= 1 << random.random_range(0..8);
                        }
                    }
                }
            }
            // All bytes together stay the same.
            6 => {
                let mut tensors = self.inputs.values_mut();
                if let (Some((.., first)), Some((.., second))) = (tensors.next(), tensors.next())
                    && let Some(moved) = first.pop()
                {
                    second.insert(0, moved);
                }
            }
            7 => {
                let mut tensors = self.inputs.values_mut();
                if let (Some(first), Some(second)) = (tensors.next(), tensors.next()) {
                    std::mem::swap(first, second);
                }
            }
            8 => self.add_output(random),
            9 => drop(self.outputs.pop()),
            10 => match random.random_range(0..4) {
                0 => self.parameters.push((name(random), parameter(random))),
                1 => drop(self.parameters.pop()),
                2 => self.parameters.reverse(),
                _ => self.parameters.iter_mut().take(1).for_each(|(_, value)| *value = parameter(random)),
            },
            _ => self.sequence = sequence(random),
        }
        self.sort();
    }

    fn key(&self, keys: &CacheKeys, secret: Option<[u8; 32]>) -> std::sync::Arc<str> {
        let tensor = |(name, (datatype, shape, data)): (&&str, &(DataType, Vec<i64>, Vec<u8>))| {
            Tensor::new((*name).into(), *datatype, shape[..].into(), Bytes::from(data.clone()))
        };
        let request = Request {
            inputs: RequestInputs::Tensors(self.inputs.iter().map(tensor).collect()),
            outputs: self.outputs.iter().copied().map(Name::from).collect(),
            parameters: self.parameters.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
            sequence: self.sequence.clone(),
            ..Request::default()
        };
        keys.of(&request, secret).unwrap()
    }
}

fn name(random: &mut StdRng) -> &'static str {
    NAMES.choose(random).unwrap()
}

fn parameter(random: &mut StdRng) -> Parameter {
    let number = random.random_range(0..3_u8);
    match random.random_range(0..5) {
        0 => Parameter::String(name(random).into()),
        1 => Parameter::Int(number.into()),
        2 => Parameter::Bool(number == 0),
        3 => Parameter::Double(number.into()),
        _ => Parameter::Bytes(Bytes::copy_from_slice(name(random).as_bytes())),
    }
}

fn sequence(random: &mut StdRng) -> SequencePosition {
    let number = random.random_range(1..3);
    let id = match random.random_range(0..4) {
        0 => None,
        1 => NonZeroU64::new(number).map(SequenceId::Number),
        2 => Some(SequenceId::Text(number.to_string().as_str().into())),
        _ => Some(SequenceId::ServerGenerated(number)),
    };
    SequencePosition { id, start: random.random(), end: random.random() }
}

fn from_environment(name: &str) -> Option<u64> {
    env::var(name).ok().map(|number| number.parse().expect("a number"))
}

#[test]
fn pairs_of_requests_that_differ_in_one_thing_have_different_keys() {
    let pairs = from_environment("CACHE_KEY_PAIRS").unwrap_or(20_000);
    let seed = from_environment("CACHE_KEY_SEED").unwrap_or_else(rand::random);
    println!("CACHE_KEY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let keys = CacheKeys::new(&"m".into(), 1, &[0; 32]);
    let mut tried = 0;
    while tried < pairs {
        let one = Parts::random(&mut random);
        let mut other = one.clone();
        other.change(&mut random);
        let secret = random.random_ratio(1, 2).then_some([7; 32]);
        let equal = one.key(&keys, secret) == other.key(&keys, secret);
        assert_eq!(equal, one == other, "CACHE_KEY_SEED={seed}: {one:?} and {other:?}");
        tried += u64::from(one != other);
    }
}

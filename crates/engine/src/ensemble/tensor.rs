//! The tensors of an ensemble's request.
use std::{num::NonZeroU64, sync::Arc};

use config::OutputSpec;
use inference::{Response, SequenceId, SequencePosition};
use scheduling::TensorValue;
use smallvec::SmallVec;
use vocabulary::{Error, Name, NameIndex, Parameter, Shape, Tensor};

use super::admission::HeldBytes;

/// A tensor between the steps of one request. Clones share the bytes.
#[derive(Clone)]
pub(super) struct StepTensor {
    tensor: Tensor,
    /// Whether the first dimension counts rows.
    has_batch: bool,
    /// The step of a sequence to which the tensor belongs; `None` is that of the request.
    pub(super) sequence: Option<Arc<SequencePosition>>,
    /// Counts the bytes until the last clone is dropped.
    _held: Option<Arc<HeldBytes>>,
}

impl StepTensor {
    /// An input of the client, whose bytes the request has reserved.
    pub(super) fn of_client(tensor: Tensor, has_batch: bool) -> Self {
        Self { tensor, has_batch, sequence: None, _held: None }
    }

    /// The tensor as an input of a member. The bytes are shared.
    ///
    /// As Triton: ensemble_scheduler.cc, ReshapeTensorDims.
    pub(super) fn as_input(&self, name: &Name, dims: &[i64], wants_batch: bool) -> Tensor {
        self.shaped(name, dims, wants_batch)
    }

    /// The tensor as an output of the ensemble. The bytes are shared.
    pub(super) fn as_output(&self, spec: &OutputSpec, wants_batch: bool) -> Tensor {
        let inner = spec.reshape.as_ref().unwrap_or(&spec.dims);
        let mut output = self.shaped(&spec.name, inner, wants_batch);
        if spec.reshape.is_some() {
            output.reshape(spec.client_shape(output.shape(), wants_batch));
        }
        output
    }

    fn shaped(&self, name: &Name, dims: &[i64], wants_batch: bool) -> Tensor {
        let mut tensor = self.tensor.clone().renamed(name.clone());
        let shape = tensor.shape();
        let fits = |shape: &[i64]| {
            shape.len() == dims.len() && shape.iter().zip(dims).all(|(size, dim)| *dim == -1 || size == dim)
        };
        let changed: Option<Shape> = match (self.has_batch, wants_batch) {
            (false, true) if fits(shape) => Some([1].iter().chain(shape).copied().collect()),
            (true, false) if !fits(shape) && shape.first() == Some(&1) => Some(shape[1..].into()),
            _ => None,
        };
        if let Some(shape) = changed {
            tensor.reshape(shape);
        }
        tensor
    }
}

/// What a response of a member gives for each mapped output.
pub(super) struct StepOutputs<'a> {
    /// The names of the mapped outputs.
    pub(super) names: &'a [Name],
    /// Whether the member's tensors have a batch dimension.
    pub(super) has_batch: bool,
    /// The step of a sequence that the member's request had.
    pub(super) sequence: &'a Option<Arc<SequencePosition>>,
}

impl StepOutputs<'_> {
    /// Takes the outputs of a response, in the order of the names. `hold` counts the bytes.
    ///
    /// # Errors
    /// INVALID_ARG for a parameter of the response that has a wrong type.
    pub(super) fn take(
        &self,
        response: Response,
        hold: impl FnOnce(usize) -> Option<Arc<HeldBytes>>,
    ) -> Result<Vec<TensorValue<StepTensor>>, Error> {
        let Response { outputs, parameters } = response;
        let sequence = attached(&parameters, self.sequence)?;
        let index = NameIndex::default();
        let place = |name: &Name| index.place(name, outputs.iter().map(Tensor::name));
        let places: SmallVec<[_; 8]> = self.names.iter().map(place).collect();
        let held = hold(places.iter().flatten().map(|&place| outputs[place].byte_size()).sum());
        let mut outputs: Vec<_> = outputs.into_iter().map(Some).collect();
        let mut value = |place: Option<usize>| {
            let given = place.and_then(|place| outputs[place].take());
            let Some(tensor) = given else { return TensorValue::Absent };
            let is_empty = tensor.shape().contains(&0);
            let (sequence, held) = (sequence.clone(), held.clone());
            let value = StepTensor { tensor, has_batch: self.has_batch, sequence, _held: held };
            if is_empty { TensorValue::Empty(value) } else { TensorValue::Given(value) }
        };
        Ok(places.into_iter().map(&mut value).collect())
    }
}

/// The step of a sequence that a response names for the steps that use its outputs, or that of its request.
fn attached(
    parameters: &[(Name, Parameter)],
    own: &Option<Arc<SequencePosition>>,
) -> Result<Option<Arc<SequencePosition>>, Error> {
    let mut named: Option<SequencePosition> = None;
    for (name, value) in parameters {
        if !matches!(&**name, "sequence_id" | "sequence_start" | "sequence_end") {
            continue;
        }
        let step = named.get_or_insert_with(|| own.as_deref().cloned().unwrap_or_default());
        match (&**name, value) {
            ("sequence_id", Parameter::Int(id)) => {
                step.id = NonZeroU64::new(id.cast_unsigned()).map(SequenceId::Number);
            }
            ("sequence_id", Parameter::String(id)) => {
                step.id = (!id.is_empty()).then(|| SequenceId::Text((&**id).into()));
            }
            ("sequence_start", Parameter::Bool(flag)) => step.start = *flag,
            ("sequence_end", Parameter::Bool(flag)) => step.end = *flag,
            ("sequence_id", _) => {
                return Err(Error::invalid(
                    "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING",
                ));
            }
            (flag, _) => {
                return Err(Error::invalid(format!(
                    "expect parameter '{flag}' to be TRITONSERVER_PARAMETER_BOOL"
                )));
            }
        }
    }
    Ok(named.map(Arc::new).or_else(|| own.clone()))
}

#[cfg(test)]
mod tests {
    use vocabulary::DataType;

    use super::*;

    fn value(shape: &[i64], has_batch: bool) -> StepTensor {
        StepTensor::of_client(Tensor::new("t".into(), DataType::Uint8, shape.into(), vec![0; 4]), has_batch)
    }

    #[test]
    fn a_batch_of_one_is_added_or_removed_where_only_one_side_has_batches() {
        let shape = |value: StepTensor, dims: &[i64], wants_batch| {
            value.as_input(&"IN".into(), dims, wants_batch).shape().to_vec()
        };
        assert_eq!(shape(value(&[4], false), &[4], true), [1, 4]);
        assert_eq!(shape(value(&[4], false), &[-1], true), [1, 4]);
        assert_eq!(shape(value(&[2, 2], false), &[2], true), [2, 2], "it may be a batch already");
        assert_eq!(shape(value(&[1, 4], true), &[4], false), [4]);
        assert_eq!(shape(value(&[1, 4], true), &[-1, 4], false), [1, 4], "it fits as it is");
        assert_eq!(shape(value(&[2, 2], true), &[2], false), [2, 2], "the member refuses it");
        assert_eq!(shape(value(&[1, 4], true), &[4], true), [1, 4]);
    }

    #[test]
    fn an_output_has_the_shape_that_clients_see() {
        let spec = OutputSpec {
            name: "OUT".into(),
            datatype: DataType::Uint8,
            dims: [2, 2].as_slice().into(),
            reshape: Some([4].as_slice().into()),
            label_filename: None,
            labels: Arc::default(),
            is_shape_tensor: false,
        };
        let output = value(&[1, 4], true).as_output(&spec, true);
        assert_eq!((&**output.name(), output.shape()), ("OUT", &[1, 2, 2][..]));
        assert_eq!(value(&[4], false).as_output(&spec, false).shape(), [2, 2]);
    }

    #[test]
    fn a_response_may_name_the_sequence_for_the_steps_that_follow() {
        let own = Some(Arc::new(SequencePosition { id: None, start: true, end: false }));
        assert_eq!(attached(&[], &own).unwrap(), own);
        let named = |name: &str, value: Parameter| attached(&[(name.into(), value)], &own);
        let step = named("sequence_id", Parameter::Int(7)).unwrap().unwrap();
        assert_eq!((step.id.clone(), step.start), (NonZeroU64::new(7).map(SequenceId::Number), true));
        let step = named("sequence_id", Parameter::String("x".into())).unwrap().unwrap();
        assert_eq!(step.id, Some(SequenceId::Text("x".into())));
        let step = named("sequence_start", Parameter::Bool(false)).unwrap().unwrap();
        assert!(!step.start);
        for (name, value, text) in [
            (
                "sequence_id",
                Parameter::Bool(true),
                "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING",
            ),
            (
                "sequence_end",
                Parameter::Int(1),
                "expect parameter 'sequence_end' to be TRITONSERVER_PARAMETER_BOOL",
            ),
        ] {
            assert_eq!(named(name, value).unwrap_err().message, text);
        }
    }

    #[test]
    fn outputs_come_in_the_order_of_their_names_and_empty_ones_are_told() {
        let tensor = |name: &str, size: i64| {
            Tensor::new(name.into(), DataType::Uint8, [1, size].as_slice().into(), vec![0; 4])
        };
        let response = Response::of(vec![tensor("b", 4), tensor("a", 0), tensor("unused", 4)]);
        let names = ["a", "b", "c"].map(Name::new);
        let outputs = StepOutputs { names: &names, has_batch: true, sequence: &None };
        let taken = outputs.take(response, |bytes| {
            assert_eq!(bytes, 8, "what nobody uses is not held");
            None
        });
        let [TensorValue::Empty(_), TensorValue::Given(_), TensorValue::Absent] = &taken.unwrap()[..] else {
            panic!("in the order of the names")
        };
    }
}

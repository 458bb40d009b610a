//! The contents of a request, as calls from C have set them.
use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU64, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use config::Scheduling;
use engine::Model;
use inference::{Request, RequestInputs, SequenceId, SequencePosition};
use vocabulary::{
    DataType, DeviceMemory, Error, Name, Parameter, Parameters, Shape, Tensor, TensorData, TensorMemory,
};

use super::borrowed_inputs::{BorrowedInput, MemoryOwner};
use crate::response::Recipient;

/// The parameter by which a program lets a decoupled model be slowed down: the model waits while so many responses of the
/// request have not been delivered. The model does not see the parameter. A parameter of the same name in the configuration
/// of a model does the same for all requests.
const MOST_UNREAD_RESPONSES: &str = "MAX_UNREAD_RESPONSES";

/// `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`.
const SEQUENCE_START: u32 = 1;
/// `TRITONSERVER_REQUEST_FLAG_SEQUENCE_END`.
const SEQUENCE_END: u32 = 2;

/// All properties of a request.
pub(crate) struct RequestAttributes {
    pub(super) id: Name,
    pub(super) flags: u32,
    pub(super) correlation: Correlation,
    pub(super) priority: u64,
    pub(super) timeout_us: u64,
    pub(super) parameters: Parameters,
    pub(super) recipient: Option<Recipient>,
    inputs: Vec<RequestInput>,
    /// The input without a datatype and shape of its own.
    raw: Option<Name>,
    outputs: BTreeSet<Name>,
}

/// A correlation id as the application set it; 0 and the empty text mean none.
pub(super) enum Correlation {
    Number(u64),
    Text(Name),
}

/// One input, its memory in pieces.
struct RequestInput {
    name: Name,
    /// A raw input has neither.
    form: Option<(DataType, Shape)>,
    pieces: Vec<BorrowedInput>,
    /// Contents for instances with certain host policies. Nereid needs one copy. It reads these pieces if the input has
    /// no others.
    by_policy: BTreeMap<String, Vec<BorrowedInput>>,
}

impl RequestInput {
    fn new(name: &str, form: Option<(DataType, Shape)>) -> Self {
        Self { name: name.into(), form, pieces: Vec::new(), by_policy: BTreeMap::new() }
    }

    fn read(&self) -> impl Iterator<Item = &BorrowedInput> {
        let pieces = if self.pieces.is_empty() { self.by_policy.values().next() } else { Some(&self.pieces) };
        pieces.into_iter().flatten()
    }

    /// Whether the total size of its pieces fits in memory.
    fn can_be(&self) -> bool {
        let len = self.read().try_fold(0, |len: usize, piece| len.checked_add(piece.len()));
        len.is_some_and(|len| isize::try_from(len).is_ok())
    }

    /// The memory of the input; `None` if its pieces are in more than one memory.
    fn lend(&self, owner: &MemoryOwner) -> Option<TensorMemory> {
        let mut data = TensorData::default();
        let mut on_device = Vec::new();
        let mut device = None;
        for piece in self.read() {
            match *piece {
                BorrowedInput::Host(piece) => data.push(piece.lend(owner)),
                BorrowedInput::Gpu(id, piece) if *device.get_or_insert(id) == id => on_device.push(piece),
                BorrowedInput::Gpu(..) => return None,
            }
        }
        match device {
            None => Some(data.into()),
            Some(id) => data.is_empty().then(|| DeviceMemory::new(id, on_device, owner.clone()).into()),
        }
    }

    /// The bytes of a raw input; `None` if they are in memory of a device.
    fn lend_raw(&self, owner: &MemoryOwner) -> Option<TensorData> {
        match self.lend(owner)? {
            TensorMemory::Host(data) => Some(data),
            TensorMemory::Foreign(_) | TensorMemory::Device(_) => None,
        }
    }
}

impl RequestAttributes {
    /// An empty request to that model.
    pub(super) fn of(model: &Model) -> Self {
        Self {
            id: Name::default(),
            flags: 0,
            correlation: Correlation::Number(0),
            priority: level(model, 0),
            timeout_us: 0,
            parameters: Parameters::new(),
            recipient: None,
            inputs: Vec::new(),
            raw: None,
            outputs: BTreeSet::new(),
        }
    }

    /// The request as the engine takes it. The memory of the inputs is borrowed from the application.
    ///
    /// # Errors
    /// INVALID_ARG for a raw input beside other inputs, for an input larger than memory, and for a number of unread responses
    /// below 1; UNSUPPORTED for an input in more than one memory, and for a raw input in memory of a device.
    pub(crate) fn request(&self, model: &Model, owner: &MemoryOwner) -> Result<Request, Error> {
        let (parameters, most_unread) = self.flow()?;
        Ok(Request {
            id: self.id.clone(),
            most_unread,
            inputs: self.lend(model, owner)?,
            outputs: self.outputs.iter().cloned().collect::<Vec<_>>().into(),
            sequence: SequencePosition {
                id: self.correlation.id(),
                start: self.flags & SEQUENCE_START != 0,
                end: self.flags & SEQUENCE_END != 0,
            },
            priority: self.priority,
            timeout: (self.timeout_us > 0).then(|| Duration::from_micros(self.timeout_us)),
            parameters,
            output_placement: self.recipient.map(|recipient| Arc::new(recipient.allocator) as Arc<_>),
            ..Request::default()
        })
    }

    /// The parameters for the model, and how many responses may be unread before the model waits for the program, if the
    /// program wants that.
    fn flow(&self) -> Result<(Parameters, Option<NonZeroUsize>), Error> {
        let mut parameters = self.parameters.clone();
        let Some(index) = parameters.iter().position(|(name, _)| name == MOST_UNREAD_RESPONSES) else {
            return Ok((parameters, None));
        };
        let (_, value) = parameters.remove(index);
        let number = match value {
            Parameter::Int(number) => usize::try_from(number).ok().and_then(NonZeroUsize::new),
            Parameter::String(_) | Parameter::Bool(_) | Parameter::Double(_) | Parameter::Bytes(_) => None,
        };
        let text = format!("parameter '{MOST_UNREAD_RESPONSES}' must be an integer from 1");
        number.map(|number| (parameters, Some(number))).ok_or_else(|| self.invalid(&text))
    }

    fn lend(&self, model: &Model, owner: &MemoryOwner) -> Result<RequestInputs, Error> {
        if let Some(RequestInput { name, .. }) = self.inputs.iter().find(|input| !input.can_be()) {
            return Err(self.invalid(&format!("input '{name}' has more data than memory can have")));
        }
        let formed = |input: &RequestInput| {
            let (datatype, shape) = input.form.clone()?;
            let mixed =
                || self.unsupported(&format!("input '{}' has data in more than one memory", input.name));
            let memory = input.lend(owner).ok_or_else(mixed);
            Some(memory.map(|memory| Tensor::new(input.name.clone(), datatype, shape, memory)))
        };
        match (&self.raw, &self.inputs[..]) {
            (None, inputs) => {
                let tensors: Result<_, Error> = inputs.iter().filter_map(formed).collect();
                Ok(RequestInputs::Tensors(tensors?))
            }
            (Some(name), [only]) => {
                let on_device =
                    || self.unsupported(&format!("raw input '{name}' has data in memory of type GPU"));
                only.lend_raw(owner).map(RequestInputs::Raw).ok_or_else(on_device)
            }
            // As Triton: infer_request.cc, Normalize.
            (Some(_), several) => Err(self.invalid(&format!(
                "Raw request must only have 1 input (found {}) to be deduced but got {} inputs in '{}' model \
                 configuration",
                several.len(),
                model.config().inputs.len(),
                model.name()
            ))),
        }
    }

    fn invalid(&self, text: &str) -> Error {
        Error::invalid(inference::id_prefix(&self.id) + text)
    }

    fn unsupported(&self, text: &str) -> Error {
        Error::unsupported(inference::id_prefix(&self.id) + text)
    }

    /// 0, and levels that the model does not have, mean its default level.
    pub(super) fn set_priority(&mut self, model: &Model, priority: u64) {
        self.priority = level(model, priority);
    }

    pub(super) fn add_input(&mut self, name: &str, datatype: DataType, shape: Shape) -> Result<(), Error> {
        if self.inputs.iter().any(|input| input.name == name) {
            return Err(self.invalid(&format!("input '{name}' already exists in request")));
        }
        self.inputs.push(RequestInput::new(name, Some((datatype, shape))));
        Ok(())
    }

    pub(super) fn add_raw_input(&mut self, name: &str) -> Result<(), Error> {
        if !self.inputs.is_empty() {
            return Err(
                self.invalid(&format!("raw input '{name}' can't be added to request with other inputs"))
            );
        }
        self.inputs.push(RequestInput::new(name, None));
        self.raw = Some(name.into());
        Ok(())
    }

    pub(super) fn remove_input(&mut self, name: &str) -> Result<(), Error> {
        let before = self.inputs.len();
        self.inputs.retain(|input| input.name != name);
        if self.inputs.len() == before {
            return Err(self.no_input(name));
        }
        self.raw.take_if(|raw| *raw == name);
        Ok(())
    }

    pub(super) fn remove_all_inputs(&mut self) {
        self.inputs.clear();
        self.raw = None;
    }

    /// Appends memory to an input; with a host policy, to the contents for that host policy.
    pub(super) fn append(
        &mut self,
        name: &str,
        piece: BorrowedInput,
        policy: Option<&str>,
    ) -> Result<(), Error> {
        let missing = self.no_input(name);
        let input = self.inputs.iter_mut().find(|input| input.name == name).ok_or(missing)?;
        let pieces = match policy {
            None => &mut input.pieces,
            Some(policy) => input.by_policy.entry(policy.to_owned()).or_default(),
        };
        if piece.len() > 0 {
            pieces.push(piece);
        }
        Ok(())
    }

    pub(super) fn remove_data(&mut self, name: &str) -> Result<(), Error> {
        let missing = self.no_input(name);
        let input = self.inputs.iter_mut().find(|input| input.name == name).ok_or(missing)?;
        input.pieces.clear();
        input.by_policy.clear();
        Ok(())
    }

    fn no_input(&self, name: &str) -> Error {
        self.invalid(&format!("input '{name}' does not exist in request"))
    }

    pub(super) fn add_output(&mut self, name: &str) -> Result<(), Error> {
        if self.outputs.insert(name.into()) {
            return Ok(());
        }
        Err(self.invalid(&format!("output '{name}' already exists in request")))
    }

    pub(super) fn remove_output(&mut self, name: &str) {
        self.outputs.remove(name);
    }

    pub(super) fn remove_all_outputs(&mut self) {
        self.outputs.clear();
    }
}

impl Correlation {
    /// The correlation id as the engine takes it.
    fn id(&self) -> Option<SequenceId> {
        match self {
            Self::Number(number) => NonZeroU64::new(*number).map(SequenceId::Number),
            Self::Text(text) => (!text.is_empty()).then(|| SequenceId::Text(text.as_str().into())),
        }
    }
}

/// As Triton: infer_request.cc, SetPriority.
fn level(model: &Model, request_attributes: u64) -> u64 {
    let (levels, default) = match &model.config().scheduling {
        Scheduling::Dynamic(dynamic) => (dynamic.priority_levels, dynamic.default_priority_level),
        Scheduling::Unbatched | Scheduling::Sequence(_) | Scheduling::Ensemble(_) => (0, 0),
    };
    if request_attributes == 0 || request_attributes > levels { default } else { request_attributes }
}

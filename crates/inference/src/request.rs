//! An inference request.
use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use scheduling::SequencePosition;
use vocabulary::{
    BudgetExceeded, ByteReservation, Error, ForeignMemory, MemoryKind, Name, NameIndex, NameList, Parameters,
    REQUEST_BYTES, Tensor, TensorData, TensorMemory,
};

use crate::{ClientId, TraceContext, cache::CacheControl};

/// A decoded inference request. It does not depend on the protocol of the client.
#[derive(Debug, Default)]
pub struct Request {
    /// Every response repeats it; may be empty.
    pub id: Name,
    /// The version that the client asked for. `None`: the server chooses. Needed only if the version is replaced before
    /// it accepts the request.
    pub model_version: Option<i64>,
    /// Tensors, or bytes whose shape follows from the model's configuration.
    pub inputs: RequestInputs,
    /// Where the names of the inputs are.
    pub input_index: NameIndex,
    /// Which outputs the client wants.
    pub outputs: OutputSelection,
    /// Position in a sequence. The default means no sequence. The number 0 and the empty text are not ids of a
    /// client.
    pub sequence: SequencePosition,
    /// 1 is the most urgent priority. 0 means the model's default level.
    pub priority: u64,
    /// The longest queueing time that the client allows.
    pub timeout: Option<Duration>,
    /// Further values from the client for the model, in the client's order.
    pub parameters: Parameters,
    /// What the client says about the response cache.
    pub cache_control: CacheControl,
    /// The client that reads the responses. Unread responses are counted for each client. `None`: the request is a
    /// client of its own.
    pub client: Option<ClientId>,
    /// The backend waits while this many responses of the request are unread. `None`: the model's configuration
    /// decides.
    pub most_unread: Option<NonZeroUsize>,
    /// The bytes of memory that the request reserves in the server's budget. A network frontend reserves them when it
    /// receives the request. Otherwise the engine does. It moves them into the response channel when it accepts the request.
    pub reservation: Option<ByteReservation>,
    /// The trace of the request, if it is traced.
    pub trace: Option<TraceContext>,
    /// The memory for outputs, if the sender of the request supplies memory. A backend may query it. `None` means
    /// host memory of the server.
    pub output_placement: Option<Arc<dyn OutputPlacement>>,
}

/// Returns the memory for an output of a request, before the output exists.
pub trait OutputPlacement: fmt::Debug + Send + Sync {
    /// Kind and number of the memory for the output with that name, or for any output. `preferred` is the memory that
    /// the backend prefers. The byte size is given as far as it is known. Any thread may call this while the request
    /// executes.
    ///
    /// # Errors
    /// UNAVAILABLE if the memory cannot be determined.
    fn placement(
        &self,
        name: Option<&Name>,
        byte_size: Option<usize>,
        preferred: (MemoryKind, i64),
    ) -> Result<(MemoryKind, i64), Error>;

    /// Memory in which the backend may place the output with that name, if the output fits: the beginning of the memory
    /// then is the memory of the output. `None`: the backend provides the memory.
    fn memory(&self, name: &Name) -> Option<ForeignMemory> {
        let _ = name;
        None
    }

    /// Whether [`OutputPlacement::memory`] may return memory.
    fn offers_memory(&self) -> bool {
        false
    }
}

/// The outputs of a model that a request wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutputSelection {
    /// All outputs of the model.
    #[default]
    All,
    /// These outputs, without repetition; at least one.
    Named(NameList),
    /// No output. This is a padding row, which keeps a row position in a batch.
    Nothing,
}

impl OutputSelection {
    /// Whether the request wants the output with that name.
    pub fn includes(&self, output: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.has(output),
            Self::Nothing => false,
        }
    }

    /// The requested names, if the request lists names.
    pub fn names(&self) -> &[Name] {
        match self {
            Self::Named(names) => names,
            Self::All | Self::Nothing => &[],
        }
    }
}

impl From<Vec<Name>> for OutputSelection {
    /// Converts the clients' form: without names the client wants all outputs.
    fn from(names: Vec<Name>) -> Self {
        if names.is_empty() { Self::All } else { Self::Named(names.into()) }
    }
}

impl FromIterator<Name> for OutputSelection {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        Vec::from_iter(names).into()
    }
}

/// The form of a request's inputs.
#[derive(Debug, Clone)]
pub enum RequestInputs {
    /// Named tensors with datatype and shape.
    Tensors(Vec<Tensor>),
    /// The bytes of the model's only input. Name, datatype and shape follow from the configuration.
    Raw(TensorData),
}

impl Default for RequestInputs {
    fn default() -> Self {
        Self::Tensors(Vec::new())
    }
}

impl Request {
    /// The input tensors. Empty for a raw request that has not been checked against its model.
    pub fn tensors(&self) -> &[Tensor] {
        match &self.inputs {
            RequestInputs::Tensors(tensors) => tensors,
            RequestInputs::Raw(_) => &[],
        }
    }

    /// The input with that name.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        self.input_place(name).map(|place| &self.tensors()[place])
    }

    /// The place of the input with that name among [`tensors`](Self::tensors).
    pub fn input_place(&self, name: &str) -> Option<usize> {
        self.input_index.place(name, self.tensors().iter().map(Tensor::name))
    }

    /// Bytes of the inputs, except for those in memory of a device.
    fn host_input_bytes(&self) -> usize {
        match &self.inputs {
            RequestInputs::Tensors(tensors) => tensors.iter().map(host_bytes).sum(),
            RequestInputs::Raw(data) => data.len(),
        }
    }

    /// The bytes that the request at least reserves in the server's budget.
    pub fn reserved_bytes(&self) -> usize {
        self.host_input_bytes() + REQUEST_BYTES
    }

    /// Whether an input is in memory of a device.
    pub fn has_device_memory(&self) -> bool {
        self.tensors().iter().any(|tensor| matches!(tensor.memory(), TensorMemory::Device(_)))
    }

    /// Replaces foreign memory of the inputs by copies as it is now, so that later readers find the same bytes.
    ///
    /// # Errors
    /// As [`Tensor::host`].
    pub fn bring_to_host(&mut self) -> Result<(), Error> {
        match &mut self.inputs {
            RequestInputs::Tensors(tensors) => tensors.iter_mut().try_for_each(Tensor::bring_to_host),
            RequestInputs::Raw(_) => Ok(()),
        }
    }

    /// Counts the request in `received`, the reservation of the bytes in which the request arrived.
    ///
    /// # Errors
    /// The budget would be exceeded.
    pub fn count_in(&mut self, mut received: ByteReservation) -> Result<(), BudgetExceeded> {
        received.grow_to(self.reserved_bytes())?;
        self.reservation = Some(received);
        Ok(())
    }

    /// A request with the same content, which shares the bytes of the tensors. It reserves no bytes: the original has
    /// reserved them.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            id: self.id.clone(),
            model_version: self.model_version,
            inputs: self.inputs.clone(),
            input_index: NameIndex::default(),
            outputs: self.outputs.clone(),
            sequence: self.sequence.clone(),
            priority: self.priority,
            timeout: self.timeout,
            parameters: self.parameters.clone(),
            cache_control: self.cache_control,
            client: self.client,
            most_unread: self.most_unread,
            reservation: None,
            trace: self.trace.clone(),
            output_placement: self.output_placement.clone(),
        }
    }

    /// Memory for the output with that name, if the sender of the request offers memory.
    pub fn output_memory(&self, name: &Name) -> Option<ForeignMemory> {
        self.output_placement.as_ref()?.memory(name)
    }

    /// Keeps the outputs in memory of the server, so that they do not change while somebody else uses them.
    pub fn keep_outputs_on_host(&mut self) {
        self.output_placement = self.output_placement.take().filter(|placement| !placement.offers_memory());
    }

    /// Whether the client wants that output.
    pub fn wants(&self, output: &str) -> bool {
        self.outputs.includes(output)
    }
}

/// Foreign memory counts, because the server may have to copy it.
fn host_bytes(tensor: &Tensor) -> usize {
    match tensor.memory() {
        TensorMemory::Host(_) | TensorMemory::Foreign(_) => tensor.byte_size(),
        TensorMemory::Device(_) => 0,
    }
}

/// The beginning of many messages about a request, in Triton's words: the request's id.
pub fn id_prefix(request_id: &str) -> String {
    let id = if request_id.is_empty() { "<id_unknown>" } else { request_id };
    format!("[request id: {id}] ")
}

#[cfg(test)]
mod tests {
    use vocabulary::{DataType, DeviceMemory, DeviceRange};

    use super::*;

    #[test]
    fn memory_of_a_device_takes_no_room_on_the_host() {
        let piece = DeviceRange { address: 64, byte_size: 1 << 40 };
        let memories: [TensorMemory; 3] = [
            vec![0; 3].into(),
            ForeignMemory::copied_from(&vec![0; 4].into()).into(),
            DeviceMemory::new(0, [piece], Arc::new(())).into(),
        ];
        let tensor = |memory| Tensor::new("IN".into(), DataType::Uint8, [1][..].into(), memory);
        let inputs = RequestInputs::Tensors(memories.map(tensor).into());
        let request = Request { inputs, ..Request::default() };
        assert_eq!(request.reserved_bytes(), REQUEST_BYTES + 7);
    }

    /// Placement on the host, with or without memory.
    #[derive(Debug)]
    struct Offer(Option<ForeignMemory>);

    impl OutputPlacement for Offer {
        fn placement(
            &self,
            _: Option<&Name>,
            _: Option<usize>,
            preferred: (MemoryKind, i64),
        ) -> Result<(MemoryKind, i64), Error> {
            Ok(preferred)
        }

        fn memory(&self, _: &Name) -> Option<ForeignMemory> {
            self.0.clone()
        }

        fn offers_memory(&self) -> bool {
            self.0.is_some()
        }
    }

    #[test]
    fn outputs_that_stay_on_the_host_are_offered_no_memory() {
        let request = |offer| {
            let mut request =
                Request { output_placement: Some(Arc::new(Offer(offer))), ..Request::default() };
            let is_offered = request.output_memory(&"OUT".into()).is_some();
            request.keep_outputs_on_host();
            (is_offered, request.output_memory(&"OUT".into()).is_some(), request.output_placement.is_some())
        };
        assert_eq!(request(ForeignMemory::zeroed(4)), (true, false, false));
        // What only answers questions stays.
        assert_eq!(request(None), (false, false, true));
    }
}

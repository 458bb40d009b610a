//! `TRITONBACKEND_Request`: a request that a backend holds until it releases it.
pub mod output_states;

use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use inference::{
    OutputPlacement, OutputSelection, RequestInputs, Responder, SequenceId,
    backend::{Execution, SequenceState},
    lock::Mutex,
};
use smallvec::SmallVec;
use vocabulary::{Error, Name, NameIndex, Parameter};

use super::{Model, ModelInstance, in_use::InUseGuard, input::Input, state::State};
use crate::{
    handle::{Handle, borrow, delete, guard, put, put_if_wanted, readable, text},
    stable_box::StableBox,
    types::{
        enums::{MEMORY_CPU, MemoryType, ParameterType, memory_kind, memory_number},
        error::CError,
        parameter::show,
        trace::{Trace, owned::OwnedTrace},
    },
};

/// `TRITONBACKEND_Request`. The library must serialize its calls: only one thread uses a request at a time.
#[derive(Debug)]
pub struct Request {
    /// The request without its inputs.
    client_request: inference::Request,
    inputs: SmallVec<[Input; 2]>,
    input_index: NameIndex,
    /// `None` for a request that is not executed (custom batching).
    responder: Option<Responder>,
    /// The state of the sequence, for models with states.
    state: Option<SequenceState>,
    /// Dropped with the request, unless the request is executed again. Only releasing takes it out.
    execution: Mutex<Option<Execution>>,
    model: Arc<Model>,
    /// The correlation id as a C string, made at the first call that needs it.
    correlation_text: OnceLock<Name>,
    /// The number of the next response, for the statistics of decoupled models. The factories share it.
    response_index: OnceLock<Arc<AtomicU64>>,
    /// Output states. They live as long as the request, because the library knows their addresses.
    states: Mutex<Vec<StableBox<State>>>,
    /// The trace as the library sees it, if the library has asked for a trace that is not of a program.
    trace_handle: OnceLock<StableBox<Trace>>,
    /// `None` for a request that is not executed.
    in_use: Option<InUseGuard>,
}

impl Handle for Request {
    const NAME: &'static str = "TRITONBACKEND_Request";
}

const START: u32 = 1;
const END: u32 = 2;
const RELEASE_ALL: u32 = 1;
const RELEASE_RESCHEDULE: u32 = 2;

impl Request {
    /// A request that is executed, with the states of its sequence among its inputs. It is built in its box, because it is
    /// large.
    pub(super) fn new(mut execution: Execution, instance: &ModelInstance) -> Box<Self> {
        let client_request = std::mem::take(&mut execution.request);
        let states = execution.state.as_ref().map(SequenceState::library_inputs);
        let mut request = Self::of(client_request, instance.model(), Some(instance.hold()));
        request.inputs.extend(states.into_iter().flatten().map(Input::new));
        request.responder = Some(execution.responder.clone());
        request.state = execution.state.clone();
        execution.responder.timeline().held();
        request.execution = Mutex::new(Some(execution));
        request
    }

    /// A request that is not executed. Only a batching strategy reads it.
    pub(crate) fn shown(client_request: inference::Request, model: &Arc<Model>) -> Box<Self> {
        Self::of(client_request, model, None)
    }

    fn of(mut client_request: inference::Request, model: &Arc<Model>, hold: Option<InUseGuard>) -> Box<Self> {
        let inputs = match std::mem::take(&mut client_request.inputs) {
            RequestInputs::Tensors(tensors) => tensors.into_iter().map(Input::new).collect(),
            RequestInputs::Raw(_) => SmallVec::new(),
        };
        // As Triton: sorted by name.
        if let OutputSelection::Named(names) = &mut client_request.outputs {
            names.sort();
        }
        Box::new(Self {
            client_request,
            inputs,
            input_index: NameIndex::default(),
            responder: None,
            state: None,
            execution: Mutex::default(),
            model: model.clone(),
            correlation_text: OnceLock::new(),
            response_index: OnceLock::new(),
            states: Mutex::default(),
            trace_handle: OnceLock::new(),
            in_use: hold,
        })
    }

    /// Ends the request with an error and releases it.
    pub(super) fn fail(mut self: Box<Self>, error: Error) {
        let Some(execution) = self.execution.get_mut().take() else { return };
        execution.responder.timeline().released();
        // What the request holds is free before its client has the answer.
        drop(self);
        execution.fail(error);
    }

    /// The responder of the request.
    pub(super) fn responder(&self) -> Result<&Responder, Error> {
        self.responder
            .as_ref()
            .ok_or_else(|| Error::invalid("a request that is not executed cannot be answered"))
    }

    pub(super) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Counts one more object of the instance that executes the request.
    pub(super) fn hold(&self) -> Option<InUseGuard> {
        self.in_use.as_ref().map(InUseGuard::another)
    }

    pub(super) fn response_index(&self) -> &Arc<AtomicU64> {
        self.response_index.get_or_init(Arc::default)
    }

    fn trace(&self) -> *mut Trace {
        let Some(trace) = &self.client_request.trace else { return ptr::null_mut() };
        match trace.sink::<OwnedTrace>() {
            Some(trace) => trace.as_ptr(),
            None => {
                self.trace_handle.get_or_init(|| StableBox::new(Trace::of_server(trace.clone()))).as_ptr()
            }
        }
    }

    fn invalid(&self, what: &str) -> Error {
        Error::invalid(inference::id_prefix(&self.client_request.id) + what)
    }

    /// The input of that name.
    fn input_named(&self, name: &str) -> Result<&Input, Error> {
        let place = self.input_index.place(name, self.inputs.iter().map(|input| input.tensor().name()));
        let input = place.map(|place| &self.inputs[place]);
        input.ok_or_else(|| self.invalid(&format!("unknown request input name {name}")))
    }

    fn input_at(&self, index: u32) -> Result<&Input, Error> {
        let input = usize::try_from(index).ok().and_then(|index| self.inputs.get(index));
        let has = self.inputs.len();
        input.ok_or_else(|| self.invalid(&format!("out of bounds index {index}: request has {has} inputs")))
    }

    fn parameter_at(&self, index: u32) -> Result<&(Name, Parameter), Error> {
        let parameters = &self.client_request.parameters;
        let parameter = usize::try_from(index).ok().and_then(|index| parameters.get(index));
        parameter.ok_or_else(|| {
            let has = parameters.len();
            Error::invalid(format!("out of bounds index {index}: request has {has} parameters"))
        })
    }

    /// 0 outside of sequences.
    fn correlation_number(&self) -> Result<u64, Error> {
        match &self.client_request.sequence.id {
            None => Ok(0),
            Some(SequenceId::Number(number)) => Ok(number.get()),
            Some(SequenceId::ServerGenerated(number)) => Ok(*number),
            Some(SequenceId::Text(_)) => {
                Err(self.invalid("correlation ID in request is not an unsigned int"))
            }
        }
    }

    /// Always false for a request that is not executed.
    fn is_cancelled(&self) -> bool {
        self.responder.as_ref().is_some_and(Responder::is_cancelled)
    }

    /// Names of the requested outputs, sorted.
    fn outputs(&self) -> &[Name] {
        match &self.client_request.outputs {
            OutputSelection::All => self.model.outputs(),
            named_or_nothing => named_or_nothing.names(),
        }
    }

    /// Where the sender of the request wants its outputs.
    pub(super) fn output_placement(&self) -> Option<Arc<dyn OutputPlacement>> {
        self.client_request.output_placement.clone()
    }

    /// Kind and number of the memory where an output will lie. The library may state a preference.
    fn placement(
        &self,
        name: Option<&Name>,
        byte_size: Option<usize>,
        (kind, number): (Option<MemoryType>, Option<i64>),
    ) -> Result<(MemoryType, i64), Error> {
        let Some(placement) = &self.client_request.output_placement else { return Ok((MEMORY_CPU, 0)) };
        let liked = (memory_kind(kind.unwrap_or(MEMORY_CPU))?, number.unwrap_or(0));
        let (kind, number) = placement.placement(name, byte_size, liked)?;
        Ok((memory_number(kind), number))
    }

    /// Lets the request be executed again if the flags say so. The caller drops the request, unless this returns an
    /// error.
    fn release(&self, flags: u32) -> Result<(), Error> {
        if flags & RELEASE_RESCHEDULE == 0 {
            return if flags & RELEASE_ALL == 0 {
                Err(Error::invalid(format!("unknown request release flags {flags}")))
            } else {
                Ok(())
            };
        }
        // No lock is held below: the executor takes its own.
        let execution = self.execution.lock().take();
        let Some(mut execution) = execution else {
            return Err(Error::invalid("a request that is not executed cannot be rescheduled"));
        };
        execution.responder.timeline().released();
        // State inputs come anew each time.
        let states = execution.state.as_ref().map_or(0, SequenceState::count);
        let own = self.inputs.len().saturating_sub(states);
        let tensors = self.inputs.iter().take(own).map(|input| input.tensor().clone()).collect();
        let inputs = RequestInputs::Tensors(tensors);
        execution.request = inference::Request { inputs, ..self.client_request.share() };
        execution.reschedule().map_err(|(error, execution)| {
            execution.responder.timeline().held();
            *self.execution.lock() = Some(execution);
            error
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(execution) = self.execution.get_mut() {
            execution.responder.timeline().released();
        }
    }
}

/// Returns the request's id, empty if it has none. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestId(
    request: *mut Request,
    id: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(id, readable(&borrow(request)?.client_request.id)) })
}

/// Returns the correlation id if it is a number; 0 outside of sequences. INVALID_ARG if the id is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationId(
    request: *mut Request,
    id: *mut u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request.
        let number = unsafe { borrow(request) }?.correlation_number()?;
        // SAFETY: null or writable.
        unsafe { put(id, number) }
    })
}

/// Returns the correlation id if it is a text. It belongs to the request. INVALID_ARG if the id is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationIdString(
    request: *mut Request,
    id: *mut *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request.
        let request = unsafe { borrow(request)? };
        let Some(SequenceId::Text(text)) = &request.client_request.sequence.id else {
            return Err(request.invalid("correlation ID in request is not a string"));
        };
        // SAFETY: null or writable.
        unsafe { put(id, readable(request.correlation_text.get_or_init(|| Name::new(text)))) }
    })
}

/// Returns the time limit that the client has set for the request, in microseconds; 0 for no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    request: *mut Request,
    timeout: *mut u64,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        let granted = borrow(request)?.client_request.timeout.unwrap_or_default();
        put(timeout, u64::try_from(granted.as_micros()).unwrap_or(u64::MAX))
    })
}

/// Returns whether the request begins (1) or ends (2) its sequence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestFlags(request: *mut Request, flags: *mut u32) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        let step = &borrow(request)?.client_request.sequence;
        put(flags, u32::from(step.start) * START + u32::from(step.end) * END)
    })
}

/// Returns whether the request was cancelled: its responses are no longer wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestIsCancelled(
    request: *mut Request,
    is_cancelled: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(is_cancelled, borrow(request)?.is_cancelled()) })
}

/// Returns the number of parameters of the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameterCount(
    request: *mut Request,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe {
        put(count, u32::try_from(borrow(request)?.client_request.parameters.len()).unwrap_or(u32::MAX))
    })
}

/// Returns a parameter. Name and value belong to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameter(
    request: *mut Request,
    index: u32,
    key: *mut *const c_char,
    kind: *mut ParameterType,
    value: *mut *const c_void,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request.
        let (name, parameter) = unsafe { borrow(request) }?.parameter_at(index)?;
        let (its_kind, its_value) = show(parameter);
        // SAFETY: null or writable.
        unsafe {
            put(key, readable(name)).and_then(|()| put(kind, its_kind)).and_then(|()| put(value, its_value))
        }
    })
}

/// Returns the number of inputs of the request, control and state inputs included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputCount(
    request: *mut Request,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(count, u32::try_from(borrow(request)?.inputs.len()).unwrap_or(u32::MAX)) })
}

/// Returns the name of an input. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputName(
    request: *mut Request,
    index: u32,
    input_name: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(input_name, readable(borrow(request)?.input_at(index)?.tensor().name())) })
}

/// Returns the input of that name. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInput(
    request: *mut Request,
    name: *const c_char,
    input: *mut *mut Input,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request; a text or null; null or writable.
        let (request, name) = unsafe {
            put(input, ptr::null_mut())?;
            (borrow(request)?, text(name)?)
        };
        let found = request.input_named(name)?;
        // SAFETY: writable, as seen above.
        unsafe { put(input, ptr::from_ref(found).cast_mut()) }
    })
}

/// Returns an input by its index. It belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputByIndex(
    request: *mut Request,
    index: u32,
    input: *mut *mut Input,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(input, ptr::from_ref(borrow(request)?.input_at(index)?).cast_mut()) })
}

/// Returns the number of requested outputs: those that the client named, or all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputCount(
    request: *mut Request,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(count, u32::try_from(borrow(request)?.outputs().len()).unwrap_or(u32::MAX)) })
}

/// Returns the name of a requested output. The names are sorted, and belong to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputName(
    request: *mut Request,
    index: u32,
    output_name: *mut *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request.
        let request = unsafe { borrow(request)? };
        let outputs = request.outputs();
        let name = usize::try_from(index).ok().and_then(|index| outputs.get(index));
        let has = outputs.len();
        let name = name.ok_or_else(|| {
            request.invalid(&format!("out of bounds index {index}: request has {has} requested outputs"))
        })?;
        // SAFETY: null or writable.
        unsafe { put(output_name, readable(name)) }
    })
}

/// Returns where the buffer of an output will lie if it has that many bytes. Name and size may be null. The library
/// writes the memory type it prefers into the output parameters before the call. If a program provides the memory of
/// outputs, Nereid asks its query function. UNAVAILABLE if the program has no query function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputBufferProperties(
    request: *mut Request,
    name: *const c_char,
    byte_size: *mut usize,
    memory_type: *mut MemoryType,
    memory_type_id: *mut i64,
) -> *mut CError {
    // SAFETY: null or a live request; a text or null; null or readable and writable.
    guard(|| unsafe {
        let name = if name.is_null() { None } else { Some(Name::new(text(name)?)) };
        let liked = (memory_type.as_ref().copied(), memory_type_id.as_ref().copied());
        let (kind, number) = borrow(request)?.placement(name.as_ref(), byte_size.as_ref().copied(), liked)?;
        put_if_wanted(memory_type, kind);
        put_if_wanted(memory_type_id, number);
        Ok(())
    })
}

/// Releases the request for good (1), or returns it so that it is executed again (2). On success the library no longer
/// owns the request. On an error the library still owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestRelease(
    request: *mut Request,
    release_flags: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request. It is borrowed until it is certain that it is given back: the library goes on using
        // it, and what it has been shown of it, if it is not.
        unsafe { borrow(request)?.release(release_flags)? };
        // SAFETY: the library does not use it after this.
        unsafe { delete(request) };
        Ok(())
    })
}

/// Returns the trace of the request; null if it has none. The trace lives at least as long as the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestTrace(
    request: *mut Request,
    trace: *mut *mut Trace,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(trace, borrow(request)?.trace()) })
}

#[cfg(test)]
mod tests;

//! The handle of a request, and how it is made, cancelled and called back.
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::Arc,
};

use c_api::{
    handle::{Handle, borrow, delete, give, guard, put, text},
    types::error::CError,
};
use engine::Model;
use inference::{
    Canceller,
    lock::{Mutex, MutexGuard},
};
use vocabulary::Error;

use super::attributes::RequestAttributes;
use crate::{
    Server,
    allocator::{Allocator, ResponseAllocator},
    response::{Recipient, ResponseFn},
};

/// `TRITONSERVER_InferenceRequest`.
pub struct InferenceRequest {
    model: Arc<Model>,
    /// The version that the program asked for. `None`: the server chooses.
    version: Option<i64>,
    request_attributes: Mutex<RequestAttributes>,
    /// How the application gets the request back.
    back: Mutex<Option<ReleaseCallback>>,
    /// The state of the last time it was sent.
    run: Mutex<Option<Run>>,
}

/// `TRITONSERVER_InferenceRequestReleaseFn_t`.
pub type ReleaseFn = unsafe extern "C-unwind" fn(*mut InferenceRequest, u32, *mut c_void);

/// The callback that gives a request back to the application, and its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleaseCallback {
    pub(crate) release: ReleaseFn,
    pub(crate) userp: *mut c_void,
}

// SAFETY: the header requires a callback that any thread may call; the pointer is only passed back to it.
unsafe impl Send for ReleaseCallback {}
// SAFETY: the same.
unsafe impl Sync for ReleaseCallback {}

/// A request that was sent.
struct Run {
    canceller: Canceller,
    /// Whether `TRITONSERVER_InferenceRequestCancel` was called since.
    cancelled: bool,
}

impl Handle for InferenceRequest {
    const NAME: &'static str = "TRITONSERVER_InferenceRequest";
}

impl InferenceRequest {
    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The version that the program asked for. `None`: the server chooses.
    pub(crate) fn version(&self) -> Option<i64> {
        self.version
    }

    pub(crate) fn request_attributes(&self) -> MutexGuard<'_, RequestAttributes> {
        self.request_attributes.lock()
    }

    /// # Errors
    /// INVALID_ARG if a callback was not set.
    pub(crate) fn callbacks(&self) -> Result<(Recipient, ReleaseCallback), Error> {
        let missing = |what: &str| Error::invalid(format!("the {what} callback of the request is not set"));
        let recipient = self.request_attributes().recipient.ok_or_else(|| missing("response"))?;
        Ok((recipient, self.back.lock().ok_or_else(|| missing("release"))?))
    }

    /// Stores how the request that was just sent can be cancelled.
    pub(crate) fn running(&self, canceller: Canceller) {
        *self.run.lock() = Some(Run { canceller, cancelled: false });
    }

    /// Cancels the request that was sent. No lock is held, because cancelling may end the request.
    fn cancel(&self) -> Result<(), Error> {
        let canceller = self.run.lock().as_mut().map(|run| {
            run.cancelled = true;
            run.canceller.clone()
        });
        let unsent = || {
            Error::internal(
                "It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.",
            )
        };
        canceller.ok_or_else(unsent)?.cancel();
        Ok(())
    }

    fn is_cancelled(&self) -> Result<bool, Error> {
        self.run.lock().as_ref().map(|run| run.cancelled).ok_or_else(|| {
            Error::internal(
                "It is not possible to query cancellation status before calling TRITONSERVER_InferAsync.",
            )
        })
    }
}

/// Reads contents of the request.
///
/// # Safety
/// The request is null or live.
pub(super) unsafe fn look<T>(
    request: *mut InferenceRequest,
    read: impl FnOnce(&RequestAttributes) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: as the caller promises.
    unsafe { borrow(request) }.and_then(|request| read(&request.request_attributes()))
}

/// Changes contents of the request.
///
/// # Safety
/// The request is null or live.
pub(super) unsafe fn change(
    request: *mut InferenceRequest,
    write: impl FnOnce(&mut RequestAttributes, &Model) -> Result<(), Error>,
) -> *mut CError {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { borrow(request) }
            .and_then(|request| write(&mut request.request_attributes(), &request.model))
    })
}

/// Makes a request for a version of a model; -1 for the version that the server selects. The caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestNew(
    request: *mut *mut InferenceRequest,
    server: *mut Server,
    model_name: *const c_char,
    model_version: i64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live server; a text or null.
        let model = unsafe { borrow(server)?.model(text(model_name)?, model_version) }?;
        let request_attributes = Mutex::new(RequestAttributes::of(&model));
        let version = (model_version != -1).then_some(model_version);
        // SAFETY: null or writable.
        unsafe {
            let (back, run) = (Mutex::default(), Mutex::default());
            give(request, InferenceRequest { model, version, request_attributes, back, run })
        }
    })
}

/// Deletes a request; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestDelete(request: *mut InferenceRequest) -> *mut CError {
    // SAFETY: null or a request that the caller does not use after this.
    unsafe { delete(request) };
    ptr::null_mut()
}

/// Cancels a request that was sent. The request still gets a response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCancel(request: *mut InferenceRequest) -> *mut CError {
    // SAFETY: null or a live request.
    guard(|| unsafe { borrow(request) }?.cancel())
}

/// Returns whether the request was cancelled since it was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestIsCancelled(
    request: *mut InferenceRequest,
    is_cancelled: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { put(is_cancelled, borrow(request)?.is_cancelled()?) })
}

/// Sets the callback that gives the request back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetReleaseCallback(
    request: *mut InferenceRequest,
    release: Option<ReleaseFn>,
    userp: *mut c_void,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live request.
        let request = unsafe { borrow(request)? };
        *request.back.lock() = release.map(|release| ReleaseCallback { release, userp });
        Ok(())
    })
}

/// Sets the callback that receives the responses, and the allocator of their outputs. The allocator must outlive all
/// responses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetResponseCallback(
    request: *mut InferenceRequest,
    allocator: *mut ResponseAllocator,
    allocator_userp: *mut c_void,
    respond: Option<ResponseFn>,
    userp: *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live request; null or an allocator that outlives its responses.
    unsafe {
        change(request, |request_attributes, _| {
            let allocator = Allocator::new(allocator, allocator_userp)?;
            request_attributes.recipient = respond.map(|respond| Recipient { allocator, respond, userp });
            Ok(())
        })
    }
}

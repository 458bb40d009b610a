//! `TRITONBACKEND_ResponseFactory`: makes responses to a request, also after the request has been released.
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use inference::{Responder, ResponseReport};
use vocabulary::Error;

use super::{Model, Request, Response, in_use::InUseGuard, response::FINAL};
use crate::{
    handle::{Handle, borrow, delete, give, guard, put},
    types::error::CError,
};

/// `TRITONBACKEND_ResponseFactory`. The model stays loaded as long as a factory exists.
#[derive(Debug)]
pub struct ResponseFactory {
    responder: Responder,
    model: Arc<Model>,
    response_index: Arc<AtomicU64>,
    in_use: Option<InUseGuard>,
}

impl Handle for ResponseFactory {
    const NAME: &'static str = "TRITONBACKEND_ResponseFactory";
}

impl ResponseFactory {
    fn new(request: &Request) -> Result<Self, Error> {
        Ok(Self {
            responder: request.responder()?.clone(),
            model: request.model().clone(),
            response_index: request.response_index().clone(),
            in_use: request.hold(),
        })
    }

    /// Reports how the next response was made. The response gets its number even if the report is invalid.
    ///
    /// # Errors
    /// The error of the report.
    pub(super) fn report(&self, report: Result<ResponseReport, Error>) -> Result<(), Error> {
        let index = self.response_index.fetch_add(1, Relaxed);
        report.map(|report| self.responder.report_response(index, report))
    }
}

/// Makes a factory for responses to a request. The library deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryNew(
    factory: *mut *mut ResponseFactory,
    request: *mut Request,
) -> *mut CError {
    // SAFETY: null or a live request; null or writable.
    guard(|| unsafe { give(factory, ResponseFactory::new(borrow(request)?)?) })
}

/// Deletes a factory; null is fine. If the request has no final response and nothing can send one any more, the request
/// ends with an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryDelete(factory: *mut ResponseFactory) -> *mut CError {
    // SAFETY: null or a factory that the library does not use after this.
    guard(|| unsafe {
        delete(factory);
        Ok(())
    })
}

/// Sends the final flag (1) without a response: no further response follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactorySendFlags(
    factory: *mut ResponseFactory,
    send_flags: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live factory.
        let responder = unsafe { borrow(factory)?.responder.clone() };
        if send_flags & FINAL != 0 {
            responder.finish();
        }
        Ok(())
    })
}

/// Returns whether the request was cancelled: its responses are no longer wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryIsCancelled(
    factory: *mut ResponseFactory,
    is_cancelled: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live factory; null or writable.
    guard(|| unsafe { put(is_cancelled, borrow(factory)?.responder.is_cancelled()) })
}

/// Begins a response. The library sends or deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseNewFromFactory(
    response: *mut *mut Response,
    factory: *mut ResponseFactory,
) -> *mut CError {
    // SAFETY: null or a live factory; null or writable.
    guard(|| unsafe {
        put(response, ptr::null_mut())?;
        let factory = borrow(factory)?;
        let in_use = factory.in_use.as_ref().map(InUseGuard::another);
        give(response, Response::new(&factory.responder, &factory.model, None, in_use))
    })
}

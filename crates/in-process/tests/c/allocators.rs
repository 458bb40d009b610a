//! Response allocators: where outputs are written, and what happens if that fails.
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
};

use c_api::types::{
    buffer_attributes::BufferAttributes,
    error::{CError, TRITONSERVER_ErrorNew},
};
use in_process::allocator::*;
use vocabulary::MemoryKind;

use crate::support::{App, MOVABLE, Native, TestRequest, TestServer, echoed, result_of};

/// One way in which an allocator may behave.
#[derive(Default)]
struct AllocatorBehaviour {
    /// `TRITONSERVER_MemoryType` that it says to have given.
    kind: u32,
    fails: bool,
    gives_null: bool,
    starts: AtomicUsize,
    asked_for: AtomicUsize,
    queries: AtomicUsize,
    released: AtomicUsize,
}

unsafe extern "C-unwind" fn alloc(
    _: *mut ResponseAllocator,
    _: *const c_char,
    size: usize,
    kind: u32,
    _: i64,
    userp: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_userp: *mut *mut c_void,
    actual_kind: *mut u32,
    _: *mut i64,
) -> *mut CError {
    // SAFETY: `userp` is a manner that outlives its requests; places of the server.
    unsafe {
        let manner = &*userp.cast::<AllocatorBehaviour>();
        manner.asked_for.store(kind as usize, SeqCst);
        if manner.fails {
            return TRITONSERVER_ErrorNew(4, c"no room".as_ptr());
        }
        if !manner.gives_null {
            *buffer = Box::leak(vec![0_u8; size].into_boxed_slice()).as_mut_ptr().cast();
        }
        *buffer_userp = userp;
        *actual_kind = manner.kind;
    }
    ptr::null_mut()
}

unsafe extern "C-unwind" fn free(
    _: *mut ResponseAllocator,
    buffer: *mut c_void,
    userp: *mut c_void,
    size: usize,
    kind: u32,
    _: i64,
) -> *mut CError {
    // SAFETY: as above.
    unsafe {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(buffer.cast::<u8>(), size)));
        let manner = &*userp.cast::<AllocatorBehaviour>();
        assert_eq!(manner.kind, kind);
        manner.released.fetch_add(1, SeqCst);
    }
    ptr::null_mut()
}

unsafe extern "C-unwind" fn start(_: *mut ResponseAllocator, userp: *mut c_void) -> *mut CError {
    // SAFETY: as above.
    unsafe { &*userp.cast::<AllocatorBehaviour>() }.starts.fetch_add(1, SeqCst);
    // The error is logged, and has no other effect.
    // SAFETY: a text.
    unsafe { TRITONSERVER_ErrorNew(1, c"not in the mood".as_ptr()) }
}

unsafe extern "C-unwind" fn likes_pinned(
    _: *mut ResponseAllocator,
    userp: *mut c_void,
    _: *const c_char,
    size: *mut usize,
    kind: *mut u32,
    _: *mut i64,
) -> *mut CError {
    // SAFETY: `userp` is as above; places of the server.
    unsafe {
        (*userp.cast::<AllocatorBehaviour>()).queries.fetch_add(1, SeqCst);
        assert_eq!((*size, *kind), (3, 0));
        *kind = 1;
    }
    ptr::null_mut()
}

unsafe extern "C-unwind" fn refuses_to_describe(
    _: *mut ResponseAllocator,
    _: *const c_char,
    attributes: *mut BufferAttributes,
    _: *mut c_void,
    _: *mut c_void,
) -> *mut CError {
    // SAFETY: attributes of the server.
    assert_eq!(unsafe { &*attributes }.byte_size(), 3);
    // SAFETY: a text.
    unsafe { TRITONSERVER_ErrorNew(5, c"no words".as_ptr()) }
}

/// The error of a request whose outputs go to an allocator with that behaviour.
fn ask(manner: &AllocatorBehaviour, prepare: impl FnOnce(*mut ResponseAllocator)) -> Option<String> {
    ask_of(Native::echo(), manner, prepare)
}

fn ask_of(
    backend: Native,
    manner: &AllocatorBehaviour,
    prepare: impl FnOnce(*mut ResponseAllocator),
) -> Option<String> {
    let (stage, app) = (TestServer::of(MOVABLE, backend), App::new());
    let mut allocator = ptr::null_mut();
    // SAFETY: functions and places of this module.
    unsafe {
        result_of(TRITONSERVER_ResponseAllocatorNew(&mut allocator, Some(alloc), Some(free), Some(start)))
    }
    .unwrap();
    prepare(allocator);
    let ask =
        TestRequest::new(&stage, &app).with(allocator, ptr::from_ref(manner).cast_mut().cast()).input(b"abc");
    let answer = ask.answer();
    // SAFETY: the responses have been deleted.
    unsafe { result_of(TRITONSERVER_ResponseAllocatorDelete(allocator)) }.unwrap();
    assert_eq!(answer.outputs.is_empty(), answer.error.is_some());
    answer.error
}

#[test]
fn each_response_is_announced_and_its_buffer_given_back() {
    let manner = AllocatorBehaviour::default();
    assert_eq!(ask(&manner, |_| ()), None);
    assert_eq!((manner.starts.load(SeqCst), manner.released.load(SeqCst)), (1, 1));
}

#[test]
fn a_response_whose_memory_is_refused_is_an_error() {
    let fails = AllocatorBehaviour { fails: true, ..AllocatorBehaviour::default() };
    assert_eq!(ask(&fails, |_| ()).as_deref(), Some("Unavailable: no room"));
    assert_eq!(fails.released.load(SeqCst), 0);
}

#[test]
fn a_response_may_have_outputs_without_bytes() {
    let manner = AllocatorBehaviour { gives_null: true, ..AllocatorBehaviour::default() };
    assert_eq!(ask(&manner, |_| ()), None);
    assert_eq!((manner.starts.load(SeqCst), manner.released.load(SeqCst)), (1, 0));
}

#[test]
fn memory_of_a_device_cannot_be_written() {
    let manner = AllocatorBehaviour { kind: 2, ..AllocatorBehaviour::default() };
    assert_eq!(
        ask(&manner, |_| ()).as_deref(),
        Some("Unsupported: output 'OUT' cannot be written to memory of type GPU")
    );
    assert_eq!(manner.released.load(SeqCst), 1);
}

#[test]
fn an_allocator_chooses_the_kind_of_memory() {
    let manner = AllocatorBehaviour { kind: 1, ..AllocatorBehaviour::default() };
    // SAFETY: a live allocator.
    let query = |allocator| unsafe {
        result_of(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, Some(likes_pinned))).unwrap();
    };
    assert_eq!(ask(&manner, query), None);
    assert_eq!(manner.asked_for.load(SeqCst), 0, "outputs are in plain memory");
    assert_eq!(manner.queries.load(SeqCst), 0, "no backend has asked");
}

#[test]
fn the_query_function_tells_a_backend_where_outputs_will_be() {
    let (told, heard) = mpsc::channel();
    let asks = Native::each(move |execution| {
        let placement = execution.request.output_placement.clone().unwrap();
        told.send(placement.placement(Some(&"OUT".into()), Some(3), (MemoryKind::Cpu, 0))).unwrap();
        let response = echoed(&execution);
        execution.responder.complete(response);
    });
    let manner = AllocatorBehaviour { kind: 1, ..AllocatorBehaviour::default() };
    // SAFETY: a live allocator.
    let query = |allocator| unsafe {
        result_of(TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, Some(likes_pinned))).unwrap();
    };
    assert_eq!(ask_of(asks.clone(), &manner, query), None);
    assert_eq!(heard.recv().unwrap(), Ok((MemoryKind::CpuPinned, 0)));
    assert_eq!(manner.queries.load(SeqCst), 1);
    assert_eq!(ask_of(asks, &manner, |_| ()), None);
    let error = heard.recv().unwrap().unwrap_err();
    assert_eq!(error.with_code(), "Unavailable: Output properties are not available");
}

#[test]
fn a_buffer_without_attributes_is_released() {
    let manner = AllocatorBehaviour::default();
    // SAFETY: a live allocator.
    let attributes = |allocator| unsafe {
        result_of(TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
            allocator,
            Some(refuses_to_describe),
        ))
        .unwrap();
    };
    assert_eq!(ask(&manner, attributes).as_deref(), Some("Unsupported: no words"));
    assert_eq!(manner.released.load(SeqCst), 1);
}

#[test]
fn an_allocator_needs_its_functions() {
    let mut allocator = ptr::null_mut();
    // SAFETY: functions and places of this module.
    let refused =
        unsafe { result_of(TRITONSERVER_ResponseAllocatorNew(&mut allocator, Some(alloc), None, None)) };
    assert!(refused.is_err() && allocator.is_null());
    // SAFETY: null is allowed.
    assert_eq!(unsafe { result_of(TRITONSERVER_ResponseAllocatorDelete(ptr::null_mut())) }, Ok(()));
}

//! The parsers of what workers and models write, as entrances for fuzzers. They exist only with the feature `fuzzing`, and
//! are no part of the interface of this crate.
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use crate::{
    requirements,
    wire::{
        frames::{FrameBuffer, ReadOutcome},
        marshal::MarshalValue,
        messages::{WorkerAnswer, WorkerItem, parameters_of_json},
    },
};

/// Reads the message of a worker, and each of its items up to the first that is damaged.
pub fn message(bytes: &[u8]) {
    let Ok(value) = MarshalValue::read(bytes) else { return };
    let Ok(items) = value.as_list() else { return };
    for item in items {
        match WorkerItem::of(item) {
            Ok(WorkerItem::Send { response: Some(response), .. }) => {
                let _ = parameters_of_json(response.parameters);
            }
            Ok(WorkerItem::Infer { request, .. }) => {
                let _ = parameters_of_json(request.parameters);
            }
            Ok(WorkerItem::Done { answers, .. }) => {
                for answer in &answers {
                    if let WorkerAnswer::Response(response) = answer {
                        let _ = parameters_of_json(response.parameters);
                    }
                }
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Reads the frames of a worker that writes `size` bytes at once, and their messages. Returns the bytes of all frames.
///
/// # Panics
/// The machine has no sockets.
pub fn frames(bytes: &[u8], size: usize) -> usize {
    let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None).expect("the machine has sockets");
    let (mut buffer, mut total) = (FrameBuffer::default(), 0);
    for piece in bytes.chunks(size.max(1)) {
        let sent = send(&theirs, piece, SendFlags::DONTWAIT);
        assert_eq!(sent, Ok(piece.len()), "the socket has been read");
        while matches!(buffer.read(&ours), ReadOutcome::Full | ReadOutcome::Some) {
            loop {
                match buffer.next_frame() {
                    Ok(Some(range)) => {
                        total += range.len();
                        message(buffer.frame(range));
                    }
                    Ok(None) => break,
                    Err(()) => return total,
                }
            }
        }
    }
    total
}

/// The lines that an installer gets for the requirements of a model in a sandbox. `None` if they are refused.
pub fn requirements(text: &[u8]) -> Option<String> {
    requirements::accepted(text).ok()
}

//! What workers of Python models write, and what models ask for.
use super::input::setting;
use crate::{Bound, Effort, FuzzTarget};

pub(super) const MESSAGE: FuzzTarget = FuzzTarget {
    name: "python-message",
    reads: "a message of a worker, in the format of Python's marshal",
    memory: Bound {
        factor: 256,
        constant: 4 << 10,
        reason: "a value of one byte has 32; the item that it becomes has more",
    },
    work: Bound { factor: 4, constant: 64, reason: "texts, and growing vectors" },
    run: |input| {
        backend_python::fuzzing::message(input);
        Effort::default()
    },
};

/// The first byte is the number of bytes that arrive at once.
pub(super) const FRAMES: FuzzTarget = FuzzTarget {
    name: "python-frames",
    reads: "what a worker writes to its socket",
    memory: Bound { factor: 256, constant: 160 << 10, reason: "as a message, with a buffer for reading" },
    work: Bound { factor: 16, constant: 1 << 10, reason: "as messages; the buffer grows when it is read" },
    run: |input| {
        let (size, bytes) = setting(input);
        let size = size.max(bytes.len() / 64);
        let read = backend_python::fuzzing::frames(&bytes, size);
        assert!(read <= bytes.len(), "no more is read than was written");
        Effort::default()
    },
};

pub(super) const REQUIREMENTS: FuzzTarget = FuzzTarget {
    name: "python-requirements",
    reads: "requirements.txt of a model in a sandbox",
    memory: Bound {
        factor: 128,
        constant: 8 << 10,
        reason: "copies of the text, a text that refuses it, and about a hundred bytes for a version of four",
    },
    work: Bound { factor: 16, constant: 64, reason: "a name of one byte is read, written anew and copied" },
    run: |input| {
        let Some(accepted) = backend_python::fuzzing::requirements(input) else { return Effort::default() };
        assert!(accepted.lines().all(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric())));
        let written_again = |text: &str| backend_python::fuzzing::requirements(text.as_bytes());
        let again = written_again(&accepted).expect("what is written is accepted");
        assert_eq!(again.lines().count(), accepted.lines().count(), "no line is added or lost");
        // A marker that is never true is written in one form, and that one in another.
        assert_eq!(written_again(&again), Some(again), "what is written twice stays");
        Effort::default()
    },
};

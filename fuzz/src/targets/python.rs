//! What workers of Python models write, and what models ask for.
use super::{plain, setting};
use crate::{Bound, Effort, Target};

pub(super) const MESSAGE: Target = Target {
    name: "python-message",
    reads: "a message of a worker, in the format of Python's marshal",
    memory: Bound {
        factor: 256,
        constant: 4 << 10,
        reason: "a value of one byte has 32; the item that it becomes has more",
    },
    work: Bound { factor: 4, constant: 64, reason: "texts, and growing vectors" },
    run: |input| plain(backend_python::fuzzing::message(input)),
};

/// The first byte is the number of bytes that arrive at once.
pub(super) const FRAMES: Target = Target {
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

pub(super) const REQUIREMENTS: Target = Target {
    name: "python-requirements",
    reads: "requirements.txt of a model in a sandbox",
    memory: Bound { factor: 16, constant: 4 << 10, reason: "copies of the text, and a text that refuses it" },
    work: Bound { factor: 1, constant: 64, reason: "copies of the text" },
    run: |input| {
        let accepted = backend_python::fuzzing::requirements(input);
        let first = input.iter().find(|byte| !byte.is_ascii_whitespace());
        assert!(
            !accepted || first != Some(&b'-') || input.trim_ascii_start().starts_with(b"--hash="),
            "an option"
        );
        Effort::default()
    },
};

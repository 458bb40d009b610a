//! What gRPC clients write. The first byte says in which pieces it arrives.
use super::input::setting;
use crate::{Bound, Effort, FuzzTarget};

pub(super) const INFER: FuzzTarget = FuzzTarget {
    name: "grpc-infer",
    reads: "a `ModelInferRequest` in several frames, with the contents of its inputs",
    memory: Bound {
        factor: 256,
        constant: 16 << 10,
        reason: "an input of two bytes has about 400; the number of items is limited",
    },
    work: Bound { factor: 4, constant: 64, reason: "names, texts and growing vectors" },
    run: |input| {
        let (size, message) = setting(input);
        Effort { reserved: frontend::fuzzing::infer_message(&message, size), steps: None }
    },
};

/// The second byte is the budget, in units of 64 bytes.
pub(super) const MESSAGES: FuzzTarget = FuzzTarget {
    name: "grpc-messages",
    reads: "a body of framed messages, for which there may be no room",
    memory: Bound {
        factor: 32,
        constant: 8 << 10,
        reason: "a message of five bytes is held with its reservation, in a list that grows by doubling",
    },
    work: Bound {
        factor: 4,
        constant: 64,
        reason: "a message has a reservation, and a refused one an error",
    },
    run: |input| {
        let (size, rest) = setting(input);
        let (budget, body) = setting(&rest);
        Effort { reserved: frontend::fuzzing::messages(&body, size, budget * 64), steps: None }
    },
};

pub(super) const FRAMES: FuzzTarget = FuzzTarget {
    name: "http2-frames",
    reads: "the frames of an HTTP/2 connection, and the header blocks whose `:authority` is mended",
    memory: Bound {
        factor: 8,
        constant: 1 << 10,
        reason: "the readers keep a frame's head; the target keeps two copies of the input, and what was read",
    },
    work: Bound { factor: 1, constant: 32, reason: "only the target allocates" },
    run: |input| {
        let (size, bytes) = setting(input);
        let whole = frontend::fuzzing::frames(&bytes, bytes.len());
        let changed = bytes.iter().zip(&whole.0).filter(|(before, after)| before != after);
        changed.for_each(|change| assert_eq!(change, (&b'%', &b'-'), "only the names of sockets are mended"));
        assert_eq!(frontend::fuzzing::frames(&bytes, size), whole, "the pieces do not matter");
        Effort::default()
    },
};

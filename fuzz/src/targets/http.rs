//! What HTTP clients write.
use bytes::Bytes;

use super::input::{setting, text};
use crate::{Bound, Effort, FuzzTarget};

/// The JSON part, and the binary part behind the first NUL.
pub(super) const INFER: FuzzTarget = FuzzTarget {
    name: "http-infer",
    reads: "an infer request: its JSON part, a NUL, and its binary part",
    memory: Bound {
        factor: 200,
        constant: 8 << 10,
        reason: "a list of one byte has a node of 40 bytes and a place of 56 among the open ones, in vectors that grow by \
                 doubling; both end at 65,536",
    },
    work: Bound { factor: 6, constant: 64, reason: "as in the tests of the decoder: STEPS_PER_BYTE" },
    run: |input| {
        let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
        let binary = Bytes::copy_from_slice(input.get(end + 1..).unwrap_or_default());
        Effort { steps: Some(frontend::fuzzing::infer(&input[..end], &binary)), reserved: 0 }
    },
};

pub(super) const GENERATE: FuzzTarget = FuzzTarget {
    name: "http-generate",
    reads: "a generate request, with and without a batch dimension",
    memory: Bound {
        factor: 160,
        constant: 8 << 10,
        reason: "a list of one byte has about 70, in a vector that grows by doubling; a parameter of six bytes has a name, a \
                 value and a place in a set",
    },
    work: Bound { factor: 12, constant: 128, reason: "STEPS_PER_BYTE of the decoder, twice" },
    run: |input| {
        let steps = [false, true].map(|batched| frontend::fuzzing::generate(input, batched));
        Effort { steps: Some(steps.iter().sum()), reserved: 0 }
    },
};

pub(super) const ROUTE: FuzzTarget = FuzzTarget {
    name: "http-route",
    reads: "the path of a request",
    memory: Bound {
        factor: 64,
        constant: 1 << 10,
        reason: "a segment has two bytes and is a text and a reference",
    },
    work: Bound { factor: 2, constant: 32, reason: "a decoded segment is an allocation" },
    run: |input| {
        frontend::fuzzing::route(&text(input));
        Effort::default()
    },
};

/// The first byte chooses the format and the limit.
pub(super) const INFLATE: FuzzTarget = FuzzTarget {
    name: "inflate",
    reads: "a compressed body, of gzip or of zlib",
    memory: Bound {
        factor: 2,
        constant: 128 << 10,
        reason: "the budget has what is inflated; the decoder has its window and its tables",
    },
    work: Bound {
        factor: 4,
        constant: 4 << 10,
        reason: "the decoder is made once, and again for each member",
    },
    run: |input| {
        let (setting, source) = setting(input);
        let limit = 1 << (8 + (setting >> 1) % 11);
        Effort { reserved: frontend::fuzzing::inflate(&source, setting % 2 == 0, limit), steps: None }
    },
};

pub(super) const CERTIFICATE: FuzzTarget = FuzzTarget {
    name: "certificate",
    reads: "the certificate of a client of TLS, before it is trusted",
    memory: Bound { factor: 0, constant: 0, reason: "the reader returns references" },
    work: Bound { factor: 0, constant: 0, reason: "the reader allocates nothing" },
    run: |input| {
        frontend::fuzzing::certificate(input);
        Effort::default()
    },
};

//! Packages of AOTInductor, up to the code, which no fuzzer opens.
use backend_pytorch::fuzzing;

use crate::{Bound, Effort, FuzzTarget};

pub(super) const PACKAGE: FuzzTarget = FuzzTarget {
    name: "pytorch-package",
    reads: "`model.pt2`",
    memory: Bound {
        factor: 16,
        constant: 3 << 20,
        reason: "a buffer, the list of members, and metadata of 64 KiB, whose texts take more than their bytes",
    },
    work: Bound {
        factor: 2,
        constant: 64 << 10,
        reason: "each member and each text of the metadata is allocated",
    },
    run: |bytes| {
        fuzzing::package(bytes);
        Effort::default()
    },
};

pub(super) const CALL_SPEC: FuzzTarget = FuzzTarget {
    name: "pytorch-call-spec",
    reads: "what compiled code says of its inputs and outputs",
    memory: Bound {
        factor: 512,
        constant: 4 << 10,
        reason: "a tree in JSON becomes values, and each leaf has a path as long as the tree is deep",
    },
    work: Bound { factor: 8, constant: 256, reason: "each value and each part of a path is allocated" },
    run: |bytes| {
        fuzzing::call_spec(bytes);
        Effort::default()
    },
};

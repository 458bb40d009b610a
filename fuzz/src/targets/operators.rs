//! What operators write: they are trusted, but a mistake must be named, and some of these texts come from templates.
use std::ffi::OsString;

use server::options::{ProcessEnvironment, parse};

use super::input::text;
use crate::{Bound, Effort, FuzzTarget};

pub(super) const URL: FuzzTarget = FuzzTarget {
    name: "store-url",
    reads: "the URL of a model repository",
    memory: Bound {
        factor: 64,
        constant: 2 << 10,
        reason: "a segment of two bytes is a reference of 16, three times",
    },
    work: Bound { factor: 4, constant: 64, reason: "copies of the text and of its parts" },
    run: |input| {
        object_stores::fuzzing::url(&text(input));
        Effort::default()
    },
};

pub(super) const PROFILE: FuzzTarget = FuzzTarget {
    name: "store-profile",
    reads: "a file of profiles of AWS",
    memory: Bound {
        factor: 96,
        constant: 4 << 10,
        reason: "a setting of three bytes has two texts in a tree",
    },
    work: Bound { factor: 2, constant: 32, reason: "a setting of three bytes has two texts" },
    run: |input| {
        object_stores::fuzzing::profile(&text(input));
        Effort::default()
    },
};

/// Each line is an argument.
pub(super) const OPTIONS: FuzzTarget = FuzzTarget {
    name: "options",
    reads: "a command line, with an argument in each line",
    memory: Bound {
        factor: 128,
        constant: 256 << 10,
        reason: "an argument of one byte is a text; --help is long",
    },
    work: Bound {
        factor: 256,
        constant: 64 << 10,
        reason: "an unknown name is compared with the names of all options",
    },
    run: |input| {
        // The option `config` would open a file.
        let opens_file = |line: &&str| {
            line.starts_with("--c") && "--config".starts_with(line.split('=').next().unwrap_or(line))
        };
        let text = text(input);
        let arguments = text.lines().filter(|line| !opens_file(line)).map(OsString::from);
        if let Err(refused) = parse(arguments, &ProcessEnvironment::default()) {
            assert!(!refused.to_string().is_empty(), "a refusal has a reason");
        }
        Effort::default()
    },
};

pub(super) const OPTIONS_FILE: FuzzTarget = FuzzTarget {
    name: "options-file",
    reads: "the file of the option `config`",
    memory: Bound {
        factor: 512,
        constant: 256 << 10,
        reason: "a key of two bytes has a place in a tree, and a value",
    },
    work: Bound {
        factor: 64,
        constant: 16 << 10,
        reason: "as a command line; a misspelt name is compared with all names",
    },
    run: |input| {
        server::options::fuzzing::file(&text(input));
        Effort::default()
    },
};

//! Configurations of models, from files and from clients, and answers that a shared cache has stored.
use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use config::{Completion, ConfigErrors, FileEntry, ModelLayout, examine};
use inference::cache::packed;

use crate::{Bound, Effort, FuzzTarget};

pub(super) const TEXT: FuzzTarget = FuzzTarget {
    name: "config-text",
    reads: "config.pbtxt",
    memory: Bound {
        factor: 1024,
        constant: 64 << 10,
        reason: "an empty message of three bytes has all fields of its type; a mistake has a text",
    },
    work: Bound {
        factor: 400,
        constant: 16 << 10,
        reason: "an unknown name of one letter is compared with all names of its message, twice",
    },
    run: |source| {
        let parsed = proto::text::parse(source);
        let Ok(formatted) = proto::text::format(source) else { return Effort::default() };
        let parsed = parsed.expect("what can be formatted can be read");
        let again = proto::text::parse(formatted.as_bytes()).expect("what is formatted can be read");
        // Two values that are no numbers are not equal.
        assert_eq!(
            format!("{:?}", again.config),
            format!("{:?}", parsed.config),
            "formatting keeps the meaning"
        );
        assert_eq!(proto::text::format(formatted.as_bytes()).as_ref(), Ok(&formatted), "twice is as once");
        Effort::default()
    },
};

pub(super) const JSON: FuzzTarget = FuzzTarget {
    name: "config-json",
    reads: "the configuration in the parameter `config` of a load",
    memory: Bound {
        factor: proto::json::MOST_FOR_A_BYTE,
        constant: 64 << 10,
        reason: "what a load reserves before it reads a configuration",
    },
    work: Bound {
        factor: 16,
        constant: 8 << 10,
        reason: "each value is boxed, and noted with its path; the first twenty misspelt names are compared with all names",
    },
    run: |source| {
        let Ok(source) = str::from_utf8(source) else { return Effort::default() };
        let Ok(parsed) = proto::json::parse(source) else { return Effort::default() };
        let written = proto::json::to_json(&parsed.config);
        let again = proto::json::parse(&written).expect("what is written can be read");
        assert_eq!(
            format!("{:?}", again.config),
            format!("{:?}", parsed.config),
            "writing keeps the meaning"
        );
        Effort::default()
    },
};

pub(super) const MODEL: FuzzTarget = FuzzTarget {
    name: "model-config",
    reads: "config.pbtxt with the rules for configurations",
    memory: Bound { factor: 1024, constant: 64 << 10, reason: "as the text; each broken rule has a text" },
    work: Bound {
        factor: 200,
        constant: 16 << 10,
        reason: "an unknown name of one letter is compared with all names of its message",
    },
    run: |source| {
        let file = FileEntry { name: "model.onnx".into(), is_directory: false };
        let layout = ModelLayout { name: "m".into(), versions: BTreeMap::from([(1, vec![file])]) };
        let examined = examine(Path::new("m/config.pbtxt"), source);
        let mut errors = ConfigErrors::default();
        let _ = examined.given.declare_all(&layout, Completion::Strict, &mut errors);
        let _ = (errors.report(), examined.errors.report());
        Effort::default()
    },
};

pub(super) const CACHED_ANSWER: FuzzTarget = FuzzTarget {
    name: "cached-answer",
    reads: "an answer that a shared cache has stored",
    memory: Bound {
        factor: 64,
        constant: 4 << 10,
        reason: "an output of 32 bytes has a tensor of several hundred",
    },
    work: Bound { factor: 2, constant: 32, reason: "names, and growing vectors" },
    run: |buffer| {
        let shared = packed::read_shared(&Bytes::copy_from_slice(buffer));
        assert_eq!(packed::read(buffer).is_ok(), shared.is_ok(), "both readers accept the same");
        if let Ok(answer) = shared {
            packed::packed(&answer).expect("what was read can be written");
        }
        Effort::default()
    },
};

//! What a package needs of this machine. It is compared before the code is opened.
use std::path::Path;

use rawzip::ReaderAt;
use vocabulary::Error;

use crate::{
    machine_code::InstructionSets,
    package::{CompiledPackage, refused},
};

/// The device that the code is for.
const DEVICE: &str = "AOTI_DEVICE_KEY";

/// The sets of instructions that the code uses.
const INSTRUCTION_SETS: &str = "AOTI_CPU_ISA";

/// The device of packages that the server runs itself.
pub(crate) const CPU: &str = "cpu";

/// What a machine offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Processor {
    /// The kind of machine, by its name in Rust and Linux.
    pub(crate) machine: &'static str,
    /// Whether it has a feature, by the names of the compiler.
    pub(crate) has: fn(&str) -> bool,
}

/// The device that the code of a package is for. Older writers name none, and then it is for the processor.
pub(crate) fn device<R: ReaderAt>(package: &CompiledPackage<R>) -> &str {
    package.metadata.get(DEVICE).map_or(CPU, String::as_str)
}

/// The sets of instructions that a package names, and what the processor says of them.
pub(crate) fn instruction_sets<R: ReaderAt>(
    package: &CompiledPackage<R>,
    processor: Processor,
) -> Option<(&str, InstructionSets)> {
    let named = package.metadata.get(INSTRUCTION_SETS)?;
    Some((named, InstructionSets::of(named, processor.has)))
}

/// Requires that the processor can run the code of the package at `path`.
///
/// # Errors
/// INVALID_ARGUMENT for code that is for another device or machine, or has instructions that the processor lacks; for a
/// package that does not tell its instructions; for a library that is none.
pub(crate) fn check<R: ReaderAt>(
    package: &CompiledPackage<R>,
    path: &Path,
    processor: Processor,
) -> Result<(), Error> {
    let refusal = |text: String| Err(Error::invalid(format!("the package '{}' {text}", path.display())));
    let device = device(package);
    if device != CPU {
        return refusal(format!(
            "is compiled for the device '{device}', and the server computes it on '{CPU}'"
        ));
    }
    let header = package.code_header().map_err(|error| refused(path, &error))?;
    let machine = header.machine();
    if machine != processor.machine {
        return refusal(format!("is compiled for {machine}, and this machine is {}", processor.machine));
    }
    let Some((named, sets)) = instruction_sets(package, processor) else {
        return refusal(format!(
            "does not tell which instructions its code uses: its metadata lack {INSTRUCTION_SETS}"
        ));
    };
    match sets {
        InstructionSets::Present => Ok(()),
        InstructionSets::Missing(missing) => refusal(format!(
            "is compiled for a processor with {named}, and this one lacks {}: compile the model on a machine as this one",
            missing.join(", ")
        )),
        InstructionSets::Restricted(name) => {
            refusal(format!("uses {name}, whose registers only PyTorch in Python asks the system for"))
        }
        InstructionSets::Unknown(name) => {
            refusal(format!("uses the instructions '{name}' ({INSTRUCTION_SETS}), which are not known here"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        archive::PackageArchive,
        test_archives::{Compression, archive},
    };

    const OLD: Processor = Processor { machine: "x86_64", has: |feature| feature == "avx2" };
    const NEW: Processor = Processor { machine: "x86_64", has: |_| true };

    fn verdict(metadata: &str, code: &[u8], processor: Processor) -> String {
        let members = [
            ("m/data/aotinductor/model/c.wrapper.so", code),
            ("m/data/aotinductor/model/c.wrapper_metadata.json", metadata.as_bytes()),
        ];
        let bytes = archive(&members, Compression::Stored);
        let len = bytes.len() as u64;
        let package = CompiledPackage::of(PackageArchive::list(bytes, len).unwrap()).unwrap();
        check(&package, "/m.pt2".as_ref(), processor)
            .map_or_else(|error| error.with_code(), |()| "runs".to_owned())
    }

    /// A library for a machine, without segments.
    fn library(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[16] = 3;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn code_that_the_processor_can_run_is_accepted() {
        let metadata = r#"{"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": "AVX512 AVX512_VNNI"}"#;
        assert_eq!(verdict(metadata, &library(62), NEW), "runs");
        assert_eq!(verdict(r#"{"AOTI_CPU_ISA": "INVALID_VEC_ISA"}"#, &library(62), OLD), "runs");
    }

    #[test]
    fn other_code_is_refused_with_what_it_has_and_what_is_needed() {
        let avx512 = r#"{"AOTI_CPU_ISA": "AVX512"}"#;
        for (metadata, code, reason) in [
            (
                r#"{"AOTI_DEVICE_KEY": "cuda"}"#,
                library(62),
                "is compiled for the device 'cuda', and the server computes it on 'cpu'",
            ),
            (avx512, library(183), "is compiled for aarch64, and this machine is x86_64"),
            (
                avx512,
                library(62),
                "is compiled for a processor with AVX512, and this one lacks avx512f, avx512dq, avx512vl, avx512bw, fma: \
                 compile the model on a machine as this one",
            ),
            (
                "{}",
                library(62),
                "does not tell which instructions its code uses: its metadata lack AOTI_CPU_ISA",
            ),
            (
                r#"{"AOTI_CPU_ISA": "AVX9"}"#,
                library(62),
                "uses the instructions 'AVX9' (AOTI_CPU_ISA), which are not known here",
            ),
            (
                r#"{"AOTI_CPU_ISA": "AMX_TILE"}"#,
                library(62),
                "uses AMX_TILE, whose registers only PyTorch in Python asks the system for",
            ),
        ] {
            assert_eq!(
                verdict(metadata, &code, OLD),
                format!("Invalid argument: the package '/m.pt2' {reason}")
            );
        }
        let error = verdict(avx512, b"#!/bin/sh and some more bytes", OLD);
        assert!(error.ends_with("c.wrapper.so', which cannot be read: it is no shared library"), "{error}");
        let error = verdict(avx512, &library(62)[..17], OLD);
        assert!(
            error.ends_with("which cannot be read: it is no shared library of 64 bits, little-endian"),
            "{error}"
        );
    }
}

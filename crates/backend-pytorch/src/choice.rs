//! Decides whether the server computes a package itself.
//!
//! What decides against it is told once for each load, in the log. The backend in Python then runs the model.
use inference::backend::{BackendSettings, ModelSource};
use native_backend::is_left_to_directory;
use proto::{model_config::SchedulingChoice, model_instance_group::Kind};
use vocabulary::Error;

use crate::{
    machine_code::InstructionSets,
    package::CompiledPackage,
    requirements::{self, CPU, Processor},
    settings::{self, BACKEND_NAME},
};

/// Whether the configuration names this backend, and none of the backend directory runs the model instead.
///
/// # Errors
/// INVALID_ARG if the setting `implementation` has a value that is not allowed.
pub(crate) fn is_ours(source: &ModelSource, settings: &BackendSettings<'_>) -> Result<bool, Error> {
    Ok(source.asks_for(BACKEND_NAME) && !is_left_to_directory(source, settings)?)
}

/// Why a package runs in Python although the operator wants it to run natively.
pub(crate) fn reason_for_python(
    source: &ModelSource,
    package: &CompiledPackage,
    processor: Processor,
) -> Option<String> {
    let declared = &source.declared;
    let device = requirements::device(package);
    if device != CPU {
        return Some(format!("it is compiled for the device '{device}'"));
    }
    if declared.instance_group.iter().any(|group| group.kind() == Kind::Gpu) {
        return Some("it has instances of KIND_GPU".to_owned());
    }
    if let Some(name) = settings::parameter_of_processes(&source.parameters()) {
        return Some(format!("its parameter {name} is one of processes"));
    }
    if package.calls_dispatcher {
        return Some("it calls operators by their names".to_owned());
    }
    if package.has_weights_beside {
        return Some("it has weights beside its code".to_owned());
    }
    match requirements::instruction_sets(package, processor) {
        // If the processor lacks an instruction, only the process of the model ends.
        None => {
            return Some(
                "it does not tell which instructions its code uses: PyTorch before 2.10 does not write them"
                    .to_owned(),
            );
        }
        Some((_, InstructionSets::Restricted(name))) => {
            return Some(format!("it uses {name}, whose registers PyTorch must ask the system for"));
        }
        Some((_, InstructionSets::Unknown(name))) => {
            return Some(format!("it uses the instructions '{name}', which are not known here"));
        }
        // The load names what is missing. Python could not run the code either.
        Some((_, InstructionSets::Present | InstructionSets::Missing(_))) => {}
    }
    let open = open_dimensions(declared);
    (open > 1).then(|| {
        format!(
            "{open} dimensions of its inputs are open, the batch included: with more than one, the code may read beyond the \
             end of an input"
        )
    })
}

/// The open dimensions of all inputs. All inputs of a request have the same number of rows, so that the batch counts as
/// one.
///
/// The code compares an input with the dimensions that it has been compiled for, but not open dimensions with each
/// other: if two were one symbol of the program, the code takes the size of one for both.
fn open_dimensions(declared: &proto::ModelConfig) -> usize {
    let open = |dims: &[i64]| dims.iter().filter(|dim| **dim < 0).count();
    let inputs = declared
        .input
        .iter()
        .map(|input| open(input.reshape.as_ref().map_or(&input.dims, |reshape| &reshape.shape)));
    let states = match &declared.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(sequence)) => &sequence.state[..],
        _ => &[],
    };
    let states = states.iter().map(|state| open(&state.dims));
    usize::from(declared.max_batch_size > 0) + inputs.chain(states).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, sync::Arc};

    use super::*;
    use crate::{
        archive::PackageArchive,
        test_archives::{Compression, archive},
    };

    const PROCESSOR: Processor = Processor { machine: "x86_64", has: |_| true };
    const CODE: &str = "m/data/aotinductor/model/c.wrapper.so";
    const METADATA: &str = "m/data/aotinductor/model/c.wrapper_metadata.json";
    /// The metadata of a package that the server can compute.
    const PLAIN: &str = r#"{"AOTI_CPU_ISA": "AVX2"}"#;

    fn reason(config: proto::ModelConfig, metadata: &str, more: &[&str]) -> Option<String> {
        let mut members = vec![(CODE, &b""[..]), (METADATA, metadata.as_bytes())];
        members.extend(more.iter().map(|path| (*path, &b""[..])));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.pt2");
        fs::write(&file, archive(&members, Compression::Stored)).unwrap();
        let archive = PackageArchive::open(fs::File::open(&file).unwrap()).unwrap();
        let source = ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: folder.path().to_owned(),
            model_directory: folder.path().to_owned(),
            declared: Arc::new(config),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        reason_for_python(&source, &CompiledPackage::of(archive).unwrap(), PROCESSOR)
    }

    fn config(batch: i32, inputs: &[&[i64]]) -> proto::ModelConfig {
        let input = |dims: &&[i64]| proto::ModelInput { dims: dims.to_vec(), ..Default::default() };
        let input = inputs.iter().map(input).collect();
        proto::ModelConfig { max_batch_size: batch, input, ..Default::default() }
    }

    #[test]
    fn one_open_dimension_can_be_checked_and_two_cannot() {
        assert_eq!(reason(config(8, &[&[4], &[2, 3]]), PLAIN, &[]), None);
        assert_eq!(reason(config(0, &[&[4], &[-1, 3]]), PLAIN, &[]), None);
        for (batch, inputs) in [(8, [&[4_i64][..], &[-1]]), (0, [&[-1], &[-1]]), (0, [&[-1, -1], &[2]])] {
            let reason = reason(config(batch, &inputs), PLAIN, &[]).unwrap();
            assert!(
                reason.starts_with("2 dimensions of its inputs are open, the batch included"),
                "{reason}"
            );
        }
        let mut reshaped = config(8, &[&[-1]]);
        reshaped.input[0].reshape = Some(proto::ModelTensorReshape { shape: vec![2, 2] });
        assert_eq!(reason(reshaped, PLAIN, &[]), None);
    }

    #[test]
    fn what_only_python_can_do_is_told() {
        let plain = || config(8, &[&[4]]);
        let told = |config, metadata, more: &[&str]| reason(config, metadata, more).unwrap_or_default();
        assert_eq!(
            told(plain(), r#"{"AOTI_DEVICE_KEY": "cuda"}"#, &[]),
            "it is compiled for the device 'cuda'"
        );
        let mut gpu = plain();
        gpu.instance_group.push(proto::ModelInstanceGroup { kind: Kind::Gpu.into(), ..Default::default() });
        assert_eq!(told(gpu, PLAIN, &[]), "it has instances of KIND_GPU");
        let mut limited = plain();
        limited.parameters.insert("MAX_MEMORY_BYTES".to_owned(), proto::ModelParameter::default());
        assert_eq!(told(limited, PLAIN, &[]), "its parameter MAX_MEMORY_BYTES is one of processes");
        let nodes = "m/data/aotinductor/model/c.wrapper.json";
        assert_eq!(told(plain(), PLAIN, &[nodes]), "it calls operators by their names");
        let weights = "m/data/weights/weight_0";
        assert_eq!(told(plain(), PLAIN, &[weights]), "it has weights beside its code");
        let tiles = told(plain(), r#"{"AOTI_CPU_ISA": "AVX512 AMX_TILE"}"#, &[]);
        assert!(tiles.starts_with("it uses AMX_TILE"), "{tiles}");
        let unknown = told(plain(), r#"{"AOTI_CPU_ISA": "AVX65536"}"#, &[]);
        assert_eq!(unknown, "it uses the instructions 'AVX65536', which are not known here");
        let old = told(plain(), "{}", &[]);
        assert!(old.starts_with("it does not tell which instructions its code uses"), "{old}");
    }
}

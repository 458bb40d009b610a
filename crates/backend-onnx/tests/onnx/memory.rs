//! Tests of the memory of models: what they tell of it, and that they free it.
use std::fs;

use inference::backend::MemoryUsage;
use vocabulary::{DataType, MemoryKind};

use crate::{
    graph::Graph,
    support::{Model, backend, bytes_of, tensor},
};

const MIB: usize = 1 << 20;

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn an_unloaded_model_frees_its_memory() {
    let backend = backend();
    // The library, and what it allocates only once, are in memory before the measured model.
    Model::new(Graph::unary("Neg", DataType::Fp32, &[-1, 2]), "").load(&backend).unwrap();
    let weights = 25 * MIB;
    let model = {
        let table: Vec<u8> = (0..weights).flat_map(|value| (value as u32 % 251).to_le_bytes()).collect();
        let graph = Graph::default()
            .input("I", DataType::Int64, &[-1, 1])
            .output("Y", DataType::Uint32, &[-1, 1])
            .initializer("TABLE", DataType::Uint32, &[weights as i64], &table)
            .node("Gather", &["TABLE", "I"], &["Y"]);
        Model::new(graph, "")
    };
    let before = resident();
    let mut loaded = model.load(&backend).unwrap();
    let index = 1000_i64.to_le_bytes().to_vec();
    let response = loaded.infer(vec![tensor("I", DataType::Int64, &[1, 1], index)]).unwrap();
    assert_eq!(bytes_of(&response, "Y"), 247_u32.to_le_bytes().to_vec());
    let during = resident();
    let reported = loaded.opened.model.memory_usage();
    let [MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }] = reported[..] else {
        panic!("{reported:?}")
    };
    let weight_bytes = 4 * weights as u64;
    assert!((weight_bytes..2 * weight_bytes).contains(&byte_size), "{byte_size}");
    drop((loaded, response));
    let after = resident();
    assert!(during > before + 80 * MIB, "{before} {during}");
    assert!(after < before + 30 * MIB, "{before} {during} {after}");
}

#[test]
fn a_model_without_an_arena_reports_the_size_of_its_files() {
    let arena = "parameters { key: 'enable_mem_arena' value { string_value: 'false' } }";
    let model = Model::new(Graph::unary("Neg", DataType::Fp32, &[-1, 2]), arena);
    let byte_size = fs::metadata(model.version_directory().join("model.onnx")).unwrap().len();
    let loaded = model.load(&backend()).unwrap();
    assert_eq!(loaded.opened.model.memory_usage(), [MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size }]);
}

//! Tests of the memory of models: what they tell of it, and that they free it.
use std::{fs, num::NonZeroUsize, thread};

use backend_onnx::OnnxBackend;
use inference::backend::MemoryUsage;
use vocabulary::{DataType, MemoryKind, Tensor};

use crate::{
    graph::Graph,
    support::{Loaded, Model, backend, bytes_of, shape_of, tensor},
};

const MIB: usize = 1 << 20;

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A graph with so many weights, one of which is its answer: their positions, modulo 251.
fn table(weights: usize) -> Graph {
    let table: Vec<u8> = (0..weights).flat_map(|value| (value as u32 % 251).to_le_bytes()).collect();
    Graph::default()
        .input("I", DataType::Int64, &[-1, 1])
        .output("Y", DataType::Uint32, &[-1, 1])
        .initializer("TABLE", DataType::Uint32, &[weights as i64], &table)
        .node("Gather", &["TABLE", "I"], &["Y"])
}

/// The request for the weight at a position.
fn index(position: u32) -> Vec<Tensor> {
    vec![tensor("I", DataType::Int64, &[1, 1], i64::from(position).to_le_bytes().to_vec())]
}

#[test]
fn an_unloaded_model_frees_its_memory() {
    let backend = backend();
    // The library, and what it allocates only once, are in memory before the measured model.
    Model::new(Graph::unary("Neg", DataType::Fp32, &[-1, 2]), "").load(&backend).unwrap();
    let weights = 25 * MIB;
    let model = Model::new(table(weights), "");
    let before = resident();
    let mut loaded = model.load(&backend).unwrap();
    let response = loaded.infer(index(1000)).unwrap();
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

/// A graph with an intermediate tensor as large as its input.
fn two_steps() -> Graph {
    let graph = Graph::default().input("X", DataType::Fp32, &[-1, -1]).output("Y", DataType::Fp32, &[-1, -1]);
    graph.node("Neg", &["X"], &["between"]).node("Exp", &["between"], &["Y"])
}

const LARGE: usize = 16 * MIB;

fn large_input() -> Vec<Tensor> {
    vec![tensor("X", DataType::Fp32, &[1, LARGE as i64 / 4], vec![0; LARGE])]
}

/// The bytes that the model holds.
fn held(loaded: &Loaded) -> u64 {
    loaded.opened.model.memory_usage()[0].byte_size
}

#[test]
fn a_large_run_leaves_nothing_in_the_allocator_of_the_process() {
    let backend = backend().with_process_allocator();
    let mut loaded = Model::new(two_steps(), "").load(&backend).unwrap();
    let before = held(&loaded);
    for _ in 0..2 {
        let response = loaded.infer(large_input()).unwrap();
        let during = held(&loaded);
        assert!((LARGE as u64..2 * LARGE as u64).contains(&(during - before)), "{before} {during}");
        assert!(bytes_of(&response, "Y").chunks_exact(4).all(|value| *value == 1_f32.to_le_bytes()));
        drop(response);
        assert_eq!(held(&loaded), before);
    }
}

#[test]
fn instances_that_compute_with_one_thread_share_large_weights() {
    let (large, small) = (Model::new(table(4 * MIB), ""), Model::new(table(1000), ""));
    let (sharing, with_arena) = (backend().with_process_allocator(), backend());
    // What the model holds after each of three instances.
    let held_after = |model: &Model, backend: &OnnxBackend, threads: usize| {
        let opened = model.open(backend).unwrap();
        let mut loaded = Vec::new();
        [(); 3].map(|()| {
            loaded.push(opened.clone().instance_with(NonZeroUsize::new(threads).unwrap()).unwrap());
            held(&loaded[0])
        })
    };
    let [one, two, three] = held_after(&large, &sharing, 1);
    assert!(one >= LARGE as u64 && one == two && two == three, "{one} {two} {three}");
    for (model, backend, threads, weights) in
        [(&large, &sharing, 2, LARGE), (&large, &with_arena, 1, LARGE), (&small, &sharing, 1, 4000)]
    {
        let held = held_after(model, backend, threads);
        assert!(held[2] >= 3 * weights as u64, "{weights} {threads} {held:?}");
    }
}

#[test]
fn instances_run_a_shared_session_at_the_same_time() {
    let model = Model::new(table(4 * MIB), "");
    let opened = model.open(&backend().with_process_allocator()).unwrap();
    let instances = [(); 3].map(|()| opened.clone().instance().unwrap());
    thread::scope(|scope| {
        for (first, mut loaded) in (0_u32..).zip(instances) {
            scope.spawn(move || {
                for position in (first..3000).step_by(3) {
                    let response = loaded.infer(index(position)).unwrap();
                    assert_eq!(bytes_of(&response, "Y"), (position % 251).to_le_bytes().to_vec());
                }
            });
        }
    });
}

#[test]
fn parameters_about_the_arena_keep_their_meaning() {
    let backend = backend().with_process_allocator();
    for (name, value, keeps) in [
        ("enable_mem_arena", "true", true),
        ("enable_mem_arena", "false", false),
        ("memory.enable_memory_arena_shrinkage", "cpu:0", true),
        ("session.use_env_allocators", "0", true),
        ("session.use_env_allocators", "1", false),
    ] {
        let config = format!("parameters {{ key: '{name}' value {{ string_value: '{value}' }} }}");
        let mut loaded = Model::new(two_steps(), &config).load(&backend).unwrap();
        // What was an output is given back by the next run that shrinks the arena.
        drop(loaded.infer(large_input()).unwrap());
        assert_eq!(held(&loaded) >= LARGE as u64, keeps, "{name}={value}: {}", held(&loaded));
    }
}

#[test]
fn a_tensor_that_is_larger_than_the_machine_fails_its_request_only() {
    let elements = 1_i64 << 42;
    let graph = Graph::default()
        .input("X", DataType::Int64, &[1])
        .output("Y", DataType::Fp32, &[-1])
        .initializer("ELEMENTS", DataType::Int64, &[1], &elements.to_le_bytes())
        .node("Add", &["X", "ELEMENTS"], &["SHAPE"])
        .node("ConstantOfShape", &["SHAPE"], &["Y"]);
    let backend = backend().with_process_allocator();
    let mut loaded = Model::new(graph, "").load(&backend).unwrap();
    let before = held(&loaded);
    let mut infer =
        |more: i64| loaded.infer(vec![tensor("X", DataType::Int64, &[1], more.to_le_bytes().to_vec())]);
    let error = infer(0).unwrap_err();
    assert!(error.message.contains("bad_alloc"), "{error}");
    assert_eq!(shape_of(&infer(3 - elements).unwrap(), "Y"), [3]);
    assert_eq!(held(&loaded), before);
}

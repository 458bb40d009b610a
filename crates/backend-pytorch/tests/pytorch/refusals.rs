//! Packages that are refused, and models that run in Python instead.
use std::fs;

use backend_pytorch::AotInductorBackend;
use native_backend::LibrarySearch;

use crate::support::{ADD_SUB, METADATA, Model, archive, backend, code, package};

const CODE: &[&str] = &["-DCOMPUTE=add_sub"];

/// Why a package with these metadata and this code is refused, from the rule on.
fn refusal(code: &[u8], metadata: &str) -> String {
    let model = Model::new(&package(code, metadata), ADD_SUB);
    let text = model.refusal();
    let path = format!("'{}' ", model.file().display());
    text.split_once(&path).unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

#[test]
fn code_for_another_device_or_machine_or_processor_is_not_opened() {
    let code = code(CODE);
    assert_eq!(
        refusal(&code, r#"{"AOTI_DEVICE_KEY": "cuda"}"#),
        "is compiled for the device 'cuda', and the server computes it on 'cpu'"
    );
    assert_eq!(
        refusal(&code, r#"{"AOTI_CPU_ISA": "AVX65536"}"#),
        "uses the instructions 'AVX65536' (AOTI_CPU_ISA), which are not known here"
    );
    let mut other = code.clone();
    other[18] = 243;
    assert_eq!(
        refusal(&other, METADATA),
        format!("is compiled for machine 243, and this machine is {}", std::env::consts::ARCH)
    );
    let foreign = if cfg!(target_arch = "x86_64") { "ASIMD" } else { "AVX2" };
    let text = refusal(&code, &format!(r#"{{"AOTI_CPU_ISA": "{foreign}"}}"#));
    assert!(
        text.starts_with(&format!("is compiled for a processor with {foreign}, and this one lacks ")),
        "{text}"
    );
}

#[test]
fn code_that_does_not_fit_the_library_is_refused_by_what_it_needs() {
    let text = refusal(&code(&[CODE[0], "-DNEEDS_FUTURE"]), METADATA);
    let begin = "cannot be opened: the code needs the function aoti_torch_of_the_future, which PyTorch 2.99.0+stand.in in '";
    assert!(
        text.starts_with(begin) && text.ends_with("lacks: compile the model with that release"),
        "{text}"
    );
    let text = refusal(&code(&[CODE[0], "-DWITHOUT_CALL_SPEC"]), METADATA);
    assert_eq!(text, "cannot be opened: the code has no function AOTInductorModelContainerGetCallSpec");
    let text = refusal(&code(&[CODE[0], "-DFAIL_CREATE"]), METADATA);
    assert_eq!(text, "cannot be opened: cannot load the weights: no memory for the weights");
    let text = refusal(&code(&[CODE[0], "-DINPUTS=1"]), METADATA);
    assert_eq!(text, "tells 2 inputs, and its code has 1: some are no tensors");
    // The archive is whole, and the code is not.
    let model = Model::new(&package(&code(CODE)[..2000], METADATA), ADD_SUB);
    assert!(
        model.refusal().ends_with("c1.wrapper.so', which cannot be read: it is cut off"),
        "{}",
        model.refusal()
    );
}

#[test]
fn a_package_that_is_cut_off_or_damaged_never_reaches_the_loader() {
    let whole = package(&code(CODE), METADATA);
    let model = Model::new(&whole, ADD_SUB);
    for len in (0..whole.len()).step_by(whole.len() / 200) {
        fs::write(model.file(), &whole[..len]).unwrap();
        assert!(!model.runs(&backend(), "native"), "{len}");
        assert!(model.refusal().contains("has no package of AOTInductor"), "{len}");
    }
    let mut damaged = whole.clone();
    let place = whole.windows(4).position(|part| part == b"\x7fELF").unwrap() + 5000;
    damaged[place] ^= 0x40;
    fs::write(model.file(), damaged).unwrap();
    let text = model.refusal();
    assert!(text.contains("c1.wrapper.so', which cannot be read: Invalid checksum"), "{text}");
}

#[test]
fn a_configuration_that_the_call_contradicts_is_refused() {
    let text = Model::of(CODE, &ADD_SUB.replace("ARGS[0]", "a")).refusal();
    assert_eq!(
        text,
        "Invalid argument: input 'a' of model 'model' is no input of the exported program, which has: INPUT__0 or ARGS[0], \
         INPUT__1 or ARGS[1]"
    );
    let text = Model::of(&["-DCOMPUTE=copied"], ADD_SUB).refusal();
    assert!(text.ends_with("configuration expects 2 inputs, model provides 1"), "{text}");
    let parameter = "parameters { key: 'NUM_THREADS' value { string_value: 'x' } }";
    let text = Model::of(CODE, &format!("{ADD_SUB} {parameter}")).refusal();
    assert!(text.contains("failed to convert 'x' to integral number"), "{text}");
}

#[test]
fn packages_are_computed_here_if_the_operator_wants_that_and_it_is_possible() {
    let model = Model::of(CODE, ADD_SUB);
    assert!(model.runs(&backend(), "native"));
    assert!(!model.runs(&backend(), "python"));
    let nowhere = LibrarySearch { named: Some("/nowhere".into()), ..LibrarySearch::default() };
    assert!(!model.runs(&AotInductorBackend::new(nowhere), "native"));
    let open = Model::of(CODE, &ADD_SUB.replace("dims: 4", "dims: -1"));
    assert!(!open.runs(&backend(), "native"));
    let exported = archive(&[("model/models/model.json", b"{}")]);
    assert!(!Model::new(&exported, ADD_SUB).runs(&backend(), "native"));
    // The load tells what is wrong with a package.
    let broken = archive(&[("model/data/aotinductor/model/c.so", b"")]);
    let model = Model::new(&broken, ADD_SUB);
    assert!(model.runs(&backend(), "native"));
    assert!(
        model.refusal().ends_with("but no member 'data/aotinductor/model/c_metadata.json'"),
        "{}",
        model.refusal()
    );
}

#[test]
fn without_the_library_the_remedy_is_told_once_at_length() {
    let nowhere = LibrarySearch { named: Some("/nowhere/lib".into()), ..LibrarySearch::default() };
    let backend = AotInductorBackend::new(nowhere);
    let refusal = || Model::of(CODE, ADD_SUB).load_with(&backend).map(|_| ()).unwrap_err().with_code();
    let first = refusal();
    assert!(first.starts_with("Unavailable: unable to load PyTorch from '/nowhere/lib"), "{first}");
    assert!(first.contains("pip install torch"), "{first}");
    let second = refusal();
    assert!(second.starts_with("Unavailable: PyTorch cannot be used, as an earlier error tells"), "{second}");
}

#[test]
fn what_a_load_would_refuse_is_found_without_the_library() {
    let nowhere = LibrarySearch { named: Some("/nowhere".into()), ..LibrarySearch::default() };
    let backend = AotInductorBackend::new(nowhere);
    let inspected = |metadata: &str| Model::new(&package(&code(CODE), metadata), ADD_SUB).inspected(&backend);
    assert_eq!(inspected(METADATA), "");
    let text = inspected(r#"{"AOTI_DEVICE_KEY": "xpu"}"#);
    assert!(
        text.ends_with("is compiled for the device 'xpu', and the server computes it on 'cpu'"),
        "{text}"
    );
}

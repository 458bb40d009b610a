//! Tests of the checks before a model is opened, and of the checks that operators may relax.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use inference::{BackendSetting, backend::InstanceDevice};
use vocabulary::Error;

use crate::support::{ECHO, Repository, echo, index, serves, start};

#[tokio::test]
async fn instance_groups_are_checked_before_the_model_is_opened() {
    for (group, text) in [
        ("count: 1 kind: KIND_CPU gpus: 0", "has kind KIND_CPU but specifies one or more GPUs"),
        ("kind: KIND_GPU", "has kind KIND_GPU but server does not support GPUs"),
    ] {
        let repository =
            Repository::new().model("m", &format!("{ECHO} instance_group {{ {group} }}"), &["1"]);
        let engine = repository.serve(echo().open(|_| Err(Error::internal("no such file")))).await;
        let expected = format!("m 1 UNAVAILABLE Invalid argument: instance group m_0 of model m {text}");
        assert_eq!(index(&engine), [expected]);
    }
}

#[tokio::test]
async fn groups_that_ask_for_gpus_run_on_the_processor_if_the_operator_wants_it() {
    let group = "instance_group { name: 'g' kind: KIND_GPU gpus: 3 count: 2 }";
    let repository = Repository::new().model("m", &format!("{ECHO} {group}"), &["1"]);
    let built = Arc::new(AtomicUsize::new(0));
    let backend = echo().build({
        let built = built.clone();
        move |_, spec| {
            assert_eq!(spec.device, InstanceDevice::Cpu);
            built.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    let mut options = repository.options();
    options.load_policy.gpu_groups_on_cpu = true;
    let engine = start(options, backend).await;
    assert_eq!((index(&engine), built.load(SeqCst)), (vec!["m 1 READY".to_owned()], 2));
    let model = engine.model("m", None).unwrap();
    let shown = &model.shown().instance_group[0];
    assert_eq!((shown.kind().as_str_name(), shown.gpus.len()), ("KIND_CPU", 0));
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn a_named_library_is_not_replaced_by_a_built_in_backend() {
    let repository = Repository::new()
        .model("other", &format!("{ECHO} runtime: 'libother.so'"), &["1"])
        .model("usual", &format!("{ECHO} runtime: 'libtriton_echo.so'"), &["1"]);
    let engine = repository.serve(echo()).await;
    assert_eq!(
        index(&engine),
        [
            "other 1 UNAVAILABLE Invalid argument: unable to find backend library 'libother.so' for model 'other', \
             searched:",
            "usual 1 READY"
        ]
    );
}

#[tokio::test]
async fn an_explicit_batch_size_of_zero_is_marked_for_the_backend_only() {
    let given = ECHO.replace("max_batch_size: 8", "max_batch_size: 0");
    let absent = ECHO.replace("max_batch_size: 8", "");
    let repository = Repository::new().model("absent", &absent, &["1"]).model("given", &given, &["1"]);
    let backend = echo().complete(|config| {
        if config.parameters.get("AUTOCOMPLETE_BATCH").is_none_or(|keep| keep.string_value != "no") {
            config.max_batch_size = 4;
        }
        Ok(())
    });
    let engine = repository.serve(backend).await;
    for (name, size) in [("absent", 4), ("given", 0)] {
        let model = engine.model(name, None).unwrap();
        assert_eq!(model.shown().max_batch_size, size, "{name}");
        assert!(model.shown().parameters.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_setting_leaves_models_of_a_built_in_backend_to_a_library() {
    let chosen = async |implementation: &str| {
        let repository = Repository::new().model("m", ECHO, &["1"]);
        let mut options = repository.options();
        let (key, value) = ("implementation".to_owned(), implementation.to_owned());
        options.backend_settings = vec![BackendSetting { backend: Some("echo".to_owned()), key, value }];
        index(&start(options, echo()).await)
    };
    assert_eq!(chosen("built-in").await, ["m 1 READY"]);
    let unavailable = |why: &str| vec![format!("m 1 UNAVAILABLE Invalid argument: {why}")];
    assert_eq!(
        chosen("triton").await,
        unavailable("unable to find backend library '' for model 'm', searched:")
    );
    assert_eq!(
        chosen("mine").await,
        unavailable(
            "the setting 'implementation' of backend 'echo' is 'mine', which is neither 'built-in' nor 'triton'"
        )
    );
}

//! Tests of which models and versions are found, and of the reasons of those that cannot be served.
use engine::{Engine, ReadinessRule};
use inference::{Plugins, metrics::MetricsForm};
use repository::LoadParameters;
use vocabulary::ErrorCode;

use crate::support::{ECHO, Native, Repository, echo, index, options, serves, start};

#[tokio::test]
async fn a_model_is_found_and_served() {
    let repository = Repository::new().model("m", ECHO, &["1"]).file("README", "no model");
    let engine = repository.serve(echo()).await;
    assert_eq!(index(&engine), ["m 1 READY"]);
    assert!(engine.ready().await.unwrap() && engine.live().unwrap() && engine.all_loaded());
    assert!(engine.demands().ready("m", None).await && engine.demands().ready("m", Some(1)).await);
    assert!(!engine.demands().ready("m", Some(2)).await && !engine.demands().ready("n", None).await);
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn a_known_model_file_is_enough() {
    let repository = Repository::new().file("m/1/model.onnx", "");
    let backend = Native::new("onnxruntime").complete(|config| {
        let tensors = proto::text::parse(ECHO.as_bytes()).unwrap().config;
        (config.max_batch_size, config.input, config.output) = (8, tensors.input, tensors.output);
        Ok(())
    });
    let engine = repository.serve(backend).await;
    let shown = engine.model("m", None).unwrap().shown().clone();
    assert_eq!(
        [&shown.backend[..], &shown.platform, &shown.default_model_filename],
        ["onnxruntime", "onnxruntime_onnx", "model.onnx"]
    );
    assert!(serves(&engine, "m").await);
}

#[tokio::test]
async fn an_empty_repository_is_ready() {
    let engine = Repository::new().serve(echo()).await;
    assert!(engine.ready().await.unwrap());
    assert_eq!(index(&engine), [""; 0]);
    assert!(!engine.metrics(MetricsForm::Prometheus).contains("nv_inference"));
}

#[tokio::test]
async fn the_version_policy_selects_numerically() {
    for (policy, served) in [
        ("", &[10][..]),
        ("version_policy { latest { num_versions: 2 } }", &[2, 10]),
        ("version_policy { all {} }", &[1, 2, 10]),
        ("version_policy { specific { versions: [ 1, 7 ] } }", &[1]),
    ] {
        let versions = ["1", "2", "10", "01", "abc", "2abc", "99999999999999999999", "warmup", "configs"];
        let repository = Repository::new().model("m", &format!("{ECHO} {policy}"), &versions);
        let engine = repository.serve(echo()).await;
        assert_eq!(engine.ready_versions("m"), served, "{policy}");
        assert_eq!(engine.model("m", None).unwrap().version(), *served.last().unwrap());
        for &version in served {
            assert_eq!(engine.model("m", Some(version)).unwrap().version(), version);
        }
    }
}

#[tokio::test]
async fn the_default_version_is_the_largest_that_is_ready() {
    let repository =
        Repository::new().model("m", &format!("{ECHO} version_policy {{ all {{}} }}"), &["1", "2", "3"]);
    let backend = echo().open(|source| match source.version {
        3 => Err(vocabulary::Error::internal("no good")),
        _ => Ok(()),
    });
    let mut options = repository.options();
    options.load_policy.partial_models = true;
    let engine = start(options, backend).await;
    assert_eq!(engine.model("m", None).unwrap().version(), 2);
    assert_eq!(index(&engine), ["m 1 READY", "m 2 READY", "m 3 UNAVAILABLE Internal: no good"]);
    assert_eq!(engine.ready_versions("m"), [1, 2]);
    assert!(!engine.ready().await.unwrap());

    let refused = |name, version| {
        let error = engine.model(name, version).unwrap_err();
        (error.code, error.message.into_owned())
    };
    for (name, version, code, text) in [
        ("m", Some(3), ErrorCode::Unavailable, "'m' version 3 is not at ready state"),
        ("m", Some(4), ErrorCode::NotFound, "'m' version 4 is not found"),
        ("n", None, ErrorCode::NotFound, "'n' is not found"),
        ("n", Some(1), ErrorCode::NotFound, "'n' is not found"),
    ] {
        assert_eq!(refused(name, version), (code, format!("Request for unknown model: {text}")));
    }
}

#[tokio::test]
async fn a_model_one_of_whose_versions_fails_is_not_served() {
    let repository =
        Repository::new().model("m", &format!("{ECHO} version_policy {{ all {{}} }}"), &["1", "2", "3"]);
    let backend = echo().open(|source| match source.version {
        2 => Err(vocabulary::Error::internal("no good")),
        _ => Ok(()),
    });
    let engine = repository.serve(backend).await;
    assert_eq!(
        index(&engine),
        ["m 1 UNAVAILABLE unloaded", "m 2 UNAVAILABLE Internal: no good", "m 3 UNAVAILABLE unloaded"]
    );
    assert_eq!(engine.ready_versions("m"), [0; 0]);
    assert!(!engine.ready().await.unwrap() && !engine.all_loaded());
    for (version, text) in [(None, "has no available versions"), (Some(1), "version 1 is not at ready state")]
    {
        let error = engine.model("m", version).unwrap_err();
        assert_eq!(error.message, format!("Request for unknown model: 'm' {text}"));
    }
}

#[tokio::test]
async fn a_model_without_a_ready_version_has_no_default() {
    let repository = Repository::new().model("m", ECHO, &["1"]);
    let engine = repository.serve(echo().open(|_| Err(vocabulary::Error::internal("no")))).await;
    let error = engine.model("m", None).unwrap_err();
    assert_eq!(
        (error.code, &error.message[..]),
        (ErrorCode::NotFound, "Request for unknown model: 'm' has no available versions")
    );
}

#[tokio::test]
async fn a_model_in_two_repositories_is_served_from_neither() {
    let [one, other] =
        ["a", "b"].map(|own| Repository::new().model("twice", ECHO, &["1"]).model(own, ECHO, &["1"]));
    let both = options(vec![one.path().to_path_buf(), other.path().to_path_buf()]);
    let engine = start(both, echo()).await;
    assert_eq!(
        index(&engine),
        ["a 1 READY", "b 1 READY", "twice - UNAVAILABLE model appears in two or more repositories"]
    );
    assert_eq!(
        engine.model("twice", None).unwrap_err().message,
        "Request for unknown model: 'twice' is not found"
    );
    assert!(serves(&engine, "a").await && serves(&engine, "b").await);
    assert!(!engine.ready().await.unwrap());
}

#[tokio::test]
async fn a_configuration_that_does_not_parse_says_where() {
    let repository = Repository::new().model("good", ECHO, &["1"]).model(
        "bad",
        "backend: 'echo'\nno_such_field: 1",
        &["1"],
    );
    for strict in [true, false] {
        let mut options = repository.options();
        options.readiness = rule(strict);
        let engine = start(options, echo()).await;
        let [bad, good] = &index(&engine)[..] else { panic!("two lines: {:?}", index(&engine)) };
        let file = repository.path().join("bad/config.pbtxt");
        let place =
            format!("bad - UNAVAILABLE Internal: failed to read text proto from {}:2:", file.display());
        assert!(bad.starts_with(&place), "{bad}");
        assert_eq!(good, "good 1 READY");
        assert_eq!(engine.ready().await.unwrap(), !strict);
        assert!(!engine.all_loaded());
        assert!(serves(&engine, "good").await);
    }
}

#[tokio::test]
async fn a_model_without_a_version_directory_says_so() {
    let repository = Repository::new().model("m", ECHO, &["configs"]);
    let engine = repository.serve(echo()).await;
    let text = "at least one version must be available under the version policy of model 'm'";
    assert_eq!(index(&engine), [format!("m - UNAVAILABLE Invalid argument: {text}")]);
    assert!(!engine.ready().await.unwrap());
    for (version, text) in [(None, "has no available versions"), (Some(3), "version 3 is not found")] {
        let error = engine.model("m", version).unwrap_err();
        assert_eq!(
            (error.code, error.message.into_owned()),
            (ErrorCode::NotFound, format!("Request for unknown model: 'm' {text}"))
        );
    }
}

#[tokio::test]
async fn a_custom_configuration_is_preferred_where_a_model_has_it() {
    let tagged = |tag: &str| format!("{ECHO} metric_tags {{ key: 'from' value: '{tag}' }}");
    let repository = Repository::new()
        .model("both", &tagged("usual"), &["1"])
        .file("both/configs/h100.pbtxt", tagged("custom"))
        .model("usual", &tagged("usual"), &["1"])
        .file("usual/configs/other.pbtxt", tagged("other"));
    let mut options = repository.options();
    options.config_name = Some("h100".to_owned());
    let engine = start(options, echo()).await;
    let from = |name| engine.model(name, None).unwrap().config().metric_tags["_from"].clone();
    assert_eq!((from("both"), from("usual")), ("custom".to_owned(), "usual".to_owned()));
    assert_eq!(index(&engine), ["both 1 READY", "usual 1 READY"]);
}

#[tokio::test]
async fn strict_mode_wants_a_complete_configuration() {
    let open = ECHO.replace("dims: -1", "");
    let repository = Repository::new().file("m/1/model.onnx", "").model("open", &open, &["1"]);
    let completed = echo().complete(|config| {
        config.input[0].dims = vec![1];
        config.output[0].dims = vec![1];
        Ok(())
    });
    let mut options = repository.options();
    options.auto_complete = false;
    let engine = start(options, completed.clone()).await;
    let [missing, incomplete] = &index(&engine)[..] else { panic!("two lines: {:?}", index(&engine)) };
    let path = repository.path().join("m/config.pbtxt");
    let text = format!("failed to open text file for read {}: No such file or directory", path.display());
    assert_eq!(*missing, format!("m - UNAVAILABLE Internal: {text}"));
    let text = "Invalid argument: model input 'IN' must specify 'dims'";
    assert!(incomplete.starts_with(&format!("open - UNAVAILABLE {text}")), "{incomplete}");
    let engine = repository.serve(completed).await;
    assert!(engine.demands().ready("open", None).await, "{:?}", index(&engine));
}

#[tokio::test]
async fn under_strict_configuration_a_directory_without_a_configuration_does_not_count_for_readiness() {
    let repository = Repository::new().model("good", ECHO, &["1"]).file("notes/1/text", "no model");
    let mut options = repository.options();
    options.auto_complete = false;
    let engine = start(options.clone(), echo()).await;
    assert!(engine.ready().await.unwrap() && engine.ready_here().unwrap());
    assert!(!engine.all_loaded(), "the start says that something is wrong");
    assert!(!engine.demands().ready("notes", None).await);
    options.auto_complete = true;
    assert!(!start(options, echo()).await.ready().await.unwrap());
}

#[tokio::test]
async fn an_engine_whose_repository_cannot_be_read_is_neither_live_nor_ready_and_serves_nothing() {
    for strict in [true, false] {
        let mut options = options(vec!["/there/is/no/such/directory".into()]);
        (options.readiness, options.server.name) = (rule(strict), "it".to_owned());
        let engine = Engine::new(options, Plugins::default()).unwrap();
        assert!(engine.load_models().await.is_err());
        assert!(!engine.live().unwrap() && !engine.ready().await.unwrap() && !engine.ready_here().unwrap());
        assert!(!engine.all_loaded() && !engine.demands().ready("m", None).await);
        let error = engine.model("m", None).unwrap_err();
        assert_eq!((error.code, &error.message[..]), (ErrorCode::Unavailable, "Server not ready"));
        assert_eq!(engine.server().name, "it");
    }
}

#[tokio::test]
async fn a_model_without_configuration_and_known_file_says_so() {
    let repository = Repository::new().file("m/1/model.onnx", "");
    let engine = repository.serve(Native::new("onnxruntime")).await;
    let text = "model configuration is not provided for model 'm'";
    assert_eq!(index(&engine), [format!("m 1 UNAVAILABLE Not found: {text}")]);
}

#[tokio::test]
async fn a_repository_that_cannot_be_read_ends_the_start() {
    let repository = Repository::new().file("file", "");
    let file = repository.path().join("file");
    let missing = repository.path().join("missing");
    for (path, code, text) in [
        (&file, ErrorCode::InvalidArgument, "repository path is not a valid directory".to_owned()),
        (&missing, ErrorCode::Internal, format!("failed to stat file {}", missing.display())),
    ] {
        let error = Engine::start(options(vec![path.clone()]), Plugins::default()).await.err().unwrap();
        assert_eq!((error.code, error.message.into_owned()), (code, text));
    }
}

#[tokio::test]
async fn an_unreadable_entry_does_not_hide_the_others() {
    let repository = Repository::new().model("m", ECHO, &["1"]).model(".git", ECHO, &["1"]);
    std::os::unix::fs::symlink("nowhere", repository.path().join("dangling")).unwrap();
    std::os::unix::fs::symlink("m", repository.path().join("linked")).unwrap();
    let engine = repository.serve(echo()).await;
    assert_eq!(index(&engine), ["linked 1 READY", "m 1 READY"]);
}

#[tokio::test]
async fn models_are_not_loaded_by_request() {
    let engine = Repository::new().model("m", ECHO, &["1"]).serve(echo()).await;
    for refused in [
        engine.repository().load("m", LoadParameters::default()).await,
        engine.repository().unload("m").await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(
            (error.code, &error.message[..]),
            (
                ErrorCode::Unavailable,
                "explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)"
            )
        );
    }
    assert!(serves(&engine, "m").await);
}

fn rule(strict: bool) -> ReadinessRule {
    if strict { ReadinessRule::AllModels } else { ReadinessRule::NoModel }
}

//! Tests of repository agents: of which actions they are notified, and how a model whose files they replace is loaded.
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use engine::{Engine, EngineOptions};
use inference::{
    Plugins,
    agent::{
        AgentAction::{Load, LoadComplete, LoadFail, Unload, UnloadComplete},
        AgentFinder, AgentModel, ArtifactType,
    },
    backend::Backend,
};
use parking_lot::Mutex;
use testing::Agents;
use vocabulary::{Error, ErrorCode};

use crate::support::{ECHO, Native, Repository, TIMEOUT, answer, ask, echo, index, serves};

/// The configuration of an echo model with these agents.
fn with_agents(agents: &[&str]) -> String {
    let agents: Vec<_> = agents.iter().map(|name| format!("agents {{ name: '{name}' }}")).collect();
    format!("{ECHO} model_repository_agents {{ {} }}", agents.join(" "))
}

async fn start(options: EngineOptions, backend: Native, agents: &Agents) -> Engine {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(backend)];
    let agents: Option<Arc<dyn AgentFinder>> = Some(Arc::new(agents.clone()));
    Engine::start(options, Plugins { backends, agents, ..Plugins::default() }).await.unwrap()
}

/// Moves the model into a directory of the agent's own, with these files.
fn relocate(model: &mut AgentModel, files: &[(&str, &str)]) -> Result<PathBuf, Error> {
    let directory = model.acquire(ArtifactType::Filesystem)?.to_path_buf();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "it is empty");
    for (path, content) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    model.relocate(ArtifactType::Filesystem, directory.clone())?;
    Ok(directory)
}

/// The directories where agents have put models.
type Places = Arc<Mutex<Vec<PathBuf>>>;

#[tokio::test]
async fn agents_are_told_each_action_of_their_model_in_order() {
    let repository = Repository::new().model("m", &with_agents(&["a", "b"]), &["1"]);
    let agents = Agents::default().with_idle("a").with_idle("b");
    let engine = start(repository.options(), echo(), &agents).await;
    assert!(serves(&engine, "m").await);
    assert_eq!(agents.notifications(), ["a LOAD", "b LOAD", "b LOAD_COMPLETE", "a LOAD_COMPLETE"]);
    engine.stop(TIMEOUT).await.unwrap();
    assert_eq!(
        agents.notifications()[4..],
        ["a UNLOAD", "b UNLOAD", "b UNLOAD_COMPLETE", "a UNLOAD_COMPLETE", "b leaves", "a leaves"]
    );
    engine.stop(TIMEOUT).await.unwrap();
    assert_eq!(agents.notifications().len(), 10, "once is enough");
}

#[tokio::test]
async fn an_agent_knows_its_parameters_the_configuration_and_where_the_model_lies() {
    let config = format!(
        "{ECHO} model_repository_agents {{ agents {{ name: 'a'
         parameters {{ key: 'MD5:1/x' value: 'abc' }} parameters {{ key: 'k' value: '' }} }} }}"
    );
    let repository = Repository::new().model("m", &config, &["1"]);
    let seen = Arc::new(Mutex::new(None));
    let agents = Agents::default().with("a", {
        let seen = seen.clone();
        move |model, action| {
            if action == Load {
                let config = model.config();
                assert_eq!((&config.name[..], config.max_batch_size), ("", 8), "as it was read");
                let parameters = model
                    .parameters()
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>();
                *seen.lock() = Some((parameters, model.location()?.to_path_buf()));
            }
            Ok(())
        }
    });
    start(repository.options(), echo(), &agents).await;
    let (parameters, location) = seen.lock().take().unwrap();
    assert_eq!(parameters, ["MD5:1/x=abc", "k="]);
    assert_eq!(location, repository.path().join("m"));
}

#[tokio::test]
async fn a_model_is_served_from_where_an_agent_has_put_it() {
    let config = with_agents(&["a"]).replace("output {", "output { label_filename: 'labels.txt'");
    let repository = Repository::new().model("m", &config, &["1", "7"]).file("m/labels.txt", "original");
    let places = Places::default();
    let agents = Agents::default().with("a", {
        let places = places.clone();
        move |model, action| {
            if action == Load {
                let other_config = ("config.pbtxt", "max_batch_size: 1 this is not even read");
                let files = [other_config, ("labels.txt", "moved"), ("3/model", ""), ("2/model", "")];
                places.lock().push(relocate(model, &files)?);
            }
            Ok(())
        }
    });
    let opened = Arc::new(Mutex::new(None));
    let backend = echo().open({
        let opened = opened.clone();
        move |source| {
            *opened.lock() = Some((source.model_directory.clone(), source.version_directory.clone()));
            Ok(())
        }
    });
    let engine = start(repository.options(), backend, &agents).await;
    assert_eq!(index(&engine), ["m 3 READY"]);
    let moved = places.lock()[0].clone();
    assert_eq!(opened.lock().clone().unwrap(), (moved.clone(), moved.join("3")));
    let model = engine.model("m", None).unwrap();
    assert_eq!(
        (&*model.config().outputs[0].labels, model.config().max_rows()),
        (&["moved".to_owned()][..], 8)
    );
    assert!(serves(&engine, "m").await);
    assert!(moved.is_dir());
    engine.stop(TIMEOUT).await.unwrap();
    assert!(!moved.exists(), "it goes with the agent");
}

#[tokio::test]
async fn an_agent_finds_the_model_where_the_one_before_it_has_put_it() {
    let repository = Repository::new().model("m", &with_agents(&["a", "b", "c"]), &["1"]);
    let places = Places::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    // Records the files that the agent finds, and moves the model to a directory with other files.
    let replacing = |files: &'static [(&str, &str)]| {
        let (places, seen) = (places.clone(), seen.clone());
        move |model: &mut AgentModel, action| {
            if action == Load {
                seen.lock().push((model.location()?.to_path_buf(), model.config().max_batch_size));
                places.lock().push(relocate(model, files)?);
            }
            Ok(())
        }
    };
    let agents = Agents::default()
        .with("a", replacing(&[("config.pbtxt", "max_batch_size: 2")]))
        .with("b", replacing(&[("config.pbtxt", "broken")]))
        .with("c", replacing(&[("1/x", "")]));
    let engine = start(repository.options(), echo(), &agents).await;
    let places = places.lock().clone();
    let original = repository.path().join("m");
    assert_eq!(*seen.lock(), [(original, 8), (places[0].clone(), 2), (places[1].clone(), 0)]);
    assert_eq!(index(&engine), ["m 1 READY"]);
    assert_eq!(engine.model("m", None).unwrap().config().max_rows(), 8, "the first configuration counts");
}

#[tokio::test]
async fn an_agent_that_refuses_a_model_keeps_it_from_being_loaded() {
    let repository =
        Repository::new().model("m", &with_agents(&["a", "b", "c"]), &["1"]).model("other", ECHO, &["1"]);
    let places = Places::default();
    let agents = Agents::default()
        .with_idle("a")
        .with("b", {
            let places = places.clone();
            move |model, action| match action {
                Load => {
                    places.lock().push(relocate(model, &[])?);
                    Err(Error::invalid("Mismatched MD5 hash for file 1/x"))
                }
                _ => Ok(()),
            }
        })
        .with_idle("c");
    let engine = start(repository.options(), echo(), &agents).await;
    assert_eq!(
        index(&engine),
        ["m - UNAVAILABLE Invalid argument: Mismatched MD5 hash for file 1/x", "other 1 READY"]
    );
    assert_eq!(
        agents.notifications(),
        ["a LOAD", "b LOAD", "b LOAD_FAIL", "b leaves", "a LOAD_FAIL", "a leaves"]
    );
    assert!(!places.lock()[0].exists());
    assert!(!engine.all_loaded());
}

#[tokio::test]
async fn an_error_of_an_agent_after_the_load_has_begun_changes_nothing() {
    for failing in [LoadComplete, Unload, UnloadComplete] {
        for panics in [false, true] {
            let repository = Repository::new().model("m", &with_agents(&["a", "b", "c"]), &["1"]);
            let agents = Agents::default()
                .with_idle("a")
                .with("b", move |_, action| match action {
                    action if action != failing => Ok(()),
                    _ if panics => panic!("as it should"),
                    _ => Err(Error::internal("no")),
                })
                .with_idle("c");
            let engine = start(repository.options(), echo(), &agents).await;
            assert_eq!(index(&engine), ["m 1 READY"]);
            assert!(serves(&engine, "m").await);
            engine.stop(TIMEOUT).await.unwrap();
            // Each agent is notified of every event: four actions and the end.
            assert_eq!(agents.notifications().len(), 15, "{failing}: {:?}", agents.notifications());
        }
    }
}

#[tokio::test]
async fn an_agent_that_panics_fails_its_model_only() {
    let repository = Repository::new().model("m", &with_agents(&["a"]), &["1"]).model("other", ECHO, &["1"]);
    let agents = Agents::default().with("a", |_, action| match action {
        Load | LoadFail => panic!("whatever happens"),
        _ => Ok(()),
    });
    let engine = start(repository.options(), echo(), &agents).await;
    assert_eq!(index(&engine), ["m - UNAVAILABLE Internal: the repository agent panicked", "other 1 READY"]);
    assert_eq!(agents.notifications(), ["a LOAD", "a LOAD_FAIL", "a leaves"]);
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let repository = Repository::new().model("m", &with_agents(&["nobody"]), &["1"]);
    let text = |directory: &str| {
        format!(
            "m - UNAVAILABLE Invalid argument: unable to find 'libtritonrepoagent_nobody.so' for repo agent 'nobody', \
             searched: {directory}"
        )
    };
    assert_eq!(index(&repository.serve(echo()).await), [text("/agents")]);
    let agents = Agents::default().with_idle("somebody");
    assert_eq!(index(&start(repository.options(), echo(), &agents).await), [text("/native")]);
}

#[tokio::test]
async fn agents_are_told_that_a_model_failed_to_load() {
    let broken = format!("{} max_batch_size: -1", with_agents(&["a", "b"]).replace("max_batch_size: 8", ""));
    let good = with_agents(&["a", "b"]);
    for (config, versions, reason) in [
        (&broken, &["1"][..], "m - UNAVAILABLE Invalid argument: 'max_batch_size' must be non-negative"),
        (&good, &[], "m - UNAVAILABLE Invalid argument: at least one version must be available"),
        (&good, &["1"], "m 1 UNAVAILABLE Internal: out of luck"),
    ] {
        let repository = Repository::new().model("m", config, versions);
        let agents = Agents::default().with_idle("a").with_idle("b");
        let backend = echo().open(|_| Err(Error::internal("out of luck")));
        let engine = start(repository.options(), backend, &agents).await;
        assert!(index(&engine)[0].starts_with(reason), "{:?}", index(&engine));
        let mut told = agents.notifications();
        told.retain(|told| !told.ends_with("leaves"));
        assert_eq!(told, ["a LOAD", "b LOAD", "b LOAD_FAIL", "a LOAD_FAIL"]);
        engine.stop(TIMEOUT).await.unwrap();
        assert_eq!(agents.notifications().len(), 6, "and then they leave");
    }
}

#[tokio::test]
async fn a_model_with_one_good_version_is_loaded_if_the_operator_wants_it() {
    let config = format!("{} version_policy {{ all {{}} }}", with_agents(&["a"]));
    let repository = Repository::new().model("m", &config, &["1", "2", "3"]);
    let backend =
        echo().open(|source| if source.version == 2 { Ok(()) } else { Err(Error::internal("out of luck")) });
    for (partial_models, served, told) in [(false, &[][..], "a LOAD_FAIL"), (true, &[2], "a LOAD_COMPLETE")] {
        let agents = Agents::default().with_idle("a");
        let mut options = repository.options();
        options.load_policy.partial_models = partial_models;
        let engine = start(options, backend.clone(), &agents).await;
        assert_eq!(engine.ready_versions("m"), served);
        assert_eq!(agents.notifications()[..2], ["a LOAD", told]);
    }
}

#[tokio::test]
async fn a_model_may_have_a_list_of_no_agents_or_no_configuration() {
    let repository = Repository::new()
        .model("m", &format!("{ECHO} model_repository_agents {{}}"), &["1"])
        .file("n/1/model.onnx", "");
    let backend = Native::new("onnxruntime").complete(|config| {
        let tensors = proto::text::parse(ECHO.as_bytes()).unwrap().config;
        (config.input, config.output) = (tensors.input, tensors.output);
        Ok(())
    });
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(echo()), Arc::new(backend)];
    let engine = Engine::start(repository.options(), backends).await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "n 1 READY"]);
}

#[tokio::test]
async fn agents_are_told_the_unload_after_the_last_request() {
    let (begun, beginnings) = mpsc::channel();
    let (go_on, leave) = mpsc::channel::<()>();
    let leave = Mutex::new(leave);
    let order = Arc::new(Mutex::new(Vec::new()));
    let backend = echo().execute({
        let order = order.clone();
        move |_, batch| {
            begun.send(()).unwrap();
            let _ = leave.lock().recv();
            order.lock().push("answered".to_owned());
            batch.executions.into_iter().for_each(answer);
        }
    });
    let agents = Agents::default().with("a", {
        let order = order.clone();
        move |_, action| {
            order.lock().push(action.to_string());
            Ok(())
        }
    });
    let repository = Repository::new().model("m", &with_agents(&["a"]), &["1"]);
    let engine = start(repository.options(), backend, &agents).await;
    let running = ask(&engine, "m", 1);
    beginnings.recv().unwrap();
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(TIMEOUT).await }
    });
    while engine.live().is_ok() {
        tokio::task::yield_now().await;
    }
    go_on.send(()).unwrap();
    running.only().await.unwrap();
    stopping.await.unwrap().unwrap();
    let order = order.lock();
    assert_eq!(
        order[2..],
        ["answered", "TRITONREPOAGENT_ACTION_UNLOAD", "TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE"]
    );
}

#[tokio::test]
async fn agents_of_a_dropped_engine_are_told_the_remaining_actions() {
    let repository = Repository::new().model("m", &with_agents(&["a", "b"]), &["1"]);
    let agents = Agents::default().with_idle("a").with_idle("b");
    drop(start(repository.options(), echo(), &agents).await);
    while agents.notifications().len() < 10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        agents.notifications()[4..],
        ["b UNLOAD", "b UNLOAD_COMPLETE", "b leaves", "a UNLOAD", "a UNLOAD_COMPLETE", "a leaves"]
    );
}

#[tokio::test]
async fn a_model_cannot_be_moved_once_it_is_loaded() {
    let repository = Repository::new().model("m", &with_agents(&["a"]), &["1"]);
    let said = Arc::new(Mutex::new(Vec::new()));
    let agents = Agents::default().with("a", {
        let said = said.clone();
        move |model, action| {
            if action != Load {
                let error = model.relocate(ArtifactType::Filesystem, "/elsewhere".into()).unwrap_err();
                said.lock().push((error.code, model.location()?.to_path_buf()));
            }
            Ok(())
        }
    });
    start(repository.options(), echo(), &agents).await.stop(TIMEOUT).await.unwrap();
    let refused = (ErrorCode::InvalidArgument, repository.path().join("m"));
    assert_eq!(*said.lock(), vec![refused; 3]);
}

#[tokio::test]
async fn only_the_owner_can_read_the_directory_of_an_agent() {
    use std::os::unix::fs::PermissionsExt;
    let repository = Repository::new().model("m", &with_agents(&["a"]), &["1"]);
    let modes = Arc::new(Mutex::new(Vec::new()));
    let agents = Agents::default().with("a", {
        let modes = modes.clone();
        move |model, action| {
            if action == Load {
                let directory: &Path = model.acquire(ArtifactType::Filesystem)?;
                modes.lock().push(fs::metadata(directory).unwrap().permissions().mode() & 0o777);
                model.release()?;
            }
            Ok(())
        }
    });
    let engine = start(repository.options(), echo(), &agents).await;
    assert_eq!((index(&engine), modes.lock().clone()), (vec!["m 1 READY".to_owned()], vec![0o700]));
}

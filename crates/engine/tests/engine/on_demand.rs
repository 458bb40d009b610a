//! Tests of models that are loaded when requests come for them, within a budget of memory.
use std::{
    fs,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use engine::{
    Engine, EngineOptions, ModelControl, ModelState, OnDemandOptions, StartupModels,
    explain::{EngineSnapshot, ModelMemorySnapshot},
};
use inference::backend::MemoryUsage;
use lifecycle::BudgetLine;
use repository::LoadParameters;
use testing::Gate;
use vocabulary::{Error, ErrorCode, MemoryKind};

use crate::support::{ECHO, Native, Repository, TIMEOUT, answer, echo, request, start};

/// A backend whose models have 40 bytes each.
fn sized() -> Native {
    echo().memory(vec![MemoryUsage { kind: MemoryKind::Cpu, id: 0, byte_size: 40 }])
}

/// The same. Loads wait at the gate.
fn held_open() -> (Native, Arc<Gate>) {
    let gate = Gate::shut();
    let opened = gate.clone();
    let backend = sized().open(move |_| {
        opened.pass();
        Ok(())
    });
    (backend, gate)
}

/// A repository of these models, whose files have 20 bytes each: a load is expected to need 40.
fn repository(names: &[&str]) -> Repository {
    names.iter().fold(Repository::new(), |repository, name| {
        repository.model(name, ECHO, &["1"]).file(&format!("{name}/1/model"), [0; 20])
    })
}

/// All models together may have so many bytes, besides the configurations.
fn within(options: EngineOptions, memory_budget: u64) -> EngineOptions {
    EngineOptions { on_demand: Some(OnDemandOptions { memory_budget, load_wait: TIMEOUT }), ..options }
}

fn explicit(options: EngineOptions) -> EngineOptions {
    EngineOptions { control: ModelControl::Explicit(StartupModels::Named(Default::default())), ..options }
}

async fn ask(engine: &Engine, model: &str, value: u8) -> Result<u8, Error> {
    Ok(value_of(&engine.demands().model(model, None).await?.infer(request(value))?.only().await?))
}

fn memory(engine: &Engine) -> ModelMemorySnapshot {
    let EngineSnapshot { model_memory, .. } = engine.explain(None, |_| true).unwrap();
    model_memory.unwrap()
}

/// Where each model is, by name.
fn places(engine: &Engine) -> Vec<String> {
    let mut models = memory(engine).models;
    models.sort_by(|one, other| one.name.cmp(&other.name));
    models.iter().map(|line| format!("{} {}", line.name, line.place.as_str())).collect()
}

#[tokio::test]
async fn requests_load_models_and_others_make_room() {
    let repository = repository(&["a", "b", "c"]);
    let engine = start(within(repository.options(), 1 << 20), sized()).await;
    assert!(engine.ready().await.unwrap() && engine.all_loaded());
    assert_eq!(places(&engine), ["a out", "b out", "c out"], "nothing is loaded at the start");
    assert!(engine.demands().ready("a", None).await, "a request would be answered");
    assert!(!engine.demands().ready("nobody", None).await);
    drop(engine);

    let budget = 100;
    let engine = start(within(repository.options(), budget), sized()).await;
    for round in 0..20_u8 {
        for model in ["a", "b", "c"] {
            assert_eq!(ask(&engine, model, round).await, Ok(round));
            assert!(memory(&engine).totals.used <= budget);
        }
    }
    let EngineSnapshot { models, .. } = engine.explain(None, |_| true).unwrap();
    assert!(models.iter().all(|model| model.state == Some(ModelState::Ready)), "the others are elsewhere");
    let counts = memory(&engine).totals.counts;
    assert!(counts.loads > 3 && counts.unloads > 0, "{counts:?}");
    assert_eq!(counts.refusals, 0);
}

#[tokio::test]
async fn many_requests_wait_for_one_load() {
    let loads = Arc::new(AtomicU32::new(0));
    let (gate, counted) = (Gate::shut(), loads.clone());
    let opened = gate.clone();
    let backend = sized().open(move |_| {
        counted.fetch_add(1, SeqCst);
        opened.pass();
        Ok(())
    });
    let repository = repository(&["a"]);
    let engine = start(within(repository.options(), 1 << 20), backend).await;
    let asked: Vec<_> = (0..100)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { ask(&engine, "a", number).await })
        })
        .collect();
    while memory(&engine).models[0].place.as_str() != "loading" {
        tokio::task::yield_now().await;
    }
    gate.open();
    for (number, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.unwrap(), Ok(number as u8));
    }
    assert_eq!(loads.load(SeqCst), 1);
}

/// A model that was looked up, and was unloaded for another before its request came.
#[tokio::test]
async fn a_late_request_brings_its_model_back() {
    let repository = repository(&["a", "b"]);
    let engine = start(within(repository.options(), 40), sized()).await;
    for round in 0..20 {
        let model = engine.demands().model("a", None).await.unwrap();
        assert_eq!(ask(&engine, "b", round).await, Ok(round), "it takes the memory of 'a'");
        let mut responses = model.infer(request(round)).unwrap();
        let response = responses.take_only().await.unwrap();
        assert_eq!(response.output("OUT").unwrap().host().unwrap().contiguous()[..], [round]);
    }
}

#[tokio::test]
async fn an_operator_loads_and_unloads() {
    let repository = repository(&["a", "b"]);
    let engine = start(explicit(within(repository.options(), 1 << 20)), sized()).await;
    let load = async |name: &str, given| engine.repository().load(name, given).await;
    load("a", LoadParameters::default()).await.unwrap();
    assert_eq!(places(&engine), ["a in", "b out"]);
    engine.repository().unload("a").await.unwrap();
    let error = ask(&engine, "a", 1).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    assert!(!engine.demands().ready("a", None).await);
    load("a", LoadParameters::default()).await.unwrap();
    assert_eq!(ask(&engine, "a", 1).await, Ok(1));
    assert_eq!(ask(&engine, "b", 2).await, Ok(2), "it is loaded by the request");
    let error = load("nobody", LoadParameters::default()).await.unwrap_err();
    assert!(error.message.contains("failed to poll from model repository"), "{error}");
    let error = ask(&engine, "nobody", 1).await.unwrap_err();
    assert_eq!(&*error.message, "Request for unknown model: 'nobody' is not found");

    // What an operator has brought is nowhere else.
    let given = LoadParameters {
        config: Some(
            r#"{"backend": "echo", "max_batch_size": 4,
            "input": [{"name": "IN", "data_type": "TYPE_UINT8", "dims": [-1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_UINT8", "dims": [-1]}]}"#
                .to_owned(),
        ),
        files: Vec::new(),
    };
    load("b", given).await.unwrap();
    let model = engine.model("b", None).unwrap();
    assert_eq!(model.config().max_batch_size, NonZeroU32::new(4));
    let lines = memory(&engine).models;
    assert!(lines.iter().any(|line| &*line.name == "b" && line.is_pinned));
}

#[tokio::test]
async fn what_does_not_fit_or_does_not_load_is_refused_with_the_reason() {
    let backend = sized().open(|source| match &*source.name {
        "broken" => Err(Error::internal("the file is broken")),
        _ => Ok(()),
    });
    let repository =
        repository(&["a", "broken"]).file("large/1/model", [0; 4000]).file("large/config.pbtxt", ECHO);
    let engine = start(within(repository.options(), 2000), backend).await;
    let error = ask(&engine, "large", 1).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert_eq!(
        &*error.message,
        "model 'large' needs 4000 bytes of memory, and --model-memory-budget has 2000"
    );
    for _ in 0..3 {
        let error = ask(&engine, "broken", 1).await.unwrap_err();
        assert!(error.message.contains("the file is broken"), "{error}");
    }
    let whys: Vec<_> = memory(&engine).models.iter().map(BudgetLine::why).collect();
    assert!(whys.iter().any(|why| why.contains("the file is broken")), "{whys:?}");
    assert!(whys.iter().any(|why| why.contains("it was refused: model 'large' needs")), "{whys:?}");
    assert_eq!(ask(&engine, "a", 1).await, Ok(1));
}

#[tokio::test]
async fn pinned_models_are_loaded_at_the_start_and_stay() {
    let pinned = format!("{ECHO} parameters {{ key: 'MEMORY_PINNED' value {{ string_value: 'true' }} }}");
    let repository = repository(&["a", "b"]).model("p", &pinned, &["1"]);
    let budget = 80;
    let engine = start(within(repository.options(), budget), sized()).await;
    assert_eq!(places(&engine), ["a out", "b out", "p in"]);
    assert!(engine.ready().await.unwrap());
    for round in 0..10 {
        assert_eq!(ask(&engine, "a", round).await, Ok(round));
        assert_eq!(ask(&engine, "b", round).await, Ok(round));
    }
    assert!(places(&engine).contains(&"p in".to_owned()));
}

const ENSEMBLE: &str = "platform: 'ensemble' max_batch_size: 8
    input { name: 'IN' data_type: TYPE_UINT8 dims: -1 } output { name: 'OUT' data_type: TYPE_UINT8 dims: -1 }
    ensemble_scheduling {
      step { model_name: 'a' model_version: -1 input_map { key: 'IN' value: 'IN' } output_map { key: 'OUT' value: 'between' } }
      step { model_name: 'b' model_version: -1 input_map { key: 'IN' value: 'between' } output_map { key: 'OUT' value: 'OUT' } } }";

#[tokio::test]
async fn an_ensemble_comes_with_its_members() {
    let repository = repository(&["a", "b", "c"]).model("e", ENSEMBLE, &["1"]);
    let budget = 80;
    let engine = start(within(repository.options(), budget), sized()).await;
    assert_eq!(ask(&engine, "e", 7).await, Ok(7));
    assert_eq!(places(&engine), ["a in", "b in", "c out", "e in"]);
    for round in 0..10 {
        for model in ["c", "e", "a", "e", "b"] {
            assert_eq!(ask(&engine, model, round).await, Ok(round), "{model}");
        }
    }
}

#[tokio::test]
async fn a_request_does_not_wait_for_ever() {
    let (backend, gate) = held_open();
    let repository = repository(&["a"]);
    let patience = Duration::from_millis(10);
    let on_demand = Some(OnDemandOptions { memory_budget: 1 << 20, load_wait: patience });
    let engine = start(EngineOptions { on_demand, ..repository.options() }, backend).await;
    let error = ask(&engine, "a", 1).await.unwrap_err();
    assert_eq!(&*error.message, "model 'a' was not loaded within 0 seconds (--model-load-wait-secs)");
    gate.open();
    while places(&engine) != ["a in"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&engine, "a", 1).await, Ok(1), "the load went on");
}

#[tokio::test]
async fn nobody_waits_for_a_model_when_the_server_stops() {
    let (backend, gate) = held_open();
    let repository = repository(&["a"]);
    let engine = start(within(repository.options(), 1 << 20), backend).await;
    let asked = tokio::spawn({
        let engine = engine.clone();
        async move { ask(&engine, "a", 1).await }
    });
    while places(&engine) != ["a loading"] {
        tokio::task::yield_now().await;
    }
    engine.announce_exit().await;
    assert_eq!(&*asked.await.unwrap().unwrap_err().message, "Server exiting");
    assert_eq!(&*ask(&engine, "a", 1).await.unwrap_err().message, "Server exiting");
    gate.open();
}

/// A busy model keeps its memory; the one that wants it waits.
#[tokio::test]
async fn a_busy_model_is_not_unloaded() {
    let gate = Gate::shut();
    let opened = gate.clone();
    let backend = sized().execute(move |model, batch| {
        if model == "a" {
            opened.pass();
        }
        batch.executions.into_iter().for_each(answer);
    });
    let repository = repository(&["a", "b"]);
    let engine = start(within(repository.options(), 40), backend).await;
    let running = engine.demands().model("a", None).await.unwrap().infer(request(1)).unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { ask(&engine, "b", 2).await }
    });
    while places(&engine) != ["a in", "b waiting"] {
        tokio::task::yield_now().await;
    }
    gate.open();
    assert_eq!(value_of(&running.only().await.unwrap()), 1);
    assert_eq!(waiting.await.unwrap(), Ok(2));
    assert_eq!(places(&engine), ["a out", "b in"]);
}

fn value_of(response: &inference::Response) -> u8 {
    response.output("OUT").unwrap().host().unwrap().contiguous()[0]
}

#[tokio::test]
async fn models_that_come_to_the_repository_later_are_found_when_the_last_look_is_old() {
    let repository = repository(&["a"]);
    let engine = start(explicit(within(repository.options(), 1 << 20)), sized()).await;
    fs::create_dir_all(repository.path().join("late/1")).unwrap();
    fs::write(repository.path().join("late/config.pbtxt"), ECHO).unwrap();
    // A request for an unknown name does not look again at once. An operator does.
    let error = ask(&engine, "late", 1).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    engine.repository().load("late", LoadParameters::default()).await.unwrap();
    assert_eq!(ask(&engine, "late", 1).await, Ok(1));
}

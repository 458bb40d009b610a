//! Every recorded exchange gives the recorded response, or the response in the lists.
//!
//! Each configuration of the recordings has one server. It has the recorded models: with native backends, and again in Python. Each exchange uses its own socket, byte for byte, in the recorded order. [`judge`] defines what is
//! compared. The lists are in [`table`]. One of them may only get shorter.
mod expect;
mod judge;
mod replay;
mod scenarios;
mod table;
mod traces;
mod unrecorded;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use assembly::LibraryBackends;
use backend_onnx::OnnxBackend;
use backend_openvino::OpenVinoBackend;
use backend_pytorch::AotInductorBackend;
use inference::{MetricSource, Plugins, backend::Backend, metrics::MetricsText};
use native_backend::LibrarySearch;
use object_stores::CacheOptions;
use replay::{Stage, replay};
use server::{Extensions, options::ProcessEnvironment};
use table::{NOT_BUILT, OTHERWISE, SHOWN_ELSEWHERE};
use testing::{
    Repository,
    fixtures::Python,
    golden::{self, Record},
};
use tokio::runtime::Runtime;

use crate::support::Served;

/// The configurations of the recordings. Each has its own server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Configuration {
    /// All models, no restrictions.
    Plain,
    /// All models, no restrictions, and no earlier request.
    Fresh,
    /// Restricted categories and forwarded headers.
    Restricted,
    /// The endpoints of clouds.
    Clouds,
}

impl Configuration {
    fn of(record: &Record) -> Self {
        match &record.arguments {
            Some(arguments) if arguments.contains("--allow-sagemaker") => Self::Clouds,
            Some(arguments) if arguments.contains("--http-restricted-api") => Self::Restricted,
            Some(_) => Self::Plain,
            // The recording has no arguments, so its name determines the configuration.
            None if record.name.starts_with("gr_") => Self::Restricted,
            None => Self::Fresh,
        }
    }

    /// The arguments of the recorded server. The variables of its environment follow a semicolon.
    fn recorded(self, records: &[Record]) -> &str {
        let of_this = records.iter().filter(|record| Self::of(record) == self);
        of_this.filter_map(|record| record.arguments.as_deref()).next().unwrap_or_default()
    }

    /// The recorded arguments. The exchanges about traces start servers of their own.
    fn arguments(self, records: &[Record]) -> Vec<String> {
        const LEFT_OUT: [&str; 1] = ["--trace-config"];
        let recorded = self.recorded(records).split(';').next().unwrap_or_default();
        let wanted = recorded
            .split_whitespace()
            .filter(|word| word.starts_with("--") && !LEFT_OUT.iter().any(|option| word.starts_with(option)));
        let mut arguments = vec!["--exit-on-error=false".to_owned(), "--strict-readiness=false".to_owned()];
        // The recorded release always allowed it (D1).
        arguments.push("--allow-client-shm=true".to_owned());
        arguments.extend(wanted.map(str::to_owned));
        arguments
    }

    /// The recorded variables.
    fn environment(self, records: &[Record]) -> ProcessEnvironment {
        let words = self.recorded(records).split_once(';').map_or("", |(_, variables)| variables);
        let variables: BTreeMap<_, _> =
            words.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let value = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        ProcessEnvironment {
            aip_predict_route: value("AIP_PREDICT_ROUTE"),
            aip_health_route: value("AIP_HEALTH_ROUTE"),
            sagemaker_default_model: value("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"),
            ..ProcessEnvironment::default()
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    better: usize,
    newer: usize,
    not_built: usize,
    elsewhere: usize,
    complaints: Vec<String>,
}

impl Tally {
    fn count(&mut self, name: &str, result: Result<(), String>) {
        let not_built = table::feature_of(name);
        match (result, not_built) {
            (Ok(()), Some(feature)) => {
                self.complaints
                    .push(format!("{name}: {feature} is built: remove it from the list NOT_BUILT"));
            }
            (Err(_), Some(_)) => self.not_built += 1,
            (Err(difference), None) => self.complaints.push(format!("{name}: {difference}")),
            (Ok(()), None) => match table::difference_of(name) {
                None => self.equal += 1,
                Some(otherwise) if otherwise.id.starts_with('D') => self.newer += 1,
                Some(_) => self.better += 1,
            },
        }
    }
}

/// The shared memory object of the recorded clients: 64 numbers. It has one name, so one test at a time has it.
struct RecordedObject {
    _lock: File,
}

impl RecordedObject {
    const PATH: &str = "/dev/shm/proto_a";

    fn create() -> Self {
        let numbers: Vec<u8> = (0..64_u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
        // The lock of the directory leaves no file behind.
        let lock = File::open("/dev/shm").expect("the system has shared memory");
        lock.lock().expect("directories can be locked");
        std::fs::write(Self::PATH, numbers).expect("the system has shared memory");
        Self { _lock: lock }
    }
}

impl Drop for RecordedObject {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(Self::PATH);
    }
}

/// The metrics of the recorded model `cmetric`.
struct CacheBlocks;

impl MetricSource for CacheBlocks {
    fn append_to(&self, _: &mut MetricsText) {}

    fn value(&self, family: &str, label: (&str, &str)) -> Option<f64> {
        assert_eq!(family, "nv_trt_llm_kv_cache_block_metrics");
        [("tokens_per", 64.0), ("used", 25.0), ("max", 100.0)]
            .into_iter()
            .find_map(|(kind, value)| (label == ("kv_cache_block_type", kind)).then_some(value))
    }
}

#[test]
fn every_recorded_exchange_is_answered_as_recorded_or_as_listed() {
    replay_all(&[], || {
        let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Python)];
        Plugins::from(backends).with_metrics(Some(Arc::new(CacheBlocks)))
    });
}

/// The recorded models themselves, in the interpreter that the tests of the workspace have.
#[test]
fn the_recorded_models_in_python_answer_as_recorded_or_as_listed() {
    let interpreter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/bin/python");
    let setting = format!("--backend-config=python,python-executable={}", interpreter.display());
    replay_all(&[&setting], || {
        let nowhere = LibrarySearch { named: None, program_directory: None, python_prefixes: Vec::new() };
        let copies = CacheOptions { directory: PathBuf::new(), max_unused_bytes: 0 };
        let server = in_process::Server::hosting();
        let backends = LibraryBackends {
            onnxruntime: OnnxBackend::new(nowhere.clone()),
            openvino: OpenVinoBackend::new(nowhere.clone()),
            pytorch: AotInductorBackend::new(nowhere),
        };
        let all = assembly::plugins(server.handle(), backends, PathBuf::new(), copies);
        Plugins::from(all.backends).with_metrics(all.more_metrics)
    });
}

/// Replays all exchanges. Each server has what `plugins` makes: the backend of the models, and their metrics.
#[expect(clippy::unwrap_used, reason = "a failing test says where")]
fn replay_all(options: &[&str], plugins: impl Fn() -> Plugins) {
    let repository = Arc::new(Repository::golden().unwrap());
    let runtime = Runtime::new().unwrap();
    let _object = RecordedObject::create();
    let records = golden::records();
    let mut settings: BTreeMap<_, _> = BTreeMap::new();
    for record in &records {
        let configuration = Configuration::of(record);
        settings
            .entry(configuration)
            .or_insert_with(|| (configuration.arguments(&records), configuration.environment(&records)));
    }
    let mut by_configuration = BTreeMap::<_, Vec<Record>>::new();
    for record in records {
        by_configuration.entry(Configuration::of(&record)).or_default().push(record);
    }

    let mut tally = Tally::default();
    for (configuration, records) in by_configuration {
        let (arguments, environment) = &settings[&configuration];
        let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(options.iter().copied()).collect();
        let extensions = Extensions { plugins: plugins(), ..Extensions::default() };
        let served = Served::in_environment(&repository, &arguments, extensions, environment);
        for record in records {
            if SHOWN_ELSEWHERE.iter().any(|(prefix, _)| record.name.starts_with(prefix)) {
                tally.elsewhere += 1;
                continue;
            }
            let name = record.name.clone();
            let patches = table::difference_of(&name).map_or(&[][..], |otherwise| otherwise.patches);
            let result = served.as_ref().map_err(Clone::clone).and_then(|served| {
                let stage = Stage { served, repository: repository.path(), runtime: &runtime };
                replay(&expect::patched(record, patches), &stage)
            });
            tally.count(&name, result);
        }
        if let Ok(served) = served {
            served.stop().unwrap();
        }
    }
    let Tally { equal, better, newer, not_built, elsewhere, complaints } = tally;
    // The line goes directly to stderr, so that it is visible although the test passes.
    let _ = writeln!(
        io::stderr(),
        "golden: {equal} equal, {better} better on purpose, {newer} as 2.73, {not_built} not built yet, {elsewhere} shown elsewhere"
    );
    assert!(complaints.is_empty(), "{} exchanges differ:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn the_lists_name_existing_exchanges_once() {
    let known: Vec<_> = golden::records().into_iter().map(|record| record.name).collect();
    let mut listed: Vec<_> = NOT_BUILT.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    for name in &listed {
        assert!(known.iter().any(|known| known == name), "no exchange is named '{name}'");
    }
    listed.sort_unstable();
    assert!(listed.windows(2).all(|pair| pair[0] != pair[1]), "NOT_BUILT names an exchange twice");

    let mut otherwise: Vec<_> = OTHERWISE.iter().map(|otherwise| otherwise.name).collect();
    for name in &otherwise {
        assert!(known.iter().any(|known| known == name), "no exchange is named '{name}'");
    }
    otherwise.sort_unstable();
    assert!(otherwise.windows(2).all(|pair| pair[0] != pair[1]), "OTHERWISE names an exchange twice");
}

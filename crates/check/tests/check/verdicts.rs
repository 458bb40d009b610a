//! A check and a server judge the same configurations alike. Rows: a configuration, and a part of the server's refusal;
//! empty for a configuration that the server accepts.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use check::{CheckOptions, CheckReport, Severity, check_repositories};
use engine::{Engine, EngineOptions, MetricsOptions, ModelControl, ModelState, ServerMetadata};
use inference::backend::Backend;
use testing::Identity;

use crate::table::{self, Row};

fn backends() -> Vec<Arc<dyn Backend>> {
    vec![Arc::new(Identity::default())]
}

fn engine_options(repository: &Path, auto_complete: bool) -> EngineOptions {
    EngineOptions {
        control: ModelControl::None,
        namespacing: false,
        sequence_limit: std::time::Duration::from_secs(60),
        server: ServerMetadata::default(),
        repositories: vec![repository.to_path_buf()],
        readiness: Default::default(),
        load_threads: 4,
        load_retries: 0,
        auto_complete,
        config_name: None,
        agent_directory: "/agents".into(),
        backend_settings: Vec::new(),
        on_demand: None,
        limits: Default::default(),
        metrics: MetricsOptions { host: false, ..MetricsOptions::default() },
        hold_until_queued: 0,
        hold_until_backlogged: 0,
        rate_limit: None,
        host_policies: Default::default(),
        load_policy: Default::default(),
    }
}

/// What the server says of each model: `None` if it serves the model, otherwise the reason.
fn judged_by_server(repository: &Path, auto_complete: bool) -> BTreeMap<String, Option<String>> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let index = runtime.block_on(async {
        let engine = Engine::new(engine_options(repository, auto_complete), backends()).unwrap();
        engine.load_models().await.unwrap();
        engine.index(false).await
    });
    runtime.shutdown_background();
    let mut judged = BTreeMap::new();
    for entry in index {
        let refusal = (entry.state != Some(ModelState::Ready)).then_some(entry.reason);
        let known: &mut Option<String> = judged.entry(entry.name.to_string()).or_default();
        *known = known.take().or(refusal);
    }
    judged
}

fn judged_by_check(repository: &Path, auto_complete: bool) -> CheckReport {
    let options = CheckOptions {
        plugins: backends().into(),
        must_be_complete: !auto_complete,
        agent_directory: "/agents".into(),
        ..CheckOptions::default()
    };
    check_repositories(&[repository.to_path_buf()].into(), &options)
}

/// Judges all rows.
fn compare(auto_complete: bool) {
    let root = tempfile::tempdir().unwrap();
    let rows = table::rows();
    for (number, row) in rows.iter().enumerate() {
        let directory = root.path().join(format!("m{number:03}"));
        fs::create_dir_all(directory.join("1")).unwrap();
        fs::write(directory.join("config.pbtxt"), &row.config).unwrap();
    }
    let server = judged_by_server(root.path(), auto_complete);
    let report = judged_by_check(root.path(), auto_complete);
    assert_eq!(report.models, rows.len());
    let mut different = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let name = format!("m{number:03}");
        let errors: Vec<_> =
            report.of_model(&name).filter(|finding| finding.severity == Severity::Error).collect();
        let refusal = server.get(&name).unwrap_or_else(|| panic!("the server does not know {name}"));
        let is_alike = match refusal {
            None => row.refusal.is_empty() && errors.is_empty(),
            Some(reason) => {
                !row.refusal.is_empty()
                    && reason.contains(&row.refusal)
                    && errors.iter().any(|finding| reason.contains(&finding.text))
                    && errors.iter().any(|finding| finding.text.contains(&row.refusal))
            }
        };
        if !is_alike {
            let errors: Vec<_> = errors.iter().map(|finding| &finding.text).collect();
            let Row { config, refusal: wanted } = row;
            different.push(format!("{config}\n wanted {wanted:?}\n server {refusal:?}\n check  {errors:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// How many bad configurations the suite of Triton expects to be refused.
const BAD_CONFIGURATIONS_OF_TRITON: usize = 302;

#[test]
fn a_check_and_a_server_judge_alike() {
    compare(true);
}

#[test]
fn a_check_and_a_server_that_wants_complete_configurations_judge_alike() {
    compare(false);
}

#[test]
fn the_table_has_more_bad_configurations_than_the_suite_of_triton_and_each_once() {
    let rows = table::rows();
    let configs: BTreeSet<_> = rows.iter().map(|row| &row.config).collect();
    assert_eq!(configs.len(), rows.len(), "a configuration is in the table twice");
    let bad = rows.iter().filter(|row| !row.refusal.is_empty()).count();
    println!("{bad} bad configurations of {}", rows.len());
    assert!(bad > BAD_CONFIGURATIONS_OF_TRITON, "only {bad} bad configurations");
}

//! Checks all models of repositories.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use repository::layout::{self, RepositoryModels};
use vocabulary::Name;

use crate::{
    CheckOptions, CheckReport, Finding, Severity,
    backend_choice::settings_of,
    ensembles::check_ensembles,
    model::{CheckedModel, check_model},
    python::check_sources,
    rules::{BACKEND_RUNTIME, REPOSITORY, REPOSITORY_LAYOUT, UNIQUE_MODEL},
};

/// Checks repositories, which are directories. Blocks.
pub fn check_repositories(repositories: &BTreeSet<PathBuf>, options: &CheckOptions) -> CheckReport {
    let mut report = CheckReport::default();
    let mut directories = Vec::new();
    for repository in repositories {
        match layout::models(repository) {
            Err(error) => report.findings.push(Finding::of_error(REPOSITORY, repository, &error)),
            // What else stands against its directories follows from this.
            Ok(RepositoryModels { is_model: Some(text), .. }) => {
                report.findings.push(Finding::new(Severity::Error, REPOSITORY_LAYOUT, repository, text));
            }
            Ok(models) => {
                for warning in models.warnings {
                    let finding = Finding::new(Severity::Warning, REPOSITORY_LAYOUT, repository, warning);
                    report.findings.push(finding);
                }
                directories.extend(models.directories);
            }
        }
    }
    report.models = directories.len();
    let checked = check_each(&directories, options);
    report.findings.extend(missing_runtimes(&checked, options));
    let sources: Vec<_> = checked
        .iter()
        .flat_map(|model| model.python.iter().map(|source| (model.name.clone(), source.clone())))
        .collect();
    let of_sources = if options.skips_interpreters {
        Vec::new()
    } else {
        check_sources(&sources, options.source_checks())
    };
    for mut models in namespaces(checked, options.namespacing, &mut report.findings) {
        for finding in &of_sources {
            let model = finding.model.as_deref().and_then(|name| models.get_mut(&Name::new(name)));
            if let Some(model) = model.filter(|model| finding.file.starts_with(&model.directory)) {
                model.findings.push(finding.clone());
            }
        }
        check_ensembles(&mut models);
        report.findings.extend(models.into_values().flat_map(|model| model.findings));
    }
    report.sort();
    report
}

/// Checks each model, on as many threads as there are processors.
fn check_each(directories: &[PathBuf], options: &CheckOptions) -> Vec<CheckedModel> {
    let threads = host::usable_processors().get().min(directories.len());
    let next = AtomicUsize::new(0);
    let check_some = || {
        let mut checked = Vec::new();
        while let Some(directory) = directories.get(next.fetch_add(1, Ordering::Relaxed)) {
            checked.push(check_model(directory, options));
        }
        checked
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (1..threads).map(|_| scope.spawn(check_some)).collect();
        let mut checked = check_some();
        for thread in threads {
            checked.extend(thread.join().expect("a check does not panic"));
        }
        checked
    })
}

/// What backends lack on this machine: one finding for all models of a backend.
fn missing_runtimes(checked: &[CheckedModel], options: &CheckOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for backend in &options.plugins.backends {
        let mut needing = checked.iter().filter(|model| model.backend.as_deref() == Some(backend.name()));
        let Some(first) = needing.next() else { continue };
        let settings = settings_of(options, backend.settings_name());
        let Some(missing) = backend.missing_runtime(&settings) else { continue };
        let needed_by = match needing.count() {
            0 => format!("model '{}' needs it", first.name),
            others => format!("model '{}' and {others} more need it", first.name),
        };
        let repository = first.directory.parent().unwrap_or(&first.directory);
        let text = format!("{missing}; {needed_by}");
        findings.push(Finding::new(Severity::Warning, BACKEND_RUNTIME, repository, text));
    }
    findings
}

/// The models by name: all of them, or those of each repository. A model that is in two repositories is in no map.
fn namespaces(
    checked: Vec<CheckedModel>,
    namespacing: bool,
    findings: &mut Vec<Finding>,
) -> Vec<BTreeMap<Name, CheckedModel>> {
    let mut all: BTreeMap<Option<PathBuf>, BTreeMap<Name, Vec<CheckedModel>>> = BTreeMap::new();
    for model in checked {
        let namespace = model.directory.parent().filter(|_| namespacing).map(Path::to_path_buf);
        all.entry(namespace).or_default().entry(model.name.clone()).or_default().push(model);
    }
    let mut namespaces = Vec::new();
    for models in all.into_values() {
        let mut unique = BTreeMap::new();
        for (name, mut models) in models {
            let places: Vec<_> = models.iter().map(|model| model.directory.display().to_string()).collect();
            if models.len() > 1 {
                let text =
                    format!("model '{name}' appears in two or more repositories: {}", places.join(", "));
                for model in &models {
                    let finding = Finding::new(Severity::Error, UNIQUE_MODEL, &model.directory, text.clone());
                    findings.push(finding.about(&name));
                }
                findings.extend(models.into_iter().flat_map(|model| model.findings));
            } else if let Some(model) = models.pop() {
                unique.insert(name, model);
            }
        }
        namespaces.push(unique);
    }
    namespaces
}

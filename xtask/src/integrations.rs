//! `cargo xtask integrations`: the tests that need large foreign packages, a group for each of these packages.
//!
//! Each group fetches what it needs, so that it also runs alone.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::dependencies;
use crate::differential;
use crate::dist;
use crate::files::remove_folder;
use crate::steps::{CannotRun, CheckStep, Steps, named};
use crate::test_runners::{client_tests, nextest};
use crate::tools::{self, Tool};
use crate::workspace;

/// How long all groups may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(50);

/// The groups, the most important ones first. The one that takes the most space is at the beginning, where the disk is
/// emptiest. They run one after another: beside another group, Ray takes three times as long and fails.
const STEPS: [CheckStep; 17] = [
    // It needs the packages of the recipes, which are removed after those.
    CheckStep {
        name: "PyTorch",
        limit: Duration::from_mins(15),
        action: || clients_of("PyTorch", "pytorch", tools::PYTORCH),
    },
    CheckStep {
        name: "recipes",
        limit: Duration::from_mins(15),
        action: || clients_of("recipes", "recipes", tools::RECIPES),
    },
    CheckStep { name: "stores", limit: Duration::from_mins(15), action: stores },
    CheckStep {
        name: "clients of stores",
        limit: Duration::from_mins(15),
        action: || clients_of("clients of stores", "stores", tools::STORES),
    },
    CheckStep {
        name: "plug-ins",
        limit: Duration::from_mins(15),
        action: || clients_of("plug-ins", "plugins and not examples", tools::PLUGINS),
    },
    CheckStep {
        name: "examples",
        limit: Duration::from_mins(10),
        action: || of_no_package("examples", "examples", "NEREID_TEST_PYTHON_EXAMPLES", tools::EXAMPLES),
    },
    CheckStep {
        name: "redis library",
        limit: Duration::from_mins(5),
        action: || of_no_package("redis library", "redis_library", "NEREID_TEST_REDIS_LIBRARY", &[]),
    },
    CheckStep {
        name: "vLLM",
        limit: Duration::from_mins(5),
        action: || of_no_package("vLLM", "vllm_backend", "NEREID_TEST_VLLM_BACKEND", &[]),
    },
    CheckStep { name: "comparison with Triton", limit: Duration::from_mins(10), action: differential::short },
    CheckStep { name: "dependencies", limit: Duration::from_mins(15), action: dependencies::rules },
    CheckStep { name: "advisories", limit: Duration::from_mins(5), action: dependencies::advisories },
    CheckStep {
        name: "NVIDIA's programs",
        limit: Duration::from_mins(10),
        action: || clients_of("NVIDIA's programs", "nvidia", tools::NVIDIA),
    },
    CheckStep {
        name: "browser",
        limit: Duration::from_mins(10),
        action: || clients_of("browser", "browser", tools::BROWSER),
    },
    CheckStep {
        name: "monitoring",
        limit: Duration::from_mins(10),
        action: || clients_of("monitoring", "monitoring", tools::MONITORING),
    },
    CheckStep { name: "chart", limit: Duration::from_mins(10), action: chart },
    CheckStep {
        name: "clients of others",
        limit: Duration::from_mins(15),
        action: || clients_of("clients of others", "others", tools::OTHERS),
    },
    CheckStep {
        name: "Ray",
        limit: Duration::from_mins(15),
        action: || clients_of("Ray", "ray", tools::RAY),
    },
];

/// Environments with many packages, and the group that has needed each.
const LARGE: [(&str, &str); 4] = [
    ("recipes", "recipes"),
    ("clients of others", "others"),
    ("clients of others", "kserve"),
    ("Ray", "ray"),
];

/// All groups.
pub(crate) fn steps() -> impl Iterator<Item = &'static CheckStep> {
    STEPS.iter()
}

/// How the groups run.
pub(crate) struct IntegrationOptions {
    /// Only those whose name contains this.
    only: Option<String>,
    /// Removes the packages of large groups after these.
    discard: bool,
    /// Begins no group later than this after the start. Those that have not begun are skipped.
    begin_within: Option<Duration>,
}

impl IntegrationOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<IntegrationOptions> {
        let options = IntegrationOptions {
            only: arguments.value("--only")?,
            discard: arguments.flag("--discard"),
            begin_within: arguments.value("--begin-within")?.map(Duration::from_secs),
        };
        arguments.finish()?;
        Ok(options)
    }
}

/// Runs the groups. Returns whether all that ran have passed.
///
/// # Errors
/// No group has such a name, or the run cannot begin.
pub(crate) fn run(options: &IntegrationOptions) -> Result<bool> {
    let wanted = named(options.only.as_deref().unwrap_or_default(), &STEPS)?;
    let mut steps = Steps::new(LIMIT)?;
    if options.discard {
        steps.call_after_each(remove_large);
    }
    if let Some(time) = options.begin_within {
        steps.begin_within(time);
    }
    steps.run_all(&wanted);
    Ok(steps.summary())
}

/// Removes the packages of a group that has ended, if they are large.
fn remove_large(group: &str) {
    for (_, environment) in LARGE.iter().filter(|(large, _)| *large == group) {
        // What cannot be removed costs space and harms nothing.
        let _ = remove_folder(&workspace::target().join("integrations").join(environment));
    }
}

/// The client tests of a group, which have its marker.
fn clients_of(step: &str, marker: &str, tools: &[Tool]) -> Result<()> {
    client_tests(step, marker, &tools::fetch(tools)?)
}

/// The same, of a group that needs something of Triton that no package has.
fn of_no_package(step: &str, marker: &str, variable: &str, tools: &[Tool]) -> Result<()> {
    if std::env::var_os(variable).is_none_or(|place| place.is_empty()) {
        bail!(CannotRun(format!(
            "no package has what these tests need; {variable} may name it (docs/testing.md)"
        )));
    }
    clients_of(step, marker, tools)
}

/// The Helm chart, as `cargo xtask dist` makes it.
fn chart() -> Result<()> {
    let mut variables = tools::fetch(tools::CHART)?;
    variables.push(("NEREID_TEST_CHART", dist::make_chart()?));
    client_tests("chart", "chart", &variables)
}

/// Object stores, by the tests of their crate.
fn stores() -> Result<()> {
    let ignored = ["--package", "object-stores", "--run-ignored", "only"];
    nextest("stores", &ignored, &tools::fetch(tools::STORES)?)
}

//! `cargo xtask integrations`: the tests that need large foreign packages, a group for each of these packages.
//!
//! Each group fetches what it needs, so that it also runs alone.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::dependencies;
use crate::differential;
use crate::dist;
use crate::files::remove_folder;
use crate::steps::{self, CannotRun, CheckStep};
use crate::test_runners::{client_tests, nextest};
use crate::tools::{self, Tool};
use crate::workspace;

/// How long all groups may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(30);

/// The groups. The one that takes the most space is first, where the disk is emptiest: while pip installs the packages of the
/// recipes they take 9.5 GB.
const STEPS: [CheckStep; 16] = [
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
    CheckStep { name: "comparison with Triton", limit: Duration::from_mins(10), action: differential::short },
    CheckStep { name: "chart", limit: Duration::from_mins(10), action: chart },
    CheckStep { name: "dependencies", limit: Duration::from_mins(15), action: dependencies::rules },
    CheckStep { name: "advisories", limit: Duration::from_mins(5), action: dependencies::advisories },
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

/// Runs the groups whose name contains `only`, or all, and removes the packages of large groups after each if `discard`.
/// Returns whether all passed.
///
/// # Errors
/// No group has such a name, or the run cannot begin.
pub(crate) fn run(only: Option<&str>, discard: bool) -> Result<bool> {
    let (text, all) = (only.unwrap_or_default(), steps().collect::<Vec<_>>());
    if discard {
        steps::run_and_then(text, &all, LIMIT, remove_large)
    } else {
        steps::run_only(text, &all, LIMIT)
    }
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

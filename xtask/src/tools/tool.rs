//! The tools of each group of tests, and the variables that name them.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::{
    allocators, debian_program, examples, npm_package, nvidia, openvino_library, plugins, runtime_library,
    rust_client,
};
use crate::files::lock;
use crate::{process, python, workspace};

/// A program or a library, and the environment variable that tells the tests where it is.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) variable: &'static str,
    /// Fetches it unless it is there.
    fetch: fn() -> Result<PathBuf>,
}

/// What the tests of `cargo xtask test` need.
pub(crate) const OF_TESTS: &[Tool] = &[
    Tool { name: "onnxruntime", variable: runtime_library::VARIABLE, fetch: runtime_library::fetch },
    Tool { name: "openvino", variable: openvino_library::VARIABLE, fetch: openvino_library::fetch },
    // The store of the response cache `redis`.
    Tool {
        name: "redis-server",
        variable: "NEREID_TEST_REDIS_SERVER",
        fetch: || debian_program::REDIS.fetch(),
    },
    // Shells whose completions are tested.
    Tool { name: "zsh", variable: "NEREID_TEST_ZSH", fetch: || debian_program::ZSH.fetch() },
    Tool { name: "fish", variable: "NEREID_TEST_FISH", fetch: || debian_program::FISH.fetch() },
    // Allocators that users preload.
    Tool { name: "tcmalloc", variable: "NEREID_TEST_TCMALLOC", fetch: || allocators::TCMALLOC.fetch() },
    Tool { name: "jemalloc", variable: "NEREID_TEST_JEMALLOC", fetch: || allocators::JEMALLOC.fetch() },
];

/// Triton's own plug-ins.
pub(crate) const PLUGINS: &[Tool] =
    &[Tool { name: "plug-ins", variable: plugins::VARIABLE, fetch: plugins::fetch }];

/// NVIDIA's programs around its server.
pub(crate) const NVIDIA: &[Tool] =
    &[Tool { name: "NVIDIA's programs", variable: nvidia::VARIABLE, fetch: nvidia::fetch }];

/// What the examples of Triton's Python backend need, beside the backend.
pub(crate) const EXAMPLES: &[Tool] = &[
    Tool { name: "plug-ins", variable: plugins::VARIABLE, fetch: plugins::fetch },
    Tool { name: "Python for examples", variable: "NEREID_TEST_EXAMPLES_PYTHON", fetch: examples::fetch },
];

/// Servers that stand for object stores: moto for S3, azurite for Azure.
pub(crate) const STORES: &[Tool] = &[
    Tool { name: "moto", variable: "NEREID_TEST_MOTO", fetch: moto },
    Tool { name: "azurite", variable: "NEREID_TEST_AZURITE", fetch: || npm_package::AZURITE.install() },
];

/// A browser without a window, and a script that finds what keeps people from using a page.
pub(crate) const BROWSER: &[Tool] = &[
    Tool { name: "chromium", variable: "NEREID_TEST_BROWSER", fetch: || debian_program::CHROMIUM.fetch() },
    Tool { name: "axe-core", variable: "NEREID_TEST_AXE", fetch: || npm_package::AXE.install() },
];

/// What checks metrics, rules and alerts as Prometheus does.
pub(crate) const MONITORING: &[Tool] = &[Tool {
    name: "promtool",
    variable: "NEREID_TEST_PROMTOOL",
    fetch: || debian_program::PROMTOOL.fetch(),
}];

const HAPROXY: Tool =
    Tool { name: "haproxy", variable: "NEREID_TEST_HAPROXY", fetch: || debian_program::HAPROXY.fetch() };
const ENVOY: Tool =
    Tool { name: "envoy", variable: "NEREID_TEST_ENVOY", fetch: || program_of("envoy", "envoy") };

/// What spreads requests over replicas.
pub(crate) const FRONTS: &[Tool] = &[HAPROXY, ENVOY];

/// Clients of other languages, the proxies that many servers have in front, and tools that measure a server.
pub(crate) const OTHERS: &[Tool] = &[
    Tool {
        name: "clients in JavaScript",
        variable: "NEREID_TEST_NODE_PACKAGES",
        fetch: clients_in_javascript,
    },
    Tool { name: "a client in Rust", variable: "NEREID_TEST_RUST_CLIENT", fetch: rust_client::build },
    Tool { name: "nginx", variable: "NEREID_TEST_NGINX", fetch: || debian_program::NGINX.fetch() },
    HAPROXY,
    ENVOY,
    // The tools of the next line use its `perf_analyzer`.
    Tool { name: "NVIDIA's programs", variable: nvidia::VARIABLE, fetch: nvidia::fetch },
    Tool {
        name: "GenAI-Perf and Model Analyzer",
        variable: "NEREID_TEST_MEASURING_TOOLS",
        fetch: || program_of("others", "python"),
    },
    Tool { name: "PyTriton", variable: "NEREID_TEST_PYTRITON", fetch: || program_of("pytriton", "python") },
    Tool {
        name: "KServe's library",
        variable: "NEREID_TEST_KSERVE",
        fetch: || program_of("kserve", "python"),
    },
];

/// An interpreter with Ray and its Serve, 550 MB.
pub(crate) const RAY: &[Tool] =
    &[Tool { name: "Ray", variable: "NEREID_TEST_RAY", fetch: || program_of("ray", "python") }];

/// An interpreter with the packages of the recipes that need large ones.
pub(crate) const RECIPES: &[Tool] =
    &[Tool { name: "packages of recipes", variable: "NEREID_TEST_RECIPES", fetch: recipes }];

/// An interpreter with PyTorch: that of the recipes, because PyTorch takes 4 GB.
pub(crate) const PYTORCH: &[Tool] =
    &[Tool { name: "PyTorch", variable: "NEREID_TEST_PYTORCH", fetch: || program_of("recipes", "python") }];

/// An interpreter with Helm as a library, and with the schemas of Kubernetes.
pub(crate) const CHART: &[Tool] =
    &[Tool { name: "Helm", variable: "NEREID_TEST_HELM", fetch: || program_of("chart", "python") }];

/// Fetches what is not there yet, and returns the variable and the path of each tool.
///
/// # Errors
/// A tool cannot be had; the error names all that cannot.
pub(crate) fn fetch(tools: &[Tool]) -> Result<Vec<(&'static str, PathBuf)>> {
    // Steps that run beside each other share tools.
    let _alone = lock(&workspace::target().join("tools.lock"))?;
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for tool in tools {
        match (tool.fetch)() {
            Ok(path) => found.push((tool.variable, path)),
            Err(error) => missing.push(format!("{} cannot be had: {error:#}", tool.name)),
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(found)
}

/// moto in an environment of its own: its dependencies are many.
fn moto() -> Result<PathBuf> {
    program_of("stores", "moto_server")
}

/// The interpreter, in an environment of its own. The recipes in JavaScript also need node.
fn recipes() -> Result<PathBuf> {
    process::require("node", "nodejs")?;
    program_of("recipes", "python")
}

/// The packages that node finds.
fn clients_in_javascript() -> Result<PathBuf> {
    process::require("node", "nodejs")?;
    npm_package::CLIENTS.install()
}

/// A program of the environment with the packages of a group of tests.
fn program_of(group: &str, program: &str) -> Result<PathBuf> {
    let environment = python::PythonEnvironment::of(&format!("integrations/{group}"));
    environment.install(&format!("tests/integrations/{group}.txt"))?;
    let program = environment.program(program);
    ensure!(program.is_file(), "there is no {}", program.display());
    Ok(program)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn all_missing_tools_are_named() {
        const TOOLS: &[Tool] = &[
            Tool { name: "one", variable: "ONE", fetch: || bail!("no network") },
            Tool { name: "two", variable: "TWO", fetch: || Ok("here".into()) },
            Tool { name: "three", variable: "THREE", fetch: || bail!("no package") },
        ];
        let error = fetch(TOOLS).unwrap_err().to_string();
        assert_eq!(error, "one cannot be had: no network\nthree cannot be had: no package");
        assert_eq!(fetch(&TOOLS[1..2]).unwrap(), [("TWO", "here".into())]);
    }
}

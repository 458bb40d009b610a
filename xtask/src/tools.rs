//! What tests need and a machine may lack: libraries, programs and packages. All are fetched by name, below `target`.
//!
//! What cannot be had fails the step that fetches it. So no test is left out in silence.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::npm_package::NpmPackage;
use crate::workspace::{self, cargo};
use crate::{allocators, debian_program, npm_package, plugins, process, python, runtime_library};

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

/// Servers that stand for object stores: moto for S3, azurite for Azure.
pub(crate) const STORES: &[Tool] = &[
    Tool { name: "moto", variable: "NEREID_TEST_MOTO", fetch: moto },
    Tool { name: "azurite", variable: "NEREID_TEST_AZURITE", fetch: || AZURITE.install() },
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

const AZURITE: NpmPackage =
    NpmPackage { name: "azurite", version: "3.35.0", file: "node_modules/.bin/azurite-blob" };

/// Fetches what is not there yet, and returns the variable and the path of each tool.
///
/// # Errors
/// A tool cannot be had; the error names all that cannot.
pub(crate) fn fetch(tools: &[Tool]) -> Result<Vec<(&'static str, PathBuf)>> {
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
    let environment = python::PythonEnvironment::of("integrations/stores");
    environment.install("tests/integrations/stores.txt")?;
    let program = environment.program("moto_server");
    ensure!(program.is_file(), "there is no {}", program.display());
    Ok(program)
}

/// A command of cargo that is a program of its own, with the version that is installed if there is none.
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
}

/// The runner of Rust tests, which has a limit for each.
pub(crate) const NEXTEST: CargoTool = CargoTool { name: "nextest", version: "0.9.143" };
/// It checks the dependencies.
pub(crate) const DENY: CargoTool = CargoTool { name: "deny", version: "0.20.2" };

impl CargoTool {
    /// `cargo NAME` with these arguments.
    ///
    /// # Errors
    /// It is not there, and crates.io does not have it for this compiler.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let arguments = [&[self.name], arguments].concat();
        if workspace::has_cargo_command(self.name) {
            return Ok(cargo(&arguments));
        }
        let folder = workspace::target().join("tools");
        if !folder.join("bin").join(format!("cargo-{}", self.name)).is_file() {
            let package = format!("cargo-{}", self.name);
            println!("{package} is not installed: building version {} in {}", self.version, folder.display());
            let mut install = cargo(&["install", "--locked", "--version", self.version, &package, "--root"]);
            process::run(install.arg(&folder)).with_context(|| format!("{package} cannot be had"))?;
        }
        let mut command = cargo(&arguments);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path)))?;
        command.env("PATH", path);
        Ok(command)
    }
}

/// Fails unless a program of the system is there. It belongs to a package that a user must install.
///
/// # Errors
/// The program cannot be started. The error names the package of Debian.
pub(crate) fn require(program: &str, package: &str) -> Result<()> {
    if !process::starts(program) {
        bail!("{program} is not installed (on Debian: apt-get install {package})");
    }
    Ok(())
}

/// Fetches everything and prints the variables.
///
/// # Errors
/// As [`fetch`].
pub(crate) fn set_up(all: bool) -> Result<()> {
    python::install("tests/requirements.txt")?;
    let mut tools = vec![OF_TESTS];
    if all {
        tools.extend([PLUGINS, STORES, BROWSER, MONITORING]);
    }
    for group in tools {
        for (variable, path) in fetch(group)? {
            println!("{variable}={}", path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require("no-such-program", "no-such-package").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("apt-get install no-such-package"));
        require("cat", "coreutils").unwrap();
    }
}

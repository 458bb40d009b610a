//! Environments of Python: `target/venv`, which tests, demo and benchmarks share, and those of single groups of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::files::lock;
use crate::{process, workspace};

/// What installs packages; tests/requirements.txt has the same one.
const UV: &str = "uv==0.13.9";

/// A virtual environment, which may not exist yet.
pub(crate) struct PythonEnvironment {
    folder: PathBuf,
}

impl PythonEnvironment {
    /// The environment of a place below `target`.
    pub(crate) fn of(place: &str) -> PythonEnvironment {
        PythonEnvironment { folder: workspace::target().join(place).join("venv") }
    }

    /// The one that tests, demo and benchmarks share.
    fn shared() -> PythonEnvironment {
        PythonEnvironment { folder: workspace::target().join("venv") }
    }

    /// A program of the environment.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Makes the environment unless it exists.
    ///
    /// # Errors
    /// There is no Python 3 with `venv`.
    fn make(&self) -> Result<()> {
        if process::starts(self.program("python")) {
            return Ok(());
        }
        if !process::starts("python3") {
            bail!("python3 is needed for this, with its module venv");
        }
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.folder);
        process::run(&mut make).with_context(|| {
            format!("making {} (on Debian: apt-get install python3-venv)", self.folder.display())
        })
    }

    /// Makes the environment and installs a requirements file of the repository, unless both were done before.
    ///
    /// # Errors
    /// There is no Python, or the packages cannot be installed.
    pub(crate) fn install(&self, requirements: &str) -> Result<()> {
        let wanted = fs::read_to_string(workspace::root().join(requirements))
            .with_context(|| format!("cannot read {requirements}"))?;
        // Steps that run beside each other share environments.
        let _alone = lock(&self.folder.with_added_extension("lock"))?;
        self.make()?;
        // The marker is in the environment, so that it is deleted together with it.
        let stamp = self.folder.join(requirements.replace('/', "-"));
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        self.install_with_uv(requirements)?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
    }

    /// pip takes several times as long, and much of the processors.
    fn install_with_uv(&self, requirements: &str) -> Result<()> {
        let uv = self.program("uv");
        if !process::starts(&uv) {
            let mut pip = Command::new(self.program("python"));
            pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet", UV]);
            process::run(&mut pip)?;
        }
        let mut install = Command::new(uv);
        install.args(["pip", "install", "--quiet", "--no-cache", "--native-tls", "--compile-bytecode"]);
        install.arg("--python").arg(self.program("python")).arg("--requirement").arg(requirements);
        // uv does not know the variable of pip.
        if let Some(index) = std::env::var_os("PIP_INDEX_URL") {
            install.arg("--default-index").arg(index);
        }
        process::run(install.current_dir(workspace::root()))
    }
}

/// The interpreter of the shared environment, which must exist, started in the root.
pub(crate) fn command() -> Command {
    let mut command = Command::new(interpreter());
    // Client libraries print warnings about packages that the tests do not use.
    command.current_dir(workspace::root()).env("PYTHONWARNINGS", "ignore").env("PYTHONUNBUFFERED", "1");
    command
}

/// Makes the shared environment unless it exists.
///
/// # Errors
/// As [`PythonEnvironment::make`].
pub(crate) fn make() -> Result<()> {
    PythonEnvironment::shared().make()
}

/// As [`PythonEnvironment::install`], into the shared environment.
///
/// # Errors
/// As [`PythonEnvironment::install`].
pub(crate) fn install(requirements: &str) -> Result<()> {
    PythonEnvironment::shared().install(requirements)
}

/// The interpreter of the shared environment, which may not exist yet.
pub(crate) fn interpreter() -> PathBuf {
    PythonEnvironment::shared().program("python")
}

/// Downloads the wheel of a package of PyPI into a folder, which must exist.
///
/// # Errors
/// There is no Python, PyPI cannot be reached, or it has no wheel for this machine and this version of Python.
pub(crate) fn download_wheel(package: &str, folder: &Path) -> Result<()> {
    make()?;
    let mut pip = command();
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    process::run(pip.arg("--dest").arg(folder).arg(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_install_with_the_same_uv_as_these_commands() {
        let requirements = fs::read_to_string(workspace::root().join("tests/requirements.txt")).unwrap();
        assert!(requirements.lines().any(|line| line == UV), "{UV} is not in the requirements of the tests");
    }
}

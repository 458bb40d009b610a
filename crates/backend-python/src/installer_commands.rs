//! The commands that make an environment: those of uv, or else of the modules `venv` and `pip`.
use std::{path::Path, process::Command};

/// Writes the commands for one environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Installer<'a> {
    pub(crate) uv: Option<&'a Path>,
    /// The interpreter that the environment is made with.
    pub(crate) base: &'a str,
    /// The folder of the environment.
    pub(crate) folder: &'a Path,
    /// Where packages come from, unless the variables of `pip` and `uv` say so.
    pub(crate) index_url: Option<&'a str>,
    /// No package is built, because that runs code of the package.
    pub(crate) only_wheels: bool,
}

impl Installer<'_> {
    /// Makes the environment of the project in a folder, by its `uv.lock`.
    ///
    /// # Errors
    /// There is no uv.
    pub(crate) fn sync(&self, project: &Path) -> Result<Command, String> {
        let mut sync = Command::new(self.needed_uv()?);
        let flags =
            ["sync", "--frozen", "--no-dev", "--no-install-project", "--python", self.base, "--project"];
        sync.args(flags).arg(project).env("UV_PROJECT_ENVIRONMENT", self.folder);
        self.choose_packages(&mut sync);
        Ok(sync)
    }

    /// Writes the packages of the project in a folder as requirements to a file. Needs no network.
    ///
    /// # Errors
    /// There is no uv.
    pub(crate) fn export(&self, project: &Path, file: &Path) -> Result<Command, String> {
        let mut export = Command::new(self.needed_uv()?);
        export.args([
            "export",
            "--quiet",
            "--offline",
            "--frozen",
            "--no-config",
            "--no-dev",
            "--no-emit-workspace",
        ]);
        export.args(["--no-header", "--no-annotate", "--python", self.base, "--project"]).arg(project);
        export.arg("--output-file").arg(file);
        Ok(export)
    }

    /// Makes an environment, and installs the requirements in a file.
    pub(crate) fn install(&self, requirements: &Path) -> [Command; 2] {
        let python = self.folder.join("bin/python");
        let [make, mut install] = match self.uv {
            Some(uv) => {
                let mut make = Command::new(uv);
                make.args(["venv", "--quiet", "--allow-existing", "--python", self.base]).arg(self.folder);
                let mut install = Command::new(uv);
                install.args(["pip", "install", "--python"]).arg(&python);
                [make, install]
            }
            None => {
                let mut make = Command::new(self.base);
                make.args(["-m", "venv"]).arg(self.folder);
                let mut install = Command::new(&python);
                install.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]);
                [make, install]
            }
        };
        install.arg("-r").arg(requirements);
        self.choose_packages(&mut install);
        [make, install]
    }

    fn needed_uv(&self) -> Result<&Path, String> {
        self.uv.ok_or_else(|| "uv.lock needs the program uv, which is not in PATH".to_owned())
    }

    fn choose_packages(&self, install: &mut Command) {
        if let Some(url) = self.index_url {
            install.args(["--index-url", url]);
        }
        match (self.only_wheels, self.uv) {
            (true, Some(_)) => install.arg("--no-build"),
            (true, None) => install.args(["--only-binary", ":all:"]),
            (false, _) => install,
        };
    }
}

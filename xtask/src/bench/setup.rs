//! What the parts measure with: the models, the server, and ONNX Runtime.

use std::path::PathBuf;

use anyhow::Result;

use super::options::BenchOptions;
use super::results;
use crate::console::heading;
use crate::tools::runtime_library;
use crate::{files, process, python};

/// What a part measures with.
#[derive(Clone)]
pub(super) struct BenchSetup {
    pub(super) options: BenchOptions,
    /// The folder with the repositories `ours` and `reference`, and with the logs of the servers.
    pub(super) folder: PathBuf,
    /// The build of Nereid that is measured.
    pub(super) server: PathBuf,
    /// The library of ONNX Runtime.
    pub(super) library: PathBuf,
}

impl BenchSetup {
    /// Builds the server, and makes the models that most parts use.
    ///
    /// # Errors
    /// The server cannot be built, or something cannot be downloaded.
    pub(super) fn prepare(options: &BenchOptions) -> Result<BenchSetup> {
        heading("preparing");
        let (folder, server) = (results::folder()?, options.server()?);
        python::install("demo/requirements.txt")?;
        process::run(python::command().arg("bench/models.py").arg(&folder))?;
        Ok(BenchSetup { options: options.clone(), folder, server, library: runtime_library::fetch()? })
    }

    /// The same with a folder of its own, whose models a program in Python makes.
    pub(super) fn with_models(&self, folder: &str, program: &str) -> Result<BenchSetup> {
        let folder = self.folder.join(folder);
        files::make_folder(&folder)?;
        process::run(python::command().arg(program).arg(&folder))?;
        Ok(BenchSetup { folder, ..self.clone() })
    }
}

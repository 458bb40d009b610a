//! A loop over ONNX Runtime's C interface without a server: the most that the compute-bound model can reach.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::bare_programs;
use super::setup::BenchSetup;
use crate::process;
use crate::tools::runtime_library;

/// The program, and the model that it runs.
#[derive(Clone)]
pub(super) struct BareLoopProgram {
    binary: PathBuf,
    model: PathBuf,
    library: PathBuf,
}

impl BareLoopProgram {
    pub(super) fn build(setup: &BenchSetup) -> Result<BareLoopProgram> {
        Ok(BareLoopProgram {
            binary: bare_programs::build("backend-onnx", "bare_loop")?,
            model: setup.folder.join("ours/conv/1/model.onnx"),
            library: setup.library.clone(),
        })
    }

    /// The same with another model.
    pub(super) fn with_model(&self, model: PathBuf) -> BareLoopProgram {
        BareLoopProgram { model, ..self.clone() }
    }

    /// Measures for that many seconds.
    pub(super) fn inferences_per_second(&self, batch: u32, seconds: u32) -> Result<f64> {
        let mut command = Command::new(&self.binary);
        command.arg("--model").arg(&self.model).env(runtime_library::VARIABLE, &self.library);
        // One thread, as the only instance of the server has.
        command.args(["--batch", &batch.to_string(), "--seconds", &seconds.to_string(), "--threads", "1"]);
        bare_programs::figure(&process::output(&mut command)?, "inferences_per_second")
    }
}

/// The batch size with the highest rate. A larger batch must be faster to be taken.
pub(super) fn fastest(rates: Vec<(u32, f64)>) -> Result<(u32, f64)> {
    let faster = |best: (u32, f64), next: (u32, f64)| if next.1 > best.1 { next } else { best };
    rates.into_iter().reduce(faster).context("there are batch sizes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_with_the_highest_rate_is_taken_and_the_smaller_one_if_none_is_faster() {
        assert_eq!(fastest(vec![(1, 10.0), (2, 30.0), (4, 30.0), (8, 20.0)]).unwrap(), (2, 30.0));
        assert!(fastest(Vec::new()).is_err());
    }
}

//! The programs that are measured: Nereid, Triton, a bare loop over ONNX Runtime.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::plan::{BenchProtocol, BenchRow};
use super::table::Figures;
use crate::c_compiler;
use crate::process::{self, ServerProcess};
use crate::tools::runtime_library;
use crate::workspace::{self, cargo};

/// A contender that can be measured for a row. Its server runs as long as it lives.
pub(crate) enum Contender {
    Server {
        name: &'static str,
        server: ServerProcess,
        http_port: u16,
        grpc_port: u16,
        metrics_port: u16,
        /// The certificate of its ports, if they are encrypted.
        certificate: Option<PathBuf>,
        /// The binary with the load generator, the same for all contenders.
        perf: PathBuf,
    },
    Bare {
        bare: Bare,
        batch: u32,
    },
}

impl Contender {
    /// Starts Nereid with the repository `FOLDER/ours`. `reloaded`: only these models, which can be loaded again; empty:
    /// all models.
    pub(crate) fn ours(binary: &Path, folder: &Path, library: &Path, reloaded: &[&str]) -> Result<Contender> {
        Contender::ours_with("ours", binary, folder, library, &explicit(reloaded))
    }

    /// As [`Contender::ours`], with another name and more options of the server.
    pub(crate) fn ours_with(
        name: &'static str,
        binary: &Path,
        folder: &Path,
        library: &Path,
        more: &[String],
    ) -> Result<Contender> {
        let mut command = Command::new(binary);
        command.env(runtime_library::VARIABLE, library);
        let backends = identity_backend(folder)?;
        c_compiler::compile_plugin("repeat", &backends.join("repeat/libtriton_repeat.so"), &["-O2"])?;
        command.arg(format!("--backend-directory={}", backends.display()));
        // So that a client that has stopped reading is ended while it is measured.
        command.arg("--max-unread-response-bytes=33554432").args(more);
        Contender::start(name, "ours", command, folder, binary)
    }

    /// The same contender, whose ports are encrypted and have this certificate.
    ///
    /// # Errors
    /// The contender has no ports.
    pub(crate) fn encrypted_by(self, certificate: PathBuf) -> Result<Contender> {
        match self {
            Contender::Server { name, server, http_port, grpc_port, metrics_port, perf, .. } => {
                let certificate = Some(certificate);
                Ok(Contender::Server { name, server, http_port, grpc_port, metrics_port, certificate, perf })
            }
            Contender::Bare { .. } => bail!("no server to encrypt"),
        }
    }

    /// Starts the earlier build of Nereid at `binary` with the repository `FOLDER/ours`. `perf` has the load generator.
    pub(crate) fn before(binary: &Path, perf: &Path, folder: &Path, library: &Path) -> Result<Contender> {
        let mut command = Command::new(binary);
        command.env(runtime_library::VARIABLE, library);
        command.arg(format!("--backend-directory={}", identity_backend(folder)?.display()));
        Contender::start("before", "ours", command, folder, perf)
    }

    /// Starts Triton with the repository `FOLDER/reference` and the identity backend of this repository.
    /// `reloaded` as for Nereid.
    ///
    /// # Errors
    /// `packages` is not a site-packages folder with the wheel, or there is no C compiler.
    pub(crate) fn reference(
        packages: &Path,
        perf: &Path,
        folder: &Path,
        reloaded: &[&str],
    ) -> Result<Contender> {
        Contender::reference_with("reference", packages, perf, folder, &explicit(reloaded))
    }

    /// As [`Contender::reference`], with another name and more options of the server.
    ///
    /// # Errors
    /// As [`Contender::reference`].
    pub(crate) fn reference_with(
        name: &'static str,
        packages: &Path,
        perf: &Path,
        folder: &Path,
        more: &[String],
    ) -> Result<Contender> {
        let installed = packages.join("pytriton/tritonserver");
        let binary = installed.join("bin/tritonserver");
        ensure!(binary.exists(), "--reference: there is no {}", binary.display());
        let backends = reference_backends(packages, folder)?;

        let mut command = Command::new(binary);
        command.arg(format!("--backend-directory={}", backends.display()));
        command.env("LD_LIBRARY_PATH", packages.join("nvidia_pytriton.libs"));
        // Its Python models must find the installed packages: site-packages is in PREFIX/lib/python3.N.
        let prefix = packages.ancestors().nth(3).context("--reference: not a site-packages folder")?;
        let mut path = OsString::from(prefix.join("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path);
        command.arg(format!("--cache-directory={}", installed.join("caches").display())).args(more);
        Contender::start(name, "reference", command, folder, perf)
    }

    fn start(
        name: &'static str,
        repository: &str,
        mut command: Command,
        folder: &Path,
        perf: &Path,
    ) -> Result<Contender> {
        let [http_port, grpc_port, metrics_port] = crate::loopback::free_ports()?;
        command.arg(format!("--model-repository={}", folder.join(repository).display()));
        command.arg(format!("--http-port={http_port}")).arg(format!("--grpc-port={grpc_port}"));
        command.arg(format!("--metrics-port={metrics_port}"));
        let server = ServerProcess::start(&mut command, folder.join(format!("{name}.log")), http_port)?;
        let perf = perf.to_owned();
        Ok(Contender::Server { name, server, http_port, grpc_port, metrics_port, certificate: None, perf })
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Contender::Server { name, .. } => (*name).to_owned(),
            Contender::Bare { batch, .. } => format!("bare b{batch}"),
        }
    }

    /// Makes one measurement of that many seconds.
    pub(crate) fn measure(&self, row: &BenchRow, seconds: u32) -> Result<Figures> {
        self.measure_with(row, seconds, &[])
    }

    /// The same, with more options of the load generator.
    pub(crate) fn measure_with(&self, row: &BenchRow, seconds: u32, more: &[String]) -> Result<Figures> {
        match self {
            Contender::Bare { bare, batch } => {
                Ok(Figures::of_bare_loop(bare.inferences_per_second(*batch, seconds)?))
            }
            Contender::Server { .. } => {
                let mut options = vec!["--warm-up=1".to_owned(), format!("--duration={seconds}")];
                if row.model == "tiny_sequence" {
                    options.push("--sequences".into());
                }
                options.push(match row.rate {
                    Some(rate) => format!("--request-rate={rate}"),
                    None => format!("--concurrency={}", row.callers),
                });
                options.extend_from_slice(more);
                self.generate_load(row.model, row.protocol, &options)
            }
        }
    }

    /// Runs the load generator with these options, besides those that say whom it asks for what.
    pub(crate) fn generate_load(
        &self,
        model: &str,
        protocol: BenchProtocol,
        options: &[String],
    ) -> Result<Figures> {
        let Contender::Server { server, http_port, grpc_port, certificate, perf, .. } = self else {
            bail!("no server to measure")
        };
        let port = if protocol == BenchProtocol::Grpc { grpc_port } else { http_port };
        let csv = workspace::target().join("bench/row.csv");
        let mut command = Command::new(perf);
        command.args(["perf", "--model", model]).args(protocol.options());
        if !options.iter().any(|option| option.starts_with("--input-data")) {
            command.arg("--input-data=random");
        }
        match certificate {
            None => command.arg(format!("--url=127.0.0.1:{port}")),
            Some(certificate) => command
                .arg(format!("--url=https://localhost:{port}"))
                .arg("--ca-certificates")
                .arg(certificate),
        };
        command.args(options);
        command.arg(format!("--server-pid={}", server.pid())).arg("--csv").arg(&csv);
        process::output(&mut command)?;
        Figures::from_csv(&fs::read_to_string(&csv)?)
    }
}

/// The options of a server that loads these models, and loads them again when told to. None if there are no models.
pub(crate) fn explicit(models: &[&str]) -> Vec<String> {
    let mode = (!models.is_empty()).then(|| "--model-control-mode=explicit".to_owned());
    mode.into_iter().chain(models.iter().map(|model| format!("--load-model={model}"))).collect()
}

/// Makes the backends folder of Triton: its Python backend with the stub for the interpreter that it will find, and the
/// C identity backend of this repository.
fn reference_backends(packages: &Path, folder: &Path) -> Result<PathBuf> {
    let installed = packages.join("pytriton/tritonserver");
    let interpreter = packages.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let version = interpreter.and_then(|name| name.strip_prefix("python"));
    let version = version.context("--reference: site-packages must lie in a folder named python3.N")?;

    let backends = identity_backend(folder)?;
    // Another contender may run from the files that are there.
    let copy = || {
        let mut copy = Command::new("cp");
        copy.args(["-r", "--remove-destination"]);
        copy
    };
    process::run(copy().arg(installed.join("backends/python")).arg(&backends))?;
    let stub = installed.join("python_backend_stubs").join(version).join("triton_python_backend_stub");
    process::run(copy().arg(stub).arg(backends.join("python")))?;
    Ok(backends)
}

/// Makes a backends folder with the C identity backend of this repository.
fn identity_backend(folder: &Path) -> Result<PathBuf> {
    let backends = folder.join("backends");
    let identity = backends.join("identity");
    fs::create_dir_all(&identity).with_context(|| format!("cannot make {}", identity.display()))?;
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(identity.join("libtriton_identity.so"));
    process::run(compile.arg(workspace::root().join("bench/reference_backend.c")))?;
    Ok(backends)
}

/// A loop over ONNX Runtime's C interface without a server: the most that the compute-bound model can reach.
#[derive(Clone)]
pub(crate) struct Bare {
    binary: PathBuf,
    model: PathBuf,
    library: PathBuf,
}

impl Bare {
    pub(crate) fn build(folder: &Path, library: &Path) -> Result<Bare> {
        let package = ["build", "--release", "--package", "nereid-backend-onnx", "--example", "bare_loop"];
        process::run(&mut cargo(&package))?;
        Ok(Bare {
            binary: workspace::target().join("release/examples/bare_loop"),
            model: folder.join("ours/conv/1/model.onnx"),
            library: library.to_owned(),
        })
    }

    /// The same with another model.
    pub(crate) fn with_model(&self, model: PathBuf) -> Bare {
        Bare { model, ..self.clone() }
    }

    pub(crate) fn inferences_per_second(&self, batch: u32, seconds: u32) -> Result<f64> {
        let mut command = Command::new(&self.binary);
        command.arg("--model").arg(&self.model).env(runtime_library::VARIABLE, &self.library);
        // One thread, as the only instance of the server has.
        command.args(["--batch", &batch.to_string(), "--seconds", &seconds.to_string(), "--threads", "1"]);
        let printed = process::output(&mut command)?;
        let figure = printed.split_whitespace().find_map(|word| word.strip_prefix("inferences_per_second="));
        figure.and_then(|text| text.parse().ok()).with_context(|| format!("the bare loop printed: {printed}"))
    }
}

//! Servers that are measured: Nereid and Triton, each with the load generator that asks it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::backends::{identity_backend, reference_backends};
use super::bare_programs;
use super::results;
use super::row::{BenchProtocol, BenchRow};
use super::setup::BenchSetup;
use super::table::Figures;
use crate::process::{self, ServerProcess};
use crate::tools::runtime_library;
use crate::{c_compiler, loopback};

/// A server that runs as long as this lives.
pub(super) struct ServerContender {
    pub(super) name: &'static str,
    pub(super) server: ServerProcess,
    pub(super) http_port: u16,
    pub(super) grpc_port: u16,
    pub(super) metrics_port: u16,
    /// The certificate of its ports, if they are encrypted.
    certificate: Option<PathBuf>,
    /// The binary with the load generator, the same for all contenders.
    perf: PathBuf,
}

impl ServerContender {
    /// Starts Nereid with the repository `ours`, and with more options.
    pub(super) fn ours(setup: &BenchSetup, name: &'static str, more: &[String]) -> Result<ServerContender> {
        ServerContender::ours_by(setup, name, more, Command::new(&setup.server))
    }

    /// The same on one processor.
    pub(super) fn ours_on_one_processor(setup: &BenchSetup, name: &'static str) -> Result<ServerContender> {
        // It becomes the server.
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0"]).arg(&setup.server);
        ServerContender::ours_by(setup, name, &[], command)
    }

    fn ours_by(
        setup: &BenchSetup,
        name: &'static str,
        more: &[String],
        mut command: Command,
    ) -> Result<ServerContender> {
        command.env(runtime_library::VARIABLE, &setup.library);
        let backends = identity_backend(&setup.folder)?;
        c_compiler::compile_plugin("repeat", &backends.join("repeat/libtriton_repeat.so"), &["-O2"])?;
        command.arg(format!("--backend-directory={}", backends.display()));
        // So that a client that has stopped reading is ended while it is measured.
        command.arg("--max-unread-response-bytes=33554432").args(more);
        ServerContender::start(setup, name, "ours", command)
    }

    /// The same contender, whose ports are encrypted and have this certificate.
    pub(super) fn encrypted_by(self, certificate: PathBuf) -> ServerContender {
        ServerContender { certificate: Some(certificate), ..self }
    }

    /// Starts bare hyper, which gives the answers of another contender again, if the limit is to be measured.
    pub(super) fn limit(setup: &BenchSetup, of: &ServerContender) -> Result<Option<ServerContender>> {
        if !setup.options.limit {
            return Ok(None);
        }
        let mut command = Command::new(bare_programs::build("client", "bare_protocols")?);
        let [http_port, grpc_port] = loopback::free_ports()?;
        command.args([http_port, grpc_port, of.http_port, of.grpc_port].map(|port| port.to_string()));
        let server = ServerProcess::start(&mut command, setup.folder.join("limit.log"), http_port)?;
        let (certificate, perf) = (None, setup.server.clone());
        Ok(Some(ServerContender {
            name: "limit",
            server,
            http_port,
            grpc_port,
            metrics_port: of.metrics_port,
            certificate,
            perf,
        }))
    }

    /// Starts the earlier build of Nereid with the repository `ours`, if one was named.
    pub(super) fn before(setup: &BenchSetup) -> Result<Option<ServerContender>> {
        let Some(binary) = &setup.options.before else { return Ok(None) };
        let mut command = Command::new(binary);
        command.env(runtime_library::VARIABLE, &setup.library);
        command.arg(format!("--backend-directory={}", identity_backend(&setup.folder)?.display()));
        ServerContender::start(setup, "before", "ours", command).map(Some)
    }

    /// Starts Triton with the repository `reference`, the identity backend of this repository and more options, if it was
    /// named.
    ///
    /// # Errors
    /// What was named is not a site-packages folder with the wheel, or there is no C compiler.
    pub(super) fn reference(
        setup: &BenchSetup,
        name: &'static str,
        more: &[String],
    ) -> Result<Option<ServerContender>> {
        let Some(packages) = &setup.options.reference else { return Ok(None) };
        let installed = packages.join("pytriton/tritonserver");
        let binary = installed.join("bin/tritonserver");
        ensure!(binary.exists(), "--reference: there is no {}", binary.display());
        let backends = reference_backends(packages, &setup.folder)?;

        let mut command = Command::new(binary);
        command.arg(format!("--backend-directory={}", backends.display()));
        command.env("LD_LIBRARY_PATH", packages.join("nvidia_pytriton.libs"));
        // Its Python models must find the installed packages.
        let mut path = OsString::from(python_prefix(packages)?.join("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path);
        command.arg(format!("--cache-directory={}", installed.join("caches").display())).args(more);
        ServerContender::start(setup, name, "reference", command).map(Some)
    }

    fn start(
        setup: &BenchSetup,
        name: &'static str,
        repository: &str,
        mut command: Command,
    ) -> Result<ServerContender> {
        let [http_port, grpc_port, metrics_port] = loopback::free_ports()?;
        command.arg(format!("--model-repository={}", setup.folder.join(repository).display()));
        command.arg(format!("--http-port={http_port}")).arg(format!("--grpc-port={grpc_port}"));
        command.arg(format!("--metrics-port={metrics_port}"));
        let log = setup.folder.join(format!("{name}.log"));
        let server = ServerProcess::start(&mut command, log, http_port)?;
        let perf = setup.server.clone();
        Ok(ServerContender { name, server, http_port, grpc_port, metrics_port, certificate: None, perf })
    }

    /// Makes one measurement of that many seconds.
    pub(super) fn measure(&self, row: &BenchRow, seconds: u32) -> Result<Figures> {
        self.measure_with(row, seconds, &[])
    }

    /// The same, with more options of the load generator.
    pub(super) fn measure_with(&self, row: &BenchRow, seconds: u32, more: &[String]) -> Result<Figures> {
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

    /// Runs the load generator with these options, besides those that say whom it asks for what.
    pub(super) fn generate_load(
        &self,
        model: &str,
        protocol: BenchProtocol,
        options: &[String],
    ) -> Result<Figures> {
        let port = if protocol == BenchProtocol::Grpc { self.grpc_port } else { self.http_port };
        let mut command = self.load_generator();
        command.args(["--model", model]).args(protocol.options());
        if !options.iter().any(|option| option.starts_with("--input-data")) {
            command.arg("--input-data=random");
        }
        match &self.certificate {
            None => command.arg(format!("--url=127.0.0.1:{port}")),
            Some(certificate) => command
                .arg(format!("--url=https://localhost:{port}"))
                .arg("--ca-certificates")
                .arg(certificate),
        };
        Figures::from_csv(&self.csv_of(command.args(options))?)
    }

    /// The load generator without options.
    pub(super) fn load_generator(&self) -> Command {
        let mut command = Command::new(&self.perf);
        command.arg("perf");
        command
    }

    /// Runs the load generator to its end, and returns the figures that it writes.
    pub(super) fn csv_of(&self, command: &mut Command) -> Result<String> {
        let csv = results::folder()?.join("row.csv");
        process::output(command.arg(format!("--server-pid={}", self.server.pid())).arg("--csv").arg(&csv))?;
        fs::read_to_string(&csv).with_context(|| format!("cannot read {}", csv.display()))
    }
}

/// The folder of the Python whose site-packages folder this is: `PREFIX/lib/python3.N/site-packages`.
pub(super) fn python_prefix(packages: &Path) -> Result<&Path> {
    packages.ancestors().nth(3).context("--reference: not a site-packages folder")
}

/// The options of a server that loads these models, and loads them again when told to.
pub(super) fn explicit(models: &[&str]) -> Vec<String> {
    let mode = ["--model-control-mode=explicit".to_owned()];
    mode.into_iter().chain(models.iter().map(|model| format!("--load-model={model}"))).collect()
}

//! `cargo xtask demo`: from a fresh clone to a server with a classifier, the same in Python, an ensemble that tells the
//! shapes in pictures, and a text generator, and requests to all of them.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io::Write, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::Arguments;
use crate::build::Build;
use crate::process::{self, ServerProcess};
use crate::tools::runtime_library;
use crate::{files, loopback, python, workspace};

/// How long the steps may take on a busy machine.
const LIMIT_OF_BUILD: Duration = Duration::from_secs(30 * 60);
const LIMIT_OF_TRAINING: Duration = Duration::from_secs(5 * 60);
const LIMIT_OF_REQUESTS: Duration = Duration::from_secs(2 * 60);

/// The models, and the scripts that make them.
const TRAININGS: [(&str, &str); 5] = [
    ("training a classifier of handwritten digits", "demo/train.py"),
    (
        "training a pipeline of scikit-learn for the same digits, as a model in Python",
        "demo/train_pipeline.py",
    ),
    ("training a forest of scikit-learn for the same digits", "demo/train_forest.py"),
    (
        "training a network that tells shapes apart, behind a model that decodes pictures",
        "demo/train_shapes.py",
    ),
    ("training a network that writes like this repository's documents", "demo/train_text.py"),
];

/// The options of the demo.
pub(crate) struct DemoOptions {
    /// HTTP listens here, gRPC and metrics on the next two.
    pub(crate) port_base: u16,
    /// Whether to end after the result instead of serving further.
    pub(crate) once: bool,
    pub(crate) build: Build,
}

impl DemoOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<DemoOptions> {
        let options = DemoOptions {
            port_base: arguments.value("--port-base")?.unwrap_or(8000),
            once: arguments.flag("--once"),
            build: if arguments.flag("--dev") { Build::Dev } else { Build::Demo },
        };
        arguments.finish()?;
        Ok(options)
    }

    fn ports(&self) -> Result<[u16; 3]> {
        let last = self.port_base.checked_add(2).context("--port-base is too high")?;
        Ok([self.port_base, self.port_base + 1, last])
    }
}

/// Runs the demo. Serves until interrupted, unless the options say to end. Returns true if all digits were answered.
pub(crate) fn run(options: &DemoOptions) -> Result<bool> {
    let ports = options.ports()?;
    require_free(ports)?;
    let folder = folder();
    let models = folder.join("models");
    let (server, library) = prepare(options.build)?;
    let server = step("starting the server", || {
        let mut command = Command::new(&server);
        command
            .arg(format!("--model-repository={}", models.display()))
            .arg(format!("--backend-config=python,python-executable={}", python::interpreter().display()))
            .env(runtime_library::VARIABLE, &library);
        for (name, port) in ["http", "grpc", "metrics"].iter().zip(ports) {
            command.arg(format!("--{name}-address=127.0.0.1")).arg(format!("--{name}-port={port}"));
        }
        ServerProcess::start(&mut command, folder.join("server.log"), ports[0])
    })?;
    step("classifying digits it has not seen", || {
        let mut classify = python::command();
        classify.arg("demo/classify.py").arg(&folder).args([ports[0].to_string(), ports[1].to_string()]);
        process::run_within(&mut classify, LIMIT_OF_REQUESTS)
    })?;
    step("asking the forest and the pipeline in Python for the same digits", || {
        let mut compare = python::command();
        compare.arg("demo/compare.py").arg(&folder).arg(ports[1].to_string());
        process::run_within(&mut compare, LIMIT_OF_REQUESTS)
    })?;
    step("telling the shapes in PNG files, by the ensemble of both models", || {
        let mut tell = python::command();
        tell.arg("demo/tell_shapes.py").arg(&folder).arg(ports[0].to_string());
        process::run_within(&mut tell, LIMIT_OF_REQUESTS)
    })?;
    step("letting it write: a token per step, new requests joining at each", || {
        let mut generate = python::command();
        generate.arg("demo/generate.py").args([ports[0].to_string(), ports[1].to_string()]);
        process::run_within(&mut generate, LIMIT_OF_REQUESTS)
    })?;
    show_places(ports, &folder)?;
    if !options.once {
        println!("\nServing until Ctrl-C.");
        server.wait()?;
    }
    Ok(true)
}

/// Fails, with a way out, if a port is taken.
fn require_free(ports: [u16; 3]) -> Result<()> {
    for port in ports {
        if TcpListener::bind(("127.0.0.1", port)).is_err() {
            let other = loopback::free_port_base()?;
            bail!("port {port} is in use; other ports are free: cargo xtask demo --port-base {other}");
        }
    }
    Ok(())
}

/// Builds the server, downloads what it needs, and trains the models. Returns the paths of the server and of ONNX
/// Runtime.
///
/// # Errors
/// The server cannot be built, a download or a training fails.
pub(crate) fn prepare(build: Build) -> Result<(PathBuf, PathBuf)> {
    let folder = folder();
    files::make_folder(&folder)?;
    let programs = build_and_download(build)?;
    for (what, script) in TRAININGS {
        step(what, || process::run_within(python::command().arg(script).arg(&folder), LIMIT_OF_TRAINING))?;
    }
    Ok(programs)
}

/// Builds the server, and downloads beside that. Returns the paths of the server and of ONNX Runtime.
fn build_and_download(build: Build) -> Result<(PathBuf, PathBuf)> {
    thread::scope(|scope| {
        let downloads = scope.spawn(|| {
            python::install("demo/requirements.txt")?;
            runtime_library::fetch()
        });
        let what = "building the server, and downloading ONNX Runtime and Python packages into target";
        let server = step(what, || build.server_within(LIMIT_OF_BUILD))?;
        let library = step("waiting for the downloads", || {
            downloads.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        Ok((server, library))
    })
}

/// Where the demo is.
fn folder() -> PathBuf {
    workspace::target().join("demo")
}

/// Prints the beginning of a step and, if it took long, its time.
fn step<T>(name: &str, action: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("-- {name}");
    std::io::stdout().flush()?;
    let start = Instant::now();
    let result = action().with_context(|| name.to_owned())?;
    if start.elapsed().as_secs() >= 1 {
        println!("   done in {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(result)
}

fn show_places([http, grpc, metrics]: [u16; 3], folder: &Path) -> Result<()> {
    let (status, body) = loopback::http_get(metrics, "/metrics")?;
    ensure!(status == 200, "the metrics answer with {status}");
    println!("\nSome of its metrics:");
    for line in
        body.lines().filter(|line| line.starts_with("nv_inference_") && line.contains("\"digits\"")).take(6)
    {
        println!("   {line}");
    }
    println!("\nHTTP         http://127.0.0.1:{http}/v2/models/digits");
    println!("forest       http://127.0.0.1:{http}/v2/models/digits_forest");
    println!("in Python    http://127.0.0.1:{http}/v2/models/digits_pipeline");
    println!("ensemble     http://127.0.0.1:{http}/v2/models/shape_of_picture");
    println!("gRPC         127.0.0.1:{grpc}");
    println!("metrics      http://127.0.0.1:{metrics}/metrics");
    println!("statistics   http://127.0.0.1:{http}/v2/models/digits/stats");
    println!("repository   {}", folder.join("models").display());
    println!("log          {}", folder.join("server.log").display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<DemoOptions> {
        DemoOptions::parse(Arguments::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn three_ports_follow_each_other() {
        assert_eq!(parsed("").unwrap().ports().unwrap(), [8000, 8001, 8002]);
        assert_eq!(parsed("--port-base 9000 --once").unwrap().ports().unwrap(), [9000, 9001, 9002]);
        assert!(parsed("--port-base 65534").unwrap().ports().is_err());
        assert!(parsed("--port-base 65536").is_err());
    }

    #[test]
    fn a_taken_port_is_named_with_ports_that_are_free() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let held = TcpListener::bind(("127.0.0.1", taken)).unwrap();
        let error = require_free([taken; 3]).unwrap_err().to_string();
        assert!(error.contains(&format!("port {taken} is in use")), "{error}");
        let (_, base) = error.rsplit_once("--port-base ").unwrap();
        drop(held);
        require_free([base.parse().unwrap(); 3]).unwrap();
    }
}

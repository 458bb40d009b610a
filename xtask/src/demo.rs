//! `cargo xtask demo`: from a fresh clone to a server with a classifier, the same in Python, an ensemble that tells the
//! shapes in pictures, and a text generator, and requests to all of them.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use std::{fs, io::Write};

use anyhow::{Context, Result, ensure};

use crate::arguments::Arguments;
use crate::process::{self, ServerProcess};
use crate::workspace::{self, Build};
use crate::{python, runtime_library};

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
            build: if arguments.flag("--dev") { Build::Dev } else { Build::Release },
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
    for port in ports {
        let free = TcpListener::bind(("127.0.0.1", port)).is_ok();
        ensure!(free, "port {port} is in use: choose others with --port-base");
    }
    let folder = workspace::target().join("demo");
    let models = folder.join("models");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;

    let server = step("building the server", || options.build.server())?;
    step("installing Python packages into target/venv", || python::install("demo/requirements.txt"))?;
    let library = step("fetching ONNX Runtime", runtime_library::fetch)?;
    step("training a classifier of handwritten digits", || {
        process::run(python::command().arg("demo/train.py").arg(&folder))
    })?;
    step("training a pipeline of scikit-learn for the same digits, as a model in Python", || {
        process::run(python::command().arg("demo/train_pipeline.py").arg(&folder))
    })?;
    step("training a network that tells shapes apart, behind a model that decodes pictures", || {
        process::run(python::command().arg("demo/train_shapes.py").arg(&folder))
    })?;
    step("training a network that writes like this repository's documents", || {
        process::run(python::command().arg("demo/train_text.py").arg(&folder))
    })?;
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
        process::run(&mut classify)
    })?;
    step("asking the pipeline in Python for the same digits", || {
        let mut compare = python::command();
        compare.arg("demo/compare.py").arg(&folder).arg(ports[1].to_string());
        process::run(&mut compare)
    })?;
    step("telling the shapes in PNG files, by the ensemble of both models", || {
        let mut tell = python::command();
        tell.arg("demo/tell_shapes.py").arg(&folder).arg(ports[0].to_string());
        process::run(&mut tell)
    })?;
    step("letting it write: a token per step, new requests joining at each", || {
        let mut generate = python::command();
        generate.arg("demo/generate.py").args([ports[0].to_string(), ports[1].to_string()]);
        process::run(&mut generate)
    })?;
    show_places(ports, &folder)?;
    if !options.once {
        println!("\nServing until Ctrl-C.");
        server.wait()?;
    }
    Ok(true)
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
    let (status, body) = process::http_get(metrics, "/metrics")?;
    ensure!(status == 200, "the metrics answer with {status}");
    println!("\nSome of its metrics:");
    for line in
        body.lines().filter(|line| line.starts_with("nv_inference_") && line.contains("\"digits\"")).take(6)
    {
        println!("   {line}");
    }
    println!("\nHTTP         http://127.0.0.1:{http}/v2/models/digits");
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
}

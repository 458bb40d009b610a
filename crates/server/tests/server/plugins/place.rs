//! A repository, its compiled plug-ins, and the program that serves it.
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{
    Program, Repository,
    grpc::{self, framed},
    http::Connection,
    plugins::{Kind, Plugin},
    schema,
};
use tokio::runtime::Runtime;

/// The directories of models and plug-ins.
pub(crate) struct Place {
    plugins: TempDir,
    repository: Repository,
}

/// A running program that serves a [`Place`].
pub(crate) struct Running {
    pub(crate) program: Program,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
}

impl Place {
    /// A place without models, with the C plug-ins from these sources. Each plug-in has the name of its source.
    pub(crate) fn with(plugins: &[(Kind, &str)]) -> Self {
        let place = Self { plugins: tempfile::tempdir().unwrap(), repository: Repository::empty().unwrap() };
        for (kind, source) in plugins {
            let directory = place.plugins.path().join(source);
            fs::create_dir_all(&directory).unwrap();
            Plugin::new(*kind, source).build(&directory).unwrap();
        }
        place
    }

    /// Adds a model with this configuration.
    pub(crate) fn model(self, name: &str, config: &str) -> Self {
        self.repository.add(name, [("config.pbtxt", config)]).unwrap();
        self
    }

    /// The directory of a model's files.
    pub(crate) fn directory_of(&self, model: &str) -> PathBuf {
        self.repository.path().join(model)
    }

    /// A path in the directory of the plug-ins.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plugins.path().join(name)
    }

    /// Starts the program with these arguments, and with the arguments for the directories.
    pub(crate) fn program(&self, arguments: &[&str]) -> Program {
        let plugins = self.plugins.path().display();
        let mut all: Vec<_> =
            ["backend", "cache", "repoagent"].map(|kind| format!("--{kind}-directory={plugins}")).into();
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Program::start(Path::new(env!("CARGO_BIN_EXE_nereid")), self.repository.path(), &all).unwrap()
    }

    /// Starts the program as [`Place::program`], and waits until it serves.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Running {
        let program = self.program(arguments);
        let (http, grpc) = (program.address_of("HTTPService"), program.address_of("GRPCInferenceService"));
        Running { program, http, grpc }
    }
}

impl Running {
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.http).unwrap()
    }

    /// The response of a model to a JSON request: status and body.
    pub(crate) fn infer(&self, model: &str, request: &Value) -> (u16, Value) {
        self.post(&format!("/v2/models/{model}/infer"), request)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = serde_json::to_vec(body).unwrap();
        let response = self.connect().ask("POST", path, &[], &body).unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let response = self.connect().ask("GET", path, &[], b"").unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
    }

    /// The statistics of a model.
    pub(crate) fn statistics(&self, model: &str) -> Value {
        let (status, mut all) = self.get(&format!("/v2/models/{model}/stats"));
        assert_eq!(status, 200, "{all}");
        all["model_stats"][0].take()
    }

    /// Stops the program, and checks that it has lost no request.
    pub(crate) fn stop(self) {
        let status = self.program.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "the program ended with {status}");
    }
}

/// A request with one INT32 input of one row.
pub(crate) fn ints(input: &str, values: &[i32]) -> Value {
    json!({"inputs": [{"name": input, "datatype": "INT32", "shape": [1, values.len()], "data": values}]})
}

/// The parameters of a configuration.
pub(crate) fn parameters(pairs: &[(&str, &str)]) -> String {
    let each = |(key, value): &(&str, &str)| {
        format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n")
    };
    pairs.iter().map(each).collect()
}

/// A configuration for a backend that copies its input, such as the identity backend.
pub(crate) fn copying(backend: &str, rest: &str) -> String {
    let (input, output) = if backend == "identity" { ("INPUT0", "OUTPUT0") } else { ("INPUT", "OUTPUT") };
    format!(
        "backend: '{backend}' max_batch_size: 8
         input [ {{ name: '{input}' data_type: TYPE_INT32 dims: [ -1 ] }} ]
         output [ {{ name: '{output}' data_type: TYPE_INT32 dims: [ -1 ] }} ]
         instance_group [ {{ kind: KIND_CPU }} ]
         {rest}"
    )
}

/// A configuration for the backend that sends one response for each value of its input.
pub(crate) fn repeating(rest: &str) -> String {
    format!(
        "backend: 'repeat' max_batch_size: 0
         input [ {{ name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] }} ]
         output [ {{ name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] }},
                  {{ name: 'IDX' data_type: TYPE_UINT32 dims: [ 1 ] }} ]
         model_transaction_policy {{ decoupled: true }}
         instance_group [ {{ kind: KIND_CPU }} ]
         {rest}"
    )
}

pub(crate) const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// A stream message that asks such a model for one response for each value.
pub(crate) fn question(model: &str, values: &[i32]) -> bytes::Bytes {
    let request = json!({
        "model_name": model,
        "inputs": [{
            "name": "IN", "datatype": "INT32", "shape": [values.len().to_string()],
            "contents": {"int_contents": values}
        }]
    });
    framed(&schema::encode("inference.ModelInferRequest", &request).unwrap())
}

/// All messages of a stream with that one request.
pub(crate) fn stream(running: &Running, model: &str, values: &[i32]) -> Vec<Value> {
    let (messages, status) = Runtime::new()
        .unwrap()
        .block_on(async {
            let message = question(model, values);
            grpc::Connection::open(running.grpc).await?.unary(STREAM, &[], message).await
        })
        .unwrap();
    assert_eq!(status.name(), "OK", "{model}: {}", status.message);
    let responses =
        messages.iter().map(|message| schema::decode("inference.ModelStreamInferResponse", message));
    responses.collect::<Result<_, _>>().unwrap()
}

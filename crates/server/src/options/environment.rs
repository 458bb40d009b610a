//! The environment variables that change how the server starts.

use std::{ffi::OsString, path::PathBuf};

use super::refusal::BadOption;
use super::typed::TypedOptions;
use super::values;

/// The variables that the server reads, as they were when the process started. An empty variable counts as unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessEnvironment {
    /// `AIP_STORAGE_URI`: the model repository, if the command line names none.
    pub storage_uri: Option<String>,
    /// `AIP_MODE`: with `PREDICTION` the Vertex AI endpoint replaces HTTP and gRPC, unless options say otherwise.
    pub aip_mode: Option<String>,
    /// `AIP_HTTP_PORT`: the default port of the Vertex AI endpoint.
    pub aip_http_port: Option<String>,
    /// `TRITON_SERVER_ESCAPE_LOG_MESSAGES`: with exactly `0` the server does not escape log messages.
    pub escape_log_messages: Option<String>,
    /// `TRITONSERVER_DELAY_SCHEDULER`: at first, schedulers wait until this many requests are queued.
    pub delay_scheduler: Option<String>,
    /// `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`: sequence batchers also wait until this many requests are in the backlog.
    pub backlog_delay_scheduler: Option<String>,
    /// `NEREID_ONNXRUNTIME_LIBRARY`, otherwise `ORT_DYLIB_PATH`: the ONNX Runtime library.
    pub onnxruntime_library: Option<PathBuf>,
    /// `VIRTUAL_ENV`: the active Python environment.
    pub virtual_env: Option<PathBuf>,
    /// `PATH`: shows where Python is installed.
    pub search_path: Option<OsString>,
}

impl ProcessEnvironment {
    /// Reads the variables of this process. Bytes that are not valid UTF-8 become replacement characters.
    pub fn of_this_process() -> Self {
        let raw = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name| raw(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            storage_uri: text("AIP_STORAGE_URI"),
            aip_mode: text("AIP_MODE"),
            aip_http_port: text("AIP_HTTP_PORT"),
            escape_log_messages: text("TRITON_SERVER_ESCAPE_LOG_MESSAGES"),
            delay_scheduler: text("TRITONSERVER_DELAY_SCHEDULER"),
            backlog_delay_scheduler: text("TRITONSERVER_BACKLOG_DELAY_SCHEDULER"),
            onnxruntime_library: raw("NEREID_ONNXRUNTIME_LIBRARY")
                .or_else(|| raw("ORT_DYLIB_PATH"))
                .map(PathBuf::from),
            virtual_env: raw("VIRTUAL_ENV").map(PathBuf::from),
            search_path: raw("PATH"),
        }
    }

    /// Prefixes under which Python packages may be installed. The most specific prefix comes first.
    pub(super) fn python_prefixes(&self) -> Vec<PathBuf> {
        backend_onnx::python_prefixes(self.virtual_env.as_deref(), self.search_path.as_deref())
    }

    /// Changes the defaults of the command line.
    pub(super) fn prepare(&self, typed: &mut TypedOptions) -> Result<(), BadOption> {
        if self.aip_mode.as_deref() == Some("PREDICTION") {
            typed.outside.allow_vertex_ai = true;
            typed.http.allow = false;
            typed.grpc.allow = false;
        }
        if let Some(port) = &self.aip_http_port {
            let port = values::integer(port, 0, i64::from(u16::MAX))
                .map_err(|text| in_variable("AIP_HTTP_PORT", &text))?;
            typed.outside.vertex_ai_port = port;
        }
        Ok(())
    }

    pub(super) fn delay_scheduler(&self) -> Result<usize, BadOption> {
        count("TRITONSERVER_DELAY_SCHEDULER", self.delay_scheduler.as_deref())
    }

    pub(super) fn backlog_delay_scheduler(&self) -> Result<usize, BadOption> {
        count("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", self.backlog_delay_scheduler.as_deref())
    }
}

fn count(name: &str, text: Option<&str>) -> Result<usize, BadOption> {
    let Some(text) = text else { return Ok(0) };
    let count = values::integer(text, 0, i64::from(u32::MAX)).map_err(|text| in_variable(name, &text))?;
    Ok(usize::try_from(count).expect("lies in the range that was asked for"))
}

fn in_variable(name: &str, text: &str) -> BadOption {
    BadOption::plain(format!("environment variable {name}: {text}"))
}

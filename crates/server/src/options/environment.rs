//! The environment variables that change how the server starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
};

use super::opentelemetry::OpenTelemetryVariables;
use super::refusal::BadOption;
use super::values;
use crate::color::ColorChoice;

/// The variables that the server reads, as they were when the process started. An empty variable counts as unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessEnvironment {
    /// `AIP_STORAGE_URI`: the model repository, if the command line names none.
    pub storage_uri: Option<String>,
    /// `AIP_MODE`: with `PREDICTION` the Vertex AI endpoint replaces HTTP and gRPC, unless options say otherwise.
    pub aip_mode: Option<String>,
    /// `AIP_HTTP_PORT`: the default port of the Vertex AI endpoint.
    pub aip_http_port: Option<String>,
    /// `AIP_PREDICT_ROUTE`: the path of predictions of the Vertex AI endpoint.
    pub aip_predict_route: Option<String>,
    /// `AIP_HEALTH_ROUTE`: the path of its readiness check.
    pub aip_health_route: Option<String>,
    /// `SAGEMAKER_TRITON_PING_MODE`: with `live` the path `/ping` of the SageMaker endpoint does not ask for readiness.
    pub sagemaker_ping_mode: Option<String>,
    /// `SAGEMAKER_TRITON_INFERENCE_TYPE`: how its path `/invocations` runs the model: `infer`, `generate` or
    /// `generate_stream`.
    pub sagemaker_inference_type: Option<String>,
    /// `SAGEMAKER_TRITON_DEFAULT_MODEL_NAME`: the model of that path.
    pub sagemaker_default_model: Option<String>,
    /// The variables that become options if the program is started as `serve`, by name.
    pub sagemaker: BTreeMap<&'static str, String>,
    /// `NEREID_SAGEMAKER_MODEL_ROOT`: where the files of models of a multi-model endpoint are, instead of
    /// `/opt/ml/models`. For tests.
    pub sagemaker_model_root: Option<PathBuf>,
    /// `TRITON_SERVER_ESCAPE_LOG_MESSAGES`: with exactly `0` the server does not escape log messages.
    pub escape_log_messages: Option<String>,
    /// `TRITONSERVER_DELAY_SCHEDULER`: at first, schedulers wait until this many requests are queued.
    pub delay_scheduler: Option<String>,
    /// `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`: sequence batchers also wait until this many requests are in the backlog.
    pub backlog_delay_scheduler: Option<String>,
    /// `NEREID_ONNXRUNTIME_LIBRARY`, otherwise `ORT_DYLIB_PATH`: the ONNX Runtime library.
    pub onnxruntime_library: Option<PathBuf>,
    /// `NEREID_OPENVINO_LIBRARY`: the library of OpenVINO's C interface.
    pub openvino_library: Option<PathBuf>,
    /// `NEREID_TORCH_LIBRARY`: the library of PyTorch, `libtorch_cpu.so`.
    pub torch_library: Option<PathBuf>,
    /// `NO_COLOR`, or `TERM=dumb`: texts have no colours, unless the options say otherwise.
    pub no_color: bool,
    /// `VIRTUAL_ENV`: the active Python environment.
    pub virtual_env: Option<PathBuf>,
    /// `PATH`: shows where Python is installed.
    pub search_path: Option<OsString>,
    /// `NEREID_<OPTION>`: values of options, by the names of the options.
    pub options: BTreeMap<String, String>,
    /// Names of variables that begin with `NEREID_`, and that nothing reads.
    pub unread: BTreeSet<String>,
    /// Warnings about variables. The server writes them when it starts.
    pub warnings: Vec<String>,
    /// The variables of OpenTelemetry. Options take precedence.
    pub opentelemetry: OpenTelemetryVariables,
}

impl ProcessEnvironment {
    /// Prefixes under which Python packages may be installed. The most specific prefix comes first.
    pub(super) fn python_prefixes(&self) -> Vec<PathBuf> {
        native_backend::python_prefixes(self.virtual_env.as_deref(), self.search_path.as_deref())
    }

    /// When texts have colours if the options say nothing.
    pub fn color(&self) -> ColorChoice {
        if self.no_color { ColorChoice::Never } else { ColorChoice::Auto }
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
    let count =
        values::integer(text, 0, i64::from(u32::MAX)).map_err(|text| BadOption::in_variable(name, &text))?;
    Ok(usize::try_from(count).expect("lies in the range that was asked for"))
}

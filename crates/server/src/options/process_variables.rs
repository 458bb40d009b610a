//! Reads the environment of the process.

use std::path::PathBuf;

use super::environment::ProcessEnvironment;
use super::{sagemaker_line, table, unread_variables};

impl ProcessEnvironment {
    /// Reads the variables of this process. Bytes that are not valid UTF-8 become replacement characters.
    pub fn of_this_process() -> Self {
        let raw = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| raw(name).map(|value| value.to_string_lossy().into_owned());
        let all: Vec<_> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let all = || all.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Self {
            storage_uri: text("AIP_STORAGE_URI"),
            aip_mode: text("AIP_MODE"),
            aip_http_port: text("AIP_HTTP_PORT"),
            aip_predict_route: text("AIP_PREDICT_ROUTE"),
            aip_health_route: text("AIP_HEALTH_ROUTE"),
            sagemaker_ping_mode: text("SAGEMAKER_TRITON_PING_MODE"),
            sagemaker_inference_type: text("SAGEMAKER_TRITON_INFERENCE_TYPE"),
            sagemaker_default_model: text("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"),
            sagemaker: sagemaker_line::variables(text),
            sagemaker_model_root: raw("NEREID_SAGEMAKER_MODEL_ROOT").map(PathBuf::from),
            escape_log_messages: text("TRITON_SERVER_ESCAPE_LOG_MESSAGES"),
            delay_scheduler: text("TRITONSERVER_DELAY_SCHEDULER"),
            backlog_delay_scheduler: text("TRITONSERVER_BACKLOG_DELAY_SCHEDULER"),
            onnxruntime_library: raw("NEREID_ONNXRUNTIME_LIBRARY")
                .or_else(|| raw("ORT_DYLIB_PATH"))
                .map(PathBuf::from),
            openvino_library: raw("NEREID_OPENVINO_LIBRARY").map(PathBuf::from),
            torch_library: raw("NEREID_TORCH_LIBRARY").map(PathBuf::from),
            no_color: raw("NO_COLOR").is_some() || raw("TERM").is_some_and(|terminal| terminal == "dumb"),
            virtual_env: raw("VIRTUAL_ENV").map(PathBuf::from),
            search_path: raw("PATH"),
            options: table::all()
                .filter_map(|option| Some((option.name.to_owned(), text(&option.variable()?)?)))
                .collect(),
            unread: unread_variables::unread(all()).map(str::to_owned).collect(),
            warnings: Vec::new(),
            opentelemetry: all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }
}

//! The modules of Python that workers run.
//!
//! Modules that lie in the binary come to a worker by its socket, as sources.

/// The program of a worker: it reads the modules from its socket.
pub(crate) const BOOTSTRAP: &str = include_str!("../python/nereid_bootstrap.py");

/// Names and sources of the modules.
pub(crate) const MODULES: &[(&str, &str)] = &[
    ("c_python_backend_utils", include_str!("../python/c_python_backend_utils.py")),
    ("nereid_dlpack", include_str!("../python/nereid_dlpack.py")),
    ("nereid_execution", include_str!("../python/nereid_execution.py")),
    ("nereid_channel", include_str!("../python/nereid_channel.py")),
    ("nereid_errors", include_str!("../python/nereid_errors.py")),
    ("nereid_host", include_str!("../python/nereid_host.py")),
    ("nereid_memory", include_str!("../python/nereid_memory.py")),
    ("nereid_metrics", include_str!("../python/nereid_metrics.py")),
    ("nereid_model_config", include_str!("../python/nereid_model_config.py")),
    ("nereid_readiness", include_str!("../python/nereid_readiness.py")),
    ("nereid_request", include_str!("../python/nereid_request.py")),
    ("nereid_response", include_str!("../python/nereid_response.py")),
    ("nereid_server", include_str!("../python/nereid_server.py")),
    ("nereid_services", include_str!("../python/nereid_services.py")),
    ("nereid_tensor", include_str!("../python/nereid_tensor.py")),
    ("nereid_worker", include_str!("../python/nereid_worker.py")),
    ("triton_python_backend_utils", include_str!("../python/triton_python_backend_utils.py")),
];

/// Names and sources of the further modules of the backend `pytorch`.
pub(crate) const PYTORCH_MODULES: &[(&str, &str)] = &[
    ("nereid_pytorch", include_str!("../python/nereid_pytorch.py")),
    ("nereid_pytorch_files", include_str!("../python/nereid_pytorch_files.py")),
    ("nereid_pytorch_names", include_str!("../python/nereid_pytorch_names.py")),
    ("nereid_pytorch_networks", include_str!("../python/nereid_pytorch_networks.py")),
    ("nereid_pytorch_parameters", include_str!("../python/nereid_pytorch_parameters.py")),
    ("nereid_pytorch_tensors", include_str!("../python/nereid_pytorch_tensors.py")),
    ("nereid_torch", include_str!("../python/nereid_torch.py")),
];

//! What every server is made of besides the engine: the same for the binary and inside other programs.
use std::{path::PathBuf, sync::Arc};

use backend_onnx::{LibrarySearch, OnnxBackend};
use c_api::{
    agent::Agents,
    backend::{Libraries, ServerHandle},
    batching::Strategies,
};
use engine::Plugins;

use crate::{Server, custom_metrics};

/// The built-in backend, whose library is looked for as `onnxruntime` says, and all that comes in shared libraries except
/// the response cache. Plug-ins know the server by `server`, which must last as long as they do; repository agents lie
/// below `agents`.
pub fn plugins(server: &Arc<Server>, onnxruntime: LibrarySearch, agents: PathBuf) -> Plugins {
    let handle = ServerHandle(server.as_ptr().cast());
    Plugins {
        backends: vec![Arc::new(OnnxBackend::new(onnxruntime))],
        finder: Some(Arc::new(Libraries::new(handle))),
        cache: None,
        agents: Some(Arc::new(Agents::new(agents))),
        strategies: Some(Arc::new(Strategies::new(handle))),
        more_metrics: Some(custom_metrics()),
    }
}

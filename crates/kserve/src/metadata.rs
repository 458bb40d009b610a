//! The metadata of the server and of its models.
use config::ModelConfig;
use proto::{
    ModelMetadataResponse, RepositoryIndexResponse, ServerMetadataResponse,
    model_metadata_response::TensorMetadata, repository_index_response::ModelIndex,
};

/// Nereid's own version. The protocols' version is that of the Triton whose behaviour the server has.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The server's name, version and extensions.
pub fn server(server: &engine::ServerMetadata) -> ServerMetadataResponse {
    ServerMetadataResponse {
        name: server.name.clone(),
        version: server.version.clone(),
        extensions: server.extensions.clone(),
    }
}

/// A model's tensors, and its versions: the requested version, or all that are ready. `requested` is that version, or the
/// largest.
pub fn of_model(
    engine: &engine::Engine,
    requested: &engine::Model,
    version: Option<i64>,
) -> ModelMetadataResponse {
    let versions = version.map_or_else(|| engine.ready_versions(requested.name()), |version| vec![version]);
    model(requested.config(), &versions)
}

/// A model's tensors.
fn model(config: &ModelConfig, versions: &[i64]) -> ModelMetadataResponse {
    let tensor = |name: &str, datatype: vocabulary::DataType, dims: &[i64]| TensorMetadata {
        name: name.to_owned(),
        datatype: datatype.protocol_name().to_owned(),
        shape: config.client_dims(dims).to_vec(),
    };
    ModelMetadataResponse {
        name: config.name.to_string(),
        versions: versions.iter().map(ToString::to_string).collect(),
        platform: config.shown_platform().to_owned(),
        inputs: config.inputs.iter().map(|input| tensor(&input.name, input.datatype, &input.dims)).collect(),
        outputs: config
            .outputs
            .iter()
            .map(|output| tensor(&output.name, output.datatype, &output.dims))
            .collect(),
    }
}

/// The models of the repository. Fields without a value are empty: a model has no version before its first load.
pub fn index(entries: Vec<engine::IndexEntry>) -> RepositoryIndexResponse {
    let entry = |entry: engine::IndexEntry| ModelIndex {
        name: entry.name.to_string(),
        version: entry.version.map(|version| version.to_string()).unwrap_or_default(),
        state: entry.state.map(|state| state.as_str().to_owned()).unwrap_or_default(),
        reason: entry.reason,
    };
    RepositoryIndexResponse { models: entries.into_iter().map(entry).collect() }
}

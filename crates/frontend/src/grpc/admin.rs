//! The rare calls: one message in, one message out. They use the generated types and are not optimised for speed.
use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use engine::{Engine, LoadParameters};
use inference::Error;
use prost::Message;
use proto::{
    CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse, ModelConfigRequest, ModelConfigResponse,
    ModelMetadataRequest, ModelReadyRequest, ModelReadyResponse, ModelRepositoryParameter,
    ModelStatisticsRequest, RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerReadyRequest, ServerReadyResponse, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse,
    health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus},
    model_repository_parameter::ParameterChoice,
};

use super::{
    message::{MAX_MESSAGE, PREFIX},
    status::Status,
};
use crate::{
    chunks::Chunks,
    kserve::{metadata, shared_memory, statistics, version},
    restrict::Category,
};

/// A rare call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminCall {
    ServerLive,
    ServerReady,
    HealthCheck,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelConfig,
    ModelStatistics,
    RepositoryIndex,
    RepositoryModelLoad,
    RepositoryModelUnload,
    /// The status of shared memory. The server never has a region.
    SystemRegions,
    CudaRegions,
    /// Registers or unregisters shared memory. Only `--allow-client-shm` would allow this.
    ControlRegions,
    /// A call of the protocol that this version of the server does not offer.
    NotOffered(Subject),
}

/// The subject of a call that the server does not offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    TraceSettings,
    LogSettings,
}

impl AdminCall {
    /// The call with this name in `inference.GRPCInferenceService`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ServerLive" => Self::ServerLive,
            "ServerReady" => Self::ServerReady,
            "ModelReady" => Self::ModelReady,
            "ServerMetadata" => Self::ServerMetadata,
            "ModelMetadata" => Self::ModelMetadata,
            "ModelConfig" => Self::ModelConfig,
            "ModelStatistics" => Self::ModelStatistics,
            "RepositoryIndex" => Self::RepositoryIndex,
            "RepositoryModelLoad" => Self::RepositoryModelLoad,
            "RepositoryModelUnload" => Self::RepositoryModelUnload,
            "SystemSharedMemoryStatus" => Self::SystemRegions,
            "CudaSharedMemoryStatus" => Self::CudaRegions,
            "SystemSharedMemoryRegister"
            | "SystemSharedMemoryUnregister"
            | "CudaSharedMemoryRegister"
            | "CudaSharedMemoryUnregister" => Self::ControlRegions,
            "TraceSetting" => Self::NotOffered(Subject::TraceSettings),
            "LogSettings" => Self::NotOffered(Subject::LogSettings),
            _ => return None,
        })
    }

    /// The category by which an operator may restrict the call.
    pub(crate) const fn category(self) -> Category {
        match self {
            Self::ServerLive | Self::ServerReady | Self::HealthCheck | Self::ModelReady => Category::Health,
            Self::ServerMetadata | Self::ModelMetadata => Category::Metadata,
            Self::ModelConfig => Category::ModelConfig,
            Self::ModelStatistics => Category::Statistics,
            Self::RepositoryIndex | Self::RepositoryModelLoad | Self::RepositoryModelUnload => {
                Category::ModelRepository
            }
            Self::SystemRegions | Self::CudaRegions | Self::ControlRegions => Category::SharedMemory,
            Self::NotOffered(Subject::TraceSettings) => Category::Trace,
            Self::NotOffered(Subject::LogSettings) => Category::Logging,
        }
    }

    /// Answers the call.
    ///
    /// # Errors
    /// The status that ends the call.
    pub(crate) async fn answer(self, engine: &Engine, frames: &[Bytes]) -> Result<Chunks, Status> {
        match self {
            Self::ServerLive => {
                let ServerLiveRequest {} = decode(frames)?;
                encode(&ServerLiveResponse { live: engine.live()? })
            }
            Self::ServerReady => {
                let ServerReadyRequest {} = decode(frames)?;
                encode(&ServerReadyResponse { ready: engine.ready().await? })
            }
            Self::HealthCheck => {
                // The server has one health status, so the name of the service does not matter.
                let _: HealthCheckRequest = decode(frames)?;
                let ready = engine.ready().await?;
                let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
                encode(&HealthCheckResponse { status: status.into() })
            }
            Self::ModelReady => {
                let request: ModelReadyRequest = decode(frames)?;
                let version = version::parse(&request.version)?;
                encode(&ModelReadyResponse { ready: engine.model_ready(&request.name, version).await })
            }
            Self::ServerMetadata => {
                let ServerMetadataRequest {} = decode(frames)?;
                encode(&metadata::server(engine.server()))
            }
            Self::ModelMetadata => {
                let request: ModelMetadataRequest = decode(frames)?;
                let version = version::parse(&request.version)?;
                encode(&metadata::of_model(engine, &request.name, version)?)
            }
            Self::ModelConfig => {
                let request: ModelConfigRequest = decode(frames)?;
                let model = engine.model(&request.name, version::parse(&request.version)?)?;
                encode(&ModelConfigResponse { config: Some(model.shown().clone()) })
            }
            Self::ModelStatistics => {
                let request: ModelStatisticsRequest = decode(frames)?;
                let name = (!request.name.is_empty()).then_some(&*request.name);
                let counted = engine.statistics(name, version::parse(&request.version)?)?;
                encode(&statistics::response(&counted))
            }
            Self::RepositoryIndex => {
                let request: RepositoryIndexRequest = decode(frames)?;
                only_one_repository(&request.repository_name)?;
                encode(&metadata::index(engine.index(request.ready).await))
            }
            Self::RepositoryModelLoad => {
                load(engine, decode(frames)?).await?;
                encode(&RepositoryModelLoadResponse {})
            }
            Self::RepositoryModelUnload => {
                unload(engine, &decode(frames)?).await?;
                encode(&RepositoryModelUnloadResponse {})
            }
            Self::SystemRegions => {
                let request: SystemSharedMemoryStatusRequest = decode(frames)?;
                shared_memory::status("system", &request.name)?;
                encode(&SystemSharedMemoryStatusResponse::default())
            }
            Self::CudaRegions => {
                let request: CudaSharedMemoryStatusRequest = decode(frames)?;
                shared_memory::status("cuda", &request.name)?;
                encode(&CudaSharedMemoryStatusResponse::default())
            }
            Self::ControlRegions => Err(shared_memory::disabled().into()),
            Self::NotOffered(subject) => Err(not_offered(subject).into()),
        }
    }
}

fn not_offered(subject: Subject) -> Error {
    let what = match subject {
        Subject::TraceSettings => "trace settings",
        Subject::LogSettings => "log settings",
    };
    Error::unsupported(format!("{what} is not supported by this version of nereid"))
}

async fn load(engine: &Engine, request: RepositoryModelLoadRequest) -> Result<(), Error> {
    only_one_repository(&request.repository_name)?;
    let given = load_parameters(request.parameters)?;
    engine.load(&request.model_name, given).await
}

/// What a load request brings.
fn load_parameters(parameters: BTreeMap<String, ModelRepositoryParameter>) -> Result<LoadParameters, Error> {
    let mut given = LoadParameters::default();
    for (key, parameter) in parameters {
        let expected = match (&*key, key.strip_prefix("file:"), parameter.parameter_choice) {
            ("config", _, Some(ParameterChoice::StringParam(config))) => {
                given.config = Some(config);
                continue;
            }
            (_, Some(path), Some(ParameterChoice::BytesParam(content))) => {
                given.files.push((path.to_owned(), content));
                continue;
            }
            ("config", ..) => "string_param",
            (_, Some(_), _) => "bytes_param",
            (_, None, _) => return Err(Error::invalid(format!("unrecognized load parameter '{key}'."))),
        };
        return Err(Error::invalid(format!(
            "invalid value type for load parameter '{key}', expected {expected}."
        )));
    }
    Ok(given)
}

async fn unload(engine: &Engine, request: &RepositoryModelUnloadRequest) -> Result<(), Error> {
    only_one_repository(&request.repository_name)?;
    let dependents = match request.parameters.get("unload_dependents") {
        None => false,
        Some(&ModelRepositoryParameter {
            parameter_choice: Some(ParameterChoice::BoolParam(dependents)),
        }) => dependents,
        Some(_) => {
            return Err(Error::invalid(
                "invalid value type for 'unload_dependents' parameter, expected bool_param.",
            ));
        }
    };
    if dependents {
        engine.unload_with_dependents(&request.model_name).await
    } else {
        engine.unload(&request.model_name).await
    }
}

fn only_one_repository(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported("'repository_name' specification is not supported"))
}

fn decode<M: Message + Default>(frames: &[Bytes]) -> Result<M, Status> {
    let mut message = Chunks::new();
    frames.iter().for_each(|frame| message.push(frame.clone()));
    M::decode(message).map_err(|_| Status::unparsable())
}

/// Encodes the message after its prefix.
fn encode(message: &impl Message) -> Result<Chunks, Status> {
    let length = message.encoded_len();
    let Some(prefix) = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE) else {
        return Err(Error::internal(format!("a response of {length} bytes is too large for gRPC")).into());
    };
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(prefix);
    message.encode_raw(&mut bytes);
    Ok(bytes.freeze().into())
}

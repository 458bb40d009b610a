//! The rare calls: one message in, one message out. They use the generated types and are not optimised for speed.
use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{Engine, IndexEntry};
use kserve::{
    metadata, statistics,
    trace_settings::{self, CountErrorForm, GivenSetting},
    version,
};
use prost::Message;
use proto::{
    ModelConfigRequest, ModelConfigResponse, ModelMetadataRequest, ModelReadyRequest, ModelReadyResponse,
    ModelRepositoryParameter, ModelStatisticsRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerReadyRequest, ServerReadyResponse,
    TraceSettingRequest, TraceSettingResponse,
    health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus},
    model_repository_parameter::ParameterChoice,
    trace_setting_response::SettingValue,
};
use repository::LoadParameters;
use vocabulary::{ByteReservation, Error};

use super::{
    call::CallHead,
    grpc_context::GrpcContext,
    logging,
    message::{
        framing::ReceivedMessage,
        generated::{decode, encode},
        wire::{Malformed, WireReader},
    },
    shared_memory::RegionCall,
    status::Status,
};
use crate::{
    access::{Access, Category},
    chunks::Chunks,
};

/// The most bytes that a byte of a message takes when it is decoded: a text in a list has two bytes in the message, and 24 in
/// a list that is copied when it grows.
const MOST_FOR_A_BYTE: usize = 40;

/// The number of parameters that is too many for the load of a model: as many values as JSON may have. An empty one takes two bytes
/// in the message, and about a hundred when it is decoded.
const MAX_PARAMETERS: usize = 1 << 16;

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
    /// A call about shared memory.
    Regions(RegionCall),
    TraceSetting,
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
            "TraceSetting" => Self::TraceSetting,
            "LogSettings" => Self::LogSettings,
            name => return RegionCall::named(name).map(Self::Regions),
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
            Self::Regions(_) => Category::SharedMemory,
            Self::TraceSetting => Category::Trace,
            Self::LogSettings => Category::Logging,
        }
    }

    /// The longest message of the call, in bytes, if the server's own limit is not lower. The files of a model are long.
    pub(crate) const fn max_message(self) -> u64 {
        match self {
            Self::RepositoryModelLoad => u64::MAX,
            Self::ServerLive
            | Self::ServerReady
            | Self::HealthCheck
            | Self::ModelReady
            | Self::ServerMetadata
            | Self::ModelMetadata
            | Self::ModelConfig
            | Self::ModelStatistics
            | Self::RepositoryIndex
            | Self::RepositoryModelUnload
            | Self::Regions(_)
            | Self::TraceSetting
            | Self::LogSettings => 4 << 20,
        }
    }

    /// The most bytes that the decoded form of a message of so many bytes takes besides it.
    pub(crate) const fn decoded_bytes(self, message: usize) -> usize {
        match self {
            // Their messages have no fields.
            Self::ServerLive | Self::ServerReady | Self::ServerMetadata => 0,
            // Texts and numbers.
            Self::HealthCheck
            | Self::ModelReady
            | Self::ModelMetadata
            | Self::ModelConfig
            | Self::ModelStatistics
            | Self::RepositoryIndex
            | Self::Regions(_) => message,
            // The files are copied. `check_parameters` bounds their number, and `load` counts the configuration.
            Self::RepositoryModelLoad => message,
            // Maps, and lists of texts.
            Self::RepositoryModelUnload | Self::TraceSetting | Self::LogSettings => {
                message.saturating_mul(MOST_FOR_A_BYTE)
            }
        }
    }

    /// Checks that the sender may use the model that the call names, if it names one.
    ///
    /// # Errors
    /// The API key does not permit it, or the message cannot be read.
    pub(crate) async fn check_model(self, access: &Access, frames: &[Bytes]) -> Result<(), Status> {
        let model = match self {
            Self::ModelReady | Self::ModelMetadata | Self::ModelConfig | Self::ModelStatistics => {
                decode::<ModelFirst>(frames).await?.name
            }
            Self::RepositoryModelLoad | Self::RepositoryModelUnload | Self::TraceSetting => {
                decode::<ModelSecond>(frames).await?.name
            }
            Self::ServerLive
            | Self::ServerReady
            | Self::HealthCheck
            | Self::ServerMetadata
            | Self::RepositoryIndex
            | Self::Regions(_)
            | Self::LogSettings => return Ok(()),
        };
        // Statistics and settings of no model are those of all models. Statistics show only what the sender may see.
        let may_be_all = matches!(self, Self::ModelStatistics | Self::TraceSetting);
        let named = Some(model.as_str()).filter(|model| !model.is_empty() || !may_be_all);
        Ok(access.check(self.category(), named)?)
    }

    /// Answers the call.
    ///
    /// # Errors
    /// The status that ends the call.
    pub(crate) async fn answer(
        self,
        endpoint: &GrpcContext,
        ReceivedMessage { frames, reservation }: &mut ReceivedMessage,
        call: &CallHead,
    ) -> Result<Chunks, Status> {
        let (engine, access) = (&endpoint.engine, &call.access);
        let frames = &frames[..];
        match self {
            Self::ServerLive => {
                let ServerLiveRequest {} = decode(frames).await?;
                encode(&ServerLiveResponse { live: engine.live()? })
            }
            Self::ServerReady => {
                let ServerReadyRequest {} = decode(frames).await?;
                encode(&ServerReadyResponse { ready: engine.ready().await? })
            }
            Self::HealthCheck => {
                // The server has one health status, so the name of the service does not matter.
                let _: HealthCheckRequest = decode(frames).await?;
                let ready = engine.ready().await?;
                let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
                encode(&HealthCheckResponse { status: status.into() })
            }
            Self::ModelReady => {
                let request: ModelReadyRequest = decode(frames).await?;
                let version = version::parse(&request.version)?;
                encode(&ModelReadyResponse { ready: engine.demands().ready(&request.name, version).await })
            }
            Self::ServerMetadata => {
                let ServerMetadataRequest {} = decode(frames).await?;
                encode(&metadata::server(engine.server()))
            }
            Self::ModelMetadata => {
                let request: ModelMetadataRequest = decode(frames).await?;
                let version = version::parse(&request.version)?;
                let model = endpoint.demand(call, &request.name, version).await?;
                encode(&metadata::of_model(engine, &model, version))
            }
            Self::ModelConfig => {
                let request: ModelConfigRequest = decode(frames).await?;
                let version = version::parse(&request.version)?;
                let model = endpoint.demand(call, &request.name, version).await?;
                encode(&ModelConfigResponse { config: Some(model.shown().clone()) })
            }
            Self::ModelStatistics => {
                let request: ModelStatisticsRequest = decode(frames).await?;
                let name = (!request.name.is_empty()).then_some(&*request.name);
                let mut counted = engine.statistics(name, version::parse(&request.version)?)?;
                counted.retain(|model| access.shows(&model.name));
                encode(&statistics::response(&counted))
            }
            Self::RepositoryIndex => {
                let request: RepositoryIndexRequest = decode(frames).await?;
                only_one_repository(&request.repository_name)?;
                encode(&metadata::index(visible_index(engine, request.ready, access).await))
            }
            Self::RepositoryModelLoad => {
                check_parameters(frames)?;
                load(engine, decode(frames).await?, reservation).await?;
                encode(&RepositoryModelLoadResponse {})
            }
            Self::RepositoryModelUnload => {
                unload(engine, &decode(frames).await?).await?;
                encode(&RepositoryModelUnloadResponse {})
            }
            Self::Regions(call) => call.answer(&endpoint.options.regions, frames).await,
            Self::TraceSetting => encode(&trace_setting(endpoint, decode(frames).await?)?),
            Self::LogSettings => {
                encode(&logging::answer(endpoint.options.log.as_deref(), &decode(frames).await?)?)
            }
        }
    }
}

/// The index without the models that the sender may not see.
async fn visible_index(engine: &Engine, ready_only: bool, access: &Access) -> Vec<IndexEntry> {
    let mut index = engine.index(ready_only).await;
    index.retain(|entry| access.shows(&entry.name));
    index
}

/// The name of the model in the messages that begin with it.
#[derive(Clone, PartialEq, Message)]
struct ModelFirst {
    #[prost(string, tag = "1")]
    name: String,
}

/// The name of the model in the messages whose second field it is.
#[derive(Clone, PartialEq, Message)]
struct ModelSecond {
    #[prost(string, tag = "2")]
    name: String,
}

fn trace_setting(
    endpoint: &GrpcContext,
    request: TraceSettingRequest,
) -> Result<TraceSettingResponse, Error> {
    let TraceSettingRequest { mut settings, model_name } = request;
    let model = (!model_name.is_empty()).then_some(&*model_name);
    trace_settings::check_model(&endpoint.engine, model)?;
    if settings.contains_key(trace_settings::FILE) {
        return Err(trace_settings::file_is_fixed());
    }
    let tracer = &endpoint.options.tracer;
    trace_settings::change(tracer, model, CountErrorForm::Grpc, |name| {
        Ok(settings.remove(name).map(|setting| match setting.value {
            values if values.is_empty() => GivenSetting::Clear,
            values => GivenSetting::Values(values),
        }))
    })?;
    let shown = tracer.shown(model).into_iter();
    let settings = shown.map(|setting| (setting.name.to_owned(), SettingValue { value: setting.values }));
    Ok(TraceSettingResponse { settings: settings.collect() })
}

/// Checks that a message that loads a model has not too many parameters, before they are decoded.
fn check_parameters(frames: &[Bytes]) -> Result<(), Error> {
    let mut left = MAX_PARAMETERS;
    // If the message is malformed, its decoder says so.
    let _ = WireReader::new(frames).fields(|reader, number, wire| {
        if number == 3 {
            left = left.checked_sub(1).ok_or(Malformed)?;
        }
        reader.skip(number, wire)
    });
    if left > 0 {
        return Ok(());
    }
    Err(Error::invalid(format!("a request to load a model may have fewer than {MAX_PARAMETERS} parameters")))
}

async fn load(
    engine: &Engine,
    request: RepositoryModelLoadRequest,
    reservation: &mut ByteReservation,
) -> Result<(), Error> {
    only_one_repository(&request.repository_name)?;
    let overrides = load_parameters(request.parameters)?;
    reservation.grow(overrides.reading_bytes())?;
    engine.repository().load(&request.model_name, overrides).await
}

/// What a load request brings.
fn load_parameters(parameters: BTreeMap<String, ModelRepositoryParameter>) -> Result<LoadParameters, Error> {
    let mut overrides = LoadParameters::default();
    for (key, parameter) in parameters {
        let expected = match (&*key, key.strip_prefix("file:"), parameter.parameter_choice) {
            ("config", _, Some(ParameterChoice::StringParam(config))) => {
                overrides.config = Some(config);
                continue;
            }
            (_, Some(path), Some(ParameterChoice::BytesParam(content))) => {
                overrides.files.push((path.to_owned(), content));
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
    Ok(overrides)
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
        engine.repository().unload_with_dependents(&request.model_name).await
    } else {
        engine.repository().unload(&request.model_name).await
    }
}

fn only_one_repository(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported("'repository_name' specification is not supported"))
}

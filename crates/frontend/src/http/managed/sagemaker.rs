//! The endpoint of SageMaker: `/ping`, `/invocations`, and the routes of a multi-model endpoint.
use std::{borrow::Cow, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use http::{
    HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};
use kserve::json_text::write_string;
use percent_encoding::percent_decode_str;
use vocabulary::{ByteBudget, Error};

use super::{
    binary_marker::read_binary_marker,
    sagemaker_models::{ModelRefusal, PlatformModel, SageMakerModels, failure_status},
};
use crate::{
    access::{Access, AccessLog, ApiKeys},
    error,
    http::{
        call::HttpCall,
        connection::HttpEndpoint,
        generate::GenerateRoute,
        infer::{self, HEADER_LENGTH},
        json::{Document, JsonValue},
        models::ModelsRoute,
        reply::{self, HttpFailure, HttpOutcome, HttpReply},
        route_rules::ModelPath,
        router::Route,
        server::ServerRoute,
        service::HttpService,
    },
};

const BINARY: &str = "application/vnd.sagemaker-triton.binary+json;json-header-size=";

/// The header with the name that the server knows a model by.
const TARGET_MODEL: &str = "x-amzn-sagemaker-target-model";

/// How a platform's requests without a route of their own are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InferenceType {
    /// As `POST /v2/models/{M}/infer`
    #[default]
    Infer,
    /// As `POST /v2/models/{M}/generate`
    Generate,
    /// As `POST /v2/models/{M}/generate_stream`
    GenerateStream,
}

impl InferenceType {
    fn route(self, model: &str) -> Route<'_> {
        let path = ModelPath::latest(model);
        match self {
            Self::Infer => Route::Infer(path),
            Self::Generate => Route::Generate(GenerateRoute::Once(path)),
            Self::GenerateStream => Route::Generate(GenerateRoute::Stream(path)),
        }
    }
}

/// The routes that load, unload and list models need what this one needs.
const INDEX: Route<'static> = Route::Models(ModelsRoute::Index);

/// The settings of the endpoint. The defaults are those of the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SageMakerOptions {
    /// `/ping` tells whether the server is live, not whether it is ready (`SAGEMAKER_TRITON_PING_MODE=live`).
    pub pings_liveness: bool,
    /// How `/invocations` runs the model (`SAGEMAKER_TRITON_INFERENCE_TYPE`).
    pub inference: InferenceType,
    /// The model of `/invocations` (`SAGEMAKER_TRITON_DEFAULT_MODEL_NAME`).
    pub default_model: String,
    /// Below which directory the platform puts the files of models.
    pub model_root: PathBuf,
}

impl Default for SageMakerOptions {
    fn default() -> Self {
        Self {
            pings_liveness: false,
            inference: InferenceType::Infer,
            // As Triton, which has no model of this name either.
            default_model: "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME".to_owned(),
            model_root: "/opt/ml/models".into(),
        }
    }
}

/// The endpoint without its socket. [`crate::http::serve`] serves it.
pub struct SageMakerService {
    service: HttpService,
    models: Arc<SageMakerModels>,
    options: SageMakerOptions,
}

/// How a run of a model has ended.
struct ModelRun {
    reply: HttpReply,
    /// The status of a failure on a multi-model endpoint.
    failure: StatusCode,
}

/// The meaning of a path.
#[derive(Debug, PartialEq, Eq)]
enum SageMakerRoute<'p> {
    Ping,
    Invocations,
    Models,
    Model(Cow<'p, str>),
    Invoke(Cow<'p, str>),
}

impl<'p> SageMakerRoute<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let hash = |hash: &'p str| (!hash.is_empty()).then(|| percent_decode_str(hash).decode_utf8_lossy());
        match path.strip_prefix('/')?.split('/').collect::<Vec<_>>()[..] {
            ["ping"] => Some(Self::Ping),
            ["invocations"] => Some(Self::Invocations),
            ["models"] => Some(Self::Models),
            ["models", model] => hash(model).map(Self::Model),
            ["models", model, "invoke"] => hash(model).map(Self::Invoke),
            _ => None,
        }
    }
}

impl SageMakerService {
    /// The endpoint answers by `service`.
    pub fn new(service: HttpService, options: SageMakerOptions) -> Self {
        let models = SageMakerModels::new(service.context.engine.clone(), options.model_root.clone());
        Self { service, models, options }
    }

    /// The model with that hash, if the sender may know it.
    fn visible(&self, hash: &str, access: &Access) -> Option<PlatformModel> {
        self.models.find(hash).filter(|model| access.shows(&model.name))
    }

    /// The name of the model that a request of a multi-model endpoint runs.
    ///
    /// # Errors
    /// The refusal. Only a sender that may run models of this name learns whether the hash is known.
    fn invoked(&self, call: &HttpCall<'_>, hash: &str) -> Result<String, Box<HttpReply>> {
        let known = self.visible(hash, &call.access);
        let is_known = known.is_some();
        let name = target(call).or(known.map(|model| model.name)).unwrap_or_else(|| hash.to_owned());
        let refused = self.service.refusal(&infer::rules(&ModelPath::latest(&name)), call);
        match refused {
            Some(refused) => Err(Box::new(refused)),
            None if is_known => Ok(name),
            None => Err(Box::new(reply::bare(StatusCode::NOT_FOUND))),
        }
    }

    /// Runs a model of a multi-model endpoint. As Triton: all failures have status 400 or 507.
    async fn invoke(&self, call: &mut HttpCall<'_>, model: &str) -> HttpReply {
        let ModelRun { mut reply, failure } = self.run(call, Route::Infer(ModelPath::latest(model))).await;
        match reply.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => {}
            _ => *reply.status_mut() = failure,
        }
        reply
    }

    /// Runs a model.
    async fn run(&self, call: &mut HttpCall<'_>, route: Route<'_>) -> ModelRun {
        // As Triton: the platform's bodies are never compressed.
        call.headers.remove(CONTENT_ENCODING);
        call.headers.remove(ACCEPT_ENCODING);
        let outcome = match read_binary_marker(call.headers, BINARY) {
            Ok(()) => self.service.answer_route(route, call).await,
            Err(error) => Err(error.into()),
        };
        let failure = match &outcome {
            Err(HttpFailure::Error(error) | HttpFailure::Coding(error)) => failure_status(&error.message),
            Err(HttpFailure::Broken(..)) | Ok(_) => StatusCode::BAD_REQUEST,
        };
        let mut reply = self.service.finish(outcome, call);
        mark_binary(&mut reply);
        ModelRun { reply, failure }
    }

    /// `GET /models`, or `POST /models`
    async fn list_or_load(&self, call: &mut HttpCall<'_>) -> HttpOutcome {
        if let Some(refused) = self.service.refusal(&INDEX.rules(), call) {
            return Ok(refused);
        }
        match *call.method {
            Method::GET => Ok(reply::json(StatusCode::OK, self.list(&call.access).await)),
            Method::POST => {
                let (hash, url) = self.service.context.read_members(call.body, load_request).await?;
                let name = target(call).unwrap_or_else(|| hash.clone());
                if let Err(denied) = call.access.check(INDEX.rules().category, Some(&name)) {
                    return Ok(reply::denied(&denied));
                }
                Ok(changed(self.models.load(hash, name, &url).await))
            }
            // As Triton: other methods are like other paths.
            Method::DELETE => Ok(reply::bare(StatusCode::NOT_FOUND)),
            _ => Ok(reply::bare(StatusCode::BAD_REQUEST)),
        }
    }

    /// `GET /models/{H}`, or `DELETE /models/{H}`
    async fn show_or_unload(&self, call: &mut HttpCall<'_>, hash: &str) -> HttpOutcome {
        if let Some(refused) = self.service.refusal(&INDEX.rules(), call) {
            return Ok(refused);
        }
        if *call.method != Method::GET && *call.method != Method::DELETE {
            return Ok(reply::bare(StatusCode::BAD_REQUEST));
        }
        let Some(model) = self.visible(hash, &call.access) else {
            // An unknown hash and a model that the sender may not know have the same answer.
            let denied = call.access.check(INDEX.rules().category, Some(hash)).err();
            return Ok(
                denied.map_or_else(|| reply::bare(StatusCode::NOT_FOUND), |denied| reply::denied(&denied))
            );
        };
        if *call.method == Method::DELETE {
            return Ok(changed(self.models.unload(hash).await));
        }
        let mut json = Vec::new();
        write_model(&mut json, hash, &model);
        Ok(reply::json(StatusCode::OK, json))
    }

    /// The body of `GET /models`. As Triton: a model that is not ready is an empty object.
    async fn list(&self, access: &Access) -> Vec<u8> {
        let mut json = br#"{"models":["#.to_vec();
        let mut is_first = true;
        for (hash, model) in self.models.list() {
            if model.as_ref().is_some_and(|model| !access.shows(&model.name)) {
                continue;
            }
            if !std::mem::replace(&mut is_first, false) {
                json.push(b',');
            }
            match model {
                Some(model) if self.service.context.engine.demands().ready(&model.name, None).await => {
                    write_model(&mut json, &hash, &model);
                }
                Some(_) | None => json.extend_from_slice(b"{}"),
            }
        }
        json.extend_from_slice(b"]}");
        json
    }
}

/// The name that the platform wants the server to know the model by.
fn target(call: &HttpCall<'_>) -> Option<String> {
    let name = call.headers.get(TARGET_MODEL)?;
    Some(String::from_utf8_lossy(name.as_bytes()).into_owned()).filter(|name| !name.is_empty())
}

/// The hash and the URL of a request to load a model.
fn load_request(json: &[u8]) -> Result<(String, String), Error> {
    // As Triton: what is no JSON has the status of an invalid argument, which the rest of the server's JSON has not.
    let document = Document::parse_members(json).map_err(|error| Error::invalid(error.message))?;
    let text = |name: &str| {
        let value = document.root().find(name).map(JsonValue::as_text);
        let value = value.transpose().map_err(|error| Error::invalid(error.message))?;
        let missing = || Error::invalid(format!("a request to load a model needs '{name}'"));
        value.filter(|value| !value.is_empty()).map(Cow::into_owned).ok_or_else(missing)
    };
    Ok((text("model_name")?, text("url")?))
}

/// As Triton: the URL of a model is the directory of its repository.
fn write_model(json: &mut Vec<u8>, hash: &str, model: &PlatformModel) {
    json.extend_from_slice(br#"{"modelName":"#);
    write_string(json, hash.as_bytes());
    json.extend_from_slice(br#","modelUrl":"#);
    write_string(json, model.repository.as_os_str().as_bytes());
    json.push(b'}');
}

fn changed(result: Result<(), ModelRefusal>) -> HttpReply {
    match result {
        Ok(()) => reply::bare(StatusCode::OK),
        Err(ModelRefusal { status, text: Some(text) }) => reply::json(status, error::body(&text)),
        Err(ModelRefusal { status, text: None }) => reply::bare(status),
    }
}

/// Replaces the header of a binary reply by the content type of the platform.
fn mark_binary(reply: &mut HttpReply) {
    let Some(length) = reply.headers_mut().remove(HEADER_LENGTH) else { return };
    let marked = HeaderValue::try_from([BINARY.as_bytes(), length.as_bytes()].concat());
    reply.headers_mut().insert(CONTENT_TYPE, marked.expect("a number is a part of a header value"));
}

impl HttpEndpoint for SageMakerService {
    async fn answer(&self, call: &mut HttpCall<'_>) -> HttpReply {
        let outcome = match SageMakerRoute::of(call.uri.path()) {
            None => Ok(reply::bare(StatusCode::BAD_REQUEST)),
            Some(SageMakerRoute::Ping) => {
                let route = if self.options.pings_liveness { ServerRoute::Live } else { ServerRoute::Ready };
                self.service.answer_route(Route::Server(route), call).await
            }
            Some(SageMakerRoute::Invocations) => {
                let route = self.options.inference.route(&self.options.default_model);
                return self.run(call, route).await.reply;
            }
            Some(SageMakerRoute::Invoke(hash)) => match self.invoked(call, &hash) {
                Ok(name) => return self.invoke(call, &name).await,
                Err(refused) => Ok(*refused),
            },
            Some(SageMakerRoute::Models) => self.list_or_load(call).await,
            Some(SageMakerRoute::Model(hash)) => self.show_or_unload(call, &hash).await,
        };
        self.service.finish(outcome, call)
    }

    fn name_budget(&self) -> Option<&Arc<ByteBudget>> {
        self.service.name_budget()
    }

    fn access_log(&self) -> Option<&Arc<dyn AccessLog>> {
        self.service.access_log()
    }

    fn api_keys(&self) -> Option<&Arc<ApiKeys>> {
        self.service.api_keys()
    }

    fn port_name(&self) -> &'static str {
        "SageMaker"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_the_platform_has_its_route() {
        assert_eq!(SageMakerRoute::of("/ping"), Some(SageMakerRoute::Ping));
        assert_eq!(SageMakerRoute::of("/invocations"), Some(SageMakerRoute::Invocations));
        assert_eq!(SageMakerRoute::of("/models"), Some(SageMakerRoute::Models));
        assert_eq!(SageMakerRoute::of("/models/a%20b"), Some(SageMakerRoute::Model("a b".into())));
        assert_eq!(SageMakerRoute::of("/models/a/invoke"), Some(SageMakerRoute::Invoke("a".into())));
        for path in ["", "/", "/ping/", "/models/", "/models//invoke", "/models/a/b", "/v2", "/invocations/x"]
        {
            assert_eq!(SageMakerRoute::of(path), None, "{path}");
        }
    }

    #[test]
    fn a_load_names_the_model_and_its_files() {
        let request = load_request(br#"{"model_name":"h","url":"/opt"}"#).unwrap();
        assert_eq!(request, ("h".to_owned(), "/opt".to_owned()));
        for wrong in [r#"{"url":"/opt"}"#, r#"{"model_name":"","url":"/opt"}"#, r#"{"model_name":"h"}"#] {
            assert!(
                load_request(wrong.as_bytes()).unwrap_err().message.starts_with("a request to load"),
                "{wrong}"
            );
        }
        assert!(load_request(br#"{"model_name":1,"url":"/opt"}"#).is_err());
    }
}

//! What all connections of the endpoint share.
use std::sync::Arc;

use engine::{Engine, Model};
use http::HeaderValue;
use kserve::version;
use vocabulary::{ByteReservation, Error};

use super::{
    call::CallHead,
    options::GrpcOptions,
    reflection::Reflection,
    status::{Code, Status},
    windows::WindowBudget,
};
use crate::{access::Category, load_report::LoadReports, meant_model, port::Drain};

/// What the server's budget counts for an open call whose client has sent nothing yet, in bytes: its task, its headers and
/// its stream. An estimate. The number of calls has no other limit for the whole process.
const CALL_BYTES: usize = 4096;

/// The gRPC endpoint without its socket.
pub struct GrpcContext {
    pub(crate) engine: Engine,
    pub(crate) options: GrpcOptions,
    pub(crate) drain: Drain,
    pub(crate) reflection: Reflection,
    pub(super) windows: WindowBudget,
    /// The load of the server, for clients that ask for it.
    pub(super) load_reports: LoadReports,
}

impl GrpcContext {
    /// When `drain` begins, the endpoint refuses new calls. `drain` also counts the connections.
    ///
    /// # Errors
    /// INTERNAL: the schema for reflection cannot be used.
    pub fn new(engine: Engine, options: GrpcOptions, drain: Drain) -> Result<Self, Error> {
        let windows = WindowBudget::beside(engine.inflight_bytes().limit());
        let load_reports = LoadReports::default();
        Ok(Self { engine, options, drain, reflection: Reflection::new()?, windows, load_reports })
    }

    /// Checks that a call has the header that a part of the protocol needs, and a key that permits it.
    ///
    /// # Errors
    /// UNAVAILABLE without the header, and the refusal of the key.
    pub(super) fn check(&self, category: Category, call: &CallHead) -> Result<(), Status> {
        let header = |name: &str| call.headers.get(name).map(HeaderValue::as_bytes);
        self.options.restrictions.check(category, header).map_err(|denied| {
            let text = format!("This protocol is restricted, expecting header '{}'", denied.header);
            Status::new(Code::Unavailable, text)
        })?;
        Ok(call.access.check(category, None)?)
    }

    /// The model that a call names. The error about an unknown name has the name that is probably meant.
    pub(super) fn model(&self, call: &CallHead, name: &str, version: &str) -> Result<Arc<Model>, Error> {
        let model = self.engine.model(name, version::parse(version)?);
        model.map_err(|error| self.about_model(error, name, call))
    }

    /// As [`model`](Self::model), after the load of a model that is loaded on demand.
    pub(super) async fn demand(
        &self,
        call: &CallHead,
        name: &str,
        version: Option<i64>,
    ) -> Result<Arc<Model>, Error> {
        let model = self.engine.demands().model(name, version).await;
        model.map_err(|error| self.about_model(error, name, call))
    }

    /// The error of the engine about a model that the call names: an unknown name gets the one that is probably meant, and a
    /// model that has failed the reason.
    pub(super) fn about_model(&self, error: Error, name: &str, call: &CallHead) -> Error {
        meant_model::explain(error, &self.engine, name, || {
            self.check(Category::ModelRepository, call).is_ok().then_some(&call.access)
        })
    }

    /// Counts an open call in the server's budget.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the budget would be exceeded.
    pub(crate) fn reserve_call(&self) -> Result<ByteReservation, Error> {
        Ok(self.engine.inflight_bytes().reserve(CALL_BYTES)?)
    }
}

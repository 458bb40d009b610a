//! Server reflection: tools can call the server without its `.proto` files.
//!
//! tonic provides the service. This module calls it as a function from request to response, over the endpoint's own
//! connections.
use std::{convert::Infallible, pin::Pin};

use http::{Request, Response};
use hyper::body::Incoming;
use inference::Error;
use tonic::{body::Body, codegen::Service};
use tonic_reflection::server::Builder;

type ReflectionFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
type ReflectionCall = Box<dyn Fn(Request<Incoming>) -> ReflectionFuture + Send + Sync>;

/// Both versions of the reflection service.
pub(crate) struct Reflection {
    v1: ReflectionCall,
    v1alpha: ReflectionCall,
}

/// A version of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReflectionVersion {
    V1,
    V1Alpha,
}

impl Reflection {
    /// Describes every service of the endpoint.
    ///
    /// # Errors
    /// The descriptors cannot be read. That is an error of the build.
    pub(crate) fn new() -> Result<Self, Error> {
        let builder =
            || Builder::configure().register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET);
        let broken =
            |error| Error::internal(format!("the descriptors of the protocol cannot be read: {error}"));
        let v1 = builder().build_v1().map_err(broken)?;
        let v1alpha = builder().build_v1alpha().map_err(broken)?;
        Ok(Self {
            v1: Box::new(move |request| v1.clone().call(request)),
            v1alpha: Box::new(move |request| v1alpha.clone().call(request)),
        })
    }

    /// Answers a call of the only method of the service.
    pub(crate) async fn answer(
        &self,
        version: ReflectionVersion,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let call = match version {
            ReflectionVersion::V1 => &self.v1,
            ReflectionVersion::V1Alpha => &self.v1alpha,
        };
        let Ok(response) = call(request).await;
        response
    }
}

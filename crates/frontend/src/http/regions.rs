//! `/v2/systemsharedmemory` and `/v2/cudasharedmemory`: the regions that clients register.
use std::borrow::Cow;

use http::StatusCode;
use kserve::show;
use shared_memory::{CudaRegistration, RegionKind, SystemRegistration};
use vocabulary::Error;

use super::{
    base64_text,
    body::ResponseBody,
    call::HttpCall,
    context::HttpContext,
    json::{Document, JsonValue},
    reply::{self, HttpFailure, HttpOutcome},
    route_rules::{Methods, RouteRules},
};
use crate::access::Category;

/// `/v2/systemsharedmemory[/region/{R}]/{action}` and the same for CUDA
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegionsRoute<'p> {
    pub(super) kind: RegionKind,
    pub(super) region: Option<Cow<'p, str>>,
    pub(super) action: RegionAction,
}

/// What a client wants of regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionAction {
    Status,
    Register,
    Unregister,
}

pub(super) fn rules(route: &RegionsRoute<'_>) -> RouteRules<'static> {
    let methods = match route.action {
        RegionAction::Status => Methods::Get,
        RegionAction::Register | RegionAction::Unregister => Methods::Post,
    };
    RouteRules::new(Category::SharedMemory, methods)
}

pub(super) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    route: &RegionsRoute<'_>,
) -> HttpOutcome {
    let regions = &context.options.regions;
    let (kind, region) = (route.kind, route.region.as_deref());
    let body = match route.action {
        RegionAction::Status => show::regions(&regions.status(kind, region.unwrap_or_default())?).into(),
        RegionAction::Register => {
            register(context, call, kind, region).await?;
            ResponseBody::default()
        }
        RegionAction::Unregister => {
            regions.unregister(kind, region.unwrap_or_default())?;
            ResponseBody::default()
        }
    };
    Ok(reply::json(StatusCode::OK, body))
}

async fn register(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    kind: RegionKind,
    region: Option<&str>,
) -> Result<(), HttpFailure> {
    let regions = &context.options.regions;
    regions.check_allowed()?;
    let Some(name) = region else {
        // The rules of names refuse a region without one.
        match kind {
            RegionKind::System => {
                let (name, key) = (String::new(), String::new());
                regions.register_system(&SystemRegistration { name, key, offset: 0, byte_size: 0 })?;
            }
            RegionKind::Cuda => {
                let (name, raw_handle) = (String::new(), Vec::new());
                regions.register_cuda(&CudaRegistration { name, raw_handle, device_id: 0, byte_size: 0 })?;
            }
        }
        return Ok(());
    };
    let name = name.to_owned();
    match kind {
        RegionKind::System => {
            let region = context.read_members(call.body, move |json| system(&name, json)).await?;
            regions.register_system(&region)?;
        }
        RegionKind::Cuda => {
            let region = context.read_members(call.body, move |json| cuda(&name, json)).await?;
            regions.register_cuda(&region)?;
        }
    }
    Ok(())
}

/// As Triton: http_server.cc, HandleSystemSharedMemory.
fn system(name: &str, json: &[u8]) -> Result<SystemRegistration, Error> {
    let document = Document::parse_members(json)?;
    let body = document.root();
    let key = needed(body, "key")?.as_text()?.into_owned();
    let offset = body.find("offset").map_or(Ok(0), JsonValue::as_uint)?;
    let byte_size = needed(body, "byte_size")?.as_uint()?;
    Ok(SystemRegistration { name: name.to_owned(), key, offset, byte_size })
}

/// As Triton: http_server.cc, HandleCudaSharedMemory.
fn cuda(name: &str, json: &[u8]) -> Result<CudaRegistration, Error> {
    let document = Document::parse_members(json)?;
    let body = document.root();
    let handle = needed(body, "raw_handle")?.member("b64")?.as_bytes()?;
    let byte_size = needed(body, "byte_size")?.as_uint()?;
    let device_id = body.member("device_id")?.as_uint()?;
    // What is not base64 has the wrong length, too.
    let raw_handle = base64_text::decode(handle).unwrap_or_default();
    let device_id = i64::try_from(device_id).unwrap_or(i64::MAX);
    Ok(CudaRegistration { name: name.to_owned(), raw_handle, device_id, byte_size })
}

fn needed<'d>(body: JsonValue<'d>, member: &str) -> Result<JsonValue<'d>, Error> {
    body.find(member)
        .ok_or_else(|| Error::invalid(format!("Shared memory register request has no '{member}' field")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.unwrap_err().with_code()
    }

    #[test]
    fn a_registration_has_a_key_and_a_length() {
        let read = system("r", br#"{"key": "/k", "offset": 4096, "byte_size": 64, "other": []}"#).unwrap();
        let (name, key) = ("r".to_owned(), "/k".to_owned());
        assert_eq!(read, SystemRegistration { name, key, offset: 4096, byte_size: 64 });
        assert_eq!(system("r", br#"{"key": "/k", "byte_size": 64}"#).unwrap().offset, 0);
    }

    #[test]
    fn what_is_missing_in_a_registration_is_named_in_the_order_of_the_reference() {
        let of = |json: &str| refused(system("r", json.as_bytes()));
        let uint = "Internal: attempt to access JSON non-unsigned-integer as unsigned-integer";
        for empty in ["", "]", "}", ",", ":"] {
            let text = "Internal: failed to parse the request JSON buffer: The document is empty. at 0";
            assert_eq!(of(empty), text);
        }
        assert_eq!(of("{}"), "Invalid argument: Shared memory register request has no 'key' field");
        assert_eq!(of("[]"), "Invalid argument: Shared memory register request has no 'key' field");
        assert_eq!(of(r#"{"key":1}"#), "Internal: attempt to access JSON non-string as string");
        assert_eq!(of(r#"{"key":"/k","offset":-1}"#), uint);
        assert_eq!(
            of(r#"{"key":"/k","offset":1}"#),
            "Invalid argument: Shared memory register request has no 'byte_size' field"
        );
        assert_eq!(of(r#"{"key":"/k","byte_size":1.5}"#), uint);
    }

    #[test]
    fn a_handle_of_cuda_is_read_from_base64() {
        let of = |handle: &str| {
            let json = format!(r#"{{"raw_handle":{{"b64":"{handle}"}},"byte_size":64,"device_id":3}}"#);
            cuda("c", json.as_bytes()).unwrap()
        };
        assert_eq!((of("AQI=").raw_handle, of("AQI=").device_id, of("AQI=").byte_size), (vec![1, 2], 3, 64));
        assert_eq!(of("no base64!").raw_handle, [0; 0]);
        let refused = |json: &str| refused(cuda("c", json.as_bytes()));
        let missing =
            |member| format!("Invalid argument: Shared memory register request has no '{member}' field");
        assert_eq!(refused("{}"), missing("raw_handle"));
        assert_eq!(
            refused(r#"{"raw_handle":{}}"#),
            "Internal: attempt to access non-existing object member 'b64'"
        );
        assert_eq!(refused(r#"{"raw_handle":{"b64":""}}"#), missing("byte_size"));
        assert_eq!(
            refused(r#"{"raw_handle":{"b64":""},"byte_size":1}"#),
            "Internal: attempt to access non-existing object member 'device_id'"
        );
    }
}

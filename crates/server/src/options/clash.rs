//! Two endpoints cannot listen on one address and port.

use frontend::port::{host_of, unix_path};

use super::typed::TypedOptions;

struct ConfiguredEndpoint<'a> {
    name: &'static str,
    address: &'a str,
    port: i64,
    /// The ports that other endpoints on the same address may use.
    others_within: Option<(i64, i64)>,
}

/// Checks the ports of every endpoint that is on. Addresses are compared as text, without their family and brackets.
/// Port 0 never conflicts, because the system chooses a separate port for each endpoint. The ports of unix sockets do
/// not matter.
///
/// # Errors
/// The text about the first conflict.
pub(super) fn check(typed: &TypedOptions) -> Result<(), String> {
    let endpoints = endpoints(typed);
    for (index, this) in endpoints.iter().enumerate() {
        for (other_index, other) in endpoints.iter().enumerate() {
            // Each pair is compared once, unless this endpoint restricts all the others.
            let skip = other_index == index || (other_index < index && this.others_within.is_none());
            if skip {
                continue;
            }
            if let Some(path) = unix_path(this.address)
                && unix_path(other.address) == Some(path)
            {
                return Err(format!(
                    "The server cannot listen to {} requests and {} requests at the same unix socket {}",
                    this.name,
                    other.name,
                    path.display()
                ));
            }
            if host_of(this.address) != host_of(other.address) {
                continue;
            }
            if let Some((low, high)) =
                this.others_within.filter(|(low, high)| !(*low..=*high).contains(&other.port))
            {
                return Err(format!(
                    "The server cannot listen to {} requests at port {}, allowed port range is [{low}, {high}]",
                    other.name, other.port
                ));
            }
            if this.port == other.port && this.port != 0 {
                return Err(format!(
                    "The server cannot listen to {} requests and {} requests at the same address and port {}:{}",
                    this.name, other.name, this.address, this.port
                ));
            }
        }
    }
    Ok(())
}

fn endpoints(typed: &TypedOptions) -> Vec<ConfiguredEndpoint<'_>> {
    let TypedOptions { http, grpc, metrics, outside, .. } = typed;
    let metrics_address = if metrics.address.is_empty() { &http.address } else { &metrics.address };
    let endpoint = |name, address, port| ConfiguredEndpoint { name, address, port, others_within: None };
    let all = [
        (http.allow, endpoint("HTTP", &http.address, http.port)),
        (grpc.allow, endpoint("GRPC", &grpc.address, grpc.port)),
        (metrics.allow, endpoint("metrics", metrics_address, metrics.port)),
        (
            outside.allow_sagemaker,
            ConfiguredEndpoint {
                others_within: outside.sagemaker_safe_range,
                ..endpoint("SageMaker", "0.0.0.0", outside.sagemaker_port)
            },
        ),
        (outside.allow_vertex_ai, endpoint("Vertex AI", "0.0.0.0", outside.vertex_ai_port)),
    ];
    all.into_iter().filter_map(|(on, endpoint)| on.then_some(endpoint)).collect()
}

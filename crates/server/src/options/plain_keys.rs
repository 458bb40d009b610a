//! Tells the operator where keys of clients travel in clear.

use std::net::IpAddr;

use frontend::port::{host_of, unix_path};

use super::typed::TypedOptions;

/// The warning about ports on which clients send keys without TLS, if there are any. What does not leave the machine does
/// not count.
pub(super) fn warning(typed: &TypedOptions) -> Option<String> {
    let TypedOptions { http, grpc, outside, ports, .. } = typed;
    let has_keys = !ports.api_key_file.is_empty();
    let http_has_keys = has_keys || !http.restrictions.is_empty();
    let grpc_has_keys = has_keys || !grpc.restrictions.is_empty();
    let all = [
        ("HTTP", http.allow, &*http.address, http.tls.on, http_has_keys),
        ("gRPC", grpc.allow, &*grpc.address, grpc.tls.on, grpc_has_keys),
        ("SageMaker", outside.allow_sagemaker, "0.0.0.0", http.tls.on, http_has_keys),
        ("Vertex AI", outside.allow_vertex_ai, "0.0.0.0", http.tls.on, http_has_keys),
    ];
    let in_clear = all.iter().filter(|(_, is_on, address, has_tls, has_keys)| {
        *is_on && *has_keys && !has_tls && !is_of_this_machine(address)
    });
    let names: Vec<_> = in_clear.map(|(name, ..)| *name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Warning: clients send their keys in clear to these ports: {}. '--http-use-ssl' and '--grpc-use-ssl' encrypt \
             them, or a proxy.",
            names.join(", ")
        )
    })
}

fn is_of_this_machine(address: &str) -> bool {
    let host = host_of(address);
    unix_path(address).is_some()
        || host == "localhost"
        || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

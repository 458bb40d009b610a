//! What a user may open when the server is ready, as links.
use std::net::{Ipv4Addr, SocketAddr};

use super::{endpoint_service::EndpointService, ports::Credentials};
use crate::options::HttpProtocolSettings;

/// The status page and the description of the API, if they are served, then the ports. Unix sockets are left out.
pub(super) fn links(
    address_of: impl Fn(EndpointService) -> Option<SocketAddr>,
    credentials: &Credentials,
    pages: &HttpProtocolSettings,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(address) = address_of(EndpointService::Http) {
        let origin = origin(address, credentials.http.is_some());
        if pages.shows_status {
            lines.push(format!("status page: {origin}/status"));
        }
        if pages.describes_itself {
            lines.push(format!("description of the API: {origin}/docs"));
        }
        lines.push(format!("HTTP: {origin}"));
    }
    if let Some(address) = address_of(EndpointService::Grpc) {
        let scheme = if credentials.grpc.is_some() { "grpcs" } else { "grpc" };
        lines.push(format!("gRPC: {scheme}://{}", host(address)));
    }
    if let Some(address) = address_of(EndpointService::Metrics) {
        lines.push(format!("metrics: {}/metrics", origin(address, credentials.metrics.is_some())));
    }
    lines
}

fn origin(address: SocketAddr, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "https" } else { "http" };
    format!("{scheme}://{}", host(address))
}

/// A server that listens on all addresses is reached by this name on its own machine.
fn host(address: SocketAddr) -> String {
    let is_own = address.ip().is_unspecified() || address.ip() == Ipv4Addr::LOCALHOST;
    if is_own { format!("localhost:{}", address.port()) } else { address.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_this_machine_unless_the_port_has_another_address() {
        let origin = |address: &str| origin(address.parse().unwrap(), address.contains(":443"));
        assert_eq!(origin("0.0.0.0:8000"), "http://localhost:8000");
        assert_eq!(origin("[::]:8000"), "http://localhost:8000");
        assert_eq!(origin("127.0.0.1:1"), "http://localhost:1");
        assert_eq!(origin("192.0.2.1:443"), "https://192.0.2.1:443");
        assert_eq!(origin("[2001:db8::1]:8000"), "http://[2001:db8::1]:8000");
    }
}

//! Options that limit, on all ports, what clients may hold and how long they may take.

use std::time::Duration;

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, checked};
use crate::options::typed::TypedOptions;
use crate::options::values;

pub(super) const CONNECTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "max-connections",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.max_connections = value),
        "The maximum number of HTTP and gRPC connections together. The limit is lower if the system allows fewer open \
         files. The server refuses connections beyond the limit with status 503 over HTTP, UNAVAILABLE over gRPC, and \
         closes them.",
    )
    .default("10000"),
    OptionSpec::new(
        "http-max-connections",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.clients.http_max_connections = value),
        "The maximum number of HTTP connections. 0: only --max-connections limits them.",
    )
    .default("0"),
    OptionSpec::new(
        "grpc-max-connections",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.clients.grpc_max_connections = value),
        "The maximum number of gRPC connections. 0: only --max-connections limits them.",
    )
    .default("0"),
    OptionSpec::new(
        "metrics-max-connections",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.metrics_max_connections = value),
        "The maximum number of connections of the metrics port. They do not count in --max-connections, so clients can \
         read metrics while the other ports are full.",
    )
    .default("100"),
    OptionSpec::new(
        "max-connections-per-address",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.clients.max_connections_per_address = value),
        "The maximum number of connections from one address, within each of the limits above: of all ports but that of \
         metrics together, of HTTP, of gRPC, and of the metrics port. 0: a quarter of each. An IPv6 address counts with \
         its network of 64 bits. Unix sockets have no such limit. Behind a proxy, all clients have the address of the \
         proxy: set this to --max-connections.",
    )
    .default("0"),
    OptionSpec::new(
        "grpc-max-concurrent-streams",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.max_concurrent_streams = value),
        "The maximum number of calls in flight on one gRPC connection. gRPC clients delay further calls until others \
         have ended.",
    )
    .default("1024"),
    OptionSpec::new(
        "max-request-byte-size",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.clients.max_request_byte_size = value),
        "The largest request, in bytes, with binary tensors: the body over HTTP, a message over gRPC. A gRPC message \
         cannot exceed 2147483647 bytes. For JSON the limit --http-max-input-size applies, too.",
    )
    .default("2147483647"),
    timeout(
        "client-header-timeout-secs",
        |typed, value| {
            typed.clients.header_timeout = seconds(value)?;
            Ok(())
        },
        "The server closes a connection if the client does not send a whole request head within this many seconds. 0: \
         no limit. The time for the first head begins with the connection.",
    )
    .default("60"),
    timeout(
        "client-body-timeout-secs",
        |typed, value| {
            typed.clients.body_timeout = seconds(value)?;
            Ok(())
        },
        "The period for request bodies, in seconds. The server ends a request if fewer than \
         --client-body-min-byte-size bytes of its body arrive within a period. 0: no limit.",
    )
    .default("60"),
    OptionSpec::new(
        "client-body-min-byte-size",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.body_min_byte_size = value),
        "How many bytes of a request body must arrive within each period of --client-body-timeout-secs, unless the \
         body ends.",
    )
    .default("4096"),
    timeout(
        "client-write-timeout-secs",
        |typed, value| {
            typed.clients.write_timeout = seconds(value)?;
            Ok(())
        },
        "If responses wait for a client, and the client reads nothing, or its machine acknowledges nothing, for this \
         many seconds, the server ends its connection or gRPC call and cancels its requests. 0: no limit.",
    )
    .default("60"),
    timeout(
        "client-idle-timeout-secs",
        |typed, value| {
            typed.clients.idle_timeout = seconds(value)?;
            Ok(())
        },
        "The server closes a connection that has had no request for this many seconds. It closes the connection at the \
         latest after twice that time. 0: no limit.",
    )
    .default("3600"),
];

const fn timeout(
    name: &'static str,
    set: fn(&mut TypedOptions, &str) -> Result<(), String>,
    help: &'static str,
) -> OptionSpec {
    checked(name, "seconds", set, help).takes("a number of seconds from 0 to 2147483647")
}

/// Seconds, optionally with a fraction. `None` for 0.
fn seconds(text: &str) -> Result<Option<Duration>, String> {
    let seconds = values::float(text)?;
    match Duration::try_from_secs_f64(seconds) {
        // Timers do not support much longer times.
        Ok(time) if seconds <= f64::from(i32::MAX) => Ok(Some(time).filter(|time| !time.is_zero())),
        _ => Err(format!("Provided option value is out of bound. Got {text}")),
    }
}

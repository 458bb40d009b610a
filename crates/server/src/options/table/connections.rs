//! Options about what clients may hold and how long they may take, on all ports.

use std::time::Duration;

use super::{INT_MAX, OptionValue, Spec, TypedOptions, checked, values};

pub(super) const CONNECTIONS: &[Spec] = &[
    Spec::new(
        "max-connections",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.max_connections = value),
        "How many HTTP and gRPC connections there may be together. The limit is lower where the system allows fewer open \
         files. A connection beyond it gets status 503 over HTTP, UNAVAILABLE over gRPC, and is closed.",
    )
    .default("10000"),
    Spec::new(
        "http-max-connections",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.clients.http_max_connections = value),
        "How many of them may be HTTP connections; 0 for all.",
    )
    .default("0"),
    Spec::new(
        "grpc-max-connections",
        OptionValue::Integer(0, INT_MAX, |typed, value| typed.clients.grpc_max_connections = value),
        "How many of them may be gRPC connections; 0 for all.",
    )
    .default("0"),
    Spec::new(
        "metrics-max-connections",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.metrics_max_connections = value),
        "How many connections the metrics port may have. They do not count in --max-connections, so that metrics can be \
         read while the other ports are full.",
    )
    .default("100"),
    Spec::new(
        "grpc-max-concurrent-streams",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.max_concurrent_streams = value),
        "How many calls of one gRPC connection may be under way. gRPC clients keep further calls back until others have \
         ended.",
    )
    .default("1024"),
    Spec::new(
        "max-request-byte-size",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.clients.max_request_byte_size = value),
        "The largest request in bytes, binary tensors included: the body over HTTP, a message over gRPC, where it cannot \
         exceed 2147483647. The limit --http-max-input-size for JSON holds besides.",
    )
    .default("2147483647"),
    timeout(
        "client-header-timeout-secs",
        |typed, value| {
            typed.clients.header_timeout = seconds(value)?;
            Ok(())
        },
        "Close a connection whose client does not send a whole request head within so many seconds; 0 for no limit. The \
         time for the first head begins with the connection.",
    )
    .default("60"),
    timeout(
        "client-body-timeout-secs",
        |typed, value| {
            typed.clients.body_timeout = seconds(value)?;
            Ok(())
        },
        "End a request of whose body fewer than --client-body-min-byte-size bytes have come within so many seconds, and \
         again within each such time; 0 for no limit.",
    )
    .default("60"),
    Spec::new(
        "client-body-min-byte-size",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.clients.body_min_byte_size = value),
        "How many bytes of a request body must come within --client-body-timeout-secs, unless it ends.",
    )
    .default("4096"),
    timeout(
        "client-write-timeout-secs",
        |typed, value| {
            typed.clients.write_timeout = seconds(value)?;
            Ok(())
        },
        "End the connection, or the gRPC call, of a client that takes nothing for so many seconds although responses wait \
         for it; 0 for no limit. Its requests are cancelled.",
    )
    .default("60"),
    timeout(
        "client-idle-timeout-secs",
        |typed, value| {
            typed.clients.idle_timeout = seconds(value)?;
            Ok(())
        },
        "Close a connection that has had no request for so many seconds, and at the latest after twice that time; 0 for no \
         limit.",
    )
    .default("3600"),
];

const fn timeout(
    name: &'static str,
    set: fn(&mut TypedOptions, &str) -> Result<(), String>,
    help: &'static str,
) -> Spec {
    checked(name, "seconds", set, help)
}

/// Seconds, perhaps with a fraction; `None` for 0.
fn seconds(text: &str) -> Result<Option<Duration>, String> {
    let seconds = values::float(text)?;
    match Duration::try_from_secs_f64(seconds) {
        // Timers cannot go much further.
        Ok(time) if seconds <= f64::from(i32::MAX) => Ok(Some(time).filter(|time| !time.is_zero())),
        _ => Err(format!("Provided option value is out of bound. Got {text}")),
    }
}

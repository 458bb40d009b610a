//! Options of the gRPC endpoint.

use super::{INT_MAX, OptionValue, Spec, boolean, checked, count, port, text, values};

const RESTRICTION: values::RestrictionKind = values::RestrictionKind {
    option: "grpc-restricted-protocol",
    noun: "protocol",
    header_prefix: "triton-grpc-protocol-",
};

pub(super) const GRPC: &[Spec] = &[
    boolean("allow-grpc", |typed, value| typed.grpc.allow = value, "Listen for gRPC requests.")
        .default("true"),
    text(
        "grpc-address",
        |typed, value| typed.grpc.address = value.to_owned(),
        "The address to listen on for gRPC.",
    )
    .default("0.0.0.0"),
    port(
        "grpc-port",
        |typed, value| typed.grpc.port = value,
        "The port to listen on for gRPC; 0 lets the system choose.",
    )
    .default("8001"),
    boolean(
        "reuse-grpc-port",
        |typed, value| typed.grpc.reuse_port = value,
        "Share the gRPC port with other servers that have this option set too. They should serve \
             the same models.",
    )
    .default("false"),
    text(
        "grpc-header-forward-pattern",
        |typed, value| typed.grpc.header_forward_pattern = value.to_owned(),
        "A regular expression: metadata whose key has a part that it matches become parameters of the \
         request.",
    )
    .default(""),
    checked(
        "grpc-infer-thread-count",
        "integer",
        |_, value| match values::integer(value, -INT_MAX - 1, INT_MAX)? {
            2..=128 => Ok(()),
            _ => Err("invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.".into()),
        },
        "How many threads to have for inference over gRPC, 2 to 128.",
    )
    .default("2")
    .without_effect(super::SHARED_THREADS),
    count(
        "grpc-infer-allocation-pool-size",
        |_, _| (),
        "How many request states to keep for reuse.",
    )
    .default("8")
    .without_effect("no such states are kept"),
    checked(
        "grpc-max-response-pool-size",
        "integer",
        |typed, value| match values::integer(value, -INT_MAX - 1, INT_MAX)? {
            ..=0 => Err("Error: --grpc-max-response-pool-size must be greater than 0.".into()),
            size => {
                typed.grpc.max_response_pool_size = size;
                Ok(())
            }
        },
        "A model waits for the client while so many responses of one request of a stream are unread. Without the option no \
         model waits for a client; see --max-unread-response-bytes.",
    )
    .default("2147483647"),
    boolean(
        "grpc-use-ssl",
        |typed, value| typed.grpc.use_tls = value,
        "Encrypt gRPC; needs --grpc-server-cert and --grpc-server-key.",
    )
    .default("false"),
    // No default of its own: giving it, whatever the value, also switches encryption on.
    boolean(
        "grpc-use-ssl-mutual",
        |typed, value| {
            typed.grpc.mutual_tls = value;
            typed.grpc.use_tls = true;
        },
        "Encrypt gRPC and, if true, let only clients in that show a certificate signed by one in \
             --grpc-root-cert.",
    )
    .default_note("false"),
    text(
        "grpc-server-cert",
        |typed, value| typed.grpc.server_cert = value.to_owned(),
        "A PEM file: the server's certificate chain.",
    )
    .default(""),
    text(
        "grpc-server-key",
        |typed, value| typed.grpc.server_key = value.to_owned(),
        "A PEM file: the server's private key.",
    )
    .default(""),
    text(
        "grpc-root-cert",
        |typed, value| typed.grpc.root_cert = value.to_owned(),
        "A PEM file: who may sign client certificates.",
    )
    .default(""),
    checked(
        "grpc-infer-response-compression-level",
        "none|low|medium|high",
        |typed, value| {
            typed.grpc.compression = value.to_ascii_lowercase();
            match typed.grpc.compression.as_str() {
                "none" | "low" | "medium" | "high" => Ok(()),
                _ => Err("invalid argument for --grpc_infer_response_compression_level".into()),
            }
        },
        "How strongly to compress inference responses for clients that accept it: none, low, medium or high.",
    )
    .default("none"),
    count(
        "grpc-keepalive-time",
        |typed, value| typed.grpc.keepalive.time_ms = value,
        "Ping a client that has sent nothing for so many milliseconds; 2147483647 for never.",
    )
    .default("7200000"),
    count(
        "grpc-keepalive-timeout",
        |typed, value| typed.grpc.keepalive.timeout_ms = value,
        "Close a connection whose client sends nothing for so many milliseconds after a ping.",
    )
    .default("20000"),
    boolean(
        "grpc-keepalive-permit-without-calls",
        |typed, value| typed.grpc.keepalive.permit_without_calls = value,
        "Ping connections without open calls too, and let their clients ping as often as others.",
    )
    .default("false"),
    count(
        "grpc-http2-max-pings-without-data",
        |typed, value| typed.grpc.keepalive.max_pings_without_data = value,
        "How many pings to send while no data or headers are to be sent; 0 for any number.",
    )
    .default("2"),
    count(
        "grpc-http2-min-recv-ping-interval-without-data",
        |typed, value| typed.grpc.keepalive.min_recv_ping_interval_without_data_ms = value,
        "How many milliseconds a client's pings must be apart while the server sends nothing. A ping that comes sooner is \
         a strike. Without open calls it is two hours, unless --grpc-keepalive-permit-without-calls is true.",
    )
    .default("300000"),
    count(
        "grpc-http2-max-ping-strikes",
        |typed, value| typed.grpc.keepalive.max_ping_strikes = value,
        "How many strikes a connection may have before it is closed; 0 for any number.",
    )
    .default("2"),
    Spec::new(
        "grpc-max-connection-age",
        CONNECTION_AGE,
        "Close connections after so many milliseconds, calls being given the grace.",
    )
    .default_note("no limit"),
    Spec::new(
        "grpc-max-connection-age-grace",
        CONNECTION_GRACE,
        "How many milliseconds calls may go on after that.",
    )
    .default_note("no limit"),
    checked(
        "grpc-restricted-protocol",
        "<protocols>:<key>=<value>",
        |typed, value| values::restrict(value, RESTRICTION, &mut typed.grpc.restrictions),
        "Let only requests with the metadata triton-grpc-protocol-<key>: <value> use these parts of \
             the protocol, separated by commas: health, metadata, inference, shared-memory, \
             model-config, model-repository, statistics, trace, logging. May be given several times.",
    ),
];

const CONNECTION_AGE: OptionValue =
    OptionValue::Integer(0, INT_MAX, |typed, value| typed.grpc.keepalive.max_connection_age_ms = value);
const CONNECTION_GRACE: OptionValue =
    OptionValue::Integer(0, INT_MAX, |typed, value| typed.grpc.keepalive.max_connection_age_grace_ms = value);

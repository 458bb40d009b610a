//! Options of the gRPC endpoint.

use frontend::access::Category;

use super::option_spec::{
    INT_MAX, OptionSpec, OptionValue, SHARED_THREADS, boolean, checked, count, port, text,
};
use crate::options::values;

const RESTRICTION: values::RestrictionKind = values::RestrictionKind {
    option: "grpc-restricted-protocol",
    noun: "protocol",
    header_prefix: "triton-grpc-protocol-",
    lacks: Some(Category::Status),
};

pub(super) const GRPC: &[OptionSpec] = &[
    boolean("allow-grpc", |typed, value| typed.grpc.allow = value, "Listen for gRPC requests.")
        .default("true"),
    text(
        "grpc-address",
        |typed, value| typed.grpc.address = values::address(value),
        "The address to listen on for gRPC, or unix:<path> for a unix socket. Empty: the default.",
    )
    .default(values::ALL_ADDRESSES),
    port(
        "grpc-port",
        |typed, value| typed.grpc.port = value,
        "The port to listen on for gRPC; 0 lets the system choose.",
    )
    .default("8001"),
    boolean(
        "reuse-grpc-port",
        |typed, value| typed.grpc.reuse_port = value,
        "Share the gRPC port with other servers that set this option, too. All of them should serve \
             the same models.",
    )
    .default("false"),
    boolean(
        "grpc-reflection",
        |typed, value| typed.grpc.reflection = value,
        "Describe the gRPC services to tools such as grpcurl (server reflection). It belongs to 'metadata' of \
         --grpc-restricted-protocol.",
    )
    .default("true"),
    text(
        "grpc-header-forward-pattern",
        |typed, value| typed.grpc.header_forward_pattern = value.to_owned(),
        "A regular expression. If it matches a part of a metadata key, the server makes the metadata a parameter of \
         the request.",
    )
    .default(""),
    checked(
        "grpc-infer-thread-count",
        "integer",
        |_, value| match values::integer(value, -INT_MAX - 1, INT_MAX)? {
            2..=128 => Ok(()),
            _ => Err("invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.".into()),
        },
        "The number of threads for inference over gRPC, 2 to 128.",
    )
    .takes("an integer from 2 to 128")
    .default("2")
    .without_effect(SHARED_THREADS),
    count(
        "grpc-infer-allocation-pool-size",
        |_, _| (),
        "The number of request states that the server keeps for reuse.",
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
        "The maximum number of unread responses of one request of a stream. At this number the model waits until the \
         client reads. Without the option no model waits for a client; see --max-unread-response-bytes.",
    )
    .takes("an integer from 1 to 2147483647")
    .default("2147483647"),
    boolean(
        "grpc-use-ssl",
        |typed, value| typed.grpc.tls.on = value,
        "Encrypt gRPC with TLS. Needs --grpc-server-cert and --grpc-server-key.",
    )
    .default("false"),
    // The option has no default value: if it is given, with any value, it also switches TLS on.
    boolean(
        "grpc-use-ssl-mutual",
        |typed, value| {
            typed.grpc.tls.mutual = value;
            typed.grpc.tls.on = true;
        },
        "Encrypt gRPC with TLS. If true, the server accepts only clients with a certificate that a certificate in \
             --grpc-root-cert has signed.",
    )
    .default_note("false"),
    text(
        "grpc-server-cert",
        |typed, value| typed.grpc.tls.server_cert = value.to_owned(),
        "A PEM file: the server's certificate chain.",
    )
    .default(""),
    text(
        "grpc-server-key",
        |typed, value| typed.grpc.tls.server_key = value.to_owned(),
        "A PEM file: the server's private key.",
    )
    .default(""),
    text(
        "grpc-root-cert",
        |typed, value| typed.grpc.tls.root_cert = value.to_owned(),
        "A PEM file: the certificates that may sign client certificates.",
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
        "How strongly the server compresses inference responses for clients that accept compression: none, low, medium \
         or high.",
    )
    .default("none"),
    count(
        "grpc-keepalive-time",
        |typed, value| typed.grpc.keepalive.time_ms = value,
        "The server pings a client that has sent nothing for this many milliseconds. 2147483647: never.",
    )
    .default("7200000"),
    count(
        "grpc-keepalive-timeout",
        |typed, value| typed.grpc.keepalive.timeout_ms = value,
        "The server closes a connection if the client sends nothing for this many milliseconds after a ping.",
    )
    .default("20000"),
    boolean(
        "grpc-keepalive-permit-without-calls",
        |typed, value| typed.grpc.keepalive.permit_without_calls = value,
        "The server also pings connections without calls in flight, and their clients may ping as often as other \
         clients.",
    )
    .default("false"),
    count(
        "grpc-http2-max-pings-without-data",
        |typed, value| typed.grpc.keepalive.max_pings_without_data = value,
        "How many pings the server may send to a client without data or headers in between. 0: any number.",
    )
    .default("2"),
    count(
        "grpc-http2-min-recv-ping-interval-without-data",
        |typed, value| typed.grpc.keepalive.min_recv_ping_interval_without_data_ms = value,
        "The minimum time between two pings of a client while the server sends nothing, in milliseconds. A ping that \
         comes sooner is a strike. For connections without calls in flight the minimum is two hours, unless \
         --grpc-keepalive-permit-without-calls is true.",
    )
    .default("300000"),
    count(
        "grpc-http2-max-ping-strikes",
        |typed, value| typed.grpc.keepalive.max_ping_strikes = value,
        "How many strikes a connection may have. The server closes it at the next strike. 0: any number.",
    )
    .default("2"),
    OptionSpec::new(
        "grpc-max-connection-age",
        CONNECTION_AGE,
        "The server closes a connection after about this many milliseconds. Its calls may go on for the time of \
         --grpc-max-connection-age-grace. -1: no limit.",
    )
    .default_note("no limit"),
    OptionSpec::new(
        "grpc-max-connection-age-grace",
        CONNECTION_GRACE,
        "How many milliseconds calls may go on after the time of --grpc-max-connection-age. -1: no limit.",
    )
    .default_note("no limit"),
    checked(
        "grpc-restricted-protocol",
        "<protocols>:<key>=<value>",
        |typed, value| values::restrict(value, RESTRICTION, &mut typed.grpc.restrictions),
        "Restrict these parts of the protocol to requests with the metadata triton-grpc-protocol-<key>: <value>. \
             Separate the parts by commas: health, metadata, inference, shared-memory, \
             model-config, model-repository, statistics, trace, logging. May be given several times.",
    ),
];

const CONNECTION_AGE: OptionValue =
    OptionValue::Integer(-1, INT_MAX, |typed, value| typed.grpc.keepalive.max_connection_age_ms = value);
const CONNECTION_GRACE: OptionValue = OptionValue::Integer(-1, INT_MAX, |typed, value| {
    typed.grpc.keepalive.max_connection_age_grace_ms = value;
});

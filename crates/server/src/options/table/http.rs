//! Options of the HTTP endpoint.

use super::option_spec::{OptionSpec, OptionValue, SHARED_THREADS, boolean, checked, count, port, text};
use crate::options::values;

const RESTRICTION: values::RestrictionKind =
    values::RestrictionKind { option: "http-restricted-api", noun: "api", header_prefix: "", lacks: None };

pub(super) const HTTP: &[OptionSpec] = &[
    boolean("allow-http", |typed, value| typed.http.allow = value, "Listen for HTTP requests.")
        .default("true"),
    text(
        "http-address",
        |typed, value| typed.http.address = values::address(value),
        "The address to listen on for HTTP, or unix:<path> for a unix socket. Empty: the default.",
    )
    .default(values::ALL_ADDRESSES),
    port(
        "http-port",
        |typed, value| typed.http.port = value,
        "The port to listen on for HTTP; 0 lets the system choose.",
    )
    .default("8000"),
    boolean(
        "reuse-http-port",
        |typed, value| typed.http.reuse_port = value,
        "Share the HTTP port with other servers that set this option, too. All of them should serve \
             the same models.",
    )
    .default("false"),
    text(
        "http-header-forward-pattern",
        |typed, value| typed.http.header_forward_pattern = value.to_owned(),
        "A regular expression. If it matches a part of a header's name, in any case, the server makes the header a \
         parameter of the request.",
    )
    .default(""),
    count("http-thread-count", |_, _| (), "The number of threads for HTTP.")
    .default("8")
    .without_effect(SHARED_THREADS),
    checked(
        "http-max-input-size",
        "integer",
        |typed, value| match values::integer(value, i64::MIN, i64::MAX)? {
            ..=0 => Err("Error: --http-max-input-size must be greater than 0.".into()),
            size => {
                typed.http.max_input_size = size;
                Ok(())
            }
        },
        "The largest JSON part of an HTTP request in bytes, and the largest request after decompression. \
         --max-request-byte-size limits whole bodies.",
    )
    .takes("an integer from 1 to 9223372036854775807")
    .default("67108864"),
    boolean(
        "http-openapi",
        |typed, value| typed.http.describes_itself = value,
        "Describe the HTTP endpoint and the models at /openapi.json (OpenAPI 3.1), and show the description at /docs. Both \
         belong to the API 'metadata' of --http-restricted-api.",
    )
    .default("true"),
    boolean(
        "allow-status-page",
        |typed, value| typed.http.shows_status = value,
        "Tell people what the server does: queues, slots, batches and times at /v2/explain, which 'nereid explain' asks, and a \
         page at /status. They belong to the API 'status' of --http-restricted-api, and also need the headers of 'statistics' \
         and 'model-repository'.",
    )
    .default("true"),
    OptionSpec::new(
        "status-log-lines",
        OptionValue::Integer(0, 1_000, |typed, value| typed.http.status_log_lines = value),
        "The number of log lines that the server keeps for the status page, in at most 64 KiB. They also belong to the API \
         'logging'. 0 keeps none.",
    )
    .default("0"),
    boolean(
        "http-use-ssl",
        |typed, value| typed.http.tls.on = value,
        "Encrypt HTTP with TLS. Needs --http-server-cert and --http-server-key.",
    )
    .default("false"),
    // As for gRPC: if the option is given, with any value, it also switches TLS on.
    boolean(
        "http-use-ssl-mutual",
        |typed, value| {
            typed.http.tls.mutual = value;
            typed.http.tls.on = true;
        },
        "Encrypt HTTP with TLS. If true, the server accepts only clients with a certificate that a certificate in \
         --http-root-cert has signed.",
    )
    .default_note("false"),
    text(
        "http-server-cert",
        |typed, value| typed.http.tls.server_cert = value.to_owned(),
        "A PEM file: the certificate chain of the server for HTTP.",
    )
    .default(""),
    text(
        "http-server-key",
        |typed, value| typed.http.tls.server_key = value.to_owned(),
        "A PEM file: the private key of the server for HTTP.",
    )
    .default(""),
    text(
        "http-root-cert",
        |typed, value| typed.http.tls.root_cert = value.to_owned(),
        "A PEM file: the certificates that may sign client certificates for HTTP.",
    )
    .default(""),
    checked(
        "http-restricted-api",
        "<apis>:<key>=<value>",
        |typed, value| values::restrict(value, RESTRICTION, &mut typed.http.restrictions),
        "Restrict these parts of the protocol to requests with the header <key>: <value>. Separate the parts by \
             commas: health, metadata, inference, shared-memory, model-config, \
             model-repository, statistics, trace, logging, status. May be given several times.",
    ),
    checked(
        "http-allowed-origins",
        "<origin>[,<origin>...]",
        |typed, value| {
            value.split(',').try_for_each(|origin| typed.http.origin_rules.allow_origin(origin.trim()))?;
            if typed.http.origin_rules.allows_any_origin() {
                let text = "Warning: '--http-allowed-origins=*' lets every web page that a user of this network visits \
                            send requests to this server.";
                if !typed.warnings.iter().any(|warning| warning == text) {
                    typed.warnings.push(text.to_owned());
                }
            }
            Ok(())
        },
        "Origins of web pages, <scheme>://<host>[:<port>], that may send requests and read the responses; '*' for all. On \
         all HTTP ports, those of metrics, SageMaker and Vertex AI too, the server refuses what a browser sends for pages of \
         other origins than these and the server's own. May be given several times.",
    ),
    checked(
        "http-allowed-hosts",
        "<host>[,<host>...]",
        |typed, value| value.split(',').try_for_each(|host| typed.http.origin_rules.allow_host(host.trim())),
        "The host names and addresses, <host>[:<port>], that requests may name in the header Host, on all HTTP ports. A \
         browser that was led here under another name (DNS rebinding) is refused. May be given several times.",
    )
    .default_note("any host"),
];

//! Options of the server as a whole and of its log.

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, boolean, checked, flag, integer, text};
use crate::color::ColorChoice;
use crate::logging::LogFormat;
use crate::options::values;

pub(super) const GLOBAL: &[OptionSpec] = &[
    flag("help", |_| (), "Print this text and exit. In short: -h."),
    flag(
        "version",
        |_| (),
        "Print the version, and the Triton release whose behaviour it follows, and exit. In short: -V.",
    ),
];

pub(super) const SERVER: &[OptionSpec] = &[
    text("id", |typed, value| typed.server.id = value.to_owned(), "The server's name in its metadata.")
        .default("triton"),
    integer(
        "exit-timeout-secs",
        |typed, value| typed.server.exit_timeout_secs = value.max(0),
        "How many seconds the server waits at its exit for requests in flight. After this time the process \
             ends with status 1. The time begins after --shutdown-delay-secs. A negative number is 0.",
    )
    .default("30"),
    OptionSpec::new(
        "max-inflight-bytes",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.server.max_inflight_bytes = Some(value)),
        "How many bytes of requests the server holds at the same time. A request counts from its arrival until its \
         last response. A long response counts until it has been sent. The server refuses what exceeds the limit: \
         status 503 over HTTP, RESOURCE_EXHAUSTED over gRPC.",
    )
    .default_note("half of the memory"),
    OptionSpec::new(
        "max-unread-response-bytes",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.server.max_unread_response_bytes = Some(value)),
        "How many bytes of responses may wait for clients that read slowly. Beyond the limit, the server ends the \
         request whose client is furthest behind, with RESOURCE_EXHAUSTED.",
    )
    .default_note("a quarter of the memory"),
    OptionSpec::new(
        "max-intermediate-bytes",
        OptionValue::Integer(1, i64::MAX, |typed, value| typed.server.max_intermediate_bytes = Some(value)),
        "How many bytes of tensors the requests of one ensemble may hold between its steps. Beyond the limit, new \
         requests of the ensemble wait. The parameter MAX_INTERMEDIATE_BYTES of an ensemble takes precedence.",
    )
    .default_note("an eighth of the memory"),
];

pub(super) const LOGGING: &[OptionSpec] = &[
    checked(
        "log-verbose",
        "integer",
        |typed, value| {
            typed.logging.verbose = match value.to_ascii_lowercase().as_str() {
                "true" => 1,
                "false" => 0,
                _ => values::integer(value, -INT_MAX - 1, INT_MAX)?.max(0),
            };
            Ok(())
        },
        "How much detail to log. 0: none. 1: the states of models and requests. 2 and more: internal steps and \
             messages of ONNX Runtime. A negative number is 0.",
    )
    .takes("an integer from -2147483648 to 2147483647, true or false")
    .default("0"),
    boolean("log-info", |typed, value| typed.logging.info = value, "Log the events of normal operation.")
        .default("true"),
    boolean("log-warning", |typed, value| typed.logging.warning = value, "Log warnings.").default("true"),
    boolean("log-error", |typed, value| typed.logging.error = value, "Log errors.").default("true"),
    checked(
        "log-format",
        "default|ISO8601|json",
        |typed, value| {
            typed.logging.format = LogFormat::named(value).ok_or("invalid argument for --log-format")?;
            Ok(())
        },
        "The form of log lines. 'default': <level><month><day> <time> <process id> <file>:<line>] and the message. \
         'ISO8601': <date>T<time>Z <level> <process id> <file>:<line>] and the message. 'json': a JSON object.",
    )
    .default("default"),
    checked(
        "color",
        "auto|always|never",
        |typed, value| {
            typed.logging.color = ColorChoice::named(value).ok_or("invalid argument for --color")?;
            Ok(())
        },
        "Whether errors, reports and log lines for people have colours. 'auto': on a terminal, unless NO_COLOR is set. \
         Log files and JSON have none.",
    )
    .default("auto"),
    text(
        "log-file",
        |typed, value| typed.logging.file = value.to_owned(),
        "The server appends log lines to this file, instead of writing them to stdout (information) and stderr \
             (warnings and errors). If the server cannot open the file, it does not start. SIGHUP reopens the file, \
             for programs that rotate logs.",
    )
    .default(""),
];

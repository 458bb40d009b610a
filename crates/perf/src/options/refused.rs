//! The options of `perf_analyzer` that Nereid does not have: each with the reason and what to do instead.

use clap::{Arg, ArgAction, ArgMatches};

/// An option that is refused.
struct RefusedOption {
    name: &'static str,
    short: Option<char>,
    takes_value: bool,
    reason: &'static str,
}

const fn with_value(name: &'static str, reason: &'static str) -> RefusedOption {
    RefusedOption { name, short: None, takes_value: true, reason }
}

const fn flag(name: &'static str, reason: &'static str) -> RefusedOption {
    RefusedOption { name, short: None, takes_value: false, reason }
}

const IN_PROCESS: &str =
    "nereid perf measures servers over the network, and loads no server into its own process";
const METRICS: &str = "nereid perf reads no metrics of GPUs; scrape the metrics port of the server instead";
const TRACES: &str = "set traces at the server: docs/tracing.md";
const OTHER_SERVERS: &str = "nereid perf speaks the KServe v2 protocol only";
const OPENAI: &str = "nereid perf does not speak the protocol of OpenAI";

const REFUSED: [RefusedOption; 22] = [
    with_value(
        "periodic-concurrency-range",
        "the number of callers is constant within a point; use --concurrency-range",
    ),
    with_value(
        "request-period",
        "it belongs to --periodic-concurrency-range, which nereid perf does not have",
    ),
    with_value("session-concurrency", OPENAI),
    flag("fixed-schedule", "write the gaps between the requests into a file of --request-intervals"),
    with_value("bls-composing-models", "the statistics of models that a model calls are at /v2/models/stats"),
    with_value("model-signature-name", OTHER_SERVERS),
    with_value("endpoint", OPENAI),
    with_value("grpc-method", OTHER_SERVERS),
    with_value("proto", OTHER_SERVERS),
    with_value("triton-server-directory", IN_PROCESS),
    with_value("model-repository", IN_PROCESS),
    flag("collect-metrics", METRICS),
    with_value("metrics-url", METRICS),
    with_value("metrics-interval", METRICS),
    flag("enable-mpi", "start one nereid perf for each model, and add up what they report"),
    with_value("trace-level", TRACES),
    with_value("trace-rate", TRACES),
    with_value("trace-count", TRACES),
    with_value("log-frequency", TRACES),
    with_value("trace-file", TRACES),
    RefusedOption {
        name: "c",
        short: Some('c'),
        takes_value: true,
        reason: "use --concurrency-range with --latency-threshold",
    },
    RefusedOption {
        name: "d",
        short: Some('d'),
        takes_value: false,
        reason: "use --concurrency-range with --latency-threshold",
    },
];

/// The arguments, so that the command line knows them. The help does not show them.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    REFUSED.iter().map(|refused| {
        let argument = Arg::new(refused.name).hide(true);
        let argument = match refused.short {
            Some(short) => argument.short(short),
            None => argument.long(refused.name),
        };
        argument.action(if refused.takes_value { ArgAction::Append } else { ArgAction::Count })
    })
}

/// Refuses the first of these options that was given.
///
/// # Errors
/// The option and the reason.
pub(super) fn check(matches: &ArgMatches) -> Result<(), String> {
    let given = |refused: &&RefusedOption| match refused.takes_value {
        true => matches.contains_id(refused.name),
        false => matches.get_count(refused.name) > 0,
    };
    match REFUSED.iter().find(given) {
        Some(RefusedOption { name, short, reason, .. }) => {
            let dashes = if short.is_some() { "-" } else { "--" };
            Err(format!(
                "{dashes}{name} is an option of perf_analyzer that nereid perf does not have: {reason}"
            ))
        }
        None => Ok(()),
    }
}

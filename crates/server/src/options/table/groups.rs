//! All options, in the groups of the help.

use super::option_spec::OptionSpec;
use super::{
    connections, credentials, deprecated, devices, endpoints, extensions, grpc, http, metrics, repository,
    server,
};
use crate::options::typed::TypedOptions;

/// The headings of the help, each with its options. The order is that of Triton's usage text. The options that Triton
/// does not have come last.
pub(in super::super) const GROUPS: &[(&str, &[OptionSpec])] = &[
    ("", server::GLOBAL),
    ("Server", server::SERVER),
    ("Logging", server::LOGGING),
    ("Model Repository", repository::REPOSITORY),
    ("HTTP", http::HTTP),
    ("GRPC", grpc::GRPC),
    ("Sagemaker", endpoints::SAGEMAKER),
    ("Vertex", endpoints::VERTEX),
    ("Metrics", metrics::METRICS),
    ("Tracing", metrics::TRACING),
    ("Backend", extensions::BACKEND),
    ("Repository Agent", extensions::REPOSITORY_AGENT),
    ("Response Cache", extensions::RESPONSE_CACHE),
    ("Rate Limiter", extensions::RATE_LIMITER),
    ("Memory/Device Management", devices::DEVICES),
    ("Shared Memory", devices::SHARED_MEMORY),
    ("DEPRECATED", deprecated::DEPRECATED),
    ("Connections", connections::CONNECTIONS),
    ("Credentials", credentials::CREDENTIALS),
    ("Nereid", extensions::NEREID),
];

/// The options of an empty command line.
pub(in super::super) fn defaults() -> TypedOptions {
    let mut typed = TypedOptions::default();
    for option in all() {
        if let Some(default) = option.default_value() {
            option.apply(&mut typed, default).expect("the table's defaults obey its rules, as a test shows");
        }
    }
    typed
}

/// Records that an option was given, and adds its warning, if it has one.
pub(in super::super) fn note(typed: &mut TypedOptions, option: &'static OptionSpec, value: &str) {
    typed.given.entry(option.name).or_default().push(value.to_owned());
    if let Some(instead) = option.deprecated {
        typed.warnings.push(instead.replace("{value}", value));
    }
    let warning = option.warning();
    typed.warnings.extend(warning.filter(|warning| !typed.warnings.contains(warning)));
}

/// Every option, in the order of the help.
pub(in super::super) fn all() -> impl Iterator<Item = &'static OptionSpec> {
    GROUPS.iter().flat_map(|(_, options)| *options)
}

/// The option with exactly this name.
pub(in super::super) fn named(name: &str) -> Option<&'static OptionSpec> {
    all().find(|option| option.name == name)
}

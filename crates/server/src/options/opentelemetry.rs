//! The variables of OpenTelemetry, as its specification describes them. They count where no option is given.
//!
//! A variable that is not valid is ignored with a warning: whoever starts the server may not own its environment.
use std::{collections::BTreeMap, time::Duration};

use super::values::did_you_mean_variable;

/// How the names begin.
const PREFIX: &str = "OTEL_";

/// The variables that the server reads, except those of exporters.
const READ: [&str; 8] = [
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];

/// How the names of variables for the exporter of traces begin, and of those for all exporters.
const OF_EXPORTERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];

/// How the names of variables of exporters end.
const OF_EXPORTER: [&str; 5] = ["CERTIFICATE", "ENDPOINT", "HEADERS", "PROTOCOL", "TIMEOUT"];

/// The variables whose names begin with `OTEL_`, by their names. An empty variable counts as unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenTelemetryVariables(BTreeMap<String, String>);

impl FromIterator<(String, String)> for OpenTelemetryVariables {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        let counts = |(name, value): &(String, String)| name.starts_with(PREFIX) && !value.trim().is_empty();
        Self(variables.into_iter().filter(counts).collect())
    }
}

/// Which requests without the trace of a client are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceSampler {
    /// None, and none of traced clients either.
    Off,
    /// One of so many; 0 for none.
    Rate(u32),
}

/// Reads variables, and keeps warnings about those that are not valid.
pub(super) struct OpenTelemetryReader<'a> {
    variables: &'a OpenTelemetryVariables,
    warnings: &'a mut Vec<String>,
}

impl<'a> OpenTelemetryReader<'a> {
    /// Warns of variables that nothing reads.
    pub(super) fn new(variables: &'a OpenTelemetryVariables, warnings: &'a mut Vec<String>) -> Self {
        let of_exporters = OF_EXPORTERS
            .iter()
            .flat_map(|beginning| OF_EXPORTER.iter().map(move |ending| format!("{beginning}{ending}")));
        let read: Vec<_> = READ.map(str::to_owned).into_iter().chain(of_exporters).collect();
        for name in variables.0.keys().filter(|name| !read.contains(name)) {
            let hint = did_you_mean_variable(name, PREFIX, read.iter().cloned());
            warnings.push(format!("Warning: Nereid does not read the environment variable {name}{hint}"));
        }
        Self { variables, warnings }
    }

    /// What a variable says, if it is set and valid.
    pub(super) fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let parsed = parse(self.variables.0.get(name)?);
        if let Err(text) = &parsed {
            self.warnings.push(format!("Warning: the variable {name} is ignored: {text}"));
        }
        parsed.ok()
    }

    /// What a variable says: the one of the exporter of traces, otherwise the one of all exporters.
    pub(super) fn read_of_exporter<T>(
        &mut self,
        ending: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let mut names = OF_EXPORTERS.iter().map(|beginning| format!("{beginning}{ending}"));
        let name = names.find(|name| self.variables.0.contains_key(name))?;
        self.read(&name, parse)
    }

    /// Whether no spans are sent.
    pub(super) fn is_disabled(&mut self) -> bool {
        let disabled = self.read("OTEL_SDK_DISABLED", |text| match &*text.to_ascii_lowercase() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("it is 'true' or 'false', and not '{text}'")),
        });
        disabled.unwrap_or(false)
    }

    /// The URL for spans.
    pub(super) fn url(&mut self) -> Option<String> {
        let [of_traces, of_all] = OF_EXPORTERS.map(|beginning| format!("{beginning}ENDPOINT"));
        let as_it_is = self.read(&of_traces, |url| Ok(url.to_owned()));
        let below = |base: &str| Ok(format!("{}/v1/traces", base.trim_end_matches('/')));
        as_it_is.or_else(|| self.read(&of_all, below))
    }

    /// How long the collector may take.
    pub(super) fn timeout(&mut self) -> Option<Duration> {
        self.read_of_exporter("TIMEOUT", duration)
    }

    /// Attributes of the resource. Of two with one key the later one counts.
    pub(super) fn resource(&mut self) -> Vec<(String, String)> {
        let mut attributes =
            self.read("OTEL_RESOURCE_ATTRIBUTES", trace::read_attributes).unwrap_or_default();
        if let Some(name) = self.read("OTEL_SERVICE_NAME", |name| Ok(name.to_owned())) {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), name));
        }
        attributes
    }

    /// Which requests are traced.
    pub(super) fn sampler(&mut self) -> Option<TraceSampler> {
        let sampler = self.read("OTEL_TRACES_SAMPLER", |text| match text {
            "always_on" | "parentbased_always_on" => Ok(Some(TraceSampler::Rate(1))),
            "always_off" => Ok(Some(TraceSampler::Off)),
            "parentbased_always_off" => Ok(Some(TraceSampler::Rate(0))),
            "traceidratio" | "parentbased_traceidratio" => Ok(None),
            _ => Err(format!(
                "there is no sampler '{text}'. Available are \"always_on\", \"always_off\" and \"traceidratio\", and \
                 each with \"parentbased_\" before it"
            )),
        })?;
        if sampler.is_some() {
            return sampler;
        }
        let rate = self.read("OTEL_TRACES_SAMPLER_ARG", rate_of_ratio).unwrap_or(1);
        Some(TraceSampler::Rate(rate))
    }
}

/// A time in milliseconds, or with a unit, as OpenTelemetry for C++ takes it.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("it is a time in milliseconds above 0, or one such as 10s, and not '{text}'");
    let trimmed = text.trim();
    let end = trimmed.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let time = match unit {
        "" | "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(wrong()),
    };
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

/// The rate that traces about this share of requests.
fn rate_of_ratio(text: &str) -> Result<u32, String> {
    let ratio = text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    let ratio: f64 = ratio.ok_or_else(|| format!("it is a number from 0 to 1, and not '{text}'"))?;
    // The conversion keeps to the range of the type.
    Ok(if ratio == 0.0 { 0 } else { (1.0 / ratio).round() as u32 })
}

#[cfg(test)]
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method's path has one lifetime, `read` wants each"
)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> OpenTelemetryVariables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// What `read` reads from these variables, and the warnings.
    fn read<T>(
        pairs: &[(&str, &str)],
        read: impl FnOnce(&mut OpenTelemetryReader<'_>) -> T,
    ) -> (T, Vec<String>) {
        let mut warnings = Vec::new();
        let found = read(&mut OpenTelemetryReader::new(&variables(pairs), &mut warnings));
        (found, warnings)
    }

    #[test]
    fn only_variables_of_opentelemetry_that_are_not_empty_count() {
        let found = variables(&[("OTEL_SERVICE_NAME", " "), ("OTHER", "a"), ("OTEL_SDK_DISABLED", "true")]);
        assert_eq!(found, variables(&[("OTEL_SDK_DISABLED", "true")]));
    }

    #[test]
    fn a_variable_that_nothing_reads_is_told_with_the_probable_one() {
        let (_, warnings) = read(
            &[
                ("OTEL_EXPORTER_OTLP_ENDPIONT", "a"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b"),
                ("OTEL_LOG_LEVEL", "debug"),
                ("OTEL_SERVICE_NAME", "a"),
            ],
            |_| (),
        );
        assert_eq!(
            warnings,
            [
                "Warning: Nereid does not read the environment variable OTEL_EXPORTER_OTLP_ENDPIONT, did you mean \
                 OTEL_EXPORTER_OTLP_ENDPOINT?",
                "Warning: Nereid does not read the environment variable OTEL_LOG_LEVEL",
            ]
        );
    }

    #[test]
    fn the_endpoint_of_traces_counts_as_it_is_and_the_one_of_all_gets_a_path() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://host:4318/otlp/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/x");
        assert_eq!(read(&[all], |variables| variables.url()).0.unwrap(), "http://host:4318/otlp/v1/traces");
        assert_eq!(read(&[all, traces], |variables| variables.url()).0.unwrap(), "https://other/x");
        assert_eq!(read(&[], |variables| variables.url()).0, None);
    }

    #[test]
    fn times_are_milliseconds_or_have_a_unit() {
        let of = |text| read(&[("OTEL_EXPORTER_OTLP_TIMEOUT", text)], |variables| variables.timeout());
        for (text, millis) in [("250", 250), ("250ms", 250), ("10s", 10_000), ("2m", 120_000)] {
            assert_eq!(of(text), (Some(Duration::from_millis(millis)), vec![]), "{text}");
        }
        for wrong in ["0", "-1", "s", "1h", "many"] {
            let (timeout, warnings) = of(wrong);
            assert!(timeout.is_none() && warnings[0].contains("OTEL_EXPORTER_OTLP_TIMEOUT is ignored"));
        }
        let both = [("OTEL_EXPORTER_OTLP_TIMEOUT", "1"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2")];
        assert_eq!(read(&both, |variables| variables.timeout()).0, Some(Duration::from_millis(2)));
    }

    #[test]
    fn the_name_of_the_service_takes_precedence_over_its_attribute() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=one,a=b%2Cc");
        let (found, _) = read(&[attributes, ("OTEL_SERVICE_NAME", "two")], |variables| variables.resource());
        assert_eq!(found, [pair("a", "b,c"), pair("service.name", "two")]);
        let (found, warnings) =
            read(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b,c")], |variables| variables.resource());
        assert!(found.is_empty());
        assert_eq!(
            warnings,
            ["Warning: the variable OTEL_RESOURCE_ATTRIBUTES is ignored: attribute 2 has no '='"]
        );
    }

    #[test]
    fn samplers_are_rates() {
        let of = |sampler, argument| {
            let pairs = [("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
            read(&pairs, |variables| variables.sampler())
        };
        for (sampler, argument, expected) in [
            ("always_on", "", TraceSampler::Rate(1)),
            ("parentbased_always_on", "0.5", TraceSampler::Rate(1)),
            ("always_off", "", TraceSampler::Off),
            ("parentbased_always_off", "", TraceSampler::Rate(0)),
            ("traceidratio", "0.25", TraceSampler::Rate(4)),
            ("traceidratio", "1e-300", TraceSampler::Rate(u32::MAX)),
            ("parentbased_traceidratio", "0", TraceSampler::Rate(0)),
            ("parentbased_traceidratio", "", TraceSampler::Rate(1)),
        ] {
            assert_eq!(of(sampler, argument), (Some(expected), vec![]), "{sampler} {argument}");
        }
        let (sampler, warnings) = of("traceidratio", "2");
        assert_eq!(sampler, Some(TraceSampler::Rate(1)));
        assert!(warnings[0].contains("OTEL_TRACES_SAMPLER_ARG is ignored: it is a number from 0 to 1"));
        let (sampler, warnings) = of("jaeger_remote", "");
        assert!(sampler.is_none() && warnings[0].contains("there is no sampler 'jaeger_remote'"));
    }

    #[test]
    fn the_server_is_off_only_with_the_word_true() {
        let of = |text| read(&[("OTEL_SDK_DISABLED", text)], |variables| variables.is_disabled());
        assert_eq!(of("True"), (true, vec![]));
        assert_eq!(of("false"), (false, vec![]));
        let (disabled, warnings) = of("1");
        assert!(!disabled && warnings[0].contains("OTEL_SDK_DISABLED is ignored"), "{warnings:?}");
    }
}

//! The options of tracing: their rules, and the configuration that follows from them.

use std::time::Duration;

use trace::settings::{EffectiveSettings, TraceLevels};
use trace::{OtlpConfig, OtlpProtocol, TraceConfig, TraceDestination, TraceFileConfig};

use super::environment::ProcessEnvironment;
use super::opentelemetry::{OpenTelemetryReader, TraceSampler};
use super::refusal::BadOption;
use super::values::{self, Setting};

/// The rate if nothing else determines it.
const DEFAULT_RATE: u32 = 1000;

/// The largest number of 32 bits.
const UINT_MAX: i64 = u32::MAX as i64;

#[derive(Debug)]
pub(super) struct TypedTrace {
    /// From the deprecated options.
    level: TypedTraceLevel,
    pub(super) file: String,
    pub(super) rate: Option<i64>,
    pub(super) count: i64,
    pub(super) log_frequency: i64,
    /// From `--trace-config`, in the order of the command line. The mode is in lower case.
    settings: Vec<Setting>,
}

impl Default for TypedTrace {
    fn default() -> Self {
        let (level, file, rate, settings) = Default::default();
        Self { level, file, rate, count: -1, log_frequency: 0, settings }
    }
}

/// Several levels add up, but an OFF among them takes precedence, because the operator has asked for it. (P-W37; the
/// reference ignores an OFF if another level follows in `--trace-config`.)
#[derive(Debug, Default, Clone, Copy)]
struct TypedTraceLevel {
    off: bool,
    levels: TraceLevels,
}

impl TypedTrace {
    /// Reads a `--trace-config`. Its value is checked after the whole line, as in Triton.
    pub(super) fn add_setting(&mut self, text: &str) -> Result<(), String> {
        // The error about the mode takes precedence over errors about the rest.
        let mode = text
            .split_once(',')
            .map(|(mode, _)| mode)
            .filter(|mode| !mode.is_empty())
            .map(mode)
            .transpose()?;
        let setting = values::setting(
            text,
            "No trace mode specified. --trace-config option format is <trace mode>,<setting>=<value> or \
             <setting>=<value>",
            "--trace-config option format is '<trace mode>,<setting>=<value>'",
        )?;
        self.settings.push(Setting { name: mode, ..setting });
        Ok(())
    }

    /// Reads a `--trace-level`.
    pub(super) fn add_level(&mut self, text: &str) -> Result<(), String> {
        self.level.add(text)
    }

    /// Checks the values of every `--trace-config`. Returns warnings about the deprecated options that it overrides.
    ///
    /// # Errors
    /// A value breaks the rule of its setting.
    pub(super) fn check(&self, was_given: impl Fn(&str) -> bool) -> Result<Vec<String>, BadOption> {
        let mut warnings = Vec::new();
        let opentelemetry = self.opentelemetry();
        for Setting { name, key, value } in &self.settings {
            let number = |low: i64, high: i64| values::integer(value, low, high).map(drop);
            let (checked, shown) = match (name.as_deref(), key.as_str()) {
                (None, "rate") => (number(0, UINT_MAX), key.clone()),
                (None, "count") => (number(-1, i64::from(i32::MAX)), key.clone()),
                (None, "max-buffered-bytes") => (number(1 << 20, i64::MAX), key.clone()),
                (None, "level") => (TypedTraceLevel::default().add(value), key.clone()),
                (None, "mode") => (mode(value).map(drop), key.clone()),
                (Some("triton"), "log-frequency") if !opentelemetry => {
                    (number(0, UINT_MAX), format!("triton,{key}"))
                }
                (Some("opentelemetry"), "bsp_max_queue_size" | "bsp_max_export_batch_size")
                    if opentelemetry =>
                {
                    (number(1, i64::from(i32::MAX)), format!("opentelemetry,{key}"))
                }
                (Some("opentelemetry"), "bsp_schedule_delay") if opentelemetry => {
                    (number(0, i64::from(i32::MAX)), format!("opentelemetry,{key}"))
                }
                (Some("opentelemetry"), "phases") if opentelemetry => {
                    (values::boolean(value).map(drop), format!("opentelemetry,{key}"))
                }
                (Some("opentelemetry"), "protocol") if opentelemetry => {
                    (protocol(value).map(drop), format!("opentelemetry,{key}"))
                }
                _ => (Ok(()), key.clone()),
            };
            checked.map_err(|text| BadOption::framed(format!("trace-config {shown}"), text))?;
            let overridden = match (name.as_deref(), key.as_str()) {
                (None, "rate" | "count" | "level") => Some(format!("trace-{key}")),
                (Some("triton"), "file" | "log-frequency") => Some(format!("trace-{key}")),
                _ => None,
            };
            if let Some(option) = overridden.filter(|option| was_given(option)) {
                warnings.push(format!(
                    "Warning: Overriding deprecated '--{option}' in favor of provided {key} in \
                     --trace-config!"
                ));
            }
        }
        for option in ["trace-file", "trace-log-frequency"] {
            if opentelemetry && was_given(option) {
                warnings.push(format!(
                    "Warning: '--{option}' is deprecated and will be ignored with opentelemetry tracing mode."
                ));
            }
        }
        if !opentelemetry && !self.levels().is_off() && self.file().is_empty() {
            warnings.push(
                "Warning: the trace level has no effect without '--trace-config triton,file=<path>' or \
                 '--trace-config mode=opentelemetry'."
                    .to_owned(),
            );
        }
        Ok(warnings)
    }

    /// The configuration of tracing. Call this after [`TypedTrace::check`]. Adds warnings about variables that are not
    /// valid.
    pub(super) fn resolve(
        &self,
        environment: &ProcessEnvironment,
        warnings: &mut Vec<String>,
    ) -> TraceConfig {
        let number = |mode, key, otherwise: i64| self.number(mode, key).unwrap_or(otherwise);
        let unsigned = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut rate = self.number(None, "rate").or(self.rate).map(unsigned);
        let destination = if self.opentelemetry() {
            let mut variables = OpenTelemetryReader::new(&environment.opentelemetry, warnings);
            let sampler = if rate.is_none() { variables.sampler() } else { None };
            if let Some(TraceSampler::Rate(sampled)) = sampler {
                rate = Some(sampled);
            }
            let is_off = variables.is_disabled() || sampler == Some(TraceSampler::Off);
            TraceDestination::Otlp(OtlpConfig { is_off, ..self.collector(variables) })
        } else {
            let file = self.file();
            TraceDestination::File(TraceFileConfig { path: (!file.is_empty()).then(|| file.into()) })
        };
        let settings = EffectiveSettings {
            levels: self.levels(),
            rate: rate.unwrap_or(DEFAULT_RATE),
            count: u32::try_from(number(None, "count", self.count)).ok(),
            log_frequency: unsigned(number(Some("triton"), "log-frequency", self.log_frequency)),
        };
        let default = i64::try_from(TraceConfig::MAX_BUFFERED_BYTES).unwrap_or(i64::MAX);
        let max_buffered_bytes = number(None, "max-buffered-bytes", default);
        TraceConfig {
            settings,
            destination,
            max_buffered_bytes: usize::try_from(max_buffered_bytes)
                .unwrap_or(TraceConfig::MAX_BUFFERED_BYTES),
        }
    }

    fn collector(&self, mut variables: OpenTelemetryReader<'_>) -> OtlpConfig {
        let mode = Some("opentelemetry");
        let default = OtlpConfig::default();
        let mut number = |variable: &str, key: &str, low: i64| {
            let of_variable = |text: &str| values::integer(text, low, i64::from(i32::MAX));
            self.number(mode, key).or_else(|| variables.read(variable, of_variable))
        };
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", "bsp_max_queue_size", 1);
        let delay = number("OTEL_BSP_SCHEDULE_DELAY", "bsp_schedule_delay", 0);
        let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "bsp_max_export_batch_size", 1);
        let size = |given: Option<i64>, otherwise| {
            given.and_then(|given| usize::try_from(given).ok()).unwrap_or(otherwise)
        };
        let max_queue_size = size(queue, default.max_queue_size);
        let attribute = |text: &str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.to_owned(), value.to_owned())
        };
        let given_url = self.values(mode, "url").last().map(str::to_owned);
        let given_protocol = self.values(mode, "protocol").last().and_then(|text| protocol(text).ok());
        OtlpConfig {
            url: given_url.or_else(|| variables.url()).unwrap_or(default.url),
            resource: variables
                .resource()
                .into_iter()
                .chain(self.values(mode, "resource").map(attribute))
                .collect(),
            certificates: variables.read_of_exporter("CERTIFICATE", |path| Ok(path.into())),
            timeout: variables.timeout().unwrap_or(default.timeout),
            phases: self.values(mode, "phases").last().is_some_and(|text| values::boolean(text) == Ok(true)),
            headers: variables.read_of_exporter("HEADERS", trace::read_headers).unwrap_or_default(),
            protocol: given_protocol
                .or_else(|| variables.read_of_exporter("PROTOCOL", protocol))
                .unwrap_or_default(),
            max_queue_size,
            schedule_delay: delay
                .map_or(default.schedule_delay, |millis| Duration::from_millis(millis.unsigned_abs())),
            max_export_batch_size: size(batch, default.max_export_batch_size).min(max_queue_size),
            is_off: default.is_off,
        }
    }

    /// One OFF takes precedence over every other level.
    fn levels(&self) -> TraceLevels {
        let mut config = TypedTraceLevel::default();
        for value in self.values(None, "level") {
            _ = config.add(value);
        }
        match (self.level.off || config.off, config.levels.is_off()) {
            (true, _) => TraceLevels::default(),
            (false, false) => config.levels,
            (false, true) => self.level.levels,
        }
    }

    fn file(&self) -> &str {
        self.values(Some("triton"), "file").last().unwrap_or(&self.file)
    }

    fn opentelemetry(&self) -> bool {
        self.values(None, "mode").last().is_some_and(|value| value.eq_ignore_ascii_case("opentelemetry"))
    }

    /// The number that a setting has last. The values have been checked.
    fn number(&self, mode: Option<&str>, key: &str) -> Option<i64> {
        let wanted = |setting: &&Setting| setting.name.as_deref() == mode && setting.key == key;
        let given = self.settings.iter().rfind(wanted)?;
        values::integer(&given.value, i64::MIN, i64::MAX).ok()
    }

    fn values<'a>(&'a self, mode: Option<&'a str>, key: &'a str) -> impl Iterator<Item = &'a str> {
        let wanted = move |setting: &&Setting| setting.name.as_deref() == mode && setting.key == key;
        self.settings.iter().filter(wanted).map(|setting| setting.value.as_str())
    }
}

impl TypedTraceLevel {
    fn add(&mut self, text: &str) -> Result<(), String> {
        match text.to_ascii_lowercase().as_str() {
            "off" | "false" => self.off = true,
            "timestamps" | "on" | "true" | "min" | "max" => self.levels.timestamps = true,
            "tensors" => self.levels.tensors = true,
            other => return Err(format!("invalid value for trace level option: {other}")),
        }
        Ok(())
    }
}

fn mode(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase() {
        mode if mode == "triton" || mode == "opentelemetry" => Ok(mode),
        other => Err(format!(
            "invalid value for trace mode option: {other}. Available options are \"triton\" and \
             \"opentelemetry\""
        )),
    }
}

fn protocol(text: &str) -> Result<OtlpProtocol, String> {
    OtlpProtocol::named(text).ok_or_else(|| {
        format!(
            "invalid value for protocol: {text}. Available options are \"http/json\" and \"http/protobuf\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(typed: &TypedTrace, environment: &ProcessEnvironment) -> (TraceConfig, Vec<String>) {
        let mut warnings = typed.check(|_| false).unwrap();
        let config = typed.resolve(environment, &mut warnings);
        (config, warnings)
    }

    fn environment(variables: &[(&str, &str)]) -> ProcessEnvironment {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        ProcessEnvironment {
            opentelemetry: variables.iter().map(pair).collect(),
            ..ProcessEnvironment::default()
        }
    }

    fn config(level: &[&str], settings: &[&str]) -> (TraceConfig, Vec<String>) {
        let mut typed = TypedTrace::default();
        level.iter().for_each(|text| typed.add_level(text).unwrap());
        settings.iter().for_each(|text| typed.add_setting(text).unwrap());
        resolved(&typed, &ProcessEnvironment::default())
    }

    fn levels(level: &[&str], settings: &[&str]) -> Vec<&'static str> {
        config(level, settings).0.settings.levels.names()
    }

    fn collector(config: TraceConfig) -> OtlpConfig {
        match config.destination {
            TraceDestination::Otlp(otlp) => otlp,
            TraceDestination::File(_) => panic!("the mode is opentelemetry"),
        }
    }

    #[test]
    fn levels_add_up() {
        assert_eq!(levels(&[], &["level=min", "level=TENSORS"]), ["TIMESTAMPS", "TENSORS"]);
        assert_eq!(levels(&["true"], &[]), ["TIMESTAMPS"]);
        assert_eq!(levels(&["timestamps"], &["level=tensors"]), ["TENSORS"]);
        assert_eq!(levels(&[], &[]), ["OFF"]);
    }

    #[test]
    fn one_off_takes_precedence_over_every_other_level() {
        assert_eq!(levels(&[], &["level=OFF", "level=TIMESTAMPS"]), ["OFF"]);
        assert_eq!(levels(&["off"], &["level=TIMESTAMPS"]), ["OFF"]);
    }

    #[test]
    fn a_level_without_a_file_is_reported() {
        let (config, warnings) = config(&[], &["level=TIMESTAMPS"]);
        assert_eq!(config.destination, TraceDestination::File(TraceFileConfig::default()));
        assert!(matches!(&warnings[..], [text] if text.contains("no effect without")), "{warnings:?}");
    }

    #[test]
    fn newer_options_take_precedence_over_deprecated_ones() {
        let mut typed = TypedTrace {
            file: "old".to_owned(),
            rate: Some(1),
            count: 2,
            log_frequency: 3,
            ..TypedTrace::default()
        };
        let path = |config: &TraceConfig| match &config.destination {
            TraceDestination::File(file) => file.path.clone().unwrap(),
            TraceDestination::Otlp(_) => panic!("the mode is triton"),
        };
        let (old, _) = resolved(&typed, &ProcessEnvironment::default());
        assert_eq!((old.settings.rate, old.settings.count, old.settings.log_frequency), (1, Some(2), 3));
        assert_eq!(path(&old), std::path::Path::new("old"));
        for text in
            ["rate=4", "count=-1", "triton,log-frequency=6", "triton,file=new", "max-buffered-bytes=2000000"]
        {
            typed.add_setting(text).unwrap();
        }
        let (new, _) = resolved(&typed, &ProcessEnvironment::default());
        assert_eq!((new.settings.rate, new.settings.count, new.settings.log_frequency), (4, None, 6));
        assert_eq!(path(&new), std::path::Path::new("new"));
        assert_eq!(new.max_buffered_bytes, 2_000_000);
    }

    #[test]
    fn the_collector_has_the_settings_of_the_line_and_otherwise_those_of_the_environment() {
        let mut typed = TypedTrace::default();
        for text in [
            "mode=OpenTelemetry",
            "opentelemetry,url=host/x",
            "opentelemetry,resource=a=b=c",
            "opentelemetry,phases=on",
            "opentelemetry,bsp_max_queue_size=100",
        ] {
            typed.add_setting(text).unwrap();
        }
        let environment = environment(&[
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "7"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "300"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=secret"),
            ("OTEL_SERVICE_NAME", "mine"),
        ]);
        let (config, warnings) = resolved(&typed, &environment);
        assert_eq!(
            collector(config),
            OtlpConfig {
                url: "host/x".into(),
                resource: vec![("service.name".into(), "mine".into()), ("a".into(), "b=c".into())],
                certificates: Some("/ca.pem".into()),
                timeout: Duration::from_millis(300),
                is_off: false,
                headers: trace::read_headers("x-key=secret").unwrap(),
                phases: true,
                protocol: OtlpProtocol::HttpProtobuf,
                max_queue_size: 100,
                schedule_delay: Duration::from_millis(20),
                max_export_batch_size: 100,
            }
        );
        let warning =
            "Warning: the variable OTEL_BSP_MAX_EXPORT_BATCH_SIZE is ignored: Invalid option value. Got many";
        assert_eq!(warnings, [warning]);
    }

    #[test]
    fn a_protocol_of_the_environment_that_is_not_offered_is_ignored() {
        let mut typed = TypedTrace::default();
        typed.add_setting("mode=opentelemetry").unwrap();
        let (config, warnings) = resolved(
            &typed,
            &environment(&[
                ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ]),
        );
        assert_eq!(collector(config), OtlpConfig::default());
        assert_eq!(
            warnings[0],
            "Warning: the variable OTEL_EXPORTER_OTLP_HEADERS is ignored: header 1 has no '='"
        );
        assert!(warnings[1].contains("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is ignored"), "{warnings:?}");
    }

    #[test]
    fn a_sampler_of_the_environment_counts_without_a_rate() {
        let mut typed = TypedTrace::default();
        typed.add_setting("mode=opentelemetry").unwrap();
        let with = |sampler: &str, typed: &TypedTrace| {
            let (config, warnings) = resolved(typed, &environment(&[("OTEL_TRACES_SAMPLER", sampler)]));
            assert!(warnings.is_empty(), "{warnings:?}");
            (config.settings.rate, collector(config).is_off)
        };
        assert_eq!(with("always_on", &typed), (1, false));
        assert_eq!(with("always_off", &typed), (DEFAULT_RATE, true));
        typed.add_setting("rate=7").unwrap();
        assert_eq!(with("always_on", &typed), (7, false));
        assert_eq!(with("always_off", &typed), (7, false));
        let disabled = environment(&[("OTEL_SDK_DISABLED", "true")]);
        assert!(collector(resolved(&typed, &disabled).0).is_off);
    }

    #[test]
    fn without_its_mode_no_variable_of_opentelemetry_counts() {
        let typed = TypedTrace::default();
        let given = environment(&[("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_OTHER", "a")]);
        assert_eq!(resolved(&typed, &given), resolved(&typed, &ProcessEnvironment::default()));
    }
}

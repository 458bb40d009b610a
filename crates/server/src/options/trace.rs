//! The options of tracing: their rules, and whether they ask for tracing.
//!
//! This version has no tracing. The typed values only decide whether the command line is accepted or refused.

use super::refusal::BadOption;
use super::values::{self, Setting};

/// The missing feature and what asks for it, for the refusal.
pub(super) const MISSING: &str =
    "tracing of requests (a level other than OFF, a file, or mode opentelemetry)";

#[derive(Debug, Default)]
pub(super) struct TypedTrace {
    /// From the deprecated options.
    level: TypedTraceLevel,
    pub(super) file: String,
    /// From `--trace-config`, in the order of the command line. The mode is in lower case.
    settings: Vec<Setting>,
}

/// Several levels add up, but an OFF among them takes precedence, because the operator has asked for it. (P-W37; the
/// reference ignores an OFF if another level follows in `--trace-config`.)
#[derive(Debug, Default, Clone, Copy)]
struct TypedTraceLevel {
    off: bool,
    some: bool,
}

/// The option that asks for tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceSource {
    Level,
    File,
    Config,
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
            let number = || values::integer(value, i64::from(i32::MIN), i64::from(i32::MAX)).map(drop);
            let (checked, shown) = match (name.as_deref(), key.as_str()) {
                (None, "rate" | "count") => (number(), key.clone()),
                (None, "level") => (TypedTraceLevel::default().add(value), key.clone()),
                (None, "mode") => (mode(value).map(drop), key.clone()),
                (Some("triton"), "log-frequency") if !opentelemetry => (number(), format!("triton,{key}")),
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
        Ok(warnings)
    }

    /// The option that asks for tracing; `None` if none does.
    ///
    /// A level asks for it, also without a file. A file and OpenTelemetry ask for it, also without a level: Triton then
    /// lets clients switch tracing on. An OFF cancels all of them. Call this after [`TypedTrace::check`].
    pub(super) fn requested_by(&self) -> Option<TraceSource> {
        let mut config = TypedTraceLevel::default();
        for value in self.values(None, "level") {
            _ = config.add(value);
        }
        let file = self.values(Some("triton"), "file").last();
        if self.level.off || config.off {
            None
        } else if config.some {
            Some(TraceSource::Config)
        } else if self.level.some {
            Some(TraceSource::Level)
        } else if file.is_some() || self.opentelemetry() {
            Some(TraceSource::Config)
        } else if !self.file.is_empty() {
            Some(TraceSource::File)
        } else {
            None
        }
    }

    fn opentelemetry(&self) -> bool {
        self.values(None, "mode").last().is_some_and(|value| value.eq_ignore_ascii_case("opentelemetry"))
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
            "timestamps" | "on" | "true" | "min" | "max" | "tensors" => self.some = true,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn source(level: &[&str], settings: &[&str]) -> Option<TraceSource> {
        let mut typed = TypedTrace::default();
        level.iter().for_each(|text| typed.add_level(text).unwrap());
        settings.iter().for_each(|text| typed.add_setting(text).unwrap());
        typed.check(|_| false).unwrap();
        typed.requested_by()
    }

    #[test]
    fn a_level_asks_for_tracing_whatever_the_other_settings_are() {
        assert_eq!(source(&[], &["level=TIMESTAMPS"]), Some(TraceSource::Config));
        assert_eq!(source(&[], &["level=TENSORS", "triton,file=x", "rate=0"]), Some(TraceSource::Config));
        assert_eq!(source(&["min"], &["triton,file=x"]), Some(TraceSource::Level));
    }

    #[test]
    fn a_file_or_opentelemetry_asks_for_tracing_without_a_level() {
        assert_eq!(source(&[], &["triton,file=x"]), Some(TraceSource::Config));
        assert_eq!(source(&[], &["mode=OpenTelemetry"]), Some(TraceSource::Config));
        let typed = TypedTrace { file: "x".to_owned(), ..TypedTrace::default() };
        assert_eq!(typed.requested_by(), Some(TraceSource::File));
    }

    #[test]
    fn numbers_alone_do_not_ask_for_tracing() {
        assert_eq!(source(&[], &["rate=1", "count=5", "triton,log-frequency=9", "mode=triton"]), None);
    }

    #[test]
    fn one_off_takes_precedence_over_every_other_level() {
        assert_eq!(source(&[], &["level=OFF", "level=TIMESTAMPS", "triton,file=x"]), None);
        assert_eq!(source(&["off"], &["level=TIMESTAMPS", "mode=opentelemetry"]), None);
    }
}

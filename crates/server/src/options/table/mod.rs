//! The table of options. Only the table defines an option's name, value, default, help text, and support.

mod connections;
mod credentials;
mod deprecated;
mod devices;
mod endpoints;
mod extensions;
mod grpc;
mod http;
mod metrics;
mod repository;
mod server;

use super::typed::TypedOptions;
use super::values;

/// The headings of the help, each with its options. The order is that of Triton's usage text. The options that Triton
/// does not have come last.
pub(super) const GROUPS: &[(&str, &[Spec])] = &[
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

/// The options that may be given several times.
const REPEATED: [&str; 18] = [
    "model-store",
    "model-repository",
    "load-model",
    "http-restricted-api",
    "http-allowed-origins",
    "http-allowed-hosts",
    "grpc-restricted-protocol",
    "metrics-config",
    "trace-config",
    "trace-level",
    "backend-config",
    "cache-config",
    "rate-limit-resource",
    "host-policy",
    "model-load-gpu-limit",
    "cuda-memory-pool-byte-size",
    "cuda-virtual-address-size",
    "client-crl-file",
];

/// The largest value of options that are C's `int` in Triton.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// The reason why the thread counts of single endpoints have no effect.
const SHARED_THREADS: &str = "all endpoints share one pool with a thread for each processor";

const PORT_MAX: i64 = u16::MAX as i64;

/// The options of an empty command line.
pub(super) fn defaults() -> TypedOptions {
    let mut typed = TypedOptions::default();
    for option in all() {
        if let Some(default) = option.default_value() {
            option.apply(&mut typed, default).expect("the table's defaults obey its rules, as a test shows");
        }
    }
    typed
}

/// Records that an option was given, and adds its warning, if it has one.
pub(super) fn note(typed: &mut TypedOptions, option: &'static Spec, value: &str) {
    typed.given.entry(option.name).or_default().push(value.to_owned());
    if let Some(instead) = option.deprecated {
        typed.warnings.push(instead.replace("{value}", value));
    }
    let warning = option.warning();
    typed.warnings.extend(warning.filter(|warning| !typed.warnings.contains(warning)));
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    value: OptionValue,
    default: Default,
    help: &'static str,
    unsupported: Support,
    /// The warning about a deprecated option. `{value}` stands for the typed value.
    pub(super) deprecated: Option<&'static str>,
    /// The reason why the option has no effect. The server accepts the option, because scripts for Triton use it, and
    /// warns.
    without_effect: Option<&'static str>,
    /// The accepted values of an option with its own rules.
    takes: Option<&'static str>,
}

/// The parser of a value, and where it stores the value.
#[derive(Debug, Clone, Copy)]
enum OptionValue {
    Flag(fn(&mut TypedOptions)),
    Boolean(fn(&mut TypedOptions, bool)),
    /// A leading integer within these bounds.
    Integer(i64, i64, fn(&mut TypedOptions, i64)),
    Float(fn(&mut TypedOptions, f64)),
    Text(fn(&mut TypedOptions, &str)),
    /// A value with its own rules, and its placeholder in the help.
    Checked(&'static str, fn(&mut TypedOptions, &str) -> Result<(), String>),
}

#[derive(Debug, Clone, Copy)]
enum Default {
    None,
    /// The default as text. The parser treats it like a typed value.
    Value(&'static str),
    /// A text for the help. Other code determines the default.
    Note(&'static str),
}

/// Whether this version supports the option. The texts name the missing feature.
#[derive(Debug, Clone, Copy)]
enum Support {
    Always,
    /// Not supported: the option is always refused.
    Never(&'static str),
    /// Refused if the typed value would switch the feature on.
    Unless(fn(&TypedOptions) -> bool, &'static str),
}

impl Spec {
    const fn new(name: &'static str, value: OptionValue, help: &'static str) -> Self {
        Self {
            name,
            value,
            default: Default::None,
            help,
            unsupported: Support::Always,
            deprecated: None,
            without_effect: None,
            takes: None,
        }
    }

    const fn default(mut self, value: &'static str) -> Self {
        self.default = Default::Value(value);
        self
    }

    const fn default_note(mut self, note: &'static str) -> Self {
        self.default = Default::Note(note);
        self
    }

    const fn takes(mut self, values: &'static str) -> Self {
        self.takes = Some(values);
        self
    }

    const fn without_effect(mut self, why: &'static str) -> Self {
        self.without_effect = Some(why);
        self
    }

    const fn unsupported(mut self, what: &'static str) -> Self {
        self.unsupported = Support::Never(what);
        self
    }

    const fn unsupported_if(mut self, on: fn(&TypedOptions) -> bool, what: &'static str) -> Self {
        self.unsupported = Support::Unless(on, what);
        self
    }

    const fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecated = Some(warning);
        self
    }

    pub(super) fn is_flag(&self) -> bool {
        matches!(self.value, OptionValue::Flag(_))
    }

    /// The placeholder of the value in the help. `None` for a flag.
    pub(super) fn placeholder(&self) -> Option<&'static str> {
        match self.value {
            OptionValue::Flag(_) => None,
            OptionValue::Boolean(_) => Some("boolean"),
            OptionValue::Integer(..) => Some("integer"),
            OptionValue::Float(_) => Some("float"),
            OptionValue::Text(_) => Some("string"),
            OptionValue::Checked(placeholder, _) => Some(placeholder),
        }
    }

    /// Whether the option may be given several times.
    pub(super) fn may_repeat(&self) -> bool {
        REPEATED.contains(&self.name)
    }

    /// Whether a text has nothing after its number, if the option takes a number. Words such as `true` are not numbers.
    pub(super) fn is_whole_number(&self, text: &str) -> bool {
        let text = text.trim();
        let digits = text.trim_start_matches(['+', '-']);
        if !digits.starts_with(|first: char| first.is_ascii_digit()) {
            return true;
        }
        match self.placeholder() {
            Some("integer") => digits.bytes().all(|byte| byte.is_ascii_digit()),
            Some("float" | "seconds") => text.parse::<f64>().is_ok(),
            Some(_) | None => true,
        }
    }

    /// The accepted values, as advice after a wrong value. `None` if the refusal itself names them.
    pub(super) fn advice(&self) -> Option<String> {
        let values = match self.value {
            _ if self.takes.is_some() => self.takes.unwrap_or_default().to_owned(),
            OptionValue::Boolean(_) => "true or false (or on, off, 1, 0)".to_owned(),
            OptionValue::Integer(low, high, _) => format!("an integer from {low} to {high}"),
            OptionValue::Float(_) => "a number".to_owned(),
            OptionValue::Checked(words, _) if is_list_of_words(words) => {
                format!("one of: {}", words.replace('|', ", "))
            }
            OptionValue::Flag(_) | OptionValue::Text(_) | OptionValue::Checked(..) => return None,
        };
        Some(format!("'--{}' takes {values}", self.name))
    }

    /// The value of the option when it is not given, in the form in which an operator would type it.
    pub(super) fn default_value(&self) -> Option<&'static str> {
        match self.default {
            Default::Value(value) => Some(value),
            Default::None | Default::Note(_) => None,
        }
    }

    /// The whole help text of the option, in one paragraph.
    pub(super) fn description(&self) -> String {
        let default = match self.default {
            Default::None | Default::Value("") => String::new(),
            Default::Value(text) | Default::Note(text) => format!(" Default: {text}."),
        };
        let missing = match self.unsupported {
            Support::Always => String::new(),
            Support::Never(what) | Support::Unless(_, what) => {
                format!(" Not supported by this version: {what}.")
            }
        };
        let effect = self.without_effect.map_or_else(String::new, |why| format!(" No effect: {why}."));
        format!("{}{default}{missing}{effect}", self.help)
    }

    /// Reads `value` into `typed`.
    ///
    /// # Errors
    /// The text of the rule that the value breaks.
    pub(super) fn apply(&self, typed: &mut TypedOptions, value: &str) -> Result<(), String> {
        match self.value {
            OptionValue::Flag(set) => set(typed),
            OptionValue::Boolean(set) => set(typed, values::boolean(value)?),
            OptionValue::Integer(low, high, set) => set(typed, values::integer(value, low, high)?),
            OptionValue::Float(set) => set(typed, values::float(value)?),
            OptionValue::Text(set) => set(typed, value),
            OptionValue::Checked(_, set) => set(typed, value)?,
        }
        Ok(())
    }

    /// The warning about an option that has no effect.
    pub(super) fn warning(&self) -> Option<String> {
        self.without_effect.map(|why| format!("Warning: '--{}' has no effect: {why}.", self.name))
    }

    /// The missing feature that the option, as typed, would need.
    pub(super) fn missing(&self, typed: &TypedOptions) -> Option<&'static str> {
        match self.unsupported {
            Support::Always => None,
            Support::Never(what) => typed.was_given(self.name).then_some(what),
            Support::Unless(on, what) => on(typed).then_some(what),
        }
    }
}

/// Tells whether the placeholder lists all possible values.
fn is_list_of_words(placeholder: &str) -> bool {
    placeholder.contains('|') && !placeholder.contains('<')
}

/// Every option, in the order of the help.
pub(super) fn all() -> impl Iterator<Item = &'static Spec> {
    GROUPS.iter().flat_map(|(_, options)| *options)
}

/// The option with exactly this name.
pub(super) fn named(name: &str) -> Option<&'static Spec> {
    all().find(|option| option.name == name)
}

const fn flag(name: &'static str, set: fn(&mut TypedOptions), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Flag(set), help)
}

const fn boolean(name: &'static str, set: fn(&mut TypedOptions, bool), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Boolean(set), help)
}

/// An integer from 0 to C's largest.
const fn count(name: &'static str, set: fn(&mut TypedOptions, i64), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Integer(0, INT_MAX, set), help)
}

/// An integer from C's smallest to C's largest.
const fn integer(name: &'static str, set: fn(&mut TypedOptions, i64), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Integer(-INT_MAX - 1, INT_MAX, set), help)
}

const fn port(name: &'static str, set: fn(&mut TypedOptions, i64), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Integer(0, PORT_MAX, set), help)
}

const fn float(name: &'static str, set: fn(&mut TypedOptions, f64), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Float(set), help)
}

const fn text(name: &'static str, set: fn(&mut TypedOptions, &str), help: &'static str) -> Spec {
    Spec::new(name, OptionValue::Text(set), help)
}

const fn checked(
    name: &'static str,
    placeholder: &'static str,
    set: fn(&mut TypedOptions, &str) -> Result<(), String>,
    help: &'static str,
) -> Spec {
    Spec::new(name, OptionValue::Checked(placeholder, set), help)
}

//! One option: its name, its value, its default and its help.

use crate::options::{typed::TypedOptions, values};

/// The option that names the file.
pub(in super::super) const CONFIG: &str = "config";

/// Options that are commands to the program, or say where the others are.
pub(in super::super) const ONLY_ON_THE_LINE: [&str; 3] = ["help", "version", CONFIG];

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
pub(in super::super) const INT_MAX: i64 = i32::MAX as i64;
/// The reason why the thread counts of single endpoints have no effect.
pub(super) const SHARED_THREADS: &str = "all endpoints share one pool with a thread for each processor";

const PORT_MAX: i64 = u16::MAX as i64;

/// One option.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct OptionSpec {
    pub(in super::super) name: &'static str,
    value: OptionValue,
    default: Default,
    help: &'static str,
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
pub(super) enum OptionValue {
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

impl OptionSpec {
    pub(super) const fn new(name: &'static str, value: OptionValue, help: &'static str) -> Self {
        Self {
            name,
            value,
            default: Default::None,
            help,
            deprecated: None,
            without_effect: None,
            takes: None,
        }
    }

    pub(super) const fn default(mut self, value: &'static str) -> Self {
        self.default = Default::Value(value);
        self
    }

    pub(super) const fn default_note(mut self, note: &'static str) -> Self {
        self.default = Default::Note(note);
        self
    }

    pub(super) const fn takes(mut self, values: &'static str) -> Self {
        self.takes = Some(values);
        self
    }

    pub(super) const fn without_effect(mut self, why: &'static str) -> Self {
        self.without_effect = Some(why);
        self
    }

    pub(super) const fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecated = Some(warning);
        self
    }

    pub(in super::super) fn is_flag(&self) -> bool {
        matches!(self.value, OptionValue::Flag(_))
    }

    /// The placeholder of the value in the help. `None` for a flag.
    pub(in super::super) fn placeholder(&self) -> Option<&'static str> {
        match self.value {
            OptionValue::Flag(_) => None,
            OptionValue::Boolean(_) => Some("boolean"),
            OptionValue::Integer(..) => Some("integer"),
            OptionValue::Float(_) => Some("float"),
            OptionValue::Text(_) => Some("string"),
            OptionValue::Checked(placeholder, _) => Some(placeholder),
        }
    }

    /// The environment variable of the option. `None` if it has none.
    pub(in super::super) fn variable(&self) -> Option<String> {
        let has_one = self.name == CONFIG || !ONLY_ON_THE_LINE.contains(&self.name);
        has_one.then(|| format!("NEREID_{}", self.name.replace('-', "_").to_uppercase()))
    }

    /// Whether the option may be given several times.
    pub(in super::super) fn may_repeat(&self) -> bool {
        REPEATED.contains(&self.name)
    }

    /// Whether a text has nothing after its number, if the option takes a number. Words such as `true` are not numbers.
    pub(in super::super) fn is_whole_number(&self, text: &str) -> bool {
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
    pub(in super::super) fn advice(&self) -> Option<String> {
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
    pub(in super::super) fn default_value(&self) -> Option<&'static str> {
        match self.default {
            Default::Value(value) => Some(value),
            Default::None | Default::Note(_) => None,
        }
    }

    /// The whole help text of the option, in one paragraph.
    pub(in super::super) fn description(&self) -> String {
        let default = match self.default {
            Default::None | Default::Value("") => String::new(),
            Default::Value(text) | Default::Note(text) => format!(" Default: {text}."),
        };
        let effect = self.without_effect.map_or_else(String::new, |why| format!(" No effect: {why}."));
        format!("{}{default}{effect}", self.help)
    }

    /// Reads `value` into `typed`.
    ///
    /// # Errors
    /// The text of the rule that the value breaks.
    pub(in super::super) fn apply(&self, typed: &mut TypedOptions, value: &str) -> Result<(), String> {
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
    pub(in super::super) fn warning(&self) -> Option<String> {
        self.without_effect.map(|why| format!("Warning: '--{}' has no effect: {why}.", self.name))
    }
}

/// Tells whether the placeholder lists all possible values.
fn is_list_of_words(placeholder: &str) -> bool {
    placeholder.contains('|') && !placeholder.contains('<')
}

pub(super) const fn flag(name: &'static str, set: fn(&mut TypedOptions), help: &'static str) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Flag(set), help)
}

pub(super) const fn boolean(
    name: &'static str,
    set: fn(&mut TypedOptions, bool),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Boolean(set), help)
}

/// An integer from 0 to C's largest.
pub(super) const fn count(
    name: &'static str,
    set: fn(&mut TypedOptions, i64),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Integer(0, INT_MAX, set), help)
}

/// An integer from C's smallest to C's largest.
pub(super) const fn integer(
    name: &'static str,
    set: fn(&mut TypedOptions, i64),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Integer(-INT_MAX - 1, INT_MAX, set), help)
}

pub(super) const fn port(
    name: &'static str,
    set: fn(&mut TypedOptions, i64),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Integer(0, PORT_MAX, set), help)
}

pub(super) const fn float(
    name: &'static str,
    set: fn(&mut TypedOptions, f64),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Float(set), help)
}

pub(super) const fn text(
    name: &'static str,
    set: fn(&mut TypedOptions, &str),
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Text(set), help)
}

pub(super) const fn checked(
    name: &'static str,
    placeholder: &'static str,
    set: fn(&mut TypedOptions, &str) -> Result<(), String>,
    help: &'static str,
) -> OptionSpec {
    OptionSpec::new(name, OptionValue::Checked(placeholder, set), help)
}

//! What the schema of configurations does not say about a field.

use config::ConfigRule;

/// What is to be known about a field beside its name, type and comment.
#[derive(Clone, Copy)]
pub(super) struct FieldNote {
    /// Message and field, such as `ModelConfig.name`.
    pub(super) field: &'static str,
    /// Its meaning, if the schema does not say it.
    pub(super) meaning: &'static str,
    /// Its value when a configuration does not set it, if it is not that of the schema.
    pub(super) default: &'static str,
    pub(super) support: FieldSupport,
    pub(super) refusals: &'static [RefusedValue],
}

/// What Nereid does with a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSupport {
    /// It follows the field.
    Full,
    /// It accepts the field and gives it back to clients and plug-ins, and changes nothing because of it.
    ShownOnly,
}

/// A value that Nereid refuses.
#[derive(Clone, Copy)]
pub(super) struct RefusedValue {
    /// The value in words.
    pub(super) words: &'static str,
    pub(super) rule: ConfigRule,
    /// A configuration with such a value. A test shows that it breaks the rule, and that nothing else is wrong. It is
    /// added to a model with one input `IN` and one output `OUT`, unless it names a platform.
    pub(super) example: &'static str,
}

impl FieldNote {
    pub(super) const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    pub(super) const fn refused(mut self, refusals: &'static [RefusedValue]) -> Self {
        self.refusals = refusals;
        self
    }
}

/// A field that Nereid follows.
pub(super) const fn field(field: &'static str, meaning: &'static str) -> FieldNote {
    FieldNote { field, meaning, default: "", support: FieldSupport::Full, refusals: &[] }
}

/// A field that Nereid only shows.
pub(super) const fn shown(field: &'static str) -> FieldNote {
    FieldNote { field, meaning: "", default: "", support: FieldSupport::ShownOnly, refusals: &[] }
}

pub(super) const fn value(words: &'static str, rule: ConfigRule, example: &'static str) -> RefusedValue {
    RefusedValue { words, rule, example }
}

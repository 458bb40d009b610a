//! Values of documents.

use std::borrow::Cow;

use crate::fault::{ForestError, malformed};
use crate::format::ReadOptions;
use crate::readers::document::numbers::{self, NumberArray};

/// A value of a document.
#[derive(Debug, PartialEq)]
pub(in crate::readers) enum Value<'f> {
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'f, str>),
    /// An array that has only numbers or booleans, or nothing.
    Numbers(NumberArray<'f>),
    Array(Vec<Value<'f>>),
    Object(Object<'f>),
}

/// The members of an object, in the order of the file.
#[derive(Debug, PartialEq, Default)]
pub(in crate::readers) struct Object<'f>(pub(super) Vec<(Cow<'f, str>, Value<'f>)>);

impl<'f> Value<'f> {
    pub(in crate::readers) fn object(&self, name: &str) -> Result<&Object<'f>, ForestError> {
        match self {
            Self::Object(object) => Ok(object),
            _ => Err(malformed(name, "it must be an object")),
        }
    }

    pub(in crate::readers) fn array(&self, name: &str) -> Result<&[Value<'f>], ForestError> {
        match self {
            Self::Array(values) => Ok(values),
            Self::Numbers(numbers) if numbers.is_empty() => Ok(&[]),
            _ => Err(malformed(name, "it must be an array")),
        }
    }

    pub(in crate::readers) fn text(&self, name: &str) -> Result<&str, ForestError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(malformed(name, "it must be a text")),
        }
    }

    /// The numbers of an array, in 32 bits.
    pub(in crate::readers) fn reals(&self, name: &str) -> Result<Vec<f32>, ForestError> {
        match self {
            Self::Numbers(numbers) => {
                numbers.reals().ok_or_else(|| malformed(name, "it must have numbers only"))
            }
            #[expect(clippy::cast_possible_truncation, reason = "XGBoost computes in 32 bits")]
            Self::Array(_) => Ok(self.scalars(name)?.map(|number| number as f32).collect()),
            _ => Err(malformed(name, "it must be an array of numbers")),
        }
    }

    /// The whole numbers of an array. Booleans are 0 and 1.
    pub(in crate::readers) fn integers(&self, name: &str) -> Result<Vec<i64>, ForestError> {
        let integers = match self {
            Self::Numbers(numbers) => numbers.integers(),
            Self::Array(_) => self.scalars(name)?.map(numbers::whole).collect(),
            _ => None,
        };
        integers.ok_or_else(|| malformed(name, "it must be an array of whole numbers"))
    }

    /// The elements of an array of single values.
    fn scalars(&self, name: &str) -> Result<impl Iterator<Item = f64>, ForestError> {
        let values = self.array(name)?;
        if values.iter().any(|value| !matches!(value, Value::Number(_) | Value::Bool(_))) {
            return Err(malformed(name, "it must have numbers only"));
        }
        Ok(values.iter().filter_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Bool(flag) => Some(f64::from(*flag)),
            _ => None,
        }))
    }
}

impl<'f> Object<'f> {
    pub(in crate::readers) fn get(&self, name: &str) -> Option<&Value<'f>> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The member `name`.
    pub(in crate::readers) fn required(&self, name: &str) -> Result<&Value<'f>, ForestError> {
        self.get(name).ok_or_else(|| malformed(name, "it must be there"))
    }

    /// Refuses a member that `is_known` does not know, unless the options allow it.
    pub(in crate::readers) fn check_names(
        &self,
        place: &str,
        options: ReadOptions,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), ForestError> {
        if options.allow_unknown_fields {
            return Ok(());
        }
        match self.0.iter().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, _)) => Err(malformed(
                format!("{place}.{name}"),
                "the field is not known; `xgboost_allow_unknown_field` would ignore it",
            )),
        }
    }
}

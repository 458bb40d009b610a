//! The settings of tracing in three layers: the command line, changes for all models, and changes for one model. A
//! field that a layer does not set has the value of the layer before it.
//!
//! This module is pure. The times and the requests are elsewhere.
use std::collections::BTreeMap;

use vocabulary::Error;

/// What a trace contains. Nothing of both means `OFF`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceLevels {
    /// The times of the request.
    pub timestamps: bool,
    /// The tensors of the request.
    pub tensors: bool,
}

impl TraceLevels {
    /// Whether requests are not traced.
    pub const fn is_off(self) -> bool {
        !self.timestamps && !self.tensors
    }

    /// The names of the levels, as clients see them.
    pub fn names(self) -> Vec<&'static str> {
        let timestamps = self.timestamps.then_some("TIMESTAMPS");
        let tensors = self.tensors.then_some("TENSORS");
        let off = self.is_off().then_some("OFF");
        [off, timestamps, tensors].into_iter().flatten().collect()
    }

    /// The levels that a client names. Unknown names are ignored, as in Triton. `None` if no name is known.
    ///
    /// # Errors
    /// `OFF` is not alone.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Option<Self>, Error> {
        let (mut levels, mut count, mut has_off) = (Self::default(), 0, false);
        for name in names {
            count += 1;
            match name {
                "OFF" => has_off = true,
                "TIMESTAMPS" => levels.timestamps = true,
                "TENSORS" => levels.tensors = true,
                _ => {}
            }
        }
        if has_off && count > 1 {
            return Err(Error::invalid("Expect only one trace level 'OFF' is specified"));
        }
        Ok((has_off || !levels.is_off()).then_some(levels))
    }
}

/// The settings that hold for a model, with a value for each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveSettings {
    /// What a trace contains.
    pub levels: TraceLevels,
    /// Every request whose number is a multiple of this is traced. 0 for no request, except for those that a traced
    /// client sends.
    pub rate: u32,
    /// How many more requests are traced. `None` for no limit.
    pub count: Option<u32>,
    /// How many traces a file contains. 0 for one file.
    pub log_frequency: u32,
}

impl Default for EffectiveSettings {
    fn default() -> Self {
        Self { levels: TraceLevels::default(), rate: 1000, count: None, log_frequency: 0 }
    }
}

/// What a request for a change says about a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldChange<T> {
    /// Nothing.
    #[default]
    Keep,
    /// The field gets the value of the layer before it.
    Clear,
    /// The field gets this value.
    Set(T),
}

impl<T: Copy> FieldChange<T> {
    fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }
}

/// A change of the settings of one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// The levels.
    pub levels: FieldChange<TraceLevels>,
    /// The rate.
    pub rate: FieldChange<u32>,
    /// The count.
    pub count: FieldChange<Option<u32>>,
    /// The log frequency.
    pub log_frequency: FieldChange<u32>,
}

/// The fields that a layer sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LayerFields {
    levels: Option<TraceLevels>,
    rate: Option<u32>,
    count: Option<Option<u32>>,
    log_frequency: Option<u32>,
}

impl LayerFields {
    fn apply(&mut self, change: SettingsChange) {
        change.levels.apply(&mut self.levels);
        change.rate.apply(&mut self.rate);
        change.count.apply(&mut self.count);
        change.log_frequency.apply(&mut self.log_frequency);
    }

    fn over(self, below: EffectiveSettings) -> EffectiveSettings {
        EffectiveSettings {
            levels: self.levels.unwrap_or(below.levels),
            rate: self.rate.unwrap_or(below.rate),
            count: self.count.unwrap_or(below.count),
            log_frequency: self.log_frequency.unwrap_or(below.log_frequency),
        }
    }

    fn sets_nothing(self) -> bool {
        self == Self::default()
    }

    fn sets_all(self) -> bool {
        self.levels.is_some() && self.rate.is_some() && self.count.is_some() && self.log_frequency.is_some()
    }
}

/// What traces can go to. This never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationKind {
    /// Mode `triton` without a file.
    NoFile,
    /// Mode `triton` with a file.
    File,
    /// Mode `opentelemetry`.
    Collector,
}

impl DestinationKind {
    /// Why these settings trace no request, as Triton says it. `None` if they trace requests. Triton has no word about
    /// the count.
    fn fault(self, settings: &EffectiveSettings) -> Option<&'static str> {
        match self {
            Self::NoFile => Some("trace file name is not given"),
            _ if settings.levels.is_off() => Some("tracing is disabled"),
            _ if settings.rate == 0 => Some("sample rate must be non-zero"),
            _ if settings.count == Some(0) => Some("trace count must be non-zero"),
            Self::File | Self::Collector => None,
        }
    }

    /// Whether a request can be traced with these settings. A collector gets the requests of traced clients also with
    /// rate 0.
    pub fn traces(self, settings: &EffectiveSettings) -> bool {
        match self {
            Self::NoFile => false,
            Self::File => self.fault(settings).is_none(),
            Self::Collector => !settings.levels.is_off(),
        }
    }
}

/// What follows from a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeEffect {
    /// The settings of all models have changed, except for the models that set every field. These models have settings
    /// of their own, which have changed too.
    Global {
        /// The names of those models.
        models: Vec<String>,
    },
    /// This model has new settings of its own.
    Model,
    /// This model has no settings of its own any more.
    Follows,
}

/// The settings of all layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    kind: DestinationKind,
    at_start: EffectiveSettings,
    global: LayerFields,
    models: BTreeMap<String, LayerFields>,
}

impl TraceSettings {
    /// The settings of the command line.
    pub fn new(kind: DestinationKind, at_start: EffectiveSettings) -> Self {
        Self { kind, at_start, global: LayerFields::default(), models: BTreeMap::new() }
    }

    /// The settings of all models that have none of their own.
    pub fn global(&self) -> EffectiveSettings {
        self.global.over(self.at_start)
    }

    /// The settings of a model. `None` if it has none of its own.
    pub fn of_model(&self, model: &str) -> Option<EffectiveSettings> {
        self.models.get(model).map(|fields| fields.over(self.global()))
    }

    /// Records how many more requests the settings of a model, or of all models, trace. So a later change of another
    /// field does not begin to count anew.
    pub fn counted(&mut self, model: Option<&str>, left: u32) {
        let count = match model {
            None => self.global.count.as_mut().unwrap_or(&mut self.at_start.count),
            Some(model) => match self.models.get_mut(model).and_then(|fields| fields.count.as_mut()) {
                Some(count) => count,
                // The model counts for itself from the number of all models.
                None => return,
            },
        };
        if count.is_some() {
            *count = Some(left);
        }
    }

    /// Changes the settings of a model, or of all models. An error changes nothing.
    ///
    /// # Errors
    /// INVALID_ARG: the changed settings ask for traces, and cannot make any.
    pub fn change(&mut self, model: Option<&str>, change: SettingsChange) -> Result<ChangeEffect, Error> {
        let mut changed = self.clone();
        let effect = match model {
            None => {
                changed.global.apply(change);
                let inheriting = changed.models.iter().filter(|(_, fields)| !fields.sets_all());
                ChangeEffect::Global { models: inheriting.map(|(name, _)| name.clone()).collect() }
            }
            Some(model) => {
                let fields = changed.models.entry(model.to_owned()).or_default();
                fields.apply(change);
                if fields.sets_nothing() {
                    changed.models.remove(model);
                    ChangeEffect::Follows
                } else {
                    ChangeEffect::Model
                }
            }
        };
        match (&effect, model) {
            (ChangeEffect::Global { models }, _) => {
                changed.check(&changed.global())?;
                // A model that has used up its count could not trace before the change either.
                let could_trace = |model: &&String| {
                    self.of_model(model).is_some_and(|settings| self.check(&settings).is_ok())
                };
                for model in models.iter().filter(could_trace) {
                    changed.of_model(model).iter().try_for_each(|settings| changed.check(settings))?;
                }
            }
            (ChangeEffect::Model, Some(model)) => {
                changed.of_model(model).iter().try_for_each(|settings| changed.check(settings))?;
            }
            _ => {}
        }
        *self = changed;
        Ok(effect)
    }

    fn check(&self, settings: &EffectiveSettings) -> Result<(), Error> {
        match self.kind.fault(settings) {
            Some(reason) if !settings.levels.is_off() => {
                Err(Error::invalid(format!("Attempting to set invalid trace setting :{reason}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;

//! Reads the parameters of a model's configuration. Each error names the model, the parameter and the rule.
use std::collections::BTreeMap;

use config::{KnownConfigNames, SettingRefusal};
use inference::backend::Implementation;
use vocabulary::Name;

pub(crate) const RESIZE: &str = "RESIZE";
pub(crate) const SCALE: &str = "SCALE";
pub(crate) const MEAN: &str = "MEAN";
pub(crate) const STD: &str = "STD";
pub(crate) const MAX_PIXELS: &str = "MAX_PIXELS";

/// The settings that `--backend-config` may contain, and the parameters of models.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &[Implementation::SETTING],
    parameters: &[MAX_PIXELS, MEAN, RESIZE, SCALE, STD],
};

const DEFAULT_MAX_PIXELS: u64 = 64_000_000;

/// How a picture gets the size of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeMode {
    /// Scales both sides, each by its own factor.
    Stretch,
    /// Cuts the largest part with the output's proportions out of the centre, and scales it.
    Crop,
    /// Scales the whole picture with its proportions, and adds black borders.
    Pad,
}

/// The parameters of one model.
pub(crate) struct PictureParameters<'a> {
    pub(crate) model: &'a Name,
    pub(crate) values: &'a BTreeMap<String, String>,
}

impl PictureParameters<'_> {
    /// How pictures are resized.
    ///
    /// # Errors
    /// Other words.
    pub(crate) fn resize(&self) -> Result<ResizeMode, SettingRefusal> {
        match self.value(RESIZE) {
            None | Some("stretch") => Ok(ResizeMode::Stretch),
            Some("crop") => Ok(ResizeMode::Crop),
            Some("pad") => Ok(ResizeMode::Pad),
            Some(_) => Err(self.refused(RESIZE, "must be stretch, crop or pad")),
        }
    }

    /// The most pixels that a picture may have.
    ///
    /// # Errors
    /// It is refused unless it is a whole number from 1.
    pub(crate) fn max_pixels(&self) -> Result<u64, SettingRefusal> {
        let Some(text) = self.value(MAX_PIXELS) else { return Ok(DEFAULT_MAX_PIXELS) };
        let number = text.parse().ok().filter(|&number: &u64| number > 0);
        number.ok_or_else(|| self.refused(MAX_PIXELS, "must be a whole number from 1"))
    }

    /// The factor of each value.
    ///
    /// # Errors
    /// It is refused unless it is a finite number.
    pub(crate) fn scale(&self) -> Result<f64, SettingRefusal> {
        let Some(text) = self.value(SCALE) else { return Ok(1.0) };
        number(text).ok_or_else(|| self.refused(SCALE, "must be a finite number"))
    }

    /// What is subtracted from the values of each channel.
    ///
    /// # Errors
    /// As [`Self::std`], but zero is allowed.
    pub(crate) fn mean(&self, channels: usize) -> Result<Vec<f64>, SettingRefusal> {
        Ok(self.by_channel(MEAN, channels)?.unwrap_or_else(|| vec![0.0; channels]))
    }

    /// What the values of each channel are divided by.
    ///
    /// # Errors
    /// It is refused unless it is one finite number, or one for each channel, and none is zero.
    pub(crate) fn std(&self, channels: usize) -> Result<Vec<f64>, SettingRefusal> {
        let values = self.by_channel(STD, channels)?.unwrap_or_else(|| vec![1.0; channels]);
        if values.contains(&0.0) {
            return Err(self.refused(STD, "must not be zero, because values are divided by it"));
        }
        Ok(values)
    }

    fn by_channel(&self, parameter: &str, channels: usize) -> Result<Option<Vec<f64>>, SettingRefusal> {
        let Some(text) = self.value(parameter) else { return Ok(None) };
        let values: Option<Vec<f64>> = text.split(',').map(number).collect();
        match values {
            Some(values) if values.len() == 1 => Ok(Some(vec![values[0]; channels])),
            Some(values) if values.len() == channels => Ok(Some(values)),
            _ if channels == 1 => {
                Err(self.refused(parameter, "must be one finite number, because the output has one channel"))
            }
            _ => Err(self.refused(
                parameter,
                &format!("must be one finite number, or {channels} that are separated by commas"),
            )),
        }
    }

    /// Refuses a parameter that only outputs of TYPE_FP32 can have.
    ///
    /// # Errors
    /// The parameter is there.
    pub(crate) fn refuse_for_bytes(&self, parameter: &str, output: &Name) -> Result<(), SettingRefusal> {
        let rule = format!("is for outputs of TYPE_FP32 only, and output '{output}' is TYPE_UINT8");
        self.value(parameter).map_or(Ok(()), |_| Err(self.refused(parameter, &rule)))
    }

    fn value(&self, parameter: &str) -> Option<&str> {
        self.values.get(parameter).map(String::as_str)
    }

    fn refused(&self, parameter: &str, rule: &str) -> SettingRefusal {
        let value = self.value(parameter).unwrap_or_default();
        let text = format!("parameter '{parameter}' of model '{}' {rule}; it is '{value}'", self.model);
        SettingRefusal { field: format!("parameters.{parameter}"), text }
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

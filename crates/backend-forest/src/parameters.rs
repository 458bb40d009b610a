//! Reads the parameters of a configuration. Names and words are those of Triton's FIL backend.
use std::collections::BTreeMap;

use config::{KnownConfigNames, SettingRefusal};
use forest::ForestFormat;
use inference::backend::Implementation;
use vocabulary::Name;

/// The backend's name in configurations.
pub(crate) const BACKEND_NAME: &str = "fil";

/// Setting with the rows of requests, and here of batches, too, if nobody has set the size of batches.
pub(crate) const MAX_REQUEST_ROWS: &str = "max-request-rows";

const ALLOW_UNKNOWN_FIELD: &str = "xgboost_allow_unknown_field";
const CPU_NTHREAD: &str = "cpu_nthread";
const IS_CLASSIFIER: &str = "is_classifier";
const MODEL_TYPE: &str = "model_type";
/// The name of `is_classifier` before Triton 25.09.
const OUTPUT_CLASS: &str = "output_class";
const PREDICT_PROBA: &str = "predict_proba";
const THRESHOLD: &str = "threshold";

/// Parameters that choose between ways to compute the same, mostly of GPUs.
const WITHOUT_EFFECT: [&str; 8] = [
    "algo",
    "blocks_per_sm",
    "chunk_size",
    "layout",
    "storage_type",
    "threads_per_tree",
    "transfer_threshold",
    "use_experimental_optimizations",
];

/// The settings that `--backend-config` may contain, and the parameters of models.
pub(crate) const KNOWN_NAMES: KnownConfigNames = KnownConfigNames {
    settings: &["default-max-batch-size", Implementation::SETTING, MAX_REQUEST_ROWS],
    parameters: &[
        "algo",
        "blocks_per_sm",
        "chunk_size",
        CPU_NTHREAD,
        IS_CLASSIFIER,
        "layout",
        MODEL_TYPE,
        OUTPUT_CLASS,
        PREDICT_PROBA,
        "storage_type",
        THRESHOLD,
        "threads_per_tree",
        "transfer_threshold",
        "use_experimental_optimizations",
        ALLOW_UNKNOWN_FIELD,
    ],
};

/// The words of `model_type`, their formats, and the usual names of the files.
pub(crate) const FORMATS: [(&str, ForestFormat, &str); 5] = [
    ("xgboost_ubj", ForestFormat::XgboostUbjson, "xgboost.ubj"),
    ("xgboost_json", ForestFormat::XgboostJson, "xgboost.json"),
    ("treelite_checkpoint", ForestFormat::TreeliteCheckpoint, "checkpoint.tl"),
    ("lightgbm", ForestFormat::Lightgbm, "model.txt"),
    ("xgboost", ForestFormat::XgboostBinary, "xgboost.model"),
];

/// The parameters of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForestParameters {
    /// `None`: the name of the file tells it.
    pub(crate) format: Option<ForestFormat>,
    /// `None`: the forest tells it.
    pub(crate) is_classifier: Option<bool>,
    /// Whether a classifier answers with probabilities, and not with the class.
    pub(crate) predict_proba: bool,
    /// The probability above which the class of a binary classifier is 1.
    pub(crate) threshold: f32,
    pub(crate) allows_unknown_fields: bool,
    /// The most threads of a large batch; `None`: as many as the instance may have.
    pub(crate) threads: Option<usize>,
    /// The parameters that change nothing here.
    pub(crate) without_effect: Vec<&'static str>,
}

impl ForestParameters {
    /// The parameters of the model `model`.
    ///
    /// # Errors
    /// The rule that a parameter breaks.
    pub(crate) fn of(model: &Name, values: &BTreeMap<String, String>) -> Result<Self, SettingRefusal> {
        let reader = ForestParameterReader { model, values };
        let is_classifier = match reader.flag(IS_CLASSIFIER)? {
            None => reader.flag(OUTPUT_CLASS)?,
            given => given,
        };
        let without_effect = WITHOUT_EFFECT.into_iter().filter(|name| values.contains_key(*name));
        Ok(Self {
            format: reader.format()?,
            is_classifier,
            predict_proba: reader.flag(PREDICT_PROBA)?.unwrap_or(false),
            threshold: reader.threshold()?,
            allows_unknown_fields: reader.flag(ALLOW_UNKNOWN_FIELD)?.unwrap_or(false),
            threads: reader.threads()?,
            without_effect: without_effect.collect(),
        })
    }
}

/// The parameters of one model. Each error names the model, the parameter and the rule.
struct ForestParameterReader<'a> {
    model: &'a Name,
    values: &'a BTreeMap<String, String>,
}

impl ForestParameterReader<'_> {
    fn format(&self) -> Result<Option<ForestFormat>, SettingRefusal> {
        let Some(word) = self.values.get(MODEL_TYPE) else { return Ok(None) };
        match FORMATS.into_iter().find(|(known, ..)| known == word) {
            Some((_, format, _)) => Ok(Some(format)),
            None => {
                let words: Vec<_> = FORMATS.iter().map(|(word, ..)| *word).collect();
                Err(self.refused(MODEL_TYPE, &format!("must be one of {}", words.join(", "))))
            }
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, SettingRefusal> {
        match self.values.get(name).map(String::as_str) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.refused(name, "must be 'true' or 'false'")),
        }
    }

    fn threshold(&self) -> Result<f32, SettingRefusal> {
        const DEFAULT: f32 = 0.5;
        let Some(text) = self.values.get(THRESHOLD) else { return Ok(DEFAULT) };
        let number = text.trim().parse().ok().filter(|number: &f32| number.is_finite());
        number.ok_or_else(|| self.refused(THRESHOLD, "must be a finite number"))
    }

    /// As OpenMP counts threads for Triton: no positive number means all.
    fn threads(&self) -> Result<Option<usize>, SettingRefusal> {
        let Some(text) = self.values.get(CPU_NTHREAD) else { return Ok(None) };
        let number: i64 =
            text.trim().parse().map_err(|_| self.refused(CPU_NTHREAD, "must be a whole number"))?;
        Ok(usize::try_from(number).ok().filter(|&number| number > 0))
    }

    fn refused(&self, name: &str, rule: &str) -> SettingRefusal {
        let given = self.values.get(name).map_or("", String::as_str);
        let text = format!("parameter '{name}' of model '{}' is '{given}', but {rule}", self.model);
        SettingRefusal { field: format!("parameters.{name}"), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&str, &str)]) -> Result<ForestParameters, String> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ForestParameters::of(&Name::new("m"), &values).map_err(|refusal| refusal.text)
    }

    #[test]
    fn defaults_are_those_of_triton_and_the_forest() {
        let parameters = of(&[]).unwrap();
        assert_eq!((parameters.format, parameters.is_classifier), (None, None));
        assert!(!parameters.predict_proba && !parameters.allows_unknown_fields);
        assert!((parameters.threshold - 0.5).abs() < f32::EPSILON);
        assert_eq!(of(&[("cpu_nthread", "-1")]).unwrap().threads, None);
        assert_eq!(of(&[("cpu_nthread", "3")]).unwrap().threads, Some(3));
    }

    #[test]
    fn the_older_name_of_the_classifier_counts_if_the_newer_is_missing() {
        assert_eq!(of(&[("output_class", "true")]).unwrap().is_classifier, Some(true));
        let both = of(&[("output_class", "true"), ("is_classifier", "false")]).unwrap();
        assert_eq!(both.is_classifier, Some(false));
    }

    #[test]
    fn what_has_no_effect_is_listed() {
        let parameters = of(&[("layout", "layered"), ("chunk_size", "4"), ("threshold", "0.3")]).unwrap();
        assert_eq!(parameters.without_effect, ["chunk_size", "layout"]);
    }

    #[test]
    fn each_refusal_names_the_parameter_and_the_rule() {
        for (name, value, rule) in [
            (
                "model_type",
                "pickle",
                "must be one of xgboost_ubj, xgboost_json, treelite_checkpoint, lightgbm, xgboost",
            ),
            ("predict_proba", "True", "must be 'true' or 'false'"),
            ("threshold", "inf", "must be a finite number"),
            ("cpu_nthread", "many", "must be a whole number"),
        ] {
            let expected = format!("parameter '{name}' of model 'm' is '{value}', but {rule}");
            assert_eq!(of(&[(name, value)]).unwrap_err(), expected);
        }
    }
}

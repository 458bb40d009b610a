//! How a model uses the response cache: `response_cache`, and the parameters that begin with `CACHE_`.
use std::time::Duration;

use super::ConfigConversion;
use crate::ResponseCaching;

pub(crate) const TIME_TO_LIVE: &str = "CACHE_TTL_SECONDS";
pub(crate) const STALE_TIME: &str = "CACHE_STALE_SECONDS";
pub(crate) const MAX_ANSWER_BYTES: &str = "CACHE_MAX_ANSWER_BYTES";
pub(crate) const QUOTA_BYTES: &str = "CACHE_QUOTA_BYTES";
pub(crate) const DECOUPLED: &str = "CACHE_DECOUPLED";

/// A longer time is a mistake: 100 years.
const LONGEST_SECONDS: f64 = 100.0 * 366.0 * 24.0 * 3600.0;

/// Whether the configuration enables the response cache.
pub(crate) fn is_cached(config: &proto::ModelConfig) -> bool {
    config.response_cache.as_ref().is_some_and(|cache| cache.enable)
}

/// Whether the configuration allows to cache the responses of a decoupled model.
pub(crate) fn caches_decoupled(config: &proto::ModelConfig) -> bool {
    config.parameters.get(DECOUPLED).is_some_and(|value| value.string_value == "true")
}

impl ConfigConversion<'_> {
    pub(super) fn response_caching(&mut self, config: &proto::ModelConfig) -> Option<ResponseCaching> {
        let caching = ResponseCaching {
            time_to_live: self.seconds(config, TIME_TO_LIVE),
            stale_time: self.seconds(config, STALE_TIME).unwrap_or_default(),
            max_answer_bytes: self.positive_parameter(config, MAX_ANSWER_BYTES),
            quota_bytes: self.positive_parameter(config, QUOTA_BYTES),
            decoupled: self.truth(config, DECOUPLED),
        };
        if caching.time_to_live.is_none() && !caching.stale_time.is_zero() {
            self.wrong(
                &format!("parameters.{STALE_TIME}"),
                &format!("has no effect without '{TIME_TO_LIVE}'"),
            );
        }
        is_cached(config).then_some(caching)
    }

    /// The value of a parameter that must be a positive number of seconds.
    fn seconds(&mut self, config: &proto::ModelConfig, name: &str) -> Option<Duration> {
        let value = &config.parameters.get(name)?.string_value;
        let seconds = value.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_SECONDS);
        if seconds.is_none() {
            let what = format!("has the value '{value}', which is no positive number of seconds");
            self.wrong(&format!("parameters.{name}"), &what);
        }
        seconds.map(Duration::from_secs_f64)
    }
}

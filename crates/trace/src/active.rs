//! The settings that are in force, with the numbers of the requests that they have seen.
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{
            AtomicI64, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use crate::{exporter::Exporter, settings::EffectiveSettings};

/// The number of [`ActiveSetting::left`] that stands for no limit.
const UNLIMITED: i64 = -1;

/// Settings in force, for a model or for all models without settings of their own. A change makes new ones, which
/// count from the beginning. The traces of the old ones keep them alive.
pub(crate) struct ActiveSetting {
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) settings: EffectiveSettings,
    pub(crate) exporter: Arc<Exporter>,
    seen: AtomicU64,
    /// How many more requests may be traced.
    left: AtomicI64,
    /// The traces that have begun and were not taken back.
    begun: AtomicU64,
    /// Those of them that have ended.
    ended: AtomicU64,
}

/// The settings in force for all models.
#[derive(Default)]
pub(crate) struct ActiveSettings {
    pub(crate) global: Option<Arc<ActiveSetting>>,
    /// The models that have settings of their own. `None` for a model whose settings trace no request.
    pub(crate) models: HashMap<String, Option<Arc<ActiveSetting>>>,
}

impl ActiveSettings {
    pub(crate) fn of(&self, model: &str) -> Option<&Arc<ActiveSetting>> {
        if self.models.is_empty() {
            return self.global.as_ref();
        }
        match self.models.get(model) {
            Some(own) => own.as_ref(),
            None => self.global.as_ref(),
        }
    }

    /// Whether any request can be traced.
    pub(crate) fn traces(&self) -> bool {
        self.global.is_some() || self.models.values().any(Option::is_some)
    }
}

impl ActiveSetting {
    pub(crate) fn new(id: u64, settings: EffectiveSettings, exporter: Arc<Exporter>) -> Self {
        let left = AtomicI64::new(settings.count.map_or(UNLIMITED, i64::from));
        let [seen, begun, ended] = [const { AtomicU64::new(0) }; 3];
        Self { id, settings, exporter, seen, left, begun, ended }
    }

    /// Counts a request. Returns whether it is traced. A request of a traced client always is.
    pub(crate) fn sample(&self, belongs_to_trace: bool) -> bool {
        if belongs_to_trace {
            self.begun.fetch_add(1, Relaxed);
            return true;
        }
        let rate = u64::from(self.settings.rate);
        if rate == 0 || self.left.load(Relaxed) == 0 {
            return false;
        }
        if !(self.seen.fetch_add(1, Relaxed) + 1).is_multiple_of(rate) {
            return false;
        }
        let take = |left: i64| match left {
            UNLIMITED => Some(UNLIMITED),
            0 => None,
            left => Some(left - 1),
        };
        let taken = self.left.fetch_update(AcqRel, Acquire, take).is_ok();
        if taken {
            self.begun.fetch_add(1, Relaxed);
        }
        taken
    }

    /// A sampled request was refused before it began. Another one is traced for it (P-W49).
    pub(crate) fn take_back(&self, belonged_to_trace: bool) {
        self.begun.fetch_sub(1, Relaxed);
        if !belonged_to_trace {
            let give = |left: i64| (left != UNLIMITED).then(|| left + 1);
            let _ = self.left.fetch_update(AcqRel, Acquire, give);
        }
    }

    /// How many more requests are traced. `None` for no limit.
    pub(crate) fn left(&self) -> Option<u32> {
        u32::try_from(self.left.load(Relaxed)).ok()
    }

    /// A trace has ended. Returns whether it is the last one: the count is used up, and every other trace has ended.
    pub(crate) fn end_one(&self) -> bool {
        let ended = self.ended.fetch_add(1, AcqRel) + 1;
        self.left.load(Acquire) == 0 && ended == self.begun.load(Acquire)
    }
}

impl Drop for ActiveSetting {
    fn drop(&mut self) {
        self.exporter.setting_ended(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(rate: u32, count: Option<u32>) -> ActiveSetting {
        let settings = EffectiveSettings { rate, count, ..EffectiveSettings::default() };
        ActiveSetting::new(1, settings, Exporter::nowhere())
    }

    fn sampled(setting: &ActiveSetting, requests: usize) -> Vec<usize> {
        (1..=requests).filter(|_| setting.sample(false)).collect()
    }

    #[test]
    fn every_request_whose_number_is_a_multiple_of_the_rate_is_sampled() {
        assert_eq!(sampled(&active(1, None), 3), [1, 2, 3]);
        assert_eq!(sampled(&active(3, None), 10), [3, 6, 9]);
        assert_eq!(sampled(&active(0, None), 10), [0; 0]);
    }

    #[test]
    fn the_count_limits_the_samples_and_not_the_requests() {
        let setting = active(2, Some(2));
        assert_eq!(sampled(&setting, 10), [2, 4]);
        assert_eq!(setting.left(), Some(0));
        assert_eq!(active(1, None).left(), None);
    }

    #[test]
    fn requests_of_traced_clients_are_sampled_whatever_rate_and_count_are() {
        let setting = active(0, Some(0));
        assert!(setting.sample(true));
        assert_eq!(setting.left(), Some(0));
    }

    #[test]
    fn a_refused_request_gives_its_sample_back() {
        let setting = active(1, Some(1));
        assert!(setting.sample(false) && !setting.sample(false));
        setting.take_back(false);
        assert_eq!(setting.left(), Some(1));
        assert!(setting.sample(false));
        assert!(setting.end_one());
        let unlimited = active(1, None);
        assert!(unlimited.sample(false));
        unlimited.take_back(false);
        assert_eq!(unlimited.left(), None);
    }

    #[test]
    fn the_last_trace_is_the_one_that_ends_last_when_the_count_is_used_up() {
        let setting = active(1, Some(2));
        assert!(setting.sample(false));
        assert!(!setting.end_one());
        assert!(setting.sample(false));
        assert!(setting.sample(true));
        assert!(!setting.end_one());
        assert!(setting.end_one());
    }

    #[test]
    fn a_model_with_settings_of_its_own_does_not_follow_the_others() {
        let setting = Arc::new(active(1, None));
        let mut all = ActiveSettings { global: Some(setting.clone()), ..ActiveSettings::default() };
        assert!(all.of("m").is_some() && all.traces());
        all.models.insert("m".to_owned(), None);
        assert!(all.of("m").is_none() && all.of("n").is_some());
        all.global = None;
        assert!(!all.traces());
        all.models.insert("n".to_owned(), Some(setting));
        assert!(all.traces());
    }
}

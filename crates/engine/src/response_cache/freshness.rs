//! Whether a stored answer is still good. Pure.
use std::time::Duration;

use config::ResponseCaching;
use inference::cache::CacheControl;

/// What an answer of some age is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It stays good for so long; `None`: without an end.
    Fresh(Option<Duration>),
    /// It may be given while another one is computed.
    Stale,
    /// It may not be given.
    TooOld,
}

/// Judges an answer by what the model's configuration and the client say.
pub(super) fn freshness(age: Duration, caching: &ResponseCaching, control: CacheControl) -> Freshness {
    if control.max_age.is_some_and(|max_age| max_age < age || max_age.is_zero()) {
        return Freshness::TooOld;
    }
    match caching.time_to_live {
        None => Freshness::Fresh(None),
        Some(time_to_live) if age < time_to_live => Freshness::Fresh(Some(time_to_live - age)),
        Some(time_to_live) if age < time_to_live + caching.stale_time => Freshness::Stale,
        Some(_) => Freshness::TooOld,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(age: u64, time_to_live: Option<u64>, stale: u64, max_age: Option<u64>) -> Freshness {
        let seconds = Duration::from_secs;
        let caching = ResponseCaching {
            time_to_live: time_to_live.map(seconds),
            stale_time: seconds(stale),
            ..ResponseCaching::default()
        };
        let control = CacheControl { max_age: max_age.map(seconds), ..CacheControl::default() };
        freshness(seconds(age), &caching, control)
    }

    #[test]
    fn answers_without_a_time_to_live_stay_fresh() {
        assert_eq!(judge(1_000_000, None, 0, None), Freshness::Fresh(None));
    }

    #[test]
    fn an_answer_is_fresh_then_stale_then_too_old() {
        assert_eq!(judge(3, Some(10), 5, None), Freshness::Fresh(Some(Duration::from_secs(7))));
        assert_eq!(judge(10, Some(10), 5, None), Freshness::Stale);
        assert_eq!(judge(14, Some(10), 5, None), Freshness::Stale);
        assert_eq!(judge(15, Some(10), 5, None), Freshness::TooOld);
        assert_eq!(judge(10, Some(10), 0, None), Freshness::TooOld);
    }

    #[test]
    fn a_client_may_want_younger_answers() {
        assert_eq!(judge(5, None, 0, Some(5)), Freshness::Fresh(None));
        assert_eq!(judge(6, None, 0, Some(5)), Freshness::TooOld);
        assert_eq!(judge(0, None, 0, Some(0)), Freshness::TooOld);
        assert_eq!(judge(6, Some(10), 5, Some(5)), Freshness::TooOld);
        assert_eq!(judge(12, Some(10), 5, Some(60)), Freshness::Stale);
    }
}

//! What a client may say about the response cache, and what it is told: the headers `Cache-Control` (RFC 9111) and
//! `Cache-Status` (RFC 9211). Over gRPC, metadata of these names.
use std::{fmt, time::Duration};

/// The part of `Cache-Control` that a request may use. The default uses the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `no-cache`: the model must answer. Its answer replaces the stored one.
    pub refreshes: bool,
    /// `no-store`: the model must answer, and the answer is not stored.
    pub bypasses: bool,
    /// `max-age`: an older answer is not good enough.
    pub max_age: Option<Duration>,
}

impl CacheControl {
    /// Adds the directives of a header. Directives that have no meaning here are ignored, as RFC 9111 demands.
    #[must_use]
    pub fn with(mut self, header: &[u8]) -> Self {
        for directive in header.split(|&byte| byte == b',') {
            let directive = directive.trim_ascii();
            let mut parts = directive.splitn(2, |&byte| byte == b'=');
            let name = parts.next().unwrap_or_default();
            let value = parts.next();
            if name.eq_ignore_ascii_case(b"no-store") {
                self.bypasses = true;
            } else if name.eq_ignore_ascii_case(b"no-cache") {
                self.refreshes = true;
            } else if name.eq_ignore_ascii_case(b"max-age") {
                // RFC 9111, 5.2.1.1: a value that cannot be read means that no answer is young enough.
                let seconds = value.and_then(seconds).unwrap_or(0);
                let age = Duration::from_secs(seconds);
                self.max_age = Some(self.max_age.map_or(age, |other| other.min(age)));
            }
        }
        self
    }
}

fn seconds(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Where an answer comes from. `Display` writes the value of the header `Cache-Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// From the cache. It stays fresh for so long; `None`: without an end.
    Hit(Option<Duration>),
    /// From the cache, although it is older than it should be. A new one is being computed.
    StaleHit,
    /// From the model, because the cache had none.
    Miss,
    /// From the model, which computed it for an equal request at the same time.
    Collapsed,
    /// From the model, because the answer of the cache was too old.
    TooOld,
    /// From the model, because the client wanted a new one.
    Refreshed,
    /// From the model, because the client did not want the cache.
    Bypassed,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nereid; ")?;
        match self {
            Self::Hit(None) => f.write_str("hit"),
            Self::Hit(Some(fresh)) => write!(f, "hit; ttl={}", fresh.as_secs()),
            Self::StaleHit => f.write_str("hit; detail=stale"),
            Self::Miss => f.write_str("fwd=uri-miss"),
            Self::Collapsed => f.write_str("fwd=uri-miss; collapsed"),
            Self::TooOld => f.write_str("fwd=stale"),
            Self::Refreshed => f.write_str("fwd=request"),
            Self::Bypassed => f.write_str("fwd=bypass"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(header: &str) -> CacheControl {
        CacheControl::default().with(header.as_bytes())
    }

    #[test]
    fn directives_are_read_in_any_case_and_order() {
        assert_eq!(control(""), CacheControl::default());
        assert_eq!(control("only-if-cached, max-stale=5, x=\"no-store\""), CacheControl::default());
        let all = control(" Max-Age=7 ,NO-CACHE,no-Store");
        let seven = Some(Duration::from_secs(7));
        assert_eq!(all, CacheControl { refreshes: true, bypasses: true, max_age: seven });
    }

    #[test]
    fn the_smallest_age_counts_and_a_wrong_one_is_zero() {
        let age = |header| control(header).max_age.map(|age| age.as_secs());
        assert_eq!(age("max-age=9, max-age=\"3\", max-age=5"), Some(3));
        for wrong in ["max-age", "max-age=", "max-age=-1", "max-age=x", "max-age=99999999999999999999"] {
            assert_eq!(age(wrong), Some(0), "{wrong}");
        }
    }

    #[test]
    fn the_status_is_a_list_of_one_cache() {
        let texts = [
            (CacheStatus::Hit(None), "Nereid; hit"),
            (CacheStatus::Hit(Some(Duration::from_millis(2_900))), "Nereid; hit; ttl=2"),
            (CacheStatus::StaleHit, "Nereid; hit; detail=stale"),
            (CacheStatus::Miss, "Nereid; fwd=uri-miss"),
            (CacheStatus::Collapsed, "Nereid; fwd=uri-miss; collapsed"),
            (CacheStatus::TooOld, "Nereid; fwd=stale"),
            (CacheStatus::Refreshed, "Nereid; fwd=request"),
            (CacheStatus::Bypassed, "Nereid; fwd=bypass"),
        ];
        for (status, text) in texts {
            assert_eq!(status.to_string(), text);
        }
    }
}

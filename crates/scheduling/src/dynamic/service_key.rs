//! The order of service, as a key.

/// A position in the order of service; a smaller key is served earlier. The key of a request changes only when the
/// queue delays the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceKey {
    /// The lowest priority level is served first.
    level: u64,
    rank: LevelRank,
}

/// Late requests of a level are served after those on time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LevelRank {
    OnTime { serial: u64 },
    Late { number: u64 },
}

impl ServiceKey {
    /// The key of a request on time, by its serial number.
    pub(super) const fn on_time(level: u64, serial: u64) -> Self {
        Self { level, rank: LevelRank::OnTime { serial } }
    }

    /// The key of a late request, by its number in the order in which requests of its level became late.
    pub(super) const fn late(level: u64, number: u64) -> Self {
        Self { level, rank: LevelRank::Late { number } }
    }
}

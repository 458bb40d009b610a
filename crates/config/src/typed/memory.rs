//! Which models stay in memory when not all fit: the parameters that begin with `MEMORY_`.
use super::ConfigConversion;
use crate::MemoryRank;

pub(crate) const PINNED: &str = "MEMORY_PINNED";
pub(crate) const PRIORITY: &str = "MEMORY_PRIORITY";

/// The largest priority.
const MOST_PRIORITY: u32 = 1000;

impl MemoryRank {
    /// What a configuration asks for. Values that are not allowed count as missing.
    pub fn of(config: &proto::ModelConfig) -> Self {
        let value = |name: &str| config.parameters.get(name).map(|value| value.string_value.as_str());
        Self {
            is_pinned: value(PINNED) == Some("true"),
            priority: value(PRIORITY).and_then(priority).unwrap_or_default(),
        }
    }
}

fn priority(text: &str) -> Option<u32> {
    text.parse().ok().filter(|priority| *priority <= MOST_PRIORITY)
}

impl ConfigConversion<'_> {
    pub(super) fn memory_rank(&mut self, config: &proto::ModelConfig) -> MemoryRank {
        self.truth(config, PINNED);
        if let Some(value) = config.parameters.get(PRIORITY).map(|value| &value.string_value)
            && priority(value).is_none()
        {
            let what = format!("has the value '{value}', which is no number from 0 to {MOST_PRIORITY}");
            self.wrong(&format!("parameters.{PRIORITY}"), &what);
        }
        MemoryRank::of(config)
    }
}

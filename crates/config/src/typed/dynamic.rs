//! `dynamic_batching`.
use std::{num::NonZero, time::Duration};

use proto::{ModelDynamicBatching, ModelQueuePolicy, model_queue_policy::TimeoutAction as Action};
use scheduling::{DynamicBatching, QueuePolicy, TimeoutAction};

use super::ConfigConversion;

impl ConfigConversion<'_> {
    pub(super) fn dynamic_batching(
        &mut self,
        config: &proto::ModelConfig,
        batching: &ModelDynamicBatching,
    ) -> DynamicBatching {
        let sizes = batching.preferred_batch_size.iter();
        let mut policy = |policy: &ModelQueuePolicy| self.queue_policy(policy);
        let default_queue_policy =
            batching.default_queue_policy.as_ref().map(&mut policy).unwrap_or_default();
        let policies = batching.priority_queue_policy.iter();
        let priority_queue_policies = policies.map(|(level, own)| (*level, policy(own))).collect();
        let field = "dynamic_batching.preferred_batch_size";
        DynamicBatching {
            max_batch_size: self.size("max_batch_size", config.max_batch_size),
            preferred_batch_sizes: sizes.map(|size| self.size(field, *size)).collect(),
            max_queue_delay: Duration::from_micros(batching.max_queue_delay_microseconds),
            preserve_ordering: batching.preserve_ordering,
            priority_levels: batching.priority_levels,
            default_priority_level: batching.default_priority_level,
            default_queue_policy,
            priority_queue_policies,
            ..DynamicBatching::default()
        }
    }

    fn queue_policy(&mut self, policy: &ModelQueuePolicy) -> QueuePolicy {
        let timeout_action = match Action::try_from(policy.timeout_action) {
            Ok(Action::Reject) => TimeoutAction::Reject,
            Ok(Action::Delay) => TimeoutAction::Delay,
            Err(_) => {
                self.wrong("timeout_action", &format!("has no value {}", policy.timeout_action));
                TimeoutAction::default()
            }
        };
        let timeout = Some(policy.default_timeout_microseconds).filter(|timeout| *timeout > 0);
        let size = usize::try_from(policy.max_queue_size).unwrap_or(usize::MAX);
        QueuePolicy {
            default_timeout: timeout.map(Duration::from_micros),
            timeout_action,
            allow_timeout_override: policy.allow_timeout_override,
            max_queue_size: NonZero::new(size),
        }
    }
}

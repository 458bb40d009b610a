//! `instance_group`.
use std::num::{NonZeroU32, NonZeroUsize};

use proto::{
    ModelInstanceGroup,
    model_instance_group::{Kind, secondary_device::SecondaryDeviceKind},
};
use vocabulary::ErrorCode;

use super::{
    super::{InstanceGroup, InstanceKind, RateLimits, ResourceNeed, SecondaryDevice},
    ConfigConversion,
};

impl ConfigConversion<'_> {
    pub(super) fn instance_groups(&mut self, config: &proto::ModelConfig) -> Vec<InstanceGroup> {
        let groups = config.instance_group.iter().enumerate();
        groups.filter_map(|(position, group)| self.instance_group(position, group)).collect()
    }

    fn instance_group(&mut self, position: usize, group: &ModelInstanceGroup) -> Option<InstanceGroup> {
        let kind = match group.kind() {
            Kind::Cpu | Kind::Auto => InstanceKind::Cpu,
            Kind::Model => InstanceKind::Model,
            Kind::Gpu => {
                let text = format!(
                    "'KIND_GPU' of instance group '{}' of model '{}' is not supported by this version of nereid",
                    group.name, self.model
                );
                self.errors.push(ErrorCode::Unsupported, &format!("instance_group[{position}].kind"), text);
                return None;
            }
        };
        let field = format!("instance_group[{position}]");
        let count = usize::try_from(group.count).ok().and_then(NonZeroUsize::new);
        if count.is_none() {
            self.wrong(&format!("{field}.count"), "must be positive");
        }
        let host_policy =
            if group.host_policy.is_empty() { kind.usual_host_policy() } else { &group.host_policy };
        Some(InstanceGroup {
            name: self.name(&format!("{field}.name"), &group.name),
            kind,
            count: count?,
            passive: group.passive,
            host_policy: self.name(&format!("{field}.host_policy"), host_policy),
            profiles: group.profile.clone(),
            secondary_devices: self.secondary_devices(&field, group),
            rate_limiter: self.rate_limits(&field, group),
        })
    }

    fn secondary_devices(&mut self, group_field: &str, group: &ModelInstanceGroup) -> Vec<SecondaryDevice> {
        let mut devices = Vec::with_capacity(group.secondary_devices.len());
        for (position, device) in group.secondary_devices.iter().enumerate() {
            match SecondaryDeviceKind::try_from(device.kind) {
                Ok(kind) => devices
                    .push(SecondaryDevice { kind: kind.as_str_name().into(), device_id: device.device_id }),
                Err(_) => {
                    let field = format!("{group_field}.secondary_devices[{position}].kind");
                    self.wrong(&field, &format!("has no value {}", device.kind));
                }
            }
        }
        devices
    }

    fn rate_limits(&mut self, group_field: &str, group: &ModelInstanceGroup) -> RateLimits {
        let Some(limiter) = &group.rate_limiter else { return RateLimits::default() };
        let mut resources = Vec::with_capacity(limiter.resources.len());
        for (position, resource) in limiter.resources.iter().enumerate() {
            let field = format!("{group_field}.rate_limiter.resources[{position}].name");
            let name = self.name(&field, &resource.name);
            resources.push(ResourceNeed { name, global: resource.global, count: resource.count });
        }
        let priority = NonZeroU32::new(limiter.priority).unwrap_or(NonZeroU32::MIN);
        RateLimits { resources, priority }
    }
}

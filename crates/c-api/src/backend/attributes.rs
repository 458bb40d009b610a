//! `TRITONBACKEND_BackendAttribute`: what a backend declares about itself, once.
use inference::lock::Mutex;
use proto::{ModelInstanceGroup, model_instance_group::Kind};

use crate::{
    handle::{Handle, array, borrow, guard},
    types::{
        enums::{InstanceGroupKind, KIND_CPU, KIND_GPU, KIND_MODEL},
        error::CError,
    },
};

/// `TRITONBACKEND_BackendAttribute`, while the backend fills it in.
#[derive(Debug, Default)]
pub struct Attributes {
    values: Mutex<AttributeValues>,
}

/// What the backend has declared.
#[derive(Debug, Default)]
pub(super) struct AttributeValues {
    pub(super) preferred_groups: Vec<ModelInstanceGroup>,
    pub(super) parallel_loading: bool,
}

impl Attributes {
    pub(super) fn into_values(self) -> AttributeValues {
        self.values.into_inner()
    }
}

impl Handle for Attributes {
    const NAME: &'static str = "TRITONBACKEND_BackendAttribute";
}

/// Adds instance groups for models whose configuration names none, in the order of preference. Device numbers are
/// copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    attributes: *mut Attributes,
    kind: InstanceGroupKind,
    count: u64,
    device_ids: *const u64,
    id_count: u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live attributes; null or that many numbers.
        let (attributes, devices) = unsafe { (borrow(attributes)?, array(device_ids, id_count)?) };
        attributes.values.lock().preferred_groups.push(group(kind, count, devices));
        Ok(())
    })
}

fn group(kind: InstanceGroupKind, count: u64, devices: &[u64]) -> ModelInstanceGroup {
    let kind = match kind {
        KIND_CPU => Kind::Cpu,
        KIND_GPU => Kind::Gpu,
        KIND_MODEL => Kind::Model,
        _ => Kind::Auto,
    };
    ModelInstanceGroup {
        kind: kind as i32,
        count: i32::try_from(count).unwrap_or(i32::MAX),
        gpus: devices.iter().filter_map(|device| i32::try_from(*device).ok()).collect(),
        ..ModelInstanceGroup::default()
    }
}

/// Sets whether instances may be initialized in parallel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    attributes: *mut Attributes,
    enabled: bool,
) -> *mut CError {
    // SAFETY: null or live attributes.
    guard(|| unsafe { borrow(attributes) }.map(|own| own.values.lock().parallel_loading = enabled))
}

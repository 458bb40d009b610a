//! `TRITONBACKEND_ModelInstance`: one executable copy of a model that a backend runs.
use std::{
    ffi::{CString, c_char, c_void},
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicPtr,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use config::{InstanceGroup, ModelConfig};
use inference::{
    BatchReporter,
    backend::{InstanceDevice, InstanceSpec},
    lock::Mutex,
};
use vocabulary::{Error, Name};

use super::{
    Model,
    in_use::{InUseCount, InUseGuard},
    usage::{MemoryAccount, MemoryUse},
};
use crate::{
    handle::{Handle, borrow, guard, put, readable},
    types::{
        buffer_attributes::BufferAttributes,
        enums::{InstanceGroupKind, KIND_CPU, KIND_GPU, KIND_MODEL},
        error::{CError, c_text},
        message::Message,
    },
};

/// How long the end of an instance waits for the library to release what it holds, before the log says so.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// `TRITONBACKEND_ModelInstance`.
#[derive(Debug)]
pub struct ModelInstance {
    name: Name,
    kind: InstanceGroupKind,
    device_id: i32,
    is_passive: bool,
    host_policy: Message,
    profiles: Box<[CString]>,
    /// Kind and number of each further device.
    secondary_devices: Box<[(Name, i64)]>,
    model: Arc<Model>,
    state: AtomicPtr<c_void>,
    /// The requests of the latest batch.
    reporter: Mutex<Option<BatchReporter>>,
    in_use: Arc<InUseCount>,
    memory: MemoryAccount,
}

impl Handle for ModelInstance {
    const NAME: &'static str = "TRITONBACKEND_ModelInstance";
}

impl ModelInstance {
    pub(super) fn new(model: &Arc<Model>, config: &ModelConfig, spec: &InstanceSpec) -> Self {
        let (kind, device_id) = match spec.device {
            InstanceDevice::Cpu => (KIND_CPU, 0),
            InstanceDevice::Model => (KIND_MODEL, 0),
            InstanceDevice::Gpu(ordinal) => (KIND_GPU, i32::try_from(ordinal).unwrap_or(i32::MAX)),
        };
        let group = group_of(config, &spec.name);
        let policy = group.map_or("cpu", |group| &group.host_policy);
        let secondary = group.map(|group| &group.secondary_devices[..]).unwrap_or_default();
        let profiles = group.map(|group| &group.profiles[..]).unwrap_or_default();
        Self {
            name: spec.name.clone(),
            kind,
            device_id,
            is_passive: spec.passive,
            host_policy: Message::new(&model.host_policy(policy).to_string()),
            profiles: profiles.iter().map(|profile| c_text(profile)).collect(),
            secondary_devices: secondary
                .iter()
                .map(|device| (device.kind.clone(), device.device_id))
                .collect(),
            model: model.clone(),
            state: AtomicPtr::default(),
            reporter: Mutex::default(),
            in_use: model.in_use_counts().add(),
            memory: model.memory().beside(),
        }
    }

    pub(super) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Counts one more object of this instance that the library holds.
    pub(super) fn hold(&self) -> InUseGuard {
        self.in_use.hold()
    }

    /// Returns when the library holds nothing of this instance any more. Blocks.
    pub(super) fn wait_for_releases(&self) {
        self.in_use.wait(TOLD_AFTER, |left| {
            log::info!(
                "instance '{}' of model '{}' ends when its backend has released {left} requests, responses or response \
                 factories",
                self.name,
                self.model.name()
            );
        });
    }

    /// From this call on, reports of the library refer to that batch.
    pub(super) fn report_through(&self, reporter: Option<BatchReporter>) {
        *self.reporter.lock() = reporter;
    }

    pub(super) fn reporter(&self) -> Option<BatchReporter> {
        self.reporter.lock().clone()
    }
}

/// The group of an instance whose name is `<group>_<index>`.
fn group_of<'a>(config: &'a ModelConfig, instance: &str) -> Option<&'a InstanceGroup> {
    let (group, _) = instance.rsplit_once('_')?;
    config.instance_groups.iter().find(|candidate| candidate.name == group)
}

fn out_of_bounds(index: u32, has: usize, what: &str) -> Error {
    Error::invalid(format!("out of bounds index {index}: instance is configured with {has} {what}"))
}

/// Returns the instance's name, `<group>_<index>`. It belongs to the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceName(
    instance: *mut ModelInstance,
    name: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(name, readable(&borrow(instance)?.name)) })
}

/// Returns the kind of device that the instance runs on; never AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceKind(
    instance: *mut ModelInstance,
    kind: *mut InstanceGroupKind,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(kind, borrow(instance)?.kind) })
}

/// Returns the device's number; 0 for host processors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceDeviceId(
    instance: *mut ModelInstance,
    device_id: *mut i32,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(device_id, borrow(instance)?.device_id) })
}

/// Returns the host policy as `{"<name>": {...}}`. The message belongs to the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceHostPolicy(
    instance: *mut ModelInstance,
    host_policy: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(host_policy, ptr::from_ref(&borrow(instance)?.host_policy).cast_mut()) })
}

/// Returns whether the instance is passive: it never gets requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceIsPassive(
    instance: *mut ModelInstance,
    is_passive: *mut bool,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(is_passive, borrow(instance)?.is_passive) })
}

/// Returns the number of optimization profiles that the configuration gives the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceProfileCount(
    instance: *mut ModelInstance,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(count, u32::try_from(borrow(instance)?.profiles.len()).unwrap_or(u32::MAX)) })
}

/// Returns an optimization profile. It belongs to the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceProfileName(
    instance: *mut ModelInstance,
    index: u32,
    profile_name: *mut *const c_char,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live instance.
        let profiles = unsafe { &borrow(instance)?.profiles };
        let profile = usize::try_from(index).ok().and_then(|index| profiles.get(index));
        let profile = profile.ok_or_else(|| out_of_bounds(index, profiles.len(), "profiles"))?;
        // SAFETY: null or writable.
        unsafe { put(profile_name, profile.as_ptr()) }
    })
}

/// Returns the number of secondary devices that the configuration gives the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    instance: *mut ModelInstance,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe {
        let devices = &borrow(instance)?.secondary_devices;
        put(count, u32::try_from(devices.len()).unwrap_or(u32::MAX))
    })
}

/// Returns the kind and the number of a secondary device. The kind belongs to the instance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    instance: *mut ModelInstance,
    index: u32,
    kind: *mut *const c_char,
    id: *mut i64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live instance.
        let devices = unsafe { &borrow(instance)?.secondary_devices };
        let device = usize::try_from(index).ok().and_then(|index| devices.get(index));
        let (name, number) =
            device.ok_or_else(|| out_of_bounds(index, devices.len(), "secondary devices"))?;
        // SAFETY: null or writable.
        unsafe { put(kind, readable(name)).and_then(|()| put(id, *number)) }
    })
}

/// Returns the instance's model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceModel(
    instance: *mut ModelInstance,
    model: *mut *mut Model,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(model, Arc::as_ptr(&borrow(instance)?.model).cast_mut()) })
}

/// Returns the pointer that the library has stored with the instance; null at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceState(
    instance: *mut ModelInstance,
    state: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live instance; null or writable.
    guard(|| unsafe { put(state, borrow(instance)?.state.load(Acquire)) })
}

/// Stores a pointer with the instance. The library keeps owning what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSetState(
    instance: *mut ModelInstance,
    state: *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live instance.
    guard(|| unsafe { borrow(instance) }.map(|own| own.state.store(state, Release)))
}

/// Reports how much memory of each kind the instance uses. It replaces the previous report. The library keeps owning
/// the attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportMemoryUsage(
    instance: *mut ModelInstance,
    usage: *mut *mut BufferAttributes,
    usage_size: u32,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live instance; that many live attributes.
        let (instance, amounts) = unsafe { (borrow(instance)?, MemoryUse::read(usage, usage_size)?) };
        log::debug!("instance '{}' uses {amounts}", instance.name);
        instance.memory.report(amounts);
        Ok(())
    })
}

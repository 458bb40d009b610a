//! Options of memory pools and devices. Nereid reserves no memory in advance and uses no GPU.
use std::ffi::{CStr, c_char, c_int};

use c_api::{
    handle::text,
    types::{
        enums::{InstanceGroupKind, KIND_GPU, TRITONSERVER_InstanceGroupKindString},
        error::CError,
    },
};
use host::ProcessorSet;
use inference::BackendSetting;
use vocabulary::Error;

use super::{ServerOptions, set};

/// Sets how much page-locked memory to reserve; without effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(
    options: *mut ServerOptions,
    _size: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets how much memory of a GPU to reserve; without effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(
    options: *mut ServerOptions,
    _gpu_device: c_int,
    _size: u64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets how much address space of a GPU to reserve; without effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    options: *mut ServerOptions,
    _gpu_device: c_int,
    _cuda_virtual_address_size: usize,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets the lowest compute capability of usable GPUs. Nereid passes it to backends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    options: *mut ServerOptions,
    cc: f64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.min_compute_capability = cc;
            Ok(())
        })
    }
}

/// Sets whether GPUs may access each other's memory; without effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    options: *mut ServerOptions,
    _enable_peer_access: bool,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets how many threads copy inputs and outputs; without effect, as Nereid has no such threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(
    options: *mut ServerOptions,
    _thread_count: u32,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe { set(options, |_| Ok(())) }
}

/// Sets how full the memory of a GPU may be when a model is loaded onto it. Nereid passes it to backends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    options: *mut ServerOptions,
    kind: InstanceGroupKind,
    device_id: c_int,
    fraction: f64,
) -> *mut CError {
    // SAFETY: null or live options.
    unsafe {
        set(options, |own| {
            own.backend_settings.push(load_limit(kind, device_id, fraction)?);
            Ok(())
        })
    }
}

fn load_limit(kind: InstanceGroupKind, device: c_int, fraction: f64) -> Result<BackendSetting, Error> {
    if device < 0 {
        return Err(Error::invalid(format!("expects device ID >= 0, got {device}")));
    }
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Error::invalid(format!(
            "expects limit fraction to be in range [0.0, 1.0], got {fraction:.6}"
        )));
    }
    if kind != KIND_GPU {
        // SAFETY: a static text.
        let kind = unsafe { CStr::from_ptr(TRITONSERVER_InstanceGroupKindString(kind)) };
        let kind = kind.to_string_lossy();
        return Err(Error::invalid(format!("given device kind is not supported, got: {kind}")));
    }
    let key = format!("model-load-gpu-limit-device-{device}");
    Ok(BackendSetting { backend: None, key, value: format!("{fraction:.6}") })
}

/// Sets a host policy, which determines where the instances of its groups run: `numa-node` or `cpu-cores`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetHostPolicy(
    options: *mut ServerOptions,
    policy_name: *const c_char,
    setting: *const c_char,
    value: *const c_char,
) -> *mut CError {
    // SAFETY: null or live options; texts or null.
    unsafe {
        set(options, |own| {
            let (name, setting, value) = (text(policy_name)?, text(setting)?, text(value)?);
            let mut policy = own.host_policies.get(name).cloned().unwrap_or_default();
            apply(&mut policy, setting, value)?;
            own.host_policies.insert(name.to_owned(), policy);
            Ok(())
        })
    }
}

fn apply(policy: &mut host::HostPolicy, setting: &str, value: &str) -> Result<(), Error> {
    let wrong = || Error::invalid(format!("host policy setting '{setting}' cannot be '{value}'"));
    match setting {
        "numa-node" => policy.numa_node = Some(value.parse().map_err(|_| wrong())?),
        "cpu-cores" => policy.cpu_cores = Some(ProcessorSet::parse(value).ok_or_else(wrong)?),
        other => {
            return Err(Error::unsupported(format!(
                "Unsupported host policy setting '{other}' is specified, supported settings are 'numa-node', \
                 'cpu-cores'"
            )));
        }
    }
    Ok(())
}

//! Options of memory pools, devices and shared memory.

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, boolean, checked, float, integer};
use crate::options::values;

const NOTHING_RESERVED: &str = "no memory is reserved ahead";
/// The reason why the number of threads that copy inputs and outputs has no effect.
pub(in super::super) const NO_COPYING_THREADS: &str = "there are no threads for copying inputs and outputs";

pub(super) const DEVICES: &[OptionSpec] = &[
    OptionSpec::new(
        "pinned-memory-pool-byte-size",
        OptionValue::Integer(0, i64::MAX, |typed, value| typed.devices.pinned_pool_byte_size = value),
        "The size of page-locked host memory to reserve, in bytes. Shown at startup.",
    )
    .default("268435456")
    .without_effect(NOTHING_RESERVED),
    checked(
        "cuda-memory-pool-byte-size",
        "<device>:<bytes>",
        |typed, value| {
            let (device, size) = device_and_size(value)?;
            typed.devices.cuda_pool_byte_sizes.insert(device, size);
            Ok(())
        },
        "The size of the memory to reserve on a device. Shown at startup.",
    )
    .default_note("67108864 on each device")
    .without_effect(NOTHING_RESERVED),
    checked(
        "cuda-virtual-address-size",
        "<device>:<bytes>",
        |_, value| device_and_size(value).map(drop),
        "The size of the address space to reserve on a device for growing outputs.",
    )
    .default_note("1073741824 on each device")
    .without_effect(NOTHING_RESERVED),
    float(
        "min-supported-compute-capability",
        |typed, value| typed.devices.min_supported_compute_capability = value,
        "The minimum compute capability of a usable device. Shown at startup.",
    )
    .default("0.0")
    .without_effect("no graphics processors are used"),
    integer(
        "buffer-manager-thread-count",
        |_, _| (),
        "The number of threads that copy inputs and outputs.",
    )
    .default("0")
    .without_effect(NO_COPYING_THREADS),
    checked(
        "host-policy",
        "<policy>,<setting>=<value>",
        |typed, value| {
            let (name, key, value) = values::named_setting(value, "host-policy", "policy name", ',')?;
            let policy = typed.devices.host_policies.entry(name.to_owned()).or_default();
            match key {
                "numa-node" => policy.numa_node = Some(values::unsigned_int(value)?),
                "cpu-cores" => policy.cpu_cores = Some(values::processors(value)?),
                _ => typed.devices.unknown_host_settings.push(key.to_owned()),
            }
            Ok(())
        },
        "The processors for the instances of groups with this policy. 'numa-node': all processors of this node. \
             'cpu-cores': the listed processors (0-3,8). A group without a policy has the policy of its kind, 'cpu' \
             or 'model'. May be given several times.",
    ),
    checked(
        "model-load-gpu-limit",
        "<device>:<fraction>",
        |typed, value| {
            let (device, fraction) = values::pair(value, ":")?;
            let device = values::integer(device, -INT_MAX - 1, INT_MAX)?;
            typed.devices.load_gpu_limits.push((device, values::float(fraction)?));
            Ok(())
        },
        "The server loads no model onto a device if more than this fraction of its memory is in use. May be given \
         several times.",
    )
    .without_effect("no graphics processors are used"),
    boolean("enable-peer-access", |_, _| (), "Allow devices to access each other's memory.")
        .default("true")
        .without_effect("no memory is shared between devices"),
];

pub(super) const SHARED_MEMORY: &[OptionSpec] = &[boolean(
    "allow-client-shm",
    |typed, value| typed.devices.allow_client_shm = value,
    "Allow clients to register shared memory.",
)
.default("false")];

fn device_and_size(value: &str) -> Result<(u32, u64), String> {
    let (device, size) = values::pair(value, ":")?;
    let device = values::integer(device, 0, INT_MAX)?;
    let size = values::integer(size, 0, i64::MAX)?;
    Ok((device.try_into().expect("at most C's largest int"), size.try_into().expect("not negative")))
}

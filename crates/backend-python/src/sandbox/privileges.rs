//! Takes the privileges of the calling thread away, and so of what it starts.
use rustix::{
    process::geteuid,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs,
    },
};

use crate::sandbox::{Protection, SandboxUser};

/// More capabilities than a kernel has.
const MOST_CAPABILITIES: u32 = 64;

/// Drops all capabilities for good. `user` is the user that the started process becomes: for that change the thread keeps
/// its capabilities, and the process loses them by the change. Returns what cannot be done.
pub(super) fn drop_all(user: Option<SandboxUser>) -> Vec<Protection> {
    let mut missing = Vec::new();
    if set_no_new_privs(true).is_err() {
        missing.push(Protection::Privileges);
    }
    for number in 0..MOST_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // Unknown numbers are errors. Without CAP_SETPCAP nothing can be removed, and nothing is needed: what the thread
        // has not, it cannot get any more.
        if matches!(capability_is_in_bounding_set(capability), Ok(true)) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    // Old kernels have no ambient set.
    let _ = clear_ambient_capability_set();
    let changes_user = user.is_some_and(SandboxUser::is_another);
    let kept = match capabilities(None) {
        Ok(sets) if changes_user => (sets.effective, sets.permitted),
        _ => (CapabilitySet::empty(), CapabilitySet::empty()),
    };
    let sets = CapabilitySets { effective: kept.0, permitted: kept.1, inheritable: CapabilitySet::empty() };
    if set_capabilities(None, sets).is_err() {
        missing.push(Protection::Privileges);
    }
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if changes_user && !(geteuid().is_root() && kept.0.contains(needed)) {
        missing.push(Protection::User);
    }
    // The kernel counts no processes of the superuser.
    if user.map_or_else(|| geteuid().is_root(), |user| user.uid == 0) {
        missing.push(Protection::Processes);
    }
    missing
}

//! Takes the privileges of the calling thread away, and so of what it starts.
use rustix::{
    process::geteuid,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs,
    },
};

use super::{protection::Protection, settings::SandboxUser};

/// More capabilities than a kernel has.
const MOST_CAPABILITIES: u32 = 64;

const NOTHING: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

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
    let sets = capabilities(None).unwrap_or(NOTHING);
    let changes_user = user.is_some_and(SandboxUser::is_another);
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let can_change = changes_user && geteuid().is_root() && sets.effective.contains(needed);
    let kept =
        if can_change { CapabilitySets { inheritable: CapabilitySet::empty(), ..sets } } else { NOTHING };
    if set_capabilities(None, kept).is_err() {
        missing.push(Protection::Privileges);
    }
    if changes_user && !can_change {
        missing.push(Protection::User);
    }
    // The kernel counts no processes of the superuser.
    if geteuid().is_root() && !can_change {
        missing.push(Protection::Processes);
    }
    missing
}

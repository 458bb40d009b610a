//! System calls that a sandbox refuses: filters of seccomp for the calling thread.
//!
//! The network is closed here and not by Landlock, which knows TCP only. A process without `socket` reaches nothing: no
//! address, no unix socket. Pairs of sockets (`socketpair`) and pipes remain, which asyncio and multiprocessing use.
use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use crate::sandbox::Protection;

/// On x86-64, a call of the x32 interface has this bit in its number.
const X32_BIT: i64 = 0x4000_0000;

/// Refuses system calls. Returns what the kernel cannot do.
pub(super) fn restrict() -> Vec<Protection> {
    match programs().and_then(|programs| programs.iter().try_for_each(|program| apply_filter(program))) {
        Ok(()) => Vec::new(),
        Err(error) => {
            log::debug!("the filters of system calls cannot be used: {error}");
            vec![Protection::Network]
        }
    }
}

fn programs() -> Result<[BpfProgram; 2], Error> {
    let architecture = TargetArch::try_from(ARCH)?;
    let program = |rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32| -> Result<BpfProgram, Error> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
        Ok(filter.try_into()?)
    };
    Ok([program(refused()?, libc::EPERM)?, program(unknown(), libc::ENOSYS)?])
}

/// Calls that get EPERM. A call without rules is refused whatever its arguments are.
fn refused() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
    let always = [
        libc::SYS_socket,
        // It makes sockets without the call above.
        libc::SYS_io_uring_setup,
        // The keys of the server's user.
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        // New namespaces have all privileges inside.
        libc::SYS_unshare,
        libc::SYS_setns,
    ];
    let mut rules: BTreeMap<_, _> = always.into_iter().map(|call| (call, Vec::new())).collect();
    let when = |operator, value| -> Result<Vec<SeccompRule>, Error> {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    };
    let new_user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    rules.insert(libc::SYS_clone, when(SeccompCmpOp::MaskedEq(new_user), new_user)?);
    // A process may change its own limits, not those of the server.
    rules.insert(libc::SYS_prlimit64, when(SeccompCmpOp::Ne, 0)?);
    Ok(with_x32(rules))
}

/// Calls that seem to be unknown, so that the C library uses `clone` instead, whose flags a filter can read.
fn unknown() -> BTreeMap<i64, Vec<SeccompRule>> {
    with_x32(BTreeMap::from([(libc::SYS_clone3, Vec::new())]))
}

fn with_x32(rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    if ARCH != "x86_64" {
        return rules;
    }
    let doubled = rules.iter().map(|(call, rules)| (call | X32_BIT, rules.clone())).collect::<Vec<_>>();
    rules.into_iter().chain(doubled).collect()
}

//! System calls that a sandbox refuses: filters of seccomp for the calling thread.
//!
//! The network is closed here and not by Landlock, which knows TCP only. A process without `socket` reaches nothing: no
//! address, no unix socket. Pipes and pairs of connected sockets (`socketpair`) remain, which asyncio and multiprocessing
//! use. A pair of datagram sockets is refused: such a socket sends to any address.
use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::{protection::Protection, rights::SandboxRights};

/// On x86-64, a call of the x32 interface has this bit in its number.
const X32_BIT: i64 = 0x4000_0000;

/// `ioctl` of the x32 interface, which has numbers of its own for calls with pointers in their arguments.
const X32_IOCTL: i64 = 514;

/// The bits of a socket's type that are no flags.
const SOCKET_TYPE_BITS: u64 = 0xf;

/// `TIOCSTI` and `TIOCLINUX`: they put characters into the terminal of the server, for the shell that reads it next.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541c];

/// The rules of calls, by their numbers. A call without rules is refused whatever its arguments are. A call with rules is
/// refused if one of them fits.
type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refuses system calls. Returns what the kernel cannot do.
pub(super) fn restrict(rights: &SandboxRights<'_>) -> Vec<Protection> {
    match programs(rights).and_then(|programs| programs.iter().try_for_each(|program| apply_filter(program)))
    {
        Ok(()) => Vec::new(),
        Err(error) => {
            log::debug!("the filters of system calls cannot be used: {error}");
            vec![Protection::Network]
        }
    }
}

fn programs(rights: &SandboxRights<'_>) -> Result<[BpfProgram; 2], Error> {
    let architecture = TargetArch::try_from(ARCH)?;
    let program = |rules: CallRules, errno: i32| -> Result<BpfProgram, Error> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
        Ok(filter.try_into()?)
    };
    Ok([program(refused(rights)?, libc::EPERM)?, program(unknown(), libc::ENOSYS)?])
}

/// Calls that get EPERM.
fn refused(rights: &SandboxRights<'_>) -> Result<CallRules, Error> {
    let always = [
        // It makes sockets without `socket`.
        libc::SYS_io_uring_setup,
        libc::SYS_listen,
        // The keys of the server's user.
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        // New namespaces have all privileges inside.
        libc::SYS_unshare,
        libc::SYS_setns,
        // Queues, semaphores and memory with numbers or names outlive the processes, and others reach them. Semaphores and
        // memory of POSIX are files.
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        // The process group ends with the worker.
        libc::SYS_setsid,
    ];
    let without_network = [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind];
    let without_network = without_network.into_iter().filter(|_| !rights.has_network);
    let mut rules: CallRules =
        always.into_iter().chain(without_network).map(|call| (call, Vec::new())).collect();
    let new_user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(new_user), new_user)?]);
    // A process may change its own limits, not those of the server.
    rules.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0)?]);
    rules.insert(libc::SYS_setpgid, group_rules(rights)?);
    rules.insert(libc::SYS_socketpair, pair_rules()?);
    if !rights.has_network {
        let address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
        rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![address])?]);
    }
    let input = TERMINAL_INPUT.into_iter().map(|request| rule(1, SeccompCmpOp::Eq, request));
    rules.insert(libc::SYS_ioctl, input.collect::<Result<_, _>>()?);
    Ok(with_x32(rules))
}

/// A rule that fits if an argument of 32 bits compares so with a value.
fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// A process joins its group when it starts. That cannot be told from what it does later, and changes nothing then.
fn group_rules(rights: &SandboxRights<'_>) -> Result<Vec<SeccompRule>, Error> {
    let Some(group) = rights.group else { return Ok(Vec::new()) };
    let group = u64::from(group.as_raw_nonzero().get().unsigned_abs());
    Ok(vec![rule(0, SeccompCmpOp::Ne, 0)?, rule(1, SeccompCmpOp::Ne, group)?])
}

/// Only pairs of connected unix sockets remain.
fn pair_rules() -> Result<Vec<SeccompRule>, Error> {
    let connected = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| u64::from(kind.unsigned_abs()));
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let mut rules = vec![rule(0, SeccompCmpOp::Ne, unix)?];
    for kind in (0..=SOCKET_TYPE_BITS).filter(|kind| !connected.contains(kind)) {
        rules.push(rule(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_BITS), kind)?);
    }
    Ok(rules)
}

/// Calls that seem to be unknown, so that the C library uses `clone` instead, whose flags a filter can read.
fn unknown() -> CallRules {
    with_x32(BTreeMap::from([(libc::SYS_clone3, Vec::new())]))
}

fn with_x32(rules: CallRules) -> CallRules {
    if ARCH != "x86_64" {
        return rules;
    }
    let ioctl = rules.get(&libc::SYS_ioctl).map(|rules| (X32_IOCTL | X32_BIT, rules.clone()));
    let doubled = rules.iter().map(|(call, rules)| (call | X32_BIT, rules.clone())).collect::<Vec<_>>();
    rules.into_iter().chain(doubled).chain(ioctl).collect()
}

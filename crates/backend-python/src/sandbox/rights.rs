//! What a process in a sandbox may do.
use std::path::Path;

use rustix::process::Pid;

use super::settings::SandboxUser;

/// What a process in a sandbox may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct SandboxRights<'a> {
    /// The folders in which it may write.
    pub(super) writable: &'a [&'a Path],
    /// The user that it becomes.
    pub(super) user: Option<SandboxUser>,
    /// It may connect to others.
    pub(super) has_network: bool,
    /// The process group that it joins. It can neither make one nor join another one.
    pub(super) group: Option<Pid>,
}

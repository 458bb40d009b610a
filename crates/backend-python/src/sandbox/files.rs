//! What a sandbox permits with files, and which processes it may signal: rules of Landlock for the calling thread.
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

use super::{protection::Protection, rights::SandboxRights};

/// Files that a program may write although all files are read-only: what is written to them is gone.
const SINKS: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Makes all files read-only but those in writable folders, and keeps signals inside. Closes the network, unless the
/// rights have it. Returns what the kernel cannot do. What the thread starts inherits the rules, and nothing removes them.
pub(super) fn restrict(rights: &SandboxRights<'_>) -> Vec<Protection> {
    match enforce(rights) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => missing(effective_abi),
        Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => missing(ABI::Unsupported),
        Err(error) => {
            log::error!("the rules of Landlock cannot be enforced: {error}");
            missing(ABI::Unsupported)
        }
    }
}

fn enforce(rights: &SandboxRights<'_>) -> Result<LandlockStatus, RulesetError> {
    let everything = AccessFs::from_all(ABI::V5);
    let rule = |path: &Path, access: BitFlags<AccessFs>| {
        PathFd::new(path).map(|file| PathBeneath::new(file, access))
    };
    let handled = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(everything)?;
    let handled =
        if rights.has_network { handled } else { handled.handle_access(AccessNet::from_all(ABI::V4))? };
    let mut ruleset = handled.scope(Scope::from_all(ABI::V6))?.create()?;
    if let Ok(root) = rule(Path::new("/"), AccessFs::from_read(ABI::V5)) {
        ruleset = ruleset.add_rule(root)?;
    }
    for folder in rights.writable {
        if let Ok(folder) = rule(folder, everything) {
            ruleset = ruleset.add_rule(folder)?;
        }
    }
    for sink in SINKS {
        let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        if let Ok(sink) = rule(Path::new(sink), write) {
            ruleset = ruleset.add_rule(sink)?;
        }
    }
    Ok(ruleset.restrict_self()?.landlock)
}

/// What a kernel with this version of Landlock cannot do.
fn missing(abi: ABI) -> Vec<Protection> {
    let needed = [
        (ABI::V1, Protection::Files),
        (ABI::V3, Protection::Truncation),
        (ABI::V5, Protection::Devices),
        (ABI::V6, Protection::Signals),
    ];
    needed.into_iter().filter(|(least, _)| abi < *least).map(|(_, protection)| protection).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_landlock_adds_a_protection() {
        assert_eq!(missing(ABI::Unsupported).len(), 4);
        let without_v3 = [Protection::Truncation, Protection::Devices, Protection::Signals];
        assert_eq!(missing(ABI::V2), without_v3);
        assert_eq!(missing(ABI::V5), [Protection::Signals]);
        assert_eq!(missing(ABI::V6), []);
    }
}

//! The table of regions: which names exist, what they stand for, and when they may be used again. It does no I/O.
//!
//! The table owns a region until it is unregistered. Requests own the regions that they use. A region that is
//! unregistered while requests use it stays in the table until the last of them has ended: the status shows it, and its
//! name is taken, but no new request finds it.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use vocabulary::Error;

/// The kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// Shared memory of the system.
    System,
    /// Memory of a graphics processor.
    Cuda,
}

impl RegionKind {
    /// The word of error texts.
    fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cuda => "cuda",
        }
    }

    /// The words of error texts about two kinds.
    fn words(self) -> &'static str {
        match self {
            Self::System => "system shared memory",
            Self::Cuda => "CUDA shared memory",
        }
    }
}

/// What a region is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionOrigin {
    /// An object of the system's shared memory.
    System {
        /// The name of the object, as the client wrote it.
        key: String,
        /// Where the region begins in the object, in bytes.
        offset: u64,
    },
    /// Memory of a graphics processor.
    Cuda {
        /// The number of the device.
        device_id: i64,
    },
}

impl RegionOrigin {
    fn kind(&self) -> RegionKind {
        match self {
            Self::System { .. } => RegionKind::System,
            Self::Cuda { .. } => RegionKind::Cuda,
        }
    }
}

/// A region as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionStatus {
    /// The name by which requests refer to the region.
    pub name: String,
    /// What it is a part of.
    pub origin: RegionOrigin,
    /// Its length in bytes.
    pub byte_size: u64,
}

/// How much clients may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLimits {
    /// The most regions.
    pub regions: usize,
    /// The most bytes of all regions together.
    pub bytes: u64,
}

/// The regions by name. `R` is what requests own of a region.
#[derive(Debug)]
pub(crate) struct RegionTable<R> {
    entries: BTreeMap<String, RegionEntry<R>>,
    /// The names of entries that are unregistered, and perhaps still in use.
    removed: BTreeSet<String>,
    /// The sizes of all entries together.
    bytes: u64,
    limits: RegionLimits,
}

#[derive(Debug)]
struct RegionEntry<R> {
    origin: RegionOrigin,
    byte_size: u64,
    state: RegionState<R>,
}

#[derive(Debug)]
enum RegionState<R> {
    Registered(Arc<R>),
    /// Unregistered, but perhaps still in use.
    Removed(Weak<R>),
}

impl<R> RegionTable<R> {
    pub(crate) fn new(limits: RegionLimits) -> Self {
        Self { entries: BTreeMap::new(), removed: BTreeSet::new(), bytes: 0, limits }
    }

    /// Whether a region with this name may be registered now.
    ///
    /// # Errors
    /// ALREADY_EXISTS if the name is taken by a region of any kind. RESOURCE_EXHAUSTED if there would be too many
    /// regions.
    pub(crate) fn check_name(&mut self, name: &str) -> Result<(), Error> {
        self.forget_unused();
        if self.entries.contains_key(name) {
            let text = format!("shared memory region '{name}' already in manager");
            return Err(Error::new(vocabulary::ErrorCode::AlreadyExists, text));
        }
        let RegionLimits { regions, .. } = self.limits;
        if self.entries.len() >= regions {
            return Err(Error::exhausted(format!(
                "failed to register shared memory region '{name}': there are {regions} regions, and more are not allowed \
                 (--max-client-shm-regions)"
            )));
        }
        Ok(())
    }

    fn check_bytes(&self, name: &str, byte_size: u64) -> Result<(), Error> {
        let RegionLimits { bytes, .. } = self.limits;
        let used = self.bytes;
        if used.checked_add(byte_size).is_none_or(|sum| sum > bytes) {
            return Err(Error::exhausted(format!(
                "failed to register shared memory region '{name}': {byte_size} more bytes are not allowed, because {used} of \
                 {bytes} are registered (--max-client-shm-byte-size)"
            )));
        }
        Ok(())
    }

    /// Registers a region.
    ///
    /// # Errors
    /// As [`RegionTable::check_name`]. RESOURCE_EXHAUSTED if there would be too many bytes.
    pub(crate) fn insert(&mut self, status: RegionStatus, region: Arc<R>) -> Result<(), Error> {
        let RegionStatus { name, origin, byte_size } = status;
        self.check_name(&name)?;
        self.check_bytes(&name, byte_size)?;
        self.bytes += byte_size;
        self.entries.insert(name, RegionEntry { origin, byte_size, state: RegionState::Registered(region) });
        Ok(())
    }

    /// The region with that name, for a request.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such region, or if it was unregistered and only earlier requests use it. Triton gives it
    /// to new requests, too, so that it may live for ever.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<R>, Error> {
        match self.entries.get(name).map(|entry| &entry.state) {
            Some(RegionState::Registered(region)) => Ok(region.clone()),
            Some(RegionState::Removed(_)) | None => {
                Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")))
            }
        }
    }

    /// The region of that kind with that name; without a name, all regions of that kind in the order of their names.
    ///
    /// # Errors
    /// NOT_FOUND if there is no region with that name, or if it has another kind.
    pub(crate) fn status(&mut self, kind: RegionKind, name: &str) -> Result<Vec<RegionStatus>, Error> {
        self.forget_unused();
        let of = |name: &str, entry: &RegionEntry<R>| RegionStatus {
            name: name.to_owned(),
            origin: entry.origin.clone(),
            byte_size: entry.byte_size,
        };
        if name.is_empty() {
            let same = self.entries.iter().filter(|(_, entry)| entry.origin.kind() == kind);
            return Ok(same.map(|(name, entry)| of(name, entry)).collect());
        }
        match self.entries.get(name) {
            Some(entry) if entry.origin.kind() == kind => Ok(vec![of(name, entry)]),
            Some(entry) => Err(Error::not_found(format!(
                "The region named '{name}' is registered as {}, not {}",
                entry.origin.kind().words(),
                kind.words()
            ))),
            None => {
                let kind = kind.word();
                Err(Error::not_found(format!("Unable to find {kind} shared memory region: '{name}'")))
            }
        }
    }

    /// Unregisters the region of that kind with that name; without a name, all regions of that kind. A name that does not
    /// exist, or that has another kind, is not an error. Returns the table's shares of the regions, so that the caller
    /// drops them without the lock of the table.
    pub(crate) fn unregister(&mut self, kind: RegionKind, name: &str) -> Vec<Arc<R>> {
        if !name.is_empty() {
            return self.remove(kind, name).into_iter().collect();
        }
        let names: Vec<_> = self.entries.keys().cloned().collect();
        names.iter().filter_map(|name| self.remove(kind, name)).collect()
    }

    /// Unregisters one region of that kind. Returns the table's share of it.
    fn remove(&mut self, kind: RegionKind, name: &str) -> Option<Arc<R>> {
        let entry = self.entries.get_mut(name).filter(|entry| entry.origin.kind() == kind)?;
        let RegionState::Registered(region) = &entry.state else { return None };
        let observer = RegionState::Removed(Arc::downgrade(region));
        self.removed.insert(name.to_owned());
        match std::mem::replace(&mut entry.state, observer) {
            RegionState::Registered(region) => Some(region),
            RegionState::Removed(_) => None,
        }
    }

    /// Forgets the unregistered regions that no request uses any more.
    fn forget_unused(&mut self) {
        let (entries, bytes) = (&mut self.entries, &mut self.bytes);
        self.removed.retain(|name| {
            let is_unused = match entries.get(name).map(|entry| &entry.state) {
                Some(RegionState::Removed(observer)) => observer.strong_count() == 0,
                Some(RegionState::Registered(_)) | None => false,
            };
            if is_unused && let Some(entry) = entries.remove(name) {
                *bytes -= entry.byte_size;
            }
            !is_unused
        });
    }
}

/// Checks that a tensor lies within its region. As Triton: shared_memory_manager.cc, GetMemoryInfo.
///
/// # Errors
/// INVALID_ARG for an offset at or beyond the end of the region, even for a tensor without bytes, and for bytes beyond
/// the end.
pub(crate) fn check_range(
    name: &str,
    region_byte_size: usize,
    offset: u64,
    byte_size: u64,
) -> Result<(usize, usize), Error> {
    let within = |number: u64| usize::try_from(number).ok();
    let Some(start) = within(offset).filter(|offset| *offset < region_byte_size) else {
        return Err(Error::invalid(format!("Invalid offset for shared memory region: '{name}'")));
    };
    if offset.checked_add(byte_size).is_none() {
        return Err(Error::invalid(format!(
            "Integer overflow detected: byte_size ({byte_size}) + offset ({offset}) exceeds maximum value ({}) for region \
             '{name}'",
            u64::MAX
        )));
    }
    match within(byte_size).filter(|size| *size <= region_byte_size - start) {
        Some(size) => Ok((start, size)),
        None => Err(Error::invalid(format!("Invalid offset + byte size for shared memory region: '{name}'"))),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

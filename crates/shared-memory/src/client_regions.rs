//! The regions of all clients of the process, whichever protocol they use.
use std::sync::Arc;

use inference::lock::Mutex;
use vocabulary::{Error, ForeignMemory};

use crate::{
    bus_errors::MOST_RANGES,
    region::SystemRegion,
    registration::{CudaRegistration, SystemRegistration},
    table::{RegionKind, RegionLimits, RegionOrigin, RegionStatus, RegionTable, check_range},
};

/// The settings of clients' shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMemoryOptions {
    /// How much clients may register.
    pub limits: RegionLimits,
    /// Backends may use the memory where it is, although clients can change it while a model runs.
    pub in_place: bool,
}

impl SharedMemoryOptions {
    /// The most regions that the limit may allow.
    pub const MOST_REGIONS: usize = MOST_RANGES;
}

impl Default for SharedMemoryOptions {
    fn default() -> Self {
        Self { limits: RegionLimits { regions: 1024, bytes: 16 << 30 }, in_place: false }
    }
}

/// The regions that clients have registered. Clones are the same regions. The default allows none.
#[derive(Debug, Clone, Default)]
pub struct ClientRegions(Option<Arc<AllowedRegions>>);

#[derive(Debug)]
struct AllowedRegions {
    in_place: bool,
    /// A leaf: no region is opened, mapped or unmapped under the lock.
    table: Mutex<RegionTable<SystemRegion>>,
}

impl ClientRegions {
    /// No region is ever registered.
    pub const fn forbidden() -> Self {
        Self(None)
    }

    /// An empty table that clients may use.
    pub fn allowed(options: SharedMemoryOptions) -> Self {
        let SharedMemoryOptions { limits, in_place } = options;
        Self(Some(Arc::new(AllowedRegions { in_place, table: Mutex::new(RegionTable::new(limits)) })))
    }

    /// Requires that clients may register and unregister regions. The protocols check this before they read a message.
    ///
    /// # Errors
    /// UNSUPPORTED if the operator does not allow it.
    pub fn check_allowed(&self) -> Result<(), Error> {
        self.regions().map(drop)
    }

    fn regions(&self) -> Result<&AllowedRegions, Error> {
        self.0.as_deref().ok_or_else(|| {
            Error::unsupported(
                "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
            )
        })
    }

    /// Registers a part of a shared memory object of the system.
    ///
    /// # Errors
    /// UNSUPPORTED if the operator does not allow regions. INVALID_ARG, ALREADY_EXISTS or INTERNAL for a region that
    /// cannot be registered, RESOURCE_EXHAUSTED if there are too many.
    pub fn register_system(&self, registration: &SystemRegistration) -> Result<(), Error> {
        let regions = self.regions()?;
        registration.check()?;
        let SystemRegistration { name, key, offset, byte_size } = registration;
        regions.table.lock().check_name(name)?;
        let region = Arc::new(SystemRegion::open(registration, regions.in_place)?);
        let origin = RegionOrigin::System { key: key.clone(), offset: *offset };
        let status = RegionStatus { name: name.clone(), origin, byte_size: *byte_size };
        // Another client may have taken the name meanwhile. A region that is refused is unmapped after the lock.
        regions.table.lock().insert(status, region.clone())
    }

    /// Refuses memory of a graphics processor, as a server without support for graphics processors does.
    ///
    /// # Errors
    /// Always: UNSUPPORTED if the operator does not allow regions, otherwise INVALID_ARG or ALREADY_EXISTS.
    pub fn register_cuda(&self, registration: &CudaRegistration) -> Result<(), Error> {
        self.regions()?;
        registration.check()?;
        Err(Error::invalid(format!(
            "failed to register CUDA shared memory region: '{}', GPUs not supported",
            registration.name
        )))
    }

    /// Unregisters the region of that kind with that name, or all regions of that kind if the name is empty. Requests
    /// that use a region keep it until they end.
    ///
    /// # Errors
    /// UNSUPPORTED if the operator does not allow regions.
    pub fn unregister(&self, kind: RegionKind, name: &str) -> Result<(), Error> {
        let removed = self.regions()?.table.lock().unregister(kind, name);
        // Unmapped without the lock.
        drop(removed);
        Ok(())
    }

    /// The region of that kind with that name, or all regions of that kind if the name is empty.
    ///
    /// # Errors
    /// NOT_FOUND if there is no region of that kind with that name.
    pub fn status(&self, kind: RegionKind, name: &str) -> Result<Vec<RegionStatus>, Error> {
        match &self.0 {
            Some(regions) => regions.table.lock().status(kind, name),
            None => {
                RegionTable::<SystemRegion>::new(RegionLimits { regions: 0, bytes: 0 }).status(kind, name)
            }
        }
    }

    /// The memory of a tensor that is in a region. The memory keeps the region alive.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown region, INVALID_ARG for a range that is not in the region.
    pub fn memory(&self, name: &str, offset: u64, byte_size: u64) -> Result<ForeignMemory, Error> {
        let unknown = || Error::not_found(format!("Unable to find shared memory region: '{name}'"));
        let regions = self.0.as_ref().ok_or_else(unknown)?;
        let region = regions.table.lock().find(name)?;
        let region_byte_size = vocabulary::ForeignRegion::byte_size(&*region);
        let (offset, byte_size) = check_range(name, region_byte_size, offset, byte_size)?;
        ForeignMemory::range(region, offset, byte_size).ok_or_else(unknown)
    }
}

#[cfg(test)]
#[path = "client_regions_tests.rs"]
mod tests;

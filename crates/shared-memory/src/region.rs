//! A registered region: a mapped part of a client's shared memory object.
use vocabulary::{Error, ForeignRegion};

use crate::{
    bus_errors::ensure_handled,
    mapping::{Faulted, Mapping},
    object::SharedObject,
    registration::SystemRegistration,
};

/// A region, as requests use it.
#[derive(Debug)]
pub(crate) struct SystemRegion {
    name: String,
    key: String,
    /// The length that the object must have at least, in bytes.
    object_byte_size: u64,
    object: SharedObject,
    mapping: Mapping,
    in_place: bool,
}

impl SystemRegion {
    /// Opens and maps the part of the object. `in_place` tells whether backends may use the memory where it is.
    ///
    /// # Errors
    /// INTERNAL for an object that cannot be used, INVALID_ARG for a part that it does not have. The order and the texts
    /// are those of Triton: shared_memory_manager.cc, RegisterSystemSharedMemory.
    pub(crate) fn open(registration: &SystemRegistration, in_place: bool) -> Result<Self, Error> {
        let SystemRegistration { name, key, offset, byte_size } = registration;
        let object = SharedObject::open(key)?;
        let object_byte_size = object
            .byte_size()
            .map_err(|_| Error::internal(format!("Invalid shared memory region: '{key}'")))?;
        let end = offset.checked_add(*byte_size).filter(|end| *end <= object_byte_size);
        let (Some(end), Ok(mapped)) = (end, usize::try_from(*byte_size)) else {
            let text = format!("failed to register shared memory region '{name}': invalid args");
            return Err(Error::invalid(text));
        };
        let mapping = Mapping::new(&object, *offset, mapped).map_err(|errno| {
            let text = std::io::Error::from(errno).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            Error::invalid(format!(
                "failed to register shared memory region '{name}': unable to process address space{text}"
            ))
        })?;
        Ok(Self { name: name.clone(), key: key.clone(), object_byte_size: end, object, mapping, in_place })
    }

    fn refused(&self, why: &str) -> Error {
        let Self { name, key, .. } = self;
        Error::invalid(format!("shared memory region '{name}' with key '{key}' {why}"))
    }

    /// Requires that the object still is long enough. It may become shorter at any time after this.
    fn check_object(&self) -> Result<(), Error> {
        if self.object.byte_size().is_ok_and(|now| now >= self.object_byte_size) {
            return Ok(());
        }
        Err(self.refused("can not be used: the shared memory object is smaller than when it was registered"))
    }

    fn checked(&self, result: Result<(), Faulted>) -> Result<(), Error> {
        result.map_err(|Faulted| {
            self.refused(
                "can not be used any more: a part of its memory was missing. Unregister the region and register it again",
            )
        })
    }
}

impl ForeignRegion for SystemRegion {
    fn byte_size(&self) -> usize {
        self.mapping.byte_size()
    }

    fn address(&self) -> *mut u8 {
        self.mapping.address()
    }

    fn may_be_used_in_place(&self) -> bool {
        if self.in_place {
            // The library will access the memory itself.
            ensure_handled();
        }
        self.in_place
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        self.check_object()?;
        self.checked(self.mapping.read(offset, target))
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        self.check_object()?;
        self.checked(self.mapping.write(offset, source))
    }

    fn check(&self) -> Result<(), Error> {
        self.check_object()?;
        self.checked(self.mapping.check())
    }
}

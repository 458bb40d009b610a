//! Foreign memory whose owner, the test, writes it and makes it smaller while requests use it.
use std::sync::Arc;

use inference::lock::Mutex;
use vocabulary::{Error, ForeignMemory, ForeignRegion};

/// A region of foreign memory. It has no address, so only native backends can read it.
#[derive(Debug)]
pub struct TestRegion {
    byte_size: usize,
    bytes: Mutex<Vec<u8>>,
}

impl TestRegion {
    /// A region with these bytes.
    pub fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self { byte_size: bytes.len(), bytes: Mutex::new(bytes.to_vec()) })
    }

    /// The whole region as the memory of a tensor.
    pub fn memory(self: &Arc<Self>) -> ForeignMemory {
        ForeignMemory::range(self.clone(), 0, self.byte_size).expect("it is the whole region")
    }

    /// Replaces the bytes. Fewer bytes make the region smaller than the server believes.
    pub fn write(&self, bytes: &[u8]) {
        *self.bytes.lock() = bytes.to_vec();
    }
}

impl ForeignRegion for TestRegion {
    fn byte_size(&self) -> usize {
        self.byte_size
    }

    fn address(&self) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        let bytes = self.bytes.lock();
        let range = bytes.get(offset..offset + target.len());
        target.copy_from_slice(range.ok_or_else(|| Error::invalid("the region is smaller than it was"))?);
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        let mut bytes = self.bytes.lock();
        let range = bytes.get_mut(offset..offset + source.len());
        range.ok_or_else(|| Error::invalid("the region is smaller than it was"))?.copy_from_slice(source);
        Ok(())
    }
}

//! Memory that the server and a worker share: two areas for each worker, one for each direction.
//!
//! An area is a file without a name (`memfd`), whose descriptor the worker gets over its socket. The worker maps it. The
//! server does not: it reads and writes the file, so that no reference to bytes that a worker may change ever exists.
//! Nothing remains when both processes have ended.
//!
//! A seal keeps the file from becoming smaller. A worker can make it larger, which costs nothing: the server reads no byte
//! beyond the limit of the area.
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create},
    io::{Errno, pread, pwrite},
};
use vocabulary::{Error, Tensor, TensorData};

use crate::session::ranges::{AreaFull, RangeTable};

/// A free range of this size gives its memory back to the system.
const RETURNED_BYTES: usize = 32 << 20;

/// The memory of one direction.
#[derive(Debug)]
pub(crate) struct SharedArea {
    file: OwnedFd,
    /// The most bytes of the area, whatever the size of the file is.
    limit: usize,
}

impl SharedArea {
    /// An empty area that may have so many bytes.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn new(name: &str, limit: usize) -> Result<Self, Errno> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // No more seals: one against growth or writing would stop the other side.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self { file, limit })
    }

    /// The most bytes of the area.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The descriptor, for the worker.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes the file larger, up to that size.
    fn grow(&self, byte_size: usize) -> Result<(), Errno> {
        ftruncate(&self.file, byte_size as u64)
    }

    /// Writes the bytes of a tensor from `offset` on.
    ///
    /// # Errors
    /// That of the tensor's memory, or of the system.
    pub(crate) fn write_tensor(&self, offset: usize, tensor: &Tensor) -> Result<(), Error> {
        let data = tensor.memory().host(tensor.name())?;
        let mut at = offset;
        for piece in TensorData::pieces(&data) {
            self.write(at, piece).map_err(failed)?;
            at += piece.len();
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    fn write(&self, mut offset: usize, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match pwrite(&self.file, bytes, offset as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    offset += written;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads `byte_size` bytes from `offset` on.
    ///
    /// # Errors
    /// The area cannot or does not have them, or there is not so much memory.
    pub(crate) fn read(&self, offset: usize, byte_size: usize) -> Result<Vec<u8>, Errno> {
        if offset.checked_add(byte_size).is_none_or(|end| end > self.limit) {
            return Err(Errno::OVERFLOW);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(byte_size).map_err(|_| Errno::NOMEM)?;
        while bytes.len() < byte_size {
            let at = (offset + bytes.len()) as u64;
            let missing = byte_size - bytes.len();
            // The capacity may be larger than what was asked for.
            let read = if bytes.capacity() == byte_size {
                pread(&self.file, spare_capacity(&mut bytes), at)
            } else {
                let mut part = vec![0; missing];
                pread(&self.file, &mut part, at).inspect(|&count| bytes.extend_from_slice(&part[..count]))
            };
            match read {
                Ok(0) => return Err(Errno::IO),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(bytes)
    }

    /// Gives the memory of a range that nobody uses back to the system. The range reads as zeros afterwards.
    fn forget(&self, offset: usize, byte_size: usize) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A system that cannot do it keeps the memory.
        let _ = fallocate(&self.file, how, offset as u64, byte_size as u64);
    }
}

/// Which ranges of the area for what the server gives to a worker are in use. The server decides what lies where.
#[derive(Debug)]
pub(crate) struct InputArea {
    area: Arc<SharedArea>,
    ranges: RangeTable,
    /// The size that the server has given to the file.
    byte_size: usize,
}

impl InputArea {
    /// An empty area.
    pub(crate) fn new(area: Arc<SharedArea>) -> Self {
        let ranges = RangeTable::new(area.limit());
        Self { area, ranges, byte_size: 0 }
    }

    /// Finds room for a tensor, and returns where it is.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the area has no room; that of the system.
    pub(crate) fn reserve(&mut self, tensor: &Tensor) -> Result<usize, Error> {
        let byte_size = tensor.byte_size();
        let offset = self.ranges.take(byte_size).map_err(|AreaFull| full(tensor, byte_size))?;
        let grown = self.reach(self.ranges.byte_size());
        grown.inspect_err(|_| self.give_back(offset)).map_err(failed)?;
        Ok(offset)
    }

    /// Makes the file at least so large.
    fn reach(&mut self, byte_size: usize) -> Result<(), Errno> {
        if byte_size > self.byte_size {
            self.area.grow(byte_size)?;
            self.byte_size = byte_size;
        }
        Ok(())
    }

    /// The worker does not use a range any more.
    pub(crate) fn give_back(&mut self, offset: usize) {
        if let Some((offset, length)) = self.ranges.give_back(offset)
            && length >= RETURNED_BYTES
        {
            self.area.forget(offset, length);
        }
    }

    /// Whether a range lies within a range in use.
    pub(crate) fn is_used(&self, offset: usize, byte_size: usize) -> bool {
        self.ranges.is_used(offset, byte_size)
    }

    /// The bytes that the worker has not given back.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> usize {
        self.ranges.used_bytes()
    }
}

fn full(tensor: &Tensor, byte_size: usize) -> Error {
    Error::exhausted(format!(
        "tensor '{}' of {byte_size} bytes does not fit in the memory that the server shares with the model's process \
         (setting 'shared-memory-limit-bytes')",
        tensor.name()
    ))
}

/// The error of a request for a failed operation on an area.
pub(crate) fn failed(errno: Errno) -> Error {
    Error::internal(format!("the memory that the server shares with the model's process failed: {errno}"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use vocabulary::{DataType, ErrorCode};

    use super::*;

    fn tensor(pieces: &[&[u8]]) -> Tensor {
        let data = TensorData::from_pieces(pieces.iter().map(|piece| Bytes::copy_from_slice(piece)));
        let shape = [i64::try_from(data.len()).unwrap()][..].into();
        Tensor::new("X".into(), DataType::Uint8, shape, data)
    }

    fn input_area(limit: usize) -> InputArea {
        InputArea::new(Arc::new(SharedArea::new("test", limit).unwrap()))
    }

    /// Copies a tensor into an area.
    fn put(inputs: &mut InputArea, tensor: &Tensor) -> Result<usize, Error> {
        let offset = inputs.reserve(tensor)?;
        inputs.area.write_tensor(offset, tensor)?;
        Ok(offset)
    }

    fn read(inputs: &InputArea, offset: usize, byte_size: usize) -> Option<Result<Vec<u8>, Errno>> {
        inputs.is_used(offset, byte_size).then(|| inputs.area.read(offset, byte_size))
    }

    #[test]
    fn what_is_put_in_can_be_read_at_its_place() {
        let mut area = input_area(1 << 20);
        let one = put(&mut area, &tensor(&[&[1; 100], &[2; 50]])).unwrap();
        let two = put(&mut area, &tensor(&[b"abc"])).unwrap();
        assert_eq!(read(&area, two, 3).unwrap(), Ok(b"abc".to_vec()));
        assert_eq!(read(&area, one + 99, 2).unwrap(), Ok(vec![1, 2]));
        assert!(read(&area, one, 4096).is_none());
        area.give_back(one);
        assert!(read(&area, one, 1).is_none());
        assert_eq!(area.used_bytes(), 64);
    }

    #[test]
    fn a_tensor_beyond_the_limit_is_refused_by_name() {
        let mut area = input_area(128);
        let error = put(&mut area, &tensor(&[&[0; 129]])).unwrap_err();
        assert_eq!(error.code, ErrorCode::ResourceExhausted);
        assert!(error.message.starts_with("tensor 'X' of 129 bytes does not fit"), "{error}");
        assert!(put(&mut area, &tensor(&[&[0; 128]])).is_ok());
    }

    #[test]
    fn bytes_that_the_file_does_not_have_are_an_error() {
        let area = SharedArea::new("test", 4096).unwrap();
        assert_eq!(area.read(0, 1), Err(Errno::IO));
        assert_eq!(area.read(0, 0), Ok(Vec::new()));
    }

    #[test]
    fn nothing_beyond_the_limit_is_read_however_large_the_file_is() {
        let area = SharedArea::new("test", 4096).unwrap();
        ftruncate(&area.file, 100 << 30).unwrap();
        assert_eq!(area.read(0, 4096).map(|bytes| bytes.len()), Ok(4096));
        for (offset, byte_size) in [(0, 4097), (1, 4096), (0, 100 << 30), (usize::MAX, 2), (4097, 0)] {
            assert_eq!(area.read(offset, byte_size), Err(Errno::OVERFLOW), "{offset} {byte_size}");
        }
    }

    #[test]
    fn a_file_becomes_larger_and_never_smaller() {
        let area = SharedArea::new("test", 4096).unwrap();
        ftruncate(&area.file, 4096).unwrap();
        assert_eq!(ftruncate(&area.file, 4095), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&area.file, SealFlags::GROW), Err(Errno::PERM));
        ftruncate(&area.file, 8192).unwrap();
    }

    #[test]
    fn a_large_range_gives_its_memory_back() {
        let mut area = input_area(128 << 20);
        let data = vec![7; RETURNED_BYTES];
        let offset = put(&mut area, &tensor(&[&data])).unwrap();
        area.give_back(offset);
        assert_eq!(area.area.read(offset, 2), Ok(vec![0, 0]));
    }
}

//! Where the bytes of a tensor are: in memory of the host, in memory that others may write, or on a device.
//!
//! The type decides what a reader can do. Bytes of the host can be borrowed. Foreign memory can only be copied, or
//! given to a library by its address. Memory of a device can only be given to a library.
use std::{
    any::Any,
    borrow::Cow,
    fmt,
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};

use crate::Error;

/// The bytes of a tensor, in the memory that holds them. Clones share the memory.
#[derive(Debug, Clone)]
pub enum TensorMemory {
    /// Memory of this process that no code writes while a clone exists.
    Host(TensorData),
    /// Memory of the host that others may write at any time.
    Foreign(ForeignMemory),
    /// Memory of a device.
    Device(DeviceMemory),
}

impl TensorMemory {
    /// The number of bytes.
    pub fn byte_size(&self) -> usize {
        match self {
            Self::Host(data) => data.len(),
            Self::Foreign(memory) => memory.byte_size(),
            Self::Device(memory) => memory.byte_size(),
        }
    }

    /// The bytes for a reader on the host: borrowed, or a copy of foreign memory as it is now. Two calls may return
    /// different bytes of foreign memory. `owner` names the tensor in the error.
    ///
    /// # Errors
    /// UNSUPPORTED for memory of a device; the error of the region if foreign memory cannot be read any more.
    pub fn host(&self, owner: &str) -> Result<Cow<'_, TensorData>, Error> {
        match self {
            Self::Host(data) => Ok(Cow::Borrowed(data)),
            Self::Foreign(memory) => Ok(Cow::Owned(memory.read()?.into())),
            Self::Device(memory) => Err(memory.not_on_the_host(owner)),
        }
    }

    /// Copies the bytes into `target`, which has as many bytes.
    ///
    /// # Errors
    /// As [`TensorMemory::host`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, target: &mut [u8], owner: &str) -> Result<(), Error> {
        match self {
            Self::Host(data) => data.copy_to(target),
            Self::Foreign(memory) => memory.copy_to(target)?,
            Self::Device(memory) => return Err(memory.not_on_the_host(owner)),
        }
        Ok(())
    }
}

impl<D: Into<TensorData>> From<D> for TensorMemory {
    fn from(data: D) -> Self {
        Self::Host(data.into())
    }
}

impl From<ForeignMemory> for TensorMemory {
    fn from(memory: ForeignMemory) -> Self {
        Self::Foreign(memory)
    }
}

impl From<DeviceMemory> for TensorMemory {
    fn from(memory: DeviceMemory) -> Self {
        Self::Device(memory)
    }
}

/// Kinds of memory, in the order of the protocol's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Ordinary host memory.
    Cpu,
    /// Host memory that devices can read.
    CpuPinned,
    /// Device memory.
    Gpu,
}

impl MemoryKind {
    /// The name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::CpuPinned => "CPU_PINNED",
            Self::Gpu => "GPU",
        }
    }
}

/// The bytes of a tensor in host memory: one range, or several ranges in order if the network delivered them separately.
///
/// Clones share the bytes. Most tensors have one piece. A large body that arrived in many reads keeps its pieces
/// until a caller needs them contiguous. That is the only copy.
#[derive(Debug, Clone, Default)]
pub struct TensorData {
    pieces: SmallVec<[Bytes; 1]>,
    len: usize,
}

impl TensorData {
    /// Joins pieces without copying; drops empty ones.
    pub fn from_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let mut data = Self::default();
        for piece in pieces {
            data.push(piece);
        }
        data
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order. No piece is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The bytes in one contiguous range: shared if there is one piece, otherwise copied.
    pub fn contiguous(&self) -> Bytes {
        match &self.pieces[..] {
            [] => Bytes::new(),
            [only] => only.clone(),
            several => {
                let mut joined = BytesMut::with_capacity(self.len);
                several.iter().for_each(|piece| joined.extend_from_slice(piece));
                joined.freeze()
            }
        }
    }

    /// Copies the bytes into `target`. The lengths must be equal.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.len, "the target is as long as the data");
        let mut rest = target;
        for piece in &self.pieces {
            let (place, after) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = after;
        }
    }

    /// As [`TensorData::copy_to`], for memory that nobody has written yet. All of `target` is initialised afterwards.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to_uninit(&self, target: &mut [MaybeUninit<u8>]) {
        assert_eq!(target.len(), self.len, "the target is as long as the data");
        let mut rest = target;
        for piece in &self.pieces {
            let (place, after) = rest.split_at_mut(piece.len());
            initialise(place, piece);
            rest = after;
        }
    }

    /// Removes and returns the first `count` bytes without copying, or all bytes if there are fewer.
    pub fn split_to(&mut self, count: usize) -> Self {
        let mut head = Self::default();
        let mut tail = Self::default();
        for mut piece in std::mem::take(&mut self.pieces) {
            let wanted = (count - head.len).min(piece.len());
            head.push(piece.split_to(wanted));
            tail.push(piece);
        }
        *self = tail;
        head
    }
}

impl From<Bytes> for TensorData {
    fn from(bytes: Bytes) -> Self {
        let len = bytes.len();
        Self { pieces: if len == 0 { smallvec![] } else { smallvec![bytes] }, len }
    }
}

impl From<Vec<u8>> for TensorData {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

/// Host memory that others may write at any time: a plug-in, a client, another process.
///
/// No Rust reference to its bytes ever exists, because the bytes may change while it is in use.
pub trait ForeignRegion: fmt::Debug + Send + Sync {
    /// The number of bytes.
    fn byte_size(&self) -> usize;

    /// The address of the first byte. It is valid while the region exists.
    fn address(&self) -> *mut u8;

    /// Copies the bytes from `offset` on into `target`. The range lies within [`ForeignRegion::byte_size`].
    ///
    /// # Errors
    /// The memory does not exist any more, for example because its owner has made it smaller.
    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error>;

    /// Copies `source` into the region, from `offset` on. The range lies within [`ForeignRegion::byte_size`].
    ///
    /// # Errors
    /// As [`ForeignRegion::read`]. A part of the bytes may have been written.
    fn write(&self, offset: usize, source: &[u8]) -> Result<(), Error>;

    /// Whether libraries may read and write the memory by its address. If not, they get copies, because its owner may
    /// harm a library by changing bytes that the library has checked.
    fn may_be_used_in_place(&self) -> bool {
        false
    }

    /// Requires that the memory still exists. Code that gave a library the address asks this afterwards.
    ///
    /// # Errors
    /// As [`ForeignRegion::read`]: what the library has read or written since the region exists may be lost.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A range of a [`ForeignRegion`]. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct ForeignMemory {
    region: Arc<dyn ForeignRegion>,
    offset: usize,
    byte_size: usize,
}

impl ForeignMemory {
    /// `byte_size` bytes of a region from `offset` on; `None` if the region does not contain that range.
    pub fn range(region: Arc<dyn ForeignRegion>, offset: usize, byte_size: usize) -> Option<Self> {
        let end = offset.checked_add(byte_size)?;
        (end <= region.byte_size()).then_some(Self { region, offset, byte_size })
    }

    /// New memory of the process, filled with zeros, for a library that writes it by its address. `None` if there is
    /// not that much memory.
    pub fn zeroed(byte_size: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(byte_size).ok()?;
        bytes.resize_with(byte_size, AtomicU8::default);
        Some(Self::of_heap(bytes))
    }

    /// New memory of the process with a copy of `data`, for a library that writes it by its address.
    pub fn copied_from(data: &TensorData) -> Self {
        let bytes = data.pieces().iter().flat_map(|piece| piece.iter().copied().map(AtomicU8::new));
        Self::of_heap(bytes.collect())
    }

    fn of_heap(bytes: Vec<AtomicU8>) -> Self {
        Self { byte_size: bytes.len(), region: Arc::new(HeapRegion(bytes)), offset: 0 }
    }

    /// The number of bytes.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// The address of the first byte, for a library that reads or writes the memory. It is valid while a clone exists.
    pub fn address(&self) -> *mut u8 {
        self.region.address().wrapping_add(self.offset)
    }

    /// A copy of the bytes as they are now.
    ///
    /// # Errors
    /// That of [`ForeignRegion::read`].
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.byte_size];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }

    fn copy_to(&self, target: &mut [u8]) -> Result<(), Error> {
        assert_eq!(target.len(), self.byte_size, "the target is as long as the memory");
        self.region.read(self.offset, target)
    }

    /// Copies `data` to the beginning of the memory. False if the data are longer than the memory; then nothing is
    /// copied.
    ///
    /// # Errors
    /// That of [`ForeignRegion::write`].
    pub fn write(&self, data: &TensorData) -> Result<bool, Error> {
        if data.len() > self.byte_size {
            return Ok(false);
        }
        let mut offset = self.offset;
        for piece in data.pieces() {
            self.region.write(offset, piece)?;
            offset += piece.len();
        }
        Ok(true)
    }

    /// Whether libraries may read and write the memory by its address.
    pub fn may_be_used_in_place(&self) -> bool {
        self.region.may_be_used_in_place()
    }

    /// Requires that the memory still exists.
    ///
    /// # Errors
    /// That of [`ForeignRegion::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.region.check()
    }

    /// The first `byte_size` bytes of the memory; `None` if there are fewer.
    #[must_use]
    pub fn first(&self, byte_size: usize) -> Option<Self> {
        (byte_size <= self.byte_size).then(|| Self { byte_size, ..self.clone() })
    }

    /// The memory without its first `offset` bytes; `None` if there are fewer.
    #[must_use]
    pub fn starting_at(&self, offset: usize) -> Option<Self> {
        let byte_size = self.byte_size.checked_sub(offset)?;
        Some(Self { offset: self.offset + offset, byte_size, ..self.clone() })
    }

    /// Whether both have a byte of the same region in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let is_before_end = |offset: usize, range: &Self| offset < range.offset + range.byte_size;
        Arc::ptr_eq(&self.region, &other.region)
            && is_before_end(self.offset, other)
            && is_before_end(other.offset, self)
    }

    /// Whether both begin at the same byte of the same region.
    pub fn begins_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.region, &other.region) && self.offset == other.offset
    }
}

/// Memory of the process that a library writes by its address. The bytes are atomic: no reference to plain bytes could
/// exist beside the library's writes.
#[derive(Debug)]
struct HeapRegion(Vec<AtomicU8>);

impl ForeignRegion for HeapRegion {
    fn byte_size(&self) -> usize {
        self.0.len()
    }

    fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        let bytes = self.0.iter().skip(offset);
        target.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte.load(Relaxed));
        Ok(())
    }

    fn write(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        let places = self.0.iter().skip(offset);
        source.iter().zip(places).for_each(|(byte, place)| place.store(*byte, Relaxed));
        Ok(())
    }

    fn may_be_used_in_place(&self) -> bool {
        true
    }
}

/// Memory of one device, in one or more pieces. The host never reads it. Clones are the same memory.
#[derive(Clone)]
pub struct DeviceMemory {
    id: i64,
    pieces: SmallVec<[DeviceRange; 1]>,
    /// Keeps the memory alive.
    _owner: Arc<dyn Any + Send + Sync>,
}

/// A piece of memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRange {
    /// The address, as the device's library understands it.
    pub address: usize,
    /// The number of bytes.
    pub byte_size: usize,
}

impl DeviceMemory {
    /// Pieces of the memory of the GPU with number `id`. They are valid while `owner` exists. Their total size must
    /// fit in a `usize`.
    pub fn new(
        id: i64,
        pieces: impl IntoIterator<Item = DeviceRange>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let pieces = pieces.into_iter().filter(|piece| piece.byte_size > 0).collect();
        Self { id, pieces, _owner: owner }
    }

    /// The kind of the memory.
    pub fn kind(&self) -> MemoryKind {
        MemoryKind::Gpu
    }

    /// The number of the device.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The pieces in order. No piece is empty.
    pub fn pieces(&self) -> &[DeviceRange] {
        &self.pieces
    }

    /// The number of bytes.
    pub fn byte_size(&self) -> usize {
        self.pieces.iter().map(|piece| piece.byte_size).sum()
    }

    fn not_on_the_host(&self, owner: &str) -> Error {
        let kind = self.kind().as_str();
        Error::unsupported(format!(
            "tensor '{owner}' is in memory of type {kind}, which the host cannot read"
        ))
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("id", &self.id)
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

/// Copies bytes to memory of the same length that nobody has written yet. The compiler makes one copy of the loop.
pub fn initialise(target: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    debug_assert_eq!(target.len(), bytes.len());
    for (place, byte) in target.iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    /// A region whose owner has made it smaller.
    #[derive(Debug)]
    struct Truncated;

    impl ForeignRegion for Truncated {
        fn byte_size(&self) -> usize {
            8
        }

        fn address(&self) -> *mut u8 {
            std::ptr::null_mut()
        }

        fn read(&self, _: usize, _: &mut [u8]) -> Result<(), Error> {
            Err(Error::invalid("the region is smaller than it was"))
        }

        fn write(&self, _: usize, _: &[u8]) -> Result<(), Error> {
            Err(Error::invalid("the region is smaller than it was"))
        }
    }

    #[test]
    fn pieces_split_and_join_without_losing_a_byte() {
        let mut data = TensorData::from_pieces([Bytes::from("abc"), Bytes::new(), Bytes::from("defg")]);
        let head = data.split_to(5);
        assert_eq!(head.contiguous(), "abcde");
        assert_eq!(data.contiguous(), "fg");
        let mut copied = [0; 5];
        head.copy_to(&mut copied);
        assert_eq!(&copied, b"abcde");
        assert_eq!(data.split_to(9).contiguous(), "fg");
        assert!(data.is_empty());
    }

    #[test]
    fn foreign_memory_is_copied_as_it_is_at_that_time() {
        let memory = ForeignMemory::copied_from(&vec![1, 2, 3].into());
        let tensor = TensorMemory::from(memory.clone());
        assert_eq!(tensor.host("x").unwrap().contiguous()[..], [1, 2, 3]);
        let range = TensorMemory::from(ForeignMemory::range(memory.region, 1, 2).unwrap());
        let mut target = [0; 2];
        range.copy_to(&mut target, "x").unwrap();
        assert_eq!(target, [2, 3]);
    }

    #[test]
    fn data_are_written_to_the_beginning_of_foreign_memory() {
        let memory = ForeignMemory::copied_from(&vec![9; 6].into());
        let range = ForeignMemory::range(memory.region.clone(), 1, 4).unwrap();
        let data = TensorData::from_pieces([Bytes::from_static(&[1, 2]), Bytes::from_static(&[3])]);
        assert_eq!(range.write(&data), Ok(true));
        assert_eq!(memory.read().unwrap(), [9, 1, 2, 3, 9, 9]);
        assert_eq!(range.write(&vec![7; 5].into()), Ok(false));
        assert_eq!(memory.read().unwrap(), [9, 1, 2, 3, 9, 9]);
        let lost = ForeignMemory::range(Arc::new(Truncated), 0, 8).unwrap();
        assert!(lost.write(&data).is_err());
    }

    #[test]
    fn ranges_of_one_region_may_overlap() {
        let whole = ForeignMemory::copied_from(&vec![9; 6].into());
        let range =
            |offset, byte_size| ForeignMemory::range(whole.region.clone(), offset, byte_size).unwrap();
        assert!(range(0, 3).overlaps(&range(2, 1)) && range(2, 1).overlaps(&range(0, 3)));
        assert!(!range(0, 3).overlaps(&range(3, 3)) && !range(3, 3).overlaps(&range(0, 3)));
        assert!(!range(0, 6).overlaps(&ForeignMemory::copied_from(&vec![9; 6].into())));
        assert!(range(2, 3).begins_as(&range(2, 1)) && !range(2, 3).begins_as(&range(1, 3)));
        assert_eq!(range(2, 3).first(3).map(|first| first.byte_size()), Some(3));
        assert!(range(2, 3).first(4).is_none());
    }

    #[test]
    fn a_range_lies_within_its_region() {
        let region: Arc<dyn ForeignRegion> = Arc::new(Truncated);
        assert!(ForeignMemory::range(region.clone(), 3, 5).is_some());
        assert!(ForeignMemory::range(region.clone(), 3, 6).is_none());
        assert!(ForeignMemory::range(region, usize::MAX, 2).is_none());
    }

    #[test]
    fn a_region_that_has_become_smaller_is_an_error() {
        let memory = TensorMemory::from(ForeignMemory::range(Arc::new(Truncated), 0, 8).unwrap());
        assert_eq!(memory.byte_size(), 8);
        assert_eq!(memory.host("x").unwrap_err().message, "the region is smaller than it was");
    }

    #[test]
    fn the_host_cannot_read_memory_of_a_device() {
        let pieces = [DeviceRange { address: 64, byte_size: 3 }, DeviceRange { address: 0, byte_size: 0 }];
        let memory = TensorMemory::from(DeviceMemory::new(2, pieces, Arc::new(())));
        assert_eq!(memory.byte_size(), 3);
        let error = memory.host("IN").unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
        assert_eq!(error.message, "tensor 'IN' is in memory of type GPU, which the host cannot read");
        assert_eq!(memory.copy_to(&mut [0; 3], "IN").unwrap_err(), error);
    }
}

//! Buffers for gathering tensors of any datatype; the only module of this crate with `unsafe`.
use std::mem;

use inference::lock::Mutex;

/// The alignment for the widest vector instructions, and the size of a cache line.
const ALIGNMENT: usize = 64;

/// Instances keep smaller buffers as long as they live.
const LARGE_BYTES: usize = 1 << 20;

/// The large buffers that no run uses, of all instances of the process.
static IDLE: IdleBuffers = IdleBuffers(Mutex::new(Vec::new()));

/// Frees the large buffers that no run uses. Any thread may call it at any time.
pub fn free_idle_buffers() {
    IDLE.free();
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Bytes that begin at a multiple of 64. The buffer grows and never shrinks. A small one stays allocated from run to
/// run, a large one until [`free_idle_buffers`].
#[derive(Default)]
pub struct AlignedBuffer {
    lines: Vec<Line>,
}

impl AlignedBuffer {
    /// The first `len` bytes. They are initialised, but contain data of an earlier run, maybe of another model.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        let lines = len.div_ceil(ALIGNMENT);
        if self.lines.len() < lines && len >= LARGE_BYTES {
            *self = IDLE.take(lines);
        }
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; ALIGNMENT]));
        }
        // SAFETY: the vector holds at least `lines` initialised lines without padding between or inside them, so `len`
        // bytes are readable and writable; the borrow of `self` keeps them in place and unshared.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<u8>(), len) }
    }

    /// The run has ended. The next run of any instance may get a large buffer.
    pub(crate) fn run_ended(&mut self) {
        if self.lines.len() >= LARGE_BYTES / ALIGNMENT {
            IDLE.put(mem::take(self));
        }
    }
}

/// Buffers, in the order of their length.
struct IdleBuffers(Mutex<Vec<AlignedBuffer>>);

impl IdleBuffers {
    /// The shortest buffer with so many lines. If all are shorter, the longest of them is freed, and the result is empty:
    /// so there are never more buffers than runs have used at the same time.
    fn take(&self, lines: usize) -> AlignedBuffer {
        let too_short = {
            let mut buffers = self.0.lock();
            let index = buffers.partition_point(|buffer| buffer.lines.len() < lines);
            if index < buffers.len() {
                return buffers.remove(index);
            }
            buffers.pop()
        };
        drop(too_short);
        AlignedBuffer::default()
    }

    fn put(&self, buffer: AlignedBuffer) {
        let mut buffers = self.0.lock();
        let index = buffers.partition_point(|other| other.lines.len() < buffer.lines.len());
        buffers.insert(index, buffer);
    }

    /// Frees all of them, without the lock.
    fn free(&self) {
        let buffers = mem::take(&mut *self.0.lock());
        drop(buffers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_keeps_what_was_written() {
        let mut buffer = AlignedBuffer::default();
        assert!(buffer.first(0).is_empty());
        let bytes = buffer.first(100);
        assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0);
        bytes.fill(7);
        assert_eq!(buffer.first(3), [7; 3]);
        assert_eq!(buffer.first(200)[..101], [[7; 100].as_slice(), &[0]].concat());
        let before = buffer.first(200).as_ptr();
        buffer.run_ended();
        assert_eq!(buffer.first(200).as_ptr(), before, "the instance keeps a small buffer");
    }

    fn of_lines(lines: usize) -> AlignedBuffer {
        AlignedBuffer { lines: vec![Line([0; ALIGNMENT]); lines] }
    }

    #[test]
    fn a_run_gets_the_shortest_idle_buffer_that_is_long_enough() {
        let idle = IdleBuffers(Mutex::new(Vec::new()));
        [8, 2, 4].into_iter().for_each(|lines| idle.put(of_lines(lines)));
        let taken = |lines| idle.take(lines).lines.len();
        assert_eq!([taken(3), taken(3), taken(3)], [4, 8, 0]);
        assert_eq!(taken(1), 0, "the one that was too short has been freed");
    }

    #[test]
    fn a_large_buffer_is_idle_after_its_run_until_it_is_freed() {
        let idle = || IDLE.0.lock().iter().map(|buffer| buffer.lines.len() * ALIGNMENT).collect::<Vec<_>>();
        let [mut buffer, mut other] = [const { AlignedBuffer { lines: Vec::new() } }; 2];
        let address = buffer.first(LARGE_BYTES).as_ptr();
        buffer.run_ended();
        assert_eq!(idle(), [LARGE_BYTES]);
        assert_eq!(other.first(LARGE_BYTES).as_ptr(), address);
        assert_eq!(idle(), [0; 0]);
        other.run_ended();
        free_idle_buffers();
        assert_eq!(idle(), [0; 0]);
    }
}

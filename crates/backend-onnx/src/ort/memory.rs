//! Buffers for gathering tensors of any datatype, and the return of freed memory to the system.

/// The alignment for the widest vector instructions, and the size of a cache line.
const ALIGNMENT: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Bytes that begin at a multiple of 64. The buffer stays allocated from run to run. It grows and never shrinks.
#[derive(Default)]
pub(crate) struct AlignedBuffer {
    lines: Vec<Line>,
}

impl AlignedBuffer {
    /// The first `len` bytes. They are initialised, but contain data of an earlier run.
    pub(crate) fn first(&mut self, len: usize) -> &mut [u8] {
        let lines = len.div_ceil(ALIGNMENT);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; ALIGNMENT]));
        }
        // SAFETY: the vector holds at least `lines` initialised lines without padding between or inside them, so `len`
        // bytes are readable and writable; the borrow of `self` keeps them in place and unshared.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<u8>(), len) }
    }
}

/// Returns the memory that a model has freed to the system after its last session is dropped.
///
/// The runtime allocates with the C library, whatever allocator this program uses, and glibc keeps freed memory.
/// Invariant: all sessions of a model share the value, and each drops it after its session.
pub(crate) struct TrimWhenDropped;

impl Drop for TrimWhenDropped {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: may be called at any time from any thread.
        unsafe {
            libc::malloc_trim(0);
        }
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
    }

    /// The last block keeps the heap from shrinking by itself.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn freed_memory_goes_back_when_the_last_session_is_gone() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
        };
        let model = std::sync::Arc::new(TrimWhenDropped);
        let session = model.clone();
        let mut blocks: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 * 1024]).collect();
        let last = blocks.pop();
        drop(blocks);
        drop(model);
        let freed = resident();
        drop(session);
        let trimmed = resident();
        assert!(trimmed + 40 < freed, "{freed} MiB before, {trimmed} MiB after");
        drop(last);
    }
}

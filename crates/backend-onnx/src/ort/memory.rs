//! Buffers for gathering tensors of any datatype.

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
}

//! The frames of the socket between server and worker.
//!
//! A frame is its length in four bytes, and so many bytes. Frames to a worker have a header, which is one value, and after
//! it the bytes of small tensors, so that the worker's arrays lie in the frame. Frames of a worker are a list of items.
use std::{collections::VecDeque, ops::Range, os::fd::AsFd};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use crate::wire::marshal::MarshalWriter;

/// Tensors in a frame begin at multiples of this number of bytes.
const TAIL_ALIGNMENT: usize = 16;

/// A frame to a worker while it is written.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    /// The value.
    pub(crate) header: MarshalWriter,
    tail: Vec<u8>,
}

impl FrameWriter {
    /// Adds bytes after the header, and returns their offset among those bytes.
    pub(crate) fn append<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> usize {
        let offset = self.tail.len().next_multiple_of(TAIL_ALIGNMENT);
        self.tail.resize(offset, 0);
        pieces.for_each(|piece| self.tail.extend_from_slice(piece));
        offset
    }

    /// The frame.
    pub(crate) fn finish(self) -> Vec<u8> {
        let header = self.header.finish();
        let tail_start = (4 + header.len()).next_multiple_of(TAIL_ALIGNMENT);
        let length = if self.tail.is_empty() { 4 + header.len() } else { tail_start + self.tail.len() };
        let mut frame = Vec::with_capacity(4 + length);
        // A frame has the values of a message and small tensors: it is far from four gigabytes.
        frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        frame.extend(u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
        frame.extend_from_slice(&header);
        if !self.tail.is_empty() {
            frame.resize(4 + tail_start, 0);
            frame.extend_from_slice(&self.tail);
        }
        frame
    }
}

/// The kinds of frames to a worker; `python/nereid_worker.py` has the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WorkerFrameKind {
    /// What the worker is, and the model that it is for.
    Start = 1,
    /// A configuration to complete.
    Complete = 2,
    /// The model must initialize itself.
    Initialize = 3,
    /// Executions.
    Execute = 4,
    /// The answer to a question.
    Reply = 5,
    /// A response to a request of the model.
    Inferred = 6,
    /// Outputs that the server has read.
    Returned = 7,
    /// The model must finalize itself, and the worker ends.
    Finalize = 8,
}

/// Frames that wait until the socket takes them.
#[derive(Debug, Default)]
pub(crate) struct OutgoingFrames {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that were sent.
    sent: usize,
    bytes: usize,
}

/// Why a frame cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendFailure {
    /// The worker has ended.
    Closed,
    /// The worker does not read.
    TooMany,
}

/// More bytes than this never wait for a worker.
const MOST_WAITING_BYTES: usize = 64 << 20;

impl OutgoingFrames {
    /// Sends a frame, or keeps it until the socket takes it. Returns whether frames wait.
    ///
    /// # Errors
    /// The frame cannot be sent any more.
    pub(crate) fn push(&mut self, socket: impl AsFd, frame: Vec<u8>) -> Result<bool, SendFailure> {
        if self.bytes + frame.len() > MOST_WAITING_BYTES && !self.frames.is_empty() {
            return Err(SendFailure::TooMany);
        }
        self.bytes += frame.len();
        self.frames.push_back(frame);
        self.flush(socket)
    }

    /// Sends what the socket takes. Returns whether frames wait.
    ///
    /// # Errors
    /// The worker has ended.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> Result<bool, SendFailure> {
        while let Some(frame) = self.frames.front() {
            match send(socket.as_fd(), &frame[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) if self.sent + count == frame.len() => {
                    self.bytes -= frame.len();
                    self.sent = 0;
                    self.frames.pop_front();
                }
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(_) => return Err(SendFailure::Closed),
            }
        }
        Ok(false)
    }

    /// Whether frames wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.frames.is_empty()
    }
}

/// Bytes of a worker until they are whole frames.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    buffer: Vec<u8>,
    /// The frames before this place have been taken.
    taken: usize,
}

/// What reading has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Bytes have come, and perhaps more than there was room for.
    Full,
    /// Bytes have come.
    Some,
    /// None have come.
    Nothing,
    /// The worker has closed the socket, or has ended.
    Closed,
}

const READ_BYTES: usize = 64 << 10;

/// The room that a buffer keeps after a larger frame.
const KEPT_BYTES: usize = 1 << 20;

/// A longer frame is damage: large outputs are in an area.
const MAX_FRAME_BYTES: usize = 256 << 20;

impl FrameBuffer {
    /// Reads what the socket has, without waiting.
    pub(crate) fn read(&mut self, socket: impl AsFd) -> ReadOutcome {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT_BYTES);
        }
        self.buffer.reserve(READ_BYTES);
        loop {
            let room = self.buffer.capacity() - self.buffer.len();
            let place = rustix::buffer::spare_capacity(&mut self.buffer);
            return match recv(socket.as_fd(), place, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => ReadOutcome::Closed,
                Ok((_, count)) if count == room => ReadOutcome::Full,
                Ok(_) => ReadOutcome::Some,
                Err(Errno::AGAIN) => ReadOutcome::Nothing,
                Err(Errno::INTR) => continue,
                Err(_) => ReadOutcome::Closed,
            };
        }
    }

    /// Takes the next whole frame, without its length. [`FrameBuffer::frame`] has its bytes until the next read. `Err` if
    /// the length is damaged.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Range<usize>>, ()> {
        let Some((length, rest)) = self.buffer[self.taken..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(drop)?;
        if length > MAX_FRAME_BYTES {
            return Err(());
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.taken + 4;
        self.taken = start + length;
        Ok(Some(start..self.taken))
    }

    /// The bytes of a frame.
    pub(crate) fn frame(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn small_tensors_lie_aligned_after_the_header() {
        let mut frame = FrameWriter::default();
        frame.header.str("header");
        let places = [b"one".as_slice(), b"two"].map(|bytes| frame.append([bytes].into_iter()));
        assert_eq!(places, [0, 16]);
        let bytes = frame.finish();
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let header = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        assert_eq!((length, header), (bytes.len() - 4, 11));
        assert_eq!((&bytes[20..23], &bytes[36..]), (&b"one"[..], &b"two"[..]));
    }

    #[test]
    fn frames_come_whole_however_the_socket_cuts_them() {
        let (ours, theirs) = pair();
        let frames: Vec<Vec<u8>> = (0..50_u32)
            .map(|number| {
                let body = vec![number as u8; (number * 997) as usize];
                [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat()
            })
            .collect();
        let mut outgoing = OutgoingFrames::default();
        let mut waits = false;
        for frame in &frames {
            waits = outgoing.push(&ours, frame.clone()).unwrap();
        }
        assert!(waits && outgoing.is_waiting(), "the socket takes less than the frames have");
        let (mut reader, mut read) = (FrameBuffer::default(), Vec::new());
        while read.len() < frames.len() {
            let _ = outgoing.flush(&ours).unwrap();
            assert_ne!(reader.read(&theirs), ReadOutcome::Closed);
            while let Some(range) = reader.next_frame().unwrap() {
                read.push(reader.frame(range).to_vec());
            }
        }
        assert!(frames.iter().zip(&read).all(|(frame, read)| frame[4..] == read[..]));
        assert_eq!(reader.read(&theirs), ReadOutcome::Nothing);
        drop(ours);
        assert_eq!(reader.read(&theirs), ReadOutcome::Closed);
    }

    #[test]
    fn a_closed_socket_and_a_worker_that_does_not_read_are_failures() {
        let (ours, theirs) = pair();
        let mut outgoing = OutgoingFrames::default();
        let large = vec![0; MOST_WAITING_BYTES];
        assert_eq!(outgoing.push(&ours, large), Ok(true));
        assert_eq!(outgoing.push(&ours, vec![0; 1 << 20]), Err(SendFailure::TooMany));
        drop(theirs);
        assert_eq!(outgoing.flush(&ours), Err(SendFailure::Closed));
    }

    #[test]
    fn the_memory_of_a_large_frame_is_given_back() {
        let (ours, theirs) = pair();
        let body = vec![7; 8 << 20];
        let frame = [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat();
        let mut outgoing = OutgoingFrames::default();
        outgoing.push(&ours, frame).unwrap();
        let mut reader = FrameBuffer::default();
        while reader.next_frame().unwrap().is_none() {
            let _ = outgoing.flush(&ours).unwrap();
            assert_ne!(reader.read(&theirs), ReadOutcome::Closed);
        }
        assert!(reader.buffer.capacity() > 8 << 20);
        assert_eq!(reader.read(&theirs), ReadOutcome::Nothing);
        assert!(reader.buffer.capacity() <= KEPT_BYTES);
    }

    #[test]
    fn a_length_beyond_all_frames_is_damage() {
        let (ours, theirs) = pair();
        send(&ours, &[0xff; 8], SendFlags::empty()).unwrap();
        let mut reader = FrameBuffer::default();
        assert_eq!(reader.read(&theirs), ReadOutcome::Some);
        assert_eq!(reader.next_frame(), Err(()));
    }
}

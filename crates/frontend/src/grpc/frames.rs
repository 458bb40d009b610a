//! Recognises the frames in one direction of an HTTP/2 connection from their heads alone, and skips the payloads.
//!
//! Source: RFC 9113, section 4.1.

/// Length of a frame's head, in bytes.
const HEAD: usize = 9;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// A push promise, or a kind that HTTP/2 does not know.
    Other,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) kind: FrameKind,
    pub(super) flags: u8,
    /// Length of the payload, in bytes.
    pub(super) len: u32,
    /// The stream of the frame. 0 stands for the connection.
    pub(super) stream: u32,
}

impl FrameHead {
    fn of(head: [u8; HEAD]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let kind = match kind {
            0 => FrameKind::Data,
            1 => FrameKind::Headers,
            2 => FrameKind::Priority,
            3 => FrameKind::Reset,
            4 => FrameKind::Settings,
            6 => FrameKind::Ping,
            7 => FrameKind::GoAway,
            8 => FrameKind::WindowUpdate,
            9 => FrameKind::Continuation,
            _ => FrameKind::Other,
        };
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Self { kind, flags, len: u32::from_be_bytes([0, high, middle, low]), stream }
    }

    /// Tells whether the frame answers a SETTINGS or PING frame of the other side.
    pub(super) fn is_ack(self) -> bool {
        matches!(self.kind, FrameKind::Settings | FrameKind::Ping) && self.flags & 0x1 != 0
    }

    /// Tells whether the frame is the last one of its stream in this direction.
    pub(super) fn ends_stream(self) -> bool {
        matches!(self.kind, FrameKind::Data | FrameKind::Headers) && self.flags & 0x1 != 0
    }

    /// Tells whether the frame is the last one of a header block.
    pub(super) fn ends_headers(self) -> bool {
        matches!(self.kind, FrameKind::Headers | FrameKind::Continuation) && self.flags & 0x4 != 0
    }
}

/// Reads the bytes of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Bytes still to come before the first frame.
    preface: usize,
    head: [u8; HEAD],
    /// Bytes of `head` that have arrived. Always fewer than the whole head.
    have: usize,
    /// Bytes of the payload that have not arrived yet.
    payload: usize,
    /// The latest frame whose head is complete.
    latest: Option<FrameHead>,
}

impl FrameReader {
    /// A direction that begins with `preface` bytes that belong to no frame.
    pub(super) fn after(preface: usize) -> Self {
        Self { preface, ..Self::default() }
    }

    /// Reads the next bytes. Calls `on_frame` for each frame whose head these bytes complete.
    ///
    /// # Errors
    /// The first error of `on_frame`. The caller must not use the reader afterwards.
    pub(super) fn advance<E>(
        &mut self,
        mut bytes: &[u8],
        mut on_frame: impl FnMut(FrameHead) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let passed = self.preface.min(bytes.len());
            self.preface -= passed;
            bytes = &bytes[passed..];
            let passed = self.payload.min(bytes.len());
            self.payload -= passed;
            bytes = &bytes[passed..];
            let taken = (HEAD - self.have).min(bytes.len());
            if self.preface > 0 || self.payload > 0 || taken == 0 {
                return Ok(());
            }
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEAD {
                let head = FrameHead::of(self.head);
                self.have = 0;
                self.payload = usize::try_from(head.len).unwrap_or(usize::MAX);
                self.latest = Some(head);
                on_frame(head)?;
            }
        }
        Ok(())
    }

    /// Tells whether the bytes so far end at the end of a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        self.preface == 0 && self.have == 0 && self.payload == 0
    }

    /// The kind of the latest frame, if its payload has not arrived completely.
    pub(super) fn is_within(&self) -> Option<FrameKind> {
        self.latest.filter(|_| self.payload > 0).map(|head| head.kind)
    }

    /// Tells whether a part of a frame's head has arrived.
    pub(super) fn is_within_head(&self) -> bool {
        self.have > 0
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_recognised_wherever_the_bytes_are_cut() {
        let bytes = [
            b"preface".to_vec(),
            frame(4, 0, &[]),
            frame(1, 0x5, b"headers"),
            frame(0, 0, &[7; 300]),
            frame(6, 1, &[0; 8]),
            frame(0x42, 0, b"x"),
        ]
        .concat();
        for step in [1, 2, 5, 9, 10, 64, bytes.len()] {
            let mut reader = FrameReader::after(7);
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                let advanced = reader.advance(piece, |head| {
                    seen.push((head.kind, head.len));
                    Ok::<_, Infallible>(())
                });
                advanced.unwrap();
            }
            use FrameKind::{Data, Headers, Other, Ping, Settings};
            assert_eq!(seen, [(Settings, 0), (Headers, 7), (Data, 300), (Ping, 8), (Other, 1)], "{step}");
            assert!(reader.is_between_frames());
        }
    }

    #[test]
    fn a_frame_that_is_there_in_part_is_known() {
        let mut reader = FrameReader::default();
        let bytes = frame(1, 0x4, b"headers");
        let mut advance = |bytes: &[u8]| {
            reader.advance(bytes, |_| Ok::<_, Infallible>(())).unwrap();
            (reader.is_within_head(), reader.is_within())
        };
        assert_eq!(advance(&bytes[..3]), (true, None));
        assert_eq!(advance(&bytes[3..12]), (false, Some(FrameKind::Headers)));
        assert_eq!(advance(&bytes[12..]), (false, None));
    }

    #[test]
    fn flags_have_their_meaning_by_kind() {
        let head = |kind, flags| FrameHead::of(frame(kind, flags, &[])[..].try_into().unwrap());
        assert!(head(6, 1).is_ack() && head(4, 1).is_ack() && !head(6, 0).is_ack() && !head(0, 1).is_ack());
        assert!(head(0, 1).ends_stream() && head(1, 5).ends_stream() && !head(6, 1).ends_stream());
        assert!(head(9, 4).ends_headers() && head(1, 4).ends_headers() && !head(0, 4).ends_headers());
    }
}

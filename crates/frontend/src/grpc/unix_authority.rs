//! Makes the `:authority` of clients on unix sockets valid.
//!
//! gRPC's C library calls the server by the path of its socket, in percent-encoding: `%2Frun%2Fnereid.sock`. h2 refuses
//! calls with a `%` in `:authority`. This module replaces each `%` there by `-`, in the bytes as they arrive. The length
//! stays the same, so both sides of the header compression still agree. Nereid does not use the name.
//!
//! The library does not compress the value with Huffman's code, so compressed values are left as they are. Source: RFC
//! 9113, section 6.2, and RFC 7541, section 6.
const NAME: &[u8] = b":authority";

/// The length of a frame's head, in bytes.
const HEAD: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Reads the bytes of one client, frame by frame.
#[derive(Debug)]
pub(super) struct AuthorityRewriter {
    /// Bytes that belong to no frame, or not to a header block.
    skipped: usize,
    head: [u8; HEAD],
    /// Bytes of `head` that have arrived.
    have: usize,
    /// Bytes of the payload that have not arrived, behind those that are skipped.
    payload: usize,
    /// The next byte of the payload is the length of the padding.
    is_padded: bool,
    /// Bytes of padding at the end of the payload.
    padding: usize,
    block: HeaderBlock,
}

/// Reads the header fields of one block. It does not check them.
#[derive(Debug, Clone, Copy)]
struct HeaderBlock {
    step: BlockStep,
}

/// What the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockStep {
    /// The first byte of a field.
    Field,
    /// A further byte of a number.
    Number { value: usize, shift: u32, of: NumberKind },
    /// The first byte of the length of a name, or of a value.
    Length(TextKind),
    /// A byte of a text.
    Text { left: usize, kind: TextKind, is_compressed: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    /// The index of a field, or the size of the table. Nothing follows.
    Whole,
    /// The index of a name. A value follows, and a name before it if the index is 0.
    NameIndex,
    Length {
        kind: TextKind,
        is_compressed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    /// A name of which so many bytes are those of `:authority`. `None` if it is another one.
    Name {
        matched: Option<usize>,
    },
    Value {
        is_authority: bool,
    },
}

impl AuthorityRewriter {
    /// For a connection that begins with `preface` bytes that belong to no frame.
    pub(super) fn after(preface: usize) -> Self {
        Self {
            skipped: preface,
            head: [0; HEAD],
            have: 0,
            payload: 0,
            is_padded: false,
            padding: 0,
            block: HeaderBlock { step: BlockStep::Field },
        }
    }

    /// Reads the next bytes, and changes those that are wrong.
    pub(super) fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if self.skipped > 0 {
                let count = self.skipped.min(bytes.len());
                self.skipped -= count;
                bytes = &mut bytes[count..];
            } else if self.payload > 0 {
                let (first, rest) = bytes.split_at_mut(1);
                self.payload_byte(&mut first[0]);
                bytes = rest;
            } else {
                self.head[self.have] = bytes[0];
                self.have += 1;
                if self.have == HEAD {
                    self.have = 0;
                    self.begin_payload();
                }
                bytes = &mut bytes[1..];
            }
        }
    }

    fn begin_payload(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.head;
        let len = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let has = |flag| kind == HEADERS && flags & flag != 0;
        if kind == HEADERS {
            self.block = HeaderBlock { step: BlockStep::Field };
        }
        if kind != HEADERS && kind != CONTINUATION {
            self.skipped = len;
            return;
        }
        self.padding = 0;
        self.is_padded = has(PADDED);
        self.payload = len;
        if has(PRIORITY) && !self.is_padded {
            self.skip_priority();
        }
    }

    /// Skips the fields about the priority.
    fn skip_priority(&mut self) {
        self.skipped = self.payload.min(5);
        self.payload -= self.skipped;
    }

    fn payload_byte(&mut self, byte: &mut u8) {
        self.payload -= 1;
        if std::mem::take(&mut self.is_padded) {
            self.padding = usize::from(*byte);
            if self.head[4] & PRIORITY != 0 {
                self.skip_priority();
            }
        } else if self.payload < self.padding {
            self.skipped = std::mem::take(&mut self.payload);
        } else {
            self.block.byte(byte);
        }
    }
}

impl HeaderBlock {
    fn byte(&mut self, byte: &mut u8) {
        self.step = match self.step {
            BlockStep::Field => match *byte {
                0x80.. => number(*byte, 7, NumberKind::Whole),
                0x40..=0x7f => number(*byte, 6, NumberKind::NameIndex),
                0x20..=0x3f => number(*byte, 5, NumberKind::Whole),
                0x00..=0x1f => number(*byte, 4, NumberKind::NameIndex),
            },
            BlockStep::Number { value, shift, of } => {
                let more = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
                let value = value.saturating_add(more);
                if *byte & 0x80 == 0 {
                    after_number(value, of)
                } else {
                    BlockStep::Number { value, shift: shift.saturating_add(7), of }
                }
            }
            BlockStep::Length(kind) => {
                let is_compressed = *byte & 0x80 != 0;
                number(*byte, 7, NumberKind::Length { kind, is_compressed })
            }
            BlockStep::Text { left, kind, is_compressed } => {
                let kind = text_byte(byte, kind, is_compressed);
                after_text(left - 1, kind, is_compressed)
            }
        };
    }
}

/// The step after the first byte of a number, which has so many bits there.
fn number(byte: u8, bits: u32, of: NumberKind) -> BlockStep {
    let most = (1_u8 << bits) - 1;
    let value = usize::from(byte & most);
    if byte & most == most { BlockStep::Number { value, shift: 0, of } } else { after_number(value, of) }
}

fn after_number(value: usize, of: NumberKind) -> BlockStep {
    match of {
        NumberKind::Whole => BlockStep::Field,
        NumberKind::NameIndex if value == 0 => BlockStep::Length(TextKind::Name { matched: Some(0) }),
        // The first entry of the static table is `:authority`.
        NumberKind::NameIndex => BlockStep::Length(TextKind::Value { is_authority: value == 1 }),
        NumberKind::Length { kind, is_compressed } => after_text(value, kind, is_compressed),
    }
}

/// The step when so many bytes of a text have not arrived.
fn after_text(left: usize, kind: TextKind, is_compressed: bool) -> BlockStep {
    match kind {
        _ if left > 0 => BlockStep::Text { left, kind, is_compressed },
        TextKind::Name { matched } => {
            BlockStep::Length(TextKind::Value { is_authority: matched == Some(NAME.len()) })
        }
        TextKind::Value { .. } => BlockStep::Field,
    }
}

/// What is known of a text after this byte.
fn text_byte(byte: &mut u8, kind: TextKind, is_compressed: bool) -> TextKind {
    match kind {
        TextKind::Name { matched } => {
            let next = matched.filter(|matched| !is_compressed && NAME.get(*matched) == Some(byte));
            TextKind::Name { matched: next.map(|matched| matched + 1) }
        }
        TextKind::Value { is_authority } => {
            if is_authority && !is_compressed && *byte == b'%' {
                *byte = b'-';
            }
            kind
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u8::try_from(payload.len()).unwrap();
        [&[0, 0, len, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// A field with this name, both parts uncompressed.
    fn literal(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
        let len = |text: &[u8]| u8::try_from(text.len()).unwrap();
        [&[first], &[len(name)][..], name, &[len(value)], value].concat()
    }

    fn rewritten(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut rewriter = AuthorityRewriter::after(3);
        bytes.chunks_mut(piece).for_each(|piece| rewriter.rewrite(piece));
        bytes
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let whole = |frames: &[Vec<u8>]| [b"%%%", &frames.concat()[..]].concat();
        for piece in [1, 2, 7, 1000] {
            assert_eq!(rewritten(&whole(frames), piece), whole(expected), "{piece}");
        }
    }

    const PATH: &[u8] = b"%2Frun%2Fa";
    const MENDED: &[u8] = b"-2Frun-2Fa";

    #[test]
    fn the_authority_is_mended_however_its_name_is_written() {
        for first in [0x40, 0x00, 0x10] {
            let block = |authority: &[u8]| {
                [&literal(first, b":path", b"/%41")[..], &literal(first, NAME, authority), &[0x82]].concat()
            };
            check(&[frame(HEADERS, 4, &block(PATH))], &[frame(HEADERS, 4, &block(MENDED))]);
        }
        for first in [0x41, 0x01, 0x11] {
            let block = |authority: &[u8]| [&[0x82, first, 10][..], authority, &[0x3f, 0x80, 0x01]].concat();
            check(&[frame(HEADERS, 4, &block(PATH))], &[frame(HEADERS, 4, &block(MENDED))]);
        }
    }

    #[test]
    fn only_the_authority_is_changed() {
        let others =
            [literal(0x40, b":authoritx", PATH), literal(0, b":authority2", PATH), literal(0, b"", PATH)];
        let compressed = [&[0x41, 0x80 | 10][..], PATH].concat();
        let indexed = [&[0x7f, 0x00, 10][..], PATH].concat();
        let block = [&others.concat()[..], &compressed, &indexed].concat();
        let frames = [frame(HEADERS, 4, &block), frame(0, 1, &literal(0x40, NAME, PATH))];
        check(&frames, &frames);
    }

    #[test]
    fn padding_priority_and_continuations_are_followed() {
        let field = |authority: &[u8]| literal(0x40, NAME, authority);
        let padded = |authority: &[u8]| {
            let payload = [&[3, 0, 0, 0, 0, 16][..], &field(authority), &[0x41, 1, b'%']].concat();
            frame(HEADERS, 4 | PADDED | PRIORITY, &payload)
        };
        check(&[padded(PATH), padded(PATH)], &[padded(MENDED), padded(MENDED)]);
        let divided = |authority: &[u8]| {
            let field = field(authority);
            let (first, rest) = field.split_at(15);
            [frame(HEADERS, PRIORITY, &[&[0; 5], first].concat()), frame(CONTINUATION, 4, rest)]
        };
        check(&divided(PATH), &divided(MENDED));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1_u64;
        let mut noise = Vec::new();
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise.push(if state >> 61 == 0 { HEADERS } else { (state >> 33) as u8 });
        }
        for start in 0..50 {
            AuthorityRewriter::after(0).rewrite(&mut noise[start * 7..].to_vec());
        }
        let endless = [&[0, 1, 0, HEADERS, 4, 0, 0, 0, 1, 0x7f][..], &[0xff; 300]].concat();
        rewritten(&endless, 1);
    }
}

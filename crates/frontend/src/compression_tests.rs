//! The written bytes bound an inflation, and a deflated text inflates to itself.
use std::io;

use vocabulary::ByteBudget;

use super::*;

/// A reader that counts its bytes.
struct Counted<'s> {
    rest: &'s [u8],
    read: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(target)?;
        self.read += count;
        Ok(count)
    }
}

impl BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(&self.rest[..self.rest.len().min(512)])
    }

    fn consume(&mut self, count: usize) {
        self.rest = &self.rest[count..];
        self.read += count;
    }
}

fn chunks(bytes: &[u8], size: usize) -> Chunks {
    let mut chunks = Chunks::new();
    bytes.chunks(size).for_each(|piece| chunks.push(Bytes::copy_from_slice(piece)));
    chunks
}

async fn deflate(coding: Coding, plain: &[u8], level: u32) -> Vec<u8> {
    coding.deflate(chunks(plain, 1000), level, 0).await.unwrap().unwrap()
}

fn unlimited() -> ByteReservation {
    ByteBudget::new(usize::MAX).reservation()
}

async fn inflate(coding: Coding, deflated: &[u8], limit: usize) -> Result<Bytes, InflateError> {
    let budget = ByteBudget::new(usize::MAX);
    let received = budget.reserve(deflated.len()).unwrap();
    let inflated = coding.inflate(chunks(deflated, 1000), limit, received).await.unwrap();
    inflated.map(|(plain, reservation)| {
        assert!(reservation.bytes() >= plain.len() && reservation.bytes() <= 2 * plain.len() + 1);
        plain
    })
}

#[tokio::test]
async fn compressed_bytes_of_any_size_inflate_to_the_original() {
    for size in [100, 20_000, 600_000] {
        // Runs of different lengths keep the deflated bytes long, too.
        let plain: Vec<u8> =
            (0..size).map(|index: u32| (index.wrapping_mul(index / 7) >> 9) as u8 & 15).collect();
        for coding in Coding::ALL {
            for level in [1, 9] {
                let deflated = deflate(coding, &plain, level).await;
                assert!(deflated.len() < plain.len());
                assert_eq!(inflate(coding, &deflated, plain.len()).await.unwrap(), plain);
                let refused = inflate(coding, &deflated, plain.len() - 1).await;
                assert_eq!(refused, Err(InflateError::TooLarge));
            }
        }
    }
}

#[tokio::test]
async fn inflation_of_a_compression_bomb_ends_at_the_limit() {
    let bomb = vec![0; 2 << 20];
    for coding in Coding::ALL {
        let deflated = deflate(coding, &bomb, 1).await;
        assert!(deflated.len() < bomb.len() / 100);
        for limit in [0, 1, 1000, BRIEF - 1, BRIEF, BRIEF + 1, 1 << 20] {
            let source = Counted { rest: &deflated, read: 0 };
            let mut inflater = Inflater::of_reader(coding, source, limit, unlimited());
            let ended = loop {
                let before = inflater.plain.len();
                match inflater.step(STEP) {
                    Ok(false) => assert_eq!(inflater.plain.len(), before + STEP, "a step has its bound"),
                    ended => break ended,
                }
            };
            assert_eq!(ended, Err(InflateError::TooLarge));
            assert_eq!(inflater.plain.len(), limit + 1, "bytes written");
            assert!(inflater.plain.capacity() <= limit + 1, "bytes reserved");
            let read = match &inflater.decoder {
                Decoder::Gzip(decoder) => decoder.get_ref().read,
                Decoder::Deflate(decoder) => decoder.get_ref().read,
            };
            assert!(read <= limit / 100 + 2000, "{read} bytes read for {limit}");
            assert_eq!(inflate(coding, &deflated, limit).await, Err(InflateError::TooLarge));
        }
    }
}

#[tokio::test]
async fn a_short_body_that_inflates_to_many_bytes_leaves_the_network_thread() {
    for coding in Coding::ALL {
        let deflated = deflate(coding, &vec![7; BRIEF + 1], 9).await;
        assert!(matches!(
            coding.inflate(chunks(&deflated, 1000), BRIEF + 1, unlimited()),
            PooledResult::Pooled(_)
        ));
        let deflated = deflate(coding, &vec![7; BRIEF - 1], 9).await;
        assert!(matches!(
            coding.inflate(chunks(&deflated, 1000), BRIEF + 1, unlimited()),
            PooledResult::Done(_)
        ));
    }
}

#[tokio::test]
async fn inflation_of_a_bomb_of_many_members_ends_at_the_limit() {
    let member = deflate(Coding::Gzip, &[0; 10_000], 9).await;
    let bomb = member.repeat(1000);
    assert_eq!(inflate(Coding::Gzip, &bomb, 10_000_000).await.unwrap().len(), 10_000_000);
    assert_eq!(inflate(Coding::Gzip, &bomb, 99_999).await, Err(InflateError::TooLarge));
    let empty = deflate_empty().repeat(10_000);
    assert_eq!(inflate(Coding::Gzip, &empty, 0).await.unwrap(), "");
}

/// A gzip member without content. The server never sends one.
fn deflate_empty() -> Vec<u8> {
    GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap()
}

#[tokio::test]
async fn inflation_ends_where_the_byte_budget_is_used_up() {
    for (size, limit) in [(BRIEF / 2, BRIEF), (2 << 20, 1 << 20)] {
        for coding in Coding::ALL {
            let deflated = deflate(coding, &vec![0; size], 9).await;
            let budget = ByteBudget::new(limit);
            let received = budget.reserve(limit - size / 3).unwrap();
            let refused = coding.inflate(chunks(&deflated, 1000), size, received).await.unwrap();
            assert!(matches!(refused, Err(InflateError::BudgetExceeded(refused)) if refused.limit == limit));
            assert_eq!(budget.used(), 0, "bytes are given back");
        }
    }
}

#[tokio::test]
async fn damaged_bytes_are_refused() {
    let plain = "0123".repeat(1000);
    for coding in Coding::ALL {
        let whole = deflate(coding, plain.as_bytes(), 1).await;
        for len in [1, 5, whole.len() / 2, whole.len() - 1] {
            let cut = inflate(coding, &whole[..len], 1 << 20).await;
            assert_eq!(cut, Err(InflateError::Corrupt), "{coding:?} cut to {len}");
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(inflate(coding, &damaged, 1 << 20).await, Err(InflateError::Corrupt), "{coding:?}");
        assert_eq!(inflate(coding, b"garbage", 1 << 20).await, Err(InflateError::Corrupt));
    }
}

#[tokio::test]
async fn bytes_that_compression_does_not_shorten_are_not_compressed() {
    // Each byte occurs once, so there is nothing to compress.
    let plain: Vec<u8> = (0..=255).collect();
    for coding in Coding::ALL {
        assert_eq!(coding.deflate(chunks(&plain, 1000), 9, 5).await, Ok(None));
    }
    let deflated = Coding::Gzip.deflate(chunks(&[0; 1000], 100), 9, 5).await.unwrap().unwrap();
    assert_eq!(deflated[..5], [0; 5]);
}

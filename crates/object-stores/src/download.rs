//! Copies one object into a file: in parts at the same time, in pieces through memory, and checked.
//!
//! The store must answer with the tag and the size that the listing has shown. So the parts belong to one content, and an
//! object that is replaced meanwhile is noticed.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use inference::repository::StoredObject;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use tokio::sync::Semaphore;
use vocabulary::Error;

use crate::listing::bare_etag;
use crate::store::spawn;

/// The size of a part. Objects up to this size are one request.
const PART_BYTES: u64 = 32 << 20;

/// How much of a part is collected before it is written.
const WRITE_BYTES: usize = 1 << 20;

/// How many parts of one object are requested at the same time. The semaphore limits the requests for all objects.
const PARALLEL_PARTS: usize = 8;

/// Why a download failed.
pub(crate) enum DownloadError {
    /// The request failed.
    Store(object_store::Error),
    /// The object is not the one that was listed.
    Changed,
    /// The answer is shorter or longer than its head has said.
    Incomplete { received: u64, expected: u64 },
    /// The file cannot be written.
    Local(Error),
}

/// The object to copy, and where requests for it come from.
#[derive(Clone)]
pub(crate) struct Download {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) location: Path,
    pub(crate) object: Arc<StoredObject>,
    pub(crate) file: Arc<File>,
    /// One permit for each request of the process.
    pub(crate) permits: Arc<Semaphore>,
}

impl Download {
    /// Writes the whole object into the file.
    pub(crate) async fn run(self) -> Result<(), DownloadError> {
        let parts = parts(&self.object);
        let is_whole = parts.len() <= 1;
        let requests = parts.into_iter().map(|range| self.clone().part(range, is_whole));
        stream::iter(requests).buffer_unordered(PARALLEL_PARTS).try_collect::<()>().await
    }

    /// Requests one part and writes it at its place.
    async fn part(self, range: Range<u64>, is_whole: bool) -> Result<(), DownloadError> {
        // The semaphore is never closed; if it were, the number of requests would have no limit.
        let _permit = self.permits.acquire().await;
        let options = GetOptions {
            if_match: strong_etag(&self.object).map(|etag| format!("\"{etag}\"")),
            range: (!is_whole).then_some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(&self.location, options).await.map_err(DownloadError::Store)?;
        let etag = answer.meta.e_tag.as_deref().map(bare_etag);
        let has_other_etag =
            self.object.etag.as_deref().is_some_and(|listed| etag.is_some_and(|etag| etag != listed));
        if answer.meta.size != self.object.byte_size || has_other_etag {
            return Err(DownloadError::Changed);
        }
        let expected = range.end - range.start;
        let mut pieces = answer.into_stream();
        let mut received = 0;
        let mut collected = Vec::new();
        let mut collected_bytes = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(DownloadError::Store)?;
            received += piece.len() as u64;
            if received > expected {
                return Err(DownloadError::Incomplete { received, expected });
            }
            collected_bytes += piece.len();
            collected.push(piece);
            if collected_bytes >= WRITE_BYTES {
                let offset = range.start + received - collected_bytes as u64;
                self.write(std::mem::take(&mut collected), offset).await?;
                collected_bytes = 0;
            }
        }
        if received != expected {
            return Err(DownloadError::Incomplete { received, expected });
        }
        self.write(collected, range.start + received - collected_bytes as u64).await
    }

    async fn write(&self, pieces: Vec<Bytes>, mut offset: u64) -> Result<(), DownloadError> {
        let file = Arc::clone(&self.file);
        let written = spawn(move || {
            for piece in pieces {
                file.write_all_at(&piece, offset).map_err(|error| Error::internal(error.to_string()))?;
                offset += piece.len() as u64;
            }
            Ok(())
        });
        written.await.map_err(DownloadError::Local)
    }
}

/// The tag, if equal tags mean equal bytes.
fn strong_etag(object: &StoredObject) -> Option<&str> {
    object.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
}

/// The ranges to request. Only a strong tag keeps parts of different contents apart. An empty object needs no request.
fn parts(object: &StoredObject) -> Vec<Range<u64>> {
    if strong_etag(object).is_none() && object.byte_size > 0 {
        return vec![Range { start: 0, end: object.byte_size }];
    }
    let starts = (0..object.byte_size).step_by(PART_BYTES as usize);
    starts.map(|start| start..object.byte_size.min(start + PART_BYTES)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use inference::repository::ObjectKind;

    use super::*;

    fn object(byte_size: u64, etag: Option<&str>) -> StoredObject {
        let etag = etag.map(str::to_owned);
        StoredObject {
            path: "a".into(),
            kind: ObjectKind::File,
            byte_size,
            etag,
            modified: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn long_objects_are_requested_in_parts_without_a_gap() {
        let parts = parts(&object(PART_BYTES * 2 + 7, Some("tag")));
        assert_eq!(parts, [0..PART_BYTES, PART_BYTES..PART_BYTES * 2, PART_BYTES * 2..PART_BYTES * 2 + 7]);
    }

    #[test]
    fn objects_without_a_strong_tag_are_one_request_and_empty_ones_are_none() {
        assert_eq!(parts(&object(PART_BYTES * 2, None)), vec![Range { start: 0, end: PART_BYTES * 2 }]);
        assert_eq!(
            parts(&object(PART_BYTES * 2, Some("W/\"tag\""))),
            vec![Range { start: 0, end: PART_BYTES * 2 }]
        );
        assert_eq!(parts(&object(PART_BYTES, Some("tag"))), vec![Range { start: 0, end: PART_BYTES }]);
        assert!(parts(&object(0, Some("tag"))).is_empty() && parts(&object(0, None)).is_empty());
    }
}

//! The cache without stores: restarts, killed processes, removal and damage.

use std::fs::FileTimes;
use std::io::Write;
use std::time::Duration;

use super::contents::{ContentId, ContentOrigin};
use super::*;
use crate::local_copy::{CopyDirectory, LocalCopies};
use inference::repository::{ObjectKind, StoredObject};

const MODIFIED: u64 = 1_700_000_000;

fn id(path: &str, etag: &str, byte_size: u64) -> ContentId {
    let object = StoredObject {
        path: path.into(),
        kind: ObjectKind::File,
        byte_size,
        etag: Some(etag.into()),
        modified: UNIX_EPOCH + Duration::from_secs(MODIFIED),
    };
    ContentId::new(&format!("s3://bucket/{path}"), &object)
}

fn open(directory: &Path, max_unused_bytes: u64) -> Arc<LocalCache> {
    LocalCache::open(CacheOptions { directory: directory.to_owned(), max_unused_bytes }).unwrap()
}

/// Adds a content, which becomes a file of the copy.
fn add(cache: &LocalCache, id: &ContentId, content: &[u8], target: &Path) {
    let (temporary, mut file) = cache.make_file().unwrap();
    file.write_all(content).unwrap();
    cache.add(id, &file, &temporary, target).unwrap();
}

fn copy(cache: &Arc<LocalCache>, key: &str) -> Arc<CopyDirectory> {
    LocalCopies::new(Arc::clone(cache)).make("model", key.into()).unwrap()
}

fn contents(directory: &Path) -> usize {
    fs::read_dir(directory.join("contents")).unwrap().count()
}

#[test]
fn contents_are_found_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let id = id("a", "1", 5);
    {
        let cache = open(folder.path(), 100);
        let copy = copy(&cache, "key");
        assert_eq!(cache.link(&id, &copy.path().join("a")).unwrap(), ContentOrigin::Absent);
        add(&cache, &id, b"hello", &copy.path().join("a"));
        assert_eq!(fs::read(copy.path().join("a")).unwrap(), b"hello");
    }
    assert_eq!(
        fs::read_dir(folder.path().join("sessions")).unwrap().count(),
        0,
        "a session ends without a rest"
    );
    let cache = open(folder.path(), 100);
    let copy = copy(&cache, "key");
    assert_eq!(cache.link(&id, &copy.path().join("b")).unwrap(), ContentOrigin::Found);
    assert_eq!(fs::read(copy.path().join("b")).unwrap(), b"hello");
}

#[test]
fn another_etag_url_or_size_is_another_content() {
    let one = id("a", "1", 5);
    assert_ne!(one.as_str(), id("a", "2", 5).as_str());
    assert_ne!(one.as_str(), id("b", "1", 5).as_str());
    assert_ne!(one.as_str(), id("a", "1", 6).as_str());
    assert_eq!(one.as_str(), id("a", "1", 5).as_str());
}

#[test]
fn what_a_killed_process_has_left_is_removed_and_hinders_nobody() {
    let folder = tempfile::tempdir().unwrap();
    // A killed process leaves its files, and the system releases its lock.
    let sessions = folder.path().join("sessions");
    fs::create_dir_all(sessions.join("7-1/3/model/1")).unwrap();
    fs::write(sessions.join("7-1/0"), "half a con").unwrap();
    fs::write(sessions.join("7-1.lock"), "").unwrap();
    fs::create_dir_all(sessions.join("8-1")).unwrap();
    fs::write(sessions.join("9-1.lock"), "").unwrap();
    let cache = open(folder.path(), 100);
    let left: Vec<_> = fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&cache.session) && left.contains(&cache.session_lock), "{left:?}");
}

#[test]
fn a_process_that_lives_keeps_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), 0);
    let (used, id) = (copy(&first, "key"), id("a", "1", 5));
    add(&first, &id, b"hello", &used.path().join("a"));
    // Locks belong to open files, so a second cache in this process stands for another process.
    let second = open(folder.path(), 0);
    assert_eq!(fs::read(used.path().join("a")).unwrap(), b"hello");
    let other = copy(&second, "key");
    assert_eq!(second.link(&id, &other.path().join("a")).unwrap(), ContentOrigin::Found);
}

#[test]
fn unused_contents_beyond_the_limit_are_removed_the_longest_unused_first() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [id("a", "1", 4), id("b", "1", 4), id("c", "1", 4)];
    {
        let cache = open(folder.path(), 100);
        let copy = copy(&cache, "key");
        for (index, id) in ids.iter().enumerate() {
            add(&cache, id, b"1234", &copy.path().join(index.to_string()));
        }
    }
    for (age, id) in [3, 1, 2].into_iter().zip(&ids) {
        let file = File::open(folder.path().join("contents").join(id.as_str())).unwrap();
        let accessed = UNIX_EPOCH + Duration::from_secs(MODIFIED - age);
        file.set_times(FileTimes::new().set_accessed(accessed)).unwrap();
    }
    let cache = open(folder.path(), 8);
    let copy = copy(&cache, "key");
    let found = |id| cache.link(id, &copy.path().join(ContentId::as_str(id))).unwrap();
    assert_eq!(found(&ids[0]), ContentOrigin::Absent);
    assert_eq!(found(&ids[1]), ContentOrigin::Found);
    assert_eq!(found(&ids[2]), ContentOrigin::Found);
}

#[test]
fn a_content_stays_as_long_as_a_copy_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 0);
    let used = copy(&cache, "key");
    add(&cache, &id("a", "1", 5), b"hello", &used.path().join("a"));
    cache.remove_unused();
    assert_eq!(contents(folder.path()), 1);
    drop(used);
    assert_eq!(contents(folder.path()), 0);
}

#[test]
fn a_content_that_a_program_has_changed_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100);
    let (used, id) = (copy(&cache, "key"), id("a", "1", 5));
    add(&cache, &id, b"hello", &used.path().join("a"));
    // Whoever replaces the bytes changes the time of the file, even if the size is the same.
    let content = folder.path().join("contents").join(id.as_str());
    fs::remove_file(&content).unwrap();
    fs::write(&content, "HELLO").unwrap();
    assert_eq!(cache.link(&id, &used.path().join("b")).unwrap(), ContentOrigin::Absent);
    assert!(!content.exists());
}

#[test]
fn a_file_of_another_size_does_not_become_a_content() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100);
    let used = copy(&cache, "key");
    let (temporary, file) = cache.make_file().unwrap();
    let error = cache.add(&id("a", "1", 5), &file, &temporary, &used.path().join("a")).unwrap_err();
    assert!(error.message.contains("5 bytes was written as 0 bytes"), "{error}");
    assert_eq!(contents(folder.path()), 0);
}

#[test]
fn a_copy_is_shared_until_the_last_holder_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 0);
    let copies = LocalCopies::new(cache);
    let first = copies.make("model", "key".into()).unwrap();
    first.share();
    let path = first.path().to_owned();
    let second = copies.existing("key").unwrap();
    assert!(copies.existing("other").is_none());
    drop(first);
    assert!(path.is_dir() && second.path() == path);
    drop(second);
    assert!(!path.exists() && copies.existing("key").is_none());
    assert!(copies.has_no_shared());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let options = CacheOptions { directory: file.clone(), max_unused_bytes: 0 };
    let error = LocalCache::open(options).err().unwrap();
    assert!(error.message.contains(&format!("cannot make '{}", file.display())), "{error}");
}

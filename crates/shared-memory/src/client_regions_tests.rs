//! Regions of real shared memory objects, whose clients misbehave.
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use vocabulary::{ErrorCode, TensorData, TensorMemory};

use super::*;

const PAGE: u64 = 4096;

/// A shared memory object of a client. It is unlinked when the test ends.
struct Object {
    key: String,
    file: File,
}

impl Object {
    fn new(byte_size: u64) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let key = format!("nereid_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = Self::path(&key);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(byte_size).unwrap();
        Self { key, file }
    }

    fn path(key: &str) -> PathBuf {
        PathBuf::from("/dev/shm").join(key)
    }

    fn with(bytes: &[u8]) -> Self {
        let object = Self::new(bytes.len() as u64);
        object.file.write_all_at(bytes, 0).unwrap();
        object
    }

    fn bytes(&self, offset: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    fn region(&self, name: &str, offset: u64, byte_size: u64) -> SystemRegistration {
        SystemRegistration { name: name.into(), key: format!("/{}", self.key), offset, byte_size }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(Self::path(&self.key));
    }
}

fn regions() -> ClientRegions {
    ClientRegions::allowed(SharedMemoryOptions::default())
}

fn text(result: Result<(), Error>) -> String {
    result.unwrap_err().with_code()
}

const SMALLER: &str = "can not be used: the shared memory object is smaller than when it was registered";

#[test]
fn tensors_are_read_from_the_object_and_written_to_it() {
    let object = Object::with(&(0..=255).collect::<Vec<u8>>());
    let regions = regions();
    regions.register_system(&object.region("r", 0, 256)).unwrap();
    let input = TensorMemory::from(regions.memory("r", 4, 3).unwrap());
    assert_eq!(input.host("IN").unwrap().contiguous()[..], [4, 5, 6]);
    let output = regions.memory("r", 100, 4).unwrap();
    assert_eq!(output.write(&TensorData::from(vec![1, 2, 3])), Ok(true));
    assert_eq!(object.bytes(99, 5), [99, 1, 2, 3, 103]);
    object.file.write_all_at(&[77], 5).unwrap();
    assert_eq!(input.host("IN").unwrap().contiguous()[..], [4, 77, 6]);
}

#[test]
fn a_region_may_begin_at_a_page_of_its_object() {
    let mut bytes = vec![0; 2 * PAGE as usize];
    bytes[PAGE as usize + 1] = 9;
    let object = Object::with(&bytes);
    let regions = regions();
    regions.register_system(&object.region("r", PAGE, 10)).unwrap();
    assert_eq!(regions.memory("r", 1, 1).unwrap().read().unwrap(), [9]);
    let refused = regions.register_system(&object.region("x", 16, 10));
    assert_eq!(
        text(refused),
        "Invalid argument: failed to register shared memory region 'x': unable to process address spaceInvalid argument"
    );
}

#[test]
fn a_region_must_lie_within_its_object() {
    let object = Object::new(256);
    let regions = regions();
    let invalid = "Invalid argument: failed to register shared memory region 'r': invalid args";
    for (offset, byte_size) in [(0, 257), (200, 57), (PAGE, 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(text(regions.register_system(&object.region("r", offset, byte_size))), invalid);
    }
    assert_eq!(
        text(regions.register_system(&object.region("r", 0, 0))),
        "Invalid argument: failed to register shared memory region 'r': unable to process address spaceInvalid argument"
    );
    assert_eq!(regions.status(RegionKind::System, ""), Ok(vec![]));
}

#[test]
fn only_objects_of_shared_memory_can_be_registered() {
    let regions = regions();
    let open = |key: &str| {
        let registration = SystemRegistration { name: "r".into(), key: key.into(), offset: 0, byte_size: 1 };
        text(regions.register_system(&registration))
    };
    for key in ["/nereid_no_such_object", "/../etc/passwd", "..", ".", "a/b", "/etc/passwd", "a\0b"] {
        assert_eq!(open(key), format!("Internal: Unable to open shared memory region: '{key}'"));
    }
    let link = Object::path(&format!("nereid_test_link_{}", std::process::id()));
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    let key = link.file_name().unwrap().to_str().unwrap().to_owned();
    let refused = open(&key);
    std::fs::remove_file(link).unwrap();
    assert_eq!(refused, format!("Internal: Unable to open shared memory region: '{key}'"));
}

#[test]
fn a_pipe_is_no_region() {
    let key = format!("nereid_test_pipe_{}", std::process::id());
    let path = Object::path(&key);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let registration = SystemRegistration { name: "r".into(), key: key.clone(), offset: 0, byte_size: 1 };
    let refused = regions().register_system(&registration);
    std::fs::remove_file(path).unwrap();
    assert_eq!(text(refused), format!("Internal: Invalid shared memory region: '{key}'"));
}

#[test]
fn the_name_is_checked_before_the_object() {
    let object = Object::new(64);
    let regions = regions();
    regions.register_system(&object.region("r", 0, 64)).unwrap();
    let missing = SystemRegistration { name: "r".into(), key: "/missing".into(), offset: 0, byte_size: 1 };
    let taken = "Already exists: shared memory region 'r' already in manager";
    assert_eq!(text(regions.register_system(&missing)), taken);
    assert_eq!(text(regions.register_system(&object.region("r", 0, 64))), taken);
    regions.register_system(&object.region("same object", 0, 64)).unwrap();
}

#[test]
fn the_status_repeats_what_was_registered() {
    let object = Object::new(2 * PAGE);
    let regions = regions();
    regions.register_system(&object.region("r", PAGE, 64)).unwrap();
    let origin = RegionOrigin::System { key: format!("/{}", object.key), offset: PAGE };
    let status = RegionStatus { name: "r".into(), origin, byte_size: 64 };
    assert_eq!(regions.status(RegionKind::System, ""), Ok(vec![status]));
    assert_eq!(regions.status(RegionKind::Cuda, ""), Ok(vec![]));
}

#[test]
fn regions_can_be_switched_off() {
    let regions = ClientRegions::default();
    let off = "Unsupported: Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
    let object = Object::new(64);
    assert_eq!(text(regions.check_allowed()), off);
    assert_eq!(text(regions.register_system(&object.region("", 0, 64))), off);
    assert_eq!(text(regions.unregister(RegionKind::System, "")), off);
    assert_eq!(regions.status(RegionKind::System, ""), Ok(vec![]));
    let unknown = "Not found: Unable to find system shared memory region: 'r'";
    assert_eq!(text(regions.status(RegionKind::System, "r").map(drop)), unknown);
    let unknown = "Not found: Unable to find shared memory region: 'r'";
    assert_eq!(text(regions.memory("r", 0, 1).map(drop)), unknown);
}

#[test]
fn no_graphics_processor_is_supported() {
    let registration =
        CudaRegistration { name: "c".into(), raw_handle: vec![0; 64], device_id: 0, byte_size: 64 };
    let expected = "Invalid argument: failed to register CUDA shared memory region: 'c', GPUs not supported";
    assert_eq!(text(regions().register_cuda(&registration)), expected);
}

#[test]
fn a_request_keeps_its_region_when_it_is_unregistered_and_its_object_unlinked() {
    let object = Object::with(b"tensor");
    let regions = regions();
    regions.register_system(&object.region("r", 0, 6)).unwrap();
    let memory = regions.memory("r", 0, 6).unwrap();
    regions.unregister(RegionKind::System, "r").unwrap();
    assert_eq!(
        text(regions.memory("r", 0, 6).map(drop)),
        "Not found: Unable to find shared memory region: 'r'"
    );
    assert_eq!(regions.status(RegionKind::System, "").unwrap().len(), 1);
    drop(object);
    assert_eq!(memory.read().unwrap(), b"tensor");
    drop(memory);
    assert_eq!(regions.status(RegionKind::System, ""), Ok(vec![]));
}

#[test]
fn an_object_that_has_become_smaller_is_an_error_and_may_grow_again() {
    let object = Object::with(&[7; 2 * PAGE as usize]);
    let regions = regions();
    regions.register_system(&object.region("r", 0, 2 * PAGE)).unwrap();
    let memory = regions.memory("r", 0, 10).unwrap();
    let expected = format!("Invalid argument: shared memory region 'r' with key '/{}' {SMALLER}", object.key);
    for smaller in [0, 1, PAGE, 2 * PAGE - 1] {
        object.file.set_len(smaller).unwrap();
        assert_eq!(text(memory.read().map(drop)), expected);
        assert_eq!(text(memory.write(&vec![1].into()).map(drop)), expected);
        assert_eq!(text(memory.check()), expected);
    }
    object.file.set_len(2 * PAGE).unwrap();
    object.file.write_all_at(&[8; 10], 0).unwrap();
    assert_eq!(memory.read().unwrap(), [8; 10]);
}

#[test]
fn an_object_that_becomes_smaller_during_an_access_does_not_end_the_process() {
    let bytes = 64 * PAGE;
    let object = Object::with(&vec![7; bytes as usize]);
    let regions = regions();
    let ended = AtomicBool::new(false);
    let (mut read, mut smaller, mut lost) = (0, 0, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !ended.load(Relaxed) {
                object.file.set_len(0).unwrap();
                object.file.set_len(bytes).unwrap();
            }
        });
        // Each kind of answer comes in the end: the object is smaller for about half of the time.
        while read == 0 || smaller == 0 || lost == 0 {
            if regions.register_system(&object.region("r", 0, bytes)).is_err() {
                continue;
            }
            for turn in 0..100 {
                let memory = regions.memory("r", 0, bytes).unwrap();
                let result = if turn % 2 == 0 {
                    memory.read().map(drop)
                } else {
                    memory.write(&vec![1; bytes as usize].into()).map(drop)
                };
                match result {
                    Ok(()) => read += 1,
                    Err(error) if error.message.contains("is smaller") => smaller += 1,
                    Err(error) if error.message.contains("a part of its memory was missing") => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            regions.unregister(RegionKind::System, "r").unwrap();
        }
        ended.store(true, Relaxed);
    });
}

/// A region with a fault, and its object, which is as long as before.
fn faulty(regions: &ClientRegions) -> Object {
    let object = Object::with(&[7; PAGE as usize]);
    let registration = object.region("r", 0, PAGE);
    regions.register_system(&registration).unwrap();
    let memory = regions.memory("r", 0, 1).unwrap();
    object.file.set_len(0).unwrap();
    // As a library does, which knows only the address.
    // SAFETY: the address of a mapped region. The byte is not there, which the handler of the fault survives.
    assert_eq!(unsafe { memory.address().read_volatile() }, 0);
    object.file.set_len(PAGE).unwrap();
    object
}

#[test]
fn a_region_with_a_fault_is_lost_until_it_is_registered_again() {
    let regions = regions();
    let object = faulty(&regions);
    let memory = regions.memory("r", 0, 4).unwrap();
    let expected = format!(
        "Invalid argument: shared memory region 'r' with key '/{}' can not be used any more: a part of its memory was missing. \
         Unregister the region and register it again",
        object.key
    );
    assert_eq!(text(memory.read().map(drop)), expected);
    assert_eq!(text(memory.write(&vec![1].into()).map(drop)), expected);
    assert_eq!(text(memory.check()), expected);
    // Neither the object nor another region of it has the fault.
    regions.register_system(&object.region("other", 0, PAGE)).unwrap();
    assert_eq!(regions.memory("other", 0, 4).unwrap().write(&vec![1; 4].into()), Ok(true));
    assert_eq!(object.bytes(0, 4), [1; 4]);
    drop(memory);
    regions.unregister(RegionKind::System, "r").unwrap();
    regions.register_system(&object.region("r", 0, PAGE)).unwrap();
    assert_eq!(regions.memory("r", 0, 4).unwrap().read().unwrap(), [1; 4]);
}

#[test]
fn libraries_get_the_address_only_if_the_operator_allows_it() {
    let object = Object::with(&[7; 8]);
    for in_place in [false, true] {
        let options = SharedMemoryOptions { in_place, ..SharedMemoryOptions::default() };
        let regions = ClientRegions::allowed(options);
        regions.register_system(&object.region("r", 0, 8)).unwrap();
        assert_eq!(regions.memory("r", 0, 8).unwrap().may_be_used_in_place(), in_place);
    }
}

#[test]
fn two_clients_cannot_register_the_same_name_at_once() {
    let object = Object::new(64);
    let regions = regions();
    let successes = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| match regions.register_system(&object.region("r", 0, 64)) {
                Ok(()) => drop(successes.fetch_add(1, Relaxed)),
                Err(error) => assert_eq!(error.code, ErrorCode::AlreadyExists),
            });
        }
    });
    assert_eq!(successes.into_inner(), 1);
}

#[test]
fn a_region_that_cannot_be_registered_leaves_nothing_open() {
    let object = Object::new(64);
    let regions = regions();
    let target = Object::path(&object.key);
    let opened = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|path| path == target)).count()
    };
    let before = opened();
    for offset in [0, 16] {
        let _ = regions.register_system(&object.region("r", offset, 65));
        let _ = regions.register_system(&object.region("r", offset + 1, 1));
    }
    assert_eq!(opened(), before);
    regions.register_system(&object.region("r", 0, 64)).unwrap();
    assert_eq!(opened(), before + 1);
    regions.unregister(RegionKind::System, "").unwrap();
    assert_eq!(opened(), before);
}

/// Tells the test's program that it is the process of one test.
const OWN_PROCESS: &str = "NEREID_TEST_OWN_PROCESS";

/// Runs this part of a test in a process of its own, in which the test comes here again. Returns the output of that process.
fn in_own_process(test: &str, part: impl FnOnce()) -> std::process::Output {
    if std::env::var_os(OWN_PROCESS).is_some() {
        part();
        std::process::exit(0);
    }
    let name = format!("client_regions::tests::{test}");
    Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(OWN_PROCESS, "")
        .output()
        .unwrap()
}

fn cause_a_fault_elsewhere() {
    let regions = regions();
    drop(faulty(&regions));
    let own = Object::new(PAGE);
    // A mapping that nobody watches.
    // SAFETY: the system chooses the address.
    let start = unsafe {
        use std::os::fd::AsFd;
        let access = rustix::mm::ProtFlags::READ;
        let shared = rustix::mm::MapFlags::SHARED;
        rustix::mm::mmap(std::ptr::null_mut(), PAGE as usize, access, shared, own.file.as_fd(), 0).unwrap()
    };
    own.file.set_len(0).unwrap();
    drop(own);
    println!("before the fault");
    // SAFETY: ends the process, which is what the test is about.
    unsafe { start.cast::<u8>().read_volatile() };
    println!("after the fault");
}

#[test]
fn a_fault_outside_of_regions_ends_the_process_as_before() {
    use std::os::unix::process::ExitStatusExt;
    let output =
        in_own_process("a_fault_outside_of_regions_ends_the_process_as_before", cause_a_fault_elsewhere);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("before the fault") && !printed.contains("after the fault"), "{printed}");
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}

fn take_the_signal() {
    let regions = regions();
    drop(faulty(&regions));
    regions.unregister(RegionKind::System, "").unwrap();
    // SAFETY: no handler at all.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let object = Object::with(&[7; PAGE as usize]);
    // The access in between installs the handler again.
    regions.register_system(&object.region("r", 0, PAGE)).unwrap();
    let memory = regions.memory("r", 0, 4).unwrap();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    memory.read().unwrap();
    object.file.set_len(0).unwrap();
    // SAFETY: as in `faulty`.
    assert_eq!(unsafe { memory.address().read_volatile() }, 0);
    println!("survived");
}

#[test]
fn a_library_that_takes_the_signal_loses_it_at_the_next_access() {
    let output =
        in_own_process("a_library_that_takes_the_signal_loses_it_at_the_next_access", take_the_signal);
    assert!(String::from_utf8_lossy(&output.stdout).contains("survived"), "{output:?}");
}

#[test]
fn many_regions_can_be_registered_and_unregistered() {
    let object = Object::with(&[7; 64]);
    let limits = RegionLimits { regions: 300, bytes: 1 << 20 };
    let regions = ClientRegions::allowed(SharedMemoryOptions { limits, in_place: false });
    for _ in 0..3 {
        for number in 0..300 {
            regions.register_system(&object.region(&number.to_string(), 0, 64)).unwrap();
        }
        let refused = regions.register_system(&object.region("more", 0, 64)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ResourceExhausted);
        assert_eq!(regions.memory("299", 0, 4).unwrap().read().unwrap(), [7; 4]);
        regions.unregister(RegionKind::System, "").unwrap();
    }
}

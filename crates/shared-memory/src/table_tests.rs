//! The rules of the table, without any memory.
use proptest::prelude::*;
use vocabulary::ErrorCode;

use super::*;

const LIMITS: RegionLimits = RegionLimits { regions: 4, bytes: 1000 };

fn table() -> RegionTable<u32> {
    RegionTable::new(LIMITS)
}

fn system(name: &str, byte_size: u64) -> RegionStatus {
    let origin = RegionOrigin::System { key: format!("/{name}"), offset: 0 };
    RegionStatus { name: name.into(), origin, byte_size }
}

fn cuda(name: &str, byte_size: u64) -> RegionStatus {
    RegionStatus { name: name.into(), origin: RegionOrigin::Cuda { device_id: 0 }, byte_size }
}

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().with_code()
}

fn names(table: &mut RegionTable<u32>, kind: RegionKind) -> Vec<String> {
    table.status(kind, "").unwrap().into_iter().map(|status| status.name).collect()
}

#[test]
fn a_registered_region_is_found_and_shown() {
    let mut table = table();
    let status = RegionStatus {
        name: "r".into(),
        origin: RegionOrigin::System { key: "/k".into(), offset: 4096 },
        byte_size: 10,
    };
    table.insert(status.clone(), Arc::new(7)).unwrap();
    assert_eq!(*table.find("r").unwrap(), 7);
    assert_eq!(table.status(RegionKind::System, "r").unwrap(), [status]);
}

#[test]
fn an_unknown_region_is_not_found() {
    let mut table = table();
    assert_eq!(text(table.find("x")), "Not found: Unable to find shared memory region: 'x'");
    assert_eq!(
        text(table.status(RegionKind::System, "x")),
        "Not found: Unable to find system shared memory region: 'x'"
    );
    assert_eq!(
        text(table.status(RegionKind::Cuda, "x")),
        "Not found: Unable to find cuda shared memory region: 'x'"
    );
    assert!(table.unregister(RegionKind::System, "x").is_empty());
}

#[test]
fn a_name_is_taken_by_a_region_of_either_kind() {
    let mut table = table();
    table.insert(cuda("r", 1), Arc::new(1)).unwrap();
    let taken = "Already exists: shared memory region 'r' already in manager";
    assert_eq!(text(table.check_name("r")), taken);
    assert_eq!(text(table.insert(system("r", 1), Arc::new(2))), taken);
    assert_eq!(*table.find("r").unwrap(), 1);
}

#[test]
fn a_region_of_the_other_kind_is_named_as_such() {
    let mut table = table();
    table.insert(cuda("c", 1), Arc::new(1)).unwrap();
    table.insert(system("s", 1), Arc::new(2)).unwrap();
    assert_eq!(
        text(table.status(RegionKind::System, "c")),
        "Not found: The region named 'c' is registered as CUDA shared memory, not system shared memory"
    );
    assert_eq!(
        text(table.status(RegionKind::Cuda, "s")),
        "Not found: The region named 's' is registered as system shared memory, not CUDA shared memory"
    );
    assert!(table.unregister(RegionKind::System, "c").is_empty());
    assert!(table.find("c").is_ok());
}

#[test]
fn the_status_is_in_the_order_of_names_and_of_one_kind() {
    let mut table = table();
    for name in ["b", "a", "c"] {
        table.insert(system(name, 1), Arc::new(0)).unwrap();
    }
    table.insert(cuda("aa", 1), Arc::new(0)).unwrap();
    assert_eq!(names(&mut table, RegionKind::System), ["a", "b", "c"]);
    assert_eq!(names(&mut table, RegionKind::Cuda), ["aa"]);
}

#[test]
fn an_unused_region_is_gone_at_once() {
    let mut table = table();
    let region = Arc::new(1);
    let observer = Arc::downgrade(&region);
    table.insert(system("r", 1), region).unwrap();
    assert_eq!(table.unregister(RegionKind::System, "r").len(), 1);
    assert_eq!(observer.strong_count(), 0);
    assert_eq!(names(&mut table, RegionKind::System), [""; 0]);
    table.insert(system("r", 1), Arc::new(2)).unwrap();
}

#[test]
fn a_region_in_use_stays_visible_but_takes_no_new_request() {
    let mut table = table();
    table.insert(system("r", 1), Arc::new(1)).unwrap();
    let used = table.find("r").unwrap();
    drop(table.unregister(RegionKind::System, "r"));
    assert_eq!(names(&mut table, RegionKind::System), ["r"]);
    assert_eq!(text(table.find("r")), "Not found: Unable to find shared memory region: 'r'");
    assert_eq!(text(table.check_name("r")), "Already exists: shared memory region 'r' already in manager");
    // Once more: that changes nothing.
    assert!(table.unregister(RegionKind::System, "r").is_empty());
    drop(used);
    assert_eq!(names(&mut table, RegionKind::System), [""; 0]);
    table.insert(system("r", 1), Arc::new(2)).unwrap();
    assert_eq!(*table.find("r").unwrap(), 2);
}

#[test]
fn all_regions_of_a_kind_are_unregistered_together() {
    let mut table = table();
    table.insert(system("a", 1), Arc::new(0)).unwrap();
    table.insert(system("b", 1), Arc::new(0)).unwrap();
    table.insert(cuda("c", 1), Arc::new(0)).unwrap();
    assert_eq!(table.unregister(RegionKind::System, "").len(), 2);
    assert_eq!(names(&mut table, RegionKind::System), [""; 0]);
    assert_eq!(names(&mut table, RegionKind::Cuda), ["c"]);
}

#[test]
fn the_number_of_regions_has_a_limit_that_regions_in_use_count_towards() {
    let mut table = table();
    for name in ["a", "b", "c", "d"] {
        table.insert(system(name, 1), Arc::new(0)).unwrap();
    }
    let full = "Resource exhausted: failed to register shared memory region 'e': there are 4 regions, and more are not \
                allowed (--max-client-shm-regions)";
    assert_eq!(text(table.check_name("e")), full);
    let used = table.find("a").unwrap();
    drop(table.unregister(RegionKind::System, "a"));
    assert_eq!(text(table.check_name("e")), full);
    drop(used);
    assert_eq!(table.check_name("e"), Ok(()));
}

#[test]
fn the_bytes_of_all_regions_have_a_limit() {
    let mut table = table();
    table.insert(system("a", 600), Arc::new(0)).unwrap();
    for byte_size in [401, u64::MAX] {
        let refused = table.insert(system("b", byte_size), Arc::new(0)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ResourceExhausted);
        let expected = format!("{byte_size} more bytes are not allowed, because 600 of 1000 are registered");
        assert!(refused.message.contains(&expected), "{refused}");
    }
    table.insert(system("b", 400), Arc::new(0)).unwrap();
    drop(table.unregister(RegionKind::System, ""));
    table.insert(system("b", 1000), Arc::new(0)).unwrap();
}

#[test]
fn a_tensor_lies_within_its_region() {
    let range = |offset, byte_size| check_range("r", 256, offset, byte_size).map_err(|error| error.message);
    let invalid_offset = "Invalid offset for shared memory region: 'r'";
    assert_eq!(range(0, 256), Ok((0, 256)));
    assert_eq!(range(255, 1), Ok((255, 1)));
    assert_eq!(range(255, 0), Ok((255, 0)));
    assert_eq!(range(256, 0).unwrap_err(), invalid_offset);
    assert_eq!(range(u64::MAX, 2).unwrap_err(), invalid_offset);
    let beyond = "Invalid offset + byte size for shared memory region: 'r'";
    assert_eq!(range(0, 257).unwrap_err(), beyond);
    assert_eq!(range(1, u64::MAX - 1).unwrap_err(), beyond);
    let overflow = "Integer overflow detected: byte_size (18446744073709551615) + offset (4) exceeds maximum value \
                    (18446744073709551615) for region 'r'";
    assert_eq!(range(4, u64::MAX).unwrap_err(), overflow);
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(u8, u64),
    Find(u8),
    Unregister(u8),
    End(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..5_u8, 0..500_u64).prop_map(|(name, size)| Operation::Insert(name, size)),
        (0..5_u8).prop_map(Operation::Find),
        (0..5_u8).prop_map(Operation::Unregister),
        (0..8_usize).prop_map(Operation::End),
    ]
}

proptest! {
    /// Whatever clients do: the limits hold, a found region is the one registered last, and a name is free exactly when
    /// neither the table nor a request owns its region.
    #[test]
    fn the_table_keeps_its_rules(operations in prop::collection::vec(operation(), 0..60)) {
        let mut table = table();
        let mut registered: BTreeMap<String, (Arc<u32>, u64)> = BTreeMap::new();
        let mut removed: Vec<(String, Weak<u32>, u64)> = Vec::new();
        let mut requests: Vec<Arc<u32>> = Vec::new();
        for (number, operation) in operations.into_iter().enumerate() {
            removed.retain(|(_, observer, _)| observer.strong_count() > 0);
            match operation {
                Operation::Insert(name, size) => {
                    let name = name.to_string();
                    let taken = registered.contains_key(&name) || removed.iter().any(|(own, ..)| *own == name);
                    let count = registered.len() + removed.len();
                    let bytes: u64 = registered.values().map(|(_, size)| size).sum::<u64>()
                        + removed.iter().map(|(.., size)| size).sum::<u64>();
                    let fits = count < LIMITS.regions && bytes + size <= LIMITS.bytes;
                    let region = Arc::new(u32::try_from(number).unwrap());
                    let inserted = table.insert(system(&name, size), region.clone());
                    prop_assert_eq!(inserted.is_ok(), !taken && fits);
                    if inserted.is_ok() {
                        registered.insert(name, (region, size));
                    }
                }
                Operation::Find(name) => {
                    let found = table.find(&name.to_string()).ok();
                    prop_assert_eq!(found.as_deref(), registered.get(&name.to_string()).map(|(own, _)| &**own));
                    requests.extend(found);
                }
                Operation::Unregister(name) => {
                    drop(table.unregister(RegionKind::System, &name.to_string()));
                    if let Some((region, size)) = registered.remove(&name.to_string()) {
                        removed.push((name.to_string(), Arc::downgrade(&region), size));
                    }
                }
                Operation::End(index) if index < requests.len() => drop(requests.swap_remove(index)),
                Operation::End(_) => {}
            }
        }
    }
}

//! Which entries of a cache stay when room is short. Pure: no lock, no clock, no memory accounting but numbers.
//!
//! The rule is S3-FIFO. A new entry comes into a small queue. Most entries are never asked for again: they leave it at its
//! end. An entry that has been asked for moves to the main queue, where it gets another round for each time that it was
//! asked for. The names of entries that left the small queue are remembered for a while: if one of them comes again, it
//! goes to the main queue at once. So a stream of requests that never repeat cannot displace those that do.
use hashbrown::HashTable;

/// Entries that are found by a hash and a key.
pub(super) struct Shard<V> {
    index: HashTable<u32>,
    slots: Vec<Option<Slot<V>>>,
    free: Vec<u32>,
    small: EntryQueue,
    main: EntryQueue,
    ghosts: Ghosts,
}

struct Slot<V> {
    key: Box<str>,
    hash: u64,
    value: V,
    weight: usize,
    /// How often the entry was asked for, at most [`MOST_USES`], less one for each round in the main queue.
    uses: u8,
    in_main: bool,
    before: u32,
    after: u32,
}

/// Bytes of an entry's bookkeeping: its slot, and its places in the index and among the ghosts.
pub(super) const fn bookkeeping<V>() -> usize {
    size_of::<Option<Slot<V>>>() + INDEX_BYTES + GHOST_BYTES
}

/// An index that is between half and whole full has so many bytes for each entry, on average.
const INDEX_BYTES: usize = 8;
/// The same for ghosts.
const GHOST_BYTES: usize = 12;

/// More uses than these do not count.
const MOST_USES: u8 = 3;
/// The share of the small queue: one of so many bytes.
const SMALL_SHARE: usize = 10;
/// An eviction looks at so many entries at most. Without a bound, the first eviction after many hits would visit all.
const MOST_LOOKS: u32 = 64;

/// No slot.
const NONE: u32 = u32::MAX;

/// A list through the slots, oldest first.
struct EntryQueue {
    first: u32,
    last: u32,
    bytes: usize,
}

impl Default for EntryQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE, bytes: 0 }
    }
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            small: EntryQueue::default(),
            main: EntryQueue::default(),
            ghosts: Ghosts::default(),
        }
    }
}

impl<V> Shard<V> {
    /// The value of a key. Counts as a use.
    pub(super) fn get(&mut self, hash: u64, key: &str) -> Option<&V> {
        let place = self.find(hash, key)?;
        let slot = self.slots[place as usize].as_mut()?;
        slot.uses = (slot.uses + 1).min(MOST_USES);
        Some(&slot.value)
    }

    /// Whether there is a value. Does not count as a use.
    pub(super) fn has(&self, hash: u64, key: &str) -> bool {
        self.find(hash, key).is_some()
    }

    /// Adds an entry with a key that the shard does not have.
    pub(super) fn insert(&mut self, hash: u64, key: &str, value: V, weight: usize) {
        debug_assert!(!self.has(hash, key), "a key has one entry");
        let in_main = self.ghosts.take(hash);
        let slot = Slot { key: key.into(), hash, value, weight, uses: 0, in_main, before: NONE, after: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                u32::try_from(self.slots.len() - 1).expect("fewer entries than bytes of memory")
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, place, |&place| hash_at(slots, place));
        self.push(place);
    }

    /// Removes the entry of a key. Returns its value and weight.
    pub(super) fn remove(&mut self, hash: u64, key: &str) -> Option<(V, usize)> {
        let place = self.find(hash, key)?;
        self.remove_at(place)
    }

    /// Removes all entries whose keys begin with `prefix`. Returns how many there were, and their weight.
    pub(super) fn remove_all(&mut self, prefix: &str) -> (u64, usize) {
        let begins = |slot: &Option<Slot<V>>| slot.as_ref().is_some_and(|slot| slot.key.starts_with(prefix));
        let places = self.slots.iter().zip(0..).filter(|(slot, _)| begins(slot)).map(|(_, place)| place);
        let places: Vec<u32> = places.collect();
        let removed = places.into_iter().filter_map(|place| self.remove_at(place));
        removed.fold((0, 0), |(entries, bytes), (_, weight)| (entries + 1, bytes + weight))
    }

    /// Removes the entry that is worth least. Returns its value and weight, or `None` if there is no entry.
    pub(super) fn evict(&mut self) -> Option<(V, usize)> {
        for look in 0.. {
            let from_small = self.main.first == NONE
                || (self.small.first != NONE
                    && self.small.bytes * SMALL_SHARE >= self.small.bytes + self.main.bytes);
            let place = if from_small { self.small.first } else { self.main.first };
            let slot = self.slots.get_mut(place as usize)?.as_mut()?;
            let stays = slot.uses > 0 && look < MOST_LOOKS;
            if !stays {
                if from_small {
                    let hash = slot.hash;
                    self.ghosts.add(hash, self.index.len());
                }
                return self.remove_at(place);
            }
            self.unlink(place);
            let slot = self.slots[place as usize].as_mut()?;
            slot.uses = if from_small { 0 } else { slot.uses - 1 };
            slot.in_main = true;
            self.push(place);
        }
        None
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn find(&self, hash: u64, key: &str) -> Option<u32> {
        let is_it = |&place: &u32| {
            self.slots[place as usize].as_ref().is_some_and(|slot| slot.hash == hash && &*slot.key == key)
        };
        self.index.find(hash, is_it).copied()
    }

    fn remove_at(&mut self, place: u32) -> Option<(V, usize)> {
        self.unlink(place);
        let slot = self.slots[place as usize].take()?;
        if let Ok(entry) = self.index.find_entry(slot.hash, |&other| other == place) {
            entry.remove();
        }
        self.free.push(place);
        Some((slot.value, slot.weight))
    }

    /// Appends a slot to its queue.
    fn push(&mut self, place: u32) {
        let Some(slot) = self.slots[place as usize].as_mut() else { return };
        let queue = if slot.in_main { &mut self.main } else { &mut self.small };
        queue.bytes += slot.weight;
        let last = std::mem::replace(&mut queue.last, place);
        (slot.before, slot.after) = (last, NONE);
        match self.slots.get_mut(last as usize).and_then(Option::as_mut) {
            Some(last) => last.after = place,
            None => queue.first = place,
        }
    }

    /// Takes a slot out of its queue.
    fn unlink(&mut self, place: u32) {
        let Some(slot) = self.slots[place as usize].as_ref() else { return };
        let (before, after, weight) = (slot.before, slot.after, slot.weight);
        let queue = if slot.in_main { &mut self.main } else { &mut self.small };
        queue.bytes -= weight;
        match self.slots.get_mut(before as usize).and_then(Option::as_mut) {
            Some(before) => before.after = after,
            None => queue.first = after,
        }
        match self.slots.get_mut(after as usize).and_then(Option::as_mut) {
            Some(after) => after.before = before,
            None => queue.last = before,
        }
    }
}

fn hash_at<V>(slots: &[Option<Slot<V>>], place: u32) -> u64 {
    slots[place as usize].as_ref().map_or(0, |slot| slot.hash)
}

/// The hashes of entries that have left the small queue. There is a place for each entry of the shard. A newer hash
/// takes the place of an older one.
#[derive(Default)]
struct Ghosts(Vec<u64>);

impl Ghosts {
    /// Remembers a hash; the shard has so many entries.
    fn add(&mut self, hash: u64, entries: usize) {
        if entries > self.0.len() {
            let old = std::mem::replace(&mut self.0, vec![0; entries.next_power_of_two()]);
            old.into_iter().filter(|&hash| hash != 0).for_each(|hash| self.put(hash));
        }
        self.put(hash);
    }

    /// Whether the hash was remembered. Forgets it.
    fn take(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        let remembered = hash != 0 && self.0.get(place) == Some(&hash);
        if remembered {
            self.0[place] = 0;
        }
        remembered
    }

    fn put(&mut self, hash: u64) {
        let place = self.place(hash);
        if let Some(ghost) = self.0.get_mut(place) {
            *ghost = hash;
        }
    }

    fn place(&self, hash: u64) -> usize {
        usize::try_from(hash).unwrap_or(usize::MAX) & self.0.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// A shard that holds entries up to a weight. The hash of a key is bad on purpose.
    struct Bounded {
        shard: Shard<u32>,
        bytes: usize,
        limit: usize,
    }

    impl Bounded {
        fn new(limit: usize) -> Self {
            Self { shard: Shard::default(), bytes: 0, limit }
        }

        /// Asks for a number. Inserts it if it is missing. Returns whether it was there.
        fn ask(&mut self, number: u32, weight: usize) -> bool {
            let (hash, key) = (u64::from(number % 512) + 1, number.to_string());
            if let Some(&value) = self.shard.get(hash, &key) {
                assert_eq!(value, number);
                return true;
            }
            while self.bytes + weight > self.limit {
                let (_, freed) = self.shard.evict().expect("an entry is smaller than the shard");
                self.bytes -= freed;
            }
            self.bytes += weight;
            self.shard.insert(hash, &key, number, weight);
            false
        }
    }

    #[test]
    fn entries_that_are_asked_for_survive_a_stream_of_others() {
        let mut shard = Bounded::new(100);
        for _ in 0..3 {
            (0..50).for_each(|number| _ = shard.ask(number, 1));
        }
        for other in 1000..11_000 {
            shard.ask(other, 1);
            shard.ask(other % 50, 1);
        }
        assert_eq!((0..50).filter(|&number| shard.ask(number, 1)).count(), 50);
    }

    #[test]
    fn an_entry_that_comes_back_soon_goes_to_the_main_queue() {
        let mut shard = Bounded::new(20);
        (0..20).for_each(|number| _ = shard.ask(number, 1));
        // The first one leaves the small queue, and comes again.
        shard.ask(20, 1);
        assert!(!shard.ask(0, 1));
        (100..200).for_each(|other| _ = shard.ask(other, 1));
        assert!(shard.ask(0, 1));
    }

    #[test]
    fn an_eviction_ends_although_all_entries_are_in_use() {
        let mut shard = Bounded::new(1000);
        for _ in 0..5 {
            (0..1000).for_each(|number| _ = shard.ask(number, 1));
        }
        assert!(shard.shard.evict().is_some());
        assert_eq!(shard.shard.len(), 999);
    }

    #[test]
    fn an_empty_shard_has_nothing_to_evict() {
        assert!(Shard::<()>::default().evict().is_none());
    }

    proptest! {
        /// Against a map of what was inserted and not yet evicted.
        #[test]
        fn a_shard_finds_exactly_what_it_holds(asked in vec((0_u32..600, 1_usize..40), 1..2000), limit in 40_usize..4000) {
            let mut shard = Shard::default();
            let mut held = BTreeMap::new();
            for (number, weight) in asked {
                let (hash, key) = (u64::from(number % 7) + 1, number.to_string());
                prop_assert_eq!(shard.has(hash, &key), held.contains_key(&number));
                prop_assert_eq!(shard.get(hash, &key).copied(), held.contains_key(&number).then_some(number));
                if held.contains_key(&number) {
                    continue;
                }
                while held.values().sum::<usize>() + weight > limit {
                    let (evicted, freed) = shard.evict().unwrap();
                    prop_assert_eq!(held.remove(&evicted), Some(freed));
                }
                shard.insert(hash, &key, number, weight);
                held.insert(number, weight);
                prop_assert_eq!(shard.len(), held.len());
                prop_assert_eq!(shard.small.bytes + shard.main.bytes, held.values().sum::<usize>());
            }
            while let Some((evicted, freed)) = shard.evict() {
                prop_assert_eq!(held.remove(&evicted), Some(freed));
            }
            prop_assert!(held.is_empty());
        }
    }
}

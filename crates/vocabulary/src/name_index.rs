//! Finds a name in a list in the same time among many as among few.
use std::{collections::HashMap, ops::Deref, sync::OnceLock};

use crate::Name;

/// Lists up to this length are searched as they are.
const FEW: usize = 16;

/// Where the names of one list are. It is made at the first search in a long list. A clone is made anew, so that it may
/// belong to a list that changes.
///
/// The list may change in two ways after a search: an item is replaced by one of the same name, or the length changes.
#[derive(Debug, Default)]
pub struct NameIndex(OnceLock<Box<Places>>);

#[derive(Debug)]
struct Places {
    by_name: HashMap<Name, usize>,
    length: usize,
}

impl Clone for NameIndex {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl NameIndex {
    /// The place of the first item with this name. `names` are those of the list, in its order.
    pub fn place<'a>(
        &self,
        name: &str,
        mut names: impl ExactSizeIterator<Item = &'a Name> + Clone,
    ) -> Option<usize> {
        if names.len() <= FEW {
            return names.position(|known| *known == *name);
        }
        let places = self.0.get_or_init(|| Box::new(Places::of(names.clone())));
        if places.length == names.len() {
            return places.by_name.get(name).copied();
        }
        names.position(|known| *known == *name)
    }
}

impl Places {
    fn of<'a>(names: impl ExactSizeIterator<Item = &'a Name>) -> Self {
        let length = names.len();
        let mut by_name = HashMap::with_capacity(length);
        for (place, name) in names.enumerate() {
            by_name.entry(name.clone()).or_insert(place);
        }
        Self { by_name, length }
    }
}

/// A list of names. Whether it has a name is found in the same time among many as among few.
#[derive(Debug, Clone, Default)]
pub struct NameList {
    names: Vec<Name>,
    index: NameIndex,
}

impl NameList {
    /// Whether the list has this name.
    pub fn has(&self, name: &str) -> bool {
        self.index.place(name, self.names.iter()).is_some()
    }

    /// Sorts the names, where they are.
    pub fn sort(&mut self) {
        self.names.sort_unstable();
        self.index = NameIndex::default();
    }
}

impl From<Vec<Name>> for NameList {
    fn from(names: Vec<Name>) -> Self {
        Self { names, index: NameIndex::default() }
    }
}

impl Deref for NameList {
    type Target = [Name];

    fn deref(&self) -> &[Name] {
        &self.names
    }
}

impl PartialEq for NameList {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Eq for NameList {}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(|number| Name::new(&format!("n{number}"))).collect()
    }

    #[test]
    fn names_are_found_where_a_search_finds_them() {
        for count in [0, 1, FEW, FEW + 1, 100] {
            let mut names = names(count);
            if count > 3 {
                names[3] = names[1].clone();
            }
            let index = NameIndex::default();
            for name in names.iter().chain([&Name::new("other"), &Name::new("")]) {
                let place = names.iter().position(|known| known == name);
                assert_eq!(index.place(name, names.iter()), place, "{count} {name}");
            }
        }
    }

    #[test]
    fn a_list_has_its_names() {
        for count in [2, 100] {
            let list = NameList::from(names(count));
            assert!(list.has("n1") && !list.has("other"));
            assert_eq!((list.len(), &list), (count, &names(count).into()));
            let mut sorted = NameList::from(names(count).into_iter().rev().collect::<Vec<_>>());
            assert!(sorted.has("n0"));
            sorted.sort();
            assert!(sorted.is_sorted() && sorted.has("n0") && sorted.len() == count);
        }
    }

    #[test]
    fn a_list_that_has_grown_or_shrunk_is_searched() {
        let (mut names, index) = (names(50), NameIndex::default());
        assert_eq!(index.place("n40", names.iter()), Some(40));
        names.push(Name::new("last"));
        assert_eq!(index.place("last", names.iter()), Some(50));
        names.drain(..20);
        assert_eq!(index.place("n40", names.iter()), Some(20));
        assert_eq!(index.clone().place("n10", names.iter()), None);
    }
}

//! Loads of ensembles hold their members: an unload of a member waits until the load has ended.
//!
//! What other loads of ensembles wait for crosses such an unload in the queue of the name. So no load waits for itself.
use std::collections::BTreeSet;

use vocabulary::Name;

use super::{DeferredAction, Lifecycle, circles::binds};
use crate::keys::ModelKey;

impl Lifecycle {
    /// From now on until it has ended, the load holds these members.
    pub(super) fn hold(&mut self, key: &ModelKey, members: BTreeSet<Name>) {
        if let Some(load) = self.models.get_mut(key).and_then(|model| model.load.as_mut()) {
            load.held.extend(members);
        }
    }

    /// Whether the load of an ensemble needs the models of a name as they are, itself or because of its members.
    pub(super) fn is_held(&self, name: &Name) -> bool {
        let loads = self.models.values().filter_map(|model| model.load.as_ref());
        let mut open: Vec<_> = loads.flat_map(|load| &load.held).collect();
        let mut seen = BTreeSet::new();
        while let Some(held) = open.pop() {
            if held == name {
                return true;
            }
            if seen.insert(held) {
                open.extend(self.named(held).flat_map(binds).flatten());
            }
        }
        false
    }

    /// A name with an unload that need not wait for loads of ensembles any more.
    pub(super) fn released(&mut self) -> Option<DeferredAction> {
        let name = self.held.iter().find(|name| !self.is_held(name))?.clone();
        self.held.remove(&name);
        Some(DeferredAction::Released { name })
    }
}

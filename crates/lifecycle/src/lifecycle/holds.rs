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

    /// The names whose models the loads of ensembles need as they are, themselves or because of their members.
    pub(super) fn held_members(&mut self) -> BTreeSet<Name> {
        let mut open: Vec<_> = self.models.held().into_iter().collect();
        let mut held = BTreeSet::new();
        while let Some(name) = open.pop() {
            if held.insert(name.clone()) {
                let models = self.models.named(&name);
                open.extend(models.flat_map(|(_, model)| binds(model)).flatten().cloned());
            }
        }
        held
    }

    /// A name with an unload that need not wait for loads of ensembles any more.
    pub(super) fn released(&mut self) -> Option<DeferredAction> {
        if self.held.is_empty() {
            return None;
        }
        let held = self.held_members();
        let name = self.held.iter().find(|name| !held.contains(*name))?.clone();
        self.held.remove(&name);
        Some(DeferredAction::Released { name })
    }
}

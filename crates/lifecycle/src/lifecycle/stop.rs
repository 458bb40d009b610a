//! The end of a server: commands are refused, loads are discarded or left behind, and all copies are retired.
use std::mem;

use scheduling::Timestamp;

use super::{Lifecycle, server_exits};
use crate::{actions::LifecycleAction, managed_model::LoadPhase};

impl Lifecycle {
    /// Refuses all commands from now on, because the server will stop. Commands that have not been answered are refused
    /// too; what they have begun is discarded when it ends. What serves goes on.
    pub fn refuse_commands(&mut self) -> Vec<LifecycleAction> {
        self.is_stopping = true;
        self.queues.values_mut().for_each(|queue| drop(queue.take_waiting()));
        self.held.clear();
        for command in mem::take(&mut self.commands).into_keys() {
            self.actions.push(LifecycleAction::Answer { command, result: Err(server_exits()) });
        }
        self.dismiss_waiting();
        mem::take(&mut self.actions)
    }

    /// Does not wait for loads any more, after commands have been refused: the copies that a load has built so far end,
    /// and results that come later have no effect.
    pub fn abandon_loads(&mut self, now: Timestamp) -> Vec<LifecycleAction> {
        debug_assert!(self.is_stopping, "commands are refused before loads are abandoned");
        let loading = self.models.iter().filter_map(|(key, model)| Some((key.clone(), model.load.as_ref()?)));
        let loading: Vec<_> = loading.map(|(key, load)| (key, load.generation)).collect();
        for (key, generation) in loading {
            let Some(model) = self.models.get_mut(&key) else { continue };
            let Some(load) = model.running(generation) else { continue };
            match &load.phase {
                LoadPhase::RefreshingMembers { .. }
                | LoadPhase::Planning
                | LoadPhase::AwaitingMembers { .. }
                | LoadPhase::CheckingPlan(_) => {
                    model.load = None;
                    self.loads.remove(&generation);
                    // Models of the name in other namespaces may have copies that end.
                    self.load_ended(&key.name, Some(server_exits()), now);
                }
                LoadPhase::Building(_) | LoadPhase::Checking(_) => {
                    model.versions.values_mut().for_each(|version| version.is_loading = false);
                    self.discard(&key, server_exits(), now);
                }
                LoadPhase::Discarding { .. } => {}
            }
        }
        // Operations that still look for their models.
        let models = &self.models;
        self.queues.retain(|name, _| models.named(name).any(|(_, model)| model.load.is_some()));
        self.take_actions(now)
    }

    /// Ends everything: commands are refused, loads that run are discarded when they end, and all copies are retired.
    pub fn stop(&mut self) -> Vec<LifecycleAction> {
        let mut actions = self.refuse_commands();
        let keys: Vec<_> = self.models.keys().cloned().collect();
        for key in keys {
            self.unload(&key);
        }
        actions.append(&mut self.actions);
        actions
    }
}

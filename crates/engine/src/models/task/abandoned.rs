//! Loads that a stop has left behind.
use std::sync::atomic::Ordering::SeqCst;

use host::now;
use tokio::task::spawn_blocking;

use super::{Event, RepositoryTask};
use crate::models::{blocking::BuiltVersion, command::Done, load::LoadedModel};

impl RepositoryTask {
    /// Does not wait for loads any more. Answers whether threads still work on them, or read repositories, or backends still
    /// have what they were given.
    pub(super) fn abandon_loads(&mut self, done: Done<bool>) {
        self.has_abandoned_loads = true;
        self.jobs.clear();
        let actions = self.lifecycle.abandon_loads(now());
        self.perform(actions);
        // The caller may have gone.
        let has_left_copies = self.retirement.has_left_copies.load(SeqCst);
        let _ = done.send(!self.events.is_empty() || has_left_copies);
    }

    /// Ends what an abandoned load has made after all. Returns any other event.
    pub(super) fn unless_abandoned(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Loaded {
                result: Ok(BuiltVersion { model: LoadedModel::Whole(loaded), files }), ..
            } if self.has_abandoned_loads => {
                let ended = self.retirement.clone().end(loaded);
                self.endings.spawn(async move {
                    ended.await;
                    drop(files);
                    Event::Told
                });
                None
            }
            Event::Planned { result: Ok(planned), .. } if self.has_abandoned_loads => {
                self.endings.spawn(async move {
                    // Its agents run code of plug-ins when they are dropped. They log their panics.
                    let _ = spawn_blocking(|| drop(planned)).await;
                    Event::Told
                });
                None
            }
            other => Some(other),
        }
    }
}

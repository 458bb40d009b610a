//! The thread of a load's agents: actions reach the agents one after the other, and block nothing else.
use std::{
    sync::{Arc, mpsc},
    thread,
};

use host::ThreadGroup;
use inference::agent::AgentAction;
use repository::agents::Agents;
use tokio::sync::oneshot;
use vocabulary::Error;

use super::plan::KeptFiles;

/// Sends actions to the agents of one load. When this is dropped, the agents are dropped on their thread.
pub(super) struct AgentThread {
    /// At most the few actions after LOAD.
    actions: mpsc::Sender<(AgentAction, oneshot::Sender<()>)>,
    ended: oneshot::Receiver<()>,
}

impl AgentThread {
    /// Starts the thread. The files stay until the agents have ended.
    ///
    /// # Errors
    /// INTERNAL if the system refuses to start a thread.
    pub(super) fn start(
        mut agents: Agents,
        files: Arc<KeptFiles>,
        threads: &ThreadGroup,
    ) -> Result<Self, Error> {
        let (actions, inbox) = mpsc::channel::<(AgentAction, oneshot::Sender<()>)>();
        let (done, ended) = oneshot::channel();
        let run = move || {
            for (action, done) in inbox {
                agents.notify(action);
                // The other side waits only for some actions.
                let _ = done.send(());
            }
            drop(agents);
            drop(files);
            // The other side may not wait.
            let _ = done.send(());
        };
        match threads.spawn(thread::Builder::new().name("agents".to_owned()), run) {
            Ok(()) => Ok(Self { actions, ended }),
            Err(error) => Err(Error::internal(format!("failed to start a thread for agents: {error}"))),
        }
    }

    /// Notifies the agents. The receiver ends when they have been notified.
    pub(super) fn notify(&self, action: AgentAction) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        // The thread ends only after this sender.
        let _ = self.actions.send((action, done));
        told
    }

    /// Notifies the agents of their last action. The receiver ends when they are gone.
    pub(super) fn finish(self, action: AgentAction) -> oneshot::Receiver<()> {
        drop(self.notify(action));
        self.ended
    }
}

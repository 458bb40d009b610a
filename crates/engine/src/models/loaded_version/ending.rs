//! How a version ends: what it waits for, and what then ends.
use std::time::Duration;

use super::LoadedVersion;

impl LoadedVersion {
    /// From now on, no request waits for others to share its batch. The version still accepts requests.
    pub(crate) fn end_queue_delay(&self) {
        self.runner().end_queue_delay();
    }

    /// Accepts no new requests. Accepted requests continue.
    pub(crate) fn drain(&self) {
        self.model.succession().refuse_late_requests();
        self.open().drain();
        self.runner().drain();
    }

    /// Returns when the version has drained and its last request has ended.
    pub(crate) async fn last_request_ended(&self) {
        self.open().last_ended().await;
    }

    /// Returns at a moment at which no request is in flight here.
    pub(crate) async fn idle(&self) {
        self.open().idle().await;
    }

    /// Returns when no sequence of clients runs here.
    pub(crate) async fn sequences_ended(&self) {
        if self.model.takes_sequences() {
            self.work.sequences_ended().await;
        }
    }

    /// Waits until the sequences of this version have ended, until `limit` is over, or until the server stops. Then the
    /// version takes requests of sequences no more.
    pub(crate) async fn wait_for_sequences(&self, limit: Duration, server_stops: impl Future<Output = ()>) {
        if self.model.succession().waits_for_sequences() {
            tokio::select! {
                () = self.last_sequence_ended() => {}
                () = tokio::time::sleep(limit) => {}
                () = server_stops => {}
            }
        }
        self.model.succession().end_wait_for_sequences();
    }

    /// Returns when this version, which has been replaced, has no sequence and can get none.
    async fn last_sequence_ended(&self) {
        loop {
            self.work.sequences_ended().await;
            // A request that was accepted before may still begin a sequence.
            self.open().idle().await;
            if self.runner().live_sequences() == 0 {
                return;
            }
        }
    }

    /// Accepts no more requests, and returns when the last request has ended, and those of the versions that had the
    /// executor before. Then [`close`](Self::close) waits for the backend only.
    pub(crate) async fn finish_requests(&self) {
        self.accept_no_more();
        self.open().last_ended().await;
        if self.owns_executor() {
            for open in &self.earlier {
                open.close();
                open.last_ended().await;
            }
        }
    }

    /// Returns when the backend has released all that it was given, after the last request has ended.
    pub(crate) async fn released(&self) {
        if self.owns_executor() {
            self.work.released().await;
        }
    }

    fn accept_no_more(&self) {
        self.open().close();
        if self.owns_executor() {
            self.end_queue_delay();
        }
    }

    /// Accepts no more requests, waits until the last request has ended, ends the instances on their threads, and then
    /// drops the backend's model. Blocks.
    pub(crate) fn close(&self) {
        self.accept_no_more();
        self.open().wait_for_the_last();
        if !self.owns_executor() {
            // The version does not come into service, or another one has the executor: instances of its own end.
            let update = self.update.lock().take();
            return drop(update);
        }
        for open in &self.earlier {
            open.close();
            open.wait_for_the_last();
        }
        self.runner().close();
    }
}

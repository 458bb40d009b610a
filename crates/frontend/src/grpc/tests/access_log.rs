//! The access log of the gRPC endpoint.
use inference::lock::Mutex;

use super::*;
use crate::access::{AccessEntry, AccessLog};

#[derive(Debug, Default)]
struct Entries(Mutex<Vec<AccessEntry>>);

impl AccessLog for Entries {
    fn samples(&self) -> bool {
        true
    }

    fn write(&self, entry: AccessEntry) {
        self.0.lock().push(entry);
    }
}

impl Entries {
    /// So many entries, as soon as they are there.
    async fn take(&self, count: usize) -> Vec<AccessEntry> {
        let all = async {
            while self.0.lock().len() < count {
                tokio::task::yield_now().await;
            }
            std::mem::take(&mut *self.0.lock())
        };
        timeout(TIMEOUT, all).await.expect("the entries are written in time")
    }
}

async fn logged() -> (Server, Connection, Arc<Entries>) {
    let log = Arc::<Entries>::default();
    let server = Server::start(GrpcOptions { access_log: Some(log.clone()), ..GrpcOptions::default() }).await;
    let connection = server.connect().await;
    (server, connection, log)
}

#[tokio::test]
async fn a_call_is_logged_with_its_model_id_sizes_times_and_client() {
    let (_server, connection, log) = logged().await;
    let request = request("id_int32", "r7", &[1, 2, 3]);
    let response = infer(&connection, &[("authorization", "secret")], &request).await.unwrap();
    let entry = log.take(1).await.remove(0);
    assert_eq!((entry.protocol, &*entry.method, entry.status), ("grpc", "ModelInfer", Some(0)));
    assert_eq!((&*entry.model, entry.version, &*entry.request_id), ("id_int32", Some(1), "r7"));
    assert_eq!(entry.request_bytes, request.encoded_len() as u64);
    assert_eq!(entry.response_bytes, response.encoded_len() as u64 + 5, "with the head of the message");
    assert!(entry.times.queue.unwrap() + entry.times.compute().unwrap() <= entry.total);
    assert!(entry.peer.unwrap().ip().is_loopback());
    assert!(!format!("{entry:?}").contains("secret"));
}

#[tokio::test]
async fn calls_that_fail_or_are_cancelled_are_logged_with_their_code_or_without() {
    let (server, connection, log) = logged().await;
    infer(&connection, &[], &request("unknown", "r", &[1])).await.unwrap_err();
    let entry = log.take(1).await.remove(0);
    assert_eq!((&*entry.model, entry.status, entry.response_bytes), ("", Some(5), 0));
    let late = [("grpc-timeout", "20m")];
    infer(&connection, &late, &request("gated", "late", &[2])).await.unwrap_err();
    let entry = log.take(1).await.remove(0);
    assert_eq!((&*entry.model, &*entry.request_id, entry.status), ("gated", "late", Some(4)));
    let given_up = tokio::spawn({
        let other = server.connect().await;
        async move { infer(&other, &[], &request("gated", "gone", &[3])).await }
    });
    server.in_flight(2).await;
    given_up.abort();
    let entry = log.take(1).await.remove(0);
    assert_eq!((&*entry.request_id, entry.status), ("gone", None));
    server.gate.open();
}

#[tokio::test]
async fn each_request_of_a_stream_is_logged_and_the_call_is_not() {
    let (_server, connection, log) = logged().await;
    let mut call = connection.call(STREAM, &[]).await.unwrap();
    let good = request("id_int32", "a", &[1]);
    call.send(sent(&good));
    call.send(sent(&request("unknown", "b", &[1])));
    call.finish();
    let (messages, status) = timeout(TIMEOUT, call.rest()).await.unwrap().unwrap();
    assert_eq!((messages.len(), status.code), (2, 0));
    let mut entries = log.take(2).await;
    entries.sort_by(|one, other| one.request_id.cmp(&other.request_id));
    let logged: Vec<_> = entries
        .iter()
        .map(|entry| (&*entry.method, &*entry.model, &*entry.request_id, entry.status))
        .collect();
    assert_eq!(
        logged,
        [("ModelStreamInfer", "id_int32", "a", Some(0)), ("ModelStreamInfer", "", "b", Some(5))]
    );
    assert_eq!(entries[0].request_bytes, good.encoded_len() as u64);
    assert_eq!(entries[0].response_bytes, messages[0].len() as u64 + 5);
    assert!(entries[0].times.compute().is_some());
}

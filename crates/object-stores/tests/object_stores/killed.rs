//! A process that is killed while it copies an object leaves nothing that hinders the next one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use object_stores::{CacheOptions, LocalCopy, ObjectKind, ObjectStores, StoredObject};
use testing::{TestProcess, command};

const SIZE: usize = 4 << 20;

/// Tells the test's program that it is the process to kill: the directory of the cache, and the port of the server.
const CACHE: &str = "NEREID_TEST_KILLED_CACHE";
const PORT: &str = "NEREID_TEST_KILLED_PORT";

#[test]
fn a_killed_process_leaves_nothing_that_hinders_the_next_start() {
    if let (Ok(cache), Ok(port)) = (std::env::var(CACHE), std::env::var(PORT)) {
        fetch(Path::new(&cache), port.parse().unwrap());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (port, half_sent, go_on) = start_server();
    let mut command = command(std::env::current_exe().unwrap());
    command
        .args(["--exact", "killed::a_killed_process_leaves_nothing_that_hinders_the_next_start"])
        .env(CACHE, &cache)
        .env(PORT, port.to_string())
        .stdout(Stdio::null());
    let child = TestProcess::start(&mut command).unwrap();
    half_sent.recv_timeout(Duration::from_secs(60)).expect("the process asks for the object");
    drop(child);
    go_on.send(()).unwrap();
    let left = entries(&cache);
    assert!(left.len() > 3, "the process has left a session: {left:?}");
    assert!(
        fs::read_dir(cache.join("contents")).unwrap().next().is_none(),
        "an unfinished object is no content"
    );

    let (_stores, copy) = fetch(&cache, port);
    assert!(fs::read(copy.path().join("1/model.onnx")).unwrap() == vec![7; SIZE]);
    let sessions: Vec<_> =
        fs::read_dir(cache.join("sessions")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(sessions.len(), 2, "the own session and its lock: {sessions:?}");
}

/// Copies the object of the server.
fn fetch(cache: &Path, port: u16) -> (ObjectStores, LocalCopy) {
    let variables = BTreeMap::from([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key")]);
    let options = CacheOptions { directory: cache.to_owned(), max_unused_bytes: 1 << 30 };
    let find = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let stores = ObjectStores::from_environment(&find, options).unwrap();
    let object = StoredObject {
        path: "1/model.onnx".into(),
        kind: ObjectKind::File,
        byte_size: SIZE as u64,
        etag: Some("tag".into()),
        modified: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let copy = runtime.block_on(async {
        let repository = stores.repository(&format!("s3://127.0.0.1:{port}/bucket")).await.unwrap();
        repository.fetch("a", &[object], |_| true).await.unwrap()
    });
    (stores, copy)
}

/// All paths below a directory.
fn entries(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(entries(&path));
        }
        found.push(path.display().to_string());
    }
    found
}

/// A server that sends the first half of the object, says so, and waits; later requests get the whole object.
fn start_server() -> (u16, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (half_sent, on_half_sent) = channel();
    let (go_on, on_go_on) = channel::<()>();
    thread::spawn(move || {
        let mut stream = answer(&listener, SIZE / 2);
        half_sent.send(()).unwrap();
        // The connection stays open until the process is dead.
        on_go_on.recv().unwrap();
        let _ = stream.flush();
        drop(stream);
        answer(&listener, SIZE);
    });
    (port, on_half_sent, go_on)
}

fn answer(listener: &TcpListener, sent: usize) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nETag: \"tag\"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![7; sent]).unwrap();
    stream
}

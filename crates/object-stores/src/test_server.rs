//! A small server for tests with the XML protocol that S3 and Google Cloud Storage share: listings in pages, and objects.
//! A test may let it misbehave.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use inference::lock::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A listing has this many objects for each page.
const PAGE: usize = 2;

/// What the server does instead of answering.
#[derive(Clone)]
pub(crate) enum ServerFault {
    /// Answers with this status and text.
    Status(u16, &'static str),
    /// Answers nothing and keeps the connection open.
    Silence,
    /// Ends the connection after this many bytes of the answer's body.
    CutAfter(usize),
    /// Answers with another content, whose tag is another one too.
    OtherContent,
    /// Answers with more bytes of content than it has listed.
    LongerContent,
}

#[derive(Default)]
struct ServerState {
    objects: BTreeMap<String, Vec<u8>>,
    faults: VecDeque<(&'static str, ServerFault)>,
    requests: Vec<String>,
}

/// A server on a port of its own. It ends with the runtime of the test.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    state: Arc<Mutex<ServerState>>,
}

impl TestServer {
    pub(crate) async fn start(objects: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(ServerState::default()));
        let server = Self { port, state: Arc::clone(&state) };
        for (key, content) in objects {
            server.put(key, content);
        }
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        server
    }

    pub(crate) fn put(&self, key: &str, content: &[u8]) {
        self.state.lock().objects.insert(key.to_owned(), content.to_vec());
    }

    /// The next request whose target contains `part` is answered like this.
    pub(crate) fn fail_with(&self, part: &'static str, how: ServerFault) {
        self.state.lock().faults.push_back((part, how));
    }

    /// The requests whose text contains `part`, with their `Range` and `Authorization`.
    pub(crate) fn requests(&self, part: &str) -> Vec<String> {
        let state = self.state.lock();
        state.requests.iter().filter(|request| request.contains(part)).cloned().collect()
    }
}

/// Answers one request and closes the connection.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<ServerState>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = decoded(head.split(' ').nth(1).unwrap());
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let range = header("range");
    let misbehaviour = {
        let mut state = state.lock();
        state.requests.push(format!("{target} {range:?} {:?}", header("authorization")));
        let position = state.faults.iter().position(|(part, _)| target.contains(part));
        position.and_then(|position| state.faults.remove(position)).map(|(_, how)| how)
    };
    let mut answer = answer(&target, range.as_deref(), header("if-match"), &state.lock().objects);
    let mut sent = usize::MAX;
    match misbehaviour {
        None => {}
        Some(ServerFault::Status(status, text)) => answer = TestAnswer::error(status, text),
        Some(ServerFault::Silence) => std::future::pending().await,
        Some(ServerFault::CutAfter(bytes)) => sent = bytes,
        Some(ServerFault::OtherContent) => answer.etag = "\"other\"".into(),
        Some(ServerFault::LongerContent) => answer.body.push(0),
    }
    let mut head = format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
    let _ = write!(head, "ETag: {}\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n", answer.etag);
    let _ = write!(head, "{}Connection: close\r\n\r\n", answer.headers);
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&answer.body[..answer.body.len().min(sent)]).await;
    let _ = stream.shutdown().await;
}

/// Google's protocol writes all signs in the name of an object with percent signs, also its slashes.
fn decoded(target: &str) -> String {
    let mut parts = target.split('%');
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        text.push(u8::from_str_radix(&part[..2], 16).unwrap().into());
        text.push_str(&part[2..]);
    }
    text
}

struct TestAnswer {
    status: u16,
    headers: String,
    etag: String,
    body: Vec<u8>,
}

impl TestAnswer {
    fn error(status: u16, text: &str) -> Self {
        Self { status, headers: String::new(), etag: String::new(), body: text.as_bytes().to_vec() }
    }
}

fn answer(
    target: &str,
    range: Option<&str>,
    if_match: Option<String>,
    objects: &BTreeMap<String, Vec<u8>>,
) -> TestAnswer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let Some(path) = path.strip_prefix("/bucket") else {
        return TestAnswer::error(
            404,
            "<Error><Code>NoSuchBucket</Code><Message>no such bucket</Message></Error>",
        );
    };
    if query.contains("list-type=2") {
        let body = page(query, objects).into_bytes();
        return TestAnswer { status: 200, headers: String::new(), etag: "\"listing\"".into(), body };
    }
    let Some(content) = objects.get(path.trim_start_matches('/')) else {
        return TestAnswer::error(404, "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>");
    };
    let etag = etag(content);
    if if_match.is_some_and(|wanted| wanted != etag) {
        return TestAnswer::error(
            412,
            "<Error><Code>PreconditionFailed</Code><Message>other etag</Message></Error>",
        );
    }
    let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
        return TestAnswer { status: 200, headers: String::new(), etag, body: content.clone() };
    };
    let (start, end) = range.split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    let headers = format!("Content-Range: bytes {start}-{end}/{}\r\n", content.len());
    TestAnswer { status: 206, headers, etag, body: content[start..=end].to_vec() }
}

fn etag(content: &[u8]) -> String {
    format!("\"{}\"", &blake3::hash(content).to_hex()[..16])
}

/// A page of a listing. The token of the next page is the last key of this one.
fn page(query: &str, objects: &BTreeMap<String, Vec<u8>>) -> String {
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
        value.unwrap_or_default().to_owned()
    };
    let (prefix, after) = (parameter("prefix"), parameter("continuation-token"));
    let rest = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let rest: Vec<_> = rest.collect();
    let mut text = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
    for (key, content) in rest.iter().take(PAGE) {
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>{}</ETag>\
             <Size>{}</Size></Contents>",
            etag(content).replace('"', "&quot;"),
            content.len()
        );
    }
    if rest.len() > PAGE {
        let _ = write!(text, "<NextContinuationToken>{}</NextContinuationToken>", rest[PAGE - 1].0);
    }
    text + "</ListBucketResult>"
}

//! The calls of a recording, in the order of their arrival.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::call_target::CallTarget;
use crate::event::{CallProtocol, FORM, RecordedAnswer, RecordedBody, RecordedEvent, RecordedRequest};

/// A call, and what a replay needs to know of it.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    /// Its number in the file.
    pub(crate) number: u64,
    /// When it arrived, since the begin of the recording.
    pub(crate) at: Duration,
    pub(crate) protocol: CallProtocol,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: CallBody,
    /// `None` if the recording has none.
    pub(crate) answer: Option<CallAnswer>,
    pub(crate) target: CallTarget,
    /// The place of the call of the same sequence whose answer it waits for.
    pub(crate) after: Option<usize>,
}

/// What a call sends.
#[derive(Debug)]
pub(crate) enum CallBody {
    Whole(Bytes),
    /// A stream: messages with their frames, and when they came.
    Messages(Vec<(Duration, Bytes)>),
    /// The recording does not have it.
    Omitted,
}

/// An answer, recorded or not.
#[derive(Debug, Default, Clone)]
pub(crate) struct CallAnswer {
    /// When its last byte came: since the begin of the recording, or since the call was due.
    pub(crate) at: Duration,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: HeaderMap,
    /// All messages of a stream. `None` if it was not kept.
    pub(crate) body: Option<Bytes>,
}

/// Reads all calls of a file. Lines that are cut off at its end are no error: a recording can end at any time.
///
/// # Errors
/// The file cannot be read, or a line is none of a recording.
pub(crate) fn read(path: &Path) -> Result<Vec<RecordedCall>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut calls = GatheredCalls::default();
    let mut lines = BufReader::with_capacity(1 << 20, file).split(b'\n').enumerate();
    let (_, first) = lines.next().with_context(|| format!("{name} is empty"))?;
    match serde_json::from_slice(&first?) {
        Ok(RecordedEvent::Recording { form: FORM, .. }) => {}
        Ok(RecordedEvent::Recording { form, .. }) => {
            bail!("{name} has form {form}; this program reads form {FORM}")
        }
        _ => bail!("{name} is no recording of 'nereid record'"),
    }
    let mut lines = lines.peekable();
    while let Some((index, line)) = lines.next() {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        match serde_json::from_slice(&line) {
            Ok(event) => calls.add(event).with_context(|| format!("{name}:{}", index + 1))?,
            Err(error) if lines.peek().is_none() && error.is_eof() => {}
            Err(error) => bail!("{name}:{}: {error}", index + 1),
        }
    }
    calls.finish().with_context(|| format!("{name} has a call that is none"))
}

/// The calls so far, by their numbers.
#[derive(Default)]
struct GatheredCalls {
    requests: HashMap<u64, RecordedRequest>,
    messages: HashMap<u64, Vec<(Duration, Option<Bytes>)>>,
    answer_messages: HashMap<u64, Option<BytesMut>>,
    answers: HashMap<u64, RecordedAnswer>,
}

impl GatheredCalls {
    fn add(&mut self, event: RecordedEvent) -> Result<()> {
        match event {
            RecordedEvent::Recording { .. } => bail!("a second recording begins"),
            RecordedEvent::Request(request) => {
                let before = self.requests.insert(request.call, request);
                ensure!(before.is_none(), "a second call has the same number");
            }
            RecordedEvent::Message { call, at_us, body } => {
                let message = (Duration::from_micros(at_us), body.into_bytes()?);
                self.messages.entry(call).or_default().push(message);
            }
            RecordedEvent::AnswerMessage { call, body, .. } => {
                let all = self.answer_messages.entry(call).or_insert_with(|| Some(BytesMut::new()));
                match (all.as_mut(), body.into_bytes()?) {
                    (Some(all), Some(message)) => all.extend_from_slice(&message),
                    _ => *all = None,
                }
            }
            RecordedEvent::EndOfMessages { .. } => {}
            RecordedEvent::Answer(answer) => drop(self.answers.insert(answer.call, answer)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<RecordedCall>> {
        let requests = std::mem::take(&mut self.requests);
        let mut calls =
            requests.into_values().map(|request| self.call(request)).collect::<Result<Vec<_>>>()?;
        calls.sort_by_key(|call| (call.at, call.number));
        let mut last_of_sequence = HashMap::new();
        for (place, call) in calls.iter_mut().enumerate() {
            if let Some(sequence) = &call.target.sequence {
                call.after = last_of_sequence.insert((call.target.model.clone(), sequence.clone()), place);
            }
        }
        Ok(calls)
    }

    fn call(&mut self, request: RecordedRequest) -> Result<RecordedCall> {
        let number = request.call;
        let headers = headers(request.headers);
        let body = match request.body {
            RecordedBody::Stream => {
                let messages = self.messages.remove(&number).unwrap_or_default();
                let messages = messages.into_iter().map(|(at, message)| Some((at, message?)));
                messages.collect::<Option<_>>().map_or(CallBody::Omitted, CallBody::Messages)
            }
            body => body.into_bytes()?.map_or(CallBody::Omitted, CallBody::Whole),
        };
        let whole = if let CallBody::Whole(body) = &body { Some(body) } else { None };
        let target = CallTarget::of(request.protocol, &request.path, &headers, whole);
        let answer = match self.answers.remove(&number) {
            Some(answer) => Some(self.answer(answer)?),
            None => None,
        };
        Ok(RecordedCall {
            number,
            at: Duration::from_micros(request.at_us),
            protocol: request.protocol,
            method: request.method.parse().with_context(|| format!("call {number}: '{}'", request.method))?,
            path: request.path,
            headers,
            body,
            answer,
            target,
            after: None,
        })
    }

    fn answer(&mut self, answer: RecordedAnswer) -> Result<CallAnswer> {
        let body = match answer.body {
            RecordedBody::Stream => match self.answer_messages.remove(&answer.call) {
                Some(messages) => messages.map(BytesMut::freeze),
                None => Some(Bytes::new()),
            },
            body => body.into_bytes()?,
        };
        Ok(CallAnswer {
            at: Duration::from_micros(answer.at_us),
            status: answer.status,
            headers: headers(answer.headers),
            trailers: headers(answer.trailers),
            body,
        })
    }
}

/// The headers that HTTP can have. Others are left out: they cannot be sent.
fn headers(pairs: Vec<(String, String)>) -> HeaderMap {
    let pair = |(name, value): (String, String)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    let mut headers = HeaderMap::new();
    pairs.into_iter().filter_map(pair).for_each(|(name, value)| {
        headers.append(name, value);
    });
    headers
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const FIRST: &str = r#"{"event":"recording","form":1,"started_unix_us":0}"#;

    fn read_lines(lines: &[&str]) -> Result<Vec<RecordedCall>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.join("\n").as_bytes()).unwrap();
        read(file.path())
    }

    fn infer(call: u64, at_us: u64, sequence: u64) -> String {
        let body = format!(r#"{{"parameters":{{"sequence_id":{sequence}}}}}"#);
        let request = RecordedRequest {
            call,
            at_us,
            protocol: CallProtocol::Http,
            method: "POST".into(),
            path: "/v2/models/m/infer".into(),
            headers: vec![("x".into(), "y".into())],
            body: RecordedBody::of(body.into()),
        };
        serde_json::to_string(&RecordedEvent::Request(request)).unwrap()
    }

    #[test]
    fn calls_have_the_order_of_their_arrival_and_follow_in_their_sequences() {
        let lines = [infer(3, 50, 8), infer(2, 20, 8), infer(1, 10, 9), infer(4, 60, 9)];
        let lines: Vec<&str> = std::iter::once(FIRST).chain(lines.iter().map(String::as_str)).collect();
        let calls = read_lines(&lines).unwrap();
        let order: Vec<_> = calls.iter().map(|call| (call.number, call.after)).collect();
        assert_eq!(order, [(1, None), (2, None), (3, Some(1)), (4, Some(0))]);
        assert_eq!(calls[0].headers["x"], "y");
    }

    #[test]
    fn messages_of_a_stream_keep_their_times() {
        let calls = read_lines(&[
            FIRST,
            r#"{"event":"request","call":0,"at_us":5,"protocol":"grpc","method":"POST","path":"/inference.GRPCInferenceService/ModelStreamInfer","headers":[],"body":"stream"}"#,
            r#"{"event":"message","call":0,"at_us":6,"body":{"base64":"AAAAAAEB"}}"#,
            r#"{"event":"answer_message","call":0,"at_us":7,"body":{"text":"a"}}"#,
            r#"{"event":"answer_message","call":0,"at_us":8,"body":{"text":"b"}}"#,
            r#"{"event":"answer","call":0,"at_us":9,"status":200,"headers":[],"trailers":[["grpc-status","0"]],"body":"stream"}"#,
        ])
        .unwrap();
        let CallBody::Messages(messages) = &calls[0].body else { panic!("no stream") };
        assert_eq!(messages[..], [(Duration::from_micros(6), Bytes::from_static(b"\0\0\0\0\x01\x01"))]);
        let answer = calls[0].answer.as_ref().unwrap();
        assert_eq!(
            (answer.body.as_deref(), answer.trailers["grpc-status"].as_bytes()),
            (Some(&b"ab"[..]), &b"0"[..])
        );
    }

    #[test]
    fn a_line_that_is_cut_off_ends_the_recording_and_others_are_errors() {
        let one = infer(0, 1, 1);
        assert_eq!(read_lines(&[FIRST, &one, &one[..30]]).unwrap().len(), 1);
        for (lines, word) in [
            (vec!["{}"], "no recording"),
            (vec![], "is empty"),
            (vec![r#"{"event":"recording","form":2,"started_unix_us":0}"#], "has form 2"),
            (vec![FIRST, &one, &one], "the same number"),
            (vec![FIRST, &one[..30], &one], ":2: "),
            (vec![FIRST, FIRST], "a second recording"),
        ] {
            let error = format!("{:#}", read_lines(&lines).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}

//! The settings of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use client::endpoint::ClientEncryption;
use client::framing::MessageCompression;
use http::HeaderName;

use crate::search::Points;

/// All settings of a run. No list is empty.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct PerfOptions {
    pub(crate) model: String,
    /// Models that are called after it, each with the outputs of the one before.
    pub(crate) then: Vec<String>,
    /// `None`: the server chooses the version.
    pub(crate) version: Option<String>,
    /// `host:port`.
    pub(crate) address: String,
    /// `None`: connections are not encrypted.
    pub(crate) encryption: Option<ClientEncryption>,
    pub(crate) protocol: Protocol,
    /// Over HTTP, outputs come back as bytes.
    pub(crate) binary_outputs: bool,
    /// Each request has its own stream with any number of responses. Over HTTP these are events, and all is JSON.
    pub(crate) streaming: bool,
    /// Headers of each request, or metadata of each call.
    pub(crate) headers: Vec<(String, String)>,
    /// Parameters of each request.
    pub(crate) parameters: Vec<(String, GivenParameter)>,
    pub(crate) compression: Option<MessageCompression>,
    pub(crate) load: Load,
    /// The number of HTTP/2 connections. `None`: as many as callers, but at most eight.
    pub(crate) connections: Option<usize>,
    pub(crate) warm_up: PointWarmUp,
    pub(crate) windows: Windows,
    /// The latency in percent of all requests that the windows are compared by. `None`: the mean.
    pub(crate) percentile: Option<u8>,
    /// A range ends at the first point that is slower than this.
    pub(crate) latency_limit: Option<Duration>,
    pub(crate) batch: u64,
    pub(crate) sequences: SequenceOptions,
    /// Shapes from the command line, without the batch dimension, by input name.
    pub(crate) shapes: BTreeMap<String, Vec<i64>>,
    pub(crate) content: InputContent,
    pub(crate) texts: TextContent,
    /// Tensors are in shared memory, with so many bytes for each output. `None`: they are in the messages.
    pub(crate) shared_memory: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) server_pids: Vec<u32>,
    pub(crate) reports: ReportOptions,
}

/// What the run writes, and where.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct ReportOptions {
    /// One line for each point, instead of the report.
    pub(crate) table: bool,
    /// Each window is reported.
    pub(crate) verbose: bool,
    /// A CSV file with the columns of Nereid.
    pub(crate) csv: Option<PathBuf>,
    /// A CSV file with the columns of `perf_analyzer`.
    pub(crate) latency_report: Option<PathBuf>,
    /// More columns in the latency report.
    pub(crate) verbose_csv: bool,
    pub(crate) plot: Option<PathBuf>,
    /// A JSON file with the times of each request.
    pub(crate) profile: Option<PathBuf>,
}

/// The network protocol.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Protocol {
    /// HTTP/1.1. Input tensors are JSON numbers.
    HttpJson,
    /// HTTP/1.1. Input tensors are bytes after the JSON header.
    HttpBinary,
    /// gRPC. Tensors are raw contents.
    Grpc,
}

/// The value of a parameter of the requests.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum GivenParameter {
    Bool(bool),
    Int(i64),
    Text(String),
}

/// What determines when the next request is sent.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Load {
    /// A closed loop: each caller sends its next request as soon as it has its response. A point is a number of callers.
    Closed(Points),
    /// An open loop: a schedule. A point is a rate, in requests per second.
    Open {
        rates: Points,
        distribution: Distribution,
        /// How many requests may be unanswered at the same time. Further requests wait, and their wait counts.
        callers: usize,
    },
    /// An open loop with these gaps between requests, again and again.
    Intervals { file: PathBuf, callers: usize },
}

/// The gaps between the requests of an open loop.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Distribution {
    /// All are equal.
    Constant,
    /// They are exponentially distributed, as of many unrelated users.
    Poisson,
}

/// What is sent before a point counts.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum PointWarmUp {
    Time(Duration),
    Requests(u64),
}

/// How a point is measured.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Windows {
    /// Once.
    Single(Until),
    /// Window after window, until three agree.
    UntilStable {
        window: Until,
        /// How much three windows may differ, in percent of the smallest.
        percent: f64,
        /// After this number of windows the point is not stable.
        most: u32,
    },
}

/// The end of a window.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Requests(u64),
}

/// How requests form sequences, if the model has a sequence batcher.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct SequenceOptions {
    /// Every request is a separate sequence, whatever the model has.
    pub(crate) of_one_request: bool,
    /// The number of requests of a sequence. `None`: that of the input data, or 20.
    pub(crate) length: Option<u32>,
    /// How much lengths vary, in percent.
    pub(crate) variation: f64,
    pub(crate) first_id: u64,
    /// The end of the ids, exclusive. `None`: ids have no bound.
    pub(crate) end_id: Option<u64>,
    /// How many sequences an open loop has at the same time.
    pub(crate) count: usize,
    /// The header, or metadata, with the id of the sequence of each request.
    pub(crate) header: Option<HeaderName>,
}

/// The content of the tensors.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum InputContent {
    Zero,
    Random,
    /// JSON files, or directories with a file for each input.
    Files(Vec<PathBuf>),
}

/// The content of tensors of texts that no file gives.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum TextContent {
    /// Each element is this text.
    Given(String),
    /// Elements are random letters and digits, so many.
    OfLength(usize),
}

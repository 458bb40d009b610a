//! What is fixed when the server starts.
use std::{path::PathBuf, time::Duration};

use http::HeaderMap;

use crate::settings::EffectiveSettings;

/// The configuration of tracing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// The settings that hold until a client changes them.
    pub settings: EffectiveSettings,
    /// Where traces go.
    pub destination: TraceDestination,
    /// The most bytes of memory for traces that are collected, or wait for a file or a collector. What exceeds it is
    /// dropped.
    pub max_buffered_bytes: usize,
}

impl TraceConfig {
    /// The default of `max_buffered_bytes`.
    pub const MAX_BUFFERED_BYTES: usize = 64 << 20;
}

impl Default for TraceConfig {
    /// No tracing, and no file, so that clients cannot turn it on.
    fn default() -> Self {
        Self {
            settings: EffectiveSettings::default(),
            destination: TraceDestination::File(TraceFileConfig::default()),
            max_buffered_bytes: Self::MAX_BUFFERED_BYTES,
        }
    }
}

/// Where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceDestination {
    /// Mode `triton`.
    File(TraceFileConfig),
    /// Mode `opentelemetry`.
    Otlp(OtlpConfig),
}

/// The files of mode `triton`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFileConfig {
    /// The file, or the first part of the names of several files. `None`: requests cannot be traced.
    pub path: Option<PathBuf>,
}

/// The collector of mode `opentelemetry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The URL of the collector. Without a scheme it is `http`.
    pub url: String,
    /// Attributes of the resource, in the given order.
    pub resource: Vec<(String, String)>,
    /// A file with the certificates in PEM that sign those of the collector. `None`: those that the system trusts.
    pub certificates: Option<PathBuf>,
    /// How long the collector may take for a batch.
    pub timeout: Duration,
    /// Whether no spans are sent.
    pub is_off: bool,
    /// Headers of each request to the collector.
    pub headers: HeaderMap,
    /// Whether there are spans for the time in queues, and attributes for batches. Triton has neither.
    pub phases: bool,
    /// The form of the spans.
    pub protocol: OtlpProtocol,
    /// The most spans that wait for the collector.
    pub max_queue_size: usize,
    /// How long a span waits for others at most.
    pub schedule_delay: Duration,
    /// The most spans in a request to the collector.
    pub max_export_batch_size: usize,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            url: "http://localhost:4318/v1/traces".to_owned(),
            resource: Vec::new(),
            certificates: None,
            timeout: Duration::from_secs(10),
            is_off: false,
            headers: HeaderMap::new(),
            phases: false,
            protocol: OtlpProtocol::HttpJson,
            max_queue_size: 2048,
            schedule_delay: Duration::from_secs(5),
            max_export_batch_size: 512,
        }
    }
}

/// The form of the spans that a collector gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// `http/json`
    #[default]
    HttpJson,
    /// `http/protobuf`
    HttpProtobuf,
}

impl OtlpProtocol {
    /// The protocol with this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "http/json" => Some(Self::HttpJson),
            "http/protobuf" => Some(Self::HttpProtobuf),
            _ => None,
        }
    }

    /// The name of the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HttpJson => "http/json",
            Self::HttpProtobuf => "http/protobuf",
        }
    }
}

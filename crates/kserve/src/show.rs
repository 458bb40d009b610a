//! Writes the metadata of the server and of its models as JSON.
use engine::{IndexEntry, ModelState, ModelWorkload, NotReady, ServerWorkload};
use proto::{
    InferBatchStatistics, InferStatistics, ModelMetadataResponse, ModelStatistics, ModelStatisticsResponse,
    ServerMetadataResponse, StatisticDuration, model_metadata_response::TensorMetadata,
};
use shared_memory::{RegionOrigin, RegionStatus};
use trace::ShownSetting;

use crate::json_text::{write_double, write_int, write_string, write_uint};

/// Writes a JSON object or array, with its commas.
struct JsonWriter {
    json: Vec<u8>,
}

impl JsonWriter {
    fn new() -> Self {
        Self { json: Vec::with_capacity(512) }
    }

    /// Begins a member or element. Writes a comma unless it is the first.
    fn next(&mut self) {
        if !matches!(self.json.last(), None | Some(b'{' | b'[' | b':')) {
            self.json.push(b',');
        }
    }

    fn open(&mut self, bracket: u8) {
        self.next();
        self.json.push(bracket);
    }

    fn close(&mut self, bracket: u8) {
        self.json.push(bracket);
    }

    fn key(&mut self, key: &str) {
        self.next();
        write_string(&mut self.json, key.as_bytes());
        self.json.push(b':');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        write_string(&mut self.json, value.as_bytes());
    }

    /// Writes the member unless the value is empty.
    fn optional(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    fn uint(&mut self, key: &str, value: u64) {
        self.key(key);
        write_uint(&mut self.json, value);
    }

    fn double(&mut self, key: &str, value: f64) {
        self.key(key);
        write_double(&mut self.json, value);
    }

    fn texts(&mut self, key: &str, values: &[String]) {
        self.key(key);
        self.open(b'[');
        for value in values {
            self.next();
            write_string(&mut self.json, value.as_bytes());
        }
        self.close(b']');
    }

    fn array<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.open(b'[');
        for item in items {
            self.open(b'{');
            write(self, item);
            self.close(b'}');
        }
        self.close(b']');
    }

    fn duration(&mut self, key: &str, value: Option<&StatisticDuration>) {
        let (count, ns) = value.map_or((0, 0), |value| (value.count, value.ns));
        self.key(key);
        self.open(b'{');
        self.uint("count", count);
        self.uint("ns", ns);
        self.close(b'}');
    }
}

/// The body of `GET /v2`.
pub fn server(metadata: &ServerMetadataResponse) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    writer.text("name", &metadata.name);
    writer.text("version", &metadata.version);
    writer.texts("extensions", &metadata.extensions);
    writer.close(b'}');
    writer.json
}

/// The body of `GET /v2/systemsharedmemory/status` and of the same for CUDA.
pub fn regions(regions: &[RegionStatus]) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.array(regions, |writer, region| {
        writer.text("name", &region.name);
        match &region.origin {
            RegionOrigin::System { key, offset } => {
                writer.text("key", key);
                writer.uint("offset", *offset);
            }
            RegionOrigin::Cuda { device_id } => {
                writer.key("device_id");
                write_int(&mut writer.json, *device_id);
            }
        }
        writer.uint("byte_size", region.byte_size);
    });
    writer.json
}

/// The body of `GET /v2/models/{M}`.
pub fn model(metadata: &ModelMetadataResponse) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    let tensor = |writer: &mut JsonWriter, tensor: &TensorMetadata| {
        writer.text("name", &tensor.name);
        writer.text("datatype", &tensor.datatype);
        writer.key("shape");
        writer.open(b'[');
        for dim in &tensor.shape {
            writer.next();
            write_int(&mut writer.json, *dim);
        }
        writer.close(b']');
    };
    writer.open(b'{');
    writer.text("name", &metadata.name);
    writer.texts("versions", &metadata.versions);
    writer.text("platform", &metadata.platform);
    writer.key("inputs");
    writer.array(&metadata.inputs, tensor);
    writer.key("outputs");
    writer.array(&metadata.outputs, tensor);
    writer.close(b'}');
    writer.json
}

/// The body of `POST /v2/repository/index`. Empty fields are left out.
pub fn index(index: &[IndexEntry]) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.array(index, |writer, entry| {
        writer.text("name", &entry.name);
        writer.optional("namespace", entry.namespace.as_deref().unwrap_or_default());
        writer.optional("version", &version(entry.version));
        writer.optional("state", entry.state.map_or("", ModelState::as_str));
        writer.optional("reason", &entry.reason);
    });
    writer.json
}

/// A version number; empty for none.
fn version(number: Option<i64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// The body of `GET /v2/health/ready` of a server that is not ready. A model that the server does not have has no state.
pub fn not_ready(missing: &[NotReady]) -> Vec<u8> {
    const SHOWN: usize = 100;
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    writer.text("error", "Server not ready");
    writer.key("not_ready");
    writer.array(&missing[..missing.len().min(SHOWN)], |writer, model| {
        writer.text("name", &model.name);
        writer.optional("version", &version(model.version));
        writer.optional("state", model.state.map_or("", ModelState::as_str));
    });
    if missing.len() > SHOWN {
        writer.uint("more", (missing.len() - SHOWN) as u64);
    }
    writer.close(b'}');
    writer.json
}

/// The body of `GET /v2/load`. Times are in seconds.
pub fn workload(server: &ServerWorkload) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    writer.uint("requests_in_flight", server.requests_in_flight as u64);
    writer.uint("requests_waiting", server.requests_waiting as u64);
    writer.double("queued_work_seconds", server.queued_work.as_secs_f64());
    writer.double("instance_busy_ratio", server.busy_share);
    writer.uint("live_sequences", server.live_sequences as u64);
    writer.key("models");
    writer.array(&server.models, |writer, model: &ModelWorkload| {
        writer.text("name", &model.name);
        writer.text("version", &model.version.to_string());
        writer.uint("requests_in_flight", model.requests_in_flight as u64);
        writer.uint("requests_waiting", model.requests_waiting as u64);
        if let Some(time) = model.queued_work {
            writer.double("queued_work_seconds", time.as_secs_f64());
        }
        if let Some(share) = model.busy_share {
            writer.double("instance_busy_ratio", share);
        }
    });
    writer.close(b'}');
    writer.json
}

/// The body of `GET /v2/models`: each model once, with its versions. A model that was never loaded has no versions.
pub fn models(index: &[IndexEntry]) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    writer.key("models");
    let models: Vec<_> = index
        .chunk_by(|left, right| (&left.name, &left.namespace) == (&right.name, &right.namespace))
        .collect();
    writer.array(&models, |writer, versions| {
        writer.text("name", &versions[0].name);
        writer.optional("namespace", versions[0].namespace.as_deref().unwrap_or_default());
        writer.key("versions");
        let versions: Vec<_> = versions.iter().filter(|entry| entry.version.is_some()).collect();
        writer.array(&versions, |writer, entry| {
            writer.text("version", &version(entry.version));
            writer.text("state", entry.state.map_or("", ModelState::as_str));
            writer.optional("reason", &entry.reason);
        });
    });
    writer.close(b'}');
    writer.json
}

/// The body of the statistics routes.
pub fn statistics(statistics: &ModelStatisticsResponse) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    writer.key("model_stats");
    writer.array(&statistics.model_stats, model_statistics);
    writer.close(b'}');
    writer.json
}

fn model_statistics(writer: &mut JsonWriter, model: &ModelStatistics) {
    writer.text("name", &model.name);
    writer.text("version", &model.version);
    writer.uint("last_inference", model.last_inference);
    writer.uint("inference_count", model.inference_count);
    writer.uint("execution_count", model.execution_count);
    writer.key("inference_stats");
    writer.open(b'{');
    let none = InferStatistics::default();
    let requests = model.inference_stats.as_ref().unwrap_or(&none);
    writer.duration("success", requests.success.as_ref());
    writer.duration("fail", requests.fail.as_ref());
    writer.duration("queue", requests.queue.as_ref());
    writer.duration("compute_input", requests.compute_input.as_ref());
    writer.duration("compute_infer", requests.compute_infer.as_ref());
    writer.duration("compute_output", requests.compute_output.as_ref());
    writer.duration("cache_hit", requests.cache_hit.as_ref());
    writer.duration("cache_miss", requests.cache_miss.as_ref());
    writer.close(b'}');
    writer.key("response_stats");
    writer.open(b'{');
    for (index, responses) in &model.response_stats {
        writer.key(index);
        writer.open(b'{');
        writer.duration("compute_infer", responses.compute_infer.as_ref());
        writer.duration("compute_output", responses.compute_output.as_ref());
        writer.duration("success", responses.success.as_ref());
        writer.duration("fail", responses.fail.as_ref());
        writer.duration("empty_response", responses.empty_response.as_ref());
        writer.duration("cancel", responses.cancel.as_ref());
        writer.close(b'}');
    }
    writer.close(b'}');
    writer.key("batch_stats");
    writer.array(&model.batch_stats, |writer, batch: &InferBatchStatistics| {
        writer.uint("batch_size", batch.batch_size);
        writer.duration("compute_input", batch.compute_input.as_ref());
        writer.duration("compute_infer", batch.compute_infer.as_ref());
        writer.duration("compute_output", batch.compute_output.as_ref());
    });
    writer.key("memory_usage");
    writer.array(&model.memory_usage, |writer, memory| {
        writer.text("type", &memory.r#type);
        writer.key("id");
        write_int(&mut writer.json, memory.id);
        writer.uint("byte_size", memory.byte_size);
    });
}

/// The settings of tracing. The levels are an array, everything else is a text; several attributes of a resource are
/// separated by commas.
pub fn trace_settings(settings: &[ShownSetting]) -> Vec<u8> {
    let mut writer = JsonWriter::new();
    writer.open(b'{');
    for ShownSetting { name, values } in settings {
        match *name {
            "trace_level" => writer.texts(name, values),
            _ => writer.text(name, &values.join(",")),
        }
    }
    writer.close(b'}');
    writer.json
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::{InferResponseStatistics, MemoryUsage};

    use super::*;

    #[test]
    fn a_workload_has_totals_and_the_models_that_are_not_idle() {
        assert_eq!(
            String::from_utf8(workload(&ServerWorkload::default())).unwrap(),
            r#"{"requests_in_flight":0,"requests_waiting":0,"queued_work_seconds":0.0,"instance_busy_ratio":0.0,"live_sequences":0,"models":[]}"#
        );
        let model = |name: &str, queued_work, busy_share| ModelWorkload {
            name: name.into(),
            version: 3,
            requests_in_flight: 5,
            requests_waiting: 4,
            queued_work,
            busy_share,
        };
        let models = vec![model("m", Some(Duration::from_millis(1500)), Some(0.25)), model("e", None, None)];
        let text =
            String::from_utf8(workload(&ServerWorkload { models, ..ServerWorkload::default() })).unwrap();
        let expected = concat!(
            r#""models":[{"name":"m","version":"3","requests_in_flight":5,"requests_waiting":4,"queued_work_seconds":1.5,"#,
            r#""instance_busy_ratio":0.25},{"name":"e","version":"3","requests_in_flight":5,"requests_waiting":4}]}"#,
        );
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn regions_are_shown_by_their_kind() {
        let origins =
            [RegionOrigin::System { key: "/k\"".into(), offset: 4096 }, RegionOrigin::Cuda { device_id: 1 }];
        let of = |origin: RegionOrigin| RegionStatus { name: "r".into(), origin, byte_size: 64 };
        let text = |origins: &[RegionOrigin]| {
            let all: Vec<_> = origins.iter().cloned().map(of).collect();
            String::from_utf8(regions(&all)).unwrap()
        };
        assert_eq!(text(&[]), "[]");
        let system = r#"{"name":"r","key":"/k\"","offset":4096,"byte_size":64}"#;
        let cuda = r#"{"name":"r","device_id":1,"byte_size":64}"#;
        assert_eq!(text(&origins), format!("[{system},{cuda}]"));
    }

    #[test]
    fn metadata_have_the_order_of_the_protocol() {
        let metadata = ServerMetadataResponse {
            name: "triton".into(),
            version: "2.73.0".into(),
            extensions: vec!["classification".into(), "sequence".into()],
        };
        let expected = br#"{"name":"triton","version":"2.73.0","extensions":["classification","sequence"]}"#;
        assert_eq!(server(&metadata), expected);

        let tensor =
            |name: &str| TensorMetadata { name: name.into(), datatype: "INT32".into(), shape: vec![-1, 16] };
        let metadata = ModelMetadataResponse {
            name: "simple".into(),
            versions: vec!["1".into(), "3".into()],
            platform: "python".into(),
            inputs: vec![tensor("INPUT0"), tensor("INPUT1")],
            outputs: vec![],
        };
        let expected = concat!(
            r#"{"name":"simple","versions":["1","3"],"platform":"python","inputs":["#,
            r#"{"name":"INPUT0","datatype":"INT32","shape":[-1,16]},"#,
            r#"{"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],"outputs":[]}"#
        );
        assert_eq!(String::from_utf8(model(&metadata)).unwrap(), expected);
    }

    fn entry(name: &str, version: Option<i64>, state: Option<ModelState>, reason: &str) -> IndexEntry {
        IndexEntry { name: name.into(), namespace: None, version, state, reason: reason.into() }
    }

    #[test]
    fn the_list_of_models_has_each_model_once() {
        let entries = vec![
            entry("a", Some(1), Some(ModelState::Unavailable), "unloaded"),
            entry("a", Some(2), Some(ModelState::Ready), ""),
            entry("b", None, None, ""),
        ];
        let expected = concat!(
            r#"{"models":[{"name":"a","versions":[{"version":"1","state":"UNAVAILABLE","reason":"unloaded"},"#,
            r#"{"version":"2","state":"READY"}]},{"name":"b","versions":[]}]}"#,
        );
        let list = models(&entries);
        assert_eq!(String::from_utf8(list).unwrap(), expected);
    }

    #[test]
    fn an_index_leaves_out_what_a_model_does_not_have() {
        let mut entries = vec![
            entry("a", Some(1), Some(ModelState::Ready), ""),
            entry("b", None, None, ""),
            entry("c", Some(1), Some(ModelState::Unavailable), "x\ny"),
        ];
        let expected = concat!(
            r#"[{"name":"a","version":"1","state":"READY"},{"name":"b"},"#,
            r#"{"name":"c","version":"1","state":"UNAVAILABLE","reason":"x\ny"}]"#
        );
        assert_eq!(String::from_utf8(index(&entries)).unwrap(), expected);
        assert_eq!(index(&[]), b"[]");
        entries.truncate(1);
        entries[0].namespace = Some("/models".into());
        let expected = r#"[{"name":"a","namespace":"/models","version":"1","state":"READY"}]"#;
        assert_eq!(String::from_utf8(index(&entries)).unwrap(), expected);
    }

    #[test]
    fn idle_statistics_are_zeros() {
        let idle =
            ModelStatistics { name: "simple".into(), version: "1".into(), ..ModelStatistics::default() };
        let text = statistics(&ModelStatisticsResponse { model_stats: vec![idle] });
        let zero = r#"{"count":0,"ns":0}"#;
        let durations: Vec<String> = [
            "success",
            "fail",
            "queue",
            "compute_input",
            "compute_infer",
            "compute_output",
            "cache_hit",
            "cache_miss",
        ]
        .map(|name| format!("\"{name}\":{zero}"))
        .to_vec();
        let expected = format!(
            "{{\"model_stats\":[{{\"name\":\"simple\",\"version\":\"1\",\"last_inference\":0,\"inference_count\":0,\
             \"execution_count\":0,\"inference_stats\":{{{}}},\"response_stats\":{{}},\"batch_stats\":[],\
             \"memory_usage\":[]}}]}}",
            durations.join(",")
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn batches_are_listed() {
        let compute = Some(StatisticDuration { count: 1, ns: 2 });
        let batch =
            InferBatchStatistics { batch_size: 4, compute_input: compute, ..InferBatchStatistics::default() };
        let busy = ModelStatistics { batch_stats: vec![batch, batch], ..ModelStatistics::default() };
        let text =
            String::from_utf8(statistics(&ModelStatisticsResponse { model_stats: vec![busy] })).unwrap();
        let batch = concat!(
            r#"{"batch_size":4,"compute_input":{"count":1,"ns":2},"compute_infer":{"count":0,"ns":0},"#,
            r#""compute_output":{"count":0,"ns":0}}"#
        );
        assert!(text.contains(&format!(r#""batch_stats":[{batch},{batch}],"#)), "{text}");
    }

    #[test]
    fn responses_are_shown_by_their_position_and_memory_by_its_kind() {
        let success = Some(StatisticDuration { count: 1, ns: 2 });
        let responses = InferResponseStatistics { success, ..InferResponseStatistics::default() };
        let memory = MemoryUsage { r#type: "CPU".into(), id: -1, byte_size: u64::MAX };
        let busy = ModelStatistics {
            response_stats: [("0".to_owned(), responses)].into(),
            memory_usage: vec![memory],
            ..ModelStatistics::default()
        };
        let text =
            String::from_utf8(statistics(&ModelStatisticsResponse { model_stats: vec![busy] })).unwrap();
        let expected = concat!(
            r#""response_stats":{"0":{"compute_infer":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0},"#,
            r#""success":{"count":1,"ns":2},"fail":{"count":0,"ns":0},"empty_response":{"count":0,"ns":0},"#,
            r#""cancel":{"count":0,"ns":0}}},"#
        );
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains(r#""memory_usage":[{"type":"CPU","id":-1,"byte_size":18446744073709551615}]"#),
            "{text}"
        );
    }
}

//! Measures how long it takes to decode a request and to encode its response, without engine and sockets.
use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use frontend::http::{
    request::{DecodeContext, decode},
    response::{ResponseIdentity, encode},
};
use inference::Response;
use kserve::output::{Placement, RequestedOutputs};
use shared_memory::ClientRegions;
use vocabulary::{DataType, Name, Tensor, TensorData};

static NO_REGIONS: ClientRegions = ClientRegions::forbidden();

const CONTEXT: DecodeContext<'_> =
    DecodeContext { model: "m", max_input_size: 1 << 26, inputs: &[], regions: &NO_REGIONS };

/// A request of numbers. `write` writes each number from its index.
fn json_numbers(datatype: &str, count: u32, write: impl Fn(u32) -> String) -> Vec<u8> {
    let data: Vec<String> = (0..count).map(write).collect();
    let data = data.join(",");
    format!(
        r#"{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":[1,{count}],"data":[{data}]}}]}}"#
    )
    .into_bytes()
}

fn json_request(count: u32) -> Vec<u8> {
    json_numbers("FP32", count, |index| format!("{}.{}", index % 100, index * 7919 % 1000))
}

/// A fraction below one with seemingly random digits.
fn fraction(index: u32) -> f64 {
    f64::from(index.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX)
}

/// The cost of numbers, by the form in which they are written.
fn numbers(criterion: &mut Criterion) {
    const COUNT: u32 = 100_000;
    #[expect(clippy::cast_possible_truncation, reason = "a single is what is wanted")]
    let texts = [
        ("shortest FP32", json_numbers("FP32", COUNT, |index| (fraction(index) as f32).to_string())),
        (
            "FP32 as double",
            json_numbers("FP32", COUNT, |index| f64::from((fraction(index) - 0.5) as f32).to_string()),
        ),
        ("d.dd", json_numbers("FP32", COUNT, |index| format!("{:.2}", 10.0 * fraction(index)))),
        ("17 digits", json_numbers("FP64", COUNT, |index| format!("{:.17}", 10.0 * fraction(index)))),
        ("small INT32", json_numbers("INT32", COUNT, |index| (index * 7919 % 1000).to_string())),
    ];
    let mut group = criterion.benchmark_group("numbers");
    for (name, text) in &texts {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(*name, |bencher| {
            bencher.iter(|| decode(black_box(text), &TensorData::default(), CONTEXT));
        });
    }
    group.finish();
}

fn binary_request(count: u32) -> (Vec<u8>, TensorData) {
    let json = format!(
        r#"{{"inputs":[{{"name":"INPUT0","datatype":"FP32","shape":[1,{count}],"parameters":{{"binary_data_size":{}}}}}],"outputs":[{{"name":"OUTPUT0","parameters":{{"binary_data":true}}}}]}}"#,
        4 * count
    );
    (json.into_bytes(), Bytes::from(vec![0; 4 * count as usize]).into())
}

fn response(count: u32) -> Response {
    let bytes: Vec<u8> = (0..count).flat_map(|index| (index as f32 * 0.37).to_le_bytes()).collect();
    let shape = [1, count.into()];
    Response::of(vec![Tensor::new("OUTPUT0".into(), DataType::Fp32, shape.as_slice().into(), bytes)])
}

fn codec(criterion: &mut Criterion) {
    let (id, model) = (Name::default(), Name::new("m"));
    let identity = ResponseIdentity { id: &id, model: &model, version: 1 };
    for count in [16, 100_000] {
        let text = json_request(count);
        let mut group = criterion.benchmark_group(format!("{count} FP32"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("decode JSON", |bencher| {
            bencher.iter(|| decode(black_box(&text), &TensorData::default(), CONTEXT));
        });
        let (header, tensor) = binary_request(count);
        group.bench_function("decode binary", |bencher| {
            bencher.iter(|| decode(black_box(&header), &tensor, CONTEXT));
        });
        let response = response(count);
        for (name, placement) in [("encode JSON", Placement::Json), ("encode binary", Placement::Binary)] {
            let requested_outputs = RequestedOutputs::all(placement);
            group.bench_function(name, |bencher| {
                bencher.iter(|| encode(identity, black_box(&response), &requested_outputs));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, codec, numbers);
criterion_main!(benches);

//! What it costs to decode a request and to encode its response, without engine and sockets.
use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inference::{DataType, Name, Response, Tensor, TensorData};
use nereid_frontend::{
    http::{
        request::{Limits, decode},
        response::{Origin, encode},
    },
    kserve::output::{Placement, RequestedOutputs},
};

const LIMITS: Limits<'_> = Limits { model: "m", max_input_size: 1 << 26 };

fn json_request(count: usize) -> Vec<u8> {
    let data: Vec<String> =
        (0..count).map(|index| format!("{}.{}", index % 100, index * 7919 % 1000)).collect();
    let data = data.join(",");
    format!(r#"{{"inputs":[{{"name":"INPUT0","datatype":"FP32","shape":[1,{count}],"data":[{data}]}}]}}"#)
        .into_bytes()
}

fn binary_request(count: usize) -> (Vec<u8>, TensorData) {
    let json = format!(
        r#"{{"inputs":[{{"name":"INPUT0","datatype":"FP32","shape":[1,{count}],"parameters":{{"binary_data_size":{}}}}}],"outputs":[{{"name":"OUTPUT0","parameters":{{"binary_data":true}}}}]}}"#,
        4 * count
    );
    (json.into_bytes(), Bytes::from(vec![0; 4 * count]).into())
}

fn response(count: usize) -> Response {
    let bytes: Vec<u8> = (0..count).flat_map(|index| (index as f32 * 0.37).to_le_bytes()).collect();
    let shape = [1, i64::try_from(count).expect("a short tensor")];
    Response::of(vec![Tensor::new("OUTPUT0".into(), DataType::Fp32, shape.as_slice().into(), bytes)])
}

fn codec(criterion: &mut Criterion) {
    let (id, model) = (Name::default(), Name::new("m"));
    let origin = Origin { id: &id, model: &model, version: 1 };
    for count in [16, 100_000] {
        let text = json_request(count);
        let mut group = criterion.benchmark_group(format!("{count} FP32"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("decode JSON", |bencher| {
            bencher.iter(|| decode(black_box(&text), &TensorData::default(), LIMITS));
        });
        let (header, tensor) = binary_request(count);
        group.bench_function("decode binary", |bencher| {
            bencher.iter(|| decode(black_box(&header), &tensor, LIMITS));
        });
        let response = response(count);
        for (name, placement) in [("encode JSON", Placement::Json), ("encode binary", Placement::Binary)] {
            let requested_outputs = RequestedOutputs::all(placement);
            group.bench_function(name, |bencher| {
                bencher.iter(|| encode(origin, black_box(&response), &requested_outputs));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);

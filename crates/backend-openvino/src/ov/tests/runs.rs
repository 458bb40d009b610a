//! Runs: batch sizes, outputs in place, outputs of unknown shape, strings, and what is left of a run.
use vocabulary::{DataType, ForeignMemory};

use super::{guarded_pages::GuardedPages, *};

fn affine(input: &[f32]) -> Vec<f32> {
    input
        .iter()
        .enumerate()
        .map(|(at, value)| (value * 2.0 + [0.0, 1.0, 2.0, 3.0][at % 4]).max(0.0))
        .collect()
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| at as f32 / 8.0 - 3.0).collect()
}

fn input<'a>(shape: &[i64], bytes: &'a [u8]) -> OvInput<'a> {
    OvInput::over(openvino(), DataType::Fp32, shape, bytes).unwrap()
}

#[test]
fn one_request_runs_batches_of_all_sizes() {
    let mut request = InferRequest::new(&compiled("affine.xml")).unwrap();
    for rows in [1, 8, 3, 32, 1, 0, 2] {
        let values = numbers(4 * rows);
        let bytes = AlignedBytes::of(&bytes_of(&values));
        let shape = [rows as i64, 4];
        let outputs = request.run(&[input(&shape, bytes.bytes())], &[OutputTarget::New]).unwrap();
        assert_eq!(outputs[0].shape(), shape);
        assert_eq!(floats_of(outputs[0].as_ref()), affine(&values));
    }
}

#[test]
fn an_output_in_its_place_is_written_there_and_nowhere_else() {
    for file in ["affine.xml", "network.xml"] {
        let model = compiled(file);
        let columns = model.ports().inputs[0].shape.as_ref().unwrap()[1];
        let mut request = InferRequest::new(&model).unwrap();
        for rows in [1_i64, 5, 2] {
            let shape = [rows, columns];
            let len = usize::try_from(4 * rows * columns).unwrap();
            let values = AlignedBytes::of(&bytes_of(&numbers(len / 4)));
            let wanted = request.run(&[input(&shape, values.bytes())], &[OutputTarget::New]).unwrap();
            let mut place = AlignedBytes::of(&vec![0xee; len + 8]);
            let target =
                RunPlace::over(openvino(), DataType::Fp32, &shape, &mut place.bytes_mut()[..len]).unwrap();
            let outputs =
                request.run(&[input(&shape, values.bytes())], &[OutputTarget::Place(target)]).unwrap();
            assert!(outputs.is_empty());
            assert_eq!(&place.bytes()[..len], wanted[0].as_ref());
            assert_eq!(&place.bytes()[len..], [0xee; 8]);
        }
    }
}

#[test]
fn foreign_memory_is_used_in_place_if_its_owner_allows_it() {
    let mut request = InferRequest::new(&compiled("affine.xml")).unwrap();
    let values = numbers(8);
    let source = ForeignMemory::copied_from(&bytes_of(&values).into());
    let target = ForeignMemory::zeroed(32).unwrap();
    let shape = [2, 4];
    let x = OvInput::over_foreign(openvino(), DataType::Fp32, &shape, &source).unwrap().unwrap();
    let place = RunPlace::over_foreign(openvino(), DataType::Fp32, &shape, &target).unwrap().unwrap();
    request.run(&[x], &[OutputTarget::Place(place)]).unwrap();
    assert_eq!(floats_of(&target.read().unwrap()), affine(&values));
    let too_short = OvInput::over_foreign(openvino(), DataType::Fp32, &[3, 4], &source).unwrap();
    assert!(too_short.is_none());
}

#[test]
fn the_shape_of_an_output_may_be_known_only_after_the_run() {
    let mut request = InferRequest::new(&compiled("positions.xml")).unwrap();
    for values in [&[0_i32, 5, 0, 7][..], &[1, 1, 1, 1, 1, 1, 1, 1, 1], &[0, 0], &[3]] {
        let bytes =
            AlignedBytes::of(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>());
        let x = OvInput::over(openvino(), DataType::Int32, &[values.len() as i64], bytes.bytes()).unwrap();
        let outputs = request.run(&[x], &[OutputTarget::New]).unwrap();
        let wanted: Vec<i64> =
            (0..).zip(values).filter(|(_, value)| **value != 0).map(|(at, _)| at).collect();
        assert_eq!(outputs[0].shape(), [1, wanted.len() as i64]);
        let found =
            outputs[0].as_ref().chunks_exact(8).map(|value| i64::from_ne_bytes(value.try_into().unwrap()));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn an_output_stays_as_it_is_when_its_request_runs_again_and_ends() {
    let model = compiled("affine.xml");
    let mut request = InferRequest::new(&model).unwrap();
    let values = [numbers(8), numbers(16).split_off(8)];
    let [first, second] = values.each_ref().map(|values| AlignedBytes::of(&bytes_of(values)));
    let run = |request: &mut InferRequest, bytes: &AlignedBytes| {
        request.run(&[input(&[2, 4], bytes.bytes())], &[OutputTarget::New]).unwrap().remove(0)
    };
    let kept = run(&mut request, &first);
    let later = run(&mut request, &second);
    request.run(&[input(&[2, 4], second.bytes())], &[OutputTarget::Unread]).unwrap();
    drop((request, model));
    assert_eq!(floats_of(kept.as_ref()), affine(&values[0]));
    assert_eq!(floats_of(later.as_ref()), affine(&values[1]));
}

#[test]
fn several_inputs_and_outputs_keep_their_places() {
    let mut request = InferRequest::new(&compiled("pair.xml")).unwrap();
    let words = |values: &[i64]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let (a, b) = (AlignedBytes::of(&words(&[5, -7])), AlignedBytes::of(&words(&[1 << 20, 2])));
    for targets in [
        [OutputTarget::New, OutputTarget::New],
        [OutputTarget::Unread, OutputTarget::New],
        [OutputTarget::New, OutputTarget::Unread],
    ] {
        let over = |bytes| OvInput::over(openvino(), DataType::Int64, &[1, 2], bytes).unwrap();
        let outputs = request.run(&[over(a.bytes()), over(b.bytes())], &targets).unwrap();
        let all = [words(&[5 + (1 << 20), -5]), words(&[5 - (1 << 20), -9])];
        let wanted = all.iter().zip(&targets).filter(|(_, target)| matches!(target, OutputTarget::New));
        let wanted: Vec<&[u8]> = wanted.map(|(bytes, _)| bytes.as_slice()).collect();
        assert_eq!(outputs.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>(), wanted);
    }
}

#[test]
fn values_of_every_datatype_arrive() {
    let model = compiled("types.xml");
    let one = |datatype: DataType| -> Vec<u8> {
        match datatype {
            DataType::Fp16 => 0x3c00_u16.to_ne_bytes().to_vec(),
            DataType::Bf16 => 0x3f80_u16.to_ne_bytes().to_vec(),
            DataType::Fp32 => 1_f32.to_ne_bytes().to_vec(),
            DataType::Fp64 => 1_f64.to_ne_bytes().to_vec(),
            other => 1_u64.to_le_bytes()[..other.byte_size().unwrap()].to_vec(),
        }
    };
    let types: Vec<DataType> =
        model.ports().inputs.iter().map(|port| port.element.datatype().unwrap()).collect();
    let bytes: Vec<AlignedBytes> =
        types.iter().map(|&of| AlignedBytes::of(&[one(of), vec![0; one(of).len()]].concat())).collect();
    let inputs: Vec<OvInput<'_>> = types
        .iter()
        .zip(&bytes)
        .map(|(&of, bytes)| OvInput::over(openvino(), of, &[2], bytes.bytes()).unwrap())
        .collect();
    let targets: Vec<OutputTarget<'_>> = types.iter().map(|_| OutputTarget::New).collect();
    let outputs = InferRequest::new(&model).unwrap().run(&inputs, &targets).unwrap();
    for (datatype, output) in types.iter().zip(&outputs) {
        assert_eq!(output.as_ref(), [1_f64, 0.0].map(f64::to_ne_bytes).concat(), "{datatype:?}");
    }
}

#[test]
fn strings_go_in_and_an_output_that_is_an_input_is_a_copy() {
    let mut request = InferRequest::new(&compiled("unchanged.xml")).unwrap();
    let mut source = GuardedPages::of(&bytes_of(&[1.0, 2.0, 3.0]));
    source.forbid_writing();
    let long = "x".repeat(100);
    let strings = OvInput::strings(openvino(), &[2], &[b"a", long.as_bytes()]).unwrap();
    let x = input(&[1, 3], source.bytes(12));
    let outputs = request.run(&[x, strings], &[OutputTarget::New, OutputTarget::Unread]).unwrap();
    assert_eq!(floats_of(outputs[0].as_ref()), [1.0, 2.0, 3.0]);
    let mut place = AlignedBytes::of(&[0; 12]);
    let target = RunPlace::over(openvino(), DataType::Fp32, &[1, 3], place.bytes_mut()).unwrap();
    let strings = OvInput::strings(openvino(), &[1], &[b"a"]).unwrap();
    let x = input(&[1, 3], source.bytes(12));
    request.run(&[x, strings], &[OutputTarget::Place(target), OutputTarget::Unread]).unwrap();
    source.forbid();
    assert_eq!(floats_of(place.bytes()), [1.0, 2.0, 3.0]);
    assert_eq!(floats_of(outputs[0].as_ref()), [1.0, 2.0, 3.0]);
}

#[test]
fn a_run_uses_no_memory_of_an_earlier_run() {
    for (file, is_fixed) in
        [("affine.xml", false), ("affine.xml", true), ("network.xml", false), ("network.xml", true)]
    {
        let mut graph = graph(file);
        let columns = graph.ports().unwrap().inputs[0].shape.as_ref().unwrap()[1];
        let shape = [2, columns];
        if is_fixed {
            graph.reshape(&[(0, shape.as_slice().into())]).unwrap();
        }
        let model = CompiledModel::compile(&graph, &one_thread()).unwrap();
        let len = usize::try_from(8 * columns).unwrap();
        let values = AlignedBytes::of(&bytes_of(&numbers(len / 4)));
        let count = if is_fixed { 2 } else { 1 };
        let mut requests: Vec<_> = (0..count).map(|_| InferRequest::new(&model).unwrap()).collect();
        let mut left = Vec::new();
        for round in 0..6 {
            let mut source = GuardedPages::of(values.bytes());
            source.forbid_writing();
            let mut target = GuardedPages::of(&[]);
            let place = RunPlace::over(openvino(), DataType::Fp32, &shape, target.bytes_mut(len)).unwrap();
            requests[round % count]
                .run(&[input(&shape, source.bytes(len))], &[OutputTarget::Place(place)])
                .unwrap();
            source.forbid();
            target.forbid();
            left.push((source, target));
            let target = if round < 3 { OutputTarget::Unread } else { OutputTarget::New };
            requests[(round + 1) % count].run(&[input(&shape, values.bytes())], &[target]).unwrap();
        }
        drop(requests);
        drop(model);
        drop(left);
    }
}

//! Requests of one model on several threads.
use std::{sync::Barrier, thread};

use vocabulary::DataType;

use super::*;

#[test]
fn two_requests_of_one_model_run_at_the_same_time_with_equal_results() {
    let mut two_streams = CompileOptions::processors(NonZeroUsize::new(2).unwrap());
    two_streams.set("NUM_STREAMS", "2");
    for options in [one_thread(), two_streams] {
        let mut graph = graph("network.xml");
        graph.reshape(&[(0, [4, 8].as_slice().into())]).unwrap();
        let model = CompiledModel::compile(&graph, &options).unwrap();
        assert!(model.can_be_shared());
        let begin = Barrier::new(2);
        let run = || {
            let mut request = InferRequest::new(&model).unwrap();
            begin.wait();
            (1..200_usize)
                .map(|round| {
                    let values: Vec<f32> = (0..32).map(|at| (at * round) as f32 / 100.0).collect();
                    let bytes = AlignedBytes::of(&bytes_of(&values));
                    let x = OvInput::over(openvino(), DataType::Fp32, &[4, 8], bytes.bytes()).unwrap();
                    request.run(&[x], &[OutputTarget::New]).unwrap()[0].as_ref().to_vec()
                })
                .collect::<Vec<_>>()
        };
        let [one, other] =
            thread::scope(|scope| [scope.spawn(run), scope.spawn(run)].map(|thread| thread.join().unwrap()));
        assert_eq!(one, other);
    }
}

#[test]
fn a_request_may_move_and_end_on_another_thread() {
    let model = compiled("affine.xml");
    let mut request = InferRequest::new(&model).unwrap();
    drop(model);
    let bytes = AlignedBytes::of(&bytes_of(&[1.0; 4]));
    let output = thread::spawn(move || {
        let x = OvInput::over(openvino(), DataType::Fp32, &[1, 4], bytes.bytes()).unwrap();
        request.run(&[x], &[OutputTarget::New]).unwrap().remove(0)
    });
    assert_eq!(floats_of(output.join().unwrap().as_ref()), [2.0, 3.0, 4.0, 5.0]);
}

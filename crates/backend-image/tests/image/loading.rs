//! What is refused when a model is loaded.
use backend_image::ImageBackend;
use inference::backend::{Backend, InstanceDevice};

use crate::support::{config, load, load_on, parameters, refusal};

fn with(pairs: &[(&str, &str)]) -> String {
    refusal(&config(0, "TYPE_FP32", "4, 5, 3", &parameters(pairs)))
}

#[test]
fn models_with_any_of_the_layouts_are_loaded() {
    for datatype in ["TYPE_UINT8", "TYPE_FP32"] {
        for dims in ["4, 5, 3", "3, 4, 5", "4, 5, 1", "1, 4, 5"] {
            for max_batch_size in [0, 8] {
                assert!(load(&config(max_batch_size, datatype, dims, "")).is_ok());
            }
        }
    }
    let reshaped = "reshape { shape: [ 4, 5, 3 ] } }";
    assert!(load(&config(0, "TYPE_UINT8", "60 ]", "").replace(" ] }", &format!("] {reshaped}"))).is_err());
}

#[test]
fn the_backend_needs_one_input_of_pictures() {
    let good = config(0, "TYPE_UINT8", "4, 5, 3", "");
    let rule = "Invalid argument: model 'model' of backend 'image' must have an input of TYPE_STRING with dims [1], one \
                picture for each row, but 'ENCODED' is";
    assert_eq!(
        refusal(&good.replace("TYPE_STRING", "TYPE_UINT8")),
        format!("{rule} TYPE_UINT8 with dims [1]")
    );
    assert_eq!(
        refusal(&good.replace("dims: [ 1 ]", "dims: [ -1 ]")),
        format!("{rule} TYPE_STRING with dims [-1]")
    );
    assert_eq!(
        refusal(&good.replace("dims: [ 1 ]", "dims: [ 1 ] optional: true")),
        "Invalid argument: model 'model' of backend 'image' must not have an optional input, but 'ENCODED' is optional"
    );
    let second = "input { name: 'MORE' data_type: TYPE_STRING dims: [ 1 ] }";
    assert_eq!(
        refusal(&format!("{good}{second}")),
        "Invalid argument: model 'model' of backend 'image' must have one input, but it has 2"
    );
}

#[test]
fn the_backend_needs_one_output_of_a_fixed_size() {
    let rule = "Invalid argument: model 'model' of backend 'image' must have an output";
    for dims in ["4, 5", "4, 5, 4", "-1, 5, 3", "3, 5, -1", "65536, 5, 3", "1, 3, 4, 5"] {
        let spaced = dims.to_owned();
        assert_eq!(
            refusal(&config(0, "TYPE_UINT8", dims, "")),
            format!(
                "{rule} with dims [H, W, C] or [C, H, W], C being 3 for colours or 1 for grey, and H and W from 1 to 65535, \
                 but the dims of 'PIXELS' are [{spaced}]"
            )
        );
    }
    assert_eq!(
        refusal(&config(0, "TYPE_FP16", "4, 5, 3", "")),
        format!("{rule} of TYPE_UINT8 or TYPE_FP32, but 'PIXELS' is TYPE_FP16")
    );
    let second = "output { name: 'MORE' data_type: TYPE_UINT8 dims: [ 4, 5, 3 ] }";
    assert_eq!(
        refusal(&config(0, "TYPE_UINT8", "4, 5, 3", second)),
        "Invalid argument: model 'model' of backend 'image' must have one output, but it has 2"
    );
}

#[test]
fn a_configuration_that_would_have_no_effect_is_refused() {
    let said = refusal(&config(2, "TYPE_UINT8", "4, 5, 3", "sequence_batching {}"));
    assert!(said.contains("must not have sequence_batching"), "{said}");
    let ragged = "batch_input { kind: BATCH_ELEMENT_COUNT target_name: 'N' data_type: TYPE_FP32 source_input: 'ENCODED' }";
    let said = refusal(&config(2, "TYPE_UINT8", "4, 5, 3", ragged));
    assert!(said.contains("must not have batch_input or batch_output"), "{said}");
}

#[test]
fn an_unknown_way_to_resize_is_refused() {
    assert_eq!(
        with(&[("RESIZE", "fit")]),
        "Invalid argument: parameter 'RESIZE' of model 'model' must be stretch, crop or pad; it is 'fit'"
    );
    assert!(with(&[("RESIZE", "")]).ends_with("it is ''"));
}

#[test]
fn numbers_are_checked() {
    let number = |name: &str, value: &str| with(&[(name, value)]);
    for value in ["x", "inf", "NaN", "", "1,1"] {
        assert_eq!(
            number("SCALE", value),
            format!(
                "Invalid argument: parameter 'SCALE' of model 'model' must be a finite number; it is '{value}'"
            )
        );
    }
    for value in ["x", "0", "-1", "1.5", ""] {
        assert_eq!(
            number("MAX_PIXELS", value),
            format!(
                "Invalid argument: parameter 'MAX_PIXELS' of model 'model' must be a whole number from 1; it is '{value}'"
            )
        );
    }
    for name in ["MEAN", "STD"] {
        for value in ["x", "1,2", "1,2,3,4", "1,,3", "1,2,inf", ""] {
            assert_eq!(
                number(name, value),
                format!(
                    "Invalid argument: parameter '{name}' of model 'model' must be one finite number, or 3 that are \
                     separated by commas; it is '{value}'"
                )
            );
        }
    }
    assert_eq!(
        number("STD", "1, 0, 1"),
        "Invalid argument: parameter 'STD' of model 'model' must not be zero, because values are divided by it; it is \
         '1, 0, 1'"
    );
    assert_eq!(
        refusal(&config(0, "TYPE_FP32", "4, 5, 1", &parameters(&[("MEAN", "1,2,3")]))),
        "Invalid argument: parameter 'MEAN' of model 'model' must be one finite number, because the output has one channel; \
         it is '1,2,3'"
    );
}

#[test]
fn bytes_are_not_normalised() {
    let bytes = |name, value| config(0, "TYPE_UINT8", "4, 5, 3", &parameters(&[(name, value)]));
    for (name, value) in [("MEAN", "0"), ("STD", "1"), ("SCALE", "0.5")] {
        assert_eq!(
            refusal(&bytes(name, value)),
            format!(
                "Invalid argument: parameter '{name}' of model 'model' is for outputs of TYPE_FP32 only, and output 'PIXELS' \
                 is TYPE_UINT8; it is '{value}'"
            )
        );
    }
    assert!(load(&bytes("SCALE", "1")).is_ok());
}

#[test]
fn an_output_of_more_pixels_than_allowed_is_refused() {
    let text = |pixels| config(0, "TYPE_UINT8", "4, 5, 3", &parameters(&[("MAX_PIXELS", pixels)]));
    assert!(load(&text("20")).is_ok());
    assert_eq!(
        refusal(&text("19")),
        "Invalid argument: model 'model' of backend 'image' must not have an output of more pixels than parameter \
         'MAX_PIXELS' allows (19), but the dims of 'PIXELS' are [4, 5, 3]"
    );
}

#[test]
fn an_instance_on_a_gpu_is_refused() {
    let Err(error) = load_on(&config(0, "TYPE_UINT8", "4, 5, 3", ""), InstanceDevice::Gpu(1)) else {
        panic!("there is no such instance")
    };
    assert_eq!(
        error.with_code(),
        "Unsupported: instance 'model_0' wants GPU 1, but pictures are decoded on the CPU"
    );
}

#[test]
fn misspelt_parameters_can_be_recognised() {
    let known = ImageBackend.known_names().unwrap();
    for name in ["RESIZE", "SCALE", "MEAN", "STD", "MAX_PIXELS"] {
        assert!(known.parameters.contains(&name));
    }
}

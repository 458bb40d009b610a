//! Requests of several rows, and batches of several requests.
use inference::{OutputSelection, Request};
use vocabulary::{ErrorCode, FailureReason};

use crate::support::{bytes_of, config, load, png, request, rgb};

fn pictures() -> [Vec<u8>; 3] {
    [[1; 3], [2; 3], [3; 3]].map(|pixel| png(rgb(1, &[pixel])))
}

#[test]
fn the_rows_of_a_request_are_one_tensor() {
    let [one, two, three] = pictures();
    let mut model = load(&config(8, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    let response = model.run(vec![request(&[3, 1], &[&one, &two, &three])]).remove(0).unwrap();
    let output = response.output("PIXELS").unwrap();
    assert_eq!(output.shape(), [3, 1, 2, 3]);
    assert_eq!(bytes_of(&response)[..], [[1; 6], [2; 6], [3; 6]].concat());
    assert_eq!(response.outputs.len(), 1);
}

#[test]
fn without_a_batch_dimension_the_output_has_none() {
    let mut model = load(&config(0, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    let response = model.picture(&pictures()[0]).unwrap();
    assert_eq!(response.output("PIXELS").unwrap().shape(), [1, 2, 3]);
}

#[test]
fn clients_see_the_dims_and_not_those_of_the_reshape() {
    let text = config(8, "TYPE_UINT8", "6", "").replace("[ 6 ]", "[ 6 ] reshape { shape: [ 1, 2, 3 ] }");
    let response = load(&text).unwrap().run(vec![request(&[1, 1], &[&pictures()[0]])]).remove(0).unwrap();
    assert_eq!(response.output("PIXELS").unwrap().shape(), [1, 6]);
}

#[test]
fn a_bad_picture_is_an_error_of_its_own_request_only() {
    let [one, two, three] = pictures();
    let mut model = load(&config(8, "TYPE_UINT8", "1, 1, 3", "")).unwrap();
    let answers = model.run(vec![
        request(&[1, 1], &[&one]),
        request(&[3, 1], &[&two, b"no picture", &two]),
        request(&[1, 1], &[b"no picture"]),
        request(&[1, 1], &[&three]),
    ]);
    assert_eq!(bytes_of(answers[0].as_ref().unwrap())[..], [1; 3]);
    assert_eq!(bytes_of(answers[3].as_ref().unwrap())[..], [3; 3]);
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!((error.code, error.reason), (ErrorCode::InvalidArgument, FailureReason::Backend));
    assert_eq!(
        error.message,
        "input 'ENCODED' for model 'model' is not a PNG or JPEG picture in row 2 of 3: it has the signature of neither \
         format"
    );
    assert_eq!(
        answers[2].as_ref().unwrap_err().message,
        "input 'ENCODED' for model 'model' is not a PNG or JPEG picture: it has the signature of neither format"
    );
}

#[test]
fn a_request_that_nobody_waits_for_is_not_decoded() {
    let [one, two, _] = pictures();
    let mut model = load(&config(8, "TYPE_UINT8", "1, 1, 3", "")).unwrap();
    let requests = vec![request(&[1, 1], &[&one]), request(&[1, 1], &[&two])];
    let answers = model.run_after(requests, |streams| streams[0].cancel());
    assert_eq!(answers[0].as_ref().unwrap_err().with_code(), "Cancelled: request was cancelled");
    assert_eq!(bytes_of(answers[1].as_ref().unwrap())[..], [2; 3]);
}

#[test]
fn an_output_that_nobody_wants_is_not_made() {
    let mut model = load(&config(0, "TYPE_UINT8", "1, 1, 3", "")).unwrap();
    let nothing = || Request { outputs: OutputSelection::Nothing, ..request(&[1], &[b"no picture"]) };
    assert!(model.run(vec![nothing()]).remove(0).unwrap().outputs.is_empty());
}

#[test]
fn several_pictures_need_a_batch_dimension() {
    let [one, two, _] = pictures();
    let mut model = load(&config(0, "TYPE_UINT8", "1, 1, 3", "")).unwrap();
    let error = model.run(vec![request(&[1], &[&one, &two])]).remove(0).unwrap_err();
    assert_eq!(error.message, "input 'ENCODED' for model 'model' has 2 pictures, expecting 1");
}

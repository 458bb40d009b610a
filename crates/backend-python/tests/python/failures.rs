//! What goes wrong in a model, in Triton's words. The instance goes on.
use vocabulary::ErrorCode;

use crate::support::{CONFIG, TestModel, request};

/// Behaves if the first value is zero; otherwise does what the lines say.
fn behaving_unless(lines: &str) -> TestModel {
    let lines: String = lines.lines().map(|line| format!("        {line}\n")).collect();
    let methods = format!(
        "def execute(self, requests):\n    if any(x_of(request)[0] for request in requests):\n{lines}    \
         return [y(x_of(request)) for request in requests]"
    );
    TestModel::new(CONFIG, &methods)
}

const HEAD: &str = "Failed to process the request(s) for model 'm_0', message: ";

#[test]
fn a_broken_rule_fails_the_whole_batch_and_the_model_goes_on() {
    let wrong =
        "Expected an 'InferenceResponse' object in the execute function return list, found type '<class ";
    for (lines, expected) in [
        ("raise ValueError('not today')", "ValueError: not today\n\nAt:\n  ".to_owned()),
        (
            "return 'nonsense'",
            "Expected a list in the execute return, found type '<class 'str'>'.".to_owned(),
        ),
        ("return None", "Expected a list in the execute return, found type '<class 'NoneType'>'.".to_owned()),
        ("return [None] * len(requests)", format!("{wrong}'NoneType'>'.")),
        ("return [y([1])] + [7] * (len(requests) - 1)", format!("{wrong}'int'>'.")),
        (
            "return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. \
             InferenceRequest(s) size is:2, and InferenceResponse(s) size is:0\n"
                .to_owned(),
        ),
        ("raise SystemExit(3)", "SystemExit: 3".to_owned()),
        (
            "return [y([1]), pb_utils.InferenceResponse([None])]",
            "TritonModelException: Output tensor".to_owned(),
        ),
        (
            "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.array([1j]))])] * 2",
            "TritonModelException: NumPy dtype is not supported.".to_owned(),
        ),
    ] {
        let loaded = behaving_unless(lines).load().unwrap();
        for answer in loaded.run(vec![request(&[1.0]), request(&[0.0])]) {
            let error = answer.unwrap_err();
            assert_eq!(error.code, ErrorCode::Internal);
            assert!(error.message.starts_with(&format!("{HEAD}{expected}")), "{lines}: {error}");
        }
        assert_eq!(loaded.ask(&[0.0]), Ok(vec![0.0]));
    }
}

#[test]
fn the_place_of_an_exception_is_the_models() {
    let loaded = behaving_unless("raise ValueError('not today')").load().unwrap();
    let error = loaded.failure(&[1.0]);
    let places: Vec<_> = error.message.lines().skip_while(|line| *line != "At:").skip(1).collect();
    assert_eq!(places.len(), 1, "{error}");
    assert!(places[0].ends_with("/m/1/model.py(14): execute"), "{error}");
}

#[test]
fn an_exception_shows_no_directory_of_the_server_if_that_is_wanted() {
    let model = behaving_unless("raise ValueError('not today')").with_setting("error-paths", "relative");
    let error = model.load().unwrap().failure(&[1.0]);
    assert!(
        error.message.ends_with("ValueError: not today\n\nAt:\n  m/1/model.py(14): execute\n"),
        "{error}"
    );
}

#[test]
fn an_error_of_one_request_is_only_its_own() {
    let methods = "def execute(self, requests):\n    return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no', \
                   pb_utils.TritonError.NOT_FOUND)) if x_of(request)[0] else y([1]) for request in requests]";
    let loaded = TestModel::new(CONFIG, methods).load().unwrap();
    let mut answers = loaded.run(vec![request(&[1.0]), request(&[0.0])]);
    assert!(answers.remove(1).is_ok());
    assert_eq!(answers.remove(0).unwrap_err().with_code(), "Not found: no");
}

#[test]
fn a_model_without_execute_cannot_execute() {
    let loaded = TestModel::new(CONFIG, "pass").load().unwrap();
    let error = loaded.failure(&[1.0]);
    assert!(error.message.contains("/m/1/model.py does not implement `execute` method."), "{error}");
}

#[test]
fn a_decoupled_model_must_return_nothing() {
    let config = format!("{CONFIG}model_transaction_policy {{ decoupled: true }}\n");
    let loaded = TestModel::new(&config, "def execute(self, requests):\n    return []").load().unwrap();
    let error = loaded.failure(&[1.0]);
    assert_eq!(
        error.message,
        format!(
            "{HEAD}Python model 'm_0' is using the decoupled mode and the execute function must return None."
        )
    );
}

#[test]
fn outputs_are_compared_with_the_configuration_where_it_says_so() {
    let strict = format!("{CONFIG}parameters {{ key: 'STRICT_OUTPUTS' value: {{ string_value: 'yes' }} }}\n");
    for (output, text) in [
        (
            "np.zeros(1, np.int32)",
            "output 'Y' of model 'm' has datatype INT32, but the configuration has FP32",
        ),
        (
            "np.zeros((1, 2), np.float32)",
            "output 'Y' of model 'm' has shape [1, 2], but the configuration has [-1]",
        ),
    ] {
        let methods = format!(
            "def execute(self, requests):\n    return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', {output})])]"
        );
        let error = TestModel::new(&strict, &methods).load().unwrap().failure(&[1.0]);
        assert_eq!(error.message, text);
        assert!(TestModel::new(CONFIG, &methods).load().unwrap().run(vec![request(&[1.0])])[0].is_ok());
    }
}

//! Tests of sources that the text format accepts and refuses, one row for each rule.

use proto::text::{MistakeKind, parse, parse_what_can_be};
use proto::{ModelConfig, json};

fn config(source: &str) -> ModelConfig {
    parse(source.as_bytes()).unwrap_or_else(|error| panic!("{source}\n{error}")).config
}

/// The reader accepts both sources, and they have the same value.
fn same(source: &str, plain: &str) {
    assert_eq!(json::to_json(&config(source)), json::to_json(&config(plain)), "{source}");
}

#[test]
fn every_notation_that_is_accepted_means_what_its_plain_form_means() {
    let rows = [
        ("", "# nothing"),
        ("name: 'a'# to the end\r\n", "name: \"a\""),
        ("\t name \x0b:\x0c 'a' ", "name: 'a'"),
        ("optimization < graph < level: 1 > >", "optimization { graph { level: 1 } }"),
        ("optimization: { graph: { level: 1 } }", "optimization { graph { level: 1 } }"),
        ("name: 'a', platform: 'b'; backend: 'c'", "name: 'a' platform: 'b' backend: 'c'"),
        ("input [ { name: 'a' }, < name: 'b' > ]", "input { name: 'a' } input { name: 'b' }"),
        ("input: [ { name: 'a' } ]", "input { name: 'a' }"),
        ("input [] output: []", ""),
        ("input { dims: [ 1, 2 ] dims: 3 dims: [] dims: [ 4 ] }", "input { dims: [ 1, 2, 3, 4 ] }"),
        ("name: \"a\" 'b'\n\"c\"", "name: 'abc'"),
        (r#"name: "\x41\101\u0041\n\t\"\'""#, "name: 'AAA\\n\\t\"\\''"),
        ("name: 'zoë'", r"name: 'zo\303\253'"),
        ("max_batch_size: 0x10", "max_batch_size: 16"),
        ("max_batch_size: 020", "max_batch_size: 16"),
        ("max_batch_size: - 1", "max_batch_size: -1"),
        ("max_batch_size: -2147483648", "max_batch_size: -0x80000000"),
        ("input { data_type: 11 }", "input { data_type: TYPE_FP32 }"),
        (
            "parameters { key: 'k' value { string_value: 'v' } }",
            "parameters [ { key: 'k', value < string_value: 'v' > } ]",
        ),
        (
            "parameters: { value: { string_value: 'v' } key: 'k' }",
            "parameters { key: 'k' value { string_value: 'v' } }",
        ),
        (
            "metric_tags { key: 'k' value: '1' } metric_tags { key: 'k' value: '2' }",
            "metric_tags { key: 'k' value: '2' }",
        ),
        ("metric_tags { key: 'k' }", "metric_tags { key: 'k' value: '' }"),
        ("metric_tags {}", "metric_tags { key: '' value: '' }"),
    ];
    for (source, plain) in rows {
        same(source, plain);
    }
}

#[test]
fn booleans_have_eight_spellings() {
    for (word, value) in [
        ("true", true),
        ("True", true),
        ("t", true),
        ("1", true),
        ("false", false),
        ("False", false),
        ("f", false),
        ("0", false),
    ] {
        let config = config(&format!("response_cache {{ enable: {word} }}"));
        assert_eq!(config.response_cache.unwrap().enable, value, "{word}");
    }
    for word in ["TRUE", "FALSE", "yes", "2", "-1", "1.0", "'true'"] {
        assert!(parse(format!("response_cache {{ enable: {word} }}").as_bytes()).is_err(), "{word}");
    }
}

#[test]
fn floats_have_words_suffixes_and_whole_numbers() {
    let buckets = "1, -1, 1.5, .5, 5., 1e2, 1.5f, 2f, inf, -inf, Infinity";
    let source =
        format!("model_metrics {{ metric_control {{ histogram_options {{ buckets: [ {buckets} ] }} }} }}");
    let config = config(&source);
    let control = &config.model_metrics.unwrap().metric_control[0];
    let Some(proto::model_metrics::metric_control::MetricOptions::HistogramOptions(options)) =
        &control.metric_options
    else {
        panic!("no histogram options in {control:?}")
    };
    let wanted = [1.0, -1.0, 1.5, 0.5, 5.0, 100.0, 1.5, 2.0, f64::INFINITY, -f64::INFINITY, f64::INFINITY];
    assert_eq!(options.buckets, wanted);
}

#[test]
fn a_float_may_be_no_number() {
    let source = "sequence_batching { direct { minimum_slot_utilization: nan } }";
    assert!(json::to_json(&config(source)).contains(r#""minimum_slot_utilization":"NaN""#));
}

#[test]
fn a_scalar_that_was_given_with_its_default_may_be_given_again() {
    let config =
        config("max_batch_size: 0 max_batch_size: 4 name: '' name: 'm' input { data_type: 0 data_type: 8 }");
    assert_eq!((config.max_batch_size, &*config.name, config.input[0].data_type), (4, "m", 8));
}

/// Texts with a mistake, and what their error says.
const MISTAKES: &[(&str, &str)] = &[
    ("\u{feff}name: 'a'", "1:1: the file has a byte-order mark"),
    ("nmae: 'a'", "1:1: 'nmae' is not a field of ModelConfig, did you mean 'name'?"),
    ("maxBatchSize: 1", "did you mean 'max_batch_size'?"),
    ("frobnicate: 1", "1:1: 'frobnicate' is not a field of ModelConfig\n"),
    ("input {\n  dim: 1\n}", "2:3: 'dim' is not a field of ModelInput, did you mean 'dims'?"),
    (
        "input { data_type: type_fp32 }",
        "1:20: 'type_fp32' is not a value of DataType, did you mean 'TYPE_FP32'?",
    ),
    ("input { data_type: FP32 }", "is not a value of DataType"),
    ("name: 'a'\nname: 'b'", "2:1: 'name' is already set on line 1"),
    ("max_batch_size: 4 max_batch_size: 4", "1:19: 'max_batch_size' is already set"),
    (
        "max_batch_size: 0\nmax_batch_size: 4\nmax_batch_size: 0",
        "3:1: 'max_batch_size' is already set on line 2",
    ),
    ("version_policy { all {} all {} }", "'all' is already set"),
    ("optimization {} optimization {}", "'optimization' is already set"),
    ("metric_tags { key: 'a' key: 'b' }", "'key' is already set"),
    (
        "dynamic_batching {}\nsequence_batching {}",
        "2:1: 'sequence_batching' excludes 'dynamic_batching' of line 1: only one scheduling choice",
    ),
    (
        "sequence_batching { state { initial_state { zero_data: true data_file: 'x' } } }",
        "'data_file' excludes 'zero_data'",
    ),
    (
        "input {",
        "1:8: expected the name of a field or '}' to close 'input' of line 1, found the end of the file",
    ),
    (
        "input {\n name: 'a'\noutput { name: 'b' }",
        "3:1: 'output' is not a field of ModelInput but of ModelConfig: is the end of 'input' of line 1 missing?",
    ),
    ("name: 'a' }", "1:11: '}' closes nothing"),
    ("input { name: 'a' >", "found '>'"),
    ("input < name: 'a' }", "found '}'"),
    ("input [ { name: 'a' }", "expected ',' or ']' in the list 'input', found the end"),
    ("input [ { name: 'a' } { name: 'b' } ]", "expected ',' or ']' in the list 'input', found '{'"),
    ("input { dims: [ 1, ] }", "1:20: the list 'dims' may not end in a comma"),
    ("input { dims [ 1 ] }", "expected ':' after 'dims', found '['"),
    ("input { dims: [ , ] }", "expected a 64-bit integer for 'dims', found ','"),
    ("max_batch_size: [ 1 ]", "'max_batch_size' takes one value, not a list"),
    ("max_batch_size 1", "expected ':' after 'max_batch_size'"),
    ("max_batch_size: 1.0", "1:17: expected a 32-bit integer for 'max_batch_size', found '1.0'"),
    ("max_batch_size: 2147483648", "expected a 32-bit integer for 'max_batch_size', found '2147483648'"),
    ("max_batch_size: -2147483649", "found '-2147483649'"),
    ("max_batch_size: 99999999999999999999999", "found '99999999999999999999999'"),
    ("max_batch_size: '1'", "found a string"),
    ("max_batch_size: 08", "leading zero"),
    ("max_batch_size: 1a", "'a' may not follow the number '1' without a space"),
    ("model_warmup { batch_size: -1 }", "32-bit integer that is not negative for 'batch_size', found '-1'"),
    ("name: a", "expected a string in quotes for 'name', found 'a'"),
    ("name: 'a", "1:7: the string has no closing quote on its line"),
    ("name: 'a\nb'", "1:7: the string has no closing quote on its line"),
    ("name: 'ab\\q'", "1:10: '\\q' is not a known escape"),
    ("name: '\\400'", "'\\400' is more than a byte"),
    ("name: '\\xff'", "1:7: 'name' is not valid UTF-8"),
    ("name:: 'a'", "found ':'"),
    ("name: 'a',,", "expected the name of a field, found ','"),
    ("name: 'a' é: 1", "unexpected character 'é' outside of a string"),
    ("[ext.name]: 1", "expected the name of a field, found '['"),
    ("5: 'a'", "expected the name of a field, found '5'"),
    ("optimization: 1", "expected '{' after 'optimization', found '1'"),
    ("name: { }", "expected a string in quotes for 'name', found '{'"),
    ("sequence_batching { direct { minimum_slot_utilization: 0x1 } }", "expected a number"),
];

#[test]
fn mistakes_are_placed_and_explained() {
    for (source, wanted) in MISTAKES {
        let error = parse(source.as_bytes()).expect_err(source).to_string();
        assert!(error.contains(wanted), "{source}\n gives {error}\n and not {wanted}");
    }
}

#[test]
fn an_error_shows_the_file_the_line_and_the_place() {
    let error = parse(b"name: 'a'\ninput {\n\tdata_typ: TYPE_FP32\n}\n").unwrap_err();
    assert_eq!(
        error.in_file("models/a/config.pbtxt".as_ref()).to_string(),
        "models/a/config.pbtxt:3:2: 'data_typ' is not a field of ModelInput, did you mean 'data_type'?\n  \
         \tdata_typ: TYPE_FP32\n  \t^"
    );
}

#[test]
fn bytes_that_are_no_text_are_placed() {
    let error = parse(b"name: 'a'\nplatform: '\xff'").unwrap_err();
    assert_eq!((error.line, error.column, error.message.as_str()), (2, 12, "the file is not valid UTF-8"));
}

#[test]
fn a_very_long_line_is_shown_around_the_mistake_only() {
    let error =
        parse(format!("{}nmae: 1 {}", " ".repeat(100_000), "#".repeat(100_000)).as_bytes()).unwrap_err();
    assert_eq!(error.column, 100_001);
    assert!(error.to_string().len() < 1000);
}

#[test]
fn a_hundred_thousand_braces_are_an_error_and_nothing_more() {
    for source in ["{", "input {", "input [", "optimization {", "sequence_batching < state <"] {
        assert!(parse(source.repeat(100_000).as_bytes()).is_err());
    }
}

#[test]
fn what_the_source_set_is_known_with_its_line() {
    let source =
        "max_batch_size: 0\ninput [\n { name: 'a' },\n { name: 'b' dims: 1 }\n]\ninstance_group { count: 0 }";
    let fields = parse(source.as_bytes()).unwrap().fields;
    assert_eq!(fields.top_level().collect::<Vec<_>>(), ["input", "instance_group", "max_batch_size"]);
    assert!(fields.contains("instance_group[0].count") && !fields.contains("instance_group[0].kind"));
    assert_eq!(fields.line("max_batch_size"), Some(1));
    assert_eq!(fields.line("input[1]"), Some(4));
    assert_eq!(fields.line("input[1].dims"), Some(4));
    assert_eq!(fields.line("output"), None);
}

#[test]
fn all_misspelt_names_are_reported_together() {
    let source = "nme: 'm'\nmax_batchsize: -8\ninput {\n  name: 'x', data_typ: [ { a < b: 'c' \"d\" > } ];\n  \
                  data_type: TYPE_FLOAT32 dimz [ 1, 2 ]\n}\nparamters { key: 'k' }\nbackend: 'b'\noutput { name: 5 }";
    let error = parse(source.as_bytes()).unwrap_err();
    let places: Vec<_> =
        [&error].into_iter().chain(&error.others).map(|one| (one.line, one.column)).collect();
    assert_eq!(places, [(1, 1), (2, 1), (4, 14), (5, 14), (5, 27), (7, 1), (9, 16)], "{error}");
    let text = error.in_file(std::path::Path::new("c")).to_string();
    for part in [
        "c:1:1: 'nme' is not a field of ModelConfig, did you mean 'name'?\n  nme: 'm'\n  ^\n",
        "c:5:14: 'TYPE_FLOAT32' is not a value of DataType",
        "c:7:1: 'paramters' is not a field of ModelConfig, did you mean 'parameters'?",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn after_a_missing_brace_nothing_more_is_checked() {
    let error = parse(b"nme: 'm'\ninput { name: 'x'\nmax_batch_size: 1\nanother: 2").unwrap_err();
    assert!(
        error.others.len() == 1 && error.others[0].message.contains("is the end of 'input' of line 2"),
        "{error:?}"
    );
    let unclosed = parse(b"nme { a: 1").unwrap_err();
    assert_eq!(unclosed.others[0].message, "expected the end of a value, found the end of the file");
}

#[test]
fn wrong_values_and_repetitions_are_reported_together() {
    let source = "max_batch_size: 'x'\nname: 'a' name: 'b'\ninput { dims: [ 1, 'two', 3 ] data_type: 'FP32' optional: 7 }\n\
                  dynamic_batching { } sequence_batching { }\nbackend:\nplatform: 'p'";
    let error = parse(source.as_bytes()).unwrap_err();
    let kinds: Vec<_> = error.each().map(|one| (one.line, one.kind)).collect();
    use MistakeKind::{Repeated, WrongValue};
    assert_eq!(
        kinds,
        [
            (1, WrongValue),
            (2, Repeated),
            (3, WrongValue),
            (3, WrongValue),
            (3, WrongValue),
            (4, Repeated),
            (6, WrongValue)
        ],
        "{error}"
    );
}

#[test]
fn a_misspelt_name_counts_as_the_name_that_was_probably_meant() {
    let (parsed, error) =
        parse_what_can_be(b"max_batchsize: 4 inputs { nme: 'x' dimz: 3 data_type: TYPE_F32 } colour: 'red'");
    let meant: Vec<_> = error.as_ref().unwrap().each().map(|one| one.suggestion.as_deref()).collect();
    assert_eq!(
        meant,
        [Some("max_batch_size"), Some("input"), Some("name"), Some("dims"), Some("TYPE_FP32"), None]
    );
    let config = &parsed.config;
    assert_eq!(
        (config.max_batch_size, config.input[0].name.as_str(), &config.input[0].dims[..]),
        (4, "x", &[3][..])
    );
    let place = parsed.fields.position("input[0].dims").unwrap();
    assert_eq!((place.line, place.column), (1, 36));
}

#[test]
fn a_misspelt_name_whose_value_does_not_fit_is_skipped() {
    let (parsed, error) = parse_what_can_be(b"max_batchsize: 'four' max_batch_size: 4");
    assert_eq!((error.unwrap().each().count(), parsed.config.max_batch_size), (1, 4));
}

#[test]
fn mistakes_beyond_a_hundred_are_counted() {
    let mistakes = |count: usize| {
        let source = (1..=count).map(|number| format!("max_batchsize: {number}\n")).collect::<String>();
        parse(format!("{source}name: 'm' }}").as_bytes()).unwrap_err()
    };
    let all: Vec<_> = mistakes(100).each().map(|one| one.line).collect();
    assert_eq!(all, (1..=101).collect::<Vec<_>>());
    for (count, text) in
        [(101, "and 1 more mistake from here on"), (123, "and 23 more mistakes from here on")]
    {
        let error = mistakes(count);
        let [.., further, end] = &error.others[..] else { panic!("{error}") };
        assert_eq!((error.others.len(), further.line, further.message.as_str()), (101, 101, text));
        assert_eq!(end.line, count + 1);
    }
}

#[test]
fn characters_that_a_terminal_obeys_are_shown_escaped() {
    let error = parse(b"name: '\x1b[2J' oops").unwrap_err();
    let shown = error.in_file(std::path::Path::new("a\x1b[1m")).to_string();
    assert!(shown.starts_with("a\\u{1b}[1m:1:"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
    let [line, caret] = shown.lines().skip(1).collect::<Vec<_>>()[..] else { panic!("{shown}") };
    assert_eq!(line.find("oops"), caret.find('^'), "{shown}");
}

#[test]
fn bytes_of_another_encoding_are_refused_outside_of_comments() {
    let parsed = parse(b"# M\xfcller, 2019\nmax_batch_size: 4 # gr\xf6\xdfer").unwrap();
    assert_eq!(parsed.config.max_batch_size, 4);
    let error = parse(b"# M\xfcller\nplatform: 'caf\xe9'").unwrap_err();
    assert_eq!((error.line, error.column, error.message.as_str()), (2, 15, "the file is not valid UTF-8"));
    let error = parse(b"# \xfc\nmax_batch_size: 4 # \xfc\nnme: 'x'").unwrap_err();
    assert_eq!((error.line, error.column), (3, 1), "places stay right behind such a comment");
}

#[test]
fn of_many_misspelt_names_only_the_first_have_their_values_read() {
    let misspelt = "inpt { nam: 'x' }\n".repeat(30);
    let error = parse(misspelt.as_bytes()).unwrap_err();
    let of =
        |name: &str| error.each().filter(|error| error.message.starts_with(&format!("'{name}'"))).count();
    // Each value has a misspelt name, too.
    assert_eq!((of("inpt"), of("nam")), (30, 10));
}

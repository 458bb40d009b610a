//! The formatter and the writer of the text form.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
use std::fs;

use proto::text::{format, leaves, parse, write};

/// The sample configurations.
fn samples() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/configs");
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let texts = paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "pbtxt"));
    texts.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn formatting_keeps_the_meaning_and_is_done_once() {
    for source in samples() {
        let formatted = format(source.as_bytes()).unwrap();
        assert_eq!(parse(formatted.as_bytes()).unwrap().config, parse(source.as_bytes()).unwrap().config);
        assert_eq!(format(formatted.as_bytes()).unwrap(), formatted);
    }
}

#[test]
fn comments_order_and_blank_lines_stay() {
    let source = "# A model.\n\n\n\nmax_batch_size:4 ; # rows\nname:'m'\n\n# in\ninput<name:'x',dims:[1,2];data_type : TYPE_FP32 # type\n>\n\
                  output [ { name: \"y\" data_type: TYPE_FP32 dims: [\n 3 # classes\n, 4 ] }, # last\n # end\n]\n\
                  parameters { key: \"k\" value: { string_value: \"it's\" } }\n# bye";
    let wanted = "# A model.\n\nmax_batch_size: 4  # rows\nname: \"m\"\n\n# in\ninput {\n  name: \"x\"\n  dims: [ 1, 2 ]\n  \
                  data_type: TYPE_FP32  # type\n}\noutput [\n  {\n    name: \"y\"\n    data_type: TYPE_FP32\n    dims: [\n      \
                  3,  # classes\n      4\n    ]\n  }\n]\nparameters { key: \"k\" value { string_value: \"it's\" } }\n# bye\n";
    // A list may not end in a comma.
    let source = source.replace("}, # last\n # end\n]", "}\n]");
    assert_eq!(format(source.as_bytes()).unwrap(), wanted);
}

#[test]
fn no_comment_is_lost_wherever_it_stands() {
    let tokens = "input [ { name : 'a' 'b' , dims : [ 1 , - 2 ] ; data_type : TYPE_FP32 } , { } ] dynamic_batching { } #z";
    let words: Vec<_> = tokens.split(' ').collect();
    for place in 0..words.len() {
        let mut words = words.clone();
        let comment = "\n# here\n";
        words.insert(place, comment);
        let source = words.join(" ");
        let formatted = format(source.as_bytes()).unwrap();
        assert_eq!(parse(formatted.as_bytes()).unwrap().config, parse(source.as_bytes()).unwrap().config);
        assert_eq!(formatted.matches("# here").count(), 1, "{source}\n{formatted}");
        assert_eq!(format(formatted.as_bytes()).unwrap(), formatted, "{source}");
    }
}

#[test]
fn what_is_no_configuration_is_not_formatted() {
    assert_eq!(format(b"name: 'a'\nnme: 'b'").unwrap_err().line, 2);
    // To replace the bytes of a comment would lose them.
    let error = format(b"name: 'a'\n# M\xfcller").unwrap_err();
    assert_eq!((error.line, error.message.as_str()), (2, "the file is not valid UTF-8"));
}

#[test]
fn what_is_written_reads_back() {
    for source in samples() {
        let config = parse(source.as_bytes()).unwrap().config;
        let written = write(&config, |_| None);
        let read = parse(written.as_bytes()).unwrap_or_else(|error| panic!("{written}\n{error}"));
        assert_eq!(read.config, config, "{written}");
        for leaf in leaves(&config) {
            let maps = ["parameters", "tags", "filenames", "inputs", "_map", "policy", "graph_"];
            let is_plain = !maps.iter().any(|map| leaf.path.contains(map));
            assert!(!is_plain || read.fields.contains(&leaf.path), "{} in {written}", leaf.path);
        }
    }
}

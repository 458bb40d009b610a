//! The pages that the program writes are in `docs` as it writes them. `cargo xtask docs --write` renews them.
use std::{collections::BTreeSet, fs};

use assembly::LibraryBackends;
use backend_onnx::OnnxBackend;
use backend_openvino::OpenVinoBackend;
use backend_pytorch::AotInductorBackend;
use native_backend::LibrarySearch;
use object_stores::CacheOptions;
use testing::plugins::root;

fn printed(subject: &str) -> String {
    let output = testing::command(env!("CARGO_BIN_EXE_nereid")).args(["man", subject]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn check(subject: &str, page: &str) {
    let committed = fs::read_to_string(root().join(page)).unwrap();
    let printed = printed(subject);
    let first = committed.lines().zip(printed.lines()).find(|(committed, printed)| committed != printed);
    assert!(committed == printed, "{page} is old: `cargo xtask docs --write` renews it; first: {first:?}");
}

#[test]
fn the_page_of_the_options_is_new() {
    check("options", "docs/options.md");
}

#[test]
fn the_page_of_the_configuration_is_new() {
    check("configuration", "docs/configuration-reference.md");
}

/// A name that no note describes would be left out of the page.
#[test]
fn each_name_that_a_backend_knows_is_described() {
    let page = printed("configuration");
    let described: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let host = in_process::Server::hosting();
    let cache = CacheOptions { directory: "/none".into(), max_unused_bytes: 0 };
    let backends = LibraryBackends {
        onnxruntime: OnnxBackend::new(LibrarySearch::default()),
        openvino: OpenVinoBackend::new(LibrarySearch::default()),
        pytorch: AotInductorBackend::new(LibrarySearch::default()),
    };
    let plugins = assembly::plugins(host.handle(), backends, "/none".into(), cache);
    let known = plugins.backends.iter().filter_map(|backend| backend.known_names());
    let missing: Vec<_> = known
        .flat_map(|names| [names.parameters, names.settings].concat())
        .chain(config::SETTINGS_OF_ALL_BACKENDS)
        .filter(|name| !described.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

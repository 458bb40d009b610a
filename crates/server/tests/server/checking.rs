//! The commands `check`, `config` and `init` of the program: exit codes, forms, files.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// A message of the ONNX format: the field of that number.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16 && content.len() < 128);
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// A graph with the FP32 tensor `[N, 16]` as the input X and as the output Y.
fn graph() -> Vec<u8> {
    let dims = [field(1, &field(2, b"N")), field(1, &[8, 16])].concat();
    let tensor = field(2, &field(1, &[&[8, 1][..], &field(2, &dims)].concat()));
    let value = |name: &str| [field(1, name.as_bytes()), tensor.clone()].concat();
    let graph = [field(11, &value("X")), field(12, &value("Y"))].concat();
    [&[8, 8][..], &field(7, &graph)].concat()
}

/// A repository with an ONNX model `net` and this configuration, if it is not empty.
fn repository(config: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("net/1")).unwrap();
    fs::write(root.path().join("net/1/model.onnx"), graph()).unwrap();
    if !config.is_empty() {
        fs::write(root.path().join("net/config.pbtxt"), config).unwrap();
    }
    root
}

/// Runs a command of the program. `{}` stands for the path.
fn run(line: &str, path: &Path) -> (Option<i32>, String, String) {
    let words = line.split(' ').map(|word| word.replace("{}", path.to_str().unwrap()));
    let Output { status, stdout, stderr } = testing::command(env!("CARGO_BIN_EXE_nereid"))
        .args(words)
        .env_remove("AIP_STORAGE_URI")
        .current_dir(path)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn exit_codes_tell_what_was_found() {
    let good = repository("max_batch_size: 4");
    let (code, out, err) = run("check {}", good.path());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(out, "1 model checked: 0 errors, 0 warnings, 0 notes\n");

    let bad = repository("max_batch_size: -1");
    assert_eq!(run("check {}", bad.path()).0, Some(1));
    assert_eq!(run("check --model-repository={}", bad.path()).0, Some(1));
    assert_eq!(run("check {}/none", bad.path()).0, Some(1));

    let warned = repository("response_cache { enable: true }");
    assert_eq!(run("check {}", warned.path()).0, Some(0));
    assert_eq!(run("check --strict {}", warned.path()).0, Some(3));
    assert_eq!(run("check --strict --cache-config=local,size=1000000 {}", warned.path()).0, Some(0));

    for wrong in
        ["check", "check --nonsense {}", "check --format=yaml {}", "check --format", "check s3://bucket/x"]
    {
        let (code, out, err) = run(wrong, good.path());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{wrong}");
        assert!(err.contains("Usage: nereid check"), "{wrong}: {err}");
    }
    assert!(run("check --rules", good.path()).1.contains("unknown-field "));
    assert!(run("check --help", good.path()).1.starts_with("Usage: nereid check"));
}

#[test]
fn a_graph_is_compared_with_its_configuration() {
    let config = "input { name: 'x1' data_type: TYPE_FP32 dims: 16 }\noutput { name: 'Y' data_type: TYPE_INT64 dims: 8 }\n\
                  max_batch_size: 4\nparameters { key: 'execution_mod' value { string_value: '0' } }\n";
    let (code, out, _) = run("check --format json {}", repository(config).path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(1));
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().collect();
    let told: Vec<_> = findings
        .iter()
        .map(|finding| (finding["line"].as_u64().unwrap(), finding["message"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (1, "unexpected inference input 'x1', allowed inputs are: X"),
            (
                2,
                "unable to load model 'net', configuration expects datatype TYPE_INT64 for output 'Y', model provides TYPE_FP32"
            ),
            (
                4,
                "parameter 'execution_mod' of model 'net' has no effect: backend 'onnxruntime' does not know it, did you mean \
                 'execution_mode'?"
            ),
        ]
    );
    let unread = repository("");
    fs::write(unread.path().join("net/1/model.onnx"), "no graph").unwrap();
    let (code, out, _) = run("check {}", unread.path());
    assert!(
        code == Some(1) && out.contains("error[model-file]") && out.contains("is not an ONNX model"),
        "{out}"
    );
}

#[test]
fn files_are_formatted_in_place_and_only_if_they_are_configurations() {
    let root = repository("max_batch_size:4 # rows\n");
    let file = root.path().join("net/config.pbtxt");
    let (code, _, err) = run("config fmt --check {}/net/config.pbtxt", root.path());
    assert!(code == Some(1) && err.ends_with("config.pbtxt is not formatted\n"), "{err}");
    assert_eq!(run("config fmt {}/net/config.pbtxt", root.path()).0, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "max_batch_size: 4  # rows\n");
    assert_eq!(run("config fmt --check {}/net/config.pbtxt", root.path()).0, Some(0));
    fs::write(&file, "max_batchsize: 4").unwrap();
    let (code, _, err) = run("config fmt {}/net/config.pbtxt", root.path());
    assert!(code == Some(1) && err.contains("did you mean 'max_batch_size'?"), "{err}");
    for wrong in
        ["config fmt", "config", "config frob", "config fmt --chek {}", "config show", "config schema x"]
    {
        assert_eq!(run(wrong, root.path()).0, Some(2), "{wrong}");
    }
}

#[test]
fn values_have_origins_and_a_written_configuration_says_the_same() {
    let root = repository("");
    let (code, shown, err) = run("config show {}/net", root.path());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        "# version 1\n",
        "backend: \"onnxruntime\"  # the model's files\n",
        "max_batch_size: 4  # default for a graph that can batch\n",
        "  dims: [ 16 ]  # the model's file\n",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let given =
        run("config show --backend-config=onnxruntime,default-max-batch-size=9 {}/net", root.path()).1;
    assert!(given.contains("max_batch_size: 9  # --backend-config=default-max-batch-size\n"), "{given}");
    let json: serde_json::Value =
        serde_json::from_str(&run("config show --format=json {}/net", root.path()).1).unwrap();
    assert_eq!(json["config"]["max_batch_size"], 4);
    assert_eq!(json["origins"]["name"], "the directory's name");

    let printed = run("init --print {}/net", root.path()).1;
    assert!(!root.path().join("net/config.pbtxt").exists());
    assert_eq!(run("init {}/net", root.path()).0, Some(0));
    assert_eq!(fs::read_to_string(root.path().join("net/config.pbtxt")).unwrap(), printed);
    let limit = "\nmax_batch_size: 4  # of a batch and of a request; without this line, requests may have more rows\n";
    assert!(printed.contains(limit) && printed.contains("  name: \"X\"\n"), "{printed}");
    assert_eq!(run("config fmt --check {}/net/config.pbtxt", root.path()).0, Some(0));
    let values =
        |text: &str| text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect();
    let before: Vec<String> = values(&shown);
    let after: Vec<String> = values(&run("config show {}/net", root.path()).1);
    assert_eq!(after, before);
    let (code, _, err) = run("init {}/net", root.path());
    assert!(code == Some(1) && err.contains("--force replaces it"), "{err}");
    assert_eq!(run("init --force {}/net", root.path()).0, Some(0));
}

#[test]
fn a_wrong_command_line_has_its_error_first_and_one_usage() {
    let root = repository("");
    for (line, error) in [
        (
            "check --http-prot=1 {}",
            "error: Bad option: \"--http-prot\".\nunrecognized option '--http-prot'\nDid you mean",
        ),
        ("check --format=yaml {}", "error: '--format' is 'yaml', which is none of"),
        ("init --nonsense {}/net", "error: Bad option: \"--nonsense\"."),
        ("config show --nonsense {}/net", "error: Bad option: \"--nonsense\"."),
        ("config fmt -x {}", "error: unrecognized option '-x'"),
        ("config", "error: name one of fmt, show, schema"),
        ("config frob", "error: 'frob' is none of fmt, show, schema"),
        ("explain --frob", "error: unknown option '--frob'"),
        ("api-key --hsah", "error: unexpected argument: --hsah"),
        ("api-key --hash more", "error: unexpected argument: more"),
        ("completions", "error: name a shell: one of bash, zsh, fish"),
        ("completions tcsh", "error: 'tcsh' is none of bash, zsh, fish"),
        ("completions bash zsh", "error: unexpected argument: zsh"),
        ("man option", "error: 'option' is none of options, configuration"),
        ("perf --frob", "error: unexpected argument '--frob' found"),
        ("record --frob", "error: unexpected argument '--frob' found"),
        ("replay --frob", "error: unexpected argument '--frob' found"),
        ("tune --frob", "error: unexpected argument '--frob' found"),
        ("help chekc", "error: 'chekc' is no command\nDid you mean 'check'?"),
        ("help check more", "error: unexpected argument: more"),
    ] {
        let (code, out, err) = run(line, root.path());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}: {err}");
        assert!(err.starts_with(error), "{line}: {err}");
        let command = line.split(' ').next().unwrap();
        assert!(err.contains(&format!("\n\nUsage: nereid {command}")), "{line}: {err}");
        assert_eq!(err.matches("Usage: ").count(), 1, "{line}: {err}");
        assert!(err.ends_with(&format!("try 'nereid {command} --help'.\n")), "{line}: {err}");
    }
}

#[test]
fn a_missing_runtime_is_told_once_for_all_models_that_need_it() {
    let root = repository("");
    fs::create_dir_all(root.path().join("other/1")).unwrap();
    fs::write(root.path().join("other/1/model.onnx"), graph()).unwrap();
    let (code, out, _) = run("check {} --onnxruntime-library={}/nowhere", root.path());
    let finding = out.lines().next().unwrap();
    let begin = ": warning[backend-runtime]: unable to load ONNX Runtime from '";
    assert!(finding.contains(begin) && finding.contains("pip install onnxruntime"), "{out}");
    assert!(finding.ends_with(" and 1 more need it"), "{out}");
    assert_eq!((code, out.matches("backend-runtime").count()), (Some(0), 1), "{out}");
}

#[test]
fn json_of_commands_ends_with_its_line() {
    let root = repository("max_batch_size: 4");
    for line in [
        "check {} --format=json",
        "check {} --format=sarif",
        "config show {}/net --format=json",
        "config schema",
    ] {
        let (_, out, err) = run(line, root.path());
        assert!(out.ends_with("}\n"), "{line}: {out}{err}");
    }
}

#[test]
fn a_reader_that_wants_no_more_is_no_error() {
    for words in [&["config", "schema"][..], &["check", "--rules"], &["man"], &["--help"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = testing::command(env!("CARGO_BIN_EXE_nereid"));
        let Output { status, stderr, .. } = command.args(words).stdout(writer).output().unwrap();
        assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]), "{words:?}");
    }
}

#[test]
fn findings_have_colours_where_they_are_wanted() {
    let root = repository("max_batch_size: -1");
    let colored = "\x1b[1;31merror\x1b[0m[";
    assert!(run("check --color=always {}", root.path()).1.contains(colored));
    assert!(!run("check {}", root.path()).1.contains('\x1b'));
    let json = run("check --color=always --format=json {}", root.path()).1;
    assert!(!json.contains('\x1b') && !json.contains("u001b"), "{json}");
}

#[test]
fn each_command_prints_its_help() {
    let root = tempfile::tempdir().unwrap();
    for line in [
        "check",
        "config",
        "config fmt",
        "config show",
        "config schema",
        "init",
        "explain",
        "perf",
        "record",
        "replay",
        "tune",
        "api-key",
        "completions",
        "man",
        "help",
    ] {
        for help in ["-h", "--help"] {
            let (code, out, err) = run(&format!("{line} {help}"), root.path());
            assert_eq!((code, err.as_str()), (Some(0), ""), "{line} {help}");
            let command = line.split(' ').next().unwrap();
            assert!(out.contains(&format!("Usage: nereid {command}")), "{line} {help}: {out}");
        }
    }
    assert!(run("help check", root.path()).1.starts_with("Usage: nereid check"));
    assert_eq!(run("help", root.path()).1, run("-h", root.path()).1);
    assert_eq!(run("help serve", root.path()).1, run("serve --help", root.path()).1);
    // A file may have such a name.
    fs::write(root.path().join("-h"), "max_batch_size: 4\n").unwrap();
    assert_eq!(run("config fmt --check -- -h", root.path()).0, Some(0));
}

#[test]
fn the_schema_is_json() {
    let (code, out, _) = run("config schema", tempfile::tempdir().unwrap().path());
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, schema["$ref"].as_str()), (Some(0), Some("#/$defs/ModelConfig")));
}

/// Makes a pipe with a name. Who opens it waits for a writer.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn only_regular_files_are_read() {
    let root = repository("");
    make_pipe(&root.path().join("net/config.pbtxt"));
    let (code, out, _) = run("check {}", root.path());
    let text = "net/config.pbtxt: it is not a regular file";
    assert!(code == Some(1) && out.contains(text), "{out}");

    let root = repository("max_batch_size: 4");
    fs::remove_file(root.path().join("net/1/model.onnx")).unwrap();
    make_pipe(&root.path().join("net/1/model.onnx"));
    let (code, out, _) = run("check {}", root.path());
    assert!(code == Some(1) && out.contains("/net/1/model.onnx' is not a regular file"), "{out}");

    let root = repository("");
    symlink("elsewhere.pbtxt", root.path().join("net/config.pbtxt")).unwrap();
    let (code, out, _) = run("check --strict {}", root.path());
    assert!(
        code == Some(3) && out.contains("the link leads to 'elsewhere.pbtxt', which does not exist"),
        "{out}"
    );
}

#[test]
fn a_configuration_with_findings_is_shown_with_them() {
    let root = repository("output { name: 'Y' data_type: TYPE_FP32 dims: 8 }\n");
    let (code, out, err) = run("config show {}/net", root.path());
    assert!(code == Some(1) && out.contains("  dims: [ 8 ]  # config.pbtxt:1\n"), "{out}");
    assert!(err.contains("config.pbtxt:1:") && err.contains("1 error, "), "{err}");
    let root = repository("response_cache { enable: true }");
    let (code, out, err) = run("config show {}/net", root.path());
    assert!(
        code == Some(0) && out.starts_with("# version 1\n") && err.contains("warning[response-cache]"),
        "{err}"
    );
}

const IO: &str =
    "input { name: 'X' data_type: TYPE_FP32 dims: 1 } output { name: 'Y' data_type: TYPE_FP32 dims: 1 }";

/// A repository with one model, that the backend `lib` in a library runs.
fn of_library(config: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("backends/lib")).unwrap();
    fs::write(root.path().join("backends/lib/libtriton_lib.so"), "").unwrap();
    fs::create_dir_all(root.path().join("models/m/1")).unwrap();
    let config = format!("backend: 'lib' {config}");
    fs::write(root.path().join("models/m/config.pbtxt"), config).unwrap();
    root
}

#[test]
fn models_of_libraries_are_checked_as_far_as_files_tell() {
    let line = "check --backend-directory={}/backends {}/models";
    assert_eq!(run(line, of_library(IO).path()).0, Some(0));
    // A backend in a library may complete these.
    assert_eq!(run(line, of_library("input { name: 'X' }").path()).0, Some(0));

    let (code, out, _) = run(line, of_library(&IO.replace("TYPE_FP32", "TYPE_INVALID")).path());
    assert!(code == Some(1) && out.contains("must specify 'data_type'"), "{out}");

    let root = of_library(IO);
    for (content, why) in [("x", "file too short"), ("no library", "invalid ELF header"), ("\x7fELF", "")] {
        fs::write(root.path().join("models/m/1/batchstrategy.so"), content).unwrap();
        let (code, out, _) = run(line, root.path());
        assert_eq!(code, Some(i32::from(!why.is_empty())), "{out}");
        assert!(out.contains(why), "{out}");
    }
    fs::write(root.path().join("models/m/1/batchstrategy.so"), "\x7fELF").unwrap();
    let named = format!("{}/models/m/none.so", root.path().display());
    let named = format!(
        "{IO} parameters {{ key: 'TRITON_BATCH_STRATEGY_PATH' value {{ string_value: '{named}' }} }}"
    );
    fs::write(root.path().join("models/m/config.pbtxt"), format!("backend: 'lib' {named}")).unwrap();
    let (code, out, _) = run(line, root.path());
    assert!(code == Some(1) && out.contains("Batching library path not found"), "{out}");
}

#[test]
fn environments_of_models_in_python_are_looked_at() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("m/1")).unwrap();
    fs::write(root.path().join("m/1/model.py"), b"# caf\xe9\nclass TritonPythonModel: pass\n").unwrap();
    let check = |path: &str| {
        let config = format!(
            "backend: 'python' {IO} parameters {{ key: 'EXECUTION_ENV_PATH' value {{ string_value: '{path}' }} }}"
        );
        fs::write(root.path().join("m/config.pbtxt"), config).unwrap();
        run("check --skip-interpreters {}", root.path())
    };
    fs::create_dir_all(root.path().join("m/environment/bin")).unwrap();
    fs::write(root.path().join("m/archive.tar.gz"), "no archive").unwrap();
    for (path, why) in [
        ("/none/environment.tar.gz", "Failed to get the canonical path for /none/environment.tar.gz."),
        ("$$TRITON_MODEL_DIRECTORY/archive.tar.gz", "archive_read_open_filename() failed."),
        ("$$TRITON_MODEL_DIRECTORY/environment", "should contain an 'activate' script"),
    ] {
        let (code, out, _) = check(path);
        assert!(code == Some(1) && out.contains("error[file-path]") && out.contains(why), "{out}");
    }
    for file in ["activate", "python3"] {
        fs::write(root.path().join("m/environment/bin").join(file), "").unwrap();
    }
    let (code, out, _) = check("$$TRITON_MODEL_DIRECTORY/environment");
    assert_eq!(code, Some(0), "{out}");
}

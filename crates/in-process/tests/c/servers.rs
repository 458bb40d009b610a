//! Servers: one that a program hosts, and one that C makes.
use std::{
    cell::OnceCell,
    ffi::{CStr, CString},
    fs, ptr,
    sync::mpsc,
    thread,
};

use c_api::types::{
    message::Message,
    metrics::*,
    parameter::{NamedParameter, TRITONSERVER_ParameterNew},
};
use in_process::{Server, metrics::*, options::*, server::*};

use crate::support::{App, MOVABLE, Native, TestRequest, TestServer, c, json, read, result_of};

/// The JSON that a function returns.
fn json_of(
    give: impl FnOnce(*mut *mut Message) -> *mut c_api::types::error::CError,
) -> Result<String, String> {
    let mut message = ptr::null_mut();
    result_of(give(&mut message)).map(|()| json(message))
}

fn flag(tell: impl FnOnce(*mut bool) -> *mut c_api::types::error::CError) -> Result<bool, String> {
    let mut truth = true;
    result_of(tell(&mut truth)).map(|()| truth)
}

fn number(tell: impl FnOnce(*mut u32) -> *mut c_api::types::error::CError) -> Result<u32, String> {
    let mut number = 9;
    result_of(tell(&mut number)).map(|()| number)
}

const NOT_READY: &str = "Unavailable: Server not ready";

#[test]
fn a_thread_of_an_async_runtime_may_call_blocking_functions() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    // SAFETY: a live server.
    let unload =
        || result_of(unsafe { TRITONSERVER_ServerUnloadModel(stage.server.as_ptr(), c"m".as_ptr()) });
    let refused = unload();
    assert!(refused.is_err());
    // A plug-in does the same if its execution runs on the thread that sends the request.
    let within = tokio::runtime::Runtime::new().unwrap().block_on(async { unload() });
    assert_eq!(within, refused);
}

#[test]
fn a_handle_without_an_engine_is_not_live_and_refuses_the_rest() {
    let server = Server::hosting();
    let handle = server.as_ptr();
    let not_ready = || Err(NOT_READY.to_owned());
    let (mut request, mut metrics) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live server and places of this function.
    unsafe {
        assert_eq!(flag(|live| TRITONSERVER_ServerIsLive(handle, live)), Ok(false));
        assert_eq!(flag(|ready| TRITONSERVER_ServerIsReady(handle, ready)), Ok(false));
        assert_eq!(
            flag(|ready| TRITONSERVER_ServerModelIsReady(handle, c"m".as_ptr(), -1, ready)),
            Err(NOT_READY.to_owned())
        );
        assert_eq!(json_of(|message| TRITONSERVER_ServerMetadata(handle, message)), not_ready());
        assert_eq!(json_of(|message| TRITONSERVER_ServerModelIndex(handle, 0, message)), not_ready());
        assert_eq!(
            json_of(|message| TRITONSERVER_ServerModelStatistics(handle, c"".as_ptr(), -1, message)),
            not_ready()
        );
        let refused = Err(NOT_READY.to_owned());
        assert_eq!(result_of(TRITONSERVER_ServerLoadModel(handle, c"m".as_ptr())), refused);
        assert_eq!(result_of(TRITONSERVER_ServerMetrics(handle, &mut metrics)), refused);
        let new = in_process::request::TRITONSERVER_InferenceRequestNew;
        assert_eq!(result_of(new(&mut request, handle, c"m".as_ptr(), -1)), refused);
        assert_eq!(result_of(TRITONSERVER_ServerPollModelRepository(handle)), Ok(()));
    }
}

#[test]
fn only_the_owner_of_a_server_can_stop_it() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    let refusal = "Unsupported: the server belongs to the program that runs it, which alone may end it";
    // SAFETY: a live server.
    unsafe {
        let handle = stage.server.as_ptr();
        assert_eq!(result_of(TRITONSERVER_ServerStop(handle)), Err(refusal.to_owned()));
        assert_eq!(result_of(TRITONSERVER_ServerDelete(handle)), Err(refusal.to_owned()));
        assert_eq!(result_of(TRITONSERVER_ServerSetExitTimeout(handle, 1)), Err(refusal.to_owned()));
        assert_eq!(flag(|live| TRITONSERVER_ServerIsLive(handle, live)), Ok(true));
        for end in [TRITONSERVER_ServerStop, TRITONSERVER_ServerDelete] {
            assert_eq!(result_of(end(ptr::null_mut())), Ok(()));
        }
    }
}

#[test]
fn the_metadata_of_a_server_are_as_over_http() {
    let stage = TestServer::of(&format!("{MOVABLE} max_batch_size: 4"), Native::echo());
    let (handle, m) = (stage.server.as_ptr(), c"m".as_ptr());
    // SAFETY: a live server and places of the helpers.
    unsafe {
        assert_eq!(
            json_of(|message| TRITONSERVER_ServerMetadata(handle, message)).unwrap(),
            r#"{"name":"stage","version":"1","extensions":[]}"#
        );
        let tensor = |name: &str| format!(r#"[{{"name":"{name}","datatype":"UINT8","shape":[-1,-1]}}]"#);
        let expected = format!(
            r#"{{"name":"m","versions":["1"],"platform":"native","inputs":{},"outputs":{}}}"#,
            tensor("IN"),
            tensor("OUT")
        );
        for version in [-1, 1] {
            let metadata = |message| TRITONSERVER_ServerModelMetadata(handle, m, version, message);
            assert_eq!(json_of(metadata).unwrap(), expected);
        }
        assert_eq!(
            json_of(|message| TRITONSERVER_ServerModelIndex(handle, 1, message)).unwrap(),
            r#"[{"name":"m","version":"1","state":"READY"}]"#
        );
        let config = json_of(|message| TRITONSERVER_ServerModelConfig(handle, m, -1, 1, message)).unwrap();
        assert!(config.starts_with(r#"{"name":"m","platform":"","backend":"native""#), "{config}");
        assert_eq!(
            json_of(|message| TRITONSERVER_ServerModelConfig(handle, m, -1, 2, message)),
            Err("Invalid argument: model configuration version 2 not supported, supported versions are: 1"
                .to_owned())
        );
    }
}

#[test]
fn metadata_list_all_versions_unless_one_is_requested() {
    let stage = TestServer::of(&format!("{MOVABLE} version_policy {{ all {{}} }}"), Native::echo());
    let versions = |version| {
        // SAFETY: a live server and places of the helper.
        let metadata = json_of(|message| unsafe {
            TRITONSERVER_ServerModelMetadata(stage.server.as_ptr(), c"m".as_ptr(), version, message)
        });
        metadata.map(|json| json.split("\"platform\"").next().unwrap().to_owned())
    };
    assert_eq!(versions(-1).unwrap(), r#"{"name":"m","versions":["1","2"],"#);
    assert_eq!(versions(1).unwrap(), r#"{"name":"m","versions":["1"],"#);
}

#[test]
fn statistics_are_those_of_one_model_or_of_all() {
    let stage = TestServer::new(&[("m", MOVABLE), ("n", MOVABLE)], Native::echo());
    let app = App::new();
    TestRequest::new(&stage, &app).input(b"abc").answer();
    let handle = stage.server.as_ptr();
    let statistics = |name: &CStr, version| {
        // SAFETY: a live server and places of the helper.
        json_of(|message| unsafe {
            TRITONSERVER_ServerModelStatistics(handle, name.as_ptr(), version, message)
        })
    };
    let one = statistics(c"m", 1).unwrap();
    assert!(one.starts_with(r#"{"model_stats":[{"name":"m","version":"1","#), "{one}");
    assert!(one.contains(r#""inference_count":1,"execution_count":1,"#), "{one}");
    assert!(one.contains(r#""memory_usage":[{"type":"CPU","id":0,"byte_size":5}]"#), "{one}");
    assert_eq!(statistics(c"", -1).unwrap().matches(r#""last_inference""#).count(), 2);
    assert_eq!(
        statistics(c"x", -1),
        Err("Invalid argument: requested model 'x' is not available".to_owned())
    );
    assert_eq!(
        statistics(c"m", 7),
        Err("Invalid argument: requested model version is not available for model 'm'".to_owned())
    );
}

#[test]
fn a_model_has_properties_and_an_unknown_one_an_error() {
    let batching = format!("{MOVABLE} max_batch_size: 4");
    let decoupled = format!("{MOVABLE} model_transaction_policy {{ decoupled: true }}");
    let stage = TestServer::new(&[("batching", &batching), ("decoupled", &decoupled)], Native::echo());
    let handle = stage.server.as_ptr();
    let unknown = "Not found: Request for unknown model: 'x' is not found".to_owned();
    // SAFETY: a live server and places of the helpers; the last may be null.
    unsafe {
        let none = ptr::null_mut();
        let batch = |name: &CStr| {
            number(|flags| TRITONSERVER_ServerModelBatchProperties(handle, name.as_ptr(), -1, flags, none))
        };
        assert_eq!((batch(c"batching"), batch(c"decoupled")), (Ok(2), Ok(1)));
        assert_eq!(batch(c"x"), Err(unknown.clone()));
        let transaction = |name: &CStr| {
            number(|flags| {
                TRITONSERVER_ServerModelTransactionProperties(handle, name.as_ptr(), -1, flags, none)
            })
        };
        assert_eq!((transaction(c"batching"), transaction(c"decoupled")), (Ok(1), Ok(2)));
        assert_eq!(transaction(c"x"), Err(unknown.clone()));
        let ready =
            |name: &CStr| flag(|ready| TRITONSERVER_ServerModelIsReady(handle, name.as_ptr(), -1, ready));
        assert_eq!((ready(c"batching"), ready(c"x")), (Ok(true), Ok(false)));
    }
}

#[test]
fn a_model_whose_backend_says_so_is_not_ready_nor_is_a_strict_server() {
    for well in [true, false] {
        let backend = if well { Native::echo() } else { Native::echo().not_ready() };
        let stage = TestServer::of(MOVABLE, backend);
        let (handle, m) = (stage.server.as_ptr(), c"m".as_ptr());
        // SAFETY: a live server and places of the helpers.
        unsafe {
            assert_eq!(flag(|ready| TRITONSERVER_ServerModelIsReady(handle, m, 1, ready)), Ok(well));
            assert_eq!(flag(|ready| TRITONSERVER_ServerIsReady(handle, ready)), Ok(well));
        }
    }
}

#[test]
fn models_are_loaded_at_the_start_only() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    let (handle, m) = (stage.server.as_ptr(), c"m".as_ptr());
    let mapping = |model: &CStr| -> *const NamedParameter {
        // SAFETY: texts.
        unsafe { TRITONSERVER_ParameterNew(c"directory".as_ptr(), 0, model.as_ptr().cast()) }
    };
    let (one, two) = (mapping(c"m"), mapping(c"m"));
    // SAFETY: a live server, live parameters, which are deleted once.
    unsafe {
        let explicit =
            Err("Unavailable: explicit model load / unload is not allowed if polling is enabled. Model control mode 'explicit' allows it (--model-control-mode=explicit)".to_owned());
        assert_eq!(result_of(TRITONSERVER_ServerLoadModel(handle, m)), explicit);
        assert_eq!(
            result_of(TRITONSERVER_ServerLoadModelWithParameters(handle, m, ptr::null(), 0)),
            explicit
        );
        assert_eq!(result_of(TRITONSERVER_ServerUnloadModel(handle, m)), explicit);
        assert_eq!(result_of(TRITONSERVER_ServerUnloadModelAndDependents(handle, m)), explicit);
        assert_eq!(
            result_of(TRITONSERVER_ServerLoadModelWithParameters(handle, m, ptr::null(), 1)),
            Err("Invalid argument: load parameters are not provided while parameter count is non-zero"
                .to_owned())
        );
        assert!(result_of(TRITONSERVER_ServerLoadModelWithParameters(handle, m, [one].as_ptr(), 1)).is_err());
        assert_eq!(
            result_of(TRITONSERVER_ServerPollModelRepository(handle)),
            Err("Unavailable: polling is disabled".to_owned())
        );
        let register = |mapping: *const *const NamedParameter, count| {
            result_of(TRITONSERVER_ServerRegisterModelRepository(handle, c"/r".as_ptr(), mapping, count))
                .unwrap_err()
        };
        let not_explicit = "is not allowed if model control mode is not EXPLICIT";
        assert_eq!(
            register([one].as_ptr(), 1),
            format!("Unsupported: repository registration {not_explicit}")
        );
        assert_eq!(
            register(ptr::null(), 1),
            "Invalid argument: model mappings are not provided while mapping count is non-zero"
        );
        assert_eq!(
            register([one, two].as_ptr(), 2),
            "Invalid argument: failed to register '/r', there is a conflicting mapping for 'm'"
        );
        assert_eq!(
            result_of(TRITONSERVER_ServerUnregisterModelRepository(handle, c"/r".as_ptr())),
            Err(format!("Unsupported: repository unregistration {not_explicit}"))
        );
        for parameter in [one, two] {
            drop(Box::from_raw(parameter.cast_mut()));
        }
    }
}

#[test]
fn a_stopping_server_says_so() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    let handle = stage.server.as_ptr();
    stage.stop();
    let exiting = Err("Unavailable: Server exiting".to_owned());
    // SAFETY: a live server and places of the helpers.
    unsafe {
        assert_eq!(flag(|live| TRITONSERVER_ServerIsLive(handle, live)), exiting);
        assert_eq!(flag(|ready| TRITONSERVER_ServerIsReady(handle, ready)), exiting);
        assert_eq!(
            json_of(|message| TRITONSERVER_ServerModelIndex(handle, 0, message)),
            Err(NOT_READY.to_owned())
        );
        assert!(json_of(|message| TRITONSERVER_ServerMetadata(handle, message)).is_ok());
    }
}

/// The text of all metrics.
fn metrics(handle: *mut Server) -> String {
    let (mut metrics, mut base, mut size) = (ptr::null_mut(), ptr::null(), 0);
    // SAFETY: a live server and places of this function.
    unsafe {
        result_of(TRITONSERVER_ServerMetrics(handle, &mut metrics)).unwrap();
        result_of(TRITONSERVER_MetricsFormatted(metrics, 0, &mut base, &mut size)).unwrap();
        let text = read(base);
        assert_eq!(text.len(), size);
        assert_eq!(
            result_of(TRITONSERVER_MetricsFormatted(metrics, 1, &mut base, &mut size)),
            Err("Invalid argument: unknown metrics format '1'".to_owned())
        );
        result_of(TRITONSERVER_MetricsDelete(metrics)).unwrap();
        text
    }
}

#[test]
fn metrics_of_plug_ins_stand_behind_the_servers_own() {
    let stage = TestServer::of(MOVABLE, Native::echo());
    let (mut family, mut metric) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: live handles and places of this function.
    unsafe {
        let made = TRITONSERVER_MetricFamilyNew(&mut family, 1, c"of_a_plug_in".as_ptr(), c"mine".as_ptr());
        result_of(made).unwrap();
        result_of(TRITONSERVER_MetricNew(&mut metric, family, ptr::null(), 0)).unwrap();
        result_of(TRITONSERVER_MetricSet(metric, 3.5)).unwrap();
        let text = metrics(stage.server.as_ptr());
        assert!(text.starts_with("# HELP nv_inference_request_success "), "{text}");
        assert!(
            text.ends_with("# HELP of_a_plug_in mine\n# TYPE of_a_plug_in gauge\nof_a_plug_in 3.5\n"),
            "{text}"
        );
        result_of(TRITONSERVER_MetricDelete(metric)).unwrap();
        result_of(TRITONSERVER_MetricFamilyDelete(family)).unwrap();
    }
}

/// Options for the repository of a test.
pub(crate) struct Chosen {
    pub(crate) handle: *mut ServerOptions,
    pub(crate) repository: tempfile::TempDir,
}

impl Chosen {
    pub(crate) fn new() -> Self {
        let (mut handle, repository) = (ptr::null_mut(), tempfile::tempdir().unwrap());
        // SAFETY: a place of this function.
        result_of(unsafe { TRITONSERVER_ServerOptionsNew(&mut handle) }).unwrap();
        Self { handle, repository }
    }

    /// Names the repository.
    pub(crate) fn here(self) -> Self {
        let path = c(self.repository.path().to_str().unwrap());
        // SAFETY: live options.
        result_of(unsafe { TRITONSERVER_ServerOptionsSetModelRepositoryPath(self.handle, path.as_ptr()) })
            .unwrap();
        self
    }

    pub(crate) fn exit_on_error(self, exit: bool) -> Self {
        // SAFETY: live options.
        result_of(unsafe { TRITONSERVER_ServerOptionsSetExitOnError(self.handle, exit) }).unwrap();
        self
    }

    /// Adds a model whose backend does not exist.
    pub(crate) fn with_a_bad_model(self) -> Self {
        let model = self.repository.path().join("bad");
        fs::create_dir_all(model.join("1")).unwrap();
        fs::write(model.join("config.pbtxt"), MOVABLE).unwrap();
        self
    }

    pub(crate) fn server(&self) -> Result<*mut Server, String> {
        let mut server = ptr::null_mut();
        // SAFETY: live options and a place of this function.
        result_of(unsafe { TRITONSERVER_ServerNew(&mut server, self.handle) })?;
        Ok(server)
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        // SAFETY: the test does not use them after this.
        result_of(unsafe { TRITONSERVER_ServerOptionsDelete(self.handle) }).unwrap();
    }
}

fn is_live(server: *mut Server) -> Result<bool, String> {
    // SAFETY: a live server.
    flag(|live| unsafe { TRITONSERVER_ServerIsLive(server, live) })
}

fn delete(server: *mut Server) {
    // SAFETY: the test does not use it after this.
    result_of(unsafe { TRITONSERVER_ServerDelete(server) }).unwrap();
}

#[test]
fn a_server_lives_until_it_is_stopped() {
    let chosen = Chosen::new().here();
    let id: CString = c("mine");
    // SAFETY: live options.
    result_of(unsafe { TRITONSERVER_ServerOptionsSetServerId(chosen.handle, id.as_ptr()) }).unwrap();
    let server = chosen.server().unwrap();
    assert_eq!(is_live(server), Ok(true));
    // SAFETY: a live server and places of the helpers.
    unsafe {
        assert_eq!(flag(|ready| TRITONSERVER_ServerIsReady(server, ready)), Ok(true));
        let metadata = json_of(|message| TRITONSERVER_ServerMetadata(server, message)).unwrap();
        assert!(metadata.starts_with(r#"{"name":"mine","version":"2.73.0","extensions":["classification","#));
        result_of(TRITONSERVER_ServerSetExitTimeout(server, 7)).unwrap();
        result_of(TRITONSERVER_ServerStop(server)).unwrap();
        assert_eq!(is_live(server), Err("Unavailable: Server exiting".to_owned()));
        result_of(TRITONSERVER_ServerStop(server)).unwrap();
    }
    delete(server);
}

/// As a C++ program whose global object owns a server: `exit` destroys the thread-local values of its thread first.
#[test]
fn a_server_is_deleted_after_the_thread_local_values_of_its_thread() {
    struct Owner(*mut Server, mpsc::Sender<Result<(), String>>);

    impl Drop for Owner {
        fn drop(&mut self) {
            // SAFETY: a live server that nobody uses after this.
            let _ = self.1.send(result_of(unsafe { TRITONSERVER_ServerDelete(self.0) }));
        }
    }

    thread_local!(static OWNER: OnceCell<Owner> = const { OnceCell::new() });
    let (outcome, deleted) = mpsc::channel();
    let thread = thread::spawn(move || {
        // Values are destroyed in the opposite order of their first use: the runtime's before this one.
        OWNER.with(|owner| {
            let chosen = Chosen::new().here();
            owner.get_or_init(move || Owner(chosen.server().unwrap(), outcome));
        });
    });
    thread.join().unwrap();
    assert_eq!(deleted.recv(), Ok(Ok(())));
}

#[test]
fn a_server_needs_a_repository() {
    let missing = "Invalid argument: --model-repository must be specified";
    assert_eq!(Chosen::new().server(), Err(missing.to_owned()));
    let server = Chosen::new().exit_on_error(false).server().unwrap();
    assert_eq!(is_live(server), Ok(false));
    delete(server);
}

#[test]
fn a_repository_that_cannot_be_read_makes_no_server() {
    let chosen = Chosen::new().here();
    fs::remove_dir(chosen.repository.path()).unwrap();
    assert!(chosen.server().unwrap_err().starts_with("Internal: failed to stat file "));
    let chosen = chosen.exit_on_error(false);
    let server = chosen.server().unwrap();
    assert_eq!(is_live(server), Ok(false));
    delete(server);
}

#[test]
fn a_model_that_fails_ends_the_server_unless_it_shall_go_on() {
    let chosen = Chosen::new().here().with_a_bad_model();
    assert_eq!(chosen.server(), Err("Internal: failed to load all models".to_owned()));
    let chosen = chosen.exit_on_error(false);
    let server = chosen.server().unwrap();
    assert_eq!(is_live(server), Ok(true));
    // SAFETY: a live server and places of the helpers.
    unsafe {
        assert_eq!(flag(|ready| TRITONSERVER_ServerIsReady(server, ready)), Ok(false));
        let index = json_of(|message| TRITONSERVER_ServerModelIndex(server, 0, message)).unwrap();
        assert!(
            index.starts_with(r#"[{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"#),
            "{index}"
        );
    }
    delete(server);
}

#[test]
fn a_program_chooses_which_latencies_are_shown() {
    let chosen = Chosen::new().here();
    let directory = chosen.repository.path().join("picture");
    std::fs::create_dir_all(directory.join("1")).unwrap();
    let config = "backend: 'image' max_batch_size: 0
        input { name: 'IN' data_type: TYPE_STRING dims: 1 }
        output { name: 'OUT' data_type: TYPE_UINT8 dims: [ 8, 8, 3 ] }";
    std::fs::write(directory.join("config.pbtxt"), config).unwrap();
    let shown = |settings: &[(&CStr, &CStr)]| {
        for (setting, value) in settings {
            // SAFETY: live options and texts.
            result_of(unsafe {
                TRITONSERVER_ServerOptionsSetMetricsConfig(
                    chosen.handle,
                    c"".as_ptr(),
                    setting.as_ptr(),
                    value.as_ptr(),
                )
            })
            .unwrap();
        }
        let server = chosen.server().unwrap();
        let text = metrics(server);
        delete(server);
        text
    };
    let of = |name: &str, rest: &str| format!("\n{name}{{model=\"picture\",version=\"1\"{rest}}} ");
    let usual = shown(&[]);
    assert!(usual.contains(&of("nv_inference_request_duration_us", "")), "{usual}");
    assert!(
        !usual.contains("nv_inference_request_summary_us") && !usual.contains("_histogram_ms"),
        "{usual}"
    );
    let text = shown(&[
        (c"counter_latencies", c"false"),
        (c"summary_latencies", c"true"),
        (c"histogram_latencies", c"true"),
        (c"summary_quantiles", c"0.25:0.01"),
    ]);
    assert!(!text.contains("nv_inference_request_duration_us"), "{text}");
    assert!(
        text.contains(&format!("{}NaN\n", of("nv_inference_queue_summary_us", ",quantile=\"0.25\""))),
        "{text}"
    );
    assert!(text.contains(&of("nv_inference_first_response_histogram_ms_bucket", ",le=\"5000\"")), "{text}");
}

#[test]
fn a_server_may_keep_its_metrics_to_itself() {
    let chosen = Chosen::new().here();
    let shown = chosen.server().unwrap();
    assert!(metrics(shown).contains("# TYPE nv_cpu_utilization gauge"));
    delete(shown);
    // SAFETY: live options.
    result_of(unsafe { TRITONSERVER_ServerOptionsSetMetrics(chosen.handle, false) }).unwrap();
    let silent = chosen.server().unwrap();
    assert!(!metrics(silent).contains("nv_"));
    delete(silent);
}

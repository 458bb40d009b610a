//! Workers in a sandbox: what they cannot do, what they still can, and what remains of them.
//!
//! The kernel must have Landlock and seccomp, as `required` says.
use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
};

use crate::support::{CONFIG, Loaded, TestModel, bytes_of, eventually, interpreter, request};

/// Runs the program in the file `program` beside the model's directory, and answers with the text of `told`.
const RUNS: &str = "def execute(self, requests):\n    import ctypes, os, signal, socket, subprocess, sys, tempfile\n    scope = dict(globals(), told='')\n    \
                    scope.update(ctypes=ctypes, signal=signal, socket=socket, subprocess=subprocess, sys=sys, tempfile=tempfile)\n    \
                    try:\n        exec(open(os.path.dirname(self.directory) + '/program').read(), scope)\n    \
                    except BaseException as error:\n        scope['told'] = f'{type(error).__name__}: {error}'\n    \
                    return [pb_utils.InferenceResponse([pb_utils.Tensor('T', np.array([str(scope['told'])], np.object_))])]\n\
                    def initialize(self, args):\n    self.directory = args['model_repository']";

const TEXT: &str = "input { name: 'X' data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: 'T' data_type: TYPE_STRING dims: [ 1 ] }\n";

/// A model that runs programs of [`told`], with those settings.
pub(crate) fn model(settings: &[(&str, &str)]) -> TestModel {
    let model = TestModel::new(TEXT, RUNS);
    let places = tempfile::Builder::new().prefix("scratch").tempdir_in(model.folder()).unwrap().keep();
    let model = model.with_setting("sandbox-directory", &places.to_string_lossy());
    settings.iter().fold(model, |model, (name, value)| model.with_setting(name, value))
}

/// What the program tells.
pub(crate) fn told(model: &TestModel, loaded: &Loaded, program: &str) -> String {
    fs::write(model.folder().join("program"), program).unwrap();
    let response = loaded.run(vec![request(&[0.0])]).remove(0).unwrap();
    String::from_utf8(bytes_of(&response, "T")[4..].to_vec()).unwrap()
}

/// The folder for scratch folders.
fn places(model: &TestModel) -> std::path::PathBuf {
    model.settings.iter().find(|(name, _)| name == "sandbox-directory").map(|(_, path)| path.into()).unwrap()
}

pub(crate) const REFUSED: &str = "PermissionError: [Errno 1] Operation not permitted";

#[test]
fn a_worker_has_no_network_and_signals_nobody() {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = model.folder().join("socket");
    let _unix = UnixListener::bind(&path).unwrap();
    let path = path.display();
    for program in [
        format!("socket.create_connection(('127.0.0.1', {port}))"),
        format!("socket.socket(socket.AF_UNIX).connect('{path}')"),
        format!("socket.socket(socket.AF_UNIX).connect('\\0{path}')"),
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))".to_owned(),
        "socket.socket(socket.AF_INET6)".to_owned(),
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)".to_owned(),
        "os.kill(os.getppid(), 0)".to_owned(),
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))".to_owned(),
    ] {
        assert_eq!(told(&model, &loaded, &program), REFUSED, "{program}");
    }
    let pair = "a, b = socket.socketpair(); a.send(b'pair'); told = b.recv(4).decode()";
    assert_eq!(told(&model, &loaded, pair), "pair");
    let child = "child = subprocess.Popen(['sleep', '1000']); child.kill(); told = child.wait()";
    assert_eq!(told(&model, &loaded, child), "-9");
    // io_uring makes sockets without the system call: 425 is io_uring_setup, 1 is EPERM.
    let ring =
        "c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, bytes(120)); told = ctypes.get_errno()";
    assert_eq!(told(&model, &loaded, ring), "1");
    let threads = "import threading\nseen = []\nt = threading.Thread(target=lambda: seen.append(1)); t.start(); t.join(); told = seen";
    assert_eq!(told(&model, &loaded, threads), "[1]");
}

#[test]
fn a_worker_cannot_look_into_the_server() {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    for file in ["environ", "mem"] {
        let program = format!("open(f'/proc/{{os.getppid()}}/{file}').read()");
        assert!(told(&model, &loaded, &program).starts_with("PermissionError"), "{file}");
    }
}

fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_worker_writes_only_to_its_scratch_folder() {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    let outside = model.folder().join("outside");
    fs::write(&outside, "untouched").unwrap();
    for program in [
        format!("open('{}', 'a')", outside.display()),
        format!("os.truncate('{}', 0)", outside.display()),
        format!("os.remove('{}')", outside.display()),
        format!("os.mkdir('{}x')", outside.display()),
        format!("os.link('{0}', tempfile.gettempdir() + '/link')", outside.display()),
        "open(self.directory + '/1/model.py', 'w')"
            .replace("self.directory", &format!("'{}'", model.folder().join("m").display())),
        "open('/dev/shm/nereid-sandbox-test', 'w')".to_owned(),
        "open('/tmp/nereid-sandbox-test', 'w')".to_owned(),
    ] {
        let told = told(&model, &loaded, &program);
        assert!(
            told.starts_with("PermissionError") || told.starts_with("OSError: [Errno 18]"),
            "{program}: {told}"
        );
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    let reads = format!("told = open('{}').read()", outside.display());
    assert_eq!(told(&model, &loaded, &reads), "untouched");
    let writes = "f = tempfile.NamedTemporaryFile('w+', delete=False); f.write('x'); f.close()\nos.makedirs(os.path.expanduser('~/a/b'))\n\
                  os.rename(f.name, os.path.expanduser('~/a/b/c')); open('/dev/null', 'w').write('x'); told = os.path.expanduser('~')";
    let scratch = told(&model, &loaded, writes);
    assert!(Path::new(&scratch).starts_with(places(&model)), "{scratch}");
    assert!(Path::new(&scratch).join("a/b/c").exists());
    let mode = fs::metadata(&scratch).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(loaded);
    assert_eq!(fs::read_dir(places(&model)).unwrap().count(), 0, "the scratch folder goes with the model");
}

#[test]
fn a_worker_has_no_privileges_and_gets_none() {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    let status = told(&model, &loaded, "told = open('/proc/self/status').read()");
    for line in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{line}:\t0000000000000000")), "{status}");
    }
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    // CLONE_NEWUSER.
    let program = "c = ctypes.CDLL(None, use_errno=True); c.unshare(0x10000000); told = ctypes.get_errno()";
    assert_eq!(told(&model, &loaded, program), "1");
}

#[test]
fn a_worker_has_limits() {
    let limits = [
        ("sandbox-max-open-files", "50"),
        ("sandbox-max-memory-bytes", "2147483648"),
        ("sandbox-max-processes", "3000"),
    ];
    let model = model(&[&[("sandbox", "best-effort")][..], &limits].concat());
    let loaded = model.load().unwrap();
    let program = "import resource as r; told = [r.getrlimit(l) for l in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_NPROC, r.RLIMIT_DATA)]";
    assert_eq!(told(&model, &loaded, program), "[(0, 0), (50, 50), (3000, 3000), (2147483648, 2147483648)]");
    assert!(
        told(&model, &loaded, "files = [open('/dev/null') for _ in range(60)]")
            .contains("Too many open files")
    );
    assert!(told(&model, &loaded, "np.ones(1 << 30)").contains("MemoryError"));
}

#[test]
fn a_model_cannot_raise_the_limits_of_its_sandbox() {
    let config =
        format!("{TEXT}parameters {{ key: 'MAX_MEMORY_BYTES' value: {{ string_value: '9000000000' }} }}\n");
    let model = TestModel::new(&config, RUNS)
        .with_setting("sandbox", "best-effort")
        .with_setting("sandbox-max-memory-bytes", "2147483648");
    let loaded = model.load().unwrap();
    let program = "import resource as r; told = r.getrlimit(r.RLIMIT_DATA)";
    assert_eq!(told(&model, &loaded, program), "(2147483648, 2147483648)");
}

#[test]
fn a_model_asks_for_a_sandbox_and_cannot_leave_the_servers() {
    let parameter =
        |mode: &str| format!("{CONFIG}parameters {{ key: 'SANDBOX' value: {{ string_value: '{mode}' }} }}\n");
    let methods = "def execute(self, requests):\n    return [y([int('Seccomp:\\t2' in open('/proc/self/status').read())]) for _ in requests]";
    for (server, of_model, expected) in
        [("off", "best-effort", 1.0), ("best-effort", "off", 1.0), ("off", "off", 0.0)]
    {
        let model = TestModel::new(&parameter(of_model), methods).with_setting("sandbox", server);
        assert_eq!(model.load().unwrap().ask(&[0.0]), Ok(vec![expected]), "{server} {of_model}");
    }
    let refusal = TestModel::new(&parameter("sometimes"), methods).refusal();
    assert!(refusal.contains("parameter 'SANDBOX' of model 'm' has the value 'sometimes'"), "{refusal}");
}

#[test]
fn what_is_missing_is_named_where_a_sandbox_is_required() {
    let model = model(&[("sandbox", "required")]);
    if !is_superuser() {
        // The kernel lacks something only for the superuser, whose processes it does not count.
        assert!(model.load().is_ok(), "nothing is missing");
        return;
    }
    let refusal = model.refusal();
    assert_eq!(
        refusal,
        "Unavailable: model 'm' requires a sandbox, which is not complete here: missing are a limit on processes (the superuser \
         has none: name another user by sandbox-user)"
    );
}

/// Makes an interpreter with NumPy in a folder. Every user can reach it.
fn python_for_everybody(folder: &Path) -> PathBuf {
    let home = folder.join("venv");
    let run =
        |command: &mut std::process::Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let answer = |python: &Path, expression: &str| {
        let program = format!("import sys; print({expression})");
        run(std::process::Command::new(python).args(["-c", &program])).trim().to_owned()
    };
    let version = |python: &Path| answer(python, "sys.version_info[:2]");
    let own = PathBuf::from(answer(&interpreter(), "sys._base_executable"));
    let is_reachable = |path: &Path| {
        fs::canonicalize(path).is_ok_and(|path| {
            path.ancestors()
                .all(|part| fs::metadata(part).is_ok_and(|part| part.permissions().mode() & 1 == 1))
        })
    };
    let usable = [own, "/usr/bin/python3".into()]
        .into_iter()
        .find(|python| is_reachable(python) && version(python) == version(&interpreter()))
        .expect("this test needs an interpreter of the version of target/venv that every user can reach, such as /usr/bin/python3");
    run(std::process::Command::new(usable).args(["-m", "venv", "--without-pip"]).arg(&home));
    let python = home.join("bin/python");
    let numpy = "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])";
    let numpy = run(std::process::Command::new(interpreter()).args(["-c", numpy]));
    let site = run(
        std::process::Command::new(&python).args(["-c", "import site; print(site.getsitepackages()[0])"])
    );
    for library in ["numpy", "numpy.libs"] {
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .arg(Path::new(numpy.trim()).join(library))
            .arg(site.trim())
            .status();
        assert!(copied.unwrap().success());
    }
    python
}

#[test]
fn the_superusers_workers_become_another_user() {
    let model =
        model(&[("sandbox", "required"), ("sandbox-user", "54321:54322"), ("sandbox-max-processes", "4")]);
    if !is_superuser() {
        let refusal = model.refusal();
        assert!(
            refusal.contains("the user of sandbox-user (the server may not change its user)"),
            "{refusal}"
        );
        return;
    }
    let environment = tempfile::tempdir().unwrap();
    for folder in [environment.path(), model.folder(), &places(&model)] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let python = python_for_everybody(environment.path());
    let model = model.with_setting("python-executable", &python.to_string_lossy());
    let loaded = model.load().unwrap();
    assert_eq!(
        told(&model, &loaded, "told = os.getresuid() + os.getresgid() + tuple(os.getgroups())"),
        "(54321, 54321, 54321, 54322, 54322, 54322)"
    );
    assert!(told(&model, &loaded, "open('/etc/shadow').read()").starts_with("PermissionError"));
    let forks = "started = []\ntry:\n    [started.append(subprocess.Popen(['sleep', '5'])) for _ in range(10)]\n\
                 except BlockingIOError as error:\n    told = type(error).__name__\nfor child in started: child.kill()";
    assert_eq!(told(&model, &loaded, forks), "BlockingIOError");
    assert_eq!(
        told(&model, &loaded, "open(os.path.expanduser('~/x'), 'w').close(); told = 'written'"),
        "written"
    );
    let status = told(&model, &loaded, "told = open('/proc/self/status').read()");
    assert!(
        ["CapPrm", "CapEff", "CapBnd"]
            .iter()
            .all(|line| status.contains(&format!("{line}:\t0000000000000000"))),
        "{status}"
    );
    let worker = told(&model, &loaded, "told = os.getpid()");
    drop(loaded);
    eventually("the worker ends", || !Path::new(&format!("/proc/{worker}")).exists());
    assert_eq!(fs::read_dir(places(&model)).unwrap().count(), 0);
}

#[test]
fn a_worker_that_dies_gets_a_new_folder() {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    let first = told(
        &model,
        &loaded,
        "open(os.path.expanduser('~/left'), 'w').close(); told = os.path.expanduser('~')",
    );
    fs::write(model.folder().join("program"), "os._exit(1)").unwrap();
    loaded.run(vec![request(&[0.0])]).remove(0).unwrap_err();
    let second = told(
        &model,
        &loaded,
        "told = os.path.expanduser('~') + ' ' + str(os.listdir(os.path.expanduser('~')))",
    );
    assert!(!second.starts_with(&first) && second.ends_with(" []"), "{first} {second}");
    assert!(!Path::new(&first).exists());
}

#[test]
fn an_interpreter_that_is_missing_or_cannot_be_run_is_named() {
    for (program, words) in [("/nowhere/python", "it is not there"), ("/etc/passwd", "may not run it")] {
        let refusal = model(&[("sandbox", "best-effort"), ("python-executable", program)]).refusal();
        let begin = format!("Internal: failed to start the Python interpreter '{program}' for 'm_0': ");
        assert!(refusal.starts_with(&begin) && refusal.contains(words), "{refusal}");
    }
}

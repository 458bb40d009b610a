//! What a model in a sandbox tries in order to reach something outside, and what becomes of it. `docs/security.md` lists both.
use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
};

use crate::{
    sandbox::{REFUSED, model, told},
    support::{Loaded, TestModel, eventually},
};

fn sandboxed() -> (TestModel, Loaded) {
    let model = model(&[("sandbox", "best-effort")]);
    let loaded = model.load().unwrap();
    (model, loaded)
}

/// Calls a function of the C library, and tells the number of its error.
fn errno_of(call: &str) -> String {
    format!("c = ctypes.CDLL(None, use_errno=True); r = c.{call}; told = r, ctypes.get_errno()")
}

const EPERM: &str = "(-1, 1)";

#[test]
fn no_socket_reaches_anybody() {
    let (model, loaded) = sandboxed();
    let path = model.folder().join("log");
    let log = UnixDatagram::bind(&path).unwrap();
    log.set_nonblocking(true).unwrap();
    let path = path.display();
    for program in [
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)".to_owned(),
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)".to_owned(),
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)".to_owned(),
        format!("socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{path}')"),
        format!("socket.socketpair()[0].sendto(b'x', '{path}')"),
        format!("socket.socketpair()[0].connect('{path}')"),
        format!("socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].connect('{path}')"),
        format!("socket.socketpair()[0].bind('{path}.own')"),
        "socket.socketpair()[0].listen(1)".to_owned(),
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)".to_owned(),
    ] {
        assert_eq!(told(&model, &loaded, &program), REFUSED, "{program}");
    }
    assert!(log.recv(&mut [0; 8]).is_err(), "nothing has come");
    // 30 is AF_TIPC, which has pairs that others reach.
    assert_eq!(told(&model, &loaded, &errno_of("socketpair(30, 1, 0, (ctypes.c_int * 2)())")), EPERM);
    // A message with the address of somebody goes to the other end.
    let other = format!(
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ntry:\n    a.sendmsg([b'x'], [], 0, '{path}')\n\
         except OSError:\n    pass\ntold = 'tried'"
    );
    assert_eq!(told(&model, &loaded, &other), "tried");
    assert!(log.recv(&mut [0; 8]).is_err(), "nothing has come");
}

#[test]
fn nothing_with_a_number_or_a_name_is_shared() {
    let (model, loaded) = sandboxed();
    // 0o1600 is IPC_CREAT with the rights of the owner.
    for call in [
        "shmget(0, 4096, 0o1600)",
        "shmat(0, 0, 0)",
        "shmctl(0, 0, 0)",
        "msgget(0, 0o1600)",
        "msgsnd(0, b'12345678x', 1, 0)",
        "msgrcv(0, b'12345678x', 1, 0, 0o4000)",
        "msgctl(0, 0, 0)",
        "semget(0, 1, 0o1600)",
        "semop(0, b'123456', 1)",
        "semctl(0, 0, 0)",
        "mq_open(b'/nereid-escape', 0o102, 0o600, 0)",
    ] {
        assert_eq!(told(&model, &loaded, &errno_of(call)), EPERM, "{call}");
    }
    // The C library says EACCES instead.
    assert_eq!(told(&model, &loaded, &errno_of("mq_unlink(b'/nereid-escape')")), "(-1, 13)");
    for program in [
        "from multiprocessing import shared_memory; shared_memory.SharedMemory('nereid-escape', True, 10)",
        "import multiprocessing; multiprocessing.Lock()",
    ] {
        assert!(told(&model, &loaded, program).starts_with("PermissionError"), "{program}");
    }
    assert!(!Path::new("/dev/shm/nereid-escape").exists());
}

#[test]
fn no_process_leaves_its_group() {
    let (model, loaded) = sandboxed();
    for program in [
        "os.setsid()",
        "os.setpgid(0, 0)",
        "os.setpgid(0, os.getppid())",
        "os.setpgid(subprocess.Popen(['sleep', '1000']).pid, 0)",
    ] {
        let answer = told(&model, &loaded, program);
        assert!(answer.starts_with(REFUSED), "{program}: {answer}");
    }
    assert!(told(&model, &loaded, "subprocess.Popen(['true'], start_new_session=True)").starts_with(REFUSED));
    assert!(told(&model, &loaded, "subprocess.Popen(['true'], process_group=0)").starts_with(REFUSED));
    assert_eq!(told(&model, &loaded, "told = os.setpgid(0, os.getpgrp())"), "None");
    // A program that has lost its parent.
    let daemon = "child = os.fork()\nif child == 0:\n    if os.fork() == 0:\n        open(os.path.expanduser('~/pid'), 'w').write(str(os.getpid()))\n        \
                  os.execvp('sleep', ['sleep', '1000'])\n    os._exit(0)\nos.waitpid(child, 0)\nfile = os.path.expanduser('~/pid')\n\
                  while not os.path.exists(file) or not open(file).read():\n    pass\ntold = open(file).read()";
    let daemon = told(&model, &loaded, daemon);
    assert!(daemon.parse::<u32>().is_ok() && runs(&daemon), "{daemon}");
    drop(loaded);
    eventually("the program ends with the model", || !runs(&daemon));
}

/// Whether a process runs. One that has ended may wait for the init process of the system.
fn runs(process: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !(state.is_empty() || state.contains(") Z ") || state.contains(") X "))
}

#[test]
fn no_other_process_is_touched() {
    let (model, loaded) = sandboxed();
    for program in [
        "os.kill(os.getppid(), 0)",
        "os.killpg(os.getpgid(os.getppid()), 0)",
        "os.kill(1, 0)",
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)",
        "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "open(f'/proc/{os.getppid()}/environ', 'rb').read(1)",
        "open(f'/proc/{os.getppid()}/maps').read(1)",
        "os.readlink(f'/proc/{os.getppid()}/fd/0')",
        "os.listdir(f'/proc/{os.getppid()}/root')",
        "open(f'/proc/{os.getppid()}/oom_score_adj', 'w')",
        "open(f'/proc/{os.getppid()}/comm', 'w')",
    ] {
        let answer = told(&model, &loaded, program);
        assert!(answer.starts_with("PermissionError"), "{program}: {answer}");
    }
    for call in [
        // PTRACE_ATTACH and PTRACE_SEIZE.
        "ptrace(16, os.getppid(), 0, 0)",
        "ptrace(0x4206, os.getppid(), 0, 0)",
        "prlimit(os.getppid(), 7, 0, bytes(16))",
        // 438 is pidfd_getfd, for the standard output of the server.
        "syscall(438, os.pidfd_open(os.getppid()), 1, 0)",
    ] {
        assert_eq!(told(&model, &loaded, &errno_of(call)), EPERM, "{call}");
    }
    let reads = "class Vector(ctypes.Structure):\n    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n\
                 own = ctypes.create_string_buffer(8)\nc = ctypes.CDLL(None, use_errno=True)\n\
                 there = Vector(ctypes.addressof(own), 8)\n\
                 r = c.process_vm_readv(os.getppid(), ctypes.byref(there), 1, ctypes.byref(there), 1, 0)\ntold = r, ctypes.get_errno()";
    assert_eq!(told(&model, &loaded, reads), EPERM);
    // Characters for the shell that reads the terminal of the server next: TIOCSTI and TIOCLINUX.
    for request in ["0x5412", "0x541c"] {
        let program = format!("import fcntl; fcntl.ioctl(os.open('/dev/null', os.O_RDWR), {request}, b'x')");
        assert_eq!(told(&model, &loaded, &program), REFUSED, "{request}");
    }
}

#[test]
fn no_file_outside_is_made_changed_or_removed() {
    let (model, loaded) = sandboxed();
    let outside = model.folder().join("outside");
    fs::write(&outside, "untouched").unwrap();
    fs::create_dir(model.folder().join("folder")).unwrap();
    let (file, folder) = (outside.display(), model.folder().display());
    for program in [
        format!("open('{file}', 'w')"),
        format!("os.truncate('{file}', 0)"),
        format!("os.unlink('{file}')"),
        format!("os.rename('{file}', '{file}x')"),
        format!("os.rename('{file}', os.path.expanduser('~/x'))"),
        format!("os.link('{file}', os.path.expanduser('~/x'))"),
        format!("os.symlink('/etc', '{folder}/link')"),
        format!("os.mkdir('{folder}/made')"),
        format!("os.rmdir('{folder}/folder')"),
        format!("os.mkfifo('{folder}/pipe')"),
        format!("os.mknod('{folder}/node')"),
        // A link in the scratch folder leads nowhere else.
        format!(
            "os.symlink('{file}', os.path.expanduser('~/link')); open(os.path.expanduser('~/link'), 'w')"
        ),
        "open(os.path.expanduser('~/../../../outside'), 'w')".to_owned(),
        format!("open(f'/proc/self/fd/{{os.open(\"{file}\", os.O_RDONLY)}}', 'w')"),
        format!("open('/proc/self/root{file}', 'w')"),
        "open('/proc/sys/kernel/core_pattern', 'w')".to_owned(),
        "open('/proc/sysrq-trigger', 'w')".to_owned(),
        "open('/dev/shm/nereid-escape', 'w')".to_owned(),
        "os.chroot('/')".to_owned(),
        "os.mknod(os.path.expanduser('~/null'), 0o20666, os.makedev(1, 3))".to_owned(),
    ] {
        let answer = told(&model, &loaded, &program);
        let is_refused =
            ["PermissionError", "OSError: [Errno 18]", "OSError: [Errno 30]", "FileNotFoundError"]
                .iter()
                .any(|error| answer.starts_with(error));
        assert!(is_refused, "{program}: {answer}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    for name in ["link", "made", "pipe", "node", "outsidex"] {
        assert!(!model.folder().join(name).exists(), "{name}");
    }
    // CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID.
    for flag in ["0x20000", "0x10000000", "0x20000000"] {
        assert_eq!(told(&model, &loaded, &errno_of(&format!("unshare({flag})"))), EPERM, "{flag}");
    }
    assert_eq!(told(&model, &loaded, &errno_of("mount(b'none', b'/tmp', b'tmpfs', 0, 0)")), EPERM);
}

#[test]
fn the_memory_of_the_server_stays_as_the_server_has_made_it() {
    let (model, loaded) = sandboxed();
    let find = "import gc; gc.unfreeze()\nareas = {type(o).__name__: o for o in gc.get_objects() if type(o).__name__ in ('InputMemory', 'OutputMemory')}\n";
    for area in ["InputMemory", "OutputMemory"] {
        for change in ["os.ftruncate(d, 0)", "import fcntl; fcntl.fcntl(d, 1033, 4)"] {
            let program =
                format!("{find}d = areas['{area}']._descriptor; os.ftruncate(d, 1 << 20); {change}");
            assert_eq!(told(&model, &loaded, &program), REFUSED, "{area} {change}");
        }
    }
}

#[test]
fn what_models_need_works() {
    let (model, loaded) = sandboxed();
    for (program, answer) in [
        ("a, b = socket.socketpair(); a.sendall(b'x'); told = b.recv(1)", "b'x'"),
        (
            "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC); a.send(b'x'); told = b.recv(1)",
            "b'x'",
        ),
        ("told = subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout", "x\n"),
        ("told = subprocess.run('echo x | cat', shell=True, capture_output=True, text=True).stdout", "x\n"),
        (
            "import multiprocessing as m\ncontext = m.get_context('fork')\na, b = context.Pipe()\n\
             child = context.Process(target=lambda: b.send(7)); child.start(); told = a.recv(); child.join()",
            "7",
        ),
        (
            "import concurrent.futures as f\nwith f.ThreadPoolExecutor(4) as threads:\n    told = sum(threads.map(abs, range(5)))",
            "10",
        ),
        ("told = asyncio.run(asyncio.wait_for(asyncio.to_thread(lambda: 7), 60))", "7"),
        (
            "async def run():\n    child = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE)\n    \
             return (await child.communicate())[0]\ntold = asyncio.run(run())",
            "b'x\\n'",
        ),
        ("child = subprocess.Popen(['sleep', '1000']); os.kill(child.pid, 9); told = child.wait()", "-9"),
        ("import mmap; m = mmap.mmap(-1, 4096); m[0] = 7; told = m[0]", "7"),
        (
            "import shutil; f = os.path.expanduser('~/f'); open(f, 'w').close(); shutil.copy2(f, f + 'x'); told = os.path.exists(f + 'x')",
            "True",
        ),
    ] {
        assert_eq!(told(&model, &loaded, program), answer, "{program}");
    }
}

/// What the documents name as not kept away from a model with the user of the server.
#[test]
fn what_is_not_kept_away_is_known() {
    let (model, loaded) = sandboxed();
    let outside = model.folder().join("outside");
    fs::write(&outside, "secret").unwrap();
    let file = outside.display();
    assert_eq!(told(&model, &loaded, &format!("told = open('{file}').read()")), "secret");
    assert_eq!(told(&model, &loaded, &format!("os.chmod('{file}', 0o600); told = 'done'")), "done");
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        told(&model, &loaded, "told = os.getpriority(os.PRIO_PROCESS, os.getppid()) is not None"),
        "True"
    );
    assert_eq!(told(&model, &loaded, "told = len(os.sched_getaffinity(os.getppid())) > 0"), "True");
    assert_eq!(told(&model, &loaded, "told = len(open(f'/proc/{os.getppid()}/cmdline').read()) > 0"), "True");
    assert_eq!(told(&model, &loaded, "told = os.memfd_create('x') > 0"), "True");
}

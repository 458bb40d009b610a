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
    // 428 to 430 are open_tree for a copy, move_mount and fsopen; -100 is the current directory.
    for call in [
        "mount(b'none', b'/tmp', b'tmpfs', 0, 0)",
        "umount2(b'/proc', 2)",
        "syscall(428, -100, b'/', 1)",
        "syscall(429, -100, b'/tmp', -100, b'/mnt', 0)",
        "syscall(430, b'tmpfs', 0)",
    ] {
        assert_eq!(told(&model, &loaded, &errno_of(call)), EPERM, "{call}");
    }
}

/// Namespaces: of mounts, control groups, names of the host, System V, processes, the network and time.
const NAMESPACES: [u32; 7] = [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x2000_0000, 0x4000_0000, TIME];
const TIME: u32 = 0x80;

/// A namespace of users. Who makes one has all privileges inside, and can make the others.
const USERS: u32 = 0x1000_0000;

/// Calls a function of the C library in a process of one thread, as the kernel wants it for new namespaces. Tells the number
/// of the error, or with a minus the signal that has ended the process.
fn errno_alone(call: &str) -> String {
    format!(
        "import struct\nchild = os.fork()\nif child == 0:\n    try:\n        c = ctypes.CDLL(None, use_errno=True); r = c.{call}\n        \
         os._exit(ctypes.get_errno() if r < 0 else 0)\n    finally:\n        os._exit(255)\n\
         told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    )
}

#[test]
fn no_namespace_is_made() {
    let (boxed_model, boxed) = sandboxed();
    let free_model = model(&[]);
    let free = free_model.load().unwrap();
    let outside = |call: &str| told(&free_model, &free, &errno_alone(call));
    // Where the kernel gives namespaces to every user, all these calls succeed without a sandbox.
    let kernel_gives_them = outside(&format!("unshare({USERS})")) == "0";
    let clone = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
    for flags in NAMESPACES.into_iter().chain([0]).map(|namespace| namespace | USERS) {
        // 435 is clone3, which a sandbox seems not to have; 17 is the signal of the end, among whose bits is that of time.
        let new = format!("syscall(435, struct.pack('8Q', {flags}, 0, 0, 0, 17, 0, 0, 0), 64)");
        let old = format!("syscall({clone}, {flags} | 17, 0, 0, 0, 0)");
        let mut calls = vec![(format!("unshare({flags})"), "1"), (new, "38")];
        calls.extend((flags & TIME == 0).then_some((old, "1")));
        for (call, refusal) in calls {
            assert_eq!(told(&boxed_model, &boxed, &errno_alone(&call)), refusal, "{call}");
            let answer = outside(&call);
            // 22: this kernel has no such namespace.
            assert!(!kernel_gives_them || matches!(&*answer, "0" | "22"), "{call}: {answer}");
        }
    }
    let program = format!("import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.unshare({USERS}))");
    let program =
        format!("subprocess.run([sys.executable, '-c', '{program}'], capture_output=True, text=True)");
    assert_eq!(told(&boxed_model, &boxed, &format!("told = {program}.stdout")), "-1\n");
}

#[test]
fn no_namespace_is_entered() {
    let (model, loaded) = sandboxed();
    for namespace in ["mnt", "cgroup", "uts", "ipc", "user", "pid", "net", "time"] {
        let own = format!("setns(os.open('/proc/self/ns/{namespace}', os.O_RDONLY), 0)");
        assert_eq!(told(&model, &loaded, &errno_alone(&own)), "1", "{namespace}");
        let of_server = format!("os.open(f'/proc/{{os.getppid()}}/ns/{namespace}', os.O_RDONLY)");
        let answer = told(&model, &loaded, &of_server);
        assert!(answer.starts_with("PermissionError"), "{namespace}: {answer}");
    }
    let by_process = format!("setns(os.pidfd_open(1), {USERS})");
    assert_eq!(told(&model, &loaded, &errno_alone(&by_process)), "1");
}

/// Each call has further numbers on this processor, which kernels may have.
#[cfg(target_arch = "x86_64")]
#[test]
fn no_other_number_of_a_call_is_a_way_out() {
    let (model, loaded) = sandboxed();
    // The x32 interface: unshare, clone, setns, socket, setsid, and ioctl for the terminal, which has a number of its own.
    for call in ["272, 0", "56, 0x10000011", "308, 0, 0", "41, 1, 1, 0", "112", "514, 0, 0x5412, b'x'"] {
        let call = format!("syscall(0x40000000 + {call})");
        assert_eq!(told(&model, &loaded, &errno_alone(&call)), "1", "{call}");
    }
    // The interface of programs with 32 bits ends the process, by SIGSYS (31) or, if the kernel has it not, by SIGSEGV. 310 is
    // unshare. The code is: push rbx; mov eax, 310; mov ebx, CLONE_NEWUSER; int 0x80; pop rbx; ret.
    let code = r"b'\x53\xb8\x36\x01\x00\x00\xbb\x00\x00\x00\x10\xcd\x80\x5b\xc3'";
    let program = format!(
        "import mmap; m = mmap.mmap(-1, 4096, prot=7); m.write({code})\nchild = os.fork()\nif child == 0:\n    \
         r = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\n    os._exit(1 if r else 0)\n\
         told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    );
    let answer = told(&model, &loaded, &program);
    assert!(["-31", "-11"].contains(&&*answer), "{answer}");
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
    let locks = format!("import fcntl; told = fcntl.flock(open('{file}'), fcntl.LOCK_EX | fcntl.LOCK_NB)");
    assert_eq!(told(&model, &loaded, &locks), "None");
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

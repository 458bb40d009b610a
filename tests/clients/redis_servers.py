"""Redis servers of the tests, and a small client for them.

$NEREID_TEST_REDIS_SERVER is the program; `cargo xtask test` installs it. Otherwise that of the system is used, or the
one that `cargo xtask setup` has fetched.
"""

import contextlib
import signal
import socket

import processes
import programs
from serving import PATIENCE, eventually, free_port

ENTRIES = "nereid:entry:"
SECRET = "nereid:secret"


def program():
    return programs.find("redis-server", "NEREID_TEST_REDIS_SERVER")


class RedisError(Exception):
    """An error that the store replies."""


class RedisEnded(Exception):
    """The process of a store has ended by itself."""


# Between the choice of a port and the start of the store another process may take the port.
MOST_STARTS = 5


class RedisServer:
    """A store that keeps nothing on disk. `options` are those of its command line."""

    def __init__(self, folder, *options, password=None):
        self.password = password
        self._options = ["--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._options += [*options, *(("--requirepass", password) if password else ())]
        for left in reversed(range(MOST_STARTS)):
            self.port = free_port()
            try:
                self.start()
                return
            except RedisEnded:
                if not left:
                    raise

    def start(self):
        """Starts the process, again on the same port."""
        line = [program(), "--port", str(self.port), *self._options]
        self.process = processes.start(line, stdout=processes.DEVNULL)
        try:
            eventually(self._answers, "redis-server to answer")
        except BaseException:
            self.kill()
            raise

    def _answers(self):
        if self.process.poll() is not None:
            raise RedisEnded(f"redis-server ended with {self.process.returncode}")
        with contextlib.suppress(OSError):
            return self.ask("PING") == b"PONG"

    def kill(self):
        """As kill -9."""
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, *arguments):
        """The reply to one command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            stream = connection.makefile("rwb")
            if self.password:
                send(stream, "AUTH", self.password)
            return send(stream, *arguments)

    def keys(self):
        """The keys of all cached responses."""
        return self.ask("KEYS", f"{ENTRIES}*")

    def cache_options(self, **settings):
        """The options of a server that uses this store. Unless a test says otherwise, the store may be slow."""
        patient = {"socket_timeout": 20000, "connect_timeout": 20000}
        settings = {"host": "127.0.0.1", "port": self.port} | patient | settings
        return [f"--cache-config=redis,{name}={value}" for name, value in settings.items()]


class TlsRedisServer(RedisServer):
    """A store whose only port has TLS."""

    def __init__(self, folder, certificates, *options):
        self.tls_port = free_port()
        tls = ["--tls-port", str(self.tls_port), "--tls-cert-file", str(certificates / "server.pem")]
        tls += ["--tls-key-file", str(certificates / "server.key"), "--tls-ca-cert-file", str(certificates / "ca.pem")]
        super().__init__(folder, *tls, *options)

    def cache_options(self, **settings):
        return super().cache_options(port=self.tls_port, **settings)


def send(stream, *arguments):
    """Sends a command and reads its reply."""
    encoded = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    stream.write(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in encoded))
    stream.flush()
    return read(stream)


def read(stream):
    line = stream.readline()
    if not line:
        raise ConnectionError("the store has closed the connection")
    kind, rest = line[:1], line[1:].strip()
    match kind:
        case b"+":
            return rest
        case b"-":
            raise RedisError(rest.decode())
        case b":":
            return int(rest)
        case b"$":
            return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
        case b"*":
            return [read(stream) for _ in range(int(rest))]
    raise AssertionError(f"unexpected reply {line}")


@contextlib.contextmanager
def running(server):
    """Ends the store after the test, even if it is stopped."""
    try:
        yield server
    finally:
        server.kill()


def make_certificates(folder):
    """A certificate authority, another one, and certificates of the store `redis.test` and of a client."""

    def openssl(*arguments):
        processes.run(["openssl", *arguments], check=True, cwd=folder)

    for name in ("ca", "other"):
        new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}")
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-addext", "keyUsage=critical,keyCertSign")
    for name, subject in (("server", "redis.test"), ("client", "client.test")):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out", "csr")
        (folder / "extensions").write_text(f"subjectAltName=DNS:{subject}\n")
        sign = ("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        openssl(*sign, "-extfile", "extensions", "-out", f"{name}.pem")
    return folder

"""The two servers of a comparison: a real Triton, taken out of a wheel, and Nereid. Both serve the same models.

Both run models in the same Python. `$NEREID_PLUGINS` is the folder that `cargo xtask integrations` makes.
"""

import contextlib
import http.client
import itertools
import os
import pathlib
import shutil
import tempfile

import plugins
import processes
import serving
from differential.answers import LOST

TRITON = plugins.FOLDER and plugins.FOLDER / "pytriton/tritonserver/bin/tritonserver"
LIBRARIES = plugins.FOLDER and plugins.FOLDER / "nvidia_pytriton.libs"
# Options of Nereid alone: what this Triton does without being asked.
AS_TRITON = (
    "--allow-client-shm=true",
    f"--backend-directory={plugins.BACKENDS}",
    "--backend-config=python,implementation=built-in",
)


STARTS = itertools.count()
# How often a server is started: this Triton sometimes ends at once on a busy machine.
TRIES = 3
# How long the load of a model may take, in seconds.
LOAD_PATIENCE = 180.0


class Nereid(serving.Server):
    """Nereid, which runs models in the Python of Triton's plug-ins."""

    name = "nereid"

    def __init__(self, folder, repository, *options):
        super().__init__(folder, repository, *AS_TRITON, *options, variables=plugins.VARIABLES)


class Triton(serving.Server):
    """A real Triton."""

    name = "triton"

    def __init__(self, folder, repository, *options):
        # The name of its shared memory, by which what it leaves is found. Another start has another one.
        self._mark = f"{folder.name}-{next(STARTS)}"
        super().__init__(folder, repository, variables=variables())
        self._line = [str(TRITON), f"--model-repository={repository}"]
        services = ("http", "grpc", "metrics")
        self._line += [f"--{service}-address=127.0.0.1" for service in services]
        ports = serving.free_ports(len(services))
        self._line += [f"--{service}-port={port}" for service, port in zip(services, ports, strict=True)]
        self._line += [
            f"--backend-directory={plugins.BACKENDS}",
            f"--backend-config=python,shm-region-prefix-name={self._mark}",
            "--exit-timeout-secs=10",
            *options,
        ]

    def __exit__(self, *failure):
        # It sometimes ends by a signal of its own, which is no matter here.
        if self.process.poll() is None:
            self.terminate()
            with contextlib.suppress(processes.TimeoutExpired):
                self.process.wait(serving.PATIENCE)
        self.kill()
        for process in processes.with_words(self._mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, 9)
        for left in pathlib.Path("/dev/shm").glob(f"{self._mark}*"):
            left.unlink(missing_ok=True)


def variables():
    """What Triton finds its libraries by."""
    found = dict(plugins.VARIABLES)
    found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(LIBRARIES), found.get("LD_LIBRARY_PATH")]))
    return found


NAMES = (Triton.name, Nereid.name)


class Pair:
    """Both servers with models. One that has died is started again, because other cases need it."""

    def __init__(self, models, *options):
        """`models` are written, and loaded one after the other: many processes at once end this Triton on a busy machine."""
        self._models = [model.name for model in models]
        self._options = ("--model-control-mode=explicit", *options)
        self._stack = contextlib.ExitStack()
        self.folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="differential-")))
        self.repository = self.folder / "models"
        self.repository.mkdir()
        for model in models:
            model.write(self.repository)
        self._running = {}

    def __enter__(self):
        try:
            for kind in (Triton, Nereid):
                self._start(kind)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *failure):
        for server in self._running.values():
            server.__exit__(*failure)
        self._stack.close()

    def _start(self, kind):
        for last in (False,) * (TRIES - 1) + (True,):
            server = kind(self.folder, self.repository, *self._options)
            try:
                server.__enter__()
                self._running[kind] = server
                for name in self._models:
                    load(server, name)
                return
            except (AssertionError, OSError):
                end(server)
                if last:
                    raise

    def revive(self, answers):
        """Starts again what has died, and a Triton that closes connections where Nereid answers. Returns the names of both.

        `answers` are those of Triton, and those of Nereid.
        """
        triton_loses, nereid_loses = (any(answer.code == LOST for answer in given) for given in answers)
        if triton_loses and not nereid_loses:
            self.triton.kill()
        dead = set()
        for kind, server in list(self._running.items()):
            if server.process.poll() is not None:
                dead.add(kind.name)
                end(server)
                self._start(kind)
        return dead

    @property
    def triton(self):
        return self._running[Triton]

    @property
    def nereid(self):
        return self._running[Nereid]


def end(server):
    """Ends a server that has failed, with all that it has started."""
    server.kill()
    server.__exit__(AssertionError, None, None)


def load(server, name):
    """Loads a model."""
    connection = http.client.HTTPConnection(server.http, timeout=LOAD_PATIENCE)
    with contextlib.closing(connection):
        connection.request("POST", f"/v2/repository/models/{name}/load", b"{}")
        response = connection.getresponse()
        assert response.status == 200, f"{name} was not loaded: {response.read()}; {server.log_end()}"


MODELS = pathlib.Path(__file__).parent / "python_models"


def write_model(repository, name, file, config, labels=None):
    """Adds a model in Python: a file of `python_models`, and a configuration."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    shutil.copy(MODELS / f"{file}.py", folder / "1" / "model.py")
    (folder / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')
    if labels:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))

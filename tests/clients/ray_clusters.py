"""Clusters of Ray on this machine, with Ray Serve: what runs in them, and what is left of them.

$NEREID_TEST_RAY is an interpreter that has Ray: `cargo xtask integrations` installs it. Tests that need it have the mark `ray`.
"""

import contextlib
import json
import os
import pathlib
import re
import tempfile

import processes
import programs
from protocols import GRPC
from python_backends import BUILT_IN
from serving import BINARY, ROOT, TARGET, environment, eventually, free_ports, refuses_connections

PROGRAM = ROOT / "tests/clients/other_programs/ray_cluster.py"


def ray_python():
    programs.check_group("ray")
    found = pathlib.Path(os.environ.get("NEREID_TEST_RAY") or TARGET / "integrations/ray/venv/bin/python")
    return found if found.exists() else programs.missing("NEREID_TEST_RAY names no Python", programs.INTEGRATIONS)


def parent_of(process):
    """The process that has started another one, or None if that has just ended."""
    try:
        return int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


class Place:
    """Where a cluster is: two ports, and a folder with all that it writes, whose path is short, as sockets want it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.http_port, self.grpc_port = free_ports(2)
        self.http, self.grpc = f"127.0.0.1:{self.http_port}", f"127.0.0.1:{self.grpc_port}"
        self.log = self.folder / "log"

    def variables(self, **more):
        return environment() | BUILT_IN.variables | {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "RAY_TMPDIR": str(self.folder),
            "PYTHONPATH": str(ROOT / "packaging/wheel"),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A busy machine starts slowly.
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
            # How often replicas tell their load, in seconds.
            "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5",
            **more,
        }

    def servers(self):
        """The servers that replicas have started. What a server starts has its command line for a moment."""
        found = processes.with_words(f"unix:{self.folder}/nereid-ray-")
        return {process for process in found if parent_of(process) not in found}

    def executions(self, server, model):
        """How often one of these servers has executed a model."""
        socket = re.search(r"--grpc-address=(unix:\S+)", processes.line_of(server))[1]
        with GRPC.library.InferenceServerClient(socket) as client:
            return GRPC.statistics(client, model).get("execution_count", 0)

    def serve_logs(self):
        """What Ray Serve has logged, replicas included."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("session_*/logs/serve/*.log"))

    def log_end(self):
        return f"{self.log} ends:\n{self.log.read_text(errors='replace')[-3000:]}"

    def is_left(self):
        """What is still there of a cluster that has ended."""
        ports = [port for port in (self.http_port, self.grpc_port) if not refuses_connections(port)]
        running = {processes.line_of(process) for process in processes.with_words(str(self.folder))}
        return ports or running or list(self.folder.glob("nereid-ray-*"))


@contextlib.contextmanager
def place():
    """A place of one's own. Nothing of its cluster may be left in the end."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        place = Place(folder)
        yield place
        eventually(lambda: not place.is_left(), f"the end of all that {folder} has; {place.log_end()}")


class Cluster(Place):
    """A cluster that does what its methods say: they are the commands of `other_programs/ray_cluster.py`."""

    def __init__(self, place, **variables):
        self.__dict__.update(place.__dict__)
        self._variables = variables

    def __enter__(self):
        line = [ray_python(), PROGRAM, self.http_port, self.grpc_port, self.folder]
        with open(self.log, "wb") as log:
            ends = {"stdin": processes.PIPE, "stdout": processes.PIPE, "stderr": log}
            self._process = processes.start(line, env=self.variables(**self._variables), text=True, **ends)
        try:
            assert self._answer() == "ready"
        except BaseException:
            self._process.kill()
            raise
        return self

    @property
    def pid(self):
        return self._process.pid

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(processes.PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, f"the cluster has ended; {self.log_end()}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClusterError(answer["error"])
        return answer["answer"]

    def do(self, command, **arguments):
        self._process.stdin.write(json.dumps([command, arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def deploy(self, repository, **options):
        self.do("deploy", **{"program": str(BINARY), "model_repository": str(repository), **options})

    def replicas(self):
        """The number of replicas that run."""
        return self.do("status")["replicas"].get("RUNNING", 0)


def haproxy_variables(folder):
    """What lets Ray have HAProxy in front, with files and ports of its own.

    The paths of sockets must be short: Ray adds a folder of 56 letters.
    """
    metrics_port, stats_port = free_ports(2)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{folder}/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{folder}/a",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{folder}/server-state",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{folder}/m",
        # A replica ends as soon as it has no request, instead of after 30 seconds.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
    }


class ClusterError(Exception):
    """A command has failed."""

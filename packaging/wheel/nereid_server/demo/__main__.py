"""Trains small models, serves them, asks them over HTTP and gRPC, and serves on until Ctrl-C."""

import argparse
import contextlib
import http.client
import pathlib
import subprocess
import sys
import tempfile
import time

from nereid_server import BINARY

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PATIENCE = 60.0


def step(text, *line):
    print(f"-- {text}", flush=True)
    begun = time.monotonic()
    subprocess.run([sys.executable, *map(str, line)], check=True)
    print(f"   done in {time.monotonic() - begun:.1f} s", flush=True)


def train(folder):
    step("training a classifier of handwritten digits", PROGRAMS / "train.py", folder)
    step("training a pipeline of scikit-learn for the same digits, as a model in Python", PROGRAMS / "train_pipeline.py", folder)
    step("training a forest of scikit-learn for the same digits", PROGRAMS / "train_forest.py", folder)
    step("training a network that tells shapes apart, behind a model that decodes pictures", PROGRAMS / "train_shapes.py", folder)


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def serving(folder, ports):
    """The server as a process. Ends it at the end."""
    print("-- starting the server", flush=True)
    line = [BINARY, f"--model-repository={folder / 'models'}", f"--backend-config=python,python-executable={sys.executable}"]
    for name, port in zip(("http", "grpc", "metrics"), ports):
        line += [f"--{name}-address=127.0.0.1", f"--{name}-port={port}"]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + PATIENCE
        while not is_ready(ports[0]):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server does not serve:\n{(folder / 'server.log').read_text()[-3000:]}")
            time.sleep(0.01)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ask(folder, ports):
    http_port, grpc_port, _ = ports
    step("classifying digits it has not seen", PROGRAMS / "classify.py", folder, http_port, grpc_port)
    step("asking the forest and the pipeline in Python for the same digits", PROGRAMS / "compare.py", folder, grpc_port)
    step("telling the shapes in PNG files, by the ensemble of both models", PROGRAMS / "tell_shapes.py", folder, http_port)


def main():
    parser = argparse.ArgumentParser(prog="python -m nereid_server.demo", description=__doc__)
    parser.add_argument("--port-base", type=int, default=8000, help="the HTTP port; gRPC and metrics have the next two")
    parser.add_argument("--folder", type=pathlib.Path, help="where models, files and the log go (default: a temporary one, which is removed at the end)")
    parser.add_argument("--once", action="store_true", help="end when all answers are there")
    given = parser.parse_args()
    if given.folder:
        run(given, given.folder)
        return
    # Removed at the end, also after Ctrl-C.
    with tempfile.TemporaryDirectory(prefix="nereid-demo-") as folder:
        run(given, pathlib.Path(folder))


def run(given, folder):
    ports = [given.port_base + number for number in range(3)]
    train(folder)
    with serving(folder, ports) as server:
        ask(folder, ports)
        print(f"\nstatus       http://127.0.0.1:{ports[0]}/status")
        print(f"repository   {folder / 'models'}\nlog          {folder / 'server.log'}")
        if not given.once:
            print("\nServing until Ctrl-C.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.wait()


main()

"""promtool, which checks the text of metrics, and Prometheus, which is beside it.

$NEREID_TEST_PROMTOOL is the program. Otherwise that of the system is used, or the one that `cargo xtask integrations` has
fetched. Tests that need it have the mark `monitoring`.
"""

import contextlib
import json
import pathlib

import processes
import programs
import requests
from serving import eventually, free_port


def program():
    return programs.find("promtool", "NEREID_TEST_PROMTOOL", "usr/bin", "monitoring")


def findings(text):
    """What promtool has to say about a text, a line for each finding."""
    checked = processes.run([program(), "check", "metrics"], input=text)
    # 3: it has read everything, and has findings.
    assert checked.returncode in (0, 3), checked.stderr
    return (checked.stdout + checked.stderr).splitlines()


def server():
    """Prometheus: beside promtool, or in the package that this one was unpacked from."""
    promtool = pathlib.Path(program())
    unpacked = promtool.parent / "usr/bin/prometheus"
    return unpacked if unpacked.exists() else promtool.with_name("prometheus")


@contextlib.contextmanager
def prometheus(folder, target):
    """A Prometheus that scrapes an address, until the end of the block. It gives its own address."""
    config, port = folder / "prometheus.yml", free_port()
    scrape = {"job_name": "nereid", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    # JSON is YAML.
    config.write_text(json.dumps({"scrape_configs": [scrape]}))
    line = [
        server(),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with processes.running(line):
        yield f"http://127.0.0.1:{port}"


def kind_of(prometheus, metric):
    """The type that Prometheus knows of a metric."""

    def known():
        with contextlib.suppress(requests.ConnectionError):
            answer = requests.get(f"{prometheus}/api/v1/targets/metadata", params={"metric": metric}, timeout=60)
            return answer.ok and answer.json()["data"]

    return eventually(known, f"Prometheus to know {metric}", pause=0.1)[0]["type"]

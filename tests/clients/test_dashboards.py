"""The Grafana board and the alerts in `packaging` ask for metrics and labels that exist."""

import json
import re
import shutil

import processes
import pytest
import requests
import yaml
from certificates import Authority
from promtool import program
from python_backends import BUILT_IN
from redis_servers import RedisServer
from serving import ROOT, eventually

BOARD = ROOT / "packaging/grafana/nereid.json"
ALERTS = ROOT / "packaging/prometheus/alerts.yaml"

# A metric with its selectors, and the labels of an aggregation.
METRIC = re.compile(r"\b((?:nv|nereid)_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without) \(([^)]*)\)")
# Prometheus adds them to each series of a scrape.
OF_SCRAPES = {"job", "instance"}
# What Grafana puts into a query.
VARIABLES = {"$__rate_interval": "5m", "$model": ".*"}

SIMPLE = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [0] * 16} for name in ("INPUT0", "INPUT1")]
WORDS = [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["a b"]}]


def board_expressions():
    board = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def alert_expressions():
    return [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture
def repository(tmp_path):
    shutil.copytree(ROOT / "examples/models", tmp_path / "models", ignore=shutil.ignore_patterns("*.md"))
    config = tmp_path / "models/words/config.pbtxt"
    config.write_text(config.read_text() + "response_cache { enable: true }\n")
    return tmp_path / "models"


def series(server):
    """The labels of each metric of a server whose models have been asked."""
    for model, inputs in (("simple", SIMPLE), ("words", WORDS)):
        answer = requests.post(f"http://{server.http}/v2/models/{model}/infer", json={"inputs": inputs}, timeout=60)
        assert answer.status_code == 200, answer.text
    found = {}
    for line in requests.get(server.metrics, timeout=60).text.splitlines():
        if match := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


def start_with_everything(start, folder, repository, *cache):
    """A server that has all metrics that options can switch on."""
    authority = Authority(folder)
    server_certificate, revoked = authority.issue("server"), folder / "revoked.pem"
    revoked.write_bytes(authority.revocation_list())
    options = [
        *BUILT_IN.options,
        *cache,
        "--metrics-config=summary_latencies=true",
        "--metrics-config=histogram_latencies=true",
        "--model-control-mode=poll",
        "--repository-poll-secs=1",
        f"--access-log={folder / 'access.log'}",
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=triton,file={folder / 'trace'}",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={server_certificate.certificate}",
        f"--grpc-server-key={server_certificate.key}",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-root-cert={authority.certificate}",
        f"--client-crl-file={revoked}",
    ]
    server = start(repository, *options, variables=BUILT_IN.variables).wait_until_ready()
    eventually(lambda: "nereid_repository_readable" in requests.get(server.metrics, timeout=60).text, "the first look")
    return server


def test_all_metrics_and_labels_exist(start, tmp_path, repository):
    known = series(start_with_everything(start, tmp_path, repository, "--cache-config=local,size=1000000"))
    store = RedisServer(tmp_path)
    try:
        cache = ["--cache-config=redis,host=127.0.0.1", f"--cache-config=redis,port={store.port}"]
        known = series(start_with_everything(start, tmp_path, repository, *cache)) | known
    finally:
        store.kill()
    options = [*BUILT_IN.options, "--model-memory-budget=1000000000"]
    known = series(start(repository, *options, variables=BUILT_IN.variables).wait_until_ready()) | known
    expressions = board_expressions() + alert_expressions()
    assert len(expressions) > 30
    wrong = []
    for expression in expressions:
        named = METRIC.findall(expression)
        if not named and "up{" not in expression:
            wrong.append(f"names no metric: {expression}")
        labels = set(OF_SCRAPES)
        for name, selectors in named:
            if name not in known:
                wrong.append(f"there is no {name}: {expression}")
                continue
            labels |= known[name]
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
            wrong += [f"{name} has no label {label}: {expression}" for label in asked - known[name] - OF_SCRAPES]
        for grouping in GROUPING.findall(expression):
            asked = {label.strip() for label in grouping.split(",")}
            wrong += [f"no metric has the label {label}: {expression}" for label in asked - labels]
    assert wrong == []
    page = (ROOT / "docs/metrics.md").read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known} | set(known)
    # A part of a name stands for several.
    described = {name for name in re.findall(r"`((?:nv|nereid)_\w+)`", page) if not name.endswith("_")}
    assert len(described) > 40
    assert described - families == set()


def test_the_board_can_be_imported():
    board = json.loads(BOARD.read_text())
    panels = board["panels"]
    identifiers = [panel["id"] for panel in panels]
    assert len(set(identifiers)) == len(identifiers)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval"}
    assert used <= variables, used - variables
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and place["h"] > 0, panel["title"]
        assert panel["type"] == "row" or panel["description"] and panel["targets"], panel["title"]


@pytest.mark.monitoring
def test_prometheus_accepts_all_expressions(tmp_path):
    def check(path):
        checked = processes.run([program(), "check", "rules", path])
        assert checked.returncode == 0, checked.stdout + checked.stderr

    check(ALERTS)
    rules = []
    for number, expression in enumerate(board_expressions()):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        rules.append({"record": f"panel:{number}", "expr": expression})
    # JSON is YAML.
    (tmp_path / "board.yaml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    check(tmp_path / "board.yaml")


def test_each_alert_is_explained():
    page = (ROOT / "docs/alerts.md").read_text()
    for name in re.findall(r"alert: (\w+)", ALERTS.read_text()):
        assert f"| `{name}` |" in page, name

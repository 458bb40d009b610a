"""The Helm chart: what it renders is what Kubernetes takes and what the server reads, and wrong values are refused.

A cluster is not needed. Helm and the schemas of Kubernetes are libraries of an interpreter of their own (chart_program.py).
"""

import contextlib
import hashlib
import json
import re
import signal
import tomllib

import processes
import programs
import pytest
import repository as models
import requests
import yaml
from certificates import Authority
from redis_servers import RedisServer
from serving import BINARY, PATIENCE, ROOT, Server, eventually, run_to_end

CHART = ROOT / "packaging/helm/nereid"
TEMPLATES = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

# Kubernetes before it has no volumes of images.
IMAGE_VOLUMES = (1, 31)
DIGEST = hashlib.sha256(b"secret key").hexdigest()
CLAIM = {"models": [{"claim": "models"}]}
GATEWAY = {"enabled": True, "parentRefs": [{"name": "gateway", "namespace": "network"}], "hostnames": ["models.example.net"]}
KEYS = [{"name": "shop", "sha256": DIGEST, "apis": ["inference", "metadata"], "models": ["*"]}]
KEDA = {"kind": "keda", "prometheus": "http://prometheus.monitoring:9090"}
STORE = {
    "models": [{"url": "s3://bucket/models"}, {"url": "as://account/container/models"}],
    "objectStores": {"content": {"s3": {"": {"key_id": "id", "secret_key": "word"}}}},
    "repositoryCache": {"kind": "ephemeral", "size": "50Gi", "storageClassName": "fast"},
    "options": {"model-control-mode": "poll", "repository-poll-secs": 30, "max-inflight-bytes": 3000000000},
}
EVERYTHING = {
    "models": [
        {"claim": "models", "path": "/release/"},
        {"url": "gs://bucket"},
        {"volume": {"nfs": {"server": "s", "path": "/m"}}},
    ],
    "image": {"repository": "registry.example/nereid", "digest": f"sha256:{DIGEST}", "pullSecrets": [{"name": "registry"}]},
    "options": {
        "log-verbose": 1,
        "log-format": "json",
        "access-log": "-",
        "access-log-rate": 0.25,
        "client-idle-timeout-secs": 90.5,
        "backend-config": ["onnxruntime,default-max-batch-size=8", "python,shm-region-prefix-name=a"],
        "http-header-forward-pattern": 'x-é<&>"\\d+',
        "disable-auto-complete-config": True,
        "http-allowed-hosts": ["models.example.net,models.vision", "localhost"],
    },
    "shutdown": {"delaySeconds": 31, "exitTimeoutSeconds": 120},
    "probes": {"startupSeconds": 1801, "readinessPeriodSeconds": 10, "readinessFailures": 3},
    "repositoryCache": {"kind": "claim", "claim": "copies"},
    "objectStores": {"secret": "stores"},
    "apiKeys": {"secret": "keys"},
    "tls": {"secret": "certificate", "metrics": True, "mutual": {"grpc": True, "metrics": True}},
    "responseCache": {"kind": "redis", "redis": {"host": "redis.cache", "tls": True, "secret": "redis"}},
    "service": {"type": "LoadBalancer", "annotations": {"example.net/kind": "internal"}},
    "httpRoute": GATEWAY,
    "grpcRoute": GATEWAY | {"annotations": {"a": "b"}},
    "autoscaling": KEDA | {"queuedWorkSeconds": 0.05, "cpuPercent": 70},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {
        "enabled": True,
        "clients": [{"podSelector": {"matchLabels": {"role": "shop"}}}],
        "scrapers": [{"namespaceSelector": {}}],
        "egress": [{"ports": [{"port": 443}]}],
    },
    "serviceAccount": {"name": "vision", "annotations": {"eks.amazonaws.com/role-arn": "arn"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "vision"},
    "priorityClassName": "high",
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "inference", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpread": "DoNotSchedule",
    "temporarySizeLimit": "1Gi",
    "env": [{"name": "TZ", "value": "UTC"}],
    "envFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
}
VARIANTS = {
    "claim": CLAIM,
    "object store": STORE,
    "image volume": {"models": [{"image": "registry.example/models:1", "path": "models"}]},
    "volume": {"models": [{"volume": {"hostPath": {"path": "/models"}}}], "topologySpread": "none", "replicas": 1},
    "hpa": CLAIM | {"autoscaling": {"kind": "hpa", "queuedWorkSeconds": 0.25}},
    "hpa by processors": CLAIM | {"autoscaling": {"kind": "hpa", "queuedWorkSeconds": 0}},
    "keda": CLAIM | {"autoscaling": KEDA | {"cpuPercent": 0}},
    "tls": CLAIM | {"tls": {"secret": "certificate"}},
    "keys": CLAIM | {"apiKeys": {"keys": KEYS}},
    "local cache": CLAIM | {"responseCache": {"kind": "local", "size": 1000000}, "repositoryCache": {"sizeLimit": "20Gi"}},
    "redis": CLAIM | {"responseCache": {"kind": "redis", "redis": {"host": "redis"}}},
    "fewest objects": CLAIM | {"podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False}},
    "names": CLAIM | {"nameOverride": "inference", "fullnameOverride": "models-of-vision"},
    "everything": EVERYTHING,
}
ALWAYS = {("Deployment", "shop-nereid"), ("Service", "shop-nereid"), ("Service", "shop-nereid-headless")}
ALWAYS |= {("ConfigMap", "shop-nereid")}

# A wrong value, and what the error must name.
WRONG = {
    "unknown key": (CLAIM | {"replica": 2}, "replica"),
    "unknown key inside": (CLAIM | {"shutdown": {"delay": 3}}, "/shutdown"),
    "text for a number": (CLAIM | {"replicas": "2"}, "/replicas"),
    "fraction for a number": (CLAIM | {"shutdown": {"delaySeconds": 8.5}}, "/shutdown/delaySeconds"),
    "number for a text": (CLAIM | {"image": {"tag": 1.1}}, "/image/tag"),
    "unknown kind of autoscaling": (CLAIM | {"autoscaling": {"kind": "vpa"}}, "/autoscaling/kind"),
    "unknown option": (CLAIM | {"options": {"http-prt": 1}}, "http-prt"),
    "option of the chart": (CLAIM | {"options": {"http-port": 9000}}, "http-port"),
    "wrong kind of option": (CLAIM | {"options": {"log-verbose": "much"}}, "/options/log-verbose"),
    "one value for a list": (CLAIM | {"options": {"backend-config": "python,a=b"}}, "/options/backend-config"),
    "unknown word of an option": (CLAIM | {"options": {"model-control-mode": "auto"}}, "/options/model-control-mode"),
    "no models": ({}, "models is empty"),
    "two places of a repository": ({"models": [{"claim": "a", "url": "s3://b"}]}, "/models/0"),
    "no place of a repository": ({"models": [{"path": "a"}]}, "/models/0"),
    "unknown object store": ({"models": [{"url": "ftp://b"}]}, "/models/0/url"),
    "wrong digest": (CLAIM | {"image": {"digest": "sha256:1"}}, "/image/digest"),
    "wrong digest of a key": (CLAIM | {"apiKeys": {"keys": [KEYS[0] | {"sha256": "word"}]}}, "/apiKeys/keys/0/sha256"),
    "probes without a right": (
        CLAIM | {"apiKeys": {"keys": KEYS, "anonymous": {"apis": [], "models": []}}},
        "apiKeys.anonymous.apis has no health",
    ),
    "probes without a header": (
        CLAIM | {"options": {"http-restricted-api": ["metadata,health:key=word"]}},
        "options.http-restricted-api restricts health",
    ),
    "two Secrets": (CLAIM | {"apiKeys": {"secret": "a", "keys": KEYS}}, "apiKeys.secret and apiKeys.keys"),
    "delay shorter than a probe": (
        CLAIM | {"shutdown": {"delaySeconds": 5}},
        "shutdown.delaySeconds is 5, and must be at least 6",
    ),
    "unknown port": (CLAIM | {"service": {"httpPort": 70000}}, "/service/httpPort"),
    "mutual TLS without TLS": (CLAIM | {"tls": {"mutual": {"grpc": True}}}, "tls.mutual needs tls.secret"),
    "mutual TLS of a plain port": (
        CLAIM | {"tls": {"secret": "s", "mutual": {"metrics": True}}},
        "tls.mutual.metrics needs tls.metrics",
    ),
    "no claim": (CLAIM | {"repositoryCache": {"kind": "claim"}}, "repositoryCache.claim"),
    "no store": (CLAIM | {"responseCache": {"kind": "redis"}}, "responseCache.redis.host is empty"),
    "wrong size": (CLAIM | {"temporarySizeLimit": "1 GB"}, "/temporarySizeLimit"),
    "fewest above most": (CLAIM | {"autoscaling": {"kind": "hpa", "maxReplicas": 1}}, "autoscaling.maxReplicas only 1"),
    "nothing that scales": (
        CLAIM | {"autoscaling": {"kind": "hpa", "queuedWorkSeconds": 0, "cpuPercent": 0}},
        "nothing scales the servers",
    ),
    "no request of processors": (
        CLAIM | {"autoscaling": {"kind": "hpa"}, "resources": {"requests": {"cpu": None}}},
        "needs resources.requests.cpu",
    ),
    "no Prometheus": (CLAIM | {"autoscaling": {"kind": "keda"}}, "autoscaling.prometheus is empty"),
    "no Gateway": (CLAIM | {"grpcRoute": {"enabled": True}}, "grpcRoute.parentRefs is empty"),
}


# Of docs/options.md: the name, the kind of the value, and the text.
OPTION = re.compile(r"^\| `--([\w-]+)`(?: `\w+`)? \| (?:`(.*?)`)? ?\| (.*) \|$", re.MULTILINE)
# Options that have no place in `options`, beside those that the chart sets: commands and old names; other addresses, ports and
# platforms than the services and the probes know; colours of terminals.
LEFT_OUT = re.compile(
    r"help|version|model-store|color|unix-socket-mode|(http|grpc|metrics)-address|allow-(http|grpc|metrics)"
    r"|reuse-(http|grpc)-port|.*sagemaker.*|.*vertex-ai.*|http-use-ssl-mutual|http-root-cert"
    r"|strict-model-config|response-cache-byte-size|trace-(?!config).*"
)


def options_of_the_server():
    return {name: (kind, text) for name, kind, text in OPTION.findall((ROOT / "docs/options.md").read_text())}


def schema_of(kind, text):
    """What the schema of the values must say of an option."""
    if "May be given several times" in text:
        return {"$ref": "#/definitions/texts"}
    if "\\|" in kind:
        return {"enum": kind.split("\\|")}
    kinds = {"": "boolean", "boolean": "boolean", "integer": "integer", "seconds": "number", "float": "number"}
    return {"type": kinds.get(kind, "string")}


def test_the_chart_names_the_options_that_the_server_has():
    server = options_of_the_server()
    assert len(server) > 100
    own = set(re.findall(r'set \$options "([\w-]+)"', TEMPLATES)) | set(re.findall(r"--([a-z-]+)=", TEMPLATES))
    assert {"config", "id", "shutdown-delay-secs", "api-key-file"} <= own
    assert own <= set(server)
    expected = {
        name: schema_of(*server[name]) for name in server if name not in own and not LEFT_OUT.fullmatch(name)
    }
    assert SCHEMA["properties"]["options"]["properties"] == expected


def test_the_chart_names_metrics_and_variables_that_exist():
    for page, pattern, count in (
        ("metrics.md", r"\b(?:nv|nereid)_\w+_\w+", 1),
        ("object-stores.md", r"\bTRITON_CLOUD\w+", 1),
        ("response-cache.md", r"\bTRITONCACHE_\w+", 2),
    ):
        named = set(re.findall(pattern, TEMPLATES + (CHART / "values.yaml").read_text()))
        text = (ROOT / "docs" / page).read_text()
        assert len(named) >= count and {name for name in named if f"`{name}`" not in text} == set(), page


def test_each_value_has_a_schema_and_a_use():
    """Keys of values.yaml, of its schema, and of the templates are the same."""

    def keys(schema, values, path):
        for key, value in values.items():
            yield f"{path}.{key}"
            described = schema["properties"][key]
            if "properties" in described and f"toYaml .Values{path}.{key} " not in TEMPLATES:
                yield from keys(described, value, f"{path}.{key}")

    found = set(keys(SCHEMA, VALUES, ""))
    assert len(found) > 90
    for path in found:
        assert re.search(rf"\b{path.rsplit('.', 1)[1]}\b", TEMPLATES), f"no template uses {path}"
    described = set(SCHEMA["properties"]) - {"global"}
    assert described == set(VALUES)


@contextlib.contextmanager
def asking():
    """Asks Helm, in one process, for what the chart makes."""
    programs.check_group("chart")
    helm, chart = (programs.of_no_package(variable) for variable in ("NEREID_TEST_HELM", "NEREID_TEST_CHART"))
    line = [helm, ROOT / "tests/clients/chart_program.py", chart]
    with processes.running(line, stdin=processes.PIPE, stdout=processes.PIPE, text=True) as program:

        def ask(**question):
            program.stdin.write(json.dumps(question) + "\n")
            program.stdin.flush()
            answer = program.stdout.readline()
            assert answer, "chart_program.py has ended"
            return json.loads(answer)

        yield ask


@pytest.fixture(scope="module")
def ask():
    with asking() as ask:
        yield ask


class Rendered(dict):
    """The answer for each set of values, with all versions of Kubernetes that the chart permits."""

    def __init__(self, ask):
        super().__init__()
        self._ask = ask
        least = re.search(r'kubeVersion: ">=(\d+)\.(\d+)', (CHART / "Chart.yaml").read_text())
        self._versions = {}
        for version in ask(versions=True)["versions"]:
            short = tuple(map(int, version.split(".")[:2]))
            if short >= tuple(map(int, least.groups())):
                self._versions[short] = version
        assert len(self._versions) >= 9

    def __missing__(self, variant):
        first = IMAGE_VOLUMES if variant == "image volume" else (0, 0)
        versions = [version for short, version in self._versions.items() if short >= first]
        answer = self._ask(values=VARIANTS[variant], versions=versions)
        assert "refused" not in answer, answer
        self[variant] = answer
        return answer


@pytest.fixture(scope="module")
def rendered(ask):
    return Rendered(ask)


def objects(answer):
    """The rendered objects by kind and name."""
    found = {}
    for name, text in answer["files"].items():
        for document in yaml.safe_load_all(text) if name.endswith(".yaml") else ():
            if document:
                key = document["kind"], document["metadata"]["name"]
                assert key not in found, f"two objects {key}"
                found[key] = document
    return found


def object_of(answer, kind):
    """The object of this kind with the shortest name."""
    found = sorted((len(name), name) for of, name in objects(answer) if of == kind)
    return objects(answer)[kind, found[0][1]]


def pod_of(answer):
    pod = object_of(answer, "Deployment")["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


def options_file(answer):
    return object_of(answer, "ConfigMap")["data"]["nereid.toml"]


@pytest.mark.chart
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_accepts_the_objects(rendered, variant):
    answer = rendered[variant]
    assert answer["invalid"] == []
    assert answer["checked"] >= 6 * 4
    if variant != "names":
        assert set(objects(answer)) >= ALWAYS


@pytest.mark.chart
def test_the_schemas_of_kubernetes_find_errors(ask):
    """The proof that the test above can fail."""
    unknown, wrong = {"extraVolumes": [{"name": "a", "emptyDirectory": {}}]}, {"tolerations": [{"key": 1}]}
    for values, word in ((unknown, "emptyDirectory"), (wrong, "tolerations")):
        found = "\n".join(ask(values=CLAIM | values, versions=["1.29.0", "1.37.0"])["invalid"])
        assert word in found and "1.29.0" in found and "1.37.0" in found


@pytest.mark.chart
def test_helm_finds_nothing_wrong(ask):
    for values in ({}, *VARIANTS.values()):
        findings = ask(lint=True, values=values)["lint"]
        assert findings["errors"] == []
        # 1: information.
        assert [message for message in findings["messages"] if message["severity"] > 1] == []


@pytest.mark.chart
@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_values_are_refused_by_their_key(ask, mistake):
    values, text = WRONG[mistake]
    answer = ask(values=values)
    assert "files" not in answer
    assert text in answer["refused"], answer["refused"]


@pytest.mark.chart
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_has_the_time_to_stop_and_no_rights(rendered, variant):
    pod, container = pod_of(rendered[variant])
    options = options_file(rendered[variant])
    delay, timeout = (
        int(re.search(rf"^{name} = (\d+)$", options, re.MULTILINE)[1]) for name in ("shutdown-delay-secs", "exit-timeout-secs")
    )
    assert pod["terminationGracePeriodSeconds"] == delay + timeout + 5
    assert "lifecycle" not in container
    ready = container["readinessProbe"]
    assert delay > ready["periodSeconds"] * ready["failureThreshold"]
    start = container["startupProbe"]
    deployment = object_of(rendered[variant], "Deployment")["spec"]
    wanted = (VALUES | VARIANTS[variant]).get("probes", VALUES["probes"])["startupSeconds"]
    assert wanted <= start["periodSeconds"] * start["failureThreshold"] < deployment["progressDeadlineSeconds"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert ("replicas" in deployment) == (VARIANTS[variant].get("autoscaling") is None)
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] and rights["capabilities"] == {"drop": ["ALL"]}
    assert {"/tmp", "/var/cache/nereid"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    selected = deployment["selector"]["matchLabels"]
    labels = deployment["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()
    for (kind, _), document in objects(rendered[variant]).items():
        selector = document["spec"].get("selector") or document["spec"].get("podSelector") if "spec" in document else None
        if kind in ("Service", "PodDisruptionBudget", "PodMonitor", "NetworkPolicy"):
            assert selector.get("matchLabels", selector) == selected, kind
    for constraint in pod.get("topologySpreadConstraints", []):
        assert constraint["labelSelector"]["matchLabels"] == selected and constraint["matchLabelKeys"] == ["pod-template-hash"]


@pytest.mark.chart
def test_services_and_probes_know_what_the_ports_speak(rendered):
    for variant, web, calls, scheme in (("claim", "http", "kubernetes.io/h2c", "HTTP"), ("tls", "https", "https", "HTTPS")):
        for (kind, name), document in objects(rendered[variant]).items():
            if kind == "Service":
                ports = {port["name"]: port["appProtocol"] for port in document["spec"]["ports"]}
                assert ports == {"http": web, "grpc": calls}, name
        _, container = pod_of(rendered[variant])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == scheme
    headless = objects(rendered["claim"])["Service", "shop-nereid-headless"]
    assert headless["spec"]["clusterIP"] == "None"
    _, container = pod_of(rendered["everything"])
    assert container["livenessProbe"]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "models.example.net"}]


# The fields that matter of objects that Kubernetes has no schema for, as their operators document them.
def test_objects_of_others_can_be_named():
    """Each kind of `OF_OTHERS` in the templates is looked at below."""
    kinds = set(re.findall(r"apiVersion: (?:gateway|keda|monitoring)\S+\nkind: (\w+)", TEMPLATES))
    assert kinds == {"HTTPRoute", "GRPCRoute", "ScaledObject", "PodMonitor", "PrometheusRule"}


@pytest.mark.chart
def test_keda_asks_for_a_metric_of_these_pods(rendered):
    spec = object_of(rendered["everything"], "ScaledObject")["spec"]
    assert set(spec) == {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "advanced", "triggers"}
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop-nereid"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 10)
    work, processors = spec["triggers"]
    query = 'avg(max by (pod) (nereid_queued_work_seconds{namespace="vision",pod=~"shop-nereid-.+"}))'
    metadata = {"serverAddress": "http://prometheus.monitoring:9090", "query": query, "threshold": "0.05"}
    assert work == {"type": "prometheus", "metricType": "Value", "metadata": metadata}
    assert processors == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    assert len(object_of(rendered["keda"], "ScaledObject")["spec"]["triggers"]) == 1


@pytest.mark.chart
def test_the_autoscaler_of_kubernetes_gets_its_thresholds(rendered):
    work, processors = object_of(rendered["hpa"], "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert work["pods"] == {
        "metric": {"name": "nereid_queued_work_seconds"},
        "target": {"type": "AverageValue", "averageValue": "250m"},
    }
    assert [processors] == object_of(rendered["hpa by processors"], "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert processors["resource"]["target"]["averageUtilization"] == 80


@pytest.mark.chart
def test_prometheus_scrapes_the_job_that_alerts_and_dashboard_ask_for(rendered):
    answer = rendered["everything"]
    (endpoint,) = object_of(answer, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "nereid"}]
    assert (endpoint["port"], endpoint["path"], endpoint["scheme"]) == ("metrics", "/metrics", "https")
    assert set(endpoint["tlsConfig"]) == {"insecureSkipVerify", "cert", "keySecret"}
    rule = object_of(answer, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((ROOT / "packaging/prometheus/alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    dashboard = objects(answer)["ConfigMap", "shop-nereid-dashboard"]
    assert json.loads(dashboard["data"]["nereid.json"]) == json.loads((ROOT / "packaging/grafana/nereid.json").read_text())


@pytest.mark.chart
def test_routes_lead_to_the_ports_of_the_service(rendered):
    for kind, port in (("HTTPRoute", 8000), ("GRPCRoute", 8001)):
        route = object_of(rendered["everything"], kind)
        assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
        spec = {"parentRefs": GATEWAY["parentRefs"], "hostnames": GATEWAY["hostnames"]}
        assert route["spec"] == spec | {"rules": [{"backendRefs": [{"name": "shop-nereid", "port": port}]}]}


@pytest.mark.chart
def test_secrets_are_those_of_the_values(rendered):
    keys = objects(rendered["keys"])["Secret", "shop-nereid-api-keys"]["stringData"]["keys.json"]
    assert json.loads(keys) == {"keys": KEYS, "anonymous": {"apis": ["health"], "models": []}}
    stores = rendered["object store"]
    credentials = objects(stores)["Secret", "shop-nereid-object-stores"]["stringData"]["credentials.json"]
    assert json.loads(credentials) == STORE["objectStores"]["content"]
    # Nothing of it is where others can read it.
    assert [name for name, text in stores["files"].items() if "key_id" in text] == ["nereid/templates/secrets.yaml"]
    assert not [name for kind, name in objects(rendered["everything"]) if kind == "Secret"]
    pod, container = pod_of(rendered["everything"])
    named = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert named == {"stores", "keys", "certificate"}
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["TRITONCACHE_REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "redis", "key": "password"}


@pytest.mark.chart
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_server_reads_the_file_and_the_arguments(rendered, variant, tmp_path, empty):
    """`nereid check` reads options as the server does, and opens no port and no store."""
    _, container = pod_of(rendered[variant])
    file = tmp_path / "nereid.toml"
    file.write_text(options_file(rendered[variant]))
    options = tomllib.loads(file.read_text())
    for name, value in VARIANTS[variant].get("options", {}).items():
        assert (options[name], type(options[name])) == (value, type(value)), name
    arguments = [argument.replace("/etc/nereid/nereid.toml", str(file)) for argument in container["args"]]
    read = run_to_end("check", *arguments, empty)
    assert read.returncode == 0, read.stderr
    # Reads the whole file: a wrong name at its end is found.
    file.write_text(file.read_text() + "\nwrong-name = 1\n")
    assert "unrecognized option 'wrong-name'" in run_to_end("check", *arguments, empty).stderr


class Container(Server):
    """The server, started as the container would be, with the volumes at places of this machine."""

    def __init__(self, folder, answer, places, variables=None):
        super().__init__(folder, "", variables={"POD_NAME": "shop-nereid-1"} | (variables or {}), inherits=False)
        self.pod, self.container = pod_of(answer)
        options = options_file(answer)
        for inside, outside in ({"/var/cache/nereid": folder / "cache"} | places).items():
            options = options.replace(f'"{inside}', f'"{outside}')
        file = folder / "nereid.toml"
        file.write_text(options)
        line = [argument.replace("/etc/nereid/nereid.toml", str(file)) for argument in self.container["args"]]
        # Kubernetes replaces variables in arguments.
        line = [argument.replace("$(POD_NAME)", "shop-nereid-1") for argument in line]
        self._line = list(map(str, [BINARY, *line, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]))

    def probe(self, name, **named):
        """The status of a probe, as the kubelet asks."""
        get = self.container[name]["httpGet"]
        headers = {header["name"]: header["value"] for header in get.get("httpHeaders", [])}
        address = f"{get['scheme'].lower()}://{self.http}{get['path']}"
        # The kubelet checks no certificate.
        return requests.get(address, headers=headers, timeout=PATIENCE, verify=False, **named).status_code


# As short as the chart permits.
SHORT = CLAIM | {"shutdown": {"delaySeconds": 2}, "probes": {"readinessPeriodSeconds": 1}}
# Longer than any test.
LONG = CLAIM | {"shutdown": {"delaySeconds": 3600}}


@pytest.mark.chart
def test_the_container_serves_and_stops_in_order(ask, tmp_path, repository_folder):
    answer = ask(values=SHORT | {"options": {"http-allowed-hosts": ["models.example.net"]}})
    with Container(tmp_path, answer, {"/models/0": repository_folder}) as server:
        eventually(lambda: server.probe("startupProbe") == 200, "the end of the start")
        assert server.probe("livenessProbe") == server.probe("readinessProbe") == 200
        headers = {"Host": "models.example.net"}
        metadata = requests.get(f"http://{server.http}/v2", headers=headers, timeout=PATIENCE).json()
        assert metadata["name"] == "shop-nereid-1"
        # Without their header the probes would be refused.
        assert requests.get(f"http://{server.http}/v2/health/live", timeout=PATIENCE).status_code == 403
        server.terminate()
        assert server.process.wait(PATIENCE) == 0
    assert server.pod["terminationGracePeriodSeconds"] == 2 + 30 + 5


@pytest.mark.chart
def test_a_pod_that_ends_is_alive_and_not_ready(ask, tmp_path, repository_folder):
    with Container(tmp_path, ask(values=LONG), {"/models/0": repository_folder}) as server:
        eventually(lambda: server.probe("readinessProbe") == 200, "readiness")
        server.terminate()
        eventually(lambda: server.probe("readinessProbe") == 400, "the end of readiness")
        assert server.probe("livenessProbe") == 200
        server.expected_code = -signal.SIGKILL
        server.kill()


@pytest.mark.chart
def test_the_container_serves_with_tls_keys_and_redis(ask, tmp_path, repository_folder):
    authority = Authority(tmp_path)
    certificate = authority.issue("server")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tls.crt").write_bytes(certificate.certificate.read_bytes())
    (secrets / "tls.key").write_bytes(certificate.key.read_bytes())
    (secrets / "ca.crt").write_bytes(authority.certificate.read_bytes())
    store = RedisServer(tmp_path)
    try:
        answer = ask(
            values=SHORT
            | {
                "apiKeys": {"keys": KEYS},
                "tls": {"secret": "certificate", "metrics": True, "mutual": {"grpc": True, "metrics": True}},
                "responseCache": {"kind": "redis", "redis": {"host": "127.0.0.1", "port": store.port}},
            }
        )
        keys = objects(answer)["Secret", "shop-nereid-api-keys"]["stringData"]["keys.json"]
        (secrets / "keys.json").write_text(keys)
        places = {"/models/0": repository_folder, "/secrets/tls": secrets, "/secrets/api-keys": secrets}
        with Container(tmp_path, answer, places) as server:
            eventually(lambda: server.probe("readinessProbe") == 200, "readiness")
            assert server.probe("livenessProbe") == 200
            index = f"https://{server.http}/v2/models/add_sub"
            named = {"verify": False, "timeout": PATIENCE}
            assert requests.get(index, **named).status_code == 401
            assert requests.get(index, headers={"x-api-key": "secret key"}, **named).status_code == 200
    finally:
        store.kill()


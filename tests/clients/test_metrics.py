"""The metrics port: what Prometheus reads moves as the statistics do."""

import re

import numpy as np
import pytest
import repository as models
import requests
from prometheus_client.openmetrics import parser
from promtool import findings, kind_of, prometheus
from protocols import GRPC, HTTP, add_sub_inputs, metric
from serving import size
from tritonclient.utils import InferenceServerException

DURATIONS = {
    "nv_inference_request_duration_us": "success",
    "nv_inference_queue_duration_us": "queue",
    "nv_inference_compute_input_duration_us": "compute_input",
    "nv_inference_compute_infer_duration_us": "compute_infer",
    "nv_inference_compute_output_duration_us": "compute_output",
}


def test_counters_say_what_the_statistics_say(server, client, protocol):
    """Model `aside` is called by the tests in this file only."""
    for batch in (1, 2, 8):
        client.infer("aside", add_sub_inputs(protocol, batch)[0])
    statistics = protocol.statistics(client, "aside")
    labels = {"model": "aside", "version": 1}
    assert statistics["inference_count"] >= 11
    assert metric(server, "nv_inference_count", **labels) == statistics["inference_count"]
    assert metric(server, "nv_inference_exec_count", **labels) == statistics["execution_count"]
    assert metric(server, "nv_inference_request_success", **labels) == statistics["inference_stats"]["success"]["count"]
    assert metric(server, "nv_inference_pending_request_count", **labels) == 0
    for name, phase in DURATIONS.items():
        microseconds = statistics["inference_stats"][phase]["ns"] / 1000
        assert metric(server, name, **labels) == pytest.approx(microseconds, abs=1), name


def test_a_failed_execution_is_counted_by_its_reason(server, client, protocol):
    def failures(reason):
        return metric(server, "nv_inference_request_failure", model="picky", reason=reason, version=1)

    reasons = ("BACKEND", "REJECTED", "CANCELED", "OTHER")
    before = {reason: failures(reason) for reason in reasons}
    failed = protocol.statistics(client, "picky")["inference_stats"]["fail"].get("count", 0)
    with pytest.raises(InferenceServerException):
        client.infer("picky", [protocol.input("INDEX", np.array([7]))])
    assert {reason: failures(reason) - before[reason] for reason in reasons} == {
        "BACKEND": 1,
        "REJECTED": 0,
        "CANCELED": 0,
        "OTHER": 0,
    }
    assert protocol.statistics(client, "picky")["inference_stats"]["fail"]["count"] == failed + 1


def test_a_refused_request_is_counted_nowhere(server, client, protocol):
    labels = {"model": "aside", "version": 1}
    before = metric(server, "nv_inference_request_success", **labels)
    with pytest.raises(InferenceServerException):
        client.infer("aside", add_sub_inputs(protocol)[0][:1])
    assert metric(server, "nv_inference_request_success", **labels) == before
    for reason in ("BACKEND", "REJECTED", "CANCELED", "OTHER"):
        assert metric(server, "nv_inference_request_failure", reason=reason, **labels) == 0


def test_every_family_is_described_once_and_every_line_can_be_read(server):
    answer = requests.get(server.metrics, timeout=60)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    lines = answer.text.splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert families == [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert len(families) == len(set(families))
    for line in lines:
        if not line.startswith("#"):
            match = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(,\w+="[^"]*")*\})? (\d+(\.\d+)?(e-?\d+)?|\+Inf|NaN)', line)
            assert match, line
            assert {match[1], re.sub(r"_(bucket|sum|count)$", "", match[1])} & set(families), line


@pytest.mark.monitoring
def test_promtool_finds_nothing_but_the_names_of_triton(start, tmp_path):
    """Triton's counters have no suffix, and its units are abbreviated. Nereid's own families break no rule."""
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    models.add_sub(folder, "cached")
    config = folder / "cached" / "config.pbtxt"
    config.write_text(config.read_text() + "response_cache { enable: true }")
    settings = [f"--metrics-config={name}=true" for name in ("summary_latencies", "histogram_latencies")]
    server = start(folder, *settings, "--cache-config=local,size=1000000", f"--access-log={tmp_path / 'access'}")
    server.wait_until_ready()
    for protocol in (HTTP, GRPC):
        with protocol.connect(server) as client:
            for model in ("add_sub", "cached"):
                client.infer(model, add_sub_inputs(protocol)[0])
    text = requests.get(server.metrics, timeout=60).text
    assert text.count("# TYPE nereid_") >= 8
    found = findings(text)
    assert any(line.startswith("nv_inference_count ") for line in found)
    assert [line for line in found if not line.startswith("nv_")] == []


def test_openmetrics_is_valid_and_has_the_same_series(server):
    # A model that has executed has all series.
    with HTTP.connect(server) as client:
        client.infer("aside", add_sub_inputs(HTTP)[0])
    accept = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5"}
    answer = requests.get(server.metrics, headers=accept, timeout=60)
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.text)}
    assert families["nv_inference_count"].type == "unknown"
    assert families["nereid_inference_batches"].type == "counter"
    assert families["nereid_inference_request_duration_seconds"].type == "histogram"
    plain = requests.get(server.metrics, timeout=60).text
    names = {line.split("{")[0].split(" ")[0] for line in plain.splitlines() if not line.startswith("#")}
    assert names == {sample.name for family in families.values() for sample in family.samples}


@pytest.mark.monitoring
@pytest.mark.parametrize(("settings", "kind"), [([], "unknown"), (["--metrics-config=openmetrics=false"], "counter")])
def test_prometheus_sees_the_types_of_the_form_that_it_gets(start, tmp_path, settings, kind):
    (folder := tmp_path / "models").mkdir()
    models.add_sub(folder)
    server = start(folder, *settings).wait_until_ready()
    with prometheus(tmp_path, f"127.0.0.1:{server.metrics_port}") as address:
        assert kind_of(address, "nv_inference_count") == kind
        assert kind_of(address, "nv_inference_pending_request_count") == "gauge"


def test_the_histograms_agree_with_the_statistics(server, client, protocol):
    client.infer("aside", add_sub_inputs(protocol)[0])
    statistics = protocol.statistics(client, "aside")
    labels = {"model": "aside", "version": 1}
    for phase, counted in (("request", "success"), ("queue", "queue"), ("compute", "compute_infer")):
        family = f"nereid_inference_{phase}_duration_seconds"
        count = statistics["inference_stats"][counted]["count"]
        assert metric(server, f"{family}_count", **labels) == count
        assert metric(server, f"{family}_bucket", le="+Inf", **labels) == count
    request = metric(server, "nereid_inference_request_duration_seconds_sum", **labels)
    assert request == pytest.approx(statistics["inference_stats"]["success"]["ns"] / 1e9)
    batches = metric(server, "nereid_inference_batch_size_count", **labels)
    assert batches == statistics["execution_count"]
    ended = [
        metric(server, "nereid_inference_batches_total", reason=reason, **labels)
        for reason in ("full", "preferred_size", "delay", "shape", "strategy", "idle_instance", "drain", "unbatched")
    ]
    assert sum(ended) == batches


def test_summaries_and_first_responses_are_shown_to_those_who_ask(start, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    wanted = ("summary_latencies=true", "histogram_latencies=true", "summary_quantiles=0.5:0.05,0.9:0.01")
    server = start(folder, *(f"--metrics-config={setting}" for setting in wanted)).wait_until_ready()
    labels = {"model": "add_sub", "version": 1}
    assert np.isnan(metric(server, "nv_inference_request_summary_us", quantile=0.5, **labels))
    with HTTP.connect(server) as client:
        for _ in range(20):
            client.infer("add_sub", add_sub_inputs(HTTP)[0])
    for phase in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        family = f"nv_inference_{phase}_summary_us"
        assert metric(server, f"{family}_count", **labels) == 20
        half, most = (metric(server, family, quantile=quantile, **labels) for quantile in (0.5, 0.9))
        assert 0 <= half <= most
    assert metric(server, "nv_inference_first_response_histogram_ms_bucket", le="+Inf", **labels) == 20


def test_without_the_counters_of_latencies_everything_else_is_counted(start, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder)
    server = start(folder, "--metrics-config=counter_latencies=false").wait_until_ready()
    with HTTP.connect(server) as client:
        client.infer("add_sub", add_sub_inputs(HTTP)[0])
    labels = {"model": "add_sub", "version": 1}
    for name in ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"):
        assert metric(server, name, **labels) == 1
    assert "_duration_us" not in requests.get(server.metrics, timeout=60).text


def test_a_thousand_models_are_shown(start, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    models.add_sub(folder, "m0")
    (original,) = (folder / "m0" / "1").iterdir()
    config = (folder / "m0" / "config.pbtxt").read_text()
    count = size(200, 1000)
    for number in range(1, count):
        directory = folder / f"m{number}" / "1"
        directory.mkdir(parents=True)
        (directory / original.name).hardlink_to(original)
        (directory.parent / "config.pbtxt").write_text(config.replace("m0", f"m{number}"))
    server = start(folder, "--model-load-thread-count=8").wait_until_ready()
    inputs, _ = add_sub_inputs(HTTP)
    with HTTP.connect(server) as client:
        for number in range(count):
            client.infer(f"m{number}", inputs)
    text = requests.get(server.metrics, timeout=60).text
    assert text.count("\nnereid_inference_request_duration_seconds_count{") == count


def test_every_version_has_its_load_time(server):
    for version in (1, 2, 3):
        assert metric(server, "nv_model_load_duration_secs", model="versions", version=version) > 0


def test_any_other_path_is_not_found(server):
    address = server.metrics.removesuffix("/metrics")
    assert requests.get(f"{address}/other", timeout=60).status_code == 404
    assert requests.post(f"{address}/metrics", timeout=60).status_code == 405

"""Metrics of a model's own."""

import gc

import pytest
from triton_python_backend_utils import MetricFamily, TritonModelException

WHERE = "Failed to process the request for model 'model_0', message: "


def family(kind=MetricFamily.COUNTER):
    return MetricFamily(name="asked", description="what is asked", kind=kind)


def test_a_metric_reaches_the_server(host):
    histograms = family(MetricFamily.HISTOGRAM)
    metric = histograms.Metric(labels={"a": "b"}, buckets=[1, 2.5])
    metric.increment(1)
    metric.set(2)
    metric.observe(3)
    assert metric.value() == 0.5
    assert host.calls == [
        ("metric_family", "asked", "what is asked", "HISTOGRAM"),
        ("metric", 1, {"a": "b"}, [1.0, 2.5]),
        ("metric_increment", 2, 1.0),
        ("metric_set", 2, 2.0),
        ("metric_observe", 2, 3.0),
        ("metric_value", 2),
    ]


def test_a_metric_may_have_no_labels(host):
    counters = family()
    counters.Metric()
    assert host.called("metric") == [[1, {}, None]]


@pytest.mark.parametrize(
    "kind, arguments, words",
    [
        ("COUNTER", {"labels": ["a"]}, "Failed to create metric. Labels must be a dictionary."),
        ("HISTOGRAM", {"buckets": (1, 2)}, "Failed to create metric. Buckets must be a list."),
        ("GAUGE", {"buckets": [1]}, "Failed to create metric. Unexpected buckets found."),
        ("HISTOGRAM", {}, "Failed to create metric. Missing required buckets."),
        ("COUNTER", {"labels": {"a": 1}}, f"Error when creating Metric: {WHERE}labels must be texts, found 'a': 1"),
        ("COUNTER", {"labels": {None: "a"}}, f"Error when creating Metric: {WHERE}labels must be texts, found None: 'a'"),
    ],
)
def test_a_metric_is_checked(host, kind, arguments, words):
    metrics = family(getattr(MetricFamily, kind))
    with pytest.raises(TritonModelException) as refused:
        metrics.Metric(**arguments)
    assert str(refused.value) == words


def test_refusals_of_the_server_say_what_was_tried(host):
    metrics = family()
    metric = metrics.Metric()
    for method in ("metric_family", "metric", "metric_increment", "metric_set", "metric_observe", "metric_value"):
        host.refusals[method] = "no"
    attempts = {
        f"Error when creating MetricFamily: {WHERE}no": family,
        f"Error when creating Metric: {WHERE}no": metrics.Metric,
        f"Failed to increment metric value: {WHERE}no": lambda: metric.increment(1),
        f"Failed to set metric value: {WHERE}no": lambda: metric.set(1),
        f"Failed to observe metric value: {WHERE}no": lambda: metric.observe(1),
        f"Failed to get metric value: {WHERE}no": metric.value,
    }
    for words, attempt in attempts.items():
        with pytest.raises(TritonModelException) as refused:
            attempt()
        assert str(refused.value) == words


def test_metrics_end_with_their_family(host):
    counters = family()
    metric = counters.Metric()
    counters.Metric()
    gc.collect()
    assert not host.called("free_metric")
    del counters
    gc.collect()
    assert [name for name, *_ in host.calls[-3:]] == ["free_metric", "free_metric", "free_family"]
    with pytest.raises(TritonModelException, match="Failed to increment metric value: Invalid metric operation as the"):
        metric.increment(1)


def test_a_family_has_a_kind_and_texts(host):
    for wrong in ({"kind": 0}, {"name": None}, {"description": 1}):
        with pytest.raises(TypeError):
            MetricFamily(**({"name": "n", "description": "d", "kind": MetricFamily.GAUGE} | wrong))

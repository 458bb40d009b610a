"""Metrics of a model's own, which stand beside the server's."""

import enum
import weakref

from nereid_host import TritonModelException, connected, host


class MetricKind(enum.IntEnum):
    """The kinds of a family of metrics."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class MetricFamily:
    """A family of metrics of one name. Its metrics end with it.

    Families of the same name and kind are one family for the server, whichever models made them.
    """

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name, description, kind):
        for what, value in (("name", name), ("description", description)):
            if not isinstance(value, str):
                raise TypeError(f"the {what} of a MetricFamily must be text, found type {type(value)}")
        if not isinstance(kind, MetricKind):
            raise TypeError(f"the kind of a MetricFamily must be one of its constants, found type {type(kind)}")
        self._kind = kind
        self._metrics = []
        with _prefixed("Error when creating MetricFamily: "):
            number = host().metric_family(name, description, kind.name)
        weakref.finalize(self, _free_family, number, self._metrics).atexit = False
        self._number = number

    def Metric(self, labels=None, buckets=None):
        """A metric with these labels. A histogram needs the upper bounds of its buckets, others have none."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if buckets is not None and self._kind != MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        if buckets is None and self._kind == MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        with _prefixed("Error when creating Metric: "):
            for key, value in (labels or {}).items():
                if not isinstance(key, str) or not isinstance(value, str):
                    raise TritonModelException(f"labels must be texts, found {key!r}: {value!r}")
            bounds = None if buckets is None else [float(bound) for bound in buckets]
            metric = Metric(host().metric(self._number, dict(labels or {}), bounds))
        self._metrics.append(metric)
        return metric


def _free_family(number, metrics):
    # As in the reference, the family owns its metrics: a model that lost a metric still shows it.
    for metric in metrics:
        metric._number, freed = None, metric._number
        if connected() is not None:
            connected().free_metric(freed)
    if connected() is not None:
        connected().free_family(number)


class Metric:
    """One metric; `MetricFamily.Metric` makes it."""

    def __init__(self, number):
        self._number = number

    def increment(self, value):
        """Adds to a counter or a gauge."""
        with _prefixed("Failed to increment metric value: "):
            host().metric_increment(self._checked(), float(value))

    def set(self, value):
        """Sets a gauge."""
        with _prefixed("Failed to set metric value: "):
            host().metric_set(self._checked(), float(value))

    def observe(self, value):
        """Adds a value to a histogram."""
        with _prefixed("Failed to observe metric value: "):
            host().metric_observe(self._checked(), float(value))

    def value(self):
        """The value of a counter or a gauge."""
        with _prefixed("Failed to get metric value: "):
            return host().metric_value(self._checked())

    def _checked(self):
        if self._number is None:
            raise TritonModelException(
                "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' "
                "object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
            )
        return self._number


class _prefixed:
    """Puts words before the text of a refusal."""

    def __init__(self, words):
        self._words = words

    def __enter__(self):
        pass

    def __exit__(self, kind, error, place):
        if isinstance(error, TritonModelException):
            raise TritonModelException(f"{self._words}{error}") from error

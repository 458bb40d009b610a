"""Metrics of a model's own, which stand beside the server's."""

import enum
import weakref

from nereid_host import TritonModelException, asking, connected, real_number, text


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
        name = text("the name of a MetricFamily", name)
        description = text("the description of a MetricFamily", description)
        if not isinstance(kind, MetricKind):
            raise TypeError(f"the kind of a MetricFamily must be one of its constants, found type {type(kind)}")
        self._kind = kind
        self._metrics = []
        with asking("Error when creating MetricFamily: ") as host:
            number = host.metric_family(name, description, kind.name)
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
        with asking("Error when creating Metric: ") as host:
            plain = dict(_plain_label(key, value) for key, value in (labels or {}).items())
            bounds = None if buckets is None else [real_number("a bound of a bucket", bound) for bound in buckets]
            metric = Metric._of(host.metric(self._number, plain, bounds))
        self._metrics.append(metric)
        return metric


def _plain_label(name, value):
    if not isinstance(name, (str, bytes)) or not isinstance(value, (str, bytes)):
        raise TritonModelException(f"labels must be texts, found {name!r}: {value!r}")
    return text("the name of a label", name), text("the value of a label", value)


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

    def __new__(cls, *_, **__):
        raise TypeError("Metric: No constructor defined!")

    @classmethod
    def _of(cls, number):
        metric = object.__new__(cls)
        metric._number = number
        return metric

    def increment(self, value):
        """Adds to a counter or a gauge."""
        number = self._checked("Failed to increment metric value: ")
        with asking("Failed to increment metric value: ") as host:
            host.metric_increment(number, real_number("the value", value))

    def set(self, value):
        """Sets a gauge."""
        number = self._checked("Failed to set metric value: ")
        with asking("Failed to set metric value: ") as host:
            host.metric_set(number, real_number("the value", value))

    def observe(self, value):
        """Adds a value to a histogram."""
        number = self._checked("Failed to observe metric value: ")
        with asking("Failed to observe metric value: ") as host:
            host.metric_observe(number, real_number("the value", value))

    def value(self):
        """The value of a counter or a gauge."""
        number = self._checked("Failed to get metric value: ")
        with asking("Failed to get metric value: ") as host:
            return host.metric_value(number)

    def _checked(self, words):
        if self._number is None:
            raise TritonModelException(
                f"{words}Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' "
                "object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
            )
        return self._number

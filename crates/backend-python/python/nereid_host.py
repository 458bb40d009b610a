"""The connection between this package and the process that runs a model.

The worker calls `connect` once, before it imports the model. What needs no server works without a host: users test their
models so.
"""


class TritonModelException(Exception):
    """Raised by every function of this package that refuses something."""


_host = None


def connect(host):
    """Makes `host` the object that all modules ask. It outlives the model."""
    global _host
    _host = host


def connected():
    """The host, or None where no server runs this code."""
    return _host


def host():
    """The host. Raises `TritonModelException` where no server runs this code."""
    if _host is None:
        raise TritonModelException("this needs a server: the code does not run in a model that a server has loaded")
    return _host


class asking:
    """Around a call of the host: puts words before the text of a refusal, as Triton does."""

    def __init__(self, words):
        self._words = words

    def __enter__(self):
        return host()

    def __exit__(self, kind, error, place):
        if isinstance(error, TritonModelException):
            where = f"Failed to process the request for model '{_host.instance}', message: " if _host else ""
            raise TritonModelException(f"{self._words}{where}{error}") from error

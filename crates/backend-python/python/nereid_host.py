"""The connection between this package and the process that runs a model, and the plain values that cross it.

The worker calls `connect` once, before it imports the model. What needs no server works without a host: users test their
models so.

A message has plain values only. `text`, `whole_number`, `real_number` and `truth` make plain values of what a model gives,
where it enters a class of this package. They take what Triton takes (pybind11's conversions), and raise TypeError for the
rest; `what` names the value in the words of that error.
"""

import math
import operator

MOST_UINT32 = (1 << 32) - 1
MOST_UINT64 = (1 << 64) - 1
LEAST_INT64, MOST_INT64 = -(1 << 63), (1 << 63) - 1


class TritonModelException(Exception):
    """Raised by every function of this package that refuses something."""


def text(what, value, errors="strict"):
    """The `str` of a text, or of bytes in UTF-8. With `errors="replace"`, what has no form in UTF-8 is replaced."""
    try:
        if isinstance(value, str):
            # Of a subclass, `str(value)` may be another text.
            plain = str.__str__(value)
            return plain if plain.isascii() else plain.encode("utf-8", errors).decode()
        if isinstance(value, (bytes, bytearray)):
            return str(value, "utf-8", errors)
    except UnicodeError as error:
        raise TypeError(f"{what} must be text in UTF-8: {error}") from None
    raise TypeError(f"{what} must be text, found type {type(value)}")


def whole_number(what, value, least, most):
    """The `int` of what has `__index__` or `__int__` and is no float, from `least` to `most`."""
    number = _index(value)
    if number is None or not least <= number <= most:
        raise TypeError(f"{what} must be a whole number from {least} to {most}, found {value!r}")
    return number


def _index(value):
    try:
        # Of a subclass, `int(value)` may be another number.
        return int.__index__(operator.index(value))
    except TypeError:
        if isinstance(value, float) or not hasattr(type(value), "__int__"):
            return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def real_number(what, value):
    """The `float` of a number."""
    try:
        # `float` would also take texts.
        return math.ldexp(value, 0)
    except (TypeError, OverflowError):
        raise TypeError(f"{what} must be a number, found {value!r}") from None


def truth(what, value):
    """The `bool` of what has `__bool__`, as truth values of NumPy and numbers have."""
    if value is None or not hasattr(type(value), "__bool__"):
        raise TypeError(f"{what} must be a bool, found type {type(value)}")
    return bool(value)


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

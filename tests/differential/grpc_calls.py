"""gRPC as the generated cases use it: the end of a call as an answer."""

import grpc
from differential.answers import HANGS, LOST, Answer


def ended(call):
    """The end of a call."""
    details = call.details() or ""
    code = call.code().name
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        code = HANGS
    # The library of the client says so of a connection that has ended.
    elif call.code() is grpc.StatusCode.UNAVAILABLE and "Socket closed" in details:
        code = LOST
    return Answer(code, details, keys(call))


def keys(call):
    """The names in the metadata, before and after the message."""
    names = sorted(name for name, _ in (*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())))
    return {"metadata": " ".join(names)}

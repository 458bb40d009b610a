"""gRPC as the generated cases use it: the end of a call as an answer."""

import grpc
from differential.answers import HANGS, Answer


def ended(call):
    """The end of a call."""
    code = HANGS if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED else call.code().name
    return Answer(code, call.details() or "", keys(call))


def keys(call):
    """The names in the metadata, before and after the message."""
    names = sorted(name for name, _ in (*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())))
    return {"metadata": " ".join(names)}

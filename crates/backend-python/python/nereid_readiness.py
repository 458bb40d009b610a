"""Answers the server's questions whether the model is ready, on a thread of its own: executions may take long.

`crates/backend-python/src/session/readiness.rs` is the other side, and describes the packets.
"""

import _socket
import threading

from nereid_errors import text_of

_MOST_BYTES = 8 << 10


def serve(descriptor, model, instance):
    """Begins to answer, if the model wants to be asked."""
    if not hasattr(model, "is_ready"):
        return
    socket = _socket.socket(fileno=descriptor)
    socket.send(bytes(4))
    threading.Thread(target=_serve, args=(socket, model, instance), name="nereid-readiness", daemon=True).start()


def _serve(socket, model, instance):
    while True:
        question = socket.recv(4)
        if not question:
            # The server has gone.
            return
        reason = _reason(model, instance).encode(errors="replace")
        socket.send(question + reason[: _MOST_BYTES - len(question)])


def _reason(model, instance):
    """Why the model is not ready; empty if it is."""
    try:
        said = model.is_ready()
        if hasattr(said, "__await__"):
            said = _awaited(said)
    except BaseException as error:
        return text_of(error)
    if not isinstance(said, bool):
        return "is_ready() must return a boolean value"
    return "" if said else f"Model '{instance}' is not ready (user-defined check failed)."


def _awaited(awaitable):
    import asyncio

    async def result():
        return await awaitable

    return asyncio.run(result())

"""What the clients that take more than their share have in common."""

import time

REST = 0.5


def repeat(once):
    """Does something again and again, says when it has been done once, and rests between two rounds."""
    once()
    print("begun", flush=True)
    while True:
        time.sleep(REST)
        once()


def only_once(first):
    """Does something in the first round only."""
    begun = []

    def once():
        if not begun:
            begun.append(first())

    return once


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

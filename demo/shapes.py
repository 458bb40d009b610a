"""Pictures of simple shapes, for `train_shapes.py` and `tell_shapes.py`."""

import struct
import zlib

import numpy as np

SHAPES = ["circle", "square", "triangle", "plus"]


def draw(shape, side, random):
    """A picture of `side` x `side` pixels (UINT8, height, width, colours): one shape, anywhere, in any two colours."""
    scale = random.uniform(0.25, 0.42)
    middle = random.uniform(scale + 0.02, 0.98 - scale, 2)
    background, colour = colours(random)
    # Each pixel has the share of the shape in it: 3 x 3 points are looked at.
    y, x = (np.mgrid[0 : 3 * side, 0 : 3 * side] + 0.5) / (3 * side)
    x, y = (x - middle[0]) / scale, (y - middle[1]) / scale
    share = inside(shape, x, y).reshape(side, 3, side, 3).mean(axis=(1, 3))[..., None]
    noise = random.normal(0, 6, (side, side, 3))
    return (background * (1 - share) + colour * share + noise).clip(0, 255).astype(np.uint8)


def inside(shape, x, y):
    """Whether points lie in the shape, which reaches from -1 to 1 in both directions."""
    match shape:
        case "circle":
            return x * x + y * y < 1
        case "square":
            return np.maximum(abs(x), abs(y)) < 0.9
        case "triangle":
            return (y < 0.9) & (2 * abs(x) < y + 1)
        case "plus":
            return (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 1)


def colours(random):
    """Two colours that differ in brightness."""
    while True:
        both = random.uniform(0, 255, (2, 3))
        if abs(np.subtract(*both.mean(axis=1))) > 60:
            return both


def png(picture):
    """The bytes of a PNG file."""

    def chunk(kind, content):
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width, _ = picture.shape
    lines = b"".join(b"\0" + line.tobytes() for line in picture)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )

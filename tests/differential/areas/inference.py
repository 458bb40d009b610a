"""Cases of the area `inference`: requests of inference over HTTP, `infer`, `generate` and `generate_stream`.

A case is a right request, then up to three mutations. It is sent to both servers as it is.
"""

import gzip
import json
import math
import zlib
from dataclasses import dataclass, field

from differential import documents, models, tensors
from differential.connected_area import ConnectedArea
from differential.exchange import HttpConnection, HttpRequest

MOST_MUTATIONS = 3
KINDS = ("infer", "infer", "infer", "generate", "generate_stream")
# Elements of a shape beyond which this Triton takes long, or ends itself.
MOST_ELEMENTS = 2**20


@dataclass
class Draft:
    """A request that mutations may change."""

    model: models.ModelSpec
    kind: str
    document: dict
    # What follows the JSON, input by input.
    binary: list = field(default_factory=list)
    method: str = "POST"
    name: str = ""
    version: str = ""
    headers: dict = field(default_factory=dict)
    # Replaces the text of the document.
    text: str | None = None
    # Is added to the length of the JSON in the header.
    length_error: int = 0
    coding: str = ""
    mutations: list = field(default_factory=list)

    def request(self):
        text = self.text if self.text is not None else json.dumps(self.document)
        head = text.encode(errors="surrogatepass")
        body = head + b"".join(self.binary)
        headers = dict(self.headers)
        if self.binary or self.length_error:
            headers.setdefault("Inference-Header-Content-Length", str(len(head) + self.length_error))
        shown = body
        if self.coding:
            headers.setdefault("Content-Encoding", self.coding)
            body = gzip.compress(body, mtime=0) if self.coding == "gzip" else zlib.compress(body)
        version = f"/versions/{self.version}" if self.version else ""
        path = f"/v2/models/{self.name or self.model.name}{version}/{self.kind}"
        return HttpRequest(self.method, path, tuple(headers.items()), body, tuple(self.mutations), shown)


def draw(choices):
    """A case."""
    model, kind = choices.one_of(models.MODELS), choices.one_of(KINDS)
    if kind == "infer":
        draft = right(model, choices)
    else:
        draft = Draft(model, kind, generation(model, choices))
    for _ in choices.several(0, MOST_MUTATIONS):
        mutation = choices.one_of(MUTATIONS)
        mutation(draft, choices)
        draft.mutations.append(mutation.__name__)
    if isinstance(draft.document, dict):
        tame(draft.document)
    return draft.request()


def right(model, choices):
    """A request that a model takes."""
    draft = Draft(model, "infer", {})
    if choices.one_in(3):
        draft.document["id"] = choices.one_of(("r1", "", "\u00e9\u20ac", "a b"))
    if choices.one_in(3):
        draft.document["parameters"] = parameters(choices)
    batch = choices.between(1, model.max_batch) if model.max_batch else None
    draft.document["inputs"] = []
    for spec in model.inputs:
        if spec.more == models.OPTIONAL and choices.one_in(2):
            continue
        draft.document["inputs"].append(written(draft, spec, tensors.shape(choices, spec, batch), choices))
    if choices.one_in(2):
        draft.document["outputs"] = [wanted(spec, choices) for spec in model.outputs if not choices.one_in(4)]
    if choices.one_in(6):
        draft.headers["Accept-Encoding"] = choices.one_of(CODINGS)
    if choices.one_in(8):
        draft.coding = choices.one_of(("gzip", "deflate"))
    return draft


CODINGS = ("gzip", "deflate", "identity", "gzip, deflate", "deflate;q=0.5, gzip;q=1")


def written(draft, spec, shape, choices):
    """An input in JSON or in binary."""
    tensor = {"name": spec.name, "shape": shape, "datatype": spec.datatype}
    elements = tensors.values(choices, spec.datatype, shape)
    if spec.datatype in ("FP16", "BF16") or choices.one_in(3):
        data = tensors.as_bytes(spec.datatype, elements)
        tensor["parameters"] = {"binary_data_size": len(data)}
        draft.binary.append(data)
    else:
        data = tensors.as_json(spec.datatype, elements)
        tensor["data"] = tensors.nested(data, shape) if choices.one_in(2) else data
    return tensor


def wanted(spec, choices):
    output = {"name": spec.name}
    # This Triton ends itself over classes of byte strings.
    ways = ("", "json", "binary") if spec.datatype == "BYTES" else ("", "json", "binary", "classes", "binary classes")
    way = choices.one_of(ways)
    asked = {}
    if way in ("json", "binary"):
        asked["binary_data"] = way == "binary"
    elif way:
        asked["classification"] = choices.between(1, 5)
        if way == "binary classes":
            asked["binary_data"] = True
    return output | ({"parameters": asked} if asked else {})


def parameters(choices):
    """Parameters of a request, known and unknown ones."""
    found = {}
    for name, options in PARAMETERS.items():
        if choices.one_in(4):
            found[name] = choices.one_of(options)
    return found


PARAMETERS = {
    "a": (1, "text", True, 1.5, -(2**63), 2**63 - 1, math.nan, math.inf, -math.inf, 2**64, -(10**300), 10**400),
    "b": ("", "\u00e9", False, 0, 1e300),
    "binary_data_output": (False, True),
    # A correlation id has at most 128 characters.
    "sequence_id": (0, 7, "seven", 2**64 - 1, "s" * 128, "s" * 129),
    "sequence_start": (True, False),
    "sequence_end": (True, False),
    "priority": (0, 1, 2**64 - 1),
    "timeout": (0, 1_000_000_000),
}


def generation(model, choices):
    """A document for `generate`."""
    document = {}
    for spec in model.inputs:
        if spec.more == models.OPTIONAL and choices.one_in(2):
            continue
        shape = tensors.shape(choices, spec, 1 if model.max_batch else None)
        elements = tensors.as_json(spec.datatype, tensors.values(choices, spec.datatype, shape))
        if choices.one_in(8):
            elements = [[element] for element in elements]
        document[spec.name] = elements[0] if len(elements) == 1 and not choices.one_in(3) else elements
    if choices.one_in(3):
        found = parameters(choices)
        document |= {name: found[name] for name in found if name not in ("sequence_id", "priority")}
    if choices.one_in(4):
        document["parameters"] = {"nested": choices.one_of((1, "x", True, 0.5))}
    if choices.one_in(4):
        document["id"] = "g1"
    return document


def tame(document):
    """Leaves out what ends this Triton, which 2.73 refuses: shapes of more elements than a number of 64 bits counts."""
    inputs = document.get("inputs")
    for one in inputs if isinstance(inputs, list) else ():
        shape = one.get("shape") if isinstance(one, dict) else None
        if isinstance(shape, list):
            count = 1
            for place, dim in enumerate(shape):
                count *= max(abs(dim), 1) if isinstance(dim, int) else 1
                if count > MOST_ELEMENTS:
                    shape[place], count = 3, 3


def other_name(draft, choices):
    draft.name = choices.one_of(("none", "TWO", "two%20", "twos", "stats", "%74wo"))


def other_version(draft, choices):
    draft.version = choices.one_of(("1", "2", "01", "0", "99999999999999999999", "x", "-1", "1x"))


def other_method(draft, choices):
    draft.method = choices.one_of(("GET", "PUT", "DELETE", "PATCH", "OPTIONS"))


def other_kind(draft, choices):
    draft.kind = choices.one_of(("infer", "generate", "generate_stream", "infers", "infer/"))


def other_datatype(draft, choices):
    if tensor := an_input(draft, choices):
        tensor["datatype"] = choices.one_of((*models.DATATYPES, "int32", "STRING", ""))


def other_shape(draft, choices):
    """A dimension more, less, or of another size."""
    tensor = an_input(draft, choices)
    if tensor and isinstance(tensor.get("shape"), list):
        shape = tensor["shape"]
        at = choices.below(len(shape) + 1)
        way = choices.below(3)
        if way == 0 and at < len(shape):
            shape[at] = choices.one_of((0, 1, 2, 3, 5, 9, -1))
        elif way == 1:
            shape.insert(at, choices.one_of((1, 2, 0)))
        elif at < len(shape):
            del shape[at]


def other_size(draft, choices):
    """Another count of binary bytes than is there."""
    if draft.binary:
        at = choices.below(len(draft.binary))
        data = draft.binary[at]
        draft.binary[at] = choices.one_of((data[:-1], data + b"\0", data * 2, b"", data[:4]))
    tensor = an_input(draft, choices)
    if tensor and choices.one_in(2):
        tensor["parameters"] = {"binary_data_size": choices.one_of((0, 1, 4, 8, 2**31, -1, "8"))}


def other_length(draft, choices):
    draft.length_error = choices.one_of((-1, 1, 4, -10, 1000))


def other_header(draft, choices):
    name, options = choices.one_of(HEADERS)
    draft.headers[name] = choices.one_of(options)


HEADERS = (
    ("Content-Type", ("application/json", "text/plain", "application/octet-stream", "x")),
    ("Content-Encoding", ("identity", "br", "zstd", "", "gzip, deflate")),
    ("Inference-Header-Content-Length", ("0", "x", "", "-1", "1", "18446744073709551616", "2 ")),
    ("Accept-Encoding", ("*", "br", "gzip;q=0", "identity;q=0", "", "gzip;q=x")),
    ("Accept", ("text/plain", "text/event-stream")),
    ("triton-x", ("1",)),
)


def in_tree(draft, choices):
    choices.one_of(documents.TREE)(draft.document, choices)


def in_text(draft, choices):
    draft.text = documents.damage(draft.text if draft.text is not None else json.dumps(draft.document), choices)


def no_document(draft, choices):
    draft.text = choices.one_of(("", "{}", "[]", "null", '"x"', "1", "{", '{"inputs":[]}'))


def an_input(draft, choices):
    inputs = draft.document.get("inputs")
    objects = [one for one in inputs if isinstance(one, dict)] if isinstance(inputs, list) else []
    return choices.one_of(objects) if objects else None


MUTATIONS = (
    in_tree, in_tree, in_tree, in_tree, in_tree, in_text, in_text, other_datatype, other_shape, other_shape, other_size,
    other_size, other_length, other_header, other_name, other_version, other_method, other_kind, no_document,
)  # fmt: skip


class InferenceArea(ConnectedArea):
    name = "inference"
    draw = staticmethod(draw)

    def connect(self, server):
        return HttpConnection(server.http)

    def answers(self, connection, case):
        return [connection.ask(case)]

"""What the servers answered, and how two answers differ.

An answer has an outcome, which is whether and how it failed, and fields. If the outcomes differ, nothing else is compared: all
else would follow from it. Only where Nereid has the text of Triton and adds to it, the fields are compared, too.
"""

from dataclasses import dataclass, field


@dataclass
class Answer:
    """`code` is what a client decides by, `text` the error, `fields` everything else by its name."""

    code: str
    text: str = ""
    fields: dict = field(default_factory=dict)

    @property
    def outcome(self):
        return f"{self.code} {self.text}".strip()


@dataclass(frozen=True)
class Difference:
    """One field that is not the same. A field that an answer lacks is `ABSENT`."""

    field: str
    triton: str
    nereid: str

    @property
    def step(self):
        """The number of the step that has it, and 0 if there is only one."""
        begin, colon, _ = self.field.partition(": ")
        return int(begin) if colon and begin.isdigit() else 0

    @property
    def name(self):
        """The field without the number of a step."""
        return self.field.removeprefix(f"{self.step}: ")

    @property
    def is_of_success(self):
        """Whether only one of both has done what a call wanted."""
        done = [text.partition(" ")[0] in SUCCESS for text in (self.triton, self.nereid)]
        return self.name == "code" and done[0] != done[1]

    def __str__(self):
        return f"{self.field}\n    Triton: {_short(self.triton)}\n    Nereid: {_short(self.nereid)}"


ABSENT = "(none)"
# The codes of calls that have done what was wanted.
SUCCESS = ("200", "OK")
# The codes of a server that has ended itself, of one that gives no answer in time, and of one that ends the connection instead.
DIED, HANGS, LOST = "died", "hangs", "lost"
# How much of a value is shown.
SHOWN = 700


def _short(text):
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def flat(value, name=""):
    """A JSON value as fields: `outputs[0].shape[1]`. An empty list or object is a field, too."""
    if isinstance(value, dict) and value:
        parts = ((f"{name}.{key}" if name else key, member) for key, member in value.items())
    elif isinstance(value, list) and value:
        parts = ((f"{name}[{place}]", element) for place, element in enumerate(value))
    else:
        return {name: value} if name else {}
    return {part: one for name, member in parts for part, one in flat(member, name).items()}


def differences(triton, nereid):
    """All differences between two lists of answers to the same questions."""
    found = []
    single = len(triton) == len(nereid) == 1
    pairs = list(zip(triton, nereid, strict=False))
    if len(triton) != len(nereid):
        # Another outcome may end a stream, or be one answer instead of several. Then what follows cannot be compared.
        first = next((place for place, pair in enumerate(pairs) if _ends_differently(*pair)), None)
        if first is None:
            found.append(Difference("answers", str(len(triton)), str(len(nereid))))
        else:
            del pairs[first + 1 :]
    for place, (one, other) in enumerate(pairs):
        begin = "" if single else f"{place}: "
        if one.code != other.code:
            found.append(Difference(f"{begin}code", one.outcome, other.outcome))
            continue
        if one.text != other.text:
            found.append(Difference(f"{begin}text", one.text, other.text))
            if not other.text.startswith(one.text):
                continue
        for name in [*one.fields, *(name for name in other.fields if name not in one.fields)]:
            values = [_shown(fields, name) for fields in (one.fields, other.fields)]
            if values[0] != values[1]:
                found.append(Difference(f"{begin}{name}", *values))
    return found


def _ends_differently(one, other):
    return one.code != other.code or not other.text.startswith(one.text)


def _shown(fields, name):
    return str(fields[name]) if name in fields else ABSENT

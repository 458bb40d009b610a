"""The differences that are known: patterns, each with the row of `docs/records/differences.md` that it belongs to.

`explanations.toml` has them. A pattern is made of regular expressions that must match whole texts:

- `areas`: the areas in which it holds; all, if there is none;
- `field`: the name of what differs (`code`, `text`, `header x`, `json.O1.shape[0]`), without the number of a step;
- `triton`, `nereid`: what each server says there. In `nereid`, `{triton}` is the text of Triton, and `{name}` a group of it;
- `case`: a part of the case.

Instead of `nereid`, `same` names a way in which both texts mean the same.
"""

import itertools
import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "explanations.toml"


def single(triton, nereid):
    """Whether Triton shows a number of 32 bits as one of 64, and Nereid the same by fewer digits."""
    try:
        return float(triton) == np.float32(nereid) and len(nereid) <= len(triton)
    except ValueError:
        return False


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def double(triton, nereid):
    """Whether two texts are the same but for numbers of 64 bits, written or as bytes in hexadecimal, that differ in their last bits."""
    if NUMBER.sub("", triton) != NUMBER.sub("", nereid) and not (_is_binary(triton) and _is_binary(nereid)):
        return False
    pairs = itertools.zip_longest(_doubles(triton), _doubles(nereid), fillvalue=math.nan)
    return all(one == other or abs(one - other) <= 4 * np.spacing(abs(other)) for one, other in pairs)


def _doubles(text):
    return np.frombuffer(bytes.fromhex(text), "<f8") if _is_binary(text) else [float(one) for one in NUMBER.findall(text)]


def _is_binary(text):
    return re.fullmatch("([0-9a-f]{16})+", text) is not None


SAME = {"single": single, "double": double}


@dataclass(frozen=True)
class Pattern:
    row: str
    number: int
    areas: tuple = ()
    field: str = ".*"
    triton: str = ".*"
    nereid: str = ".*"
    case: str = ""
    same: str = ""

    def __str__(self):
        return f"{self.row} (pattern {self.number})"

    def explains(self, area, difference, case):
        if self.areas and area not in self.areas:
            return False
        if not _whole(self.field, difference.name) or (self.case and not re.search(self.case, case, re.DOTALL)):
            return False
        triton = _whole(self.triton, difference.triton)
        if not triton:
            return False
        if self.same:
            return SAME[self.same](difference.triton, difference.nereid)
        expected = self.nereid.replace("{triton}", re.escape(difference.triton))
        for name, text in triton.groupdict().items():
            expected = expected.replace(f"{{{name}}}", re.escape(text or ""))
        return bool(_whole(expected, difference.nereid))


def _whole(pattern, text):
    return re.fullmatch(pattern, text, re.DOTALL)


def load(path=FILE):
    """All patterns of a file."""
    patterns = []
    for row in tomllib.loads(path.read_text())["row"]:
        name = f"{row['section']}: {row['what']}"
        for number, pattern in enumerate(row["pattern"], 1):
            patterns.append(Pattern(name, number, tuple(pattern.pop("areas", ())), **pattern))
    return patterns


class Explanations:
    """Patterns, and how often each was needed."""

    def __init__(self, patterns):
        self._patterns = patterns
        self.needed = Counter()

    def unexplained(self, area, found, case, counts=True):
        """The differences of a case that no pattern explains.

        If only one server has done what a step wanted, and a pattern explains that, the next steps find different states. Their
        differences say nothing.
        """
        left, last = [], math.inf
        for difference in found:
            if difference.step > last:
                break
            pattern = next((one for one in self._patterns if one.explains(area, difference, case)), None)
            if pattern is None:
                left.append(difference)
                continue
            if difference.is_of_success:
                last = difference.step
            if counts:
                self.needed[pattern] += 1
        return left

    def unneeded(self, areas):
        """The patterns of these areas that explained nothing."""
        concerned = (one for one in self._patterns if not one.areas or set(one.areas) & set(areas))
        return [one for one in concerned if one not in self.needed]

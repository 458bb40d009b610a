"""Runs cases of an area, and makes those small that show a difference which nothing explains."""

import re
from collections import Counter
from dataclasses import dataclass, field

from differential import choices
from differential.answers import DIED, HANGS, LOST, differences


@dataclass
class Finding:
    """A kind of difference that nothing explains: the smallest case found that has it, and how many cases had it."""

    number: int
    case: str
    differences: list
    count: int = 1


@dataclass
class Comparison:
    """What was found in an area so far."""

    area: object
    explanations: object
    seed: int
    cases: int = 0
    differing: int = 0
    # Cases whose differences did not come again, in areas that ask for that.
    passing: int = 0
    findings: dict = field(default_factory=dict)
    codes: Counter = field(default_factory=Counter)

    def run(self, number):
        """Runs a case. Returns the finding, if it is the first of its kind."""
        drawn = choices.of_case(self.seed, self.area.name, number)
        case = self.area.draw(drawn)
        self.cases += 1
        answers = self.area.ask(case)
        self.codes.update(answer.code for answer in answers[0])
        found = compared(answers)
        self.differing += bool(found)
        left = self.explanations.unexplained(self.area.name, found, str(case))
        if not left:
            return None
        kinds = {kind(difference) for difference in left}
        for _ in range(self.area.must_come_again):
            again = self.explanations.unexplained(self.area.name, compared(self.area.ask(case)), str(case), counts=False)
            kinds &= {kind(difference) for difference in again}
        if not kinds:
            self.passing += 1
            return None
        known = kinds & set(self.findings)
        for one in known:
            self.findings[one].count += 1
        if known == kinds:
            return None
        new = min(kinds - known)
        finding = self._small(number, drawn.numbers, new, Finding(number, str(case), left))
        self.findings[new] = finding
        return finding

    def _small(self, number, numbers, wanted, whole):
        """The smallest case found with a difference of a kind."""
        found = whole

        def fails(candidate):
            nonlocal found
            drawn = choices.Choices(candidate)
            case = self.area.draw(drawn)
            found_now = compared(self.area.ask(case))
            left = self.explanations.unexplained(self.area.name, found_now, str(case), counts=False)
            if wanted not in map(kind, left):
                return None
            found = Finding(number, str(case), left)
            return drawn.numbers

        choices.smallest(numbers, fails, self.area.most_tries)
        return found


def compared(answers):
    """The differences of two lists of answers. Where Triton does not answer, there is nothing to compare with."""
    triton, nereid = answers
    none = (DIED, HANGS, LOST)
    if any(answer.code in none for answer in triton) and not any(answer.code in none for answer in nereid):
        return []
    return differences(triton, nereid)


def kind(difference):
    """Differences of the same kind are told once: the same field and texts but for names, numbers and places."""
    texts = (difference.field, difference.triton, difference.nereid)
    return tuple(re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*", "_", text)[:80] for text in texts)

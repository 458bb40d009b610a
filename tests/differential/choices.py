"""The choices that a case is drawn from, and the search for the smallest ones that still show something.

A case is a function of numbers: each choice is a number below the count of what may be chosen, and 0 is the plainest. So a case
is repeated by its numbers, whatever it is about, and made smaller by leaving numbers out and lowering them.
"""

import random


class Choices:
    """Numbers that a case is drawn from: new ones, or those of an earlier case. What has no number left is drawn as 0."""

    def __init__(self, source):
        """`source` is a generator of random numbers, or a list of the numbers of an earlier case."""
        self._random = source if isinstance(source, random.Random) else None
        self._given = () if self._random else tuple(source)
        # What was drawn.
        self.numbers = []

    def below(self, count):
        """A number below `count`."""
        if self._random:
            number = self._random.randrange(count)
        else:
            place = len(self.numbers)
            number = min(self._given[place], count - 1) if place < len(self._given) else 0
        self.numbers.append(number)
        return number

    def between(self, least, most):
        """A number from `least` to `most`."""
        return least + self.below(most - least + 1)

    def one_of(self, options):
        """One of some things. The first is the plainest."""
        options = tuple(options)
        return options[self.below(len(options))]

    def one_in(self, count):
        """Yes, once in so many times."""
        return self.below(count) == count - 1

    def several(self, least, most):
        """As many turns as come, from `least` to `most`.

        Each turn begins with a number of its own, so that a turn is left out with its numbers.
        """
        for turn in range(most):
            if turn >= least and self.below(3) == 0:
                return
            yield turn


def of_case(seed, area, number):
    """The choices of a case: the same for the same seed, area and number."""
    return Choices(random.Random(f"{seed} {area} {number}"))


def smallest(numbers, fails, most_tries):
    """The smallest numbers found for which `fails` says yes. Shorter is smaller; of the same length, lower numbers are.

    `fails(numbers)` returns the numbers that were used, or None. It is asked at most so many times.
    """
    best, tried = list(numbers), {tuple(numbers)}
    tries = 0

    def better(candidate):
        nonlocal best, tries
        if tuple(candidate) in tried or tries >= most_tries:
            return False
        tried.add(tuple(candidate))
        tries += 1
        used = fails(candidate)
        if used is None or (len(used), used) >= (len(best), best):
            return False
        best = used
        return True

    improved = True
    while improved and tries < most_tries:
        improved = _shorten(lambda: best, better) | _lower(lambda: best, better)
    return best


# Parts of up to so many numbers are left out wherever they begin.
SHORT = 8


def _shorten(best, better):
    """Leaves parts out: longer ones first, from the end, where the last decisions are."""
    improved = False
    sizes = [len(best()) >> halvings for halvings in range(1, 16)]
    for size in [*(size for size in sizes if size > SHORT), *range(SHORT, 0, -1)]:
        start = len(best()) - size
        while start >= 0:
            if better(best()[:start] + best()[start + size :]):
                improved = True
                start = min(start, len(best()) - size)
            else:
                start -= size if size > SHORT else 1
    return improved


def _lower(best, better):
    """Lowers numbers, one after the other."""
    improved = False
    for place in range(10**6):
        if place >= len(best()):
            return improved
        for number in sorted({0, best()[place] // 2, best()[place] - 1}):
            now = best()
            if place < len(now) and 0 <= number < now[place] and better([*now[:place], number, *now[place + 1 :]]):
                improved = True
                break
    return improved

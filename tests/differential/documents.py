"""Mutations of JSON documents, whatever they mean: of their trees, and of their texts."""

import copy

# What may stand where something else is expected.
JUNK = (
    None, True, False, 0, 1, -1, 1.5, 1.0, -0.0, 1e300, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1,
    "", "1", "x", "true", "\u0000", "\u00e9", [], {}, [None], [[]], [1], ["x"], {"x": 1}, {"": {}},
)  # fmt: skip
# What is put into a text.
SNIPPETS = (*'{}[]",:\\ \n\t0-e.\x01\x7f', "1e9", "null", "tru", "\\u00", "\\ud800", "\\udc00", "/*")


def places(document, path=()):
    """The paths of all parts of a document but of itself."""
    found = []
    members = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, member in members:
        found.append((*path, key))
        found += places(member, (*path, key))
    return found


def parent(document, path):
    for key in path[:-1]:
        document = document[key]
    return document


def remove(document, choices):
    """Leaves out a member or an element."""
    found = places(document)
    if found:
        path = choices.one_of(found)
        del parent(document, path)[path[-1]]


def replace(document, choices):
    """Puts something else in the place of a part."""
    found = places(document)
    if found:
        path = choices.one_of(found)
        parent(document, path)[path[-1]] = copy.deepcopy(choices.one_of(JUNK))


def rename(document, choices):
    """Gives a member another name."""
    found = [path for path in places(document) if isinstance(path[-1], str)]
    if found:
        path = choices.one_of(found)
        holder, name = parent(document, path), path[-1]
        renamed = choices.one_of((name + "x", name.upper(), name[:-1], "", "x"))
        members = [(renamed if key == name else key, member) for key, member in holder.items()]
        holder.clear()
        holder.update(members)


def repeat(document, choices):
    """Repeats an element of a list."""
    found = [path for path in places(document) if isinstance(path[-1], int)]
    if found:
        path = choices.one_of(found)
        parent(document, path).insert(path[-1], copy.deepcopy(parent(document, path)[path[-1]]))


def add(document, choices):
    """Adds a member that nobody asked for, or an element."""
    holders = [document, *(parent(document, path)[path[-1]] for path in places(document))]
    holder = choices.one_of([holder for holder in holders if isinstance(holder, dict | list)] or [{}])
    junk = copy.deepcopy(choices.one_of(JUNK))
    if isinstance(holder, dict):
        holder.setdefault(choices.one_of(("x", "", "name", "parameters", "triton_x", "data", "shape", "id")), junk)
    else:
        holder.append(junk)


TREE = (remove, replace, rename, repeat, add)


def damage(text, choices):
    """Another text: something is left out, put in, or repeated."""
    at = choices.below(len(text) + 1)
    end = min(at + choices.between(1, 3), len(text))
    way = choices.below(4)
    if way == 0:
        return text[:at] + text[end:]
    if way == 1:
        return text[:at] + choices.one_of(SNIPPETS) + text[at:]
    if way == 2:
        return text[:at] + choices.one_of(SNIPPETS) + text[end:]
    return text[:at]

"""axe-core, which finds in a page what keeps people from using it: contrast, names of controls, order of headings.

$NEREID_TEST_AXE is the script. Otherwise the one that `cargo xtask integrations` has downloaded is used. Tests that need
it have the mark `browser`.
"""

import os
import pathlib

import programs
from serving import TARGET

SERIOUS = ("serious", "critical")
NOTABLE = (*SERIOUS, "moderate")


def _script():
    programs.check_group("browser")
    fetched = sorted((TARGET / "node").glob("axe-core-*/node_modules/axe-core/axe.min.js"))
    named = os.environ.get("NEREID_TEST_AXE")
    found = pathlib.Path(named) if named else next(iter(fetched), None)
    if not found or not found.is_file():
        programs.missing("there is no axe-core, and NEREID_TEST_AXE names none", programs.INTEGRATIONS)
    return found


async def violations(page, impacts=SERIOUS):
    """What is wrong in an open page as it is shown now: a line for each rule and its first elements."""
    # The browser's protocol evaluates the script, so that no rule of the page about scripts stops it.
    await page.evaluate(f"{_script().read_text()};0")
    # Without `preload`, which asks for the style sheets anew: a page that is opened as a file must not.
    options = "{resultTypes: ['violations'], preload: false}"
    found = await page.evaluate(f"axe.run(document, {options}).then((run) => run.violations)")
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: " + "; ".join(node["html"] for node in rule["nodes"][:3])
        for rule in found
        if rule["impact"] in impacts
    ]

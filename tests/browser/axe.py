"""Accessibility faults of a page, as axe-core finds them."""

from axe_playwright_python.sync_playwright import Axe


def serious_faults(page):
    """What axe calls serious or critical: the rule, what it asks for, and where it fails."""
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {fault['help']}: {[node['target'] for node in fault['nodes']]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]

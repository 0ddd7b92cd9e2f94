"""The browser that tests of pages use: Debian's Chromium, or another that is named. Nothing is downloaded.

Without one those tests are skipped; where BERTKIT_REQUIRE_BROWSER is set, as `.ci/run` does, they fail instead.
"""

import os
import shutil
from importlib.util import find_spec

import pytest

MISSING = "no browser here: install chromium, or name one in BERTKIT_BROWSER"


def find_browser() -> str | None:
    """The program that was named, or the first that is installed."""
    named = os.environ.get("BERTKIT_BROWSER")
    return named or shutil.which("chromium") or shutil.which("google-chrome")


def is_required() -> bool:
    """Whether a skipped test would be a failure."""
    return os.environ.get("BERTKIT_REQUIRE_BROWSER", "") not in {"", "0"}


def browser() -> str:
    """The browser to start; a test that asks where there is none is skipped, or fails where it is required."""
    found = find_browser()
    if found is None and is_required():
        pytest.fail(MISSING)
    if found is None:
        pytest.skip(MISSING)
    return found


def need(*packages: str) -> None:
    """Skip the whole file where a package is missing, unless the browser's tests are required."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing and not is_required():
        pytest.skip(f"not installed: {', '.join(missing)}", allow_module_level=True)

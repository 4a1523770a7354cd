"""A real browser: Debian's chromium, driven by playwright.

`python -m dashboard.chromium` installs it for root where it is missing, or says why there is none here.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from realnode.machine import NodeMissingError, install_packages

__all__ = ["SIZES", "Watched", "find_chromium", "open_browser", "open_page"]

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
_PACKAGES = ["chromium", "fonts-dejavu-core"]


def find_chromium() -> str:
    """Return the path of the browser; empty: there is none."""
    return shutil.which("chromium") or ""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Run the browser. Root's needs no sandbox of its own: it sees nothing but our pages."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with everything that it should not do: complain, fail, or ask somebody else."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.base = base
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self._see(request.url))

    def open(self, path: str) -> Page:
        """Go to a page of ours."""
        self.page.goto(self.base + path)
        return self.page

    def wait_until_live(self) -> None:
        """Wait until the page says that it is kept up to date."""
        self.page.wait_for_selector("#pulse[data-state=live]", timeout=60_000)

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"{kind}: {text}")

    def _see(self, url: str) -> None:
        if not url.startswith((f"{self.base}/", "data:")):
            self.complaints.append(f"asked {url}")


@contextmanager
def open_page(browser: Browser, base: str, size: str = "desktop", scheme: Any = "light") -> Iterator[Watched]:
    """Open an empty page in a browser that remembers nothing."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        yield Watched(context, base)
    finally:
        context.close()


if __name__ == "__main__" and not find_chromium():
    try:
        install_packages(_PACKAGES)
    except NodeMissingError as error:
        print(str(error).replace("no real node", "no browser"), file=sys.stderr)  # noqa: T201
        sys.exit(1 if os.environ.get("BROWSER_REQUIRED") else 0)

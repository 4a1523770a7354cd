"""Take the picture of `vramline top` from a real demo: `python tools/top_picture.py FILE.svg`."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from vramline.cli.client import Client
from vramline.cli.top_view import TopView

_SIZE = (132, 42)
_DEMO = [sys.executable, "-m", "vramline", "demo", "--quiet", "--speed", "10", "--listen", "127.0.0.1:0"]


async def take(server: str) -> str:
    """Wait until a pod has to wait and is explained, and return the screen as SVG."""
    with Client(server) as source:
        view = TopView(source, every_s=0.5)
        async with view.run_test(size=_SIZE) as pilot:
            while not (view._picture.story and view._picture.story.pod.status == "Pending"):  # noqa: SLF001
                await pilot.pause(0.2)
            await pilot.pause(1.0)
            picture = view.export_screenshot(title="vramline top")
    # Whoever looks at it must not be sent to another server for a font.
    picture = re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code", "DejaVu Sans Mono")


def main() -> None:
    """Start a demo, take the picture, stop it."""
    with subprocess.Popen(_DEMO, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 — our own command
        try:
            found = re.search(r"serving (http://\S+)", demo.stdout.readline() if demo.stdout else "")
            if found is None:
                sys.exit("the demo did not start")
            Path(sys.argv[1]).write_text(asyncio.run(take(found[1])), encoding="utf-8")
        finally:
            demo.kill()


if __name__ == "__main__":
    main()

"""Pictures of the pages, of the demo's cluster when there is something to see: `make pictures`."""

import random
import sys
from functools import partial
from pathlib import Path

from dashboard.chromium import open_browser, open_page
from dashboard.serving import serve
from vramline.dashboard.card_table import read_table
from vramline.dashboard.routes import build_pages
from vramline.demo.life import LivingCluster
from vramline.demo.machines import build_nodes
from vramline.explain.history import History
from vramline.model.pod import PodPhase
from vramline.scheduler.app import build_app
from vramline.simulate.files import read_text

PICTURES = (
    ("cluster-light", "/", "desktop", "light"),
    ("cluster-dark", "/", "desktop", "dark"),
    ("pods-light", "/pods", "desktop", "light"),
    ("pod-dark", "pending", "desktop", "dark"),
    ("what-if-light", "/what-if?pods=20&mib=8000", "desktop", "light"),
    ("cluster-phone-light", "/", "phone", "light"),
    ("pods-phone-dark", "/pods", "phone", "dark"),
)
"""Name, page, size, theme."""
_SEED = 5
_LATEST_S = 3_000


class Clock:
    """A clock that only goes on when it is told to."""

    def __init__(self) -> None:
        self.at = 1_767_225_600.0

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self.at


def live_until_interesting() -> LivingCluster:
    """Let the demo live until somebody waits, memory is releasing, and a stranger is on some card."""
    clock = Clock()
    life = LivingCluster(build_nodes(4), dice=random.Random(_SEED), clock=clock, history=History())
    for second in range(_LATEST_S):
        clock.at += 1.0
        life.tick()
        table = read_table(life.cluster)
        waiting = sum(pod.phase is PodPhase.PENDING for pod in life.cluster.pods.values())
        strangers, leaving = int((table.unmanaged > 3_000).sum()), int((table.releasing > 6_000).sum())
        if second > 120 and 3 <= waiting <= 5 and strangers and leaving:
            return life
    return life


def main(folder: Path) -> None:
    """Take all pictures."""
    life = live_until_interesting()
    app = build_app(life.cluster, life.history, pages=partial(build_pages, read_text=read_text))
    pending = next(pod.key for pod in life.cluster.pods.values() if pod.phase is PodPhase.PENDING)
    with serve(app) as served, open_browser() as browser:
        for name, path, size, scheme in PICTURES:
            with open_page(browser, served.base, size, scheme) as watched:
                page = watched.open(f"/pods/{pending}" if path == "pending" else path)
                if page.locator("#live").count():
                    watched.wait_until_live()
                page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What the dashboard costs with 5,000 GPUs, as JSON: first paint, updates, memory. `make bench-dashboard`."""

import json
import random
import resource
import statistics
import time

import httpx

from dashboard.big import big_cluster, change_some
from dashboard.chromium import open_browser, open_page
from dashboard.serving import serve
from dashboard.worlds import app_of

SECONDS = 30
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
HEAP = "performance.memory.usedJSHeapSize"


def main() -> None:
    """Serve, look, change a twentieth of all cards every second, and say what that took."""
    cluster, dice = big_cluster(clock=time.time), random.Random(3)
    app = app_of(cluster)
    with serve(app) as served, open_browser() as browser, open_page(browser, served.base) as watched:
        answers = [httpx.get(served.base) for _ in range(5)]
        page = watched.open("/")
        watched.wait_until_live()
        paints = []
        for _ in range(5):
            page.reload()
            watched.wait_until_live()
            paints.append(page.evaluate(PAINT))
        page.wait_for_timeout(3_000)
        heap, elements = page.evaluate(HEAP), page.evaluate("document.querySelectorAll('*').length")
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(SECONDS):
            served.do(lambda: change_some(cluster, dice))
            page.wait_for_timeout(1_000)
        after = resource.getrusage(resource.RUSAGE_SELF)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        told = {
            "gpus": len(cluster.fleet.columns.row_of),
            "page_kib": round(len(answers[0].content) / 1024),
            "page_ms": round(1000 * statistics.median(answer.elapsed.total_seconds() for answer in answers)),
            "first_paint_ms": round(statistics.median(paints)),
            "elements": elements,
            "elements_after": page.evaluate("document.querySelectorAll('*').length"),
            "heap_mib": round(heap / 2**20, 1),
            "heap_after_mib": round(page.evaluate(HEAP) / 2**20, 1),
            "changed_a_second": len(cluster.fleet.columns.row_of) // 20,
            "cpu_percent": round(100 * used_s / SECONDS, 1),
            "complaints": watched.complaints,
        }
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main()

"""The screen of `vramline top`: GPUs or nodes above, pods below, and beside them why one is where it is.

A thread asks the source; the screen shows the last answer, and says so when it grows old.
"""

import threading
import time
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import quote

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static
from textual.widgets.data_table import RowKey

from vramline.cli.cluster_tables import gpus_table, nodes_table, shorten
from vramline.cli.pod_story import STATUS_STYLES, pod_story
from vramline.cli.source import Source
from vramline.cli.text import printable
from vramline.errors import VramlineError
from vramline.explain.cards import CardState, NodeState
from vramline.explain.pods import PodStory, PodView
from vramline.units import format_mib

__all__ = ["Picture", "TopView", "take_picture"]

_MOST_ROWS = 200
"""GPUs, nodes or pods that are listed; more are counted, and `/` finds them."""
_ORDER = ("Pending", "Releasing", "Bound", "Running", "Finished")
_WIDE = 110
"""Columns from which on the explanation stands beside the pods."""


class _Gpus(msgspec.Struct):
    gpus: list[CardState]


class _Nodes(msgspec.Struct):
    nodes: list[NodeState]


class _Pods(msgspec.Struct):
    pods: list[PodView]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What the source said at one moment."""

    gpus: list[CardState] = []
    nodes: list[NodeState] = []
    pods: list[PodView] = []
    story: PodStory | None = None
    problem: str = ""
    """Why there is no answer; empty: there is one."""


def take_picture(source: Source, chosen: str) -> Picture:
    """Ask for all that is shown; `chosen` is a pod, or empty. A source that is gone is told, not raised."""
    try:
        gpus = source.get("/api/v1/gpus", _Gpus).gpus
        nodes = source.get("/api/v1/nodes", _Nodes).nodes
        pods = sorted(source.get("/api/v1/pods", _Pods).pods, key=_urgency)
    except VramlineError as error:
        return Picture(problem=str(error))
    story = None
    if chosen:
        namespace, _, name = chosen.partition("/")
        try:
            path = f"/api/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}"
            story = source.get(path, PodStory)
        except VramlineError:
            story = None  # it is gone; the list shows that
    return Picture(gpus=gpus, nodes=nodes, pods=pods, story=story)


def _urgency(pod: PodView) -> tuple[int, float, str]:
    """Pods that wait come first, the one that has waited longest before the others."""
    place = _ORDER.index(pod.status) if pod.status in _ORDER else len(_ORDER)
    return place, -(pod.age_s or 0.0) if place == 0 else 0.0, pod.pod


class TopView(App[None]):
    """The program behind `vramline top`."""

    TITLE = "vramline top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $panel; }
    #head.lost { background: $error; color: $text; }
    #above { height: auto; max-height: 50%; }
    #cards { width: 100%; }
    #below { height: 1fr; }
    #pods { width: 2fr; min-width: 40; border-top: solid $primary; }
    #why { width: 3fr; border-top: solid $primary; border-left: solid $primary; padding: 0 1; }
    #below.narrow { layout: vertical; }
    #below.narrow > * { width: 100%; height: 1fr; border-left: none; }
    #filter { height: 3; display: none; }
    #filter.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("g", "show('gpus')", "GPUs"),
        ("n", "show('nodes')", "Nodes"),
        ("slash", "filter", "Filter"),
        ("space", "pause", "Pause"),
        ("r", "refresh_now", "Refresh"),
        ("escape", "close_filter", "Close filter"),
    ]

    def __init__(self, source: Source, *, every_s: float = 1.0) -> None:
        super().__init__()
        self._source = source
        self._every_s = every_s
        self._picture = Picture()
        self._seen_at: float | None = None
        self._chosen = ""
        self._shown = "gpus"
        self._words = ""
        self._paused = False
        self._over = threading.Event()
        self._now = threading.Event()

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="head")
        with VerticalScroll(id="above"):
            yield Static("asking …", id="cards")
        with Horizontal(id="below"):
            yield DataTable[str | Text](id="pods", cursor_type="row", zebra_stripes=True)
            with VerticalScroll(id="why"):
                yield Static("choose a pod", id="story")
        yield Input(placeholder="node, GPU, model, namespace, pod or status; Enter closes", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        table = self.query_one(DataTable)
        table.add_columns("POD", "STATUS", "WHERE OR WHY", "ASKS")
        table.focus()
        self.set_interval(1.0, self._draw_head)
        self.run_worker(self._ask, thread=True, exclusive=True)

    def on_unmount(self) -> None:
        """Stop asking."""
        self._over.set()
        self._now.set()

    def on_resize(self, event: Resize) -> None:
        """Give every part the room there is now."""
        self.query_one("#below").set_class(event.size.width < _WIDE, "narrow")
        self.call_after_refresh(self._draw)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """A pod was chosen: ask about it at once. Where the cursor is now counts, not where it passed."""
        table = event.data_table
        if not table.row_count:
            return
        chosen = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        if chosen != self._chosen:
            self._chosen = chosen
            self._now.set()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while words are typed."""
        self._words = event.value.strip().lower()
        self._draw()

    def on_input_submitted(self) -> None:
        """The filter stays; its line goes."""
        self.query_one("#filter").remove_class("open")
        self.query_one(DataTable).focus()

    def action_show(self, what: str) -> None:
        """Show GPUs, or nodes."""
        self._shown = what
        self._draw()

    def action_filter(self) -> None:
        """Open the line for a filter."""
        line = self.query_one("#filter", Input)
        line.add_class("open")
        line.focus()

    def action_close_filter(self) -> None:
        """Forget the filter."""
        self.query_one("#filter", Input).value = ""
        self.on_input_submitted()

    def action_pause(self) -> None:
        """Stop the picture, or let it go on."""
        self._paused = not self._paused
        self._now.set()
        self._draw_head()

    def action_refresh_now(self) -> None:
        """Ask at once."""
        self._now.set()

    # ── asking ───────────────────────────────────────────────────────────────────────────────────

    def _ask(self) -> None:
        """In a thread: ask again and again until the screen closes."""
        while not self._over.is_set():
            if not self._paused:
                picture = take_picture(self._source, self._chosen)
                if self._over.is_set():
                    return
                self.call_from_thread(self._take, picture)
            self._now.wait(self._every_s)
            self._now.clear()

    def _take(self, picture: Picture) -> None:
        if self._paused and self._seen_at is not None:
            return  # it was asked for before the pause
        if picture.problem:
            # What was seen last stays on the screen, with its age in the first line.
            self._picture = msgspec.structs.replace(self._picture, problem=picture.problem)
        else:
            self._picture, self._seen_at = picture, time.monotonic()
        self._draw()

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def _draw(self) -> None:
        if not self.is_attached or not self.query("#story"):
            return  # the screen is closing
        self._draw_head()
        self.query_one("#cards", Static).update(self._cards())
        self._draw_pods()
        story, room = self._picture.story, max(40, self.query_one("#why").size.width - 4)
        words: RenderableType = "choose a pod"
        if story is not None:
            words = pod_story(story, width=room, plain=False)
        self.query_one("#story", Static).update(words)

    def _draw_head(self) -> None:
        if not self.query("#head"):
            return
        head, picture = self.query_one("#head", Static), self._picture
        head.set_class(bool(picture.problem), "lost")
        if picture.problem:
            ago = "" if self._seen_at is None else f" last seen {time.monotonic() - self._seen_at:.0f} s ago;"
            head.update(Text(f" disconnected:{ago} {printable(picture.problem)}", no_wrap=True))
            return
        free, waiting = _sums(picture)
        parts = [f"{len(picture.nodes)} nodes", f"{len(picture.gpus)} GPUs", f"{format_mib(free)} free"]
        parts.append(f"{waiting} of {len(picture.pods)} pods wait")
        parts += [f"filter: {self._words}"] if self._words else []
        parts += ["PAUSED"] if self._paused else []
        head.update(Text(" " + "   ".join(parts), style="bold", no_wrap=True))

    def _cards(self) -> RenderableType:
        width = max(40, self.query_one("#above").size.width - 2)
        if self._shown == "nodes":
            nodes = [each for each in self._picture.nodes if self._matches(each.node)]
            return _cut(nodes_table(nodes[:_MOST_ROWS], width=width, plain=False), len(nodes))
        gpus = [
            each
            for each in self._picture.gpus
            if self._matches(each.node, each.uuid, each.model, *(claim.pod for claim in each.claims))
        ]
        return _cut(gpus_table(gpus[:_MOST_ROWS], width=width, plain=False), len(gpus))

    def _draw_pods(self) -> None:
        """Write the pods anew; the cursor stays on its pod, not on its row."""
        pods = [each for each in self._picture.pods if self._matches(each.pod, each.status, each.node or "")]
        table: DataTable[str | Text] = self.query_one(DataTable)
        chosen, top = self._chosen, table.scroll_y
        table.clear()
        if chosen not in {pod.pod for pod in pods} and pods:
            self._chosen = chosen = pods[0].pod
            self._now.set()
        for pod in pods[:_MOST_ROWS]:
            table.add_row(*_row_of(pod), key=pod.pod)
        if RowKey(chosen) in table.rows:
            table.move_cursor(row=table.get_row_index(chosen), scroll=False)
            table.scroll_to(y=top, animate=False)

    def _matches(self, *texts: str) -> bool:
        return not self._words or any(self._words in text.lower() for text in texts)


def _sums(picture: Picture) -> tuple[int, int]:
    free = sum(max(0, gpu.free_mib) for gpu in picture.gpus)
    return free, sum(pod.status == "Pending" for pod in picture.pods)


def _row_of(pod: PodView) -> Sequence[str | Text]:
    where = (
        f"{pod.node} {', '.join(share.uuid for share in pod.gpus)}" if pod.node else pod.reason or "not tried"
    )
    return (
        shorten(pod.pod, 32),
        Text(pod.status, style=STATUS_STYLES.get(pod.status, "")),
        printable(where),
        printable(pod.asks),
    )


def _cut(table: RenderableType, count: int) -> RenderableType:
    """Say that there are more than are listed."""
    if count <= _MOST_ROWS:
        return table
    more = Text(f"… and {count - _MOST_ROWS:,} more; / filters", style="bold yellow")
    return Group(more, table)

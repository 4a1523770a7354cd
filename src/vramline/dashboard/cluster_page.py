"""The page of all cards: sums, a map of the whole cluster, and every card as a bar, by node."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from vramline.dashboard.bars import LEGEND, Part, card_parts, draw_bar, parts_of_sums
from vramline.dashboard.card_table import CardTable, Layout, Totals, read_table, sum_up
from vramline.dashboard.fleet_map import FleetMap
from vramline.dashboard.markup import Templates, id_of
from vramline.dashboard.queries import CardFlag, CardOrder, CardQuery
from vramline.dashboard.streams import Listing, Piece, Scene
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.explain.cards import CardState, card_state
from vramline.model.node import Node

__all__ = ["NODES_ON_A_PAGE", "ClusterPage", "choose_cards", "draw_card"]

NODES_ON_A_PAGE = 24


@dataclass(frozen=True, slots=True)
class Choice:
    """The cards that a query picks, and the part of them that is on the page."""

    nodes: list[tuple[int, list[int]]]
    """Nodes on this page, each with its cards, as indices into the layout."""
    matching_nodes: int
    matching_cards: int
    page: int
    pages: int


class ClusterPage:
    """Makes the page, and keeps what all who look at it share."""

    def __init__(self, window: Window, templates: Templates) -> None:
        self._window = window
        self._templates = templates
        self._layout: Layout | None = None
        self._map = FleetMap()

    async def make(self, viewer: Viewer, query: CardQuery) -> str:
        """Return the whole page; others get their turn between two nodes."""
        table = self._read()
        choice = choose_cards(self._window, table, query, viewer)
        parts: list[Piece] = []
        for each in choice.nodes:
            parts += self._draw_node(table, each, viewer)
            await asyncio.sleep(0)
        pods = self._window.cluster.pods.values()
        return self._templates.page(
            "cluster.html",
            viewer=viewer,
            now=table.at,
            query=query,
            totals=self._draw_totals(table),
            map=self._map.all(),
            nodes=self._wrap(parts),
            pager=self._templates.part("pager", query, choice),
            models=sorted({gpu.model for gpu in table.layout.gpus if gpu.model}),
            namespaces=sorted({pod.namespace for pod in pods if pod.ask and viewer.sees(pod.namespace)}),
            states=[state for state in CardFlag if state],
            orders=list(CardOrder),
            legend=LEGEND,
        )

    def follow(self, viewer: Viewer, query: CardQuery) -> Scene:
        """Return the page as a scene: of the map, only what changed since the last round is drawn."""
        seen = 0

        async def scene() -> AsyncIterator[Piece | Listing]:
            nonlocal seen
            table = self._read()
            yield Piece("totals", self._draw_totals(table))
            for piece in self._draw_map(seen):
                yield piece
            seen = self._map.round
            choice = choose_cards(self._window, table, query, viewer)
            parts: list[Piece] = []
            for each in choice.nodes:
                parts += self._draw_node(table, each, viewer)
                await asyncio.sleep(0)
            yield Listing("nodes", parts, self._wrap)
            yield Piece("pager", self._templates.part("pager", query, choice))

        return scene

    def _read(self) -> CardTable:
        table = read_table(self._window.cluster, self._layout)
        self._layout = table.layout
        self._map.refresh(table)
        return table

    def _draw_map(self, seen: int) -> Iterator[Piece]:
        if seen < self._map.laid_out:
            yield Piece("map", self._templates.part("map", self._map.all()))
        else:
            yield from (Piece(target, drawn) for target, drawn in self._map.since(seen))

    def _draw_totals(self, table: CardTable) -> Markup:
        totals = sum_up(self._window.cluster.fleet, table)
        return self._templates.part("totals", totals, draw_bar(_parts_of(totals), totals.usable, "all GPUs"))

    def _draw_node(self, table: CardTable, chosen: tuple[int, list[int]], viewer: Viewer) -> list[Piece]:
        """Draw a node's heading and those of its cards that were chosen; none where the node has left."""
        cluster, layout = self._window.cluster, table.layout
        node = cluster.fleet.node(layout.nodes[chosen[0]])
        if node is None:
            return []
        target = id_of("n", node.name)
        free = int(table.free[layout.cards_of(chosen[0])].sum())
        parts = [Piece(target, self._templates.part("node_heading", node, target, free, _say_node(node)))]
        max_age_s, now, nodes = cluster.rules_for(None).max_age_s, cluster.now(), NodeNames(cluster.fleet)
        for position in chosen[1]:
            uuid = layout.gpus[position].uuid
            if uuid in cluster.fleet.columns.row_of:
                card = card_state(cluster.fleet, uuid, now=now, max_age_s=max_age_s)
                parts.append(Piece(id_of("c", uuid), draw_card(self._templates, card, viewer, nodes)))
        return parts

    def _wrap(self, parts: list[Piece]) -> Markup:
        """Join headings and cards to one section a node."""
        sections: list[list[Markup]] = []
        for part in parts:
            if part.id.startswith("n-"):
                sections.append([])
            sections[-1].append(part.html)
        return self._templates.part("node_list", sections)


def draw_card(templates: Templates, card: CardState, viewer: Viewer, nodes: NodeNames) -> Markup:
    """Draw one card as a line with its bar."""
    bar = draw_bar(card_parts(card, viewer.pod), card.usable_mib, _say_card(card))
    notes = [viewer.told(note, nodes) for note in card.notes]
    return templates.part("card", card, id_of("c", card.uuid), bar, notes)


def choose_cards(window: Window, table: CardTable, query: CardQuery, viewer: Viewer) -> Choice:
    """Pick the cards that a query means, and of their nodes those on the page."""
    layout = table.layout
    mask = _mask_of(window, table, query, viewer)
    nodes = np.unique(layout.node_of[mask])
    keys = _order_of(table, query.order)
    if keys is not None:
        nodes = nodes[np.lexsort((nodes, keys[nodes]))]
    pages = max(1, -(-len(nodes) // NODES_ON_A_PAGE))
    page = min(query.page, pages)
    shown = nodes[(page - 1) * NODES_ON_A_PAGE : page * NODES_ON_A_PAGE].tolist()
    return Choice(
        nodes=[(node, [card for card in layout.cards_of(node) if mask[card]]) for node in shown],
        matching_nodes=len(nodes),
        matching_cards=int(mask.sum()),
        page=page,
        pages=pages,
    )


def _mask_of(window: Window, table: CardTable, query: CardQuery, viewer: Viewer) -> npt.NDArray[np.bool_]:
    layout = table.layout
    mask = np.ones(len(layout.gpus), dtype=np.bool_)
    if query.node:
        found = np.array([query.node in name for name in layout.nodes], dtype=np.bool_)
        mask &= found[layout.node_of]
    if query.model:
        wanted = query.model.lower()
        mask &= np.array([wanted in gpu.model.lower() for gpu in layout.gpus], dtype=np.bool_)
    if query.namespace:
        start, ledger = f"{query.namespace}/", window.cluster.fleet.ledger
        seen = viewer.sees(query.namespace)
        held = {claim.gpu for claim in ledger if seen and claim.pod.startswith(start)}
        mask &= np.array([gpu.uuid in held for gpu in layout.gpus], dtype=np.bool_)
    if query.state:
        mask &= _state_of(table, query.state)
    return mask


def _state_of(table: CardTable, state: CardFlag) -> npt.NDArray[np.bool_]:
    states: dict[CardFlag, npt.NDArray[np.bool_]] = {
        CardFlag.IDLE: table.known & (table.held == 0) & (table.unmanaged == 0),
        CardFlag.HELD: table.held > table.releasing,
        CardFlag.RELEASING: table.releasing > 0,
        CardFlag.UNMANAGED: table.unmanaged > 0,
        CardFlag.UNKNOWN: ~table.known,
        CardFlag.CLOSED: ~table.open,
        CardFlag.OVER: table.free < 0,
    }
    return states[state]


def _order_of(table: CardTable, order: CardOrder) -> npt.NDArray[np.int64] | None:
    """Return the key by which nodes are sorted, least first; None: by name, as they are."""
    match order:
        case CardOrder.NAME:
            return None
        case CardOrder.MOST_FREE:
            return -table.by_node(table.free)
        case CardOrder.LEAST_FREE:
            return table.by_node(table.free)
        case CardOrder.UNMANAGED:
            return -table.by_node(table.unmanaged)
        case CardOrder.RELEASING:
            return -table.by_node(table.releasing)
        case _:
            assert_never(order)


def _parts_of(totals: Totals) -> list[Part]:
    return parts_of_sums(
        {
            "held": totals.held - totals.releasing,
            "releasing": totals.releasing,
            "unmanaged": totals.unmanaged,
            "margin": totals.margin,
            "free": totals.free,
            "unknown": totals.unknown,
        }
    )


def _say_card(card: CardState) -> str:
    unmanaged = "unknown" if card.unmanaged_mib is None else f"{card.unmanaged_mib:,}"
    return (
        f"{card.node} GPU {card.index}: of {card.usable_mib:,} MiB {card.held_mib:,} held,"
        f" {card.releasing_mib:,} of that releasing, {unmanaged} unmanaged, {card.free_mib:,} free"
    )


def _say_node(node: Node) -> list[str]:
    """Say what keeps pods away from a node, or is otherwise worth knowing."""
    said = []
    if not node.ready:
        said.append("not ready")
    if node.cordoned:
        said.append("cordoned")
    if node.problem is not None:
        said.append(f"{node.problem.kind}: {node.problem.detail}")
    return said

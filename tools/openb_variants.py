"""Makes other mixes and other orders of arrival from the public GPU-sharing trace, to compare policies on.

    python tools/openb_variants.py DATA OUT --seeds 42 43

DATA holds the files of the trace as `vramline bench openb` reads them, OUT gets files of the same form, for
`vramline bench openb --variant NAME --seed N` with --nodes, --pods and --orders from there. The same seeds
give the same files. The names are those of the published mixes where a mix is made to the same measure, but
the pods are drawn anew from the three lists that are at hand: figures do not compare with published ones.
"""

import argparse
import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

Row = dict[str, str]
Rows = list[Row]
Chance = np.random.Generator

NODES = "openb_node_list_gpu_node.csv"
COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
INFLATED = 1.3
"""How much is asked for, over what there is."""


def read_rows(path: Path) -> Rows:
    """Read the pods of a list."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{column: row.get(column) or "" for column in COLUMNS} for row in csv.DictReader(file)]


def kind_of(row: Row) -> str:
    """Return what kind of pod it is, as rejections are counted."""
    gpus = int(row["num_gpu"])
    if gpus != 1:
        return "multi" if gpus else "cpu"
    return "one" if row["gpu_milli"] == "1000" else "share"


def demand_of(row: Row) -> int:
    """Return the thousandths of a card that a pod wants."""
    gpus = int(row["num_gpu"])
    return int(row["gpu_milli"]) if gpus == 1 else 1000 * gpus


def draw(chance: Chance, rows: Rows, *, pods: int) -> Rows:
    """Return so many of the rows; more than there are: all, and some of them again."""
    whole, rest = divmod(pods, len(rows))
    return rows * whole + [rows[place] for place in chance.choice(len(rows), rest, replace=False)]


def draw_demand(chance: Chance, rows: Rows, *, milli: float) -> Rows:
    """Return rows that ask for so much together."""
    drawn: Rows = []
    while milli > 0:
        drawn.append(rows[int(chance.integers(len(rows)))])
        milli -= demand_of(drawn[-1])
    return drawn


class Lists:
    """The pods at hand."""

    def __init__(self, data: Path) -> None:
        default = read_rows(data / "openb_pod_list_default.csv")
        self.of = {
            kind: [row for row in default if kind_of(row) == kind]
            for kind in ("cpu", "share", "one", "multi")
        }
        multi = read_rows(data / "openb_pod_list_multigpu30.csv")
        self.many_cards = [row for row in multi if kind_of(row) == "multi"]
        specs = read_rows(data / "openb_pod_list_gpuspec20.csv")
        self.specs = [row["gpu_spec"] for row in specs if row["gpu_spec"]]

    def gpu_demand(self, *kinds: str) -> int:
        """Return what pods of these kinds want together."""
        return sum(demand_of(row) for kind in kinds for row in self.of[kind])

    def all_but(self, *left_out: str) -> Rows:
        """Return all pods but those of these kinds."""
        return [row for kind, rows in self.of.items() if kind not in left_out for row in rows]


def with_cpu_pods(lists: Lists, chance: Chance, pods: int) -> Rows:
    """Let so many pods want CPU alone."""
    return lists.all_but("cpu") + draw(chance, lists.of["cpu"], pods=pods)


def with_shares(lists: Lists, chance: Chance, part: float) -> Rows:
    """Let shares make up this part of the GPU demand; whole cards make room."""
    everything = lists.gpu_demand("share", "one", "multi")
    shares = draw_demand(chance, lists.of["share"], milli=part * everything)
    whole = lists.of["one"] + lists.of["multi"]
    kept = draw_demand(chance, whole, milli=(1 - part) * everything) if part < 1 else []
    return lists.of["cpu"] + shares + kept


def with_many_cards(lists: Lists, chance: Chance, part: float) -> Rows:
    """Let pods of several cards make up this part of the GPU demand, beside all others."""
    others = lists.gpu_demand("share", "one")
    return lists.all_but("multi") + draw_demand(chance, lists.many_cards, milli=others * part / (1 - part))


def with_models(lists: Lists, chance: Chance, part: float) -> Rows:
    """Let this part of the GPU pods want certain models, as often each as in the list at hand."""
    gpu_pods = [dict(row) for row in lists.all_but("cpu")]
    for place in chance.choice(len(gpu_pods), int(part * len(gpu_pods)), replace=False):
        gpu_pods[place]["gpu_spec"] = lists.specs[int(chance.integers(len(lists.specs)))]
    return lists.of["cpu"] + gpu_pods


def with_other_sizes(lists: Lists, chance: Chance, sizes: int) -> Rows:
    """Give the shares other sizes: so many, at random, each as often as one of the usual sizes."""
    usual = sorted({row["gpu_milli"] for row in lists.of["share"]})
    pool = chance.choice(np.arange(5, 100), size=sizes, replace=False) * 10
    meaning = {size: str(pool[int(chance.integers(sizes))]) for size in usual}
    shares = [row | {"gpu_milli": meaning[row["gpu_milli"]]} for row in lists.of["share"]]
    return lists.all_but("share") + shares


def with_more_cpu(lists: Lists, _chance: Chance, factor: float) -> Rows:
    """Let every GPU pod want more CPU."""
    rows = [
        row | {"cpu_milli": str(min(int(int(row["cpu_milli"]) * factor), 96_000))}
        for row in lists.all_but("cpu")
    ]
    return lists.of["cpu"] + rows


Maker = tuple[Callable[[Lists, Chance, float], Rows], float]

MIXES: dict[str, Maker] = {
    "cpu050": (lambda lists, chance, pods: with_cpu_pods(lists, chance, int(pods)), 375),
    "cpu200": (lambda lists, chance, pods: with_cpu_pods(lists, chance, int(pods)), 1768),
    "cpu250": (lambda lists, chance, pods: with_cpu_pods(lists, chance, int(pods)), 2356),
    "gpushare40": (with_shares, 0.4),
    "gpushare60": (with_shares, 0.6),
    "gpushare80": (with_shares, 0.8),
    "gpushare100": (with_shares, 1.0),
    "gpuspec10": (with_models, 0.10),
    "gpuspec33": (with_models, 0.33),
    "gpuspec50": (with_models, 0.50),
    "multigpu20": (with_many_cards, 0.2),
    "multigpu40": (with_many_cards, 0.4),
    "multigpu50": (with_many_cards, 0.5),
    "sizes8": (lambda lists, chance, sizes: with_other_sizes(lists, chance, int(sizes)), 8),
    "sizes40": (lambda lists, chance, sizes: with_other_sizes(lists, chance, int(sizes)), 40),
    "morecpu": (with_more_cpu, 1.25),
}


def order_of(chance: Chance, rows: Rows, capacity: int) -> list[int]:
    """Shuffle the pods; then clones come until the demand is reached, or some go until it is."""
    order: list[int] = chance.permutation(len(rows)).tolist()
    most, demand = INFLATED * capacity, sum(map(demand_of, rows))
    while demand > most:
        demand -= demand_of(rows[order.pop(int(chance.integers(len(order))))])
    while True:
        clone = int(chance.integers(len(rows)))
        demand += demand_of(rows[clone])
        if demand > most:
            return order
        order.append(clone)


def write_rows(path: Path, rows: Rows) -> Rows:
    """Write pods under names of their own, in the order of which orders of arrival speak."""
    named = [row | {"name": f"pod-{number:05d}"} for number, row in enumerate(rows)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(named)
    return named


def main() -> None:
    """Make the files."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("data", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lists = Lists(given.data)
    shutil.copy(given.data / NODES, given.out / NODES)
    with (given.out / NODES).open(newline="", encoding="utf-8") as file:
        cards = [int(row["gpu"]) for row in csv.DictReader(file)]
    mixes = {
        name: make(lists, np.random.default_rng([number, 7]), measure)
        for number, (name, (make, measure)) in enumerate(MIXES.items())
    }
    for name in ("default", "gpuspec20", "multigpu30"):
        mixes[name] = sorted(
            read_rows(given.data / f"openb_pod_list_{name}.csv"), key=lambda row: row["name"]
        )
    orders: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    for number, (name, made) in enumerate(mixes.items()):
        rows = write_rows(given.out / f"openb_pod_list_{name}.csv", made)
        for seed in given.seeds:
            chance = np.random.default_rng([seed, number])
            orders[f"{name}_{seed}"] = np.array(order_of(chance, rows, 1000 * sum(cards)))
            orders[f"{name}_{seed}_noderank"] = chance.permutation(len(cards))
    np.savez_compressed(given.out / "arrival_orders.npz", allow_pickle=False, **orders)


if __name__ == "__main__":
    main()

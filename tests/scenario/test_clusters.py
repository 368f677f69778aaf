# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Every form of cluster, what devices share and what is slower: the times that they mean, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from simcollectives.cluster import Cluster
from simcollectives.cluster.machines import machine_names
from simcollectives.scenario import Scenario, run_scenario
from simcollectives.scenario.build import build_cluster

Loader = Callable[[str], Scenario]
Refuser = Callable[[str], list[str]]

LINKS = "intra: {alpha: 0 us, bandwidth: 450 GB/s}, inter: {alpha: 0 us, bandwidth: 50 GB/s}"
NODES = f"nodes: 4, gpus_per_node: 8, {LINKS}"
LINK = "link: {alpha: 0 us, bandwidth: 64 GB/s}"
LEVELS = (
    "levels: [{name: nvlink, size: 8, alpha: 0 us, bandwidth: 450 GB/s}, {name: rail, size: 4, alpha: 0 us, "
    "bandwidth: 50 GB/s}, {name: spine, size: 2, alpha: 0 us, bandwidth: 100 GB/s, ports_of: rail}]"
)


def scenario(cluster: str, algorithms: str = "ring", *lines: str, name: str = "all_reduce") -> str:
    collective = f"collective: {{name: {name}, message: 1 GB, verify: never, algorithms: [{algorithms}]}}"
    return "\n".join(["title: x", f"cluster: {{{cluster}}}", collective.replace(" verify: never,", ""), *lines])


@pytest.fixture
def rows(load: Loader) -> Callable[..., list[Mapping[str, Any]]]:
    def rows_of(*args: str, **given: str) -> list[Mapping[str, Any]]:
        return list(run_scenario(load(scenario(*args, **given))).rows)

    return rows_of


Rows = Callable[..., list[Mapping[str, Any]]]


def seconds(found: list[Mapping[str, Any]]) -> list[float]:
    return [row["seconds"] for row in found]


def test_one_card_a_node(rows: Rows) -> None:
    """By hand, bytes through the card over its bandwidth: 1 GB and alpha 0 on one shared 50 GB/s card a node."""
    one = f"{NODES}, nics_per_node: 1"
    assert seconds(rows(one, "ring, hierarchical")) == pytest.approx([38.75e-3, 7 / 8 * 2e9 / 450e9 + 30e-3], rel=1e-9)
    assert seconds(rows(f"{one}, rank_order: round_robin")) == pytest.approx([310e-3], rel=1e-9)
    twice = [node * 8 + half * 4 + gpu for half in range(2) for node in range(4) for gpu in range(4)]
    assert seconds(rows(f"{one}, rank_order: {twice}")) == pytest.approx([77.5e-3], rel=1e-9)


def test_a_card_for_each_gpu_is_no_shared_resource(load: Loader) -> None:
    for text in (NODES, f"{NODES}, nics_per_node: 8", f"{NODES}, leaf: {{nodes: 4, oversubscription: 4}}"):
        assert build_cluster(load(scenario(text)).cluster, {}).network.plain
    assert not build_cluster(load(scenario(f"{NODES}, nics_per_node: 4")).cluster, {}).network.plain
    assert build_cluster(load(scenario(f"{NODES}, nics_per_node: 4")).cluster, {"nodes": 1}).network.plain


def test_bandwidths_of_what_is_shared(load: Loader) -> None:
    def uplinks(text: str) -> dict[str, tuple[float, int, int]]:
        cluster = build_cluster(load(scenario(f"{NODES}, {text}")).cluster, {})
        return {uplink.name: (uplink.bandwidth, uplink.devices, uplink.rails) for uplink in cluster.uplinks}

    assert uplinks("nics_per_node: 2") == {"nic": (50e9, 4, 0)}
    assert uplinks("pcie_switch: {gpus: 2, bandwidth: 63 GB/s}") == {"pcie": (63e9, 2, 0)}
    assert uplinks("leaf: {nodes: 2, oversubscription: 4}") == {"leaf": (2 * 8 * 50e9 / 4, 16, 0)}
    assert uplinks("leaf: {rails: 8, oversubscription: 4}") == {"leaf": (4 * 50e9 / 4, 0, 8)}
    both = uplinks("nics_per_node: 2, leaf: {nodes: 2, oversubscription: 4}")
    assert both["leaf"] == (2 * 2 * 50e9 / 4, 16, 0)


def test_an_oversubscribed_leaf_slows_what_crosses_it(rows: Rows) -> None:
    """Of pairwise all-to-all traffic, half leaves a leaf of two of four nodes: 1/32 GB x 16 x 16 over 16 x 50/4 GB/s."""
    leaf = f"{NODES}, leaf: {{nodes: 2, oversubscription: 4}}"
    assert seconds(rows(leaf, "direct", name="all_to_all")) == pytest.approx([1e9 / 32 * 16 * 16 / (16 * 50e9 / 4)])
    # A ring has one edge out of each leaf, far below the uplink.
    assert seconds(rows(leaf)) == pytest.approx(seconds(rows(NODES)))


def test_rails_leave_traffic_of_the_same_place_alone(rows: Rows) -> None:
    rails = f"{NODES}, leaf: {{rails: 8, oversubscription: 4}}"
    found = seconds(rows(rails, "hierarchical, direct"))
    plain = seconds(rows(NODES, "hierarchical, direct"))
    assert found[0] == pytest.approx(plain[0])
    assert found[1] > 1.5 * plain[1]


def test_full_mesh(rows: Rows) -> None:
    """Eight ranks use seven links each, two use one: all-reduce is 2 M/(N B) of direct, 2 (N - 1) M/(N B) of ring."""
    found = rows(f"full_mesh: 8, {LINK}", "direct, ring", "sweep: {devices: [2, 8]}")
    assert seconds(found) == pytest.approx([1e9 / 64e9, 1e9 / 64e9, 2e9 / 8 / 64e9, 14e9 / 8 / 64e9])
    assert found[0]["bytes_sent_max_intra"] is None
    assert found[0]["bytes_sent_max_node"] is None


def test_torus_and_mesh(rows: Rows) -> None:
    """A ring over a row closes in a torus of one dimension; in an open row its last hop passes all others' links."""
    assert seconds(rows(f"torus: [8], {LINK}")) == pytest.approx([14 / 8 * 1e9 / 64e9])
    assert seconds(rows(f"mesh: [8], {LINK}")) == pytest.approx([14 / 8 * 1e9 / 64e9])
    assert rows(f"torus: [4, 2], {LINK}")[0]["world_size"] == 8


def test_levels(rows: Rows) -> None:
    """The lone edge of a ring between the two halves has the way out for itself; eight rails at once share it."""
    ring, hierarchical = rows(LEVELS, "ring, hierarchical", "sweep: {spine.bandwidth: [100 GB/s, 400 GB/s]}")[::2]
    assert ring["seconds"] == pytest.approx(2 * 63 / 64 * 1e9 / 50e9)
    assert ring["point"] == {"spine.bandwidth": 100e9}
    assert ring["bytes_sent_max_inter"] == ring["bytes_sent_max_node"] == 2 * 63 * 1e9 / 64
    slow, fast = (
        row["seconds"] for row in rows(LEVELS, "hierarchical", "sweep: {spine.bandwidth: [100 GB/s, 400 GB/s]}")
    )
    # 14 rounds of M/64 over eight nodes, each with a spine edge of eight GPUs: 12.5 GB/s instead of 50 GB/s a GPU.
    assert slow - fast == pytest.approx(14 * 1e9 / 64 * (1 / 12.5e9 - 1 / 50e9))
    assert hierarchical["collective"] == "all_reduce"


def test_bytes_of_devices_and_nodes(rows: Rows) -> None:
    """By hand, from the schedules: bytes between nodes on 4 x 8, in units of the message."""
    found = rows(NODES, "hierarchical, rabenseifner, ring, {rabenseifner: {order: far}}, butterfly, naive")
    between = [row["bytes_sent_max_inter"] / 1e9 for row in found]
    assert between == pytest.approx([0.1875, 0.1875, 1.9375, 1.5, 2, 24])
    assert [row["bytes_sent_max_node"] / 1e9 for row in found] == pytest.approx([1.5, 1.5, 1.9375, 12, 16, 192])
    assert rows(f"nodes: 4, gpus_per_node: 1, {LINKS}")[0]["bytes_sent_max_intra"] is None
    one = rows("machine: dgx-h100")[0]
    assert (one["bytes_sent_max_intra"], one["bytes_sent_max_inter"]) == (1.75e9, None)


def test_machines_are_the_same_from_a_file(load: Loader) -> None:
    for name in machine_names():
        for nodes in (1, 2):
            built = build_cluster(load(scenario(f"machine: {name}, nodes: {nodes}")).cluster, {})
            assert built == Cluster.machine(name, nodes)


def test_slow_ranks_and_links(rows: Rows) -> None:
    flat = f"devices: 8, {LINK}"
    usual = 14 / 8 * 1e9 / 64e9
    assert seconds(rows(f"{flat}, slow: [{{rank: 3, bandwidth: 50%}}]")) == pytest.approx([2 * usual])
    assert seconds(rows(f"{flat}, slow: [{{link: [0, 1], bandwidth: 10%}}]")) == pytest.approx([10 * usual])
    assert seconds(rows(f"{flat}, slow: [{{link: [1, 0], bandwidth: 0.1}}]")) == pytest.approx([usual])
    late = f"{flat.replace('0 us', '5 us')}, slow: [{{rank: 3, alpha: 2, level: link}}]"
    assert seconds(rows(late)) == pytest.approx([14 * (10e-6 + 1e9 / 8 / 64e9)])
    gamma = f"{flat}, gamma: 2 ps/B, slow: [{{rank: 3, gamma: 200%}}]"
    assert seconds(rows(gamma)) == pytest.approx([usual + 7 * 1e9 / 8 * 4e-12])


WRONG = {
    f"{NODES}, nics_per_node: 3": ["$.cluster.nics_per_node (line 2): 3 cards do not divide the 8 GPUs of a node"],
    f"{NODES}, nics_pr_node: 1": ['$.cluster.nics_pr_node (line 2): unknown key; did you mean "nics_per_node"?'],
    f"{NODES}, pcie_switch: {{gpus: 3, bandwidth: 63}}": ['$.cluster.pcie_switch.bandwidth (line 2): 63 has no unit; write "63 GB/s"'],
    f"{NODES}, pcie_switch: {{gpus: 3, bandwidth: 63 GB/s}}": ["$.cluster.pcie_switch.gpus (line 2): 3 GPUs do not divide the 8 GPUs"],
    f"{NODES}, leaf: {{nodes: 2, rails: 8, oversubscription: 4}}": ["$.cluster.leaf (line 2): a leaf has so many nodes, or is a rail; write one"],
    f"{NODES}, leaf: {{nodes: 2, oversubscription: 0.5}}": ["$.cluster.leaf.oversubscription (line 2): 0.5 is less than 1"],
    f"{NODES}, leaf: {{nodes: 2}}": ["$.cluster.leaf (line 2): the key oversubscription is missing; write oversubscription: 4"],
    f"{NODES}, nics_per_node: 4, leaf: {{rails: 8, oversubscription: 2}}": ["$.cluster.leaf.rails (line 2): 8 rails do not divide the 4 network cards"],
    f"devices: 8, {LINK}, nics_per_node: 1": ["$.cluster.nics_per_node (line 2): unknown key; "],
    f"devices: 8, {LINK}, slow: [{{rank: 9, alpha: 2}}]": ["$.cluster.slow[0] (line 2): rank 9 is unreachable; ranks are 0 to 7"],
    f"devices: 8, {LINK}, slow: [{{rank: 3}}, {{rank: 1, bandwidth: 5 GB/s}}]": [
        "$.cluster.slow[0] (line 2): nothing says what is slower; write alpha",
        '$.cluster.slow[1].bandwidth (line 2): "5 GB/s" is a bandwidth, not a ratio; write "0.5%"',
    ],
    f"devices: 8, {LINK}, slow: [{{rank: 9, alpha: 2}}, {{rank: x, alpha: 2}}, {{link: [8, 9], alpha: 2}}]": [
        "$.cluster.slow[0] (line 2): rank 9 is unreachable; ranks are 0 to 7",
        '$.cluster.slow[1].rank (line 2): "x" is not a rank',
        "$.cluster.slow[2] (line 2): rank 8 is unreachable; ranks are 0 to 7",
        "$.cluster.slow[2] (line 2): rank 9 is unreachable; ranks are 0 to 7",
    ],
    f"devices: 8, {LINK}, slow: [{{rank: 3}}]": ["$.cluster.slow[0] (line 2): nothing says what is slower; write alpha"],
    f"devices: 8, {LINK}, slow: [{{alpha: 2}}]": ["$.cluster.slow[0] (line 2): a change is of a rank or of a link"],
    f"devices: 8, {LINK}, slow: [{{rank: 1, alpha: 2, level: intra}}]": ['$.cluster.slow[0] (line 2): "intra" is not a level; known: link'],
    f"devices: 8, {LINK}, slow: [{{link: [0], bandwidth: 50%}}]": ["$.cluster.slow[0].link (line 2): 1 entry; write at least 2"],
    f"devices: 8, {LINK}, slow: [{{link: [0, 1], bandwidth: 200%}}]": ["$.cluster.slow[0].bandwidth (line 2): 2 is more than 1 (100%); a link is no faster than its ports"],
    f"devices: 8, {LINK}, slow: [{{rank: 1, bandwidth: 0%}}]": ['$.cluster.slow[0].bandwidth (line 2): "0%" is out of range: a factor is'],
    f"full_mesh: 2000, {LINK}": ["$.cluster.full_mesh (line 2): 2000 devices are too many; a full mesh has at most 1024"],
    f"torus: [400, 400], {LINK}": ["$.cluster.torus (line 2): 160000 devices are too many; a torus has at most 4096"],
    f"mesh: [4, 0], {LINK}": ["$.cluster.mesh[1] (line 2): 0 is not a count"],
    f"torus: 4, {LINK}": ["$.cluster.torus (line 2): 4 is not a list; write torus: [4, 4]"],
    f"torus: [4], devices: 4, {LINK}": ["$.cluster.devices (line 2): devices and torus belong to different forms"],
    f"full_mesh: 4, nodes: 4, {LINK}": ["$.cluster.nodes (line 2): nodes and full_mesh belong to different forms"],
    f"full_mash: 4, {LINK}": ['$.cluster.full_mash (line 2): unknown key; did you mean "full_mesh"?'],
    "levels: []": ["$.cluster.levels (line 2): 0 entries; write at least 1"],
    LEVELS.replace("ports_of: rail", "ports_of: rial"): ["$.cluster.levels[2].ports_of (line 2): 'rial' is not a level further in"],
    LEVELS.replace("name: rail", "name: nvlink").replace(", ports_of: rail", ""): [
        "$.cluster.levels[0] (line 2): 'nvlink' is the name of two levels",
        "$.cluster.levels[1] (line 2): 'nvlink' is the name of two levels",
    ],
    LEVELS.replace("name: rail", "name: ring").replace(", ports_of: rail", ""): ["$.cluster.levels[1].name (line 2): ring is an algorithm"],
    LEVELS.replace("name: nvlink", "name: NV link"): ['$.cluster.levels[0].name (line 2): "NV link" is not a name; write small letters'],
}  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=places[0][10:60]) for text, places in WRONG.items()])
def test_wrong_clusters(text: str, refuse: Refuser) -> None:
    found = refuse(scenario(text))
    assert len(found) == len(WRONG[text]), found
    for problem in found:
        assert any(problem.startswith(beginning) for beginning in WRONG[text]), problem


@pytest.mark.parametrize(
    ("cluster", "sweep", "beginning"),
    [
        (NODES + ", nics_per_node: 4", "gpus_per_node: [6, 8]", "$.sweep (line 4): at gpus_per_node: 6: 4 cards do not"),
        (LEVELS, "nodes: [2]", "$.sweep.nodes (line 4): a cluster of levels has no key nodes; vary nvlink.size or rail.size or spine.size"),
        (LEVELS, "spin.alpha: [1 us]", '$.sweep["spin.alpha"] (line 4): this cluster has no spin; did you mean "spine.alpha"?'),
        (f"torus: [4], {LINK}", "devices: [2]", "$.sweep.devices (line 4): a torus has no key devices; vary torus.0"),
        (f"devices: 8, {LINK}, slow: [{{rank: 7, alpha: 2}}]", "devices: [4, 8]", "$.sweep (line 4): at devices: 4: rank 7 is"),
        (f"full_mesh: 8, {LINK}", "devices: [2000]", "$.sweep (line 4): at devices: 2000: 2000 devices are too many"),
    ],
)  # fmt: skip
def test_wrong_sweeps(cluster: str, sweep: str, beginning: str, refuse: Refuser) -> None:
    found = refuse(scenario(cluster, "ring", f"sweep: {{{sweep}}}"))
    assert [problem[: len(beginning)] for problem in found] == [beginning]

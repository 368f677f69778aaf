"""Named machines: the figures are those of their sources, and every quantity has a unit and a source."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from simcollectives.cluster import Cluster, FullMesh, Machine, Wiring, list_machines, load_machine
from simcollectives.errors import ClusterError

# GPUs, dense bfloat16 (V100: float16) TFLOP/s, memory GB, memory GB/s, PCIe GB/s, NVLink GB/s, NIC GB/s, one direction:
# vendor data sheets (NVLink: 12 or 18 links of 25 or 50 GB/s; PCIe x16 after 128b/130b; HDR 200 and NDR 400 Gb/s).
DATA_SHEETS = {
    "dgx-a100": (8, 312, 80, 2039, 31.5, 12 * 25, 200 / 8),
    "dgx-h100": (8, 989.4, 80, 3350, 63.0, 18 * 25, 400 / 8),
    "dgx-h200": (8, 989.4, 141, 4800, 63.0, 18 * 25, 400 / 8),
    "dgx-b200": (8, 2250, 180, 8000, 63.0, 18 * 50, 400 / 8),
    "mi300x-8": (8, 1307.4, 192, 5300, 63.0, 448 / 7, 400 / 8),
    "dgx-2": (16, 125, 32, 900, 15.75, 6 * 25, 100 / 8),
    "dgx-1v": (8, 125, 32, 900, 15.75, 25, 100 / 8),
}
NICS = {"dgx-2": 8, "dgx-1v": 4}
# NCCL 2.30.7, src/graph/tuning.cc: hardware latency of the Simple protocol on a ring, NVLink and network.
ALPHAS = (3.4e-6, 14e-6)


def raw(name: str) -> dict[str, Any]:
    text = (resources.files("simcollectives.cluster") / "machines" / f"{name}.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return data


def test_shipped_machines() -> None:
    assert {machine.name for machine in list_machines()} == set(DATA_SHEETS)


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_figures(name: str) -> None:
    gpus, teraflops, memory, memory_rate, pcie, nvlink, nic = DATA_SHEETS[name]
    machine = load_machine(name)
    assert machine.gpus_per_node == gpus
    dtype = "float16" if machine.device.name.startswith("V100") else "bfloat16"
    assert machine.device.peak_flops == ((dtype, teraflops * 1e12),)
    assert machine.nics_per_node == NICS.get(name, gpus)
    assert machine.device.memory_bytes == memory * 1e9
    assert machine.device.memory_bandwidth == memory_rate * 1e9
    assert machine.device.host_link_bandwidth == pcie * 1e9
    assert (machine.intra.alpha, machine.inter.alpha) == ALPHAS
    assert (machine.intra.bandwidth, machine.inter.bandwidth) == (nvlink * 1e9, nic * 1e9)


def test_memory_of_the_host() -> None:
    """Sockets x channels x MT/s x 8 B, where the processors are known."""
    expected = {"dgx-2": 2 * 6 * 2666.67, "dgx-a100": 2 * 8 * 3200, "dgx-h100": 2 * 8 * 4800, "dgx-h200": 2 * 8 * 4800}
    found = {machine.name: machine.device.cpu_memory_bandwidth for machine in list_machines()}
    assert {name: rate for name, rate in found.items() if rate} == {
        name: pytest.approx(transfers * 8e6, rel=1e-3) for name, transfers in expected.items()
    }


@pytest.mark.parametrize("machine", list_machines(), ids=lambda machine: machine.name)
def test_every_quantity_has_a_unit_and_a_source(machine: Machine) -> None:
    quantities = {}

    def visit(place: str, data: dict[str, Any]) -> None:
        if "value" in data or "source" in data:
            quantities[place] = data
            return
        for key, value in data.items():
            if isinstance(value, dict):
                visit(f"{place}.{key}" if place else key, value)

    visit("", raw(machine.name))
    assert {
        "gpus_per_node",
        "device.memory",
        "device.memory_bandwidth",
        "device.host_link_bandwidth",
        "intra.alpha",
        "intra.bandwidth",
        "inter.alpha",
        "inter.bandwidth",
    } <= set(quantities)
    for place, data in quantities.items():
        assert set(data) == {"value", "source"}, place
        assert len(data["source"]) > 5, place
        if place not in ("gpus_per_node", "nics_per_node", "intra.wiring") and not place.startswith("nccl."):
            assert isinstance(data["value"], str), f"{place}: no unit"
    assert dict(machine.sources) == {place: data["source"] for place, data in quantities.items()}


def test_cluster_of_a_machine() -> None:
    cluster = Cluster.machine("dgx-h100", nodes=4)
    machine = load_machine("dgx-h100")
    assert (cluster.world_size, cluster.name) == (32, "dgx-h100")
    assert [level.link for level in cluster.levels] == [machine.intra, machine.inter]
    assert cluster.device == machine.device
    assert [level.name for level in Cluster.machine("dgx-h100").levels] == ["intra"]
    assert Cluster.machine("dgx-h100", 2, rank_order="round_robin").groups.tolist()[0] == list(range(0, 16, 2))


@pytest.mark.parametrize("name", ["hgx", "", "../../etc/passwd", None, ["dgx-h100"]])
def test_unknown_machine(name: Any) -> None:
    with pytest.raises(ClusterError, match="known: dgx-1v, dgx-2, dgx-a100, dgx-b200, dgx-h100, dgx-h200, mi300x-8"):
        load_machine(name)


def test_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(ClusterError, match='did you mean "dgx-h100"'):
        load_machine("dgx_h100")


def test_cube_mesh() -> None:
    """Six links a GPU, 25 GB/s each; a GPU without a link to another reaches it over one in between."""
    graph = load_machine("dgx-1v").graph
    assert isinstance(graph, Wiring)
    lanes = [sum(n for a, b, n in graph.links if device in (a, b)) for device in range(8)]
    assert lanes == [6] * 8
    # Two squares with their diagonals, joined corner to corner: the cube's twelve edges and four diagonals.
    assert all({a // 4, b // 4} == {0} or {a // 4, b // 4} == {1} or b == a + 4 for a, b, _ in graph.links)
    cluster = Cluster.machine("dgx-1v")
    src, dst = np.array([0, 0, 0]), np.array([3, 1, 5])
    assert cluster.routes(src, dst).bandwidth.tolist() == [50e9, 25e9, 25e9]
    hops = (cluster.routes(src, dst).resources < cluster.network.count).sum(axis=1)
    assert hops.tolist() == [1, 1, 2]


def test_full_mesh_and_shared_cards() -> None:
    mesh = Cluster.machine("mi300x-8", nodes=2)
    assert mesh.levels[0].graph == FullMesh(8)
    assert mesh.port_bandwidths.tolist() == [448e9 + 50e9] * 16
    assert not mesh.uplinks
    dgx2 = Cluster.machine("dgx-2", nodes=2)
    assert [(x.name, x.bandwidth, x.devices) for x in dgx2.uplinks] == [("nic", 12.5e9, 2)]
    assert not Cluster.machine("dgx-2").uplinks

"""Named machines: the figures are those of their sources, and every quantity has a unit and a source."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
from ruamel.yaml import YAML

from simcollectives.cluster import Cluster, Machine, list_machines, load_machine
from simcollectives.errors import ClusterError

# GPUs, dense bfloat16 TFLOP/s, memory GB, memory GB/s, PCIe GB/s, NVLink GB/s, NIC GB/s a GPU, all in one direction:
# vendor data sheets (NVLink: 12 or 18 links of 25 or 50 GB/s; PCIe x16 after 128b/130b; HDR 200 and NDR 400 Gb/s).
DATA_SHEETS = {
    "dgx-a100": (8, 312, 80, 2039, 31.5, 12 * 25, 200 / 8),
    "dgx-h100": (8, 989.4, 80, 3350, 63.0, 18 * 25, 400 / 8),
    "dgx-h200": (8, 989.4, 141, 4800, 63.0, 18 * 25, 400 / 8),
    "dgx-b200": (8, 2250, 180, 8000, 63.0, 18 * 50, 400 / 8),
}
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
    assert machine.device.peak_flops == (("bfloat16", teraflops * 1e12),)
    assert machine.device.memory_bytes == memory * 1e9
    assert machine.device.memory_bandwidth == memory_rate * 1e9
    assert machine.device.host_link_bandwidth == pcie * 1e9
    assert (machine.intra.alpha, machine.inter.alpha) == ALPHAS
    assert (machine.intra.bandwidth, machine.inter.bandwidth) == (nvlink * 1e9, nic * 1e9)


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
        "device.peak.bfloat16",
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
        if place != "gpus_per_node":
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


@pytest.mark.parametrize("name", ["dgx-h1000", "", "../dgx-h100", None])
def test_unknown_machine(name: Any) -> None:
    with pytest.raises(ClusterError, match="known: dgx-a100, dgx-b200, dgx-h100, dgx-h200"):
        load_machine(name)


def test_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(ClusterError, match="did you mean dgx-h100"):
        load_machine("dgx_h100")

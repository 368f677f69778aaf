"""The shape of the section ``cluster:``: one model for each of its forms."""

from typing import Annotated, Literal

from pydantic import Field

from simcollectives.engines import DTYPES
from simcollectives.scenario.schema_values import (
    Bandwidth,
    Bytes,
    Count,
    Factor,
    FlopsPerSecond,
    Model,
    Oversubscription,
    Rank,
    RankOrder,
    Seconds,
    SecondsPerByte,
)


class LinkModel(Model):
    """One direction of a link: n bytes alone take alpha + overhead + n / bandwidth."""

    alpha: Seconds = Field(description="Latency of a message", examples=["5 us"])
    bandwidth: Bandwidth = Field(description="One direction", examples=["450 GB/s", "400 Gb/s"])
    overhead: Seconds = Field(0.0, description="Time that a message occupies the port beside its bytes")


class SlowModel(Model):
    """Factors on the links of one rank, or of the directed link between two."""

    rank: Rank | None = Field(None, description="All links of this rank, and its reductions", examples=[3])
    link: Annotated[list[Rank], Field(min_length=2, max_length=2)] | None = Field(
        None, description="The link from the first rank to the second", examples=[[0, 1]]
    )
    level: str | None = Field(None, description="Only the links of this level")
    alpha: Factor = Field(1.0, description="Times the latency", examples=["200%"])
    bandwidth: Factor = Field(1.0, description="Times the bandwidth", examples=["50%"])
    gamma: Factor = Field(1.0, description="Times the reduction time; of ranks only", examples=["200%"])


class PcieModel(Model):
    """A switch between some GPUs of a node and the network."""

    gpus: Count = Field(description="GPUs that share it; divides gpus_per_node", examples=[2])
    bandwidth: Bandwidth = Field(description="Between the switch and the network, one direction", examples=["63 GB/s"])


class LeafModel(Model):
    """Leaf switches: those of so many whole nodes, or rails, each with the GPUs of the same place in their nodes."""

    nodes: Count | None = Field(None, description="Nodes on a leaf", examples=[2])
    rails: Count | None = Field(None, description="Leaves of a rail-optimised network", examples=[8])
    oversubscription: Oversubscription = Field(
        description="Bandwidth of the network cards over that of the uplinks, 1 or more", examples=[4]
    )


class DeviceModel(Model):
    """What a device can do, where no machine says it."""

    peak: dict[Literal[tuple(DTYPES)], FlopsPerSecond] | None = Field(  # type: ignore[valid-type]
        None, description="Dense matrix products, by dtype", examples=[{"bfloat16": "989 TFLOP/s"}]
    )
    memory: Bytes | None = Field(None, examples=["80 GB"])
    memory_bandwidth: Bandwidth | None = Field(None, examples=["3350 GB/s"])
    host_link: Bandwidth | None = Field(None, description="To the host, one direction", examples=["63 GB/s"])
    cpu_memory_bandwidth: Bandwidth | None = Field(
        None, description="Of the host's memory, shared by the devices of a node", examples=["410 GB/s"]
    )
    nvme_read: Bandwidth | None = Field(
        None, description="Of all drives of a node, shared by its devices", examples=["28 GB/s"]
    )
    nvme_write: Bandwidth | None = Field(
        None, description="Of all drives of a node, shared by its devices", examples=["14 GB/s"]
    )


class ClusterModel(Model):
    """What every form may have."""

    device: DeviceModel | None = Field(None, description="For training steps; over what a machine says")

    gamma: SecondsPerByte | None = Field(None, description="Reduction time per received byte", examples=["2 ps/B"])
    rank_order: RankOrder = "node_major"
    slow: list[SlowModel] | None = Field(None, description="Ranks and links that are slower than the rest")


class FlatCluster(ClusterModel):
    """Devices that are all on one kind of link."""

    devices: Count = Field(examples=[8])
    link: LinkModel


class FullMeshCluster(ClusterModel):
    """Devices with a link for each pair, and no switch."""

    full_mesh: Count = Field(description="Number of devices", examples=[8])
    link: LinkModel


class TorusCluster(ClusterModel):
    """A grid of devices with links between neighbours, each dimension closed to a ring."""

    torus: list[Count] = Field(min_length=1, description="Size of each dimension", examples=[[4, 4]])
    link: LinkModel


class MeshCluster(ClusterModel):
    """A grid of devices with links between neighbours, open at its ends."""

    mesh: list[Count] = Field(min_length=1, description="Size of each dimension", examples=[[4, 4]])
    link: LinkModel


class LevelModel(LinkModel):
    """A class of links among units of the level before."""

    name: str = Field(min_length=1, pattern=r"^[a-z][a-z0-9_]*$", examples=["nvlink"])
    size: Count = Field(description="Units of the level before; devices, at the first", examples=[8])
    ports_of: str | None = Field(
        None,
        description="A level before, whose ports these links use; the bandwidth is then what each unit's devices share",
        examples=["rail"],
    )


class LayeredCluster(ClusterModel):
    """Any number of levels, the innermost first; the first is the node."""

    levels: list[LevelModel] = Field(min_length=1)


class NetworkModel(ClusterModel):
    """What nodes may have."""

    nics_per_node: Count | None = Field(
        None, description="Network cards that the GPUs of a node share; divides gpus_per_node", examples=[1]
    )
    pcie_switch: PcieModel | None = None
    leaf: LeafModel | None = None


class TwoLevelCluster(NetworkModel):
    """Nodes of several devices: fast links inside, one network port a device between."""

    nodes: Count = Field(examples=[4])
    gpus_per_node: Count = Field(examples=[8])
    intra: LinkModel | None = Field(None, description="Links inside a node; only where gpus_per_node is 1 without")
    inter: LinkModel | None = Field(None, description="Links between nodes; only where nodes is 1 without")


class MachineCluster(NetworkModel):
    """Nodes of a named machine."""

    machine: str = Field(description="See: simcollectives list machines", examples=["dgx-h100"])
    nodes: Count = Field(1, examples=[4])
    calibrated: bool = Field(False, description="Links as measured times show them, where there are any")


class FileCluster(NetworkModel):
    """The cluster of a file that `simcollectives fit` wrote; other keys stand over those of the file."""

    file: str = Field(description="Relative to the folder of the scenario", examples=["cluster.yaml"])
    nodes: Count | None = Field(None, examples=[16])


AnyCluster = (
    FileCluster
    | FlatCluster
    | TwoLevelCluster
    | MachineCluster
    | FullMeshCluster
    | TorusCluster
    | MeshCluster
    | LayeredCluster
)

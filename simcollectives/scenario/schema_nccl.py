"""The shape of the section ``nccl:``."""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from simcollectives.cluster.nccl_graph import CPUS, GENERATIONS, LINK_CLASSES, MAX_CHANNELS, NETWORK_PATHS, PATTERNS
from simcollectives.errors import suggestion
from simcollectives.measured.nccl import ALGORITHMS, PROTOCOLS
from simcollectives.scenario.keys import whole_kind
from simcollectives.scenario.places import shown
from simcollectives.scenario.schema_values import Bandwidth, Model, Seconds, custom_error, reader

LABELS = tuple(f"{algorithm}/{protocol}" for algorithm in ALGORITHMS for protocol in PROTOCOLS)
_CHANNELS = whole_kind("channels", 1, MAX_CHANNELS, "a number of channels", "8")


class ChannelsModel(Model):
    """Channels that NCCL's search finds for a pattern; what is left out is the machine's."""

    channels: Annotated[int, reader(_CHANNELS), WithJsonSchema(_CHANNELS.json_schema)] | None = None
    intra: Bandwidth | None = Field(None, description="Of one channel, inside a node", examples=["30 GB/s"])
    inter: Bandwidth | None = Field(None, description="Of one channel, between nodes", examples=["24 GB/s"])
    same_channels: bool | None = Field(None, description="All channels visit the GPUs in one order")
    plain_tree: bool | None = Field(None, description="One GPU has all network traffic of its channel")


Patterns = dict[Literal[PATTERNS], ChannelsModel]  # type: ignore[valid-type]


class NcclGraphModel(Model):
    """A node as NCCL sees it; what is left out is the machine's."""

    gpu: Literal[GENERATIONS] | None = None  # type: ignore[valid-type]
    cpu: Literal[CPUS] | None = None  # type: ignore[valid-type]
    link: Literal[LINK_CLASSES] | None = None  # type: ignore[valid-type]
    nvswitch: bool | None = None
    network_path: Literal[NETWORK_PATHS] | None = None  # type: ignore[valid-type]
    network_latency: Seconds | None = None
    sharp: bool | None = Field(None, description="The network reduces, and NCCL_COLLNET_ENABLE=1")
    one_node: Patterns | None = None
    several_nodes: Patterns | None = None


class NcclModel(Model):
    """NCCL's own cost model beside the scenario's algorithms."""

    algorithms: list[Literal[ALGORITHMS]] | None = Field(  # type: ignore[valid-type]
        None, min_length=1, description="Those allowed, as NCCL_ALGO says; all if left out"
    )
    protocols: list[Literal[PROTOCOLS]] | None = Field(  # type: ignore[valid-type]
        None, min_length=1, description="Those allowed, as NCCL_PROTO says; all if left out"
    )
    tuning: str | None = Field(None, min_length=1, description="A log of NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING")
    graph: NcclGraphModel | None = Field(None, description="What differs from the machine, or all of it")


def _read_label(value: object) -> str:
    if isinstance(value, str) and value in LABELS:
        return value
    raise custom_error(f"{shown(value)} is no algorithm/protocol of NCCL; {suggestion(value, LABELS)}")


Label = Annotated[str, PlainValidator(_read_label), WithJsonSchema({"enum": list(LABELS)})]

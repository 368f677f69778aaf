"""What the hardware is: links, devices, clusters, routes and named machines."""

from simcollectives.cluster.calibrated import CalibratedLink, calibrated_links, calibrated_names, load_calibrated
from simcollectives.cluster.graph import FullMesh, Graph, Torus, Wiring
from simcollectives.cluster.link import Device, Link, message_seconds
from simcollectives.cluster.machines import Machine, list_machines, load_machine, machine_names, nccl_machine_names
from simcollectives.cluster.nccl_graph import ChannelGraph, NcclGraph
from simcollectives.cluster.network import Level, Network, Routes
from simcollectives.cluster.rank_order import RankOrder
from simcollectives.cluster.types import Cluster
from simcollectives.cluster.unequal import Change, Uplink

__all__ = [
    "CalibratedLink",
    "Change",
    "ChannelGraph",
    "Cluster",
    "Device",
    "FullMesh",
    "Graph",
    "Level",
    "Link",
    "Machine",
    "NcclGraph",
    "Network",
    "RankOrder",
    "Routes",
    "Torus",
    "Uplink",
    "Wiring",
    "calibrated_links",
    "calibrated_names",
    "list_machines",
    "load_calibrated",
    "load_machine",
    "machine_names",
    "message_seconds",
    "nccl_machine_names",
]

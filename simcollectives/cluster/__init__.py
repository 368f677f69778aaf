"""What the hardware is: links, devices, clusters, routes and named machines."""

from simcollectives.cluster.machines import Machine, list_machines, load_machine
from simcollectives.cluster.rank_order import RankOrder
from simcollectives.cluster.types import Cluster, Device, Level, Link, Routes

__all__ = ["Cluster", "Device", "Level", "Link", "Machine", "RankOrder", "Routes", "list_machines", "load_machine"]

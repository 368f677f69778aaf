"""simcollectives predicts how long collective operations take on a cluster, shows why, and proves its answers."""

__version__ = "0.1.0"

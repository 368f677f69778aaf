"""NCCL's own cost model: the time it predicts for every algorithm and protocol, what it picks, and where it switches.

The formula and constants are those of NCCL 2.30.7 (``src/graph/tuning.cc``); what its search finds in a node stands in
the machine's file. A log of ``NCCL_DEBUG_SUBSYS=TUNING`` gives the same table as a run printed it.

Not modelled: tuner plug-ins (AWS OFI, GCP), which overwrite the table; aggregated operations; fp8; nodes of unequal
GPUs; and what NCCL does after choosing, such as fewer channels for small messages.
"""

from simcollectives.measured.nccl.choice import candidate_seconds, choose, kinks, ranges, switches
from simcollectives.measured.nccl.constants import ALGORITHMS, COLLECTIVE_ALGORITHMS, PROTOCOLS
from simcollectives.measured.nccl.from_log import Disagreement, Picks, compare_picks, graph_of_log, ran_as, with_log
from simcollectives.measured.nccl.model import check_collective, nccl_model
from simcollectives.measured.nccl.prediction import Prediction, predict, prediction_json
from simcollectives.measured.nccl.tuning_log import Call, TuningLog, TuningTable, read_tuning_log
from simcollectives.measured.nccl.types import Candidate, Choice, Model, Range, Switch

__all__ = [
    "ALGORITHMS",
    "COLLECTIVE_ALGORITHMS",
    "PROTOCOLS",
    "Call",
    "Candidate",
    "Choice",
    "Disagreement",
    "Model",
    "Picks",
    "Prediction",
    "Range",
    "Switch",
    "TuningLog",
    "TuningTable",
    "candidate_seconds",
    "check_collective",
    "choose",
    "compare_picks",
    "graph_of_log",
    "kinks",
    "nccl_model",
    "predict",
    "prediction_json",
    "ran_as",
    "ranges",
    "read_tuning_log",
    "switches",
    "with_log",
]

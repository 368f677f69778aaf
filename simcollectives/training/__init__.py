"""Training steps: models, memory, programs on streams, and the strategies that shard or replicate.

from simcollectives.training import Workload, load_model, prepare_training, simulate_step
training = prepare_training(load_model("llama-3-8b"), cluster, Workload(samples=1, sequence=4096), mfu=0.45)
simulate_step(training, "ddp", {"bucket_cap": 50e6}).exposed_seconds
"""

from simcollectives.training.catalogue import list_models, load_model
from simcollectives.training.plain import tensor_model, uniform_model
from simcollectives.training.prepare import prepare_training
from simcollectives.training.setup import Optimizer, Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.table import STRATEGIES
from simcollectives.training.workload import Workload

__all__ = [
    "STRATEGIES",
    "Optimizer",
    "Precision",
    "Step",
    "Training",
    "Workload",
    "list_models",
    "load_model",
    "prepare_training",
    "simulate_step",
    "tensor_model",
    "uniform_model",
]

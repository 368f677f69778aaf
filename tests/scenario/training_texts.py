"""Texts of training scenarios."""

from __future__ import annotations

FLAT = (
    "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 50 GB/s}, "
    "device: {peak: {bfloat16: 989 TFLOP/s, float32: 60 TFLOP/s}, memory: 80 GB}}"
)
NODES = (
    "cluster: {nodes: 2, gpus_per_node: 4, intra: {alpha: 5 us, bandwidth: 450 GB/s}, "
    "inter: {alpha: 10 us, bandwidth: 50 GB/s}, device: {peak: {bfloat16: 989 TFLOP/s}}}"
)
UNIFORM = "model: {parameters: 1e6, layers: 4, tensors_per_layer: 2}, strategy: ddp, sequence: 128, mfu: 45%"
BOTH = UNIFORM.replace("strategy: ddp", "strategies: [ddp, all_reduce_once]")

# The config.json of GPT-2 small: 124,439,808 parameters, as published.
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


def training(body: str, *lines: str, cluster: str = FLAT) -> str:
    """A scenario whose section ``training:`` is in line 3, and further lines."""
    return "\n".join(["title: A test", cluster, f"training: {{{body}}}", *lines])

"""Scenarios of training in numbers: what ``numerics:`` may say, loading it, and running every variant."""

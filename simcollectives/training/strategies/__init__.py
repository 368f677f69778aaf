"""Strategies: how a model is trained on several devices. One file each, and one line in the table."""

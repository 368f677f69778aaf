"""Training steps: models, memory, programs on streams, and the strategies that shard or replicate."""

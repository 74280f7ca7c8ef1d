"""A step on many devices: collectives, shards, pipelines, their memory and time."""

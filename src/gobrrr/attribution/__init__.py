"""Timeline, work and ceilings -> compute, memory, overhead and their parts, summing to the step."""

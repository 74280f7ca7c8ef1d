"""The journeys from a program or a trace to a diagnosis: the only place where the stages meet."""

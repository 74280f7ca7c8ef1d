"""What a step will take on a device that need not be here: a graph of ops -> a timeline."""

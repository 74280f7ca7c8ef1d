"""Steps of a processor: the lane of the step's threads, split."""

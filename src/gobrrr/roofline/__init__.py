"""An op and ceilings -> the time below which no kernel goes; where tensors are; fusion groups."""

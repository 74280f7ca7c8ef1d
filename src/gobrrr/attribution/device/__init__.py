"""Steps of a device with streams: kernels split, idle gaps with their causes."""

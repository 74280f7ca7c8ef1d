"""A recorded step -> the same on another device."""

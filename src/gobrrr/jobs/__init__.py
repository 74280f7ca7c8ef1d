"""The ranks of a live job: how they agree, wait for and tell each other, and their diagnosis."""

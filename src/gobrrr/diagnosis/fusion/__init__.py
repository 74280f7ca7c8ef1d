"""Which ops of a step could be one kernel, and what that would save."""

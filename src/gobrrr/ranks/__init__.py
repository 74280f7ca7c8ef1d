"""Several timelines as those of one job: clocks, matching, who waits for whom."""

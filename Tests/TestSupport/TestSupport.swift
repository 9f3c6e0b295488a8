// Contract placeholder.

"""The embedded cluster, the scheduler's HTTP and the clock of the wall, joined."""

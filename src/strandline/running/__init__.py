"""The normal path: a step a partition, batches, ticks with a bound, forks."""

"""The normal path of an operator: a step per partition, batches, ticks with a bound, forks."""

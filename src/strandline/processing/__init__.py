"""The normal path: what a batch takes in, a step a partition, the state on the machine."""

"""Workloads that measure Strandline beside its peers, in one run. `strandline bench NAME` runs them."""

"""What an operator takes in: one stream, several that are serialised into one, or replicas."""

"""Running queries: their threads, errors, listeners and end."""

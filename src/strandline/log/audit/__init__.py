"""Whether a stream is as it should be: everything that `strandline verify` looks at."""

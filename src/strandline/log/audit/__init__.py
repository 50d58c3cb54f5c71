"""All checks of `strandline verify`."""

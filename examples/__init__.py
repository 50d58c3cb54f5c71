"""Programs that show what Strandline does. `strandline demo` runs the one in `demo`."""

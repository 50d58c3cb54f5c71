"""When and what to save: policies, footprints, extent."""

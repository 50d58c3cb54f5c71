"""Open windows, for all operators that have them: records, hash table, queue of footprints, timers, bytes, trace."""

"""What operators with open windows share: records, hash table, queue of footprints, timers, bytes, trace."""

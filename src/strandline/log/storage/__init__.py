"""Where the files of a stream lie: file systems, object stores, memory."""

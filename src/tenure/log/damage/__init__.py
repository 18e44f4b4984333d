"""Finding damage in a log, and telling it from a torn tail."""

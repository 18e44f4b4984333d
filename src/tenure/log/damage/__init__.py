"""Find damage in a log, and distinguish it from a torn tail."""

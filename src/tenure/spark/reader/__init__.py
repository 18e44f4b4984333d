"""The reader: a range of a buffer as a DataFrame, read by the JVM or by Python tasks."""

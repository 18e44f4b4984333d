"""Starting Spark: Java, Python, the JVM, the session."""

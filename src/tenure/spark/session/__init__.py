"""Opening a Spark session: Java, Python, the JVM's start, its settings."""

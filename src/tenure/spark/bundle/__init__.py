"""The bundle: one archive for executors that have Python and Spark and nothing else."""

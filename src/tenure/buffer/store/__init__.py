"""Object stores: the interface, a directory, the clouds, and retries."""

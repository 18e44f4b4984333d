"""Object stores: create-if-absent, read, list and delete, on a file system or in a cloud, with bounded retries."""

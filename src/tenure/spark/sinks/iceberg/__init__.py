"""An Iceberg table, with and without Iceberg's connector."""

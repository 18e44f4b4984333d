"""The contract: commands, replies and their values, declared once for broker, server, clients and command line."""

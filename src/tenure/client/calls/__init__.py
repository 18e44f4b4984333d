"""A plan per call of the contract, one module per resource. Nothing here waits and nothing here knows the network."""

"""The plan of each call of the contract, one module per resource. Nothing here waits or touches the network."""

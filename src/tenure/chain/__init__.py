"""The chain: a log whose home is a row of numbered objects in a store; the local directory is a cache of it.

See docs/design/chain.md for the rules and why they suffice.
"""

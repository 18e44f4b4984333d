"""Prepare the environment of the clients, then run the benchmark in it, with the same arguments."""

from __future__ import annotations

import os
import sys

from bench.peers.environment import ROOT, child_environment, prepare

if __name__ == "__main__":
    python = str(prepare())
    os.chdir(ROOT)
    os.execve(python, [python, "-m", "bench.peers.run", *sys.argv[1:]], child_environment())

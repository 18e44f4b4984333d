"""What Tenure tests itself with, for your tests too: a disk that crashes, a clock in your hand, a broker in memory, and
a checker that reads what your clients saw and says what was lost, doubled or undone.
"""

from tenure.testing.checker import HistoryReport, check_history
from tenure.testing.clock import ManualClock
from tenure.testing.history import History
from tenure.testing.memory import memory_broker
from tenure.testing.simdisk import SimDisk

__all__ = ["History", "HistoryReport", "ManualClock", "SimDisk", "check_history", "memory_broker"]

"""For tests, ours and yours: hosts in memory, time that a test moves, faults on purpose, and a search for leaks.

The pytest plugin is `danaus.testing.pytest_plugin`.
"""

from danaus.testing.clock import VirtualClock
from danaus.testing.faults import FaultPlan
from danaus.testing.hosts import InMemoryHosts

__all__ = ["FaultPlan", "InMemoryHosts", "VirtualClock"]

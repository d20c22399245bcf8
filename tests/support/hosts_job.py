"""Jobs whose ranks are on several hosts.

The hosts are simulated by DSC_HOST_ID, or are network namespaces of a test.
"""

import jobs
import netns

NO_HOSTS = netns.unavailable()

BEGIN = jobs.MEET + """
import os, sys, time, numpy as np, libdsc as dsc
world = dsc.init_distributed(init_timeout=40, timeout=float(os.environ.get("TIMEOUT", 40)))
n, r = world.size, world.rank
def equal(got, expected, *what):
    if not np.array_equal(got, expected):
        sys.exit(f"{r} wrong: {what} {got} {expected}")
"""


class Job(jobs.Job):
    """Rank i is on host placement[i]."""

    def __init__(self, code, placement, hosts=None, command=None, **variables):
        super().__init__(len(placement), code, command, hosts, **variables)
        self.place(placement)

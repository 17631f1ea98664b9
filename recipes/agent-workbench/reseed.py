"""Gives the generators of this kernel new seeds in a fork.

forkd does that for its own interpreters, but does not know those of Jupyter. Every fork has another boot_id: the first
cell that sees a new one seeds again.
"""


def _reseed_in_a_fork():
    import os
    import random
    import sys

    def boot_id():
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read()

    seen = boot_id()

    def before_cell(_info=None):
        nonlocal seen
        now = boot_id()
        if now == seen:
            return
        seen = now
        random.seed(os.urandom(32))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(list(os.urandom(16)))
        openssl = sys.modules.get("_ssl")
        if openssl is not None:
            openssl.RAND_add(os.urandom(32), 32.0)

    get_ipython().events.register("pre_run_cell", before_cell)  # noqa: F821


_reseed_in_a_fork()
del _reseed_in_a_fork

"""What happens in the Python kernel of a machine that was just forked, and what user code may add to it.

    import forkd
    @forkd.after_fork
    def reseed(): ...

Callbacks run in the kernel's main thread, in the order of registration, after the generators are re-seeded and before
any other eval. One that raises makes the fork fail: code that relies on it must not run.

The generators are re-seeded twice: by a signal, also in the middle of an eval, with what the system gives; and by the
host's message, once the eval is over, with what it carries.

Invariants: modules that are not loaded are not touched (they have no state to share), nor imported. A signal that meets
a re-seeding under way makes it begin anew: the machine may have been forked in the middle of it.
"""
import os
import random
import sys

_callbacks = []
_asked = False
_busy = False


def after_fork(callback):
    """Call `callback()` in every machine forked from this one. Returns it, so it is also a decorator."""
    if not callable(callback):
        raise TypeError("after_fork needs a callable")
    _callbacks.append(callback)
    return callback


def _seed_numpy(module, seed, patience):
    generator = module._rand._bit_generator
    # Another seed than random's: it is the same algorithm and would give the same numbers.
    seed = seed << 32 | 0x6E756D70
    # A thread that draws holds the lock. So may the code that the signal has interrupted, hence not for ever.
    if not generator.lock.acquire(timeout=patience):
        raise TimeoutError("numpy's generator is in use")
    try:
        if type(generator).__name__ == "MT19937":
            # What numpy.random.seed would come to, by way of code that has run just before instead of numpy's array
            # functions.
            key = random.Random(seed).getstate()[1][:-1]
            state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}, "has_gauss": 0, "gauss": 0.0}
            module.set_state(state)
        else:  # put there by numpy.random.set_bit_generator
            generator.state = type(generator)(seed).state
    finally:
        generator.lock.release()


def _seed(entropy, patience):
    loaded = sys.modules
    # An int is used as it is; bytes would be hashed by code that otherwise need not run.
    seed = int.from_bytes(entropy, "little")
    random.seed(seed)
    module = loaded.get("_ssl")
    if module is not None:
        module.RAND_add(entropy, float(len(entropy)))
    module = loaded.get("uuid")
    if module is not None:
        # Time-based identifiers get a node of their own (the multicast bit marks it as made up, RFC 4122), and do not
        # come from libuuid, which has a clock sequence of its own.
        module._node = seed >> 32 & (1 << 48) - 1 | 1 << 40
        module._generate_time_safe = None
        for name in ("_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7"):
            if hasattr(module, name):
                setattr(module, name, None)
    module = loaded.get("tempfile")
    if module is not None:
        module._name_sequence = None
    module = loaded.get("numpy.random.mtrand")
    if module is not None:
        _seed_numpy(module, seed, patience)


def _reseed(entropy=None):
    """Re-seed all generators, with `entropy` or else with what the system gives. For the main thread."""
    global _asked, _busy
    _asked = True
    while _asked and not _busy:  # a signal in the middle of it only asks
        _busy = True
        try:
            while _asked:
                _asked = False
                _seed(entropy or os.urandom(64), 5 if entropy else 0.1)
                entropy = None
        finally:
            _busy = False


def _run(entropy):
    if len(entropy) < 16:
        raise ValueError("too little entropy")
    _reseed(entropy)
    for callback in _callbacks:
        callback()

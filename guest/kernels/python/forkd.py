"""What the Python kernel does after a fork, and the callbacks that user code can add.

    import forkd
    @forkd.after_fork
    def reseed(): ...

Callbacks run in the kernel's main thread, in the order of registration, after the generators are re-seeded
and before any other eval. If one raises, the fork fails: code that relies on it must not run.

The generators are re-seeded twice: by a signal, also during an eval, with entropy of the system; and by the
host's message, after the eval, with the entropy in the message.

Code is slow when it runs for the first time after a fork, so the re-seeding calls the generators' C functions
directly and not the methods of `random` and `threading` around them.

Invariants: modules that are not loaded are neither changed (they have no state to share) nor imported. A
signal during a re-seeding restarts it: the machine may have been forked in the middle of it.
"""
import _random
import os
import random
import sys

_callbacks = []
_requested = False
_busy = False
_seed_random = random.seed


def after_fork(callback):
    """Calls `callback()` in every machine forked from this one. Returns it, so it is also a decorator."""
    if not callable(callback):
        raise TypeError("after_fork needs a callable")
    _callbacks.append(callback)
    return callback


def _seed_numpy(module, seed, timeout):
    generator = module._rand._bit_generator
    # Not the seed of `random`: it is the same algorithm and would give the same numbers.
    seed = seed << 32 | 0x6E756D70
    lock = generator.lock
    # Threads hold the lock while they draw. With a timeout, because the interrupted code may hold it, too.
    if not lock.acquire(False) and not lock.acquire(timeout=timeout):
        raise TimeoutError("numpy's generator is in use")
    try:
        if type(generator).__name__ == "MT19937":
            # The same result as numpy.random.seed, but through code that has just run instead of numpy's
            # array functions, which would be slow after a fork.
            key = _random.Random(seed).getstate()[:-1]
            state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}, "has_gauss": 0, "gauss": 0.0}
            module.set_state(state)
        else:  # set by numpy.random.set_bit_generator
            generator.state = type(generator)(seed).state
    finally:
        lock.release()


def _seed(entropy, timeout):
    loaded = sys.modules
    # An int is used directly; bytes would be hashed by additional code.
    seed = int.from_bytes(entropy, "little")
    if random.seed is _seed_random:
        generator = _seed_random.__self__
        _random.Random.seed(generator, seed)
        generator.gauss_next = None
    else:  # replaced by a program
        random.seed(seed)
    module = loaded.get("_ssl")
    if module is not None:
        module.RAND_add(entropy, float(len(entropy)))
    module = loaded.get("uuid")
    if module is not None:
        # Time-based identifiers get a random node (the multicast bit marks it as random, RFC 4122), and do
        # not come from libuuid, which has its own clock sequence.
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
        _seed_numpy(module, seed, timeout)


def _reseed(entropy=None):
    """Re-seeds all generators with `entropy`, or with entropy of the system. For the main thread."""
    global _requested, _busy
    _requested = True
    while _requested and not _busy:  # a signal during a re-seeding only requests another one
        _busy = True
        try:
            while _requested:
                _requested = False
                _seed(entropy or os.urandom(64), 5 if entropy else 0.1)
                entropy = None
        finally:
            _busy = False


def _run(entropy):
    """Without entropy, the generators were re-seeded before, when this machine was made ready."""
    if entropy:
        if len(entropy) < 16:
            raise ValueError("too little entropy")
        _reseed(entropy)
    for callback in _callbacks:
        callback()

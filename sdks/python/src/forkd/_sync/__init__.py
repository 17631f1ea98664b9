"""The blocking SDK, made from `_async` by tools/make-sync.py."""

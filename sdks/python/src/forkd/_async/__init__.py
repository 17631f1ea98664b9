"""The SDK for asyncio. tools/make-sync.py makes `_sync` from this package."""

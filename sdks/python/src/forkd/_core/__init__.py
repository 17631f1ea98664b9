"""The part of the SDK that is written once.

It is written with `async def` over the interface `Io`. AsyncSandbox runs it on asyncio. Sandbox runs it with
blocking sockets, whose coroutines never suspend, so that one step runs each of them to its end (`run()`).
"""

"""What only the flavour for asyncio has: tasks, cancelling, several event loops."""

from __future__ import annotations

import asyncio
import threading
import unittest

from forkd import AsyncForkd, AsyncSandbox
from host import SOON, Host, info

version = {"version": "1", "api": "v1", "pid": 3}


class Asyncio(unittest.TestCase):
    def test_cancelling_a_task_closes_its_request(self) -> None:
        asked, closed = threading.Event(), threading.Event()

        def answer(request, reply):
            asked.set()
            reply.wait_closed()
            closed.set()

        async def main(path: str) -> None:
            create = AsyncSandbox.create("python", forkd=AsyncForkd(socket=path))
            task = asyncio.ensure_future(_enter(create))
            await asyncio.to_thread(asked.wait, SOON)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertTrue(await asyncio.to_thread(closed.wait, SOON))

        with Host(answer) as host:
            asyncio.run(main(host.socket))

    def test_a_cancelled_block_still_kills_its_sandbox(self) -> None:
        inside = threading.Event()

        async def block(path: str) -> None:
            async with AsyncSandbox.create("python", forkd=AsyncForkd(socket=path)):
                inside.set()
                await asyncio.sleep(1000)

        async def main(path: str) -> None:
            task = asyncio.ensure_future(block(path))
            await asyncio.to_thread(inside.wait, SOON)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        def answer(request, reply):
            if request.method == "DELETE":
                reply.empty()
            else:
                reply.json([info()], 201)

        with Host(answer) as host:
            asyncio.run(main(host.socket))
            self.assertEqual([each.method for each in host.asked], ["POST", "DELETE"])

    def test_a_client_works_in_one_event_loop_after_another(self) -> None:
        async def ask(client: AsyncForkd) -> int:
            return (await client.version()).pid

        with Host(lambda request, reply: reply.json(version)) as host:
            client = AsyncForkd(socket=host.socket)
            self.assertEqual([asyncio.run(ask(client)) for _ in range(3)], [3, 3, 3])

    def test_calls_at_the_same_time_do_not_block_each_other(self) -> None:
        many = 40
        barrier = threading.Barrier(many, timeout=SOON)

        def answer(request, reply):
            barrier.wait()  # No answer before all requests have arrived.
            reply.json(version)

        async def main(path: str) -> None:
            async with AsyncForkd(socket=path) as client:
                await asyncio.gather(*(client.version() for _ in range(many)))

        with Host(answer) as host:
            asyncio.run(main(host.socket))
            self.assertEqual(host.connections, many)

    def test_the_constructor_names_the_call_to_use(self) -> None:
        with self.assertRaisesRegex(TypeError, "AsyncSandbox.create"):
            AsyncSandbox()


async def _enter(create) -> None:
    async with create:
        pass

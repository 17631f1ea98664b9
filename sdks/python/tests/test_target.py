"""Finding the daemon."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from typing import Any, Dict, Optional

from forkd import Forkd, ForkdError, InvalidRequestError
from forkd._core.target import Target, find_daemon


def found(target: Target) -> Any:
    return target.place.socket if target.place.socket is not None else (target.place.name, target.token)


class FindDaemon(unittest.TestCase):
    def setUp(self) -> None:
        self._temporary = tempfile.TemporaryDirectory()
        self.dir = self._temporary.name
        self.env: Dict[str, str] = {"FORKD_DATA_DIR": self.dir, "FORKD_RUNTIME_DIR": "/r"}

    def tearDown(self) -> None:
        self._temporary.cleanup()

    def write(self, name: str, text: str) -> None:
        with open(os.path.join(self.dir, name), "w") as file:
            file.write(text)

    def find(self, extra: Optional[Dict[str, str]] = None, **options: Any) -> Any:
        return found(find_daemon(env={**self.env, **(extra or {})}, **options))

    def test_arguments_then_variables_then_the_record_then_the_default(self) -> None:
        url = "http://127.0.0.1:8889"
        self.assertEqual(self.find(), "/r/forkd.sock")
        self.write("daemon.json", json.dumps({"socket": "/d/forkd.sock", "url": url}))
        self.write("token", "from-file\n")
        self.assertEqual(self.find(), "/d/forkd.sock")
        self.assertEqual(self.find({"FORKD_SOCKET": "/e"}), "/e")
        self.assertEqual(self.find({"FORKD_SOCKET": "/e"}, data_dir=self.dir), "/d/forkd.sock")
        self.assertEqual(self.find({"FORKD_URL": url}), (url, "from-file"))
        self.assertEqual(self.find({"FORKD_URL": url, "FORKD_TOKEN": "t"}), (url, "t"))
        self.assertEqual(self.find({"FORKD_URL": url, "FORKD_SOCKET": "/e"}), "/e")
        self.assertEqual(self.find({"FORKD_SOCKET": "/e"}, url=url, token="o"), (url, "o"))
        self.assertEqual(self.find(socket="/o"), "/o")
        self.write("daemon.json", "{")
        self.assertEqual(self.find(), "/r/forkd.sock", "a damaged record is ignored")

    def test_the_token_of_the_local_daemon_goes_to_no_other_machine(self) -> None:
        self.write("daemon.json", json.dumps({"url": "http://127.0.0.1:8889"}))
        self.write("token", "from-file")
        for url in ("http://localhost:8889", "http://127.0.0.1:8889", "http://[::1]:8889"):
            self.assertEqual(self.find(url=url), (url, "from-file"))
        for url in ("http://localhost:8890", "http://example.com:8889", "http://127.0.0.1.example.com:8889"):
            self.assertEqual(self.find(url=url), (url, None))

    def test_certificates_come_from_a_file_and_invalid_addresses_are_refused(self) -> None:
        self.write("ca.pem", "PEM")
        extra = {"FORKD_CA": os.path.join(self.dir, "ca.pem")}
        target = find_daemon(env={**self.env, **extra}, url="https://forkd.example/below/")
        self.assertEqual((target.place.ca, target.place.port, target.place.prefix), ("PEM", 443, "/below"))
        self.assertIsNone(find_daemon(env={**self.env, **extra}, url="http://forkd.example").place.ca)
        with self.assertRaises(InvalidRequestError):
            self.find(url="https://forkd.example", ca_file="/none")
        for url in ("127.0.0.1:8889", "ftp://x", "http://", "http://x:99999", "nonsense"):
            with self.assertRaises(InvalidRequestError) as caught:
                self.find(url=url)
            self.assertIn("http://", str(caught.exception.remedy))

    def test_a_fifo_in_place_of_the_record_does_not_block(self) -> None:
        os.mkfifo(os.path.join(self.dir, "daemon.json"))
        self.assertEqual(self.find(), "/r/forkd.sock")

    def test_another_daemon_on_the_socket_is_refused(self) -> None:
        from host import Host

        with Host(lambda asked, reply: reply.json({"data_dir": "/elsewhere"})) as host:
            self.write("daemon.json", json.dumps({"socket": host.socket}))
            with self.assertRaises(ForkdError) as caught:
                Forkd(data_dir=self.dir).status()
            self.assertEqual(caught.exception.code, "other_daemon")
            self.assertEqual([asked.path for asked in host.asked], ["/v1/status"])

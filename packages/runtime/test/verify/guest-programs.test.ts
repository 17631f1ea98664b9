/** The programs for guests, run on the host's loopback with the interpreters of this host. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { echoPair, programFor, tokenExchange } from "../../src/verify/guest-programs.ts";
import { CannotCheck, type Subject } from "../../src/verify/hazard.ts";
import { until } from "../support.ts";

/** A guest that has only one interpreter. */
function guestWith(program: string): Subject {
  const sh = async (script: string) =>
    script.includes(`command -v ${program} `) ? `/usr/bin/${program}\n` : "";
  return { sh } as Partial<Subject> as Subject;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  assert.ok(typeof address === "object" && address);
  return address.port;
}

function start(t: TestContext, [command = "", ...args]: string[]): void {
  const child = spawn(command, args, { stdio: "ignore" });
  t.after(async () => {
    const ended = once(child, "exit");
    if (child.kill("SIGKILL")) await ended;
  });
}

const textOf = (path: string) => readFile(path, "utf8").catch(() => "");

for (const interpreter of ["python3", "node"]) {
  test(`the pair of ${interpreter} exchanges numbers as long as its connection is open`, async (t) => {
    const path = join(await temporaryDirectory(t), "status");
    const port = await freePort();
    start(t, await programFor(guestWith(interpreter), echoPair, ["127.0.0.1", String(port), path]));
    await until("it is open", async () => (await textOf(path)).startsWith("open "));
    const first = await textOf(path);
    await until("it continues", async () => ![first, ""].includes(await textOf(path)));
    assert.match(await textOf(path), /^(open \d+)?$/);
  });

  test(`the pair of ${interpreter} reports a connection that was aborted`, async (t) => {
    const path = join(await temporaryDirectory(t), "status");
    // A peer in place of its own server, which resets the connection.
    const server = createServer((peer) => peer.once("data", () => peer.resetAndDestroy()));
    t.after(() => server.close());
    server.listen(0, "127.0.0.2");
    await once(server, "listening");
    const address = server.address();
    assert.ok(typeof address === "object" && address);
    const argv = await programFor(guestWith(interpreter), echoPair, [
      "127.0.0.1",
      String(address.port),
      path,
    ]);
    const client = /connect(?:ion)?\(\(?(?:Number\(port\), address|address, port)/;
    const elsewhere = argv.map((part) =>
      part.replace(client, (call) => call.replace("address", '"127.0.0.2"')),
    );
    start(t, elsewhere);
    await until("it is aborted", async () => (await textOf(path)).startsWith("aborted "));
  });

  test(`the exchange of ${interpreter} reaches its own address and ends`, async (t) => {
    const path = join(await temporaryDirectory(t), "tokens");
    const args = ["sb-me", "127.0.0.1", "127.255.255.255", String(await freePort()), path];
    start(t, await programFor(guestWith(interpreter), tokenExchange, args));
    await until("it is done", async () => /^done$/m.test(await textOf(path)));
    const lines = (await textOf(path)).trim().split("\n");
    assert.ok(lines.includes("got sb-me"));
    assert.deepEqual([...new Set(lines)].sort(), ["done", "got sb-me"]);
  });
}

test("programFor() says what is missing", async () => {
  const error = await programFor(guestWith("perl"), echoPair, []).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof CannotCheck && !error.absent);
  assert.equal(error.message, "no python3 or node");
});

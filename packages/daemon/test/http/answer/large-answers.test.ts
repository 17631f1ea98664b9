import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { sandboxId, send, startServer } from "../../support.ts";

const answerBytes = 60 * 1024 * 1024;

test("large answers that clients do not read are bounded; small ones and later ones are served", async () => {
  let asked = 0;
  const stdout = "x".repeat(answerBytes);
  await using server = await startServer({
    health: () => ({ ok: true }),
    exec: async () => {
      asked++;
      return {
        exec_id: 1,
        stdout,
        stderr: "",
        exit_code: 0,
        timed_out: false,
        truncated: false,
        duration_ms: 1,
      };
    },
  });
  const path = `/v1/sandboxes/${sandboxId}/exec`;
  const body = JSON.stringify({ args: ["yes"] });
  const request = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const silent = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const socket = net.connect(server.socket);
      await once(socket, "connect");
      socket.write(request);
      // The head of the answer is there, the rest waits.
      await once(socket, "readable");
      return socket;
    }),
  );
  assert.equal(asked, 4);
  const refused = await send(server.socket, path, { method: "POST", body });
  assert.deepEqual([refused.status, refused.json.code], [429, "capacity_exhausted"]);
  assert.match(refused.json.error, /wait to be read/);
  assert.equal((await send(server.socket, "/healthz")).status, 200);
  for (const socket of silent) {
    socket.destroy();
    await once(socket, "close");
  }
  for (;;) {
    // The server learns of it when the kernel tells.
    const { status, json } = await send(server.socket, path, { method: "POST", body });
    if (status === 429) continue;
    assert.deepEqual([status, json.stdout.length], [200, answerBytes]);
    break;
  }
});

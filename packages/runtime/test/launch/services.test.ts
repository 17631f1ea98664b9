/** Services under the guest's agent, with processes of the host. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { AgentClient } from "@forkd/machine";
import { Services } from "../../src/launch/services.ts";
import { openAgent } from "../fakes/agent.ts";
import { rejectsWith, until } from "../support.ts";

const name = "db";

/** A port that nothing listens on at the moment. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address ? address.port : 0;
}

function services(agent: AgentClient, readyTimeoutMs = 60_000): Services {
  return new Services(agent, { env: { PATH: process.env["PATH"] ?? "" }, readyTimeoutMs });
}

/** Listens on the port until the file `stop` exists. */
function listener(port: number, directory: string): string[] {
  const code = `import os, socket, time
s = socket.socket()
s.bind(("127.0.0.1", ${port}))
s.listen()
print("listening", flush=True)
while not os.path.exists("stop"): time.sleep(0.02)
print("FATAL: no socket directory", flush=True)
s.close()
os._exit(1)`;
  return ["sh", "-c", 'cd "$0" && exec python3 -c "$1"', directory, code];
}

test("a service that exits at once fails with its exit code and its last output", async (t) => {
  const { agent } = await openAgent(t);
  const argv = ["sh", "-c", "echo starting; printf '\\033[31mdying\\007\\033[0m\\n' >&2; exit 1"];
  // Its port never accepts, and the time for that is not waited for.
  const error = await rejectsWith(
    services(agent).start({ name, argv, port: await freePort() }),
    "invalid_recipe",
    /^Service "db" exited with code 1; last output: dying$/,
  );
  assert.equal(error.details["exit_code"], 1);
  assert.match(String(error.details["output"]), /starting/);
});

test("a service that a signal ends names the signal", async (t) => {
  const { agent } = await openAgent(t);
  const argv = ["sh", "-c", "kill -9 $$"];
  await rejectsWith(
    services(agent).start({ name, argv, port: await freePort() }),
    "invalid_recipe",
    /was killed by SIGKILL$/,
  );
});

test("a service that does not exist is a fault of the recipe", async (t) => {
  const { agent } = await openAgent(t);
  await rejectsWith(
    services(agent).start({ name, argv: ["nosuch-program"] }),
    "invalid_recipe",
    /^Cannot start "nosuch-program" in the parent: .*No such file/,
  );
});

test("a service that is not ready in time fails with its last output", async (t) => {
  const { agent } = await openAgent(t);
  await rejectsWith(
    services(agent, 300).start({
      name,
      argv: ["sh", "-c", "echo waiting; sleep 1000"],
      port: await freePort(),
    }),
    "invalid_recipe",
    /does not listen on port \d+ after 0.3 s; last output: waiting$/,
  );
});

test("check() passes while the service runs and accepts, and leave() lets it run", async (t) => {
  const { agent, directory } = await openAgent(t);
  const port = await freePort();
  const all = services(agent);
  await all.start({ name, argv: listener(port, directory), port });
  await all.check();
  await all.leave();
  const [listed] = await agent.list();
  assert.deepEqual([listed?.finished, listed?.label], [false, "service:db"]);
});

test("a service that exits after it was ready ends the work that follows, and fails the last check", async (t) => {
  const { agent, directory } = await openAgent(t);
  const port = await freePort();
  const all = services(agent);
  await all.start({ name, argv: listener(port, directory), port });
  const message = /exited with code 1; last output: FATAL: no socket directory$/;
  const work = rejectsWith(all.orFailure(new Promise(() => undefined)), "invalid_recipe", message);
  await writeFile(join(directory, "stop"), "");
  await work;
  await rejectsWith(all.check(), "invalid_recipe", /exited with code 1|no longer listens/);
});

test("a command that starts a daemon and exits with 0 is judged by its port", async (t) => {
  const { agent, directory } = await openAgent(t);
  const port = await freePort();
  const all = services(agent);
  const [shell, option, script, ...rest] = listener(port, directory);
  const background = `(${script ?? ""}) </dev/null >/dev/null 2>&1 &`;
  await all.start({ name, argv: [shell ?? "", option ?? "", background, ...rest], port });
  await until("the command has exited", async () => (await agent.list()).every(({ finished }) => finished));
  await all.check();
  await writeFile(join(directory, "stop"), "");
  await until("the daemon has ended", async () => {
    return all.check().then(
      () => false,
      (error: Error) => /no longer listens on port/.test(error.message),
    );
  });
});

test("a service without a port that exits with 0 does not run, which is an error", async (t) => {
  const { agent } = await openAgent(t);
  const all = services(agent);
  await all.start({ name, argv: ["true"] });
  await until("it has exited", async () => (await agent.list()).every(({ finished }) => finished));
  await rejectsWith(all.check(), "invalid_recipe", /^Service "db" exited with code 0$/);
});

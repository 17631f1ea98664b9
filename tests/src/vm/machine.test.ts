/** The machine layer on a real VM: TCP into the guest, several vCPUs, a new connection to the agent. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { nullLogger } from "@forkd/base";
import { AgentClient, connectTcp } from "@forkd/machine";
import { createSnapshot, type Runtime } from "@forkd/runtime";
import { until } from "@forkd/test-support";
import { forkChild, openTestRuntime, type TestRuntime } from "../support/runtime.ts";

const log = nullLogger();
let opened: TestRuntime;
let runtime: Runtime;
before(async () => {
  opened = await openTestRuntime(["tiny"]);
  ({ runtime } = opened);
});
after(() => opened[Symbol.asyncDispose]());

const child = (tag?: string) => forkChild(runtime, tag);

test("connectTcp() connects to a port in the guest, in both directions, with half close", async () => {
  const { agent, id } = await child();
  const server = agent.start({ argv: ["nc", "-l", "-p", "7000", "-e", "cat"] });
  await server.started;
  let answer = "";
  await until("the server answers", async () => {
    const socket = connectTcp(agent, 7000);
    socket.on("error", () => undefined);
    socket.end("through the agent");
    answer = "";
    try {
      for await (const bytes of socket) answer += String(bytes);
    } catch (error) {
      assert.match(String(error), /refused/i);
    }
    return answer !== "";
  });
  assert.equal(answer, "through the agent");
  const refused = connectTcp(agent, 7999);
  await assert.rejects(async () => {
    for await (const _ of refused) assert.fail("no data comes from a closed port");
  }, /refused/i);
  await runtime.registry.remove(id);
});

test("AgentClient continues on a new connection after one that broke in the middle of a frame", async () => {
  const sandbox = await child();
  const process = sandbox.agent.start({ argv: ["sh", "-c", "echo kept; sleep 1000"], detached: true });
  await process.started;
  const path = join(sandbox.current.paths.socketDir, "agent.sock");
  // The VMM serves one connection at a time. The next one starts after this one breaks, in the middle of a
  // frame.
  sandbox.machine.agentSocket.write(Buffer.from([0xf0, 0x4b, 1, 0x11, 1, 0, 0, 0, 0xff, 0xff, 0, 0]));
  sandbox.machine.agentSocket.destroy();
  const socket = connectSocket(path);
  await using agent = AgentClient.open(socket, { atBoundary: false });
  await agent.ready;
  const listed = (await agent.list()).find(({ id }) => id === process.id);
  assert.equal(listed?.finished, false);
  const again = agent.attach(process.id, [0, 0, 0]);
  const { value } = await again.output.next();
  assert.equal(value?.bytes.toString(), "kept\n");
  await runtime.registry.remove(sandbox.id);
});

test("children of a snapshot with four vCPUs use all four", async () => {
  const request = { tag: "smp", rootfs: tinyRootfs(), memory_mib: 128, vcpus: 4, disk_mib: 64, force: false };
  await createSnapshot(runtime, request, { log, onProgress: () => undefined });
  const sandbox = await child("smp");
  let text = "";
  const process = sandbox.agent.start(
    {
      argv: [
        "/bin/sh",
        "-c",
        "grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
      ],
    },
    { onOutput: ({ bytes }) => void (text += bytes.toString()) },
  );
  await process.exit;
  assert.match(text, /^4\n(tsc|kvm-clock)\n$/);
  await runtime.registry.remove(sandbox.id);
});

/** The image that bake.ts built for `tiny`. */
function tinyRootfs(): string {
  return join(opened.dir, "data/snapshots/tiny/rootfs.ext4");
}

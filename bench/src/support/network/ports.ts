/**
 * Requests to a server in a guest, through the daemon, beside the same request on a connection in the guest's
 * own namespace, which nothing of the daemon takes part in.
 */
import { once } from "node:events";
import { Agent, request } from "node:http";
import type { Socket } from "node:net";
import { nativeTool, nullLogger, Scope } from "@forkd/base";
import { Gate } from "@forkd/egress";
import { identify } from "@forkd/machine";
import { deadline, limits } from "../deadline.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { GuestClient, startGuestServers } from "./guest.ts";
import { addTimes, inRounds, timed } from "./measure.ts";
import { guestPorts } from "./protocol.ts";

const guestAddress = "10.0.2.15";

async function requestOn(socket: Socket): Promise<void> {
  socket.write("GET / HTTP/1.1\r\nHost: guest\r\n\r\n");
  await deadline("the server in the guest", limits.call, once(socket, "data"));
}

/** Through the daemon, by the path of the port. */
function requestVia(socketPath: string, agent: Agent, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, agent, timeout: limits.call * 1000 }, (response) => {
      response.resume().on("error", reject);
      response.on("end", () => {
        if (response.statusCode === 200) resolve();
        else reject(new Error(`The port answers ${response.statusCode}`));
      });
    });
    asked.on("timeout", () => asked.destroy(new Error("The port does not answer")));
    asked.on("error", reject);
    asked.end();
  });
}

export async function measurePorts(
  rows: Rows,
  daemon: ScratchDaemon,
  tag: string,
  { requests, rounds }: { requests: number; rounds: number },
): Promise<void> {
  await using scope = new Scope();
  const sandbox = scope.use(await daemon.forkd.create(tag));
  await startGuestServers(sandbox, await GuestClient.open(sandbox));
  const gate = scope.use(await Gate.start(nativeTool("forkd-gate"), nullLogger()));
  const vmm = identify(sandbox.info.pid ?? 0);
  if (!vmm) throw new Error("The VMM has exited");
  const within = await gate.connect(vmm, guestAddress, guestPorts.everywhere, limits.guest * 1000);
  scope.defer(() => void within.destroy());
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  scope.defer(() => agent.destroy());
  const via = (port: number) =>
    requestVia(daemon.socket, agent, `/v1/sandboxes/${sandbox.id}/ports/${port}/proxy/`);
  const series = (work: () => Promise<void>) => async () => {
    const times: number[] = [];
    for (let i = 0; i < requests; i++) times.push(await timed(work));
    return times;
  };
  const contenders = {
    "port, within the namespace": series(() => requestOn(within)),
    // Only the agent reaches a server on the guest's loopback address.
    "port, direct": series(() => via(guestPorts.everywhere)),
    "port, agent channel": series(() => via(guestPorts.loopback)),
  };
  for (const contender of Object.values(contenders)) await contender();
  const times = await inRounds(rounds, contenders);
  for (const [kind, list] of Object.entries(times)) addTimes(rows, kind, list);
}

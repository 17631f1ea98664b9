/** Sockets for tests. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";

/** Two ends of a unix socket, closed after the test. */
export async function socketPair(t: TestContext): Promise<[Socket, Socket]> {
  const path = join(await temporaryDirectory(t), "socket");
  const server = createServer();
  server.listen(path);
  await once(server, "listening");
  const accepted = once(server, "connection");
  const near = connect(path);
  const [far] = (await accepted) as [Socket];
  server.close();
  t.after(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

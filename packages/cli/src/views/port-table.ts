/** The open ports of a sandbox as a table. */
import type { PortInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import { formatAge, type Column } from "../terminal/table.ts";

const columns: readonly Column<PortInfo>[] = [
  { title: "PORT", value: ({ port }) => String(port), align: "right" },
  { title: "ACCESS", value: ({ public: isPublic }) => (isPublic ? "public" : "token") },
  { title: "CONNECTIONS", value: ({ connections }) => String(connections), align: "right", drop: 3 },
  { title: "OPENED", value: ({ opened_at_unix }) => formatAge(opened_at_unix), drop: 2 },
  {
    title: "CLOSES",
    value: ({ expires_at_unix: at }) =>
      at === undefined ? "-" : new Date(at * 1000).toISOString().replace(/\.\d+/, ""),
    drop: 1,
  },
  { title: "ADDRESS", value: ({ url, path }) => url ?? path },
];

export async function listPorts(cli: Cli, prefix: string): Promise<void> {
  const sandbox = await cli.sandbox(prefix);
  const ports = wireOf<PortInfo[]>(await sandbox.ports.list({ signal: cli.signal }));
  cli.out.list(ports, { columns, name: ({ port }) => String(port) });
  if (ports.length === 0) cli.out.note("No open ports. Run `forkd port ID PORT` to open one.");
}

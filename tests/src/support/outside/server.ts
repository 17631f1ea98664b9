/** Servers of the outside world. Runs in a network namespace of a test and reports what it received. */
import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttps } from "node:https";
import { createServer as createTcp } from "node:net";

export type Seen = {
  port: number;
  method: string;
  url: string;
  headers: Record<string, unknown>;
  body: string;
};
const [, , address = "", keyPath = "", certPath = ""] = process.argv;
const seen: Seen[] = [];
/** lines that arrived on the line port, per connection in the order of its first line */
const lines: string[] = [];

async function handle(request: IncomingMessage, response: ServerResponse, port: number): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const { method = "", url = "", headers } = request;
  const body = Buffer.concat(chunks);
  if (seen.length < 1000)
    seen.push({ port, method, url, headers, body: body.toString("utf8").slice(0, 1000) });
  const [, count] = /^\/bytes\/(\d+)$/.exec(url) ?? [];
  if (url === "/to-metadata")
    return void response.writeHead(302, { location: "http://169.254.169.254/" }).end();
  if (url === "/echo-authorization")
    return void response.end(`you sent ${headers.authorization ?? "nothing"}`);
  if (count !== undefined) return void response.end(Buffer.alloc(Number(count), "x"));
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ host: headers.host, method, url, bytes: body.length }));
}

const serve = (port: number) => (request: IncomingMessage, response: ServerResponse) =>
  void handle(request, response, port).catch(() => response.destroy());
const tls = { key: readFileSync(keyPath), cert: readFileSync(certPath) };
const servers = [
  [createHttp(serve(80)), 80],
  [createHttps(tls, serve(443)), 443],
  [createHttp(serve(8080)), 8080],
  [createTcp((socket) => socket.on("error", () => undefined).pipe(socket)), 5432],
  [createTcp((socket) => socket.on("error", () => undefined).pipe(socket)), 7005],
  [
    createTcp((socket) => {
      let text = "";
      socket.on("error", () => undefined);
      socket.on("data", (chunk) => {
        const parts = (text + chunk.toString("utf8")).split("\n");
        text = parts.pop() ?? "";
        lines.push(...parts);
        socket.write(parts.map((part) => `got ${part}\n`).join(""));
      });
    }),
    9000,
  ],
] as const;
for (const [server, port] of servers)
  await new Promise<void>((resolve) => void server.listen(port, address, resolve));
const udp = createSocket("udp4", (message, { address: from, port }) =>
  udp.send(`udp:${message.toString("utf8")}`, port, from),
);
await new Promise<void>((resolve) => udp.bind(123, address, resolve));

process.on("message", (message: { ask: string; id: number }) => {
  const answer = message.ask === "lines" ? lines : message.ask === "seen" ? seen : undefined;
  if (message.ask === "forget") seen.length = lines.length = 0;
  process.send?.({ id: message.id, answer });
});
process.on("disconnect", () => process.exit(0));
process.send?.("ready");

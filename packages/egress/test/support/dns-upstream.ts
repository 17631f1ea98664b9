import dgram from "node:dgram";
import type { TestContext } from "node:test";
import { decode, encode, type Answer } from "dns-packet";
import { once } from "./sockets.ts";

/** A DNS server whose answers a test can change. */
export type DnsUpstream = {
  readonly server: string;
  /** name → addresses */
  readonly records: Map<string, string[]>;
  /** every question, in order */
  readonly asked: string[];
};

export async function dnsUpstream(
  t: TestContext,
  records: Record<string, string[]> = {},
): Promise<DnsUpstream> {
  const socket = dgram.createSocket("udp4");
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  t.after(() => socket.close());
  const known = new Map(Object.entries(records));
  const asked: string[] = [];
  socket.on("message", (bytes, from) => {
    const packet = decode(bytes);
    const question = packet.questions?.[0];
    if (!question) return;
    if (question.type === "A") asked.push(question.name);
    const addresses = known.get(question.name.toLowerCase());
    const answers = (addresses ?? [])
      .filter((address) => address.includes(":") === (question.type === "AAAA"))
      .map((data): Answer => ({ type: question.type as "A", name: question.name, ttl: 1, data }));
    const flags = 0x180 | (addresses ? 0 : 3);
    socket.send(
      encode({ ...packet, type: "response", flags, questions: [question], answers, additionals: [] }),
      from.port,
      from.address,
    );
  });
  return { server: `127.0.0.1:${socket.address().port}`, records: known, asked };
}

/** What rules, names and the proxy add to a connection. */
import { connect } from "node:net";
import { once } from "node:events";
import { Resolver } from "node:dns/promises";
import { Policy } from "@forkd/egress";
import type { Forkd } from "@forkd/sdk";
import { deadline, limits } from "../deadline.ts";
import type { Rows } from "../rows.ts";
import { GuestClient, startGuestServers } from "./guest.ts";
import { addTimes, inRounds, timed } from "./measure.ts";
import type { Outside } from "./outside.ts";
import { domain, guestPorts, rawVerbs, serverPorts } from "./protocol.ts";

type Sizes = { rules: number; decisions: number; exchanges: number; lookUps: number; rounds: number };

function manyRules(count: number): string[] {
  return Array.from(
    { length: count },
    (_, index) => `allow ${index % 2 === 0 ? "*." : ""}host${index}.example${index % 97}.com:443`,
  );
}

/** Half of the decisions match a rule, the other half match none. */
export function measureDecisions(rows: Rows, { rules: count, decisions }: Sizes): void {
  const rules = manyRules(count);
  const begun = performance.now();
  const policy = Policy.compile({ mode: "filtered", rules });
  const compileMs = performance.now() - begun;
  const names = Array.from({ length: 1000 }, (_, index) => {
    const rule = ((index * 7919) % count) & ~1;
    return index % 2 === 0 ? `unknown${index}.example.net` : `a.b.host${rule}.example${rule % 97}.com`;
  });
  const times = Array.from({ length: Math.ceil(decisions / names.length) }, () => {
    const from = performance.now();
    for (const name of names) policy.decide({ protocol: "tcp", port: 443, name });
    return (performance.now() - from) / names.length;
  });
  addTimes(rows, "decide", times, { rules: count, compile_ms: compileMs });
}

/** One exchange of a few bytes on a new connection, from the host itself. */
async function hostExchange({ address }: Outside): Promise<void> {
  const socket = connect({ host: address, port: serverPorts.raw, noDelay: true });
  try {
    const head = Buffer.alloc(9);
    head[0] = rawVerbs.up;
    socket.write(head);
    await deadline("the server outside", limits.call, once(socket, "data"));
  } finally {
    socket.destroy();
  }
}

export async function measureConnections(
  rows: Rows,
  forkd: Forkd,
  outside: Outside,
  tag: string,
  sizes: Sizes,
): Promise<void> {
  const name = `server.${domain}`;
  const rule = `allow *.${domain}:${serverPorts.http},${serverPorts.raw}`;
  await using few = await forkd.create(tag, { network: { mode: "filtered", rules: [rule] } });
  await using many = await forkd.create(tag, { network: { mode: "filtered", rules: [rule] } });
  // The limit of rules counts this one too.
  const rules = [...manyRules(sizes.rules - 1), rule];
  const setMs = await timed(() => many.network.set({ rules }));
  rows.add({ case: "set rules", n: rules.length, wall_ms: setMs });
  const [one, other] = [await GuestClient.open(few), await GuestClient.open(many)];
  await startGuestServers(few, one);
  const address = await one.resolve(name);
  if ((await other.resolve(name)) !== address) throw new Error("Guests see different addresses of a name");
  const exchanges = (client: GuestClient, lambda: string) => () => client.times(sizes.exchanges, lambda);
  const raw = `lambda _: _raw("${address}")`;
  const http = `lambda _: _http("${address}", "${name}")`;
  const loopback = `lambda _: _http("127.0.0.1", "x", ${guestPorts.loopback})`;
  for (const client of [one, other]) for (const lambda of [raw, http]) await client.times(5, lambda);
  await one.times(5, loopback);
  const times = await inRounds(sizes.rounds, {
    "exchange, host to server": async () => {
      const list: number[] = [];
      for (let i = 0; i < sizes.exchanges; i++) list.push(await timed(() => hostExchange(outside)));
      return list;
    },
    "exchange, within the guest": exchanges(one, loopback),
    "exchange, raw": exchanges(one, raw),
    "exchange, raw, many rules": exchanges(other, raw),
    "exchange, http": exchanges(one, http),
    "exchange, http, many rules": exchanges(other, http),
    "exchange, refused": exchanges(one, `lambda _: _refused("${address}", 81)`),
  });
  for (const [kind, list] of Object.entries(times)) addTimes(rows, kind, list);
  await measureLookUps(rows, one, outside, sizes);
}

/** A resolver answers a new name only after it has asked; names differ, so that none is known before. */
async function measureLookUps(
  rows: Rows,
  client: GuestClient,
  outside: Outside,
  { lookUps, rounds }: Sizes,
): Promise<void> {
  const resolver = new Resolver();
  resolver.setServers([outside.resolver]);
  let serial = 0;
  const next = () => `n${++serial}`;
  const times = await inRounds(rounds, {
    "look-up, by the host": async () => {
      const list: number[] = [];
      for (let i = 0; i < lookUps; i++)
        list.push(await timed(() => resolver.resolve4(`${next()}.${domain}`)));
      return list;
    },
    "look-up, new name": () => client.times(lookUps, `lambda i: _resolve(f"${next()}-{i}.${domain}")`),
    "look-up, known name": () => client.times(lookUps, `lambda _: _resolve("server.${domain}")`),
    "look-up, refused": () => client.times(lookUps, `lambda i: _resolve(f"${next()}-{i}.example.com")`),
  });
  for (const [kind, list] of Object.entries(times)) addTimes(rows, kind, list);
}

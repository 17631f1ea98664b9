/** What `net` shows of the network of a sandbox. */
import type { NetworkInfo } from "@forkd/contract";
import { formatBytes, type Column } from "../terminal/table.ts";
import type { Fact } from "./facts.ts";

type ShownRule = NetworkInfo["rules"][number];

export const ruleColumns: readonly Column<ShownRule>[] = [
  { title: "RULE", value: ({ rule }) => rule },
  { title: "FROM", value: ({ from }) => from },
];

export function describeNetwork({ mode, device, note, ceilings, secrets, counters }: NetworkInfo): Fact[] {
  const { connections, open_connections: open, denied, failed, queries } = counters;
  return [
    ["mode", mode],
    ["device", note === undefined ? device : `${device} (${note})`],
    ...ceilings.map((ceiling): Fact => [
      "at most",
      `${[ceiling.mode, ...ceiling.rules].join("; ")} (of the ${ceiling.from})`,
    ]),
    ["secrets", secrets.join(" ") || "none"],
    ["connections", `${connections}, ${open} open, ${denied} denied, ${failed} failed`],
    ["traffic", `${formatBytes(counters.bytes_sent)} sent, ${formatBytes(counters.bytes_received)} received`],
    ["look-ups", String(queries)],
  ];
}

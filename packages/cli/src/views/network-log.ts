/** Entries of the log of a network as lines. The guest chooses the names in them. */
import type { NetworkLogEntry } from "@forkd/contract";
import { clean, formatBytes } from "../terminal/table.ts";

/** "2026-01-31T12:00:00.000Z  denied     tcp  example.com:443  no rule allows it" */
export function describeEntry(entry: NetworkLogEntry): string {
  const { at_unix: at, event, protocol, suppressed } = entry;
  const parts = [
    new Date(at * 1000).toISOString(),
    event.padEnd("connected".length),
    protocol,
    destinationOf(entry),
    ...detailsOf(entry),
    ...(suppressed === undefined ? [] : [`(${suppressed} more were left out before)`]),
  ];
  return clean(parts.join("  ").trimEnd());
}

/** "tcp example.com:443: no rule allows it", for the stream of events. */
export function describeDenial(entry: NetworkLogEntry): string {
  const reason = entry.reason === undefined ? "" : `: ${entry.reason}`;
  return clean(`${entry.protocol} ${destinationOf(entry)}${reason}`);
}

function destinationOf({ name, address, port }: NetworkLogEntry): string {
  const host = name ?? (address?.includes(":") ? `[${address}]` : address) ?? "-";
  const at = port === undefined ? host : `${host}:${port}`;
  return name !== undefined && address !== undefined ? `${at} (${address})` : at;
}

function detailsOf(entry: NetworkLogEntry): string[] {
  const { via, method, status, reason, rule, suggestion } = entry;
  const { bytes_sent: sent, bytes_received: received, duration_ms: ms } = entry;
  return [
    ...(via === undefined ? [] : [via]),
    ...(method === undefined ? [] : [`${method}${status === undefined ? "" : ` ${status}`}`]),
    ...(sent === undefined ? [] : [`${formatBytes(sent)} sent`]),
    ...(received === undefined ? [] : [`${formatBytes(received)} received`]),
    ...(ms === undefined ? [] : [`${(ms / 1000).toFixed(1)} s`]),
    ...(reason === undefined ? [] : [reason]),
    ...(rule === undefined ? [] : [`(${rule})`]),
    ...(suggestion === undefined ? [] : [`would be allowed by "${suggestion}"`]),
  ];
}

/**
 * The command that allows what was denied; undefined if the suggestion is not a plain rule. A user copies it
 * into a shell, and the guest chose the name in it.
 */
export function allowCommand(id: string, suggestion: string | undefined): string | undefined {
  const rule = /^allow ((?:tcp |udp )?)([a-z0-9_.:[\]/,-]{1,300})$/.exec(suggestion ?? "");
  if (rule === null) return undefined;
  const [, protocol = "", destination = ""] = rule;
  const quoted = destination.includes("[") ? `'${destination}'` : destination;
  return `forkd net ${id} allow ${protocol}${quoted}`;
}

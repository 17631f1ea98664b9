/** A sandbox as E2B's clients see it. Pure. */
import type { SandboxInfo } from "@forkd/contract";
import { envdVersion } from "../types.ts";
import type { E2bRecord } from "./records.ts";

/** Clients need one; a sandbox without a time to live has no end. */
const noEnd = "9999-12-31T23:59:59Z";
/** E2B's name for the node that runs a sandbox; clients need one. */
const clientID = "forkd";

export type Place = {
  /** of the host names of ports */
  readonly domain: string | undefined;
  /** size of the disk; 0 if it is not known */
  readonly diskMib?: number | undefined;
};

/** The answer of create and connect. */
export function connection(info: SandboxInfo, record: E2bRecord, { domain }: Place): Record<string, unknown> {
  return {
    sandboxID: info.id,
    templateID: record.template_id,
    clientID,
    envdVersion,
    ...(record.alias !== undefined && { alias: record.alias }),
    ...(domain !== undefined && { domain }),
    ...(record.token !== undefined && { envdAccessToken: record.token }),
    ...(record.traffic_token !== undefined && { trafficAccessToken: record.traffic_token }),
  };
}

/** An entry of a list. A sandbox that was not made with E2B's API has its labels as metadata. */
export function listed(info: SandboxInfo, record: E2bRecord | undefined, { diskMib = 0 }: Place) {
  const end = info.expires_at_unix ?? (info.state === "paused" ? info.paused_at_unix : undefined);
  return {
    sandboxID: info.id,
    templateID: record?.template_id ?? info.snapshot_tag,
    clientID,
    ...(record?.alias !== undefined && { alias: record.alias }),
    startedAt: isoOf(info.created_at_unix),
    endAt: end === undefined ? noEnd : isoOf(end),
    envdVersion,
    cpuCount: info.vcpus,
    memoryMB: info.memory_mib,
    diskSizeMB: diskMib,
    state: info.state,
    metadata: metadataOf(info, record),
  };
}

/** The answer of getInfo(). */
export function detail(info: SandboxInfo, record: E2bRecord | undefined, place: Place) {
  const { network } = record ?? {};
  return {
    ...listed(info, record, place),
    ...(place.domain !== undefined && { domain: place.domain }),
    ...(record?.token !== undefined && { envdAccessToken: record.token }),
    ...(record?.allow_internet_access !== undefined && {
      allowInternetAccess: record.allow_internet_access,
    }),
    ...(typeof network === "object" && network !== null && { network }),
    lifecycle: { autoResume: info.auto_resume ?? false, onTimeout: info.on_timeout ?? "kill" },
    volumeMounts: [],
  };
}

export function metadataOf({ labels }: SandboxInfo, record: E2bRecord | undefined): Record<string, string> {
  return record?.metadata ?? labels;
}

export function isoOf(unix: number): string {
  return new Date(unix * 1000).toISOString();
}

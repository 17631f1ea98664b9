/** The outcome of one check, and what can safely be done about it. */
import type { Check } from "@forkd/contract";

export type Finding = Check & {
  /** Does what the remedy says and reports it. Never changes data. */
  readonly fix?: () => Promise<string>;
};

export function ok(name: string, detail: string): Finding {
  return { name, outcome: "ok", detail };
}

export function warn(name: string, detail: string, remedy: string): Finding {
  return { name, outcome: "warn", detail, remedy };
}

export function fail(name: string, detail: string, remedy: string): Finding {
  return { name, outcome: "fail", detail, remedy };
}

/** As it is sent to clients, without the fix. */
export function toCheck({ name, outcome, detail, remedy }: Finding): Check {
  return { name, outcome, detail, ...(remedy !== undefined && { remedy }) };
}

/** Turns a failing check into a finding, so that the others are still reported. */
export async function guarded(name: string, run: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await run();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return [warn(name, `could not be checked: ${why}`, "See the message.")];
  }
}

const gib = 1024 ** 3;

export function inGib(bytes: number): string {
  return `${(bytes / gib).toFixed(1)} GiB`;
}

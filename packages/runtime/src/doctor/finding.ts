/** The outcome of one check, and what can safely be done about it. */
import { errorMessage, advice, httpRemedy, type Check, type Remedy } from "@forkd/contract";

export type Finding = Omit<Check, "remedy" | "remedy_data"> & {
  readonly remedy?: Remedy;
  /** Does what the remedy says and reports it. Never changes data. */
  readonly fix?: () => Promise<string>;
};

export function ok(name: string, detail: string): Finding {
  return { name, outcome: "ok", detail };
}

/** A remedy that is a text is advice. */
export function warn(name: string, detail: string, remedy: Remedy | string): Finding {
  return { name, outcome: "warn", detail, remedy: toRemedy(remedy) };
}

export function fail(name: string, detail: string, remedy: Remedy | string): Finding {
  return { name, outcome: "fail", detail, remedy: toRemedy(remedy) };
}

function toRemedy(remedy: Remedy | string): Remedy {
  return typeof remedy === "string" ? advice(remedy) : remedy;
}

/** As it is sent to clients, without the fix. */
export function toCheck({ name, outcome, detail, remedy }: Finding): Check {
  return {
    name,
    outcome,
    detail,
    ...(remedy && { remedy: httpRemedy(remedy) }),
    ...(remedy && remedy.action !== "advice" && { remedy_data: { ...remedy } }),
  };
}

/** Turns a failing check into a finding, so that the others are still reported. */
export async function guarded(name: string, run: () => Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await run();
  } catch (error) {
    const why = errorMessage(error);
    return [warn(name, `could not be checked: ${why}`, "See the message.")];
  }
}

const gib = 1024 ** 3;

export function inGib(bytes: number): string {
  return `${(bytes / gib).toFixed(1)} GiB`;
}

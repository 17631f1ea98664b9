/**
 * One hazard of a fork, as data: what must hold, what makes it hold, and a check. A check sees children of a
 * snapshot and of a branch, through these types only, so that a test can give it children that are wrong.
 */
import type { HazardId, HazardOutcome, Language } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** What a check found. */
export type Outcome = {
  readonly outcome: HazardOutcome;
  readonly detail: string;
  /** of `not_applicable`: the hazard cannot occur */
  readonly absent?: boolean;
  readonly remedy?: string;
};

export type Hazard = {
  readonly id: HazardId;
  readonly title: string;
  /** what must hold */
  readonly policy: string;
  /** what makes it hold */
  readonly mechanism: string;
  /** Begins something in the first child that the branch will contain. */
  readonly prepare?: (source: Subject, lab: Pick<Lab, "scratch">) => Promise<void>;
  readonly check: (lab: Lab) => Promise<Outcome>;
};

/** A sandbox that is checked. Every call ends: with its result, its timeout or the end of the machine. */
export type Subject = {
  /** "child 1", "branched child 2" */
  readonly name: string;
  readonly sandbox: Sandbox;
  /** Output of a command that must succeed. Throws CannotCheck if the guest does not have the program. */
  run(argv: readonly string[]): Promise<string>;
  /** The same with `sh -c`. */
  sh(script: string): Promise<string>;
  /** Starts a command that keeps running. */
  start(argv: readonly string[]): Promise<void>;
  /** The first 64 KiB of a file, or undefined if it does not exist. */
  read(path: string): Promise<string | undefined>;
  write(path: string, text: string): Promise<void>;
  /** What the code writes to stdout. */
  evaluate(language: Language, code: string): Promise<string>;
};

export type Lab = {
  readonly runtime: Runtime;
  readonly snapshot: StoredSnapshot;
  /** forked from the snapshot; the first one was branched after prepare() */
  readonly children: readonly Subject[];
  readonly source: Subject;
  /** forked from the branch of the first child */
  readonly branched: readonly Subject[];
  readonly branch: StoredSnapshot;
  /** part of the names of files in the guests, different for each run */
  readonly scratch: string;
};

/** The image lacks what the check needs. It is reported as not applicable, never as passed. */
export class CannotCheck extends Error {
  override readonly name = "CannotCheck";
  /** the hazard cannot occur */
  readonly absent: boolean;

  constructor(reason: string, { absent = false } = {}) {
    super(reason);
    this.absent = absent;
  }
}

export function everyone({ children, branched }: Pick<Lab, "children" | "branched">): Subject[] {
  return [...children, ...branched];
}

export function pass(detail: string, remedy?: string): Outcome {
  return { outcome: "pass", detail, ...(remedy !== undefined && { remedy }) };
}

export function warn(detail: string, remedy: string): Outcome {
  return { outcome: "warn", detail, remedy };
}

export function fail(detail: string, remedy?: string): Outcome {
  return { outcome: "fail", detail, ...(remedy !== undefined && { remedy }) };
}

/** One value that two children have, named by both; undefined if all differ. */
export function shared(
  values: readonly { readonly name: string; readonly value: string }[],
): string | undefined {
  const seen = new Map<string, string>();
  for (const { name, value } of values) {
    const first = seen.get(value);
    if (first !== undefined) return `${first} and ${name}`;
    seen.set(value, name);
  }
  return undefined;
}

/** Asks all children at the same time. */
export async function askAll<T>(
  subjects: readonly Subject[],
  ask: (subject: Subject) => Promise<T>,
): Promise<{ name: string; value: T }[]> {
  return Promise.all(subjects.map(async (subject) => ({ name: subject.name, value: await ask(subject) })));
}

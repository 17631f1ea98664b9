/**
 * Whether this host can fork a snapshot that it does not have yet, from the manifests alone, and what helps if
 * it cannot. Pure.
 */
import { advice, AppError, type Remedy } from "@forkd/contract";
import type { Manifest } from "@forkd/store";
import { findDifferences, type Difference, type Host } from "../snapshots/compatibility.ts";

type Portability = {
  readonly canFork: boolean;
  readonly differences: readonly Difference[];
  /** one line for a person */
  readonly text: string;
  /** what helps; absent if it can be forked */
  readonly remedy?: Remedy;
};

type Remote = {
  /** what the caller asked for */
  readonly reference: string;
  /** of the snapshot that is pulled: the top of its chain, which decides */
  readonly manifest: Manifest;
  /** whether the recipe of the snapshot is there, so that this host can build it */
  readonly hasRecipe: boolean;
};

export function portabilityOf({ reference, manifest, hasRecipe }: Remote, host: Host): Portability {
  const differences = findDifferences(manifest, host);
  if (differences.length === 0) {
    const { engine, machine } = manifest;
    const where = `${engine.name} ${engine.version}, ${machine.accelerator}, CPU ${machine.cpu}`;
    return { canFork: true, differences, text: `This host can fork ${reference} (${where})` };
  }
  const text = `This host cannot fork ${reference}: ${differences.map((each) => each.text).join("; ")}`;
  return { canFork: false, differences, text, remedy: remedyFor(differences, { reference, hasRecipe }) };
}

/** Throws `snapshot_incompatible` with the remedy. */
export function requirePortable(remote: Remote, host: Host): void {
  const { canFork, differences, text, remedy } = portabilityOf(remote, host);
  if (canFork) return;
  const { reference } = remote;
  const details = {
    reference,
    differences: differences.map((each) => each.text),
    can_rebuild: remote.hasRecipe,
  };
  throw new AppError("snapshot_incompatible", text, { details, remedy });
}

/** A setting or a program that makes this host fit, if one does; otherwise a build. */
function remedyFor(
  differences: readonly Difference[],
  { reference, hasRecipe }: Pick<Remote, "reference" | "hasRecipe">,
): Remedy {
  if (hasRecipe) return { action: "pull_and_rebuild", reference };
  const facts = new Map(differences.map((each) => [each.fact, each]));
  const version = facts.get("engine_version");
  if (facts.size === 1 && version)
    return { action: "change_setting", setting: "qemu_path", to: `a QEMU of version ${version.snapshot}` };
  // Emulation is possible on every host, and its CPU model does not depend on the host.
  const emulated = ["accelerator", "cpu", "tsc"];
  if (
    facts.get("accelerator")?.snapshot === "tcg" &&
    [...facts.keys()].every((fact) => emulated.includes(fact))
  )
    return { action: "change_setting", setting: "accelerator", to: '"tcg", as on the host that made it' };
  return advice(
    "It carries no recipe, so that this host cannot build it: ask its publisher for one that does.",
  );
}
